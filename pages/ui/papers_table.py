"""Numbers of an exhibit as a table, ours beside the paper's, and the verdicts on its orderings in words."""

import html
from dataclasses import replace
from itertools import groupby

from decoding.experiments.bootstrap import FEWEST, Estimate
from decoding.papers.exhibit import Figure, Way
from decoding.papers.judge import Judged, Outcome, claim_words, words_of
from viz.paper_charts import Mark

AXIS_WORDS = {"asked_tokens": "generated tokens", "cut": "prompt tokens"}
SIGNS = {"holds": "✓", "does not hold": "✗", "not decided here": "~", "not run": "○"}
NOTHING = "–"


def axis_words(outcome: Outcome) -> str:
    """What a figure is drawn over; empty for a table."""
    by = outcome.exhibit.by
    return outcome.exhibit.axis or AXIS_WORDS.get(by, by.replace("_", " "))


def places_of(outcome: Outcome) -> list[object]:
    """Places on the axis, ours and the paper's; one None for a table."""
    if not outcome.exhibit.by:
        return [None]
    theirs = {key[1] for way in outcome.exhibit.ways for key in way.paper if isinstance(key, tuple)}
    found = theirs | {value for value in outcome.values if value is not None}
    return sorted(found, key=lambda value: (isinstance(value, str), value))


def paper_number(way: Way, figure: Figure, value: object) -> float | None:
    """What the paper has for a way at a place; None where it gives nothing."""
    plain = way.paper.get(figure.column) if value is None or way.flat else None
    return way.paper.get((figure.column, value), plain)


def marks_of(outcome: Outcome, figure: Figure) -> list[Mark]:
    """A column of an exhibit as the chart takes it; an interval of too few prompts says nothing and is left out."""
    marks = []
    for way in outcome.exhibit.ways:
        for value in places_of(outcome):
            found = outcome.ours.get(((way.words, value), figure.column))
            paper = paper_number(way, figure, value)
            if found is None:
                marks.append(Mark(way.words, value, paper=paper))
            elif found.prompts < FEWEST:
                marks.append(Mark(way.words, value, found.value, paper=paper))
            else:
                marks.append(Mark(way.words, value, found.value, found.low, found.high, paper))
    return marks


def claims_of(outcome: Outcome) -> tuple[Judged, ...]:
    """The orderings as they were judged; where no value of the axis is known yet, as the paper claims them."""
    return outcome.judged or tuple(Judged(each, None, None, None, "not run") for each in outcome.exhibit.orderings)


