"""Each paper's rule to build a draft tree, written down once more in plain Python: what it says about every node.

Nothing of the drafters is used: a rule gets the settings in force and the draft's probabilities, and where it draws the
tokens that were drawn, and tells for every node that it puts into the tree whether it is expanded and why, how wide and
why, and whether it is verified. `benchmarks.reasons` holds records of runs against it.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

Path = tuple[int, ...]
ROUNDING = 1e-12


@dataclass(frozen=True)
class Expected:
    """What a rule says about a node.

    Attributes:
        growths: codes that are true of it; several where it is stopped twice over.
        breadth, branching: of an expanded node, else None.
        left_out: why it is not verified, None if it is.
    """

    growths: frozenset[str]
    breadth: str | None = None
    branching: int | None = None
    left_out: str | None = None


@dataclass
class RuleCase:
    """One tree to be built.

    Attributes:
        settings: in force.
        limit: no node may be deeper, as the text may not be longer.
        probs: the draft's probabilities after a path.
        children: tokens drawn below each path in draw order, where the rule draws; a token drawn twice stands there
            twice.
        text: all tokens so far.
        learned: what a rule that learns has come to, by `learn`.
    """

    settings: Mapping[str, Any]
    limit: int
    probs: Callable[[Path], np.ndarray]
    children: Mapping[Path, list[int]]
    text: tuple[int, ...] = ()
    learned: Any = None
    found: dict[Path, Expected] = field(default_factory=dict)

    def deepest(self) -> int:
        """Depth of the last level that the settings and the text allow."""
        return min(self.settings["max_depth"], self.limit)

    def ends(self, depth: int, deepest: int) -> set[str]:
        """Which limits of depth a node is at; `deepest` is that of the settings."""
        return {code for code, hit in (("max_depth", depth >= deepest), ("length_limit", depth >= self.limit)) if hit}

    def likeliest(self, path: Path, count: int) -> list[tuple[int, float]]:
        """The draft's best tokens after a path with their probabilities."""
        probs = self.probs(path)
        return [(int(token), float(probs[token])) for token in np.argsort(-probs, kind="stable")[:count]]

    def expand(self, path: Path, breadth: str, branching: int, left_out: str | None = None) -> None:
        self.found[path] = Expected(frozenset({"expanded"}), breadth, branching, left_out)

    def leaf(self, path: Path, growths: Iterable[str], left_out: str | None = None) -> None:
        self.found[path] = Expected(frozenset(growths), left_out=left_out)


def nothing(case: RuleCase) -> None:
    """Autoregressive decoding."""
    case.leaf((), {"not_drafted"})


def chain(case: RuleCase) -> None:
    """A chain of `length` tokens: the likeliest or, sampled, one draw after the other."""
    path: Path = ()
    while len(path) < min(case.settings["length"], case.limit):
        case.expand(path, "chain", 1)
        token = case.children[path][0] if case.settings["sampled"] else case.likeliest(path, 1)[0][0]
        path = (*path, token)
    case.leaf(path, case.ends(len(path), case.settings["length"]))


def prompt_lookup(case: RuleCase) -> None:
    """What followed the longest of the allowed ends of the text at its first or latest earlier occurrence."""
    s, path = case.settings, ()
    for token in _copied(case) or ():
        if len(path) == min(s["length"], case.limit):
            break
        case.expand(path, "chain", 1)
        path = (*path, token)
    case.leaf(path, case.ends(len(path), s["length"]) or {"no_match"})


def lookup_or_draft(case: RuleCase) -> None:
    """Prompt lookup, or a chain of the draft's likeliest tokens where nothing is found."""
    if _copied(case):
        prompt_lookup(case)
    else:
        chain(replace(case, settings=case.settings | {"sampled": False}))


def _copied(case: RuleCase) -> tuple[int, ...] | None:
    """What the lookup has found, None for nothing."""
    s, text = case.settings, case.text
    for size in reversed(range(min(s["shortest"], s["longest"]), s["longest"] + 1)):
        places = [at for at in range(len(text) - size) if text[at : at + size] == text[-size:]]
        if places:
            return text[(places[-1] if s["latest"] else places[0]) + size :]
    return None


