"""What a draft head is trained on, prepared once and kept: windows of text, features and trees of the target.

The trees are those that the target grows itself, EAGLE-2's beam below every token of a window. TALF trains on them
(SALF & TALF, Algorithm 1): the soft label of a node is the target's distribution after it, which its output head makes
of the node's feature.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from decoding.common.errors import TrainingError
from decoding.engines.base import Visibility
from decoding.engines.kv_cache import KVCache
from decoding.models.pair import Model, Pair, pair_identity
from decoding.training.folder import Training
from decoding.training.head_losses import Drafted, TextWindows
from decoding.training.shards import Report, Shards, make_missing, telling
from decoding.training.text import Texts, WindowPlan, run_text, windows_of

ROOTS_TOGETHER = 64  # more of them let every pass attend to more nodes of other roots in vain


@torch.inference_mode()
def text_features(model: Model, tokens: np.ndarray) -> Tensor:
    """The target's feature after each token of a text `[size]`: `[size, hidden_size]`."""
    return run_text(model, model.engine.new_cache(len(tokens)), tokens)[1]


@torch.inference_mode()
def target_trees(model: Model, tokens: np.ndarray, top_k: int, levels: int) -> Drafted:
    """EAGLE-2's beam of width `top_k` below every token of a text but the first, grown with the model's own
    distributions.

    A level holds the nodes that the beam expands, best first. Roots are taken together, and the nodes of a level are
    run in one pass under tree attention. `tokens` `[1 + roots]`.
    """
    cache = model.engine.new_cache(len(tokens) + levels * ROOTS_TOGETHER * top_k)
    logits, _ = run_text(model, cache, tokens)
    grown = []
    for first in range(1, len(tokens), ROOTS_TOGETHER):
        roots = np.arange(first, min(first + ROOTS_TOGETHER, len(tokens)))
        grown.append(_below(model, cache, roots, logits[first : first + len(roots)], top_k, levels))
        cache.rollback(len(tokens))
    return Drafted(*(torch.cat(part, 1) for part in zip(*grown, strict=True)))


@torch.inference_mode()
def children_features(model: Model, tokens: np.ndarray, children: Tensor) -> Tensor:
    """The target's features after given children of every token of a text but the first, `[roots, num_children, size]`.

    `tokens` `[1 + roots]`, `children` int64 `[roots, num_children]`.
    """
    count = children.shape[1]
    cache = model.engine.new_cache(len(tokens) + ROOTS_TOGETHER * count)
    run_text(model, cache, tokens)
    found = []
    for first in range(1, len(tokens), ROOTS_TOGETHER):
        roots = np.arange(first, min(first + ROOTS_TOGETHER, len(tokens)))
        seen = np.repeat(np.arange(len(tokens)) <= roots[:, None], count, 0)
        mask = np.concatenate([seen, np.eye(len(seen), dtype=bool)], 1)
        ids = children[first - 1 : first - 1 + len(roots)].flatten().cpu().numpy()
        _, features = _run(model, cache, ids, np.repeat(roots + 1, count), mask)
        found.append(features.view(len(roots), count, -1))
        cache.rollback(len(tokens))
    return torch.cat(found)


def _run(
    model: Model, cache: KVCache, ids: np.ndarray, positions: np.ndarray, seen: np.ndarray
) -> tuple[Tensor, Tensor]:
    """Logits and features of nodes, each of which sees the rows marked in `seen` `[nodes, cache.length + nodes]`."""
    return model.engine.run_with_features(cache, ids, positions, model.engine.mask(Visibility(0, seen)), 0)


def _below(
    model: Model, cache: KVCache, roots: np.ndarray, logits: Tensor, top_k: int, levels: int
) -> tuple[Tensor, ...]:
    """The parts of `Drafted` below some roots whose text the cache holds; `logits` are those after them.

    `values` are logarithms of path probabilities, `[roots, top_k]`.
    """
    values, tokens = torch.log_softmax(logits.float(), -1).topk(top_k)
    parents = torch.zeros_like(tokens)
    text_seen = np.repeat(np.arange(cache.length) <= roots[:, None], top_k, 0)
    own = np.eye(len(text_seen), dtype=bool)
    above = np.zeros((len(text_seen), 0), dtype=bool)  # nodes of the levels above that each node sees
    kept: list[tuple[Tensor, Tensor, Tensor]] = []
    for level in range(levels):
        seen, positions = np.concatenate([text_seen, above, own], 1), np.repeat(roots + 1 + level, top_k)
        logits, features = _run(model, cache, tokens.flatten().cpu().numpy(), positions, seen)
        kept.append((tokens, parents, features.view(*tokens.shape, -1)))
        if level + 1 < levels:
            # Of the `top_k` best children of every node the `top_k` of highest path probability, best first.
            scores, best = torch.log_softmax(logits.view(*tokens.shape, -1).float(), -1).topk(top_k)
            values, places = (values[..., None] + scores).flatten(1).topk(top_k)
            tokens, parents = best.flatten(1).gather(1, places), places // top_k
            flat = (parents.cpu().numpy() + top_k * np.arange(len(roots))[:, None]).flatten()
            above = np.concatenate([above, own], 1)[flat]
    return tuple(torch.stack(part) for part in zip(*kept, strict=True))


