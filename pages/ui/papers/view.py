"""The selected table or figure: how it was measured in the paper and here, a chart, the numbers, the verdicts."""

import html
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import streamlit as st

from decoding.common.formats import plural
from decoding.experiments.estimates import FEWEST, PREFIX
from decoding.papers.judge import JudgedClaim, Reproduction, claim_words, number_of_paper, places_of, words_of
from decoding.papers.paper_result import Entry, Figure, PaperResult, compared
from decoding.trace.metrics import COUNTINGS, Counting
from pages.ui.common.charts import chart, counting_switch, is_dark
from pages.ui.common.errors import escape_markdown, show_error
from pages.ui.common.state import keep_parameter
from pages.ui.papers.rows import Judgement, StoredResults, judgement
from pages.ui.papers.run import draw_work, size_of
from viz.charts.papers import FACTOR, PaperMark, far_apart, lines_figure, places_figure, table_figure
from viz.glossary import setting_title
from viz.tables import Cell, html_table

STYLE = Path(__file__).with_suffix(".css")
COUNTED = "papers_counted"
AXIS_WORDS = {"asked_tokens": "generated tokens", "cut": "prompt tokens"}
SIGNS = {"holds": "✓", "equal within 3%": "≈", "does not hold": "✗", "not decided": "~", "not run": "○"}
NOTHING = "–"
REPEATS = "texts end where they begin to repeat themselves"
MOST_FAILURES = 3
BEST_OF = (
    "Where the best of several settings counts, it is chosen for each prompt on the other prompts; the table names the "
    "best on all of them."
)
APART = (
    f"Our numbers and the paper's differ by more than {FACTOR:g} times, so each has its own axis: compare the order "
    "and the proportions, not the lengths."
)


def axis_words(outcome: Reproduction) -> str:
    """The x axis of a figure; empty for a table."""
    by = outcome.paper_result.by
    return outcome.paper_result.axis or AXIS_WORDS.get(by, by.replace("_", " "))


def marks_of(outcome: Reproduction, figure: Figure) -> list[PaperMark]:
    """A column of a paper result for the chart; intervals of too few prompts are left out."""
    marks = []
    for way in outcome.paper_result.ways:
        for value in places_of(outcome):
            found = outcome.ours.get(((way.words, value), figure.column))
            paper = number_of_paper(way, figure, value)
            low, high = (None, None) if found is None or found.prompts < FEWEST else (found.low, found.high)
            marks.append(PaperMark(way.words, value, None if found is None else found.value, low, high, paper))
    return marks


def claims_of(outcome: Reproduction) -> tuple[JudgedClaim, ...]:
    """The judged orderings; where no value of the axis is known yet, as the paper claims them."""
    return outcome.judged or tuple(
        JudgedClaim(each, None, None, None, "not run") for each in outcome.paper_result.orderings
    )