def suffix(case: RuleCase) -> None:
    """Of the trees of what followed the last 1, 2, ... tokens, the one with the largest sum of path probabilities."""
    s, text = case.settings, case.text
    deepest, best = case.deepest(), (0.0, {(): 1.0}, [])
    for size in range(1, min(64, len(text) - 1) + 1):
        rests = [text[at + size :] for at in range(len(text) - size) if text[at : at + size] == text[-size:]]
        values: dict[Path, float] = {(): 1.0}
        offered = list(_followed(rests, (), 1.0, deepest, s["least_share"]))
        while offered and len(values) <= min(max(int(s["per_matched_token"] * size), 1), s["node_budget"]):
            chosen = max(offered, key=lambda each: each[1])  # the first of equal ones
            offered.remove(chosen)
            values[chosen[0]] = chosen[1]
            offered += _followed(rests, *chosen, deepest, s["least_share"])
        if rests and sum(values.values()) - 1 > best[0]:
            best = sum(values.values()) - 1, values, rests
    _, values, rests = best
    for path, value in values.items():
        width = sum(other[:-1] == path for other in values if other)
        if width:
            case.expand(path, "ranked", width)
            continue
        shares = [share for _, share in _followed(rests, path, value, len(path) + 1, 0.0)]
        nothing = {"budget"} if max(shares, default=-1.0) >= s["least_share"] else {"no_match"}
        case.leaf(path, case.ends(len(path), s["max_depth"]) or nothing)


def _followed(
    rests: list[tuple[int, ...]], path: Path, value: float, deepest: int, least: float
) -> Iterator[tuple[Path, float]]:
    """Paths one token longer that stand at the beginning of some rests, with their probability, if it is enough."""
    through = [rest for rest in rests if rest[: len(path)] == path]
    tokens = dict.fromkeys(rest[len(path)] for rest in through if len(rest) > len(path))
    for token in tokens if len(path) < deepest else ():
        share = value * sum(rest[len(path) : len(path) + 1] == (token,) for rest in through) / len(through)
        if share >= least:
            yield (*path, token), share


# The tree of Luo et al. as their code lists it: a word per node, a digit per level, which candidate it is.
RECYCLED = (
    "0 1 2 3 4 5 6 7 00 01 02 03 04 05 06 07 10 11 12 13 20 21 22 30 31 40 50 60 70 000 001 002 003 004 005 006 "
    "007 010 011 012 020 021 030 040 050 060 070 100 101 110 200 300 400 500 0000 0001 0002 0003 0004 0010 0011 "
    "0020 0030 0040 0100 0200 1000 2000 3000 00000 00001 00002 00010 00020 00100 01000 10000 000000 000001 000100"
)


def token_recycling(case: RuleCase) -> None:
    """The listed nodes, in which each is a candidate of what the target said when it last read the parent's token.

    `learned` has the target's probabilities by the token that it read.
    """
    s = case.settings
    fits = [word for word in RECYCLED.split() if len(word) <= s["max_depth"] and max(word) < str(s["candidates"])]
    worth = {word: math.prod(1 / (2 + 2 * int(digit)) for digit in word) for word in fits}
    words = sorted(fits, key=lambda word: -worth[word])[: s["node_budget"]]  # of equal ones the first listed

    def grow(path: Path, word: str) -> None:
        places = [other for other in words if other[:-1] == word and len(other) == len(word) + 1]
        said = (case.learned or {}).get((*case.text, *path)[-1])
        ends = case.ends(len(path), s["max_depth"])
        if ends or not places or said is None:
            case.leaf(path, ends or ({"unread"} if places else {"shape"}))
            return
        best = np.argsort(-said, kind="stable")[: len(places)].tolist()
        case.expand(path, "shape", len(best))
        for token, place in zip(best, places, strict=False):
            grow((*path, token), place)

    grow((), "")


def recycled(case: RuleCase, tree: Iterable[Path], said: Callable[[Path], np.ndarray]) -> Mapping[int, np.ndarray]:
    """What is known after a pass over a tree, its nodes level by level; `said` is the target's answer after a path."""
    return (case.learned or {}) | {(*case.text, *path)[-1]: said(path) for path in tree}


def fixed_tree(case: RuleCase) -> None:
    """Every node gets its best `branching` children (the first level one, if so set) down to `max_depth`."""
    s = case.settings
    width = ("fixed", s["branching"])

    def wide(path: Path) -> tuple[str, int]:
        return ("first_level", 1) if not path and not s["branch_first_level"] else width

    def stops(depth: int, _value: float) -> set[str]:
        return {"max_depth"} if depth - 1 >= s["max_depth"] else set()

    _by_level(case, wide, stops)


