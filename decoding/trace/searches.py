"""How the tree of an iteration was searched for, from its record: the pops of DySpec's heap, the rounds of SALF.

Nodes are recorded in the order in which they were made, with the draft's probabilities and the forward that processed
each: with that the search is done again, without a model. A tree that a person changed is no search's any more.
"""

from bisect import insort
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from decoding.trace.records import TOP_TOKENS, IterationTrace

SHOWN = 6  # draws, tokens and candidates that a step lists
LIMITS = ("max_depth", "length_limit")


@dataclass(frozen=True, slots=True)
class NextDraw:
    """A draw that DySpec could make next: the `rank`-th below `parent`, 1 for the first.

    Attributes:
        value: the draft's estimate that the draw is reached and accepted: path probability of the parent times what is
            left of its distribution.
    """

    value: float
    parent: int
    rank: int


@dataclass(frozen=True, slots=True)
class Pop:
    """One pop of DySpec's heap (Algorithm 1): a draw leaves it and is made, up to two draws enter it.

    Attributes:
        draw: what was popped. node: what it drew.
        below: v0 = v R(y), the value of the first draw below the node; None where the node is on the deepest level.
        beside: v1 = v - v0, the value of the next draw beside it; None where every token is drawn.
        left: probability that is left of the draft's distribution at the parent; `rest`: its likeliest tokens and their
            probability in what is left.
        waiting: the best draws in the heap after the pop, best first, of `held` in all.
        forwards: draft forwards so far; `asked`: whether this pop needed one.
    """

    node: int
    draw: NextDraw
    below: float | None
    beside: float | None
    left: float
    rest: tuple[tuple[int, float], ...]
    waiting: tuple[NextDraw, ...]
    held: int
    forwards: int
    asked: bool


def search_kind(iteration: IterationTrace) -> Literal["heap", "rounds", ""]:
    """How the recorded tree was searched for, empty where nothing here can do that again.

    That is so with another drafter, without nodes, where somebody put nodes into the tree or took any out, and where a
    file contradicts itself.
    """
    edited = any(each.kind in ("force_in", "force_out") for each in iteration.interventions)
    levels = {node.draft_level for node in iteration.nodes} - {None}
    if len(iteration.nodes) < 2 or edited or levels != set(range(len(levels))):
        return ""
    if iteration.rule.drafter == "dyspec":
        return "heap"
    given = [iteration.settings.get(name) for name in ("node_budget", "batch")]
    known = all(isinstance(each, int) and each > 0 for each in given)
    return "rounds" if iteration.rule.drafter == "salf" and known else ""