def table_html(outcome: Reproduction) -> str:
    """Our numbers next to the paper's, a row per entry and place of the axis. Everything is escaped.

    A figure without numbers in the paper has no column for it.
    """
    paper_result, places = outcome.paper_result, places_of(outcome)
    printed = [
        any(number_of_paper(way, figure, place) is not None for way in paper_result.ways for place in places)
        for figure in paper_result.figures
    ]
    axis = f'<th rowspan="2" scope="col">{html.escape(axis_words(outcome))}</th>' if paper_result.by else ""
    groups = "".join(
        f'<th colspan="{1 + with_paper}" scope="colgroup">{html.escape(figure.words)}</th>'
        for figure, with_paper in zip(paper_result.figures, printed, strict=True)
    )
    each = "in each" if outcome.paper_result.stored else "per run"
    units = f'<th rowspan="2" scope="col">{outcome.paper_result.unit}<br>{each}</th>' if outcome.units else ""
    units += '<th rowspan="2" scope="col">best settings</th>' if outcome.best else ""
    paper = '<th scope="col" class="paper">paper</th>'
    heads = "".join(f'<th scope="col">here</th>{paper if with_paper else ""}' for with_paper in printed)
    body = "".join(_rows_of(outcome, way, places, printed) for way in paper_result.ways)
    return (
        '<div class="ds-table-box" tabindex="0" role="region" aria-label="Our numbers next to the paper\'s">'
        f'<table class="ds-table ruled papers-table"><thead><tr><td rowspan="2"></td>{axis}'
        f'<th rowspan="2" scope="col">runs</th>{units}{groups}</tr><tr>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _rows_of(outcome: Reproduction, way: Entry, places: list[object], printed: list[bool]) -> str:
    """The table rows of an entry, one for each place."""
    rows = []
    for place in places:
        key = (way.words, place)
        runs = outcome.runs.get(key)
        cells = [f"<td>{html.escape(_place(place))}</td>"] if outcome.paper_result.by else []
        cells.append(f"<td>{runs or 0:,}</td>")
        if outcome.units:
            cells.append(f"<td>{outcome.units[key]:,.0f}</td>" if key in outcome.units else f"<td>{NOTHING}</td>")
        if outcome.best:
            cells.append(f"<td>{html.escape(outcome.best.get(key, ''))}</td>")
        for figure, with_paper in zip(outcome.paper_result.figures, printed, strict=True):
            found = outcome.ours.get((key, figure.column))
            ours = NOTHING if found is None and runs is not None else words_of(figure, found)
            paper = number_of_paper(way, figure, place)
            cells.append(f"<td>{html.escape(ours)}</td>")
            if with_paper:
                paper_text = NOTHING if paper is None else f"{round(paper, max(figure.digits, 1)):,.6g}"
                cells.append(f'<td class="paper">{paper_text}</td>')
        name = f'<th scope="rowgroup" rowspan="{len(places)}">{html.escape(way.words)}</th>' if not rows else ""
        rows.append(f"<tr>{name}{''.join(cells)}</tr>")
    return "".join(rows)


def orderings_html(judged: tuple[JudgedClaim, ...], other: Reproduction | None = None) -> str:
    """The claims of the paper: the verdict, our difference and the paper's, and the reason where it does not hold.

    A claim judged at several places of the axis appears once, with a line for each place.

    Args:
        other: the same counted in the other way, whose verdicts stand beside where they are others.
    """
    lines = []
    for _, found in groupby(judged, key=lambda each: each.ordering):
        claims = list(found)
        first = claims[0]
        verdicts = [f"{SIGNS[each.verdict]} {each.verdict}" for each in claims]
        kind, verdict, value = first.verdict.replace(" ", "-").rstrip("%"), verdicts[0], first.value
        gains = [f'<div class="gain">{html.escape(gain_words(each))}</div>' for each in claims]
        gains = [gain + _other_way(each, other) for gain, each in zip(gains, claims, strict=True)]
        whys = [f'<div class="why">{html.escape(each.reason)}</div>' for each in claims]
        if len(claims) == 1:
            details = gains[0] + (whys[0] if first.reason else "")
        else:
            if len(set(verdicts)) > 1:
                held = sum(each.verdict == "holds" for each in claims)
                kind, verdict = "mixed", f"holds at {held} of {len(claims)}"
            value, details = None, ""
            for each, said, gain, why in zip(claims, verdicts, gains, whys, strict=True):
                place = html.escape(_place(each.value))
                details += f'<div class="place"><span>{place}</span><span>{said}</span><div>{gain}{why}</div></div>'
        claimed = html.escape(claim_words(replace(first, value=value)))
        lines.append(
            f'<li class="{kind}"><span class="verdict">{verdict}</span><div><div>{claimed}</div>{details}</div></li>'
        )
    return f'<ul class="papers-claims">{"".join(lines)}</ul>'


def _other_way(judged: JudgedClaim, other: Reproduction | None) -> str:
    found = [each for each in other.judged if claim_words(each) == claim_words(judged)] if other else []
    if not found or found[0].verdict == judged.verdict:
        return ""
    said = f"{other.counted}: {SIGNS[found[0].verdict]} {found[0].verdict}, {gain_words(found[0])}"
    return f'<div class="gain">{html.escape(said)}</div>'


def gain_words(judged: JudgedClaim) -> str:
    """How far the better entry is ahead, here and in the paper; where less is better, how much less it takes."""
    gain, parts = judged.gain, []
    ahead, behind = ("ahead", "behind") if judged.ordering.higher else ("less", "more")
    if gain is not None:
        interval = f"n = {gain.prompts}" if gain.prompts < FEWEST else f"{gain.low:+.1%} to {gain.high:+.1%}"
        parts.append(f"here {abs(gain.value):.1%} {behind if gain.value < 0 else ahead} ({interval})")
    if judged.paper is not None:
        parts.append(f"in the paper {abs(judged.paper):.1%} {behind if judged.paper < 0 else ahead}")
    return " · ".join(parts)


def _place(value: object) -> str:
    return f"{value:,g}" if isinstance(value, int | float) else str(value)


def draw_paper_result(shown: Judgement, kept: list[StoredResults], running: frozenset[str]) -> None:
    """Everything about one paper result."""
    outcome, paper_result = shown.outcome, shown.outcome.paper_result
    if shown.error is not None:
        show_error(shown.error)
    _draw_header(shown)
    draw_counting(outcome)
    draw_work(paper_result, outcome.run, kept, running)
    figure = _chosen_figure(paper_result)
    marks = marks_of(outcome, figure)
    if any(mark.ours is not None or mark.paper is not None for mark in marks):
        with st.container(border=True, key="papers_chart", gap=None):
            if across := paper_result.across:
                up = {way.words: float(way.where[across]) for way in paper_result.ways if across in way.where}
                name = across.removeprefix(PREFIX)
                drawn = places_figure(marks, up, figure.words, axis_words(outcome), setting_title(name), is_dark())
            elif paper_result.by:
                drawn = lines_figure(marks, figure.words, axis_words(outcome), is_dark())
            else:
                drawn = table_figure(marks, figure.words, is_dark())
            chart(drawn, key="papers_figure", height=int(drawn.layout.height))
        if any(way.best for way in paper_result.ways):
            st.caption(BEST_OF)
        if far_apart(marks):
            st.caption(APART)
    else:
        st.caption(f"No number of {escape_markdown(figure.words)} yet: the paper prints none, and it has not been run.")
    sampled = "samples" if paper_result.stored else "prompts"
    if claims := claims_of(outcome):
        st.markdown(f"**Claims of the paper, judged on our runs with the same {sampled}**")
        other = None
        if not paper_result.masks:
            way: Counting = "whole" if outcome.counting == "loop_free" else "loop_free"
            other = judgement(paper_result, kept, shown.source, counting=way).outcome
        st.html(orderings_html(claims, other))
    if marks:
        st.markdown(f"**Numbers**, ours with 95% intervals over {sampled}" if outcome.ours else "**Numbers**")
        st.html(table_html(outcome))
    # Runs of the grid that are not in the numbers: failed ones, with the reason, and looping ones.
    failed = shown.rows[shown.rows["failure"].notna()]
    for (label, why), rows in list(failed.groupby(["label", "failure"]))[:MOST_FAILURES]:
        st.warning(escape_markdown(f"{label}: {plural(len(rows), 'run')} failed: {why}"))
    kinds = failed.groupby(["label", "failure"]).ngroups
    if kinds > MOST_FAILURES:
        st.caption(f"{plural(kinds - MOST_FAILURES, 'more kind', 'more kinds')} of failures.")
    if outcome.one_way:
        one = outcome.one_way == 1
        words = plural(outcome.one_way, "run repeats its text", "runs repeat their text")
        left = "it holds whole texts only and is" if one else "they hold whole texts only and are"
        st.caption(f"{words} from the start: {left} left out.")


def looked_at_counting() -> Counting:
    """What figures count: on entry what the address names, else what was chosen; whole texts at first, as in papers."""
    asked = st.query_params.get("counted")
    if COUNTED not in st.session_state and asked in COUNTINGS:
        st.session_state[COUNTED] = asked
    return st.session_state.get(COUNTED, "whole")


def draw_counting(outcome: Reproduction) -> None:
    """The switch between whole and loop-free texts, and what the figures of this paper result count."""
    paper_result = outcome.paper_result
    with st.container(key="papers_counting", horizontal=True, vertical_alignment="center", gap="small"):
        counting = counting_switch(COUNTED, "whole", disabled=paper_result.masks)
        if paper_result.masks:
            words = "These records are of masks: no text is counted"
        elif outcome.units:
            low, high = min(outcome.units.values()), max(outcome.units.values())
            many = f"{low:,.0f}" if round(low) == round(high) else f"{low:,.0f} to {high:,.0f}"
            words = f"{many} {paper_result.unit} counted {'for each number' if paper_result.stored else 'per run'}"
        else:
            words = ""
        ends = REPEATS if counting == "loop_free" and words and not paper_result.masks else ""
        st.caption(escape_markdown("; ".join(filter(None, (words, ends, *outcome.bases)))), width="stretch")
    keep_parameter("counted", "" if counting == "whole" else counting)


def source_key(paper_result: PaperResult) -> str:
    """Session key of the pair and machine shown, shared by all paper results of a grid."""
    return f"papers_source_{paper_result.grid}"


def _draw_header(shown: Judgement) -> None:
    """Title, how the paper measured, and how we did."""
    outcome, paper_result = shown.outcome, shown.outcome.paper_result
    with st.container(key="papers_header", gap=None):
        st.markdown(f"**{escape_markdown(paper_result.paper)}** · {escape_markdown(paper_result.title)}")
        st.caption(f"**Paper** {escape_markdown(str(paper_result.protocol))}.")
        st.caption(f"**Here** {escape_markdown(_here_words(shown))}.")
        if outcome.elsewhere:
            st.caption(escape_markdown(f"Also stored, not included: {'; '.join(outcome.elsewhere)}."))
        if paper_result.needs:
            st.caption(escape_markdown(f"It needs {paper_result.needs}."))
    if outcome.run:
        with st.expander(
            "How the paper measured and how we did", icon=":material/compare_arrows:", key="papers_protocol"
        ):
            st.html(protocol_html(outcome))
    if len(shown.sources) > 1:
        key = source_key(paper_result)
        if st.session_state.get(key) not in shown.sources:
            st.session_state[key] = shown.source
        st.selectbox("Results from", shown.sources, key=key, persist_state="session", width=760)


def protocol_html(outcome: Reproduction) -> str:
    """Both protocols line by line, each difference with a word on it, and the statistics that both compute."""
    paper_result = outcome.paper_result
    figures = Cell(", ".join(figure.words for figure in paper_result.figures), span=2)
    aspects = compared(paper_result.protocol, outcome.here, by_name=bool(paper_result.grid))
    rows = (*aspects, ("statistic", figures, ""))
    return html_table(("", "paper", "here", "where they differ"), rows, "ruled papers-protocol")


def _here_words(shown: Judgement) -> str:
    """Lengths, prompts, pair, machine and day of our results, or the size of a run."""
    outcome, paper_result = shown.outcome, shown.outcome.paper_result
    if not outcome.run:
        if len(shown.rows):
            return f"{plural(len(shown.rows), 'run')} of its grid are stored, too few of them count yet"
        return f"not run; {size_of(paper_result.grid).words}" if paper_result.grid else "not run"
    where = "; ".join(outcome.where)
    if not len(shown.rows):
        return where
    rows = shown.rows
    for name in paper_result.only.keys() & set(rows):
        rows = rows[rows[name] == paper_result.only[name]]
    prompts = rows[["prompt_set", "kind", "prompt"]].drop_duplicates()
    sets = ", ".join(sorted(prompts["prompt_set"].unique()))
    tokens = " / ".join(f"{count:,}" for count in sorted(rows["asked_tokens"].dropna().astype(int).unique()))
    asked = f"{tokens} tokens after " if tokens else ""
    which = "set" if prompts["prompt_set"].nunique() == 1 else "sets"
    return f"{asked}{plural(len(prompts), 'prompt')} of the {which} {sets}; {where}"


def _chosen_figure(paper_result: PaperResult) -> Figure:
    """The column to draw: the one clicked or named by the address, else the first."""
    columns = {figure.column: figure for figure in paper_result.figures}
    first, key = paper_result.figures[0].column, f"papers_column_{paper_result.key}"
    if st.session_state.get(key) not in columns:
        asked = st.query_params.get("figure")
        st.session_state[key] = asked if asked in columns else first
    chosen = st.session_state[key]
    if len(columns) > 1:
        chosen = st.segmented_control(
            "Figure", list(columns), format_func=lambda name: escape_markdown(columns[name].words), key=key,
            label_visibility="collapsed", required=True, persist_state="session",
        )  # fmt: skip
    keep_parameter("exhibit", paper_result.key)
    keep_parameter("figure", chosen if chosen != first else "")
    return columns[chosen]