def dynatree(case: RuleCase) -> None:
    """DynaTree, Algorithm 1: breadth by confidence, depth by path probability; depths count from 0 there."""
    s = case.settings

    def wide(path: Path) -> tuple[str, int]:
        confidence = float(case.probs(path).max())
        if not path and not s["branch_first_level"]:
            return "first_level", 1
        if not s["adaptive_breadth"]:
            return "fixed", s["branch_mid"]
        if confidence >= s["confidence_high"]:
            return "confident", s["branch_min"]
        return ("unsure", s["branch_max"]) if confidence < s["confidence_low"] else ("between", s["branch_mid"])

    def stops(depth: int, value: float) -> set[str]:
        if not s["dynamic_depth"]:
            return {"max_depth"} if depth - 1 >= s["base_depth"] else set()
        gated = depth - 1 >= s["base_depth"] and value < s["deep_probability"]
        hits = {"max_depth": depth - 1 >= s["max_depth"], "early_stop": value < s["stop_probability"]}
        return {code for code, hit in (hits | {"depth_gate": gated}).items() if hit}

    _by_level(case, wide, stops)


def _by_level(case: RuleCase, wide: Callable[[Path], tuple[str, int]], stops: Callable[[int, float], set[str]]) -> None:
    """Level by level the best children of every node that may grow, while the budget lasts; improbable paths may go."""
    budget, least = case.settings["node_budget"], case.settings["prune_probability"]
    lost = None if case.settings.get("verify_pruned") else "improbable"
    if not case.limit:
        case.leaf((), {"length_limit"})
        return
    frontier, values, drafted = [()], {(): 1.0}, 0
    while frontier:
        level: list[Path] = []
        for path in frontier:
            breadth, width = wide(path)
            case.expand(path, breadth, width, lost if path and values[path] < least else None)
            for token, prob in case.likeliest(path, width):
                if drafted < budget:
                    level.append((*path, token))
                    values[level[-1]], drafted = values[path] * prob, drafted + 1
        frontier = []
        for path in level:
            why = stops(len(path), values[path])
            why |= {"length_limit"} if len(path) >= case.limit else set()
            why |= {"below_threshold"} if values[path] < least else set()
            why |= {"budget"} if drafted >= budget else set()
            if why:
                case.leaf(path, why, lost if values[path] < least else None)
            else:
                frontier.append(path)


def independent(widths: Callable[[Mapping[str, Any]], list[int]], case: RuleCase) -> None:
    """Every draw of a level has so many independent draws below it; draws of the same token share a node."""
    by_level = widths(case.settings)
    level: dict[Path, int] = {(): 1}
    for width in by_level[: case.limit]:
        below: dict[Path, int] = {}
        for path, times in level.items():
            drawn = case.children[path]
            if len(drawn) != times * width:
                raise AssertionError(f"{len(drawn)} draws below a node that was drawn {times} times, width {width}")
            case.expand(path, "level", len(drawn))
            for token in drawn:
                below[*path, token] = below.get((*path, token), 0) + 1
        level = below
    for path in level:
        case.leaf(path, case.ends(len(path), len(by_level)))


def widths(case: RuleCase) -> None:
    """SpecInfer's expansion: draws, or the likeliest tokens, in numbers that are given by level."""
    by_level = [int(entry) for entry in case.settings["widths"].split(",")]
    if case.settings["sampled"]:
        independent(lambda _: by_level, case)
        return
    level: list[Path] = [()]
    for width in by_level[: case.limit]:
        for path in level:
            case.expand(path, "level", len(case.likeliest(path, width)))
        level = [(*path, token) for path in level for token, _ in case.likeliest(path, width)]
    for path in level:
        case.leaf(path, case.ends(len(path), len(by_level)))


def sequoia(case: RuleCase) -> None:
    """The tree of most expected tokens for acceptance rates by draw order, drawn without replacement."""
    rates = tuple(float(rate) for rate in case.settings["acceptance"].split(","))

    def grow(path: Path, shape: tuple) -> None:
        support = int(np.count_nonzero(case.probs(path)))
        if not shape or not support:
            case.leaf(path, {"shape"} | case.ends(len(path), case.settings["max_depth"]))
            return
        drawn = case.children.get(path, [])
        case.expand(path, "all_drawn" if len(drawn) == support else "shape", min(len(shape), support))
        for token, below in zip(drawn, shape, strict=False):
            grow((*path, token), below)

    def drawn_shape(path: Path) -> tuple:
        return tuple(drawn_shape((*path, token)) for token in case.children.get(path, []))

    best, shape = _best_tree(rates, case.settings["node_budget"] + 1, case.deepest())
    # Products of rates make equally good shapes: what was drawn is as good a shape as any with its value.
    own = drawn_shape(())
    grow((), own if len(own) <= len(rates) and abs(_value(own, rates) - best) < ROUNDING else shape)


