"""SALF & TALF, Figure 2: which ranks a drafted tree is made of, and how good a head is behind its own n-th choice."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from decoding.heads.head import with_draft
from decoding.heads.store import find_head, load_network
from decoding.methods.method import Method
from decoding.models.pair import Pair
from decoding.session.session import DecodeSession, Limits
from decoding.trace.records import IterationTrace
from decoding.training.head_data import children_features, text_features
from decoding.training.head_learner import target_sides
from decoding.training.head_losses import Drafted, Sides, TextWindows, unroll
from decoding.training.text import continue_texts

RANKS = 5
BINS = 10  # of equal size; the paper does not say how many
LAST = f"{RANKS} or lower"


def rank_shares(pair: Pair, method: Method, prompt_ids: list[int], tokens: int) -> dict[str, float]:
    """Share of the verified tokens of a prompt's trees by their rank in the draft's distribution, 1 to 4 and the rest.

    A tree that holds a token holds every likelier one with the same parent, so that ranks can be counted in it.
    """
    session = DecodeSession(pair, method, prompt_ids, limits=Limits(tokens, ignore_end_of_text=True))
    counts: Counter[str] = Counter()
    for iteration in session:
        if not iteration.in_loop:
            counts.update(_ranks(iteration))
    total = sum(counts.values())
    return {name: counts[name] / total for name in rank_names()} if total else {}


def rank_names() -> tuple[str, ...]:
    """Names of the ranks in order."""
    return (*(str(rank) for rank in range(1, RANKS)), LAST)


def _ranks(iteration: IterationTrace) -> list[str]:
    siblings: dict[int, list[float]] = {}
    for node in iteration.nodes:
        if node.node_id and not node.pruned and node.flat_index is not None:
            siblings.setdefault(node.parent_id, []).append(node.draft_probability)
    names = rank_names()
    return [names[min(rank, RANKS - 1)] for group in siblings.values() for rank in range(len(group))]


@dataclass(frozen=True)
class Conditioned:
    """What a head says after its own n-th ranked token, at every root of one prompt.

    Attributes:
        right: bool `[roots, RANKS]`: its likeliest token is the target's.
        confidence: its probability of the target's likeliest token, `[roots, RANKS]`.
        top, target_top: its own and the target's probability of its likeliest token, `[roots, RANKS]`.
    """

    right: np.ndarray
    confidence: np.ndarray
    top: np.ndarray
    target_top: np.ndarray


def written_text(pair: Pair, prompt_ids: list[int], tokens: int, seed: int) -> np.ndarray:
    """A prompt with what the target writes behind it at temperature 1."""
    text = list(prompt_ids)
    continue_texts(pair.target, [text], len(text) + tokens, 1.0, [np.random.default_rng(seed)])
    return np.array(text)


@torch.inference_mode()
def conditioned(pair: Pair, head: str, tokens: np.ndarray, first_root: int) -> Conditioned:
    """Draft one token, feed each of the five best back, and compare the next distribution with the target's choice.

    Args:
        head: name of a stored head.
        tokens: a text; its tokens from `first_root` on are the roots.
    """
    with_draft(pair, head)  # refuses a head of another target
    network, sides = load_network(find_head(head)).to(pair.target.device).eval(), target_sides(pair)
    features = text_features(pair.target, tokens)
    text = TextWindows(torch.from_numpy(tokens)[None].to(features.device), features[None].float(), 1)
    (out,) = unroll(network, sides.embed, text, None)
    children = _law(sides, out[0, :, 0]).topk(RANKS).indices  # [roots, RANKS]
    drafted = Drafted(children[None, None], torch.zeros_like(children)[None, None], features[:0])
    behind = unroll(network, sides.embed, text, drafted)[1][0]
    theirs = children_features(pair.target, tokens, children)
    probs, wanted_distribution = _law(sides, behind), _law(sides, theirs)
    wanted, (top, chosen) = wanted_distribution.argmax(-1, keepdim=True), probs.max(-1, keepdim=True)
    found = (chosen == wanted, probs.gather(-1, wanted), top, wanted_distribution.gather(-1, chosen))
    return Conditioned(*(part[first_root - 1 :, :, 0].cpu().numpy() for part in found))


def accuracy(parts: Sequence[Conditioned], rank: int, prompts: np.ndarray) -> float:
    """Share of roots after which the head's likeliest token is the target's; rank from 0."""
    return float(_rows(parts, "right", rank, prompts).mean())


def calibration_error(parts: Sequence[Conditioned], rank: int, prompts: np.ndarray) -> float:
    """Expected calibration error as in Appendix A: bins by the head's probability of the target's likeliest token.

    A head that equals an unsure target does not reach 0: it is as unsure, and right all the same.
    """
    right, confidence = (_rows(parts, name, rank, prompts) for name in ("right", "confidence"))
    return _binned_gap(right, confidence)


def distribution_calibration_error(parts: Sequence[Conditioned], rank: int, prompts: np.ndarray) -> float:
    """The same against the target's distribution: bins by the head's probability of its choice; 0 for the target.

    How often the target draws that token is its probability, so nothing is drawn.
    """
    share, confidence = (_rows(parts, name, rank, prompts) for name in ("target_top", "top"))
    return _binned_gap(share, confidence)


def _rows(parts: Sequence[Conditioned], name: str, rank: int, prompts: np.ndarray) -> np.ndarray:
    return np.concatenate([getattr(parts[number], name)[:, rank] for number in prompts])


def _binned_gap(right: np.ndarray, confidence: np.ndarray) -> float:
    """Mean distance of the two in `BINS` bins of equal size by confidence."""
    order = np.argsort(confidence, kind="stable")
    bins = [part for part in np.array_split(order, BINS) if len(part)]
    return float(sum(len(part) * abs(right[part].mean() - confidence[part].mean()) for part in bins) / len(order))


def _law(sides: Sides, features: torch.Tensor) -> torch.Tensor:
    return torch.softmax(sides.project(features).float(), -1)
