"""The exact distribution of what a drafter and a verifier emit together, over every draft and every draw, on small
tables.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from benchmarks.table_source import TableSource, path_tokens
from decoding import drafters
from decoding.drafters.base import Drafter, IterationFeedback, ProbabilitySource
from decoding.sampling.draws import Draws
from decoding.sampling.sampling import Sampling, TargetDistributions
from decoding.session.recorder import top_by_node
from decoding.tree.draft import Draft
from decoding.verifiers.base import VerifiedTree, Verifier

Path = tuple[int, ...]
Probs = list[float]
SAMPLED = Sampling(temperature=1.0)
T = TypeVar("T")


class _ScriptedDraws:
    """Follows a list of outcomes, then takes the first possible one; notes what else was possible."""

    def __init__(self, script: tuple[int, ...]):
        self.script = script
        self.taken: list[int] = []
        self.branches: list[list[int]] = []
        self.probability = 1.0
        self.last_uniform: float | None = None

    def accept(self, probability: float) -> bool:
        probability = min(max(float(probability), 0.0), 1.0)
        return bool(self._take([1.0 - probability, probability]))

    def choose(self, weights: Tensor) -> int:
        weights = weights.double()
        return self._take((weights / weights.sum()).tolist())

    def choose_each(self, weights: Tensor) -> list[int]:
        return [self.choose(row) for row in weights]

    def _take(self, probs: list[float]) -> int:
        possible = [i for i, p in enumerate(probs) if p > 0]
        position = len(self.taken)
        outcome = self.script[position] if position < len(self.script) else possible[0]
        self.taken.append(outcome)
        self.branches.append([i for i in possible if i > outcome] if position >= len(self.script) else [])
        self.probability *= probs[outcome]
        return outcome


def enumerate_draws(run: Callable[[Draws], T]) -> Iterator[tuple[T, float]]:
    """Every outcome of `run` with its probability: each decision with more than one possibility is taken all ways."""
    scripts: list[tuple[int, ...]] = [()]
    while scripts:
        draws = _ScriptedDraws(scripts.pop())
        result = run(draws)
        for position, others in enumerate(draws.branches):
            scripts.extend((*draws.taken[:position], other) for other in others)
        yield result, draws.probability


@dataclass(frozen=True)
class Tables:
    """A draft and a target as distributions by path of drafted tokens; paths that are missing have the default."""

    name: str
    draft: Mapping[Path, Probs]
    target: Mapping[Path, Probs]
    draft_default: Probs
    target_default: Probs

    def target_distribution(self, path: Path) -> Probs:
        """The target's distribution after a path."""
        return self.target.get(path, self.target_default)

    def said(self, draft: Draft) -> torch.Tensor:
        """The target's probabilities after the verified nodes of a draft, `[num_verified + 1, vocab_size]`."""
        rows = [self.target_distribution(path_tokens(draft.tree, int(node))) for node in draft.order]
        return torch.tensor(rows, dtype=torch.float64)

    def target_rows(self, draft: Draft) -> TargetDistributions:
        """The same for a verifier."""
        return TargetDistributions(None, SAMPLED, probs=self.said(draft))


# The text before a tree, over three tokens: drafters that look tokens up find each of its ends more than once.
PREFIX = (0, 1, 0, 2, 0, 1, 0)


PASSES = 3  # until there is a tree of what the target has said


def begun(drafter: Drafter, source: ProbabilitySource, root: int, said: Callable[[Draft], torch.Tensor]) -> Any:
    """The state that a drafter begins with; one that recycles what the target says has read some trees before.

    Args:
        said: the target's probabilities after the verified nodes of a draft, `[num_verified + 1, vocab_size]`.
    """
    state = drafter.start([])
    for _ in range(PASSES if isinstance(drafter, drafters.TokenRecyclingDrafter) else 0):
        draft = drafter.draft(state, source, root, None)
        top = top_by_node(draft.tree.size, [(draft.order, said(draft))])
        outcome = IterationFeedback(0, 1, 0, 0, 0, tree=draft.tree, order=draft.order, top=lambda top=top: top)
        state, _ = drafter.observe(state, outcome)
    return state


def all_drafts(drafter: Drafter, tables: Tables) -> Iterator[tuple[Draft, float]]:
    """Every draft, equal ones once, with its probability."""
    seen: dict[tuple, list] = {}

    def source() -> TableSource:
        return TableSource(tables.draft, tables.draft_default, prefix=PREFIX)

    state = begun(drafter, source(), PREFIX[-1], tables.said)

    def run(draws):
        return drafter.draft(state, source(), PREFIX[-1], draws)

    for draft, chance in enumerate_draws(run):
        drawn = () if draft.drawn is None else tuple(draft.drawn.tolist())
        tree = draft.tree
        key = (tuple(tree.tokens.tolist()), tuple(tree.parents.tolist()), drawn, tuple(draft.order.tolist()))
        seen.setdefault(key, [draft, 0.0])[1] += chance
    yield from ((draft, chance) for draft, chance in seen.values())