def _value(shape: tuple, rates: tuple[float, ...]) -> float:
    """Expected tokens of a shape."""
    return 1.0 + sum(rate * _value(below, rates) for rate, below in zip(rates, shape, strict=False))


def _best_tree(rates: tuple[float, ...], most: int, depth: int) -> tuple[float, tuple]:
    """Expected tokens and shape (a tuple of shapes, in draw order) of the best tree of at most so many nodes."""

    @cache
    def best(nodes: int, levels: int) -> tuple[float, tuple]:
        """Of exactly so many nodes, the root counted."""
        if nodes == 1:
            return 1.0, ()
        return max(((1.0 + value, shape) for value, shape in forests(nodes - 1, levels, 0)), default=(-math.inf, ()))

    @cache
    def forests(nodes: int, levels: int, rank: int) -> tuple[tuple[float, tuple], ...]:
        """The best children from a rank on with so many nodes in all; empty where there are none."""
        if nodes == 0:
            return ((0.0, ()),)
        if rank == len(rates) or not levels:
            return ()
        found = []
        for first in range(1, nodes + 1):
            value, shape = best(first, levels - 1)
            for rest, shapes in forests(nodes - first, levels, rank + 1):
                if math.isfinite(value):
                    found.append((rates[rank] * value + rest, (shape, *shapes)))
        return (max(found),) if found else ()

    return max((best(nodes, depth) for nodes in range(1, most + 1)), key=lambda pair: pair[0])


def dyspec(case: RuleCase) -> None:
    """DySpec, greedy: always draw where the next draw is likeliest to be accepted, `node_budget` times."""
    heap: list[tuple[float, Path]] = [(-1.0, ())] if case.limit else []
    drawn, worths, left = {}, [], {}
    values: dict[Path, float] = {(): 1.0}
    while heap and len(worths) < case.settings["node_budget"]:
        worth, path = heapq.heappop(heap)
        worths.append(-worth)
        probs = left.setdefault(path, case.probs(path).copy())
        taken = drawn[path] = drawn.get(path, 0) + 1
        if taken > len(case.children.get(path, [])):
            raise AssertionError(f"nothing drawn where a draw was worth {-worth:.4g}")
        token = case.children[path][taken - 1]
        prob, probs[token] = float(probs[token]), 0.0
        child = (*path, token)
        values[child] = values[path] * prob
        if probs.sum() > 0:
            heapq.heappush(heap, (-values[path] * float(probs.sum()), path))
        if len(child) < case.deepest():
            heapq.heappush(heap, (-values[child], child))
    for path, value in values.items():
        why = case.ends(len(path), case.settings["max_depth"])
        if path in drawn:
            support = int(np.count_nonzero(case.probs(path)))
            case.expand(path, "all_drawn" if drawn[path] == support else "outdrawn", drawn[path])
        else:
            case.leaf(path, why | ({"outdrawn"} if worths and value <= min(worths) + ROUNDING else set()))


def dyspec_threshold(case: RuleCase) -> None:
    """DySpec, threshold: level by level, in rounds, draw siblings while one more is worth at least `threshold`."""
    least, budget, drafted = case.settings["threshold"], case.settings["node_budget"], 0
    if not case.limit:
        case.leaf((), {"length_limit"})
        return
    values: dict[Path, float] = {(): 1.0}
    level: list[Path] = [()]
    while level:
        left = {path: case.probs(path).copy() for path in level}
        mass, counts, below = dict.fromkeys(level, 1.0), dict.fromkeys(level, 0), []
        drawing = list(level)
        while drawing and drafted < budget:
            drawing = [p for p in level if values[p] * mass[p] >= least and left[p].any()][: budget - drafted]
            for path in drawing:
                token = case.children[path][counts[path]]
                below.append((*path, token))
                values[below[-1]] = values[path] * float(left[path][token])
                mass[path], left[path][token] = max(mass[path] - float(left[path][token]), 0.0), 0.0
                counts[path], drafted = counts[path] + 1, drafted + 1
        for path in level:
            why = "worth" if values[path] * mass[path] < least else "budget" if left[path].any() else "all_drawn"
            case.expand(path, why, counts[path])
        level = []
        for path in below:
            why = case.ends(len(path), case.settings["max_depth"])
            why |= {"below_threshold"} if values[path] < least else set()
            if not why and drafted + len(level) >= budget:
                why.add("budget")
            if why:
                case.leaf(path, why)
            else:
                level.append(path)


