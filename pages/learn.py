"""Learn: the guided tour, selected recorded runs, puzzles on real iterations, and a glossary."""

import html

import streamlit as st

from pages.ui import ROOT
from pages.ui.app.setup import setup
from pages.ui.learn.glossary import all_terms, draw_proof, registries
from pages.ui.learn.puzzles import draw_puzzles
from pages.ui.learn.recorded_runs import draw_cards
from pages.ui.learn.tour import all_steps, current_tour, show_step, start_tour
from pages.ui.widgets.controls import seed
from viz.glossary import GROUPS, PROOF, shown_term

TOUR, RUNS, PUZZLES, GLOSSARY = "Tour", "Recorded runs", "Puzzles", "Glossary"
ALL = "All"


def main() -> None:
    """One of four views."""
    setup("Learn")
    st.html(ROOT / "pages/ui/learn/page.css")
    draw = {TOUR: tour_view, RUNS: draw_cards, PUZZLES: draw_puzzles, GLOSSARY: glossary_view}
    if term := st.query_params.pop("term", ""):  # a link to one term
        st.session_state["learn_view"], st.session_state["glossary_search"] = GLOSSARY, term
    st.session_state.setdefault("learn_view", TOUR)
    view = st.segmented_control(
        "View", list(draw), key="learn_view", label_visibility="collapsed", required=True, persist_state="session"
    )
    draw[view]()


def tour_view() -> None:
    """What the tour shows, and the button that begins it."""
    tour = current_tour()
    steps = tour.steps if tour else all_steps()
    with st.container(key="learn_begin", horizontal=True, vertical_alignment="center", gap="medium"):
        if tour and st.button("Continue the tour", key="tour_go_on", type="primary", icon=":material/play_arrow:"):
            show_step("Learn")
        if not tour and st.button("Take the tour", key="tour_start", type="primary", icon=":material/play_arrow:"):
            start_tour()
        st.markdown(
            f"{len(steps)} stops, about five minutes. The tour operates the app for you, on recorded runs with their "
            "real numbers. Leave it at any time: your own run comes back."
        )
    rows = "".join(
        f'<div class="ds-stop {"current" if tour and place == tour.at else ""}"><span class="n">{place + 1}</span>'
        f'<span><b>{html.escape(step.title)}</b><span class="page">{html.escape(step.page)}</span></span>'
        f"<span>{html.escape(step.words)}</span></div>"
        for place, step in enumerate(steps)
    )
    st.html(rows)


def glossary_view() -> None:
    """Every term with its definition: one group at a time, or the matches of a search in all groups."""
    with st.container(key="glossary_bar", horizontal=True, vertical_alignment="center", gap="medium"):
        wanted = st.text_input(
            "Search", key="glossary_search", placeholder="Search all terms", label_visibility="collapsed", width=190
        )
        group = ALL
        if wanted:
            st.caption("The search looks in all groups: clear it to choose one.")
        else:
            seed("glossary_group", next(iter(GROUPS)))
            group = st.segmented_control(
                "Group", [*GROUPS, *registries(), ALL], key="glossary_group", label_visibility="collapsed",
                required=True, persist_state="session",
            )  # fmt: skip
    groups = GROUPS if group in GROUPS and not wanted else all_terms()
    found = [(term, words) for terms in groups.values() for term, words in terms.items()]
    found = {term: words for term, words in found if wanted.lower().strip() in f"{term} {words}".lower()}
    if wanted and not found:
        st.info("No term matches: try fewer letters, or clear the search.", icon=":material/search:")
        return
    shown = {"": found} if wanted else groups if group == ALL else {"": groups.get(group, {})}
    drawn = []
    for title, terms in shown.items():
        rows = "".join(
            f"<div><dt>{html.escape(shown_term(term))}</dt><dd>{html.escape(words)}</dd></div>"
            for term, words in terms.items()
        )
        heading = f"<h4>{html.escape(title)}</h4>" if title else ""
        drawn.append(f'{heading}<dl class="ds-terms">{rows}</dl>')
    st.html("".join(drawn))
    if "lossless" in found and wanted:
        st.markdown(PROOF)
        draw_proof()


main()
