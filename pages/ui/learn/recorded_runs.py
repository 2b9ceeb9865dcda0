"""The recorded runs as cards, each with its numbers, to open in Step through or next to its rivals on Compare."""

import html
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import streamlit as st

from decoding.analysis.slowdown import slowdown
from decoding.common.formats import number, plural
from decoding.recorded import (
    CHAIN,
    PLAIN,
    Rescue,
    best_rescue,
    home_run,
    recorded_run,
    rivals,
    speed,
    telling_iteration,
    threshold_moves,
    tokens_per_pass,
)
from decoding.trace.records import RunTrace, SamplingTrace
from pages.ui import PAGES
from pages.ui.common.errors import escape_markdown
from pages.ui.common.state import Run, ask_view, current_run, draw_set_aside, keep_run, selected_iteration, set_aside
from pages.ui.compare.plan import recorded_result
from pages.ui.widgets.contestants import COMPARE, add_slot
from pages.ui.widgets.controls import set_method
from pages.ui.widgets.prompts import prompt_of
from viz.scope.panels import iteration_spans, text_html
from viz.tokens import quote

COLUMNS = 3


@dataclass(frozen=True)
class RecordedRunCard:
    """One recorded run.

    Attributes:
        name: of the recording. title: what it illustrates. words: a sentence with its numbers.
        iteration, node, phase: where it opens.
        beside: runs on the same prompt whose speed is shown for comparison.
    """

    name: str
    title: str
    words: str
    iteration: int
    node: int | None = None
    phase: str = "select"
    beside: tuple[RunTrace, ...] = ()


def cards() -> tuple[RecordedRunCard, ...]:
    """Every card; all numbers are read from the runs."""
    return (_helps(), _loses(), _rescue(), _adapts(), _sampled(), _home())


def _helps() -> RecordedRunCard:
    run, other = recorded_run("tree_helps"), rivals("tree_helps")
    words = (
        f"{run.label} commits {tokens_per_pass(run):.2f} tokens per pass, the chain "
        f"{tokens_per_pass(other[CHAIN]):.2f}. Prefill left out, it took {slowdown(run, other[CHAIN]).ratio:.2f} times "
        "the chain's time per token."
    )
    return RecordedRunCard(
        "tree_helps", "A tree helps", words, telling_iteration(run), beside=(other[CHAIN], other[PLAIN])
    )


def _loses() -> RecordedRunCard:
    run, other = recorded_run("tree_loses"), rivals("tree_loses")
    lost = slowdown(run, other[CHAIN])
    words = (
        f"{run.label} commits {lost.mine.tokens:.2f} tokens per pass, the chain {lost.other.tokens:.2f}: its trees are "
        f"{_mean_depth(run):.1f} deep, the chain {_mean_depth(other[CHAIN]):.1f}. Prefill left out, the tree took "
        f"{lost.ratio:.2f} times the chain's time per token."
    )
    return RecordedRunCard("tree_loses", "A tree loses to the chain", words, telling_iteration(run),
                beside=(other[CHAIN], other[PLAIN]))  # fmt: skip


def _mean_depth(run: RunTrace) -> float:
    return sum(each.tree_depth for each in run.iterations) / len(run.iterations)


def _place(run: RunTrace, found: Rescue):
    iteration = run.iterations[found.iteration]
    return iteration, iteration.nodes[found.rejected], iteration.nodes[found.accepted]


def _rescue() -> RecordedRunCard:
    run = recorded_run("sibling_rescue")
    found = best_rescue(run)
    iteration, first, second = _place(run, found)
    words = (
        f"In iteration {found.iteration + 1} the draft's first choice {quote(first.text)} "
        f"({number(first.draft_probability)}) is rejected. Its sibling {quote(second.text)} "
        f"({number(second.draft_probability)}) is accepted, and {found.below} more below it: "
        f"{plural(len(iteration.committed_ids), 'token')} from one pass."
    )
    return RecordedRunCard("sibling_rescue", "A sibling rescues the iteration", words, found.iteration, found.accepted)


def _adapts() -> RecordedRunCard:
    run = recorded_run("history")
    moves = threshold_moves(run)
    depths = [int(each.settings["base_depth"]) for each in run.iterations]
    moved = next(each.index for each in run.iterations if each.history and each.history.before != each.history.after)
    words = (
        f"History adaptation changes its settings {sum(moves.values())} times in "
        f"{plural(len(run.iterations), 'iteration')}: {moves['bolder']} times bolder, {moves['more_careful']} times "
        f"more careful. The base depth starts at {depths[0]} and varies between {min(depths)} and {max(depths)}."
    )
    return RecordedRunCard("history", "Thresholds adapt to history", words, moved, phase="history")


def _sampled() -> RecordedRunCard:
    run = recorded_run("sampled")
    found = best_rescue(run, residual=True)
    iteration, first, second = _place(run, found)
    test = next(step for step in iteration.steps if step.child_id == first.node_id and not step.accepted)
    words = (
        f"At temperature {run.sampling.temperature:g} the test of {quote(first.text)} passes with probability "
        f"{number(test.acceptance_probability)}; {number(test.drawn)} is drawn, so it fails. From the residual its "
        f"sibling {quote(second.text)} is accepted, and {found.below} more."
    )
    return RecordedRunCard("sampled", "A sampled run with a residual", words, found.iteration, found.rejected)


