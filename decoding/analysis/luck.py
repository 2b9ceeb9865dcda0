"""How lucky a run was: what its verifier committed beside what it does on average over its own draws.

Exact, from the recorded probability of each node of being reached and accepted; torch-free, no rows are needed. In a
run, tokens after the end of the text or its length limit count neither in what happened nor in what was expected.

    luck_of(iteration)          # one tree, None where nothing can be said
    run_luck(run)               # the run: happened, expected, standard deviation
    rerolled(run, index)        # 1,000 other draws over the same tree, from stored rows

The draft's own draws are another chance, not counted here: everything is given the tree that was drafted.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import accumulate
from math import inf, isclose, sqrt

from decoding.common.errors import SettingsError, require
from decoding.trace.records import IterationTrace, RunTrace

REROLLS = 1000
AGREES = 1e-3  # tokens: what the same verifier may differ by between devices


@dataclass(frozen=True)
class Luck:
    """Tokens that one pass over one tree committed, the final one included, among what it could have."""

    tokens: int  # what happened
    probs: Mapping[int, float]  # exact probability of each number of tokens
    # expected, deviation: mean and standard deviation of that distribution
    expected: float
    deviation: float

    @property
    def as_many(self) -> float:
        """Probability of just as many tokens."""
        return self.probs.get(self.tokens, 0.0)

    @property
    def more(self) -> float:
        """Probability of more tokens."""
        return sum(p for tokens, p in self.probs.items() if tokens > self.tokens)

    @property
    def fewer(self) -> float:
        """Probability of fewer tokens."""
        return sum(p for tokens, p in self.probs.items() if tokens < self.tokens)

    @property
    def certain(self) -> bool:
        """Whether every draw gives the same number of tokens, as it does under greedy decoding."""
        return self.deviation < 1e-6


@dataclass(frozen=True)
class RunLuck:
    """The same over a run."""

    places: tuple[int, ...]  # indices of the iterations counted
    # tokens, expected: of each of them
    tokens: tuple[int, ...]
    expected: tuple[float, ...]
    variances: tuple[float, ...]  # exact variance of the tokens of each, given its tree

    @property
    def happened(self) -> int:
        """Committed tokens of all iterations."""
        return sum(self.tokens)

    @property
    def mean(self) -> float:
        """Expected tokens of all iterations, each given its tree."""
        return sum(self.expected)

    @property
    def deviation(self) -> float:
        """Standard deviation of what happened: surprises of different iterations do not correlate."""
        return sqrt(sum(self.variances))

    @property
    def score(self) -> float | None:
        """By how many standard deviations more happened than was expected; None where all was certain."""
        return (self.happened - self.mean) / self.deviation if self.deviation > 1e-6 else None


def token_distribution(
    iteration: IterationTrace, kept: Mapping[int, float], stops: Collection[int] = (), room: float = inf
) -> dict[int, float]:
    """Exact probability of each number of committed tokens, the final one included, over all draws.

    `kept` is the probability of each verified node of being reached and accepted. What a walk has beyond `stops`,
    tokens that end the text, and beyond its `room` is not counted.
    """
    ends_at = dict(kept)
    for node in kept:
        if node:
            ends_at[iteration.nodes[node].parent_id] -= kept[node]
    probs: dict[int, float] = {}
    for node, chance in ends_at.items():
        path = [iteration.nodes[each] for each in iteration.path(node)[1:]]
        tokens = next((each.depth for each in path if each.token_id in stops), iteration.nodes[node].depth + 1)
        tokens = int(min(tokens, room))
        probs[tokens] = probs.get(tokens, 0.0) + max(chance, 0.0)
    return dict(sorted(probs.items()))


def luck_of(iteration: IterationTrace, stops: Collection[int] = (), room: float = inf) -> Luck | None:
    """The luck of one iteration; None where its tree was not recorded.

    With the `stops` and the `room` of its run, what was committed; without, the verifier's whole walk.
    """
    verified = {node.node_id: node.acceptance_probability for node in iteration.nodes if node.flat_index is not None}
    verified[0] = 1.0  # the root is always reached
    kept = {node: chance for node, chance in verified.items() if chance is not None}
    if not iteration.nodes or len(kept) < len(verified):
        return None
    probs = token_distribution(iteration, kept, stops, room)
    mean = sum(tokens * p for tokens, p in probs.items())
    variance = sum((tokens - mean) ** 2 * p for tokens, p in probs.items())
    tokens = len(iteration.committed_ids) if stops or room < inf else walked_tokens(iteration)
    return Luck(tokens, probs, mean, sqrt(variance))


def agrees(iteration: IterationTrace, expected_tokens: float, stops: Collection[int] = ()) -> bool:
    """Whether a verifier expects what the record does; if not, another one decided, as it may have before a fork."""
    luck = luck_of(iteration, stops)
    return luck is None or isclose(luck.expected, expected_tokens, abs_tol=AGREES)


def walked_tokens(iteration: IterationTrace) -> int:
    """Tokens of the verifier's walk, the final one included; an end of the text cuts none of them off."""
    if iteration.steps:
        return iteration.nodes[iteration.steps[-1].node_id].depth + 1
    return len(iteration.committed_ids)


def lucks(run: RunTrace) -> list[Luck | None]:
    """The luck of each iteration of a run, without what is after its end; a stop token is known where one ended it."""
    stops = run.ending_ids
    before = accumulate((len(each.committed_ids) for each in run.iterations), initial=0)
    rooms = (
        max(run.max_new_tokens - done, len(each.committed_ids))
        for done, each in zip(before, run.iterations, strict=False)
    )
    return [luck_of(each, stops, room) for each, room in zip(run.iterations, rooms, strict=True)]


def run_luck(run: RunTrace) -> RunLuck:
    """The luck of a run; iterations without a recorded tree are left out."""
    known = {place: luck for place, luck in enumerate(lucks(run)) if luck is not None}
    return RunLuck(
        places=tuple(known),
        tokens=tuple(luck.tokens for luck in known.values()),
        expected=tuple(luck.expected for luck in known.values()),
        variances=tuple(luck.deviation**2 for luck in known.values()),
    )


def rerolled(run: RunTrace, index: int, rerolls: int = REROLLS) -> dict[int, int]:
    """How many of some other draws of the run's own verifier over the same tree committed how many tokens.

    What is beyond the end of the text is not counted. Seeds 0, 1, 2, ... begin at the walk; no model is run.

    Raises `SettingsError` where the full rows of the iteration were not kept, or another verifier decided it, before a
    fork; `TorchMissingError` where torch, which the exact figures do without, is not installed.
    """
    from decoding.replay.replay import replay
    from decoding.replay.stored_state import iteration_at, method_of, sampling_of

    iteration = iteration_at(run, index)
    require(
        not iteration.forced_verdicts,
        f"A verdict of iteration {index + 1} was forced: its logits are the target's own, not the "
        "ones that were tested.",
    )
    stops = run.ending_ids
    replayed = replay(iteration, sampling_of(run), [method_of(run).verifier], rerolls, stops)[0]
    if replayed.refusal is None and agrees(iteration, replayed.expected_tokens, stops):
        return replayed.tokens
    raise SettingsError(
        f"Iteration {index + 1} is from before a fork and used another verifier or temperature: re-roll it in "
        "the run that this one was forked from."
    )