def heap_pops(iteration: IterationTrace) -> tuple[Pop, ...]:
    """The pops of DySpec's greedy search in order, one per node; none for another drafter.

    Probabilities are float32, so a value is right to about 1e-6 and ties may look decided.
    """
    if search_kind(iteration) != "heap":
        return ()
    nodes, pops, forwards = iteration.nodes, [], 0
    rest = {node.node_id: {i: p for i, _, p in iteration.draft_top(node.node_id) if p > 0} for node in nodes}
    left, drawn = defaultdict[int, float](lambda: 1.0), defaultdict[int, int](int)
    heap = [(-1.0, 0, NextDraw(1.0, 0, 1))]  # ties go to the draw that entered first
    for node in nodes[1:]:
        parent = nodes[node.parent_id]
        here = parent.node_id
        draw = NextDraw(parent.path_probability * left[here], here, drawn[here] + 1)
        heap = [entry for entry in heap if entry[2] != draw]
        left[here] = max(left[here] - (node.draft_probability or 0.0), 0.0)
        drawn[here] += 1
        rest[here].pop(node.token_id, None)
        below = None if node.stop_reason in LIMITS else node.path_probability
        emptied = parent.breadth == "all_drawn" and drawn[here] == parent.branching
        beside = None if emptied else parent.path_probability * left[here]
        if beside is not None:
            insort(heap, (-beside, 2 * node.node_id - 1, NextDraw(beside, here, drawn[here] + 1)))
        if below is not None:
            insort(heap, (-below, 2 * node.node_id, NextDraw(below, node.node_id, 1)))
        before, forwards = forwards, max(forwards, 1 + (parent.draft_level or 0))
        tokens = () if emptied or left[here] <= 0 else tuple(rest[here].items())[:SHOWN]
        shares = tuple((token, min(probability / left[here], 1.0)) for token, probability in tokens)
        waiting = tuple(entry[2] for entry in heap[:SHOWN])
        taken = (node.node_id, draw, below, beside, left[here], shares, waiting, len(heap))
        pops.append(Pop(*taken, forwards, forwards > before))
    return tuple(pops)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token that SALF has scored: `value` is its path probability, `node` its id, None where the tree has it not."""

    value: float
    depth: int
    parent: int
    token: int
    node: int | None


@dataclass(frozen=True, slots=True)
class SearchRound:
    """One round of SALF's search (Algorithm 2).

    Attributes:
        batch: the nodes D that could still improve the tree, best first: the root in the first round.
        gain: the sum S of their values. bound: S of the round before, which S never exceeds (Theorem 1); None in the
            first one.
        expanded: whether the draft scored their children; the last round, which stops, does not.
        entered: what took a place among the `node_budget` best in it. lost: what gave its place up.
        places: places taken after it. least: the value that the next one has to exceed, 0 while places are free.
        waiting: the best of those in the queue that can still take a place, best first.
    """

    batch: tuple[int, ...]
    gain: float
    bound: float | None
    expanded: bool
    entered: tuple[Candidate, ...]
    lost: tuple[Candidate, ...]
    places: int
    least: float
    waiting: tuple[Candidate, ...]


def salf_rounds(iteration: IterationTrace) -> tuple[SearchRound, ...]:
    """The rounds of SALF's search in order; the last one is the check that ended it. None for another drafter.

    The record has every node that was expanded or has a place, and the draft's 20 likeliest tokens after each expanded
    one. So batches and sums are complete; of what waits only candidates are listed that no unrecorded one can precede.
    Places may lack a token of the deepest level, beyond those 20, that held one for a while.
    """
    if search_kind(iteration) != "rounds":
        return ()
    count, size = (int(iteration.settings[name]) for name in ("node_budget", "batch"))
    nodes = iteration.nodes
    levels, children = defaultdict[int, list[int]](list), defaultdict[int, dict[int, int]](dict)
    for node in nodes:
        if node.draft_level is not None:
            levels[node.draft_level].append(node.node_id)
        children[node.parent_id][node.token_id] = node.node_id
    ended = [node.node_id for node in nodes if node.stop_reason == "low_promise"]
    ended.sort(key=lambda place: (-nodes[place].path_probability, nodes[place].depth))
    rounds: list[SearchRound] = []
    best, queue, unseen = list[Candidate](), list[Candidate](), 0.0
    for level in range(len(levels) + 1):
        last = level == len(levels)
        batch = ended[:size] if last else levels[level]
        gain = sum(nodes[place].path_probability for place in batch)
        before, popped = best, _popped(queue, batch, size) if level else []
        gone = set(popped)
        queue = [each for each in queue if each not in gone]
        if last and ended and iteration.settings.get("top_up"):
            popped, queue = [*popped, *queue], []
        best = _ranked([*before, *popped])[:count]
        if not last:
            least = _least([*best, *queue], count)
            for place in batch:
                found = _scored(iteration, place, children[place])
                unseen = max(unseen, nodes[place].path_probability * _floor(iteration, place))
                queue += [each for each in found if each.value >= least]
            queue = _ranked(queue)
        waiting = tuple(each for each in queue if each.value > max(unseen, _least(best, count)))[:SHOWN]
        placed, kept = set(best), set(before)
        moved = tuple(e for e in best if e not in kept), tuple(e for e in before if e not in placed)
        held = len(best), _least(best, count)
        bound = rounds[-1].gain if rounds else None
        rounds.append(SearchRound(tuple(batch), gain, bound, not last, *moved, *held, waiting))
    return tuple(rounds)


def _ranked(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Best first: by value, ties to the shallower one."""
    return sorted(candidates, key=lambda each: (-each.value, each.depth))


def _least(candidates: Sequence[Candidate], count: int) -> float:
    """Value of the last of the `count` best; 0 if there are fewer."""
    return _ranked(candidates)[count - 1].value if len(candidates) >= count else 0.0


def _popped(queue: Sequence[Candidate], batch: Sequence[int], size: int) -> list[Candidate]:
    """What leaves the queue with a batch: those of the deepest level that precede its last; all, if it is not full."""
    if len(batch) < size:  # the queue is used up, or what is left of it can no longer have a place
        return list(queue)
    inside = set(batch)
    last = _ranked([each for each in queue if each.node in inside])[-1:]
    ahead = [(each.value, -each.depth) for each in last]
    return [each for each in queue if each.node in inside or [(each.value, -each.depth)] > ahead]


def _scored(iteration: IterationTrace, place: int, children: dict[int, int]) -> list[Candidate]:
    """The recorded candidates below an expanded node: its children, and the draft's likeliest tokens after it."""
    parent = iteration.nodes[place]
    probs = {token: probability for token, _, probability in iteration.draft_top(place) if probability > 0}
    probs |= {token: iteration.nodes[child].draft_probability or 0.0 for token, child in children.items()}
    return [
        Candidate(parent.path_probability * probability, parent.depth + 1, place, token, children.get(token))
        for token, probability in probs.items()
    ]


def _floor(iteration: IterationTrace, place: int) -> float:
    """Probability that no unrecorded token after a node exceeds."""
    top = iteration.draft_top(place)
    return top[-1][2] if len(top) == TOP_TOKENS else 0.0
