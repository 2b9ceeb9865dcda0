"""What selectors are trained on: roots along the target's own text, with features and exact labels, kept in shards.

    trained-00012.npz              the roots of one text; a shard is there whole or not at all
    held_out-00003.npz             the same of first halves of held-out documents, by which weights are chosen
    judged-00003.npz               the same of their second halves, by which nothing is chosen

Every text begins with some words of a corpus, or with a prompt, and the target writes it on under one of the samplings,
in turn. Below each root the same super-trees are labelled under that sampling and under others whose draft is as warm:
the draft's distribution is the same in them.
"""

import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from decoding.common.errors import TrainingError, require
from decoding.engines.base import Visibility
from decoding.engines.clock import PhaseClock
from decoding.engines.kv_cache import KVCache
from decoding.methods.methods import METHODS
from decoding.models.pair import Pair, match_vocabulary, pair_identity, tree_forward
from decoding.sampling.draws import GeneratorDraws
from decoding.sampling.sampling import Sampling, exact_dtype, target_distribution
from decoding.selector.actions import ACTIONS, DISTINCT, DISTINCT_OF, shared_labels
from decoding.selector.features import divergences
from decoding.session.cached_models import ModelSource
from decoding.session.session import DecodeSession, Limits
from decoding.trace.metrics import LoopDetector
from decoding.training.selector_labels import (
    DEEPEST,
    ROWS,
    VERIFIER_NAMES,
    RootDistributions,
    SuperTrees,
    draw_super_trees,
)
from decoding.training.shards import Report, Shards, make_missing
from decoding.training.text import Texts, WindowPlan, run_text, windows_of

VERSION = 3

Part = Literal["trained", "held_out", "judged"]
PARTS: tuple[Part, ...] = ("judged", "held_out", "trained")
SEEDS: dict[Part, int] = {"trained": 0, "held_out": 1, "judged": 2}

NUMBERS = ("text", "length", "in_loop", "sampling", "target", "draft_previous", "draft_root", "divergences")
SHORTEST, LONGEST = 16, 192  # tokens of the beginning of a text
MOST_ROW_BYTES = 2**28  # both distributions of all nodes: super-trees that take more are looked at one by one
# The samplings of the paper, and greedy decoding; then those whose draft is as warm as the target.
SAMPLINGS: tuple[Sampling, ...] = (
    *(Sampling(temperature) for temperature in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2)),
    *(Sampling(1.0, top_p) for top_p in (0.9, 0.99)),
    *(Sampling(temperature, draft_temperature=temperature) for temperature in (0.2, 0.4, 0.6, 0.8, 1.2)),
)


@dataclass(frozen=True)
class RootPlan:
    """Which roots are labelled.

    Attributes:
        texts, held_out: texts to train on; to choose weights by, and as many to judge by.
        roots: of each text. spacing: tokens between two of them.
        trees: super-trees below each root, whose labels are averaged (s).
        per_root: samplings that a root is labelled under: the one that its text was written under, and others whose
            draft is as warm, as far as there are.
        khisti_trees, khisti_every: of these, how many Khisti is labelled on, under the first of these samplings, and at
            one root in how many: each of its nodes takes linear programmes.
        samplings: that texts are written under in turn.
        verifiers: that every root is labelled for.
    """

    texts: int = 100
    held_out: int = 16
    roots: int = 10
    spacing: int = 16
    trees: int = 1
    per_root: int = 3
    khisti_trees: int = 1
    khisti_every: int = 3
    samplings: tuple[Sampling, ...] = SAMPLINGS
    verifiers: tuple[str, ...] = VERIFIER_NAMES
    seed: int = 0

    def __post_init__(self) -> None:
        limits = {"texts": 10**6, "held_out": 10**5, "roots": 10**4, "spacing": 1024, "trees": 64, "per_root": 64}
        for name, most in (limits | {"khisti_trees": 64, "khisti_every": 1000}).items():
            require(1 <= getattr(self, name) <= most, f"{name} must be from 1 to {most}, not {getattr(self, name)}.")
        require(bool(self.samplings), "samplings is empty: give at least one, such as 1.0 or 1.0:0.9.")

    def labelled_under(self, number: int, seed: int) -> list[int]:
        """Numbers of the samplings of a root of text `number`, that which the text is written under first."""
        first = number % len(self.samplings)
        warmth = self.samplings[first].draft_temperature
        others = [
            place for place, each in enumerate(self.samplings) if each.draft_temperature == warmth and place != first
        ]
        draws = np.random.default_rng([self.seed, number, seed])
        return [first, *draws.permutation(others)[: self.per_root - 1].tolist()]


