"""The hardware-aware rule once more in plain Python, beside the others of `reason_rules`: what it drafts and learns."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.reason_rules import Path, RuleCase, Scored, best_of, place


@dataclass(frozen=True)
class Odds:
    """What the hardware-aware rule has learned: of first children, of others; and whether drafting pays."""

    logs: tuple[float, float]
    information: tuple[float, float] = (10.0, 10.0)
    tokens: float = 0.0
    seconds: float = 0.0
    idle: int = 0


MOST_CHILDREN, SHARED_BY, RETRY, FORGETTING, MOST_ODDS = 8, 16, 16, 0.9, 100.0


def hardware_aware(case: RuleCase) -> Odds:
    """The tree of most expected tokens per second at given costs; returns what is known once it is drafted."""
    s = case.settings
    if case.learned is None:
        case.learned = Odds(tuple(math.log(float(factor)) for factor in s["odds"].split()))
    known, budget = case.learned, s["node_budget"]
    verify, level_s = _curve(s["verify_ms"]), _curve(s["level_ms"])
    known = Odds(known.logs, known.information, known.tokens, known.seconds, known.idle + 1)
    spent, scored, expanded, winners = 0.0, [], set(), []
    rate = 1.0 / verify(1)
    if known.idle >= RETRY or known.tokens * verify(1) >= known.seconds:
        frontier, promise, weight = [Scored((), 1.0)] if case.limit else [], [0.0] * MOST_CHILDREN, 0.0
        for depth in range(1, case.deepest() + 1):
            level: list[Scored] = []
            for each in frontier:
                expanded.add(each.path)
                weight += each.value
                for rank, (token, prob) in enumerate(case.likeliest(each.path, MOST_CHILDREN)):
                    accepted = _chance(prob, known.logs[rank > 0])
                    promise[rank] += each.value * accepted
                    level.append(Scored((*each.path, token), each.value * accepted))
            spent += level_s(len(frontier))
            level = [each for each in best_of(level, budget) if each.value > 0]
            scored = best_of(scored + level, budget)
            rate, winners = _best_rate(scored, spent, verify)
            count = len(winners)
            node_s = min((verify(count + 1 + k) - verify(count + 1)) / k for k in range(1, SHARED_BY + 1))
            dear = max(rate * node_s, scored[-1].value if len(scored) == budget else 0.0)
            likely = [each / weight for each in promise]
            gains, gain = [0.0], 0.0
            for width, each in enumerate(level, start=1):
                if each.value * max(likely) <= dear:
                    break
                gain += sum(max(each.value * chance - dear, 0.0) for chance in likely)
                gains.append(gain - rate * level_s(width))
            frontier = level[: gains.index(max(gains))] if depth < case.deepest() else []
            if not frontier:
                break
        tokens, seconds = 1.0 + sum(each.value for each in winners), verify(len(winners) + 1) + spent
        more = (FORGETTING * known.tokens + tokens, FORGETTING * known.seconds + seconds, 0)
        known = Odds(known.logs, known.information, *more)
    place(case, winners, expanded, lambda _: {"unprofitable"})
    for path, asked in case.found.items():
        if asked.left_out:
            case.expand(path, "ranked", asked.branching, "unprofitable")
    if () not in case.found:
        case.leaf((), {"unprofitable"} if case.limit else {"length_limit"})
    return known


def learn(known: Odds, case: RuleCase, accepted: set[Path]) -> Odds:
    """One Newton step of the likelihood of what was accepted, of the verified nodes that were tested."""
    if not case.settings["learn"]:
        return None
    expected, surprise = [0.0, 0.0], [0.0, 0.0]
    for path, asked in case.found.items():
        if not path or asked.left_out or path[:-1] not in accepted:
            continue
        prob = float(case.probs(path[:-1])[path[-1]])
        other = prob < float(case.probs(path[:-1]).max())
        chance = _chance(prob, known.logs[other])
        expected[other] += chance * (1 - chance)
        surprise[other] += (path in accepted) - chance
    information = tuple(before + more for before, more in zip(known.information, expected, strict=True))
    top = math.log(MOST_ODDS)
    logs = tuple(
        min(max(log + more / rests, -top), top)
        for log, more, rests in zip(known.logs, surprise, information, strict=True)
    )
    return Odds(logs, information, known.tokens, known.seconds, known.idle)


def _chance(prob: float, log_odds: float) -> float:
    raised = math.exp(log_odds) * prob
    return raised / (1 - prob + raised)


def _best_rate(scored: list[Scored], spent: float, verify: Callable[[int], float]) -> tuple[float, list[Scored]]:
    """The best rate of any number of the best nodes, and those nodes; none where drafting nothing is better."""
    best, winners, tokens = 1.0 / (verify(1) + spent), [], 1.0
    for count, each in enumerate(scored, start=1):
        tokens += each.value
        rate = tokens / (verify(count + 1) + spent)
        if rate > best:
            best, winners = rate, scored[:count]
    return best, winners


def _curve(text: str) -> Callable[[int], float]:
    """Seconds by size from `1:2.5 8:3.1` in milliseconds: lines between the points, the last one goes on."""
    points = [tuple(map(float, entry.split(":"))) for entry in text.split()]

    def seconds(size: int) -> float:
        sizes, times = zip(*points, strict=True)
        slope = (times[-1] - times[-2]) / (sizes[-1] - sizes[-2])
        return (float(np.interp(size, sizes, times)) + slope * max(size - sizes[-1], 0.0)) / 1000

    return seconds
