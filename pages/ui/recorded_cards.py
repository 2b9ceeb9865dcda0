"""The recorded runs as cards: what each shows in a sentence with its numbers, and a button that puts it on screen."""

import html
from dataclasses import dataclass

import streamlit as st

from decoding.recorded import CHAIN, PLAIN, home_run, recorded_run, rivals, telling_iteration
from decoding.recorded.criteria import Rescue, best_rescue, speed, threshold_moves, tokens_per_pass
from decoding.slowdown import slowdown
from decoding.trace import RunTrace
from pages.ui.errors import escape_markdown
from pages.ui.menu import PAGES
from pages.ui.set_aside import draw_set_aside, set_aside
from pages.ui.state import Run, ask_view, current_run, keep_run, selected_iteration
from viz.explain import quote
from viz.text_strip import iteration_spans, text_html
from viz.tokens import number, plural

COLUMNS = 3
STYLE = """
<style>
[class*=st-key-card_] p { margin: 0 0 0.3rem; }
.ds-bars { display: grid; grid-template-columns: max-content 1fr max-content; gap: 0.15rem 0.6rem; font-size: 0.82rem; }
.ds-bars i { display: block; height: 0.75rem; margin-top: 0.2rem; border-radius: 2px; background: #0072B2; }
.ds-bars i.other { background: #8A93A6; }
.ds-bars span.n { font-variant-numeric: tabular-nums; text-align: right; }
.ds-facts { font-size: 0.82rem; height: 4.25rem; overflow: hidden; }
.ds-added { font-family: monospace; line-height: 1.5; height: 2.9rem; overflow: hidden; }
.ds-added > span { opacity: 0.75; }
.ds-added > div { display: inline; line-height: 1.5 !important; }
.ds-depths { display: flex; align-items: flex-end; gap: 2px; height: 2.1rem; margin-bottom: 0.4rem; }
.ds-depths i { flex: 1 1 0; background: #009E73; border-radius: 1px 1px 0 0; }
.ds-card-words { min-height: 5.6rem; font-size: 0.92rem; line-height: 1.45; }
</style>
"""


@dataclass(frozen=True)
class Card:
    """One recorded run.

    Attributes:
        name: of the recording. title: what it is an example of. words: a sentence with its numbers.
        iteration, node, phase: where it is opened.
        beside: runs on the same prompt whose speed is shown beside its own.
    """

    name: str
    title: str
    words: str
    iteration: int
    node: int | None = None
    phase: str = "select"
    beside: tuple[RunTrace, ...] = ()


def cards() -> tuple[Card, ...]:
    """Every card; all numbers are read from the runs."""
    return (_helps(), _loses(), _rescue(), _adapts(), _sampled(), _home())


def _helps() -> Card:
    run, other = recorded_run("tree_helps"), rivals("tree_helps")
    words = (
        f"{run.label} commits {tokens_per_pass(run):.2f} tokens per pass, the chain "
        f"{tokens_per_pass(other[CHAIN]):.2f}. It took {slowdown(run, other[CHAIN]).ratio:.2f} times the chain's time "
        "per token."
    )
    return Card("tree_helps", "A tree helps", words, telling_iteration(run), beside=(other[CHAIN], other[PLAIN]))


def _loses() -> Card:
    run, other = recorded_run("tree_loses"), rivals("tree_loses")
    lost = slowdown(run, other[CHAIN])
    words = (
        f"{run.label} commits {lost.mine.tokens:.2f} tokens per pass, the chain {lost.other.tokens:.2f}: its trees are "
        f"{_mean_depth(run):.1f} deep, the chain {_mean_depth(other[CHAIN]):.1f}. The tree took {lost.ratio:.2f} times "
        "the chain's time per token."
    )
    return Card("tree_loses", "A tree loses to the chain", words, telling_iteration(run),
                beside=(other[CHAIN], other[PLAIN]))  # fmt: skip


def _mean_depth(run: RunTrace) -> float:
    return sum(each.tree_depth for each in run.iterations) / len(run.iterations)


def _place(run: RunTrace, found: Rescue):
    iteration = run.iterations[found.iteration]
    return iteration, iteration.nodes[found.rejected], iteration.nodes[found.accepted]


def _rescue() -> Card:
    run = recorded_run("sibling_rescue")
    found = best_rescue(run)
    iteration, first, second = _place(run, found)
    words = (
        f"In iteration {found.iteration + 1} the draft's first choice {quote(first.text)} "
        f"({number(first.draft_probability)}) is rejected. Its sibling {quote(second.text)} "
        f"({number(second.draft_probability)}) is accepted and {found.below} more below it: "
        f"{plural(len(iteration.committed_ids), 'token')} from one pass."
    )
    return Card("sibling_rescue", "A sibling rescues the iteration", words, found.iteration, found.accepted)


