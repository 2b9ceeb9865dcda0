"""The best budget in hindsight: what parts of a drafted tree would have committed, and what they cost here.

    found = budgets(run, index, costs)     # tokens and seconds for 0, 1, ... nodes of this very tree
    found.best, found.lost                  # nodes with most tokens per second, and what the whole tree lost by them

The part of b nodes are the b of highest path probability. Where tokens were drawn and are tested against the
distribution that they were drawn from, choosing them by their probability would bias the output: there the part is what
the first draws made, up to the b-th node. Tokens: what the walk committed under greedy decoding, else the exact
expectation over the verifier's draws. Seconds are modelled from `decoding.common.cost_model`: one pass over the part,
and the draft levels that its inner nodes need. Torch-free but for verifiers whose expectation needs the stored rows.

An iteration that another verifier or temperature decided, as before a fork, can only be computed with the run as it was
then (`stored_state.as_made`); with another one it gives None.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from decoding.analysis.luck import agrees
from decoding.common.cost_model import CostModel
from decoding.common.interruption import pause_point
from decoding.trace.metrics import slowdown, typical
from decoding.trace.records import IterationTrace, RunTrace

# An expectation of these is the sum over the nodes of a part: what a node is accepted with does not depend on others.
ADDITIVE = ("greedy", "nss")
# A run is much slower than its costs say where its passes take so many times as long.
SLOW = 2.0
# Costs do not fit a run whose passes or iterations took so many times as long as they say, or as many times less.
FAR = 1.5


@dataclass(frozen=True, eq=False)
class Budgets:
    """An iteration with smaller budgets; all `[nodes + 1]`, by number of nodes from 0 on."""

    tokens: np.ndarray  # committed with so many nodes, the final one included; an end of the text cuts none off
    seconds: np.ndarray  # modelled

    @property
    def nodes(self) -> int:
        """Nodes of the whole tree."""
        return len(self.tokens) - 1

    @property
    def rates(self) -> np.ndarray:
        """Tokens per second."""
        return self.tokens / self.seconds

    @property
    def best(self) -> int:
        """Number of nodes with most tokens per second; the smallest of equals."""
        return int(self.rates.argmax())

    @property
    def lost(self) -> float:
        """Tokens per second that the whole tree is short of the best part."""
        rates = self.rates
        return float(rates[self.best] - rates[-1])

    def capped(self, most: int) -> tuple[float, float]:
        """Tokens and seconds with at most so many nodes."""
        place = min(most, self.nodes)
        return float(self.tokens[place]), float(self.seconds[place])


@dataclass(frozen=True, eq=False)
class RunBudgets:
    """A run with smaller budgets, on the text as it was: another budget would have parted it elsewhere."""

    # Indices of the iterations counted, those without a tree included; `left_out`: how many could not be
    places: tuple[int, ...]
    each: tuple[Budgets, ...]  # their budgets
    left_out: int
    plain_s: float  # modelled time of an iteration of plain decoding, which has no draft to look after

    @property
    def rate(self) -> float:
        """Tokens per second of the trees as they were."""
        return self._rate([budgets.nodes for budgets in self.each])

    @property
    def trees(self) -> int:
        """Iterations counted that have a tree."""
        return sum(budgets.nodes > 0 for budgets in self.each)

    @property
    def best_rate(self) -> float:
        """Most tokens per second of the run, over all choices of a part of every tree (Dinkelbach 1967), or of none.

        The part with most tokens per second of its own iteration need not be it: a slow iteration is worth its tokens
        less what the run makes meanwhile.
        """
        best = 0.0
        while (rate := self._rate([int((each.tokens - best * each.seconds).argmax()) for each in self.each])) > best:
            best = rate
        return max(best, self.capped_rate(0))

    def capped_rate(self, most: int) -> float:
        """Tokens per second with at most so many nodes in every iteration; with none in any it is plain decoding."""
        return self._rate([most] * len(self.each)) if most else 1 / self.plain_s

    def _rate(self, nodes: Sequence[int]) -> float:
        """Tokens per second with at most so many nodes in each iteration."""
        parts = [each.capped(most) for each, most in zip(self.each, nodes, strict=True)]
        return sum(tokens for tokens, _ in parts) / sum(seconds for _, seconds in parts)

    @property
    def best_cap(self) -> int:
        """The one budget for all iterations with most tokens per second."""
        most = max(budgets.nodes for budgets in self.each)
        return max(range(most + 1), key=self.capped_rate)


def misfit(iterations: Sequence[IterationTrace], costs: CostModel) -> tuple[str, float] | None:
    """What costs are furthest from, target passes or whole iterations, and how many times as long these took.

    None where neither is `FAR` away, or too few are known.
    """
    ratios = {
        "target passes": slowdown(iterations, costs),
        "iterations": typical(
            each.times.total_s / float(_Parts(each, drawn=False).seconds(costs)[-1])
            for each in iterations[1:]
            if each.timed and (each.nodes or not each.verified)
        ),
    }
    known = [(what, ratio) for what, ratio in ratios.items() if ratio is not None]
    furthest = max(known, key=lambda found: abs(math.log(found[1])), default=None)
    return None if furthest is None or 1 / FAR <= furthest[1] <= FAR else furthest


def needs_logits(run: RunTrace) -> bool:
    """Whether the tokens of smaller budgets can only be computed from stored rows."""
    return run.sampling.temperature > 0 and run.settings.get("verifier") not in ADDITIVE


def can_tell(run: RunTrace, iteration: IterationTrace) -> bool:
    """Whether the budgets of an iteration can be computed: its tree was recorded, and its logits where needed."""
    if not iteration.verified:
        return True
    if needs_logits(run):
        known = iteration.target_logits is not None and iteration.draft_logits is not None
    elif run.sampling.temperature == 0:
        known = all(step.drawn is None for step in iteration.steps)
    else:
        known = all(step.kind == "choice" and step.drawn is not None for step in iteration.steps)
    return bool(iteration.nodes) and known


def budgets(run: RunTrace, index: int, costs: CostModel) -> Budgets | None:
    """Tokens and modelled seconds of every part of an iteration's tree; None where they are not known.

    Without a tree there is one part, the pass that makes one token. A verifier other than greedy and NSS decides about
    every part anew, from stored rows: a second for 64 nodes.

    Raises `TorchMissingError` where such a verifier is to decide, and torch is not installed.
    """
    iteration = run.iterations[index]
    if not can_tell(run, iteration):
        return None
    if not iteration.verified:
        return Budgets(np.ones(1), costs.verification.seconds(np.ones(1)))
    parts = _Parts(iteration, drawn=needs_logits(run))
    if needs_logits(run):
        tokens = _expected(run, iteration, parts)
        return None if tokens is None else Budgets(tokens, parts.seconds(costs))
    if run.sampling.temperature == 0:
        last = iteration.accepted[-1] if iteration.accepted else 0
        walked = set(iteration.path(iteration.steps[-1].node_id if iteration.steps else last))
        gains = np.array([node in walked for node in parts.order], dtype=np.float64)
    else:
        chances = [iteration.nodes[node].acceptance_probability for node in parts.order]
        gains = np.array(chances, dtype=np.float64)
    return Budgets(1.0 + np.concatenate([[0.0], np.cumsum(gains)]), parts.seconds(costs))


def run_budgets(
    run: RunTrace,
    costs: CostModel,
    proceed: Callable[[int, int], bool] = lambda _done, _total: True,
    made: Callable[[int], RunTrace] | None = None,
) -> RunBudgets | None:
    """The budgets of every iteration; None if `proceed`, given how many are done, says no.

    `made` gives the run as it was when an iteration was made, by its index; None: as it is.
    """
    found: dict[int, Budgets | None] = {}
    for place in range(len(run.iterations)):
        found[place] = budgets(made(place) if made else run, place, costs)
        if not proceed(len(found), len(run.iterations)):
            return None
    known = {place: each for place, each in found.items() if each is not None}
    return RunBudgets(tuple(known), tuple(known.values()), len(found) - len(known), costs.plain_iteration_s)


class _Parts:
    """The parts of a tree by number of nodes, by order of draws where they are `drawn`, else by path probability."""

    def __init__(self, iteration: IterationTrace, drawn: bool):
        self.iteration, nodes = iteration, iteration.nodes
        verified = [node.node_id for node in nodes[1:] if node.flat_index is not None]
        self.draws = [node for node in iteration.drawn or verified if nodes[node].flat_index is not None]
        self.order = list(dict.fromkeys(self.draws))
        if not drawn:
            self.order = sorted(verified, key=lambda node: (-nodes[node].path_probability, nodes[node].depth, node))

    def seconds(self, costs: CostModel) -> np.ndarray:
        """Modelled time of every part, `[num_nodes + 1]`: its pass with what goes on around it, and its levels."""
        nodes, inner = self.iteration.nodes, set[int]()
        widths: dict[int, int] = {}
        level_s = costs.level.seconds(np.arange(len(nodes) + 1))
        drafting, seconds = 0.0, [0.0]
        for node in self.order:
            parent = nodes[node].parent_id
            if parent not in inner:
                inner.add(parent)
                level = nodes[parent].draft_level or 0
                width = widths.get(level, 0)
                drafting += float(level_s[width + 1] - (level_s[width] if width else 0.0))
                widths[level] = width + 1
            seconds.append(drafting)
        return np.array(seconds) + costs.verification.seconds(np.arange(len(self.order) + 1) + 1)

    def part(self, count: int) -> IterationTrace:
        """The record with only the first so many nodes verified, the draws up to the last of them."""
        kept = {0, *self.order[:count]}
        draws = self.draws
        if count < len(self.order):
            ends = self.draws.index(self.order[count - 1]) + 1 if count else 0
            draws = self.draws[:ends]
        order = tuple(node for node in self.iteration.flatten_order if node in kept)
        return replace(self.iteration, flatten_order=order, drawn=tuple(draws) if self.iteration.drawn else ())


def _expected(run: RunTrace, iteration: IterationTrace, parts: _Parts) -> np.ndarray | None:
    """Exact expected tokens of every part, from the stored rows; None where another verifier decided the record."""
    from decoding.replay.replay import stored_tree
    from decoding.replay.stored_state import method_of, sampling_of

    verifier, sampling = method_of(run).verifier, sampling_of(run)

    def expected(count: int) -> float:
        pause_point()
        return verifier.decide(stored_tree(parts.part(count), sampling)).expected_tokens

    if iteration.forced_verdicts or verifier.refusal(iteration.draft_sampling, sampling):
        return None
    if not agrees(iteration, whole := expected(len(parts.order))):
        return None
    return np.array([*(expected(count) for count in range(len(parts.order))), whole])