def table_html(outcome: Outcome) -> str:
    """Ours beside theirs, a row per way and place of the axis. Everything escaped.

    A figure of which the paper prints no number has no column for it.
    """
    exhibit, places = outcome.exhibit, places_of(outcome)
    printed = [
        any(paper_number(way, figure, place) is not None for way in exhibit.ways for place in places)
        for figure in exhibit.figures
    ]
    axis = f'<th rowspan="2" scope="col">{html.escape(axis_words(outcome))}</th>' if exhibit.by else ""
    groups = "".join(
        f'<th colspan="{1 + with_paper}" scope="colgroup">{html.escape(figure.words)}</th>'
        for figure, with_paper in zip(exhibit.figures, printed, strict=True)
    )
    paper = '<th scope="col" class="paper">paper</th>'
    heads = "".join(f'<th scope="col">here</th>{paper if with_paper else ""}' for with_paper in printed)
    body = "".join(_rows_of(outcome, way, places, printed) for way in exhibit.ways)
    return (
        '<div class="papers-table-box" tabindex="0" role="region" aria-label="Numbers, ours beside the paper\'s">'
        f'<table class="papers-table"><thead><tr><td rowspan="2"></td>{axis}<th rowspan="2" scope="col">runs</th>'
        f"{groups}</tr><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _rows_of(outcome: Outcome, way: Way, places: list[object], printed: list[bool]) -> str:
    """The rows of a way, one for each place."""
    rows = []
    for place in places:
        key = (way.words, place)
        runs = outcome.runs.get(key)
        cells = [f"<td>{html.escape(_place(place))}</td>"] if outcome.exhibit.by else []
        cells.append(f"<td>{runs or 0:,}</td>")
        for figure, with_paper in zip(outcome.exhibit.figures, printed, strict=True):
            ours = ours_words(figure, outcome.ours.get((key, figure.column)), runs is not None)
            paper = paper_number(way, figure, place)
            cells.append(f"<td>{html.escape(ours)}</td>")
            if with_paper:
                told = NOTHING if paper is None else f"{round(paper, max(figure.digits, 1)):,.6g}"
                cells.append(f'<td class="paper">{told}</td>')
        name = f'<th scope="rowgroup" rowspan="{len(places)}">{html.escape(way.words)}</th>' if not rows else ""
        rows.append(f"<tr>{name}{''.join(cells)}</tr>")
    return "".join(rows)


def ours_words(figure: Figure, found: Estimate | None, run: bool) -> str:
    """Our number with its interval, or of how many prompts it is where that is too few for one."""
    return NOTHING if found is None and run else words_of(figure, found)


def orderings_html(judged: tuple[Judged, ...]) -> str:
    """The claims of the paper: the verdict, the difference here and in the paper, and why not where it does not hold.

    A claim that is judged at several places of the axis is told once, with a line for each place.
    """
    lines = []
    for _, found in groupby(judged, key=lambda each: each.ordering):
        claims = list(found)
        lines.append(_claim(claims[0]) if len(claims) == 1 else _claim_by_place(claims))
    return f'<ul class="papers-claims">{"".join(lines)}</ul>'


def _claim(judged: Judged) -> str:
    why = f'<div class="why">{html.escape(judged.reason)}</div>' if judged.reason else ""
    return (
        f'<li class="{judged.verdict.replace(" ", "-")}"><span class="verdict">{_verdict(judged)}</span><div>'
        f'<div>{html.escape(claim_words(judged))}</div><div class="told">{html.escape(gain_words(judged))}</div>'
        f"{why}</div></li>"
    )


def _claim_by_place(claims: list[Judged]) -> str:
    same = len({each.verdict for each in claims}) == 1
    held = sum(each.verdict == "holds" for each in claims)
    kind = claims[0].verdict.replace(" ", "-") if same else "mixed"
    told = _verdict(claims[0]) if same else f"holds at {held} of {len(claims)}"
    rows = "".join(
        f'<div class="place"><span>{html.escape(_place(each.value))}</span><span>{_verdict(each)}</span><div>'
        f'<div class="told">{html.escape(gain_words(each))}</div><div class="why">{html.escape(each.reason)}</div>'
        "</div></div>"
        for each in claims
    )
    return (
        f'<li class="{kind}"><span class="verdict">{told}</span><div>'
        f"<div>{html.escape(claim_words(replace(claims[0], value=None)))}</div>{rows}</div></li>"
    )


def _verdict(judged: Judged) -> str:
    return f"{SIGNS.get(judged.verdict, SIGNS['not run'])} {html.escape(judged.verdict)}"


def gain_words(judged: Judged) -> str:
    """By how much the better way is ahead, here and in the paper; where less is better, by how much less it takes."""
    gain, parts = judged.gain, []
    if gain is not None:
        few = gain.prompts < FEWEST
        interval = f"n = {gain.prompts}" if few else f"{gain.low:+.1%} to {gain.high:+.1%}"
        parts.append(f"here {_ahead(judged, gain.value)} ({interval})")
    if judged.paper is not None:
        parts.append(f"in the paper {_ahead(judged, judged.paper)}")
    return " · ".join(parts)


def _ahead(judged: Judged, share: float) -> str:
    words = ("ahead", "behind") if judged.ordering.higher else ("less", "more")
    return f"{abs(share):.1%} {words[share < 0]}"


def _place(value: object) -> str:
    return f"{value:,g}" if isinstance(value, int | float) else str(value)