@dataclass(frozen=True)
class Roots:
    """Labelled roots, each as often as there are samplings that it is labelled under.

    Attributes:
        text: number of the text that each stands in, `[roots]`.
        length: tokens of its context, `[roots]`. in_loop: whether the text had begun to repeat itself there.
        sampling: number of its sampling in the plan, `[roots]`.
        target: feature of the target at the previous token, `[roots, target_size]`.
        draft_previous, draft_root: of the draft at the previous token and at the root, `[roots, draft_size]`.
        divergences: what `divergences` gives, `[roots, 6]`.
        expected: exact expected tokens by verifier, `[roots, len(DISTINCT)]`; nan where not labelled.
    """

    text: np.ndarray
    length: np.ndarray
    in_loop: np.ndarray
    sampling: np.ndarray
    target: np.ndarray
    draft_previous: np.ndarray
    draft_root: np.ndarray
    divergences: np.ndarray
    expected: Mapping[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.text)

    def labelled(self, verifier: str) -> "Roots":
        """The roots that are labelled for a verifier, outside of text that repeats itself."""
        there = ~self.in_loop & ~np.isnan(self.expected[verifier]).any(1)
        expected = {name: tokens[there] for name, tokens in self.expected.items()}
        return Roots(**{name: getattr(self, name)[there] for name in NUMBERS}, expected=expected)

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything by name, as a shard holds it."""
        expected = {f"expected_{name}": tokens for name, tokens in self.expected.items()}
        return {name: getattr(self, name) for name in NUMBERS} | expected


class RootData(Shards):
    """A folder of labelled roots, for one pair, text and plan."""

    HOME, FLAG = "roots", "--data"
    GROWS = ("texts", "held_out")  # a text is a function of its number alone, so there may be more of them later
    MISSING, DAMAGED = "resume to make it again", "delete it and resume"
    plan: RootPlan

    def shards(self, part: Part) -> list[Path]:
        """Where the roots of each text are kept; they may not be there yet."""
        count = self.plan.texts if part == "trained" else self.plan.held_out
        return [self.folder / f"{part}-{number:05d}.npz" for number in range(count)]

    def read(self, part: Part) -> Roots:
        """All roots of a part; `TrainingError` where a shard is missing or damaged, or there is no root."""
        damaged = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile)
        every = [self.read_once(file, self._read, damaged) for file in self.shards(part)]
        found = [roots for roots in every if len(roots)]
        if not found:
            raise TrainingError(f"No text in {self.folder} is long enough for a root: give longer prompts or a corpus.")
        expected = {name: np.concatenate([each.expected[name] for each in found]) for name in self.plan.verifiers}
        return Roots(**{name: np.concatenate([getattr(r, name) for r in found]) for name in NUMBERS}, expected=expected)

    def _read(self, file: Path) -> Roots:
        with np.load(file, allow_pickle=False) as arrays:
            expected = {name: arrays[f"expected_{name}"] for name in self.plan.verifiers}
            roots = Roots(**{name: arrays[name] for name in NUMBERS}, expected=expected)
        shape = (len(roots), len(DISTINCT))
        if any(tokens.shape != shape for tokens in expected.values()):
            raise ValueError("labels of the wrong shape")
        return roots


def open_data(place: Path | None, pair: Pair, plan: RootPlan, text_identity: str) -> RootData:
    """The labelled roots of a pair, a text and a plan: see `Shards.open`."""
    samplings = [[each.temperature, each.top_p, each.draft_temperature] for each in plan.samplings]
    settings = {**asdict(plan), "samplings": samplings, "verifiers": list(plan.verifiers)}
    identity = {"version": VERSION, "pair": pair_identity(pair), "text": text_identity}
    return RootData.open(place, plan, {**identity, **settings})


def make_roots(data: RootData, pair: Pair, texts: Texts, report: Report, share: tuple[int, int] = (0, 1)) -> None:
    """Make the shards that are missing; `share`: which of how many processes this is, each of which makes its own."""

    def npz(part: Part, number: int) -> bytes:
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **roots_of(pair, texts, data.plan, part, number).arrays())
        return buffer.getvalue()

    mine, processes = share
    files = {file: partial(npz, part, number) for part in PARTS for number, file in enumerate(data.shards(part))
             if number % processes == mine}  # fmt: skip
    make_missing(files, report)


@torch.inference_mode()
def roots_of(pair: Pair, texts: Texts, plan: RootPlan, part: Part, number: int) -> Roots:
    """The roots of one text, which begins as a prompt or the corpus does: a function of plan, part and number alone."""
    held_out = part != "trained"
    texts = half_of(texts, part) if held_out else texts
    write_seed, label_seed = np.random.SeedSequence([plan.seed, SEEDS[part], number, 3]).generate_state(2).tolist()
    longest = max(2, min(pair.context, pair.target.positions) - DEEPEST - 1)  # so that something can be drafted after
    if texts.prompts:
        kinds = texts.held_out if held_out else texts.trained
        names = sorted(kinds)
        documents = kinds[names[number % len(names)]]
        begun = pair.vocabulary.encode(documents[number // len(names) % len(documents)])[:longest]
    else:  # some words from a random place of the corpus
        size = min(LONGEST, longest)
        windows = WindowPlan(roots=size - 1, depth=1, continued=0.0, seed=2 * plan.seed + (part == "judged"))
        begun = windows_of(pair, texts, windows, [number], held_out=held_out)[0].tolist()
        draws = np.random.default_rng([plan.seed, SEEDS[part], number, 2])
        begun = begun[: int(draws.integers(min(SHORTEST, size), size + 1))]
    tokens = written(pair, begun, plan, number, write_seed)
    return label_text(pair, tokens, len(begun), plan, number, label_seed)


def half_of(texts: Texts, part: Part) -> Texts:
    """The text with one half of every held-out document: what weights are chosen by does not judge them.

    A document that quotes itself, such as a prompt of the kind editing, has some words in both.
    """

    def half(text: str) -> str:
        middle = len(text) // 2
        cut = max(text.rfind(" ", 1, middle), 0) or middle
        return text[:cut] if part == "held_out" else text[cut:].lstrip(" ")

    return replace(texts, held_out={kind: tuple(map(half, whole)) for kind, whole in texts.held_out.items()})


def written(pair: Pair, begun: list[int], plan: RootPlan, number: int, seed: int) -> list[int]:
    """A text as the target writes it on, under the sampling whose turn it is, as far as roots are needed."""
    sampling = plan.samplings[number % len(plan.samplings)]
    count = min((plan.roots - 1) * plan.spacing, pair.context - len(begun))
    if count < 1:
        return begun
    # Lossless, and in fewer passes than token by token.
    method = METHODS["linear"].with_settings(length=4, sampled=True, verifier="block")
    drawn = replace(sampling, seed=seed)
    session = DecodeSession(pair, method, begun, drawn, Limits(count, record="none"))
    for _ in session:
        pass
    return session.tokens


def label_text(pair: Pair, tokens: list[int], first: int, plan: RootPlan, number: int, seed: int) -> Roots:
    """Features and labels at the roots of text `number`: its first `first` tokens, and every `plan.spacing` more."""
    places = [end for end in range(first, len(tokens) + 1, plan.spacing) if end >= 2][: plan.roots]
    most = min(pair.context, pair.target.positions) - DEEPEST
    places = [end for end in places if end <= most and tokens[end - 1] not in pair.vocabulary.stop_ids]
    caches = [model.engine.new_cache(len(tokens) + 1280) for model in (pair.target, pair.draft)]
    (target_logits, target_features), (draft_logits, draft_features) = (
        run_text(model, cache, np.array(tokens)) for model, cache in zip((pair.target, pair.draft), caches, strict=True)
    )
    # The distributions that draft tokens are drawn from, as `ModelSource` gives them.
    warmth = plan.samplings[number % len(plan.samplings)].draft_temperature
    draft_distributions = torch.softmax(match_vocabulary(draft_logits, pair.logits_size).float() / warmth, -1)
    draft_distributions = draft_distributions.to(pair.target.device)
    in_loop = {end: LoopDetector.after(tokens[first:end]).in_loop for end in places}
    rows: list[tuple[int, int]] = []  # end of the context, number of the sampling
    apart: list[np.ndarray] = []
    expected: dict[str, list[np.ndarray]] = {name: [] for name in plan.verifiers}
    for end in reversed(places):  # the rows of the text after a root are dropped
        for cache in caches:
            cache.rollback(end - 1)
        under = plan.labelled_under(number, seed + end)
        seen = draft_distributions[end - 2 : end].numpy(force=True)
        for place in under:
            target = target_distribution(target_logits[end - 2], plan.samplings[place])
            apart.append(np.array(divergences(target.numpy(force=True), *seen)))
        wanted = [name for name in plan.verifiers if name != "khisti" or places.index(end) % plan.khisti_every == 0]
        wanted = [] if in_loop[end] else wanted  # nobody learns from it
        labels = _labels(pair, tokens[:end], caches, plan, under, wanted, GeneratorDraws(seed + end))
        missing = [np.full(len(DISTINCT), np.nan)] * len(under)
        for name, found in expected.items():
            found += list(labels.get(name, missing))
        rows += [(end, place) for place in under]
    ends = np.array([end for end, _ in rows], dtype=np.int64)
    return Roots(
        text=np.full(len(rows), number),
        length=ends,
        in_loop=np.array([in_loop[end] for end in ends.tolist()], dtype=bool),
        sampling=np.array([place for _, place in rows], dtype=np.int64),
        target=target_features[ends - 2].float().cpu().numpy(),
        draft_previous=draft_features[ends - 2].float().cpu().numpy(),
        draft_root=draft_features[ends - 1].float().cpu().numpy(),
        divergences=np.array(apart, np.float32).reshape(-1, 6),
        expected={name: np.array(found, np.float32).reshape(-1, len(DISTINCT)) for name, found in expected.items()},
    )


@torch.inference_mode()
def tokens_of_actions(pair: Pair, tokens: list[int], sampling: Sampling, verifier: str, trees: int) -> np.ndarray:
    """Expected tokens of every action at the end of a text of two tokens or more, `[len(ACTIONS)]`.

    They are exact over the verifier, means over super-trees drawn by the seed of the sampling.
    """
    caches = [model.engine.new_cache(len(tokens) + 1280) for model in (pair.target, pair.draft)]
    for model, cache in zip((pair.target, pair.draft), caches, strict=True):
        run_text(model, cache, np.array(tokens))
        cache.rollback(len(tokens) - 1)
    plan = RootPlan(trees=trees, khisti_trees=trees, samplings=(sampling,), verifiers=(verifier,))
    found = _labels(pair, tokens, caches, plan, [0], [verifier], GeneratorDraws(sampling.seed))
    return found[verifier][0][DISTINCT_OF]


def _labels(
    pair: Pair,
    tokens: list[int],
    caches: Sequence[KVCache],
    plan: RootPlan,
    under: Sequence[int],
    verifiers: Sequence[str],
    draws: GeneratorDraws,
) -> dict[str, np.ndarray]:
    """Exact expected tokens of the distinct actions at the end of a text, `[len(under), len(DISTINCT)]` by verifier.

    What Khisti is not labelled under is nan.
    """
    if not verifiers:
        return {}
    samplings = [plan.samplings[place] for place in under]
    together = plan.trees if ROWS * plan.trees * pair.logits_size * 16 <= MOST_ROW_BYTES else 1
    totals = {name: np.zeros((len(under), len(ACTIONS))) for name in verifiers}
    for done in range(0, plan.trees, together):
        count = min(together, plan.trees - done)
        trees, draft, logits = _drawn(pair, tokens, caches, count, samplings[0].draft_temperature, draws)
        few = min(count, max(0, plan.khisti_trees - done))
        part = {"khisti": (few, trees.only(few))}
        for row, target in enumerate(target_distributions(logits, samplings)):
            for name in verifiers:
                weight, seen = part.get(name, (count, trees))
                if name == "khisti" and row:
                    totals[name][row] = np.nan
                elif weight:
                    totals[name][row] += weight * RootDistributions(seen, target, draft).expected(name).ravel()
    counts = {name: min(plan.trees, plan.khisti_trees) if name == "khisti" else plan.trees for name in verifiers}
    return {name: shared_labels(total / counts[name]) for name, total in totals.items()}


def _drawn(
    pair: Pair,
    tokens: list[int],
    caches: Sequence[KVCache],
    count: int,
    draft_temperature: float,
    draws: GeneratorDraws,
) -> tuple[SuperTrees, Tensor, Tensor]:
    """Super-trees at the end of a text, the draft's distributions and the target's logits after their nodes, wide.

    The caches are left as they were.
    """
    target_cache, draft_cache = caches
    rows = target_cache.length, draft_cache.length
    source = ModelSource(
        pair.draft, draft_cache, tokens, pair.logits_size, DEEPEST, PhaseClock(pair.draft.device), draft_temperature
    )
    drawn = draw_super_trees(source, tokens[-1], count, draws)
    draws.record.clear()
    tree, nodes = drawn.tree, drawn.nodes
    seen = Visibility(target_cache.length, tree.ancestors[nodes][:, nodes])
    places = len(tokens) - 1 + tree.depths[nodes]
    logits = tree_forward(pair.target, target_cache, tree.tokens[nodes], places, seen)
    for cache, length in zip(caches, rows, strict=True):
        cache.rollback(length)
    wide = exact_dtype(logits.device)
    draft = drawn.draft.to(logits.device, wide)
    return drawn, draft / draft.sum(-1, keepdim=True), logits.to(wide)


def target_distributions(logits: Tensor, samplings: Sequence[Sampling]) -> Iterator[Tensor]:
    """The target's distributions under some samplings (`target_distribution`); each temperature is sorted once."""
    ordered: dict[float, tuple[Tensor, Tensor]] = {}
    for sampling in samplings:
        probs = target_distribution(logits, replace(sampling, top_p=1.0))
        if sampling.top_p < 1 and not sampling.greedy:
            if sampling.temperature not in ordered:
                ordered[sampling.temperature] = probs.sort(-1, descending=True)
            known, order = ordered[sampling.temperature]
            kept = known.masked_fill(known.cumsum(-1) - known >= sampling.top_p, 0.0)
            probs = torch.zeros_like(probs).scatter_(-1, order, kept / kept.sum(-1, keepdim=True))
        yield probs
