"""Two branches or trees on the same prefix compared: as numbers, in one sentence and as text.

rows = fork_measures(a, b)                  # one Measure per line of the table, None-safe
words = fork_summary(a, b)                  # "B committed 2 tokens more with 12 nodes fewer."
texts = continuations(run_a, run_b, 4)      # both texts from iteration 4 on, and how far they agree
"""

import html
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from decoding.common.formats import difference, duration, number, plural, relative_change
from decoding.trace.metrics import ended_nodes, expected_tokens, shared_tokens
from decoding.trace.records import IterationTrace, RunTrace, node_paths
from viz.glossary import explain_term
from viz.scope.panels import Span, iteration_spans, tokens_html
from viz.tables import Cell, Markup, html_table
from viz.tokens import visible


@dataclass(frozen=True, slots=True)
class TreeDiff:
    """Nodes of two trees, matched by their token paths; the root is in neither list.

    Attributes:
        only_first, only_second: ids of nodes that the other tree lacks.
        both: pairs (id in the first, id in the second).
        same_text: both iterations commit the same tokens up to the shorter length.
    """

    only_first: tuple[int, ...]
    only_second: tuple[int, ...]
    both: tuple[tuple[int, int], ...]
    same_text: bool

    def marks(self, first: str, second: str) -> tuple[dict[int, str], dict[int, str]]:
        """Labels for the nodes that only one tree has, by id: for the first tree and for the second."""
        return dict.fromkeys(self.only_first, f"only in {first}"), dict.fromkeys(self.only_second, f"only in {second}")


@dataclass(frozen=True, slots=True)
class MeasureChange:
    """One measure of two iterations; `unit` is empty for counts, `s` for times, `1/s` for rates."""

    words: str
    first: float
    second: float
    unit: str = ""

    @property
    def difference(self) -> float:
        """How much more the second has."""
        return self.second - self.first


def compare_trees(first: IterationTrace, second: IterationTrace) -> TreeDiff:
    """Match the nodes of two recorded trees by their token paths; nodes forced out are in neither."""
    gone = first.forced_out | {0}, second.forced_out | {0}
    mine, others = (
        {path: node for node, path in enumerate(node_paths(each)) if node not in left_out}
        for each, left_out in zip((first, second), gone, strict=True)
    )
    length = min(len(first.committed_ids), len(second.committed_ids))
    return TreeDiff(
        only_first=tuple(node for path, node in mine.items() if path not in others),
        only_second=tuple(node for path, node in others.items() if path not in mine),
        both=tuple((node, others[path]) for path, node in mine.items() if path in others),
        same_text=first.committed_ids[:length] == second.committed_ids[:length],
    )


def what_changed(
    first: IterationTrace, second: IterationTrace, first_s: float | None = None, second_s: float | None = None
) -> tuple[MeasureChange, ...]:
    """Both iterations in numbers: nodes, depth, accepted tokens, draft forwards, target passes, time and speed.

    Args:
        first_s, second_s: measured seconds of the iterations; without both there are no entries for time and speed.
    """
    changes = [
        MeasureChange("nodes drafted", first.drafted, second.drafted),
        MeasureChange("nodes verified", first.verified, second.verified),
        MeasureChange("verified depth", first.tree_depth, second.tree_depth),
        MeasureChange("tokens accepted", len(first.accepted), len(second.accepted)),
        MeasureChange("draft forwards", first.draft_forwards, second.draft_forwards),
        MeasureChange("target passes", first.target_passes, second.target_passes),
    ]
    if first_s is not None and second_s is not None:
        changes.append(MeasureChange("time", first_s, second_s, "s"))
        rates = len(first.committed_ids) / first_s, len(second.committed_ids) / second_s
        changes.append(MeasureChange("tokens / s here", *rates, "1/s"))
    return tuple(changes)


NAMES = ("A", "B")
NAMES_HTML = tuple(Markup(f'<span class="fork-name fork-{name.lower()}">{name}</span>') for name in NAMES)
NO_TIME = "no model ran"
CONTEXT_TOKENS = 10
# Explanation of each measure, by its label.
ABOUT: dict[str, str] = {
    "nodes only here": "Nodes of this tree that the other tree lacks: no node there has the same path.",
    "nodes drafted": "Nodes below the root that the drafter proposed, those that were pruned afterwards included.",
    "nodes verified": "Nodes given to the target; drafted nodes that were pruned are not counted.",
    "verified depth": "Tokens on the longest path of the verified tree.",
    "tokens accepted": "Drafted tokens that the verifier accepted; the final token is not counted.",
    "tokens committed": "Tokens that this iteration added to the text, the final token included.",
    "expected tokens": explain_term("expected tokens"),
    "time": "Wall time of this iteration, measured once when the models ran; it varies from run to run even for the "
    "same work.",
}
LONGEST_SHARED, LONGEST_OWN = 24, 40