def block_distribution(verifier: Verifier, draft: Draft, tables: Tables) -> dict[Path, float]:
    """Distribution of the emitted block (accepted tokens and the final one) of one draft, over every draw."""
    decision = verifier.decide(VerifiedTree(draft, tables.target_rows(draft)))
    probs: dict[Path, float] = defaultdict(float)
    for verification, chance in enumerate_draws(decision.walk):
        accepted = tuple(decision.tree.tokens[node] for node in verification.accepted)
        probs[(*accepted, verification.final_token)] += chance
    return probs


def emitted_distribution(drafter: Drafter, verifier: Verifier, tables: Tables) -> dict[Path, float]:
    """Distribution of the emitted block over every draft and every draw."""
    probs: dict[Path, float] = defaultdict(float)
    for draft, chance in all_drafts(drafter, tables):
        for block, share in block_distribution(verifier, draft, tables).items():
            probs[block] += chance * share
    return probs


def bias(probs: Mapping[Path, float], tables: Tables) -> float:
    """Largest error of the joint distribution of the tokens, every block continued by the target to the same length."""
    length = max(map(len, probs))
    continued: dict[Path, float] = defaultdict(float)
    vocabulary = range(len(tables.target_default))
    for block, chance in probs.items():
        for rest in product(vocabulary, repeat=length - len(block)):
            continued[block + rest] += chance * _chance(tables, block + rest, since=len(block))
    sequences = product(vocabulary, repeat=length)
    return max(abs(continued[sequence] - _chance(tables, sequence)) for sequence in sequences)


def _chance(tables: Tables, sequence: Path, since: int = 0) -> float:
    """Probability that the target continues the first `since` tokens by the rest."""
    chance = 1.0
    for place in range(since, len(sequence)):
        chance *= tables.target_distribution(sequence[:place])[sequence[place]]
    return chance