def _adapts() -> Card:
    run = recorded_run("history")
    moves = threshold_moves(run)
    depths = [int(each.settings["base_depth"]) for each in run.iterations]
    moved = next(each.index for each in run.iterations if each.history and each.history.before != each.history.after)
    words = (
        f"History adaptation moves its settings {sum(moves.values())} times in "
        f"{plural(len(run.iterations), 'iteration')}: bolder {moves['bolder']} times, more careful "
        f"{moves['more_careful']} times. The base depth begins at {depths[0]} and moves between {min(depths)} and "
        f"{max(depths)}."
    )
    return Card("history", "Thresholds follow the past", words, moved, phase="history")


def _sampled() -> Card:
    run = recorded_run("sampled")
    found = best_rescue(run, residual=True)
    iteration, first, second = _place(run, found)
    test = next(step for step in iteration.steps if step.child_id == first.node_id and not step.accepted)
    words = (
        f"At temperature {run.sampling.temperature:g} the test of {quote(first.text)} passes with probability "
        f"{number(test.acceptance_probability)}; {number(test.drawn)} is drawn and it fails. From what is left of the "
        f"target's law its sibling {quote(second.text)} is accepted, and {found.below} more."
    )
    return Card("sampled", "A sampled run with a residual", words, found.iteration, found.rejected)


def _home() -> Card:
    run = home_run()
    words = (
        f"A story of {plural(run.totals.new_tokens, 'token')} in {plural(len(run.iterations), 'pass', 'passes')} of "
        "the target, all of them to step through."
    )
    return Card("home", "The run of the home page", words, telling_iteration(run))


def draw_cards() -> None:
    """All cards, and the way back to a run that was set aside for one of them."""
    st.html(STYLE)
    draw_set_aside()
    told = cards()
    for row in range(0, len(told), COLUMNS):
        for place, card in zip(st.columns(COLUMNS), told[row : row + COLUMNS], strict=False):
            with place.container(border=True, key=f"card_{card.name}"):
                _draw_card(card)
    compared = next(recorded_run(card.name) for card in told if card.beside)
    st.caption(
        escape_markdown(
            "Decoded by the embedded pair and stored; found by search over the sample prompts "
            "(python -m decoding.record_presets). Runs whose speeds are compared were taken in turn, on "
            f"{compared.hardware.get('processor', '')}, {plural(int(compared.hardware.get('threads', 1)), 'thread')}."
        )
    )


def _draw_card(card: Card) -> None:
    run = recorded_run(card.name)
    st.markdown(f"**{card.title}**")
    below = _bars((run, *card.beside)) if card.beside else _facts(run, card.iteration, card.phase)
    st.html(f'<div class="ds-card-words">{html.escape(card.words)}</div>{below}')
    if st.button("Open in Step through", key=f"open_{card.name}", icon=":material/footprint:"):
        open_recording(card)


def _bars(runs: tuple[RunTrace, ...]) -> str:
    """Measured speeds beside each other, prefill included."""
    most = max(speed(run) for run in runs)
    rows = "".join(
        f'<span>{html.escape(run.label)}</span><i class="{"other" if place else "own"}" '
        f'style="width:{100 * speed(run) / most:.0f}%"></i><span class="n">{speed(run):.0f} tokens/s</span>'
        for place, run in enumerate(runs)
    )
    return f'<div class="ds-bars">{rows}</div>'


def _facts(run: RunTrace, index: int, phase: str) -> str:
    """What the iteration wrote, or how the settings moved; method and length of a run that stands alone."""
    drawn = _depths(run) if phase == "history" else _text(run, index)
    facts = f"{run.label} · {plural(run.totals.new_tokens, 'token')} · {tokens_per_pass(run):.2f} per pass"
    return f'<div class="ds-facts">{drawn}{html.escape(facts)}</div>'


def _text(run: RunTrace, index: int) -> str:
    """The end of the text before an iteration, and what it added in the marks of the text panel."""
    before = [*run.prompt_texts, *(text for past in run.iterations[:index] for text in past.committed_texts)]
    tail = html.escape("".join(before)[-30:].replace("\n", " "))
    return f'<div class="ds-added"><span>…{tail}</span>{text_html(iteration_spans(run.iterations[index], True))}</div>'


def _depths(run: RunTrace) -> str:
    """Base depth of every iteration as a column each."""
    depths = [int(each.settings["base_depth"]) for each in run.iterations]
    columns = "".join(f'<i style="height:{100 * depth / max(depths):.0f}%"></i>' for depth in depths)
    words = html.escape(f"Base depth by iteration, from {min(depths)} to {max(depths)}", quote=True)
    return f'<div class="ds-depths" role="img" aria-label="{words}" title="{words}">{columns}</div>'


def open_recording(card: Card) -> None:
    """Put a recording on screen in Step through; a run that was decoded here is set aside, not lost."""
    set_aside(current_run(), selected_iteration())
    keep_run(Run(recorded_run(card.name), "recorded"), card.iteration)
    ask_view(card.iteration, card.node, card.phase)
    st.switch_page(PAGES["Step through"], query_params={})