VERSION = 1
SHARD_WINDOWS = 16
HELD_OUT_WIDTH = 4  # of the held-out trees, which all losses are measured on

Part = Literal["train", "held_out"]
PARTS: tuple[Part, ...] = ("held_out", "train")


class Prepared(Shards):
    """A folder of prepared windows, for one target, text and plan."""

    HOME, FLAG = "prepared", "--prepared"
    GROWS = ("windows", "held_out")  # windows are a function of their number alone, so there may be more of them later
    MISSING = "prepare the data again with the same settings"
    DAMAGED = "delete it and prepare the data again"
    plan: WindowPlan

    def text(self, part: Part, numbers: Sequence[int], device: torch.device) -> TextWindows:
        """Some windows with the target's features."""
        tokens, features = (self._rows(part, "text", name, numbers, device) for name in ("tokens", "features"))
        return TextWindows(tokens.long(), features.float(), self.plan.depth)

    def frequent(self, count: int) -> list[int]:
        """Ids of the most frequent tokens of the windows to train on, at most `count`, the most frequent first."""
        numbers = range(self.plan.windows)
        tokens = self._rows("train", "text", "tokens", numbers, torch.device("cpu")).numpy()
        ids, counts = np.unique(tokens, return_counts=True)
        return ids[np.argsort(-counts, kind="stable")[:count]].tolist()

    def trees(self, part: Part, numbers: Sequence[int], top_k: int, device: torch.device) -> Drafted:
        """The target's trees of width `top_k` in some windows."""
        names = ("tokens", "parents", "features")
        tokens, parents, labels = (self._rows(part, f"trees{top_k}", name, numbers, device) for name in names)
        return Drafted(tokens.long(), parents.long(), labels.float())

    def shard(self, part: Part, what: str, number: int) -> Path:
        """Where a shard is kept; it may not be there yet."""
        return self.folder / f"{part}-{what}-{number:05d}.safetensors"

    def make(
        self, what: str, make: Callable[[Part, range], Mapping[str, Tensor]], report: Report, parts: Sequence[Part]
    ) -> None:
        """Make the shards that are missing; `make` gives the tensors of some windows of a part."""
        files = {}
        for part in parts:
            count = self.plan.windows if part == "train" else self.plan.held_out
            for number in range(-(-count // SHARD_WINDOWS)):
                numbers = range(number * SHARD_WINDOWS, (number + 1) * SHARD_WINDOWS)
                files[self.shard(part, what, number)] = partial(_saved, make, part, numbers)
        make_missing(files, report)

    def _rows(self, part: Part, what: str, name: str, numbers: Sequence[int], device: torch.device) -> Tensor:
        rows = []
        for window in numbers:
            shard, inside = divmod(int(window), SHARD_WINDOWS)
            file = self.shard(part, what, shard)
            tensors = self.read_once(file, partial(safe_open, framework="pt"), (SafetensorError, OSError))
            rows.append(tensors.get_slice(name)[inside : inside + 1])
        return torch.cat(rows).to(device)


def _saved(make: Callable[[Part, range], Mapping[str, Tensor]], part: Part, numbers: range) -> bytes:
    return save(dict(make(part, numbers)))


def open_prepared(place: Path | None, pair: Pair, plan: WindowPlan, text_identity: str) -> Prepared:
    """The data of a target, a text and a plan: see `Shards.open`."""
    identity = {"version": VERSION, "target": pair_identity(pair)["target"], "text": text_identity}
    return Prepared.open(place, plan, {**identity, **asdict(plan)})


def prepare_text(prepared: Prepared, pair: Pair, texts: Texts, report: Report) -> None:
    """Prepare the windows and features that are missing; `TrainingError` where the text is too short."""

    def made(part: Part, numbers: range) -> dict[str, Tensor]:
        windows = windows_of(pair, texts, prepared.plan, numbers, held_out=part == "held_out")
        features = torch.stack([text_features(pair.target, window) for window in windows])
        return {"tokens": torch.from_numpy(windows).int(), "features": _sixteen_bits(features, pair)}

    prepared.make("text", made, report, PARTS)


def prepare_trees(prepared: Prepared, pair: Pair, top_k: int, report: Report, parts: Sequence[Part] = PARTS) -> None:
    """Prepare the target's trees of one width that are missing, after `prepare_text`."""
    plan = prepared.plan

    def made(part: Part, numbers: range) -> dict[str, Tensor]:
        tokens = prepared.text(part, numbers, torch.device("cpu")).tokens.numpy().astype(np.int64)
        grown = [target_trees(pair.target, window[: plan.roots + 1], top_k, plan.depth - 1) for window in tokens]
        return {
            "tokens": torch.stack([trees.tokens for trees in grown]).int().cpu(),
            "parents": torch.stack([trees.parents for trees in grown]).to(torch.int16).cpu(),
            "features": _sixteen_bits(torch.stack([trees.labels for trees in grown]), pair),
        }

    prepared.make(f"trees{top_k}", made, report, parts)


def _sixteen_bits(features: Tensor, pair: Pair) -> Tensor:
    """Features in 16 bits: as the target computes them where it computes in 16 bits, else in float16."""
    dtype = torch.bfloat16 if pair.target.dtype == torch.bfloat16 else torch.float16
    kept = features.cpu().to(dtype)
    if not kept.isfinite().all():
        raise TrainingError("A feature of the target is too large for 16 bits: load the pair with --dtype bfloat16.")
    return kept.contiguous()


def prepared_data(
    training: Training, pair: Pair, texts: Texts, plan: WindowPlan, top_k: int | None, place: Path | None
) -> Prepared:
    """Windows, features and trees of width `top_k`, made where they are not there; the status tells how far it is."""
    prepared, device = open_prepared(place, pair, plan, texts.identity), pair.target.device
    prepare_text(prepared, pair, texts, telling(training, "preparing text", device))
    wanted: list[tuple[Part, int]] = [("held_out", HELD_OUT_WIDTH)]
    for part, width in wanted if top_k is None else [*wanted, ("train", top_k)]:
        prepare_trees(prepared, pair, width, telling(training, f"preparing trees{width}", device), (part,))
    return prepared


EXAMPLE_TEXT = 6  # tokens in front of the drafted ones that it shows


def example_of(prepared: Prepared, pair: Pair, top_k: int | None) -> dict[str, Any]:
    """What a head is trained on at one root of the first window, as `example_in` tells it.

    Without `top_k` the window is one that is held out, with the tree that every loss is measured on.
    """
    part: Part = "held_out" if top_k is None else "train"
    device, trees = torch.device("cpu"), None
    window = prepared.text(part, [0], device)
    if prepared.plan.depth > 1:
        batch = prepared.trees(part, [0], top_k or HELD_OUT_WIDTH, device)
        trees = Drafted(batch.tokens[0], batch.parents[0], batch.labels[0])
    return example_in(pair, window.tokens[0].numpy(), window.roots, trees)


def example_in(pair: Pair, tokens: np.ndarray, num_roots: int, trees: Drafted | None) -> dict[str, Any]:
    """What a head is trained on at one root of a window, as texts: the text, the tokens after it, the target's tree.

    The root is the one whose text leaves the tree latest, so that chain and tree can be compared; of several the one
    with most whole words. `tree` is level by level, a node being its text and the place of its parent in the level
    above; without `trees` there is no level.
    """
    text_of, roots, drafted = pair.vocabulary.text, np.arange(num_roots), []
    if trees is not None:
        drafted = [(trees.tokens[level].cpu().numpy(), trees.parents[level].cpu().numpy())
                   for level in range(len(trees.tokens))]  # fmt: skip
    inside, place, met = np.ones(len(roots), bool), np.zeros(len(roots), int), np.zeros(len(roots), int)
    for level, (ids, parents) in enumerate(drafted):
        follows = (ids == tokens[2 + level + roots][:, None]) & (parents == place[:, None])
        inside &= follows.any(1)
        place, met = follows.argmax(1), met + inside
    begins = np.array([text_of(int(token)).startswith(" ") for token in tokens], int)
    words = np.sum([begins[1 + level + roots] for level in range(1 + len(drafted))], axis=0)
    root = int(np.lexsort((words, met))[-1])
    texts = [text_of(int(token)) for token in tokens[max(0, root + 2 - EXAMPLE_TEXT) : root + 2 + len(drafted)]]
    tree = [[[text_of(int(token)), int(parent)] for token, parent in zip(ids[root], parents[root], strict=True)]
            for ids, parents in drafted]  # fmt: skip
    parted = len(texts) - len(drafted)
    return {"text": texts[:parted], "chain": texts[parted:], "tree": tree}
