"""The labelled roots of one text: the target writes it, then trees are drawn and labelled every few tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from decoding.engines.base import Visibility
from decoding.engines.clock import PhaseClock
from decoding.methods.methods import METHODS
from decoding.models.pair import Pair, match_vocabulary, tree_forward
from decoding.sampling.draws import GeneratorDraws
from decoding.sampling.sampling import Sampling, exact_dtype, target_law
from decoding.selector.actions import ACTIONS
from decoding.selector.features import divergences
from decoding.session.session import DecodeSession, Limits
from decoding.sources.draft import ModelSource
from decoding.trace.metrics import LoopDetector
from decoding.training.heads.windows import Texts, WindowPlan, windows_of
from decoding.training.selectors.data import Part, RootPlan, Roots
from decoding.training.selectors.labels import RootLaws
from decoding.training.selectors.trees import DEEPEST, ROWS, SuperTrees, draw_super_trees

SHORTEST, LONGEST = 16, 192  # tokens of the beginning of a text
MOST_ROW_BYTES = 2**28  # both laws of all nodes: super-trees that take more are looked at one by one


@torch.inference_mode()
def roots_of(pair: Pair, texts: Texts, plan: RootPlan, part: Part, number: int) -> Roots:
    """The roots of one text, a function of plan, part and number alone.

    Raises:
        TrainingError: the corpus is too short.
    """
    begun = beginning(pair, texts, plan, part, number)
    tokens = written(pair, begun, plan, number)
    return label_text(pair, tokens, len(begun), plan, number, _seed(plan, part, number))


def beginning(pair: Pair, texts: Texts, plan: RootPlan, part: Part, number: int) -> list[int]:
    """How a text begins: a prompt, or some words from a random place of the corpus."""
    held_out = part == "held_out"
    if texts.prompts:
        kinds = texts.held_out if held_out else texts.trained
        names = sorted(kinds)
        documents = kinds[names[number % len(names)]]
        return pair.vocabulary.encode(documents[number // len(names) % len(documents)])[: _longest(pair)]
    size = min(LONGEST, _longest(pair))
    windows = WindowPlan(roots=size - 1, depth=1, continued=0.0, seed=plan.seed)
    tokens = windows_of(pair, texts, windows, [number], held_out=held_out)[0].tolist()
    draws = np.random.default_rng([plan.seed, int(held_out), number, 2])
    return tokens[: int(draws.integers(min(SHORTEST, size), size + 1))]


def written(pair: Pair, begun: list[int], plan: RootPlan, number: int) -> list[int]:
    """A text as the target writes it on, under the sampling whose turn it is, as far as roots are needed."""
    sampling = plan.samplings[number % len(plan.samplings)]
    count = min((plan.roots - 1) * plan.spacing, pair.context - len(begun))
    if count < 1:
        return begun
    # Lossless, and in fewer passes than token by token.
    method = METHODS["linear"].with_settings(length=4, sampled=True, verifier="block")
    drawn = Sampling(sampling.temperature, sampling.top_p, plan.draft_temperature, plan.seed + number)
    session = DecodeSession(pair, method, begun, drawn, Limits(count, record="none"))
    for _ in session:
        pass
    return session.tokens


def label_text(pair: Pair, tokens: list[int], first: int, plan: RootPlan, number: int, seed: int) -> Roots:
    """Features and labels at the roots of a text: its first `first` tokens, and every `plan.spacing` more.

    Args:
        number: of the text.
        seed: of the draws.
    """
    places = [end for end in range(first, len(tokens) + 1, plan.spacing) if end >= 2][: plan.roots]
    most = min(pair.context, pair.target.positions) - DEEPEST
    places = [end for end in places if end <= most and tokens[end - 1] not in pair.vocabulary.stop_ids]
    caches = [model.engine.new_cache(len(tokens) + 1280) for model in (pair.target, pair.draft)]
    causal = Visibility.causal(0, len(tokens))
    read = []
    for model, cache in zip((pair.target, pair.draft), caches, strict=True):
        mask, positions = model.engine.mask(causal), np.arange(len(tokens))
        read.append(model.engine.run_with_features(cache, np.array(tokens), positions, mask, 0))
    (target_logits, target_features), (draft_logits, draft_features) = read
    draft_laws = _draft_laws(pair, draft_logits, plan.draft_temperature)
    found: dict[int, tuple[np.ndarray, dict[str, np.ndarray]]] = {}
    for end in reversed(places):  # the rows of the text behind a root are dropped
        for cache in caches:
            cache.rollback(end - 1)
        apart = [
            divergences(target_law(target_logits[end - 2], each).to(draft_laws), *draft_laws[end - 2 : end])
            for each in plan.samplings
        ]
        wanted = [name for name in plan.verifiers if name != "khisti" or places.index(end) % plan.khisti_every == 0]
        found[end] = np.array(apart), _labels(pair, tokens[:end], caches, plan, wanted, GeneratorDraws(seed + end))
    loops = [_in_loop(tokens[first:end]) for end in places]
    shape = (len(places), len(plan.samplings), len(ACTIONS))
    missing = np.full(shape[1:], np.nan)
    previous, root = [end - 2 for end in places], [end - 1 for end in places]
    return Roots(
        text=np.full(len(places), number),
        length=np.array(places, dtype=np.int64),
        in_loop=np.array(loops, dtype=bool),
        target=target_features[previous].float().cpu().numpy(),
        draft_previous=draft_features[previous].float().cpu().numpy(),
        draft_root=draft_features[root].float().cpu().numpy(),
        divergences=np.array([found[end][0] for end in places], np.float32).reshape(*shape[:2], 6),
        expected={
            name: np.array([found[end][1].get(name, missing) for end in places], np.float32).reshape(shape)
            for name in plan.verifiers
        },
    )


def _labels(
    pair: Pair, tokens: list[int], caches, plan: RootPlan, verifiers: Sequence[str], draws: GeneratorDraws
) -> dict[str, np.ndarray]:
    """Exact expected tokens of all actions at the end of a text, `[samplings, len(ACTIONS)]` by verifier."""
    together = plan.trees if ROWS * plan.trees * pair.logits_size * 16 <= MOST_ROW_BYTES else 1
    totals = {name: np.zeros((len(plan.samplings), len(ACTIONS))) for name in verifiers}
    for done in range(0, plan.trees, together):
        count = min(together, plan.trees - done)
        trees, draft, logits = _drawn(pair, tokens, caches, count, plan.draft_temperature, draws)
        few = min(count, max(0, plan.khisti_trees - done))
        part = {"khisti": (few, trees.only(few))}
        for row, target in enumerate(target_laws(logits, plan.samplings)):
            for name in verifiers:
                weight, seen = part.get(name, (count, trees))
                if weight:
                    totals[name][row] += weight * RootLaws(seen, target, draft).expected(name).ravel()
    counts = {name: min(plan.trees, plan.khisti_trees) if name == "khisti" else plan.trees for name in verifiers}
    return {name: total / counts[name] for name, total in totals.items()}


def _drawn(
    pair: Pair, tokens: list[int], caches, count: int, draft_temperature: float, draws: GeneratorDraws
) -> tuple[SuperTrees, Tensor, Tensor]:
    """Super-trees at the end of a text, the draft's laws and the target's logits after their nodes, wide.

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
    positions = len(tokens) - 1 + tree.depths[nodes]
    seen = Visibility(target_cache.length, tree.ancestors[nodes][:, nodes])
    logits = tree_forward(pair.target, target_cache, tree.tokens[nodes], positions, seen)
    for cache, length in zip(caches, rows, strict=True):
        cache.rollback(length)
    wide = exact_dtype(logits.device)
    draft = drawn.draft.to(logits.device, wide)
    return drawn, draft / draft.sum(-1, keepdim=True), logits.to(wide)


