"""Hardware-aware tree: as deep, as wide and as large as makes the most tokens per second on the machine it runs on.

With A(v) the chance that node v is reached and accepted, a tree of n nodes gives 1 + sum A(v) tokens in the time of
its draft levels and of an iteration that verifies n + 1 nodes. The rate of the best tree so far is the one to beat: a
node is worth verifying where A(v) exceeds rate x its time, a level worth drafting where the tokens it promises do.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from decoding.common.cost_model import read_curve
from decoding.common.errors import require
from decoding.common.settings import HISTORY, SEARCH, setting
from decoding.drafters import shared_settings as shared
from decoding.drafters.base import Drafter, IterationFeedback, ProbabilitySource, TreeBuilder, deepest_level
from decoding.trace.records import IterationTrace, RuleTrace
from decoding.tree.draft import Draft

MOST_CHILDREN = 8
# One more node costs its share of so many more at most: where passes are padded, the next few cost no more than one.
SHARED_BY = 16


class TreeCosts(NamedTuple):
    """Seconds, each `[node_budget + 1]`."""

    verify_s: np.ndarray  # an iteration without its drafting, by number of verified nodes, the root not counted
    node_s: np.ndarray  # one more node then
    level_s: np.ndarray  # a draft level, by width


@lru_cache(maxsize=32)
def tree_costs(verify_ms: str, level_ms: str, node_budget: int) -> TreeCosts:
    """Costs by size from two curves in milliseconds, as `read_curve` takes them."""
    sizes, more = np.arange(node_budget + 1), np.arange(1, SHARED_BY + 1)
    curve = read_curve(verify_ms, "verify_ms")
    verify_s = curve.seconds(sizes + 1)
    node_s = ((curve.seconds(sizes[:, None] + 1 + more) - verify_s[:, None]) / more).min(1)
    return TreeCosts(verify_s, node_s, read_curve(level_ms, "level_ms").seconds(sizes))


def acceptance(probs: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Chance of acceptance whose odds are those of `probs` times a factor."""
    raised = factors * probs
    return raised / (1 - probs + raised)


