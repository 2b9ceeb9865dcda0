"""How often drafted tokens are accepted, as `batch` takes it: of an engine, of a run's trees, or typed."""

from collections import defaultdict
from itertools import takewhile

from decoding.analysis.batch import Rates
from decoding.common.errors import SettingsError, require
from decoding.trace.engine_metrics import EngineMetrics
from decoding.trace.records import IterationTrace, RunTrace

FEWEST_TESTS = 8  # of a rate: a deeper depth or a later rank with fewer says nothing


def typed_acceptance(by_depth: str, by_rank: str = "") -> Rates:
    """Rates as a person types them, `0.8,0.7`."""
    rates = []
    for text in (by_depth, by_rank):
        try:
            rates.append(tuple(float(each) for each in text.replace(",", " ").split()))
        except ValueError:
            raise SettingsError(f"Acceptance must be rates from 0 to 1 such as 0.8,0.7, not {text!r}.") from None
    return Rates(*rates)


def even_acceptance(mean_length: float, draft_length: int) -> Rates:
    """The one rate at every depth that gives a mean acceptance length, the bonus token counted, at a draft length."""
    require(
        draft_length >= 1 and 1 <= mean_length <= draft_length + 1,
        "A mean acceptance length must be from 1 to one more than the draft's tokens.",
    )
    low, high = 0.0, 1.0
    for _ in range(60):
        rate = (low + high) / 2
        shorter = sum(rate**depth for depth in range(draft_length + 1)) < mean_length
        low, high = (rate, high) if shorter else (low, rate)
    return Rates((high,))


def engine_acceptance(metrics: EngineMetrics) -> Rates:
    """Conditional rates by position; or, where an engine tells none, the one rate that gives its mean length.

    Raises:
        SettingsError: it tells neither.
    """
    rates = []
    for each in metrics.positions:
        if each.conditional is None:
            break
        rates.append(each.conditional)
    if rates:
        return Rates(tuple(rates))
    mean = metrics.value("mean acceptance length")
    if mean is None or not metrics.draft_length or not 1 <= mean <= metrics.draft_length + 1:
        raise SettingsError(
            f"{metrics.engine} tells neither acceptance by position nor a mean length with its number of draft tokens "
            "here: type the rates, or take those of a run."
        )
    return even_acceptance(mean, metrics.draft_length)


def run_acceptance(*runs: RunTrace) -> Rates:
    """What the own trees of runs accepted, by depth of the first child and by rank among siblings in draft order.

    Counted are nodes that the verifier came to and that had a child. A rank's rate is the share of those with so many
    children whose acceptance fell on it, given that it fell on none before.

    Raises:
        SettingsError: they drafted nothing, or their trees were not recorded.
    """
    by_depth, by_rank = defaultdict[int, list[bool]](list), defaultdict[int, list[bool]](list)
    for iteration in (each for run in runs for each in run.iterations[run.own_from :]):
        for depth, (siblings, taken) in enumerate(_tests(iteration)):
            by_depth[depth].append(taken == 0)
            for rank in range(siblings if taken is None else taken + 1):
                by_rank[rank].append(taken == rank)
    if not by_depth:
        raise SettingsError("This run drafted nothing, or its trees were not recorded: decode one that drafts.")
    ranks, left = [], 1.0
    for share in _shares(by_rank):
        ranks.append(left * share)
        left *= 1 - share
    return Rates(_shares(by_depth), tuple(ranks) if len(ranks) > 1 else ())


def _shares(tests: dict[int, list[bool]]) -> tuple[float, ...]:
    """Of each depth or rank that passed, as far as there are enough tests; of the first in any case."""
    enough = takewhile(lambda place: not place or len(tests[place]) >= FEWEST_TESTS, sorted(tests))
    return tuple(sum(tests[place]) / len(tests[place]) for place in enough)


def _tests(iteration: IterationTrace) -> list[tuple[int, int | None]]:
    """Of every node that the verifier came to: how many children it had, and which was accepted (None: none)."""
    cut = iteration.final_kind == "none"  # the end of the text hides what would have come
    if not iteration.nodes or iteration.interventions or cut:
        return []
    found: list[tuple[int, int | None]] = []
    for place, node in enumerate((0, *iteration.accepted)):
        children = [c for c in iteration.children(node) if iteration.nodes[c].flat_index is not None]
        if children:
            next_one = iteration.accepted[place] if place < len(iteration.accepted) else None
            found.append((len(children), children.index(next_one) if next_one is not None else None))
    return found