# By vocabulary size: drafters by the name they have in METHODS. The first of each list is what --quick takes.
DRAFTERS_3: dict[str, list[Drafter]] = {
    "autoregressive": [drafters.NoDrafter()],
    "linear": [drafters.LinearDrafter(length=2)],
    "linear, sampled": [drafters.LinearDrafter(length=2, sampled=True), drafters.LinearDrafter(length=3, sampled=True)],
    "fixed_tree": [drafters.FixedTreeDrafter(max_depth=1, branching=2, prune_probability=0.0, branch_first_level=True)],
    "dynatree": [drafters.DynaTreeDrafter(base_depth=1, max_depth=2, branch_first_level=True, history=False)],
    "dyspec": [
        drafters.DySpecDrafter(node_budget=5),
        drafters.DySpecDrafter(node_budget=4),
        drafters.DySpecDrafter(node_budget=6),
    ],
    "dyspec_threshold": [
        drafters.DySpecThresholdDrafter(threshold=0.3, node_budget=6),
        drafters.DySpecThresholdDrafter(threshold=0.15, node_budget=5, max_depth=2, mean_nodes=3),
    ],
    "specinfer": [
        drafters.SpecInferWidthsDrafter(widths="2,2"),
        drafters.SpecInferWidthsDrafter(widths="3,1"),
        drafters.SpecInferWidthsDrafter(widths="1,2,1"),
    ],
    "specinfer, top-k": [drafters.SpecInferWidthsDrafter(widths="2,2", sampled=False)],
    "sequoia": [
        drafters.SequoiaDrafter(node_budget=5, max_depth=2, acceptance="0.6,0.3"),
        drafters.SequoiaDrafter(node_budget=6, max_depth=3, acceptance="0.6,0.25,0.1"),
        drafters.SequoiaDrafter(node_budget=6, max_depth=2, acceptance="0.4,0.3,0.2"),
    ],
    "opt_tree": [drafters.OptTreeDrafter(node_budget=4, gain_threshold=0.0, max_depth=2)],
    "eagle2": [drafters.Eagle2Drafter(node_budget=4, beam_width=2, max_depth=2)],
    "hardware_aware": [
        drafters.HardwareAwareDrafter(node_budget=5, max_depth=3, verify_ms="1:1 6:1.2", level_ms="0.1", odds="1 1"),
        drafters.HardwareAwareDrafter(node_budget=4, max_depth=2, verify_ms="1", level_ms="0", odds="4 0.5"),
    ],
    "specexec": [drafters.SpecExecDrafter(node_budget=5, batch=2, max_depth=3)],
    "salf": [
        drafters.SalfDrafter(node_budget=5, batch=2, gain_threshold=0.3),
        drafters.SalfDrafter(5, 2, 0.6, top_up=True),
    ],
    "iid_paths": [
        drafters.IIDPathsDrafter(paths=2, length=2),
        drafters.IIDPathsDrafter(paths=1, length=3),
        drafters.IIDPathsDrafter(paths=3, length=2),
        drafters.IIDPathsDrafter(paths=2, length=3),
    ],
    "delayed": [
        drafters.DelayedDrafter(paths=2, trunk=1, branch=1),
        drafters.DelayedDrafter(paths=1, trunk=1, branch=2),
        drafters.DelayedDrafter(paths=2, trunk=1, branch=2),
        drafters.DelayedDrafter(paths=3, trunk=1, branch=1),
        drafters.DelayedDrafter(paths=3, trunk=1, branch=2),
        drafters.DelayedDrafter(paths=2, trunk=2, branch=1),
        drafters.DelayedDrafter(paths=2, trunk=2, branch=0),
    ],
    "prompt_lookup": [drafters.PromptLookupDrafter(length=3), drafters.PromptLookupDrafter(latest=True, length=2)],
    "suffix": [drafters.SuffixDrafter(5, 3, per_matched_token=5.0, least_share=0.0)],
    "lookup_or_draft": [drafters.LookupOrDraftDrafter(length=3), drafters.LookupOrDraftDrafter(9, 9, length=2)],
    "token_recycling": [drafters.TokenRecyclingDrafter(9, 3, 2), drafters.TokenRecyclingDrafter(6, 2, 3)],
}
DRAFTERS_4: dict[str, list[Drafter]] = {
    "dyspec": [drafters.DySpecDrafter(node_budget=4)],
    "sequoia": [drafters.SequoiaDrafter(node_budget=5, max_depth=2, acceptance="0.5,0.3,0.1")],
    "specinfer": [drafters.SpecInferWidthsDrafter(widths="2,1")],
    "iid_paths": [drafters.IIDPathsDrafter(paths=2, length=2), drafters.IIDPathsDrafter(paths=1, length=3)],
    "delayed": [drafters.DelayedDrafter(paths=2, trunk=1, branch=1)],
    "eagle2": [drafters.Eagle2Drafter(node_budget=5, beam_width=2, max_depth=2)],
}
DRAFTERS_BY_SIZE = {3: DRAFTERS_3, 4: DRAFTERS_4}
LONGEST = 4  # no block of these trees is longer


def all_tables(size: int, count_random: int) -> list[Tables]:
    """Random tables, and those on which divisions, residuals and ties are at their edges."""
    generator = np.random.default_rng(size)
    tables = [_random(f"random {i + 1}", size, generator, 0.7) for i in range(count_random)]
    tables.append(_random("far apart", size, generator, 0.15))
    tables.append(_random("zeros", size, generator, 0.7, zeros=True))
    uniform = [1 / size] * size
    halves = [0.5, 0.5] + [0.0] * (size - 2)
    tables.append(Tables("ties", {}, {(): uniform}, halves, [0.5, 0.25] + [0.25 / (size - 2)] * (size - 2)))
    same = _distributions(size, generator, 0.7)
    tables.append(Tables("target = draft", same, same, uniform, uniform))
    first, rest = [1.0] + [0.0] * (size - 1), [0.0] + [1 / (size - 1)] * (size - 1)
    tables.append(Tables("disjoint", {}, {}, first, rest))
    tables.append(Tables("one-hot target", _distributions(size, generator, 0.7), {}, uniform, first[::-1]))
    tables.append(Tables("one-hot draft", {}, _distributions(size, generator, 0.7), first, uniform))
    return tables


def _random(name: str, size: int, generator: np.random.Generator, evenness: float, zeros: bool = False) -> Tables:
    draft, target = (_distributions(size, generator, evenness, zeros) for _ in range(2))
    return Tables(name, draft, target, [1 / size] * size, [1 / size] * size)


def _distributions(size: int, generator: np.random.Generator, evenness: float, zeros: bool = False):
    """A random distribution after every path."""
    distributions = {}
    for length in range(LONGEST):
        for path in product(range(size), repeat=length):
            probs = generator.dirichlet(np.full(size, evenness))
            if zeros:
                probs[generator.integers(size)] = 0.0
                probs /= probs.sum()
            distributions[path] = probs.tolist()
    return distributions
