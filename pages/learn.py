"""Learn: the guided tour, recorded runs worth a look, puzzles on real iterations, and what every word means."""

import html

import streamlit as st

from pages.ui.app.setup import setup
from pages.ui.learn.tour import all_steps, current_tour, show_step, start_tour
from viz.glossary import GROUPS, TERMS, shown_term

TOUR, RUNS, PUZZLES, GLOSSARY = "Tour", "Recorded runs", "Puzzles", "Glossary"
ALL = "All"
STYLE = """
<style>
.st-key-learn_begin, .st-key-glossary_bar { flex-wrap: nowrap; }
.st-key-learn_begin p { margin: 0; }
.ds-stop { display: grid; grid-template-columns: 2rem 7.5rem 1fr; gap: 0 0.8rem; padding: 0.42rem 0.2rem;
  border-bottom: 1px solid color-mix(in srgb, currentColor 14%, transparent); font-size: 0.9rem; line-height: 1.4; }
.ds-stop .n { font-weight: 700; text-align: right; }
.ds-stop .page { display: block; font-size: 0.78rem; opacity: 0.8; }
.ds-stop.current { background: color-mix(in srgb, #009E73 12%, transparent); }
.ds-terms { columns: 3 22rem; column-gap: 2rem; line-height: 1.4; }
dl.ds-terms { margin: 0.4rem 0 0 !important; padding: 0 !important; }
.ds-terms div { break-inside: avoid; padding: 0 0 0.45rem; }
.ds-terms dt { font-weight: 700; }
.ds-terms dd { margin: 0; padding: 0; }
.ds-terms h4 { font-size: 1rem; padding: 0.3rem 0; margin: 0; }
</style>
"""


def main() -> None:
    """One of four views."""
    setup("Learn")
    st.html(STYLE)
    draw = {TOUR: tour_view, RUNS: runs_view, PUZZLES: puzzles_view, GLOSSARY: glossary_view}
    if "learn_view" not in st.session_state:
        st.session_state["learn_view"] = TOUR
    view = st.segmented_control(
        "View", list(draw), key="learn_view", label_visibility="collapsed", required=True, persist_state="session"
    )
    draw[view]()


def tour_view() -> None:
    """What the tour shows, and the button that begins it."""
    tour = current_tour()
    steps = tour.steps if tour else all_steps()
    with st.container(key="learn_begin", horizontal=True, vertical_alignment="center", gap="medium"):
        if tour and st.button("Go on with the tour", key="tour_go_on", type="primary", icon=":material/play_arrow:"):
            show_step("Learn")
        if not tour and st.button("Take the tour", key="tour_start", type="primary", icon=":material/play_arrow:"):
            start_tour()
        st.markdown(
            f"{len(steps)} stops, about five minutes. The tour sets the app itself, on recorded runs with their own "
            "numbers; leave it at any time, your own run comes back."
        )
    rows = "".join(
        f'<div class="ds-stop {"current" if tour and place == tour.at else ""}"><span class="n">{place + 1}</span>'
        f'<span><b>{html.escape(step.title)}</b><span class="page">{html.escape(step.page)}</span></span>'
        f"<span>{html.escape(step.words)}</span></div>"
        for place, step in enumerate(steps)
    )
    st.html(rows)


def runs_view() -> None:
    """The recorded runs as cards."""
    from pages.ui.learn.recorded_runs import draw_cards

    draw_cards()


def puzzles_view() -> None:
    """The puzzles."""
    from pages.ui.learn.puzzles import draw_puzzles

    draw_puzzles()


def glossary_view() -> None:
    """Every term with its sentence: a group at a time, or what a search finds in all of them."""
    with st.container(key="glossary_bar", horizontal=True, vertical_alignment="center", gap="medium"):
        wanted = st.text_input(
            "Search", key="glossary_search", placeholder="Search all terms", label_visibility="collapsed", width=190
        )
        group = st.segmented_control(
            "Group", [*GROUPS, ALL], default=next(iter(GROUPS)), key="glossary_group", label_visibility="collapsed",
            required=True, disabled=bool(wanted),
        )  # fmt: skip
    found = {term: words for term, words in TERMS.items() if wanted.lower().strip() in f"{term} {words}".lower()}
    if wanted and not found:
        st.info("No term has these letters: try fewer of them, or empty the search.", icon=":material/search:")
        return
    shown = {"": found} if wanted else GROUPS if group == ALL else {"": GROUPS[group]}
    st.html("".join(_terms_html(title, terms) for title, terms in shown.items()))


def _terms_html(title: str, terms: dict[str, str]) -> str:
    rows = "".join(
        f"<div><dt>{html.escape(shown_term(term))}</dt><dd>{html.escape(words)}</dd></div>"
        for term, words in terms.items()
    )
    heading = f"<h4>{html.escape(title)}</h4>" if title else ""
    return f'{heading}<dl class="ds-terms">{rows}</dl>'


main()