@dataclass(frozen=True)
class Scored:
    """A token that competes for a place: its path and its value."""

    path: Path
    value: float

    @property
    def depth(self) -> int:
        """Drafted tokens on the path."""
        return len(self.path)


def best_of(scored: Iterable[Scored], count: int) -> list[Scored]:
    return sorted(scored, key=lambda each: -each.value)[:count]


def _last(scored: list[Scored], count: int) -> float:
    """What a newcomer must exceed to be among the `count` best."""
    return best_of(scored, count)[-1].value if len(scored) >= count else 0.0


def _scored_children(case: RuleCase, parent: Scored, most: int = 0) -> Iterator[Scored]:
    probs, decay = case.probs(parent.path), case.settings.get("decay", 1.0)
    for token, prob in case.likeliest(parent.path, most or len(probs)):
        if prob > 0:
            yield Scored((*parent.path, token), parent.value * decay * prob)


def place(case: RuleCase, winners: list[Scored], expanded: set[Path], why: Callable[[Scored], set[str]]) -> None:
    """The tree of the winners and of what was expanded on the way to them."""
    placed = {each.path for each in winners}
    for path in expanded:
        width = sum(child[:-1] == path for child in placed)
        case.expand(path, "ranked", width, None if path in placed or not path else "outranked")
    for each in winners:
        if each.path not in expanded:
            case.leaf(each.path, case.ends(each.depth, case.settings["max_depth"]) or why(each))


def eagle2(case: RuleCase) -> None:
    """EAGLE-2: every level expands its `beam_width` best, as many children each; the N best of all stay."""
    if not case.limit:
        case.leaf((), {"length_limit"})
        return
    beam, expanded, pool = case.settings["beam_width"], {()}, []
    level = list(_scored_children(case, Scored((), 1.0), beam))
    for _ in range(1, case.deepest()):
        pool += level
        asked = best_of(level, beam)
        expanded |= {each.path for each in asked}
        level = [child for each in asked for child in _scored_children(case, each, beam)]
    place(case, best_of(pool + level, case.settings["node_budget"]), expanded, lambda _: {"beam"})


def opt_tree(case: RuleCase) -> None:
    """OPT-Tree: levels of the N best nodes while the sum of the N best grows by more than the threshold."""
    if not case.limit:
        case.leaf((), {"length_limit"})
        return
    count, before, expanded = case.settings["node_budget"], 0.0, {()}
    nodes, stopped = best_of(_scored_children(case, Scored((), 1.0)), count), set()
    for depth in range(1, case.deepest()):
        can = {each for each in nodes if each.depth == depth and each.value > _last(nodes, count)}
        if not can:
            break
        mass = sum(each.value for each in nodes)
        if mass - before <= case.settings["gain_threshold"]:
            stopped = can
            break
        expanded |= {each.path for each in can}
        nodes, before = best_of([*nodes, *(c for each in can for c in _scored_children(case, each))], count), mass
    last = _last(nodes, count)
    place(
        case, nodes, expanded, lambda n: {"low_gain"} if n in stopped else {"outranked"} if n.value <= last else set()
    )


def best_first(case: RuleCase) -> None:
    """SpecExec and SALF (its Algorithm 2): the best of a queue in batches, until none could improve the N best.

    SALF stops before where a batch promises less than its threshold; `top_up` then adds what waits in the queue.
    """
    s, count = case.settings, case.settings["node_budget"]
    if not case.limit:
        case.leaf((), {"length_limit"})
        return
    most, least = s.get("children", 0), s.get("gain_threshold", 0.0)
    queue, taken, expanded = best_of(_scored_children(case, Scored((), 1.0), most), count), [], {()}
    unpopped: set[Scored] = set()
    while True:
        popped, room = [], s["batch"]
        while queue and room:
            popped.append(queue.pop(0))
            room -= popped[-1].depth < case.deepest()
        bar = _last(taken + popped, count)
        batch = [each for each in popped if each.depth < case.deepest() and each.value > bar]
        taken = best_of(taken + popped, count)
        if not batch or sum(each.value for each in batch) < least:
            break
        expanded |= {each.path for each in batch}
        queue = best_of(queue + [c for each in batch for c in _scored_children(case, each, most)], count)
    if batch:
        unpopped = set(batch) | set(queue)
    winners = best_of(taken + queue, count) if s.get("top_up") else taken
    last = _last(winners, count)

    def why(each: Scored) -> set[str]:
        return ({"low_promise"} if each in unpopped else set()) | ({"outranked"} if each.value <= last else set())

    place(case, winners, expanded, why)