def target_laws(logits: Tensor, samplings: Sequence[Sampling]) -> Iterator[Tensor]:
    """The target's laws under some samplings, as `target_law` gives them; those of one temperature are sorted once."""
    ordered: dict[float, tuple[Tensor, Tensor]] = {}
    for sampling in samplings:
        probs = target_law(logits, replace(sampling, top_p=1.0))
        if sampling.top_p < 1 and not sampling.greedy:
            if sampling.temperature not in ordered:
                ordered[sampling.temperature] = probs.sort(-1, descending=True)
            known, order = ordered[sampling.temperature]
            kept = known.masked_fill(known.cumsum(-1) - known >= sampling.top_p, 0.0)
            probs = torch.zeros_like(probs).scatter_(-1, order, kept / kept.sum(-1, keepdim=True))
        yield probs


def _draft_laws(pair: Pair, logits: Tensor, temperature: float) -> Tensor:
    """The laws that draft tokens are drawn from, as `ModelSource` gives them."""
    return torch.softmax(match_vocabulary(logits, pair.logits_size).float() / temperature, -1).to(pair.target.device)


def _in_loop(tokens: list[int]) -> bool:
    return LoopDetector.after(tokens).in_loop


def _seed(plan: RootPlan, part: Part, number: int) -> int:
    return int(np.random.SeedSequence([plan.seed, int(part == "held_out"), number, 3]).generate_state(1)[0])


def _longest(pair: Pair) -> int:
    """Tokens that a text may begin with so that something can be drafted behind it."""
    return max(2, min(pair.context, pair.target.positions) - DEEPEST - 1)