def _home() -> RecordedRunCard:
    run = home_run()
    words = (
        f"A story of {plural(run.totals.new_tokens, 'token')} in {plural(len(run.iterations), 'pass', 'passes')} of "
        "the target; step through all of them."
    )
    return RecordedRunCard("home", "The run of the home page", words, telling_iteration(run))


def draw_cards() -> None:
    """All cards, and a button back to a run that was set aside for one of them."""
    draw_set_aside()
    shown = cards()
    for row in range(0, len(shown), COLUMNS):
        for place, card in zip(st.columns(COLUMNS), shown[row : row + COLUMNS], strict=False):
            with place.container(border=True, key=f"card_{card.name}"):
                run = recorded_run(card.name)
                st.markdown(f"**{card.title}**")
                below = _bars((run, *card.beside)) if card.beside else _facts(run, card)
                st.html(f'<div class="ds-card-words">{html.escape(card.words)}</div>{below}')
                if st.button("Open in Step through", key=f"open_{card.name}", icon=":material/footprint:"):
                    open_recording(card)
    compared = next(recorded_run(card.name) for card in shown if card.beside)
    st.caption(
        escape_markdown(
            "Decoded by the embedded pair and stored; found by a search over the sample prompts "
            "(python -m decoding.recorded). Speeds beside bars include prefill; these runs were measured in turn, on "
            f"{compared.hardware.get('processor', '')}, {plural(int(compared.hardware.get('threads', 1)), 'thread')}."
        )
    )


def _bars(runs: tuple[RunTrace, ...]) -> str:
    """Measured speeds side by side, prefill included."""
    most = max(speed(run) for run in runs)
    rows = "".join(
        f'<span>{html.escape(run.label)}</span><i class="{"other" if place else "own"}" '
        f'style="width:{100 * speed(run) / most:.0f}%"></i><span class="n">{speed(run):.0f} tokens/s</span>'
        for place, run in enumerate(runs)
    )
    return f'<div class="ds-bars">{rows}</div>'


def _facts(run: RunTrace, card: RecordedRunCard) -> str:
    """The text of the iteration, or the course of the settings; method and length of the run."""
    if card.phase == "history":
        depths = [int(each.settings["base_depth"]) for each in run.iterations]
        columns = "".join(f'<i style="height:{100 * depth / max(depths):.0f}%"></i>' for depth in depths)
        words = html.escape(f"Base depth by iteration, from {min(depths)} to {max(depths)}", quote=True)
        drawn = f'<div class="ds-depths" role="img" aria-label="{words}" title="{words}">{columns}</div>'
    else:  # the end of the text before the iteration, and what it added in the marks of the text panel
        tail = html.escape("".join(run.texts_before(card.iteration))[-30:].replace("\n", " "))
        added = text_html(iteration_spans(run.iterations[card.iteration], True))
        drawn = f'<div class="ds-added"><span>…{tail}</span>{added}</div>'
    facts = f"{run.label} · {plural(run.totals.new_tokens, 'token')} · {tokens_per_pass(run):.2f} per pass"
    return f'<div class="ds-facts">{drawn}{html.escape(facts)}</div>'


def open_recording(card: RecordedRunCard) -> None:
    """Put a recording on screen in Step through; the user's own run is set aside, not lost."""
    set_aside(current_run(), selected_iteration())
    keep_run(Run(recorded_run(card.name), "recorded"), card.iteration)
    ask_view(card.iteration, card.node, card.phase)
    st.switch_page(PAGES["Step through"], query_params={})


SAMPLING_KEYS = tuple(f"sampling_{field.name}" for field in fields(SamplingTrace))
PLAN_KEYS = ("prompt", "prompt_text", "max_new_tokens", "compare_repeats", "compare_warmup")
PLACED = ("comparison", "compare_slots", "compare_view", *PLAN_KEYS, *SAMPLING_KEYS)


def place_comparison(name: str) -> dict[str, Any]:
    """Show plain decoding, the chain and the tree of a recording on Compare: one call each as measured, in turn.

    Returns the values put into the session.
    """
    from decoding.compare.comparison import Comparison, result_of
    from decoding.compare.contestants import Contestant
    from decoding.replay.stored_state import method_of

    others = rivals(name)
    runs = (others.pop(PLAIN), *others.values(), recorded_run(name))
    contestants = tuple(Contestant(run.label, method=method_of(run)) for run in runs)
    results = tuple(replace(result_of(run), contestant=place) for place, run in enumerate(runs))
    comparison = Comparison(contestants, (prompt_of(runs[0]).name,), results, differences=(), reference=0)
    state, outcome = st.session_state, recorded_result(comparison, repeats=1, warmup=0)
    state["comparison"], state["compare_slots"], state["compare_view"] = outcome, [], "Overview"
    for contestant in contestants:
        set_method(add_slot(COMPARE, contestant.method.name), contestant.method)
    plan = outcome.plan
    state["prompt"], state["prompt_text"] = plan.prompt.name, plan.prompt.text
    state["max_new_tokens"], state["compare_repeats"] = plan.max_new_tokens, plan.repeats
    state["compare_warmup"] = plan.warmup
    for field, value in asdict(plan.sampling.trace()).items():
        state[f"sampling_{field}"] = value
    return {key: state[key] for key in PLACED}