class RateSearch:
    """One tree in the making; scored nodes get their place in it when they are expanded or verified.

    A level not yet drafted promises the mean acceptance by rank of the children scored so far, where each node expanded
    weighs as much as it is likely to be reached.

    Args:
        factors: of the odds of acceptance to those of the draft, `[2]`: for the first child of a node, for the others.
    """

    def __init__(
        self, source: ProbabilitySource, root_token: int, costs: TreeCosts, max_depth: int, factors: np.ndarray
    ):
        self._builder, self._costs = TreeBuilder(source, root_token), costs
        self._budget = len(costs.verify_s) - 1
        self._deepest, self._at_deepest = deepest_level(max_depth, source.depth_limit)
        self._factors = np.where(np.arange(MOST_CHILDREN) == 0, *factors)
        self._promise, self._weight = np.zeros(MOST_CHILDREN), 0.0  # summed acceptance by rank, summed weights
        self._spent_s = 0.0
        self._best = np.zeros(0)  # values of the best nodes so far, best first
        self._rate, self._count = self._best_rate()
        self._levels: list[tuple[np.ndarray, ...]] = []  # value, parent, token, probability, id of each node scored

    def grow(self) -> tuple[float, float]:
        """Draft level by level, as wide as it pays and as long as it pays.

        Returns expected tokens of the best tree, and its seconds, its drafting included.
        """
        nodes, values = self._builder.root_frontier(), np.ones(1)
        for depth in range(1, self._deepest + 1):
            values = self._score(nodes, values)
            if depth == self._deepest:
                break
            # The width where promised tokens less rate x time are most. Where the budget is used up a newcomer takes
            # the place of the last one.
            chances = self._promise / self._weight
            place = self._best[-1] if len(self._best) == self._budget else 0.0
            least = max(self._rate * self._costs.node_s[self._count], place)
            promised = np.maximum(values[values * chances.max() > least, None] * chances - least, 0.0).sum(1)
            gains = promised.cumsum() - self._rate * self._costs.level_s[1 : len(promised) + 1]
            width = int(gains.argmax()) + 1 if len(gains) else 0
            if not width or gains[width - 1] <= 0:
                break
            values, nodes = values[:width], self._append(self._levels[-1], slice(width))
        seconds = float(self._costs.verify_s[self._count] + self._spent_s)
        return 1.0 + float(self._best[: self._count].sum()), seconds

    def finish(self, drafter: Drafter, state: Any) -> Draft:
        """Verify the best nodes scored, in the number that makes the best rate."""
        tree, verified = self._builder.tree, [np.zeros(1, dtype=np.int64)]
        if self._count:
            level = tuple(np.concatenate(columns) for columns in zip(*self._levels, strict=True))
            values, ids = level[0], level[-1]
            # No child is worth more than its parent, and equals stay in order of levels: what wins is connected.
            winners = np.zeros(len(values), dtype=bool)
            winners[np.argsort(-values, kind="stable")[: self._count]] = True
            self._append(level, winners & (ids < 0))
            verified.append(ids[winners])
        keep = np.zeros(tree.size, dtype=bool)
        keep[np.concatenate(verified)] = True
        expanded = tree.level >= 0
        tree.set_stop_reason(np.flatnonzero(~expanded), "unprofitable")
        tree.set_stop_reason(np.flatnonzero(~expanded & (tree.depths >= self._deepest)), self._at_deepest)
        tree.branching[expanded] = np.bincount(tree.parents[keep][1:], minlength=tree.size)[expanded]
        return self._builder.finish(drafter.draft_sampling, state, drafter.settings(), keep=keep)

    def _score(self, nodes: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Ask the draft about nodes of these values; note their children and return the values of those, best first."""
        tokens, probs = self._builder.expand(nodes, top=MOST_CHILDREN)
        children = probs.shape[1]
        chances = acceptance(probs, self._factors[:children])
        self._promise[:children] += values @ chances
        self._weight += float(values.sum())
        self._spent_s += self._costs.level_s[len(nodes)]
        scored = (values[:, None] * chances).ravel()
        ranked = np.argsort(-scored, kind="stable")[: self._budget]
        ranked = ranked[scored[ranked] > 0]
        found, ids = scored[ranked], np.full(len(ranked), -1)
        self._levels.append((found, nodes[ranked // children], tokens.ravel()[ranked], probs.ravel()[ranked], ids))
        self._best = -np.sort(-np.concatenate([self._best, found]))[: self._budget]
        self._rate, self._count = self._best_rate()
        return found

    def _best_rate(self) -> tuple[float, int]:
        """Expected tokens per second of the best tree so far, and its number of nodes without the root."""
        verify_s = self._costs.verify_s
        alone = 1 / (verify_s[0] + self._spent_s)
        rates = (1.0 + self._best.cumsum()) / (verify_s[1 : len(self._best) + 1] + self._spent_s)
        last = int(rates.argmax()) if len(rates) else 0
        return (float(rates[last]), last + 1) if len(rates) and rates[last] > alone else (float(alone), 0)

    def _append(self, level: tuple[np.ndarray, ...], which: np.ndarray | slice) -> np.ndarray:
        """Give some scored nodes their place in the tree; returns their ids."""
        _, parents, tokens, probs, ids = level
        ids[which] = self._builder.tree.append(parents[which], tokens[which], probs[which])
        return ids[which]


MOST_ODDS, MOST_BATCH = 100.0, 64
# What the odds at the start weigh: as much as some 40 tokens that were as likely accepted as not.
PRIOR_INFORMATION = 10.0
# While drafting does not seem to pay, one iteration in so many drafts all the same, to see whether it does by now.
RETRY = 16
FORGETTING = 0.9  # per tree drafted, of whether drafting pays


@dataclass(frozen=True)
class Learned:
    """What past iterations have taught."""

    # Logarithms of the factors between the odds of the draft and those of acceptance, `[2]`: of the first child of a
    # node, of the others
    log_odds: np.ndarray
    information: np.ndarray  # how much each of them rests on, `[2]`
    # tokens, seconds: expected tokens of the trees drafted so far and what they cost, the latest ones above all
    tokens: float = 0.0
    seconds: float = 0.0
    idle: int = 0  # iterations since the last one that drafted


@dataclass(frozen=True)
class HardwareAwareDrafter(Drafter):
    """Of all nodes scored, those that make the best rate; levels while one more promises to pay.

    A child of draft probability q is accepted with chance f q / (1 - q + f q), with one factor f for the first child of
    a node and one for the others. Nodes have at most `MOST_CHILDREN` children. Where the trees drafted so far were to
    give fewer tokens per second than none, none is drafted but now and then. What is left empty (`verify_ms`,
    `level_ms`, `odds`) is measured with the loaded pair.
    """

    moving = ("odds",)
    breadth = "ranked"
    optional = ("batch_size",)

    node_budget: int = shared.node_budget(128)
    max_depth: int = shared.max_depth(16)
    learn: bool = setting(
        True, group=HISTORY, label="Online learning",
        help="Outcomes update the acceptance odds; drafting pauses where it gives no speed-up.",
    )  # fmt: skip
    verify_ms: str = setting(
        "", group=SEARCH, label="Verification, ms", placeholder="measured with the loaded pair",
        help="Time of an iteration without drafting, in ms by number of nodes (root included), such as 1:2.5 8:3.1.",
    )  # fmt: skip
    level_ms: str = setting(
        "", group=SEARCH, label="Draft level, ms", placeholder="measured with the loaded pair",
        help="Time of a draft level, in ms by width, such as 1:0.3 32:0.5; a single number applies to every width.",
    )  # fmt: skip
    batch_size: int = setting(
        1, 1, MOST_BATCH, group=SEARCH, label="Batch size", step=1,
        help="Sequences decoded at once: the tree is the one that pays at what passes over so many cost.",
    )  # fmt: skip
    odds: str = setting(
        "", group=SEARCH, label="Initial odds", placeholder="measured with the loaded pair",
        help="Factors on the draft's odds of acceptance: for first children and for all others.",
    )  # fmt: skip

    def __post_init__(self):
        super().__post_init__()
        if self.verify_ms:
            fastest = read_curve(self.verify_ms, "verify_ms").seconds(1)
            require(bool(fastest > 0), f"verify_ms must be above 0 for every size, not {self.verify_ms!r}.")
        if self.level_ms:
            read_curve(self.level_ms, "level_ms")
        if self.odds:
            factors = self.factors
            require(
                len(factors) == 2 and all(1 / MOST_ODDS <= factor <= MOST_ODDS for factor in factors.tolist()),
                f"odds must be two factors from {1 / MOST_ODDS:g} to {MOST_ODDS:g} separated by a space, such as "
                f"'2.5 1.2', not {self.odds!r}.",
            )

    @property
    def factors(self) -> np.ndarray:
        """Both factors of `odds`; nan for what is no number."""
        return np.array(shared.numbers(self.odds.split()))

    def prepared(self, measured) -> "HardwareAwareDrafter":
        verify_ms, level_ms, odds = self.verify_ms, self.level_ms, self.odds
        if not (verify_ms and level_ms):
            costs = measured.costs(self.batch_size)
            verify_ms, level_ms = verify_ms or costs.verification.written(), level_ms or costs.level.written()
        if not odds:
            odds = _written(np.clip(measured.odds(MOST_CHILDREN), 1 / MOST_ODDS, MOST_ODDS))
        return replace(self, verify_ms=verify_ms, level_ms=level_ms, odds=odds)

    def start(self, prompt_ids) -> Learned:
        factors = self.factors if self.odds else np.ones(2)
        return Learned(np.log(factors), np.full(2, PRIOR_INFORMATION))

    def carried(self, state, before, prompt_ids) -> Learned:
        """Odds and costs as they were planned with: what was learned of them stays."""
        mine, theirs = ((each.verify_ms, each.level_ms, each.odds) for each in (self, before))
        return state if mine == theirs else self.start(prompt_ids)

    def draft(self, state: Learned, source, root_token, draws) -> Draft:
        require(
            bool(self.verify_ms and self.level_ms and self.odds),
            "verify_ms, level_ms or odds is empty: give costs such as '1:2.5 8:3.1' and odds such as '1 1', or let "
            "them be measured with a loaded pair.",
        )
        costs, factors = tree_costs(self.verify_ms, self.level_ms, self.node_budget), np.exp(state.log_odds)
        search = RateSearch(source, root_token, costs, self.max_depth, factors)
        after = replace(state, idle=state.idle + 1)
        # Both sides multiplied out: at first both are 0, and drafting is tried.
        if after.idle >= RETRY or state.tokens * costs.verify_s[0] >= state.seconds:
            tokens, seconds = search.grow()
            tokens, seconds = FORGETTING * state.tokens + tokens, FORGETTING * state.seconds + seconds
            after = replace(state, tokens=tokens, seconds=seconds, idle=0)
        draft = search.finish(self, after)
        return replace(draft, settings=draft.settings | {"odds": _written(factors)})

    traced = RuleTrace(
        "hardware_aware", depth_setting="max_depth", left_out="unprofitable", value="chance", children=MOST_CHILDREN
    )

    def rule(self, settings) -> RuleTrace:
        return replace(self.traced, factors=tuple(float(factor) for factor in str(settings["odds"]).split()))

    def resumed(self, state: Learned, iteration: IterationTrace) -> Learned:
        """The tokens and seconds that a recorded tree was to make, then what its outcome taught.

        What a person put into the tree is left out, what a person took out is not brought back.
        """
        outcome = IterationFeedback.recorded(iteration)
        put_in, (tree, order) = iteration.forced_in, outcome.drafted_tree()
        order = np.array([node for node in order.tolist() if node not in put_in])
        costs, factors = tree_costs(self.verify_ms, self.level_ms, self.node_budget), np.exp(state.log_odds)
        after = replace(state, idle=state.idle + 1)
        drafted = tree.level.copy()
        for node in {int(tree.parents[node]) for node in put_in}:
            if put_in.issuperset(iteration.children(node)):
                drafted[node] = -1  # expanded for what was put in below it
        widths = np.bincount(drafted[drafted >= 0])
        if len(widths):
            parents = tree.parents[order[1:]]
            first = tree.draft_probs[order[1:]] >= tree.confidence[parents]
            chances = acceptance(tree.draft_probs[order[1:]], np.where(first, factors[0], factors[1]))
            values = np.ones(tree.size)
            for node, parent, chance in zip(order[1:], parents, chances, strict=True):
                values[node] = values[parent] * chance
            tokens = FORGETTING * state.tokens + 1.0 + float(values[order[1:]].sum())
            verified = min(len(order) - 1, self.node_budget)  # a person may have put more in
            seconds = FORGETTING * state.seconds + float(costs.verify_s[verified] + costs.level_s[widths].sum())
            after = replace(state, tokens=tokens, seconds=seconds, idle=0)
        return self.observe(after, outcome)[0]

    def observe(self, state: Learned, outcome: IterationFeedback):
        if not self.learn:
            return self.start([]), None
        tree, order = outcome.drafted_tree()
        reached = np.zeros(tree.size, dtype=bool)
        reached[[0, *outcome.path]] = True
        nodes = order[1:]
        tested = nodes[reached[tree.parents[nodes]]]
        probs, accepted = tree.draft_probs[tested], reached[tested]
        other = (probs < tree.confidence[tree.parents[tested]]).astype(np.int64)  # 0: the first child of its parent
        # One Newton step of the likelihood per iteration, each resting on all that came before.
        expected = acceptance(probs, np.exp(state.log_odds)[other])
        information = state.information + np.bincount(other, expected * (1 - expected), 2)
        log_odds = state.log_odds + np.bincount(other, accepted - expected, 2) / information
        log_odds = np.clip(log_odds, -np.log(MOST_ODDS), np.log(MOST_ODDS))
        return replace(state, log_odds=log_odds, information=information), None


def _written(factors: np.ndarray) -> str:
    return " ".join(f"{factor:.4g}" for factor in factors)