@dataclass(frozen=True, slots=True)
class ComparedMeasure:
    """One measure of both branches as text.

    Attributes:
        words: what is measured. exactness: `counted`, `exact` or `measured`.
        first, second: its values. difference: second minus first, `same`, or empty where there is none.
    """

    words: str
    exactness: str
    first: str
    second: str
    difference: str


@dataclass(frozen=True, slots=True)
class Continuations:
    """The text of two branches from the iteration at which they diverge.

    Attributes:
        before: tokens before it. first, second: tokens of each branch from there on.
        shared: how many of them agree from the start.
        same_work: whether the iterations had the same trees, verdicts and passes.
    """

    before: tuple[str, ...]
    first: tuple[Span, ...]
    second: tuple[Span, ...]
    shared: int
    same_work: bool

    @property
    def same(self) -> bool:
        """Whether they agree up to the shorter length."""
        return self.shared == min(len(self.first), len(self.second))


def expected(iteration: IterationTrace, stops: Collection[int] = ()) -> float | None:
    """Expected committed tokens of a verified tree up to tokens that end the text; None where a chance is unknown."""
    verified = [node for node in iteration.nodes[1:] if node.flat_index is not None]
    known = {n.node_id: n.acceptance_probability for n in verified if n.acceptance_probability is not None}
    if not iteration.nodes or len(known) < len(verified):
        return None
    return expected_tokens(known, ended_nodes(iteration, stops))


def fork_measures(
    first: IterationTrace, second: IterationTrace, stops: Collection[int] = ()
) -> tuple[ComparedMeasure, ...]:
    """Two iterations in numbers, whose texts end with one of `stops`; a replayed one has no time."""
    diff = compare_trees(first, second)
    only = str(len(diff.only_first)), str(len(diff.only_second))
    counted = (
        ComparedMeasure(words, "counted", f"{a:,}", f"{b:,}", difference(b - a))
        for words, a, b in (
            ("nodes drafted", first.drafted, second.drafted),
            ("nodes verified", first.verified, second.verified),
            ("verified depth", first.tree_depth, second.tree_depth),
            ("tokens accepted", len(first.accepted), len(second.accepted)),
            ("tokens committed", len(first.committed_ids), len(second.committed_ids)),
        )
    )
    one, other = (expected(each, stops) for each in (first, second))
    more = "" if one is None or other is None else difference(round(round(other, 2) - round(one, 2), 2))
    took, times = "", [duration(each.times.total_s) if each.timed else NO_TIME for each in (first, second)]
    if first.timed and second.timed:
        took = relative_change(first.times.total_s, second.times.total_s, none="less than 1%")
        took = "noise: same work" if same_work(first, second) else took
    return (
        ComparedMeasure("nodes only here", "counted", *only, plural(len(diff.both), "node") + " in both"),
        *counted,
        ComparedMeasure("expected tokens", "exact", number(one), number(other), more),
        ComparedMeasure("time", "measured once", times[0], times[1], took),
    )


def fork_summary(first: IterationTrace, second: IterationTrace) -> str:
    """The effect of the change on this iteration, in one sentence, without times, which were measured once."""
    diff = compare_trees(first, second)
    tokens = len(second.committed_ids) - len(first.committed_ids)
    nodes, drafted = second.verified - first.verified, second.drafted - first.drafted
    if tokens:
        committed = f"{plural(abs(tokens), 'token')} {'more' if tokens > 0 else 'fewer'}"
    elif diff.same_text:
        committed = f"the same {plural(len(second.committed_ids), 'token')}"
    else:
        committed = f"the same number of tokens ({len(second.committed_ids)}), but different ones,"
    if nodes == drafted != 0:
        tree = f"{plural(abs(nodes), 'node')} {'more' if nodes > 0 else 'fewer'}"
    elif nodes or drafted:
        made, tested = (
            f"{abs(count)} {'more' if count > 0 else 'fewer'}" if count else "as many" for count in (drafted, nodes)
        )
        tree = f"{made} {'node' if abs(drafted) == 1 else 'nodes'} drafted and {tested} verified"
    else:
        others = len(diff.only_second)
        tree = f"the same number of nodes, {others} of them different" if others else "the same tree"
    return f"{NAMES[1]} committed {committed} with {tree}."


