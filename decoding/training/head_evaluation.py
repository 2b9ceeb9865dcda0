"""How near a head is to its target on held-out text: at the roots and at the nodes of the target's own trees."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from decoding.heads.network import HeadNetwork
from decoding.models.pair import Model
from decoding.models.presets import cpu_computes_bfloat16
from decoding.training.losses import LOGITS_AT_ONCE, Project, Sides
from decoding.training.prepared import Prepared
from decoding.training.unroll import root_labels, unroll

WINDOWS = 8  # held-out windows that a curve is measured on; more cost a CPU seconds


def reduced(device: torch.device, dtype: torch.dtype) -> AbstractContextManager:
    """Compute in bfloat16 where the device is faster at it; beside weights in float16, its rival, in float32.

    Args:
        dtype: of the target.
    """
    if dtype == torch.float16:
        return nullcontext()
    if device.type == "cuda" or (device.type == "cpu" and cpu_computes_bfloat16()):
        return torch.autocast(device.type, torch.bfloat16)
    return nullcontext()


@torch.no_grad()
def held_out_figures(
    head: HeadNetwork, sides: Sides, prepared: Prepared, top_k: int, model: Model, windows: int = WINDOWS
) -> dict[str, float]:
    """`held_out_overlap_D` and `held_out_agreement_D` at depth D from 1, and `held_out_loss` at the roots in nats.

    Overlap is the sum over tokens of the smaller of the two probabilities, which is the chance that a drawn token is
    accepted; agreement is the share of nodes after which both have the same likeliest token. Means over the nodes.

    Args:
        model: the target. top_k: width of its trees in the held-out windows.
    """
    sums: dict[str, list[Tensor]] = {}
    device = model.device
    for window in range(min(windows, prepared.plan.held_out)):
        text = prepared.text("held_out", [window], device)
        trees = prepared.trees("held_out", [window], top_k, device) if prepared.plan.depth > 1 else None
        with reduced(device, model.dtype):
            found = unroll(head, sides.embed, text, trees)
            labels = [root_labels(text), *(trees.labels.unbind(1) if trees is not None else ())]
            for depth, (out, label) in enumerate(zip(found, labels, strict=True), 1):
                overlap, agreement, loss = closeness(sides.project, out.flatten(0, -2), label.flatten(0, -2))
                sums.setdefault(f"held_out_overlap_{depth}", []).append(overlap)
                sums.setdefault(f"held_out_agreement_{depth}", []).append(agreement)
                if depth == 1:
                    sums.setdefault("held_out_loss", []).append(loss)
    return {name: float(torch.cat(parts).mean()) for name, parts in sorted(sums.items())}


def closeness(project: Project, out: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Overlap, agreement (0 or 1) and cross-entropy of rows of features `[rows, hidden_size]`, `[rows]` each."""
    parts: list[Sequence[Tensor]] = []
    block = max(1, LOGITS_AT_ONCE // project(labels[:1]).shape[-1])
    for mine, theirs in zip(out.split(block), labels.split(block), strict=True):
        draft, law = project(mine).float(), torch.softmax(project(theirs).float(), -1)
        probs = torch.softmax(draft, -1)
        same = (draft.argmax(-1) == law.argmax(-1)).float()
        loss = -(law * torch.log_softmax(draft, -1)).sum(-1)
        parts.append((torch.minimum(probs, law).sum(-1), same, loss))
    return tuple(torch.cat(part) for part in zip(*parts, strict=True))