def same_prefix(first: RunTrace, second: RunTrace, index: int) -> bool:
    """Whether two branches of one run have the same text before iteration `index`."""
    texts = ([token for each in run.iterations[:index] for token in each.committed_ids] for run in (first, second))
    return next(texts) == next(texts)


def continuations(first: RunTrace, second: RunTrace, since: int) -> Continuations:
    """Both texts from iteration `since` on, and where they diverge."""
    sides = [tuple(s for each in run.iterations[since:] for s in iteration_spans(each)) for run in (first, second)]
    ids = [[token for each in run.iterations[since:] for token in each.committed_ids] for run in (first, second)]
    part = shared_tokens(*ids)
    work = [list(map(_work, run.iterations[since:])) for run in (first, second)]
    before = tuple(first.texts_before(since)[-CONTEXT_TOKENS:])
    return Continuations(before, sides[0], sides[1], part, work[0] == work[1])


def parting_words(texts: Continuations) -> str:
    """Where two texts diverge, in one sentence."""
    sides = texts.first, texts.second
    if not texts.same:
        says = [f"{name} has ‘{side[texts.shared].shown}’" for name, side in zip(NAMES, sides, strict=True)]
        after = f"after {plural(texts.shared, 'token')}" if texts.shared else "at once"
        return f"The texts diverge {after}: {says[0]}, {says[1]}."
    if len(sides[0]) != len(sides[1]):
        longer = NAMES[len(sides[0]) < len(sides[1])]
        return f"The same text up to the shorter length ({plural(texts.shared, 'token')}); {longer} is longer."
    changed = "nothing differs" if texts.same_work else "the change affects the work, not the text"
    return f"The same {plural(texts.shared, 'token')}: {changed}."


def same_work(first: IterationTrace, second: IterationTrace) -> bool:
    """Whether two iterations had the same tree, verdicts and passes: their times then differ by noise alone."""
    return _work(first) == _work(second)


def same_tree(first: IterationTrace, second: IterationTrace) -> bool:
    """Whether two iterations drafted the same nodes, verified the same ones and committed the same tokens."""
    return (first.committed_ids, _nodes(first)) == (second.committed_ids, _nodes(second))


def _nodes(iteration: IterationTrace) -> list[tuple]:
    return [(node.parent_id, node.token_id, node.verdict) for node in iteration.nodes]


def _work(iteration: IterationTrace) -> tuple:
    """What must be equal for two iterations to have done the same work."""
    counts = iteration.drafted, iteration.verified, iteration.draft_forwards, iteration.target_passes
    return _nodes(iteration), iteration.accepted, counts


def continuation_html(texts: Continuations) -> str:
    """A line per branch, bold from where they diverge; tokens are escaped and underlined by provenance."""
    before = html.escape("".join(visible(text) for text in texts.before))
    left_out = max(texts.shared - LONGEST_SHARED, 0)
    lines = []
    for name, spans in zip(NAMES_HTML, (texts.first, texts.second), strict=True):
        shared = tokens_html(spans[left_out : texts.shared])
        own = tokens_html(spans[texts.shared : texts.shared + LONGEST_OWN])
        parted = own if texts.same else f'<span class="parted">{own}</span>'
        more = "…" if len(spans) > texts.shared + LONGEST_OWN else ""
        said = "" if left_out else f'<span class="said">{before}</span>'
        text = f'<span class="fork-text">…{said}{shared}{parted}{more}</span>'
        lines.append(f'<div class="fork-line">{name}{text}</div>')
    return "".join(lines)


def measures_html(measures: Sequence[ComparedMeasure]) -> str:
    """The measures as a table: a column each, a row per branch and one for the difference."""
    heads = [
        Cell(Markup(f"{html.escape(each.words)}<small>{html.escape(each.exactness)}</small>"), about=ABOUT[each.words])
        for each in measures
    ]
    rows = (
        (NAMES_HTML[0], *(each.first for each in measures)),
        (NAMES_HTML[1], *(each.second for each in measures)),
        ("difference", *(each.difference for each in measures)),
    )
    return html_table(("", *heads), rows, "ruled fork-table")
