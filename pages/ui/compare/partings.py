"""Where the methods of a comparison part: what a tree lost to the chain, and the chain to the tree, with the causes."""

from collections.abc import Callable, Sequence

import streamlit as st

from decoding.analysis.slowdown import Stretch, stretches
from decoding.compare.comparison import Score
from pages.ui import PAGES
from pages.ui.common.errors import escape_markdown
from pages.ui.common.state import RunRequest
from pages.ui.compare.plan import ComparisonResult
from viz.explain.bottom_line import stretch_words

LINES = 3
CHAIN = "linear"


def rivals(scores: Sequence[Score]) -> tuple[Score, Score] | None:
    """The fastest tree and the fastest chain, None where one of them was not measured."""
    drafted = [entry for entry in scores if entry.run is not None and any(i.drafted for i in entry.run.iterations)]
    drafted.sort(key=lambda entry: -entry.spread_of("throughput").median)
    tree = next((entry for entry in drafted if entry.contestant.method.name != CHAIN), None)
    chain = next((entry for entry in drafted if entry.contestant.method.name == CHAIN), None)
    return None if tree is None or chain is None else (tree, chain)


def losses(slower: Score, faster: Score) -> list[Stretch]:
    """Where one method took longer than the other for the same tokens, most time first."""
    found = [stretch for stretch in stretches(slower.run, faster.run) if stretch.lost_s > 0]
    return sorted(found, key=lambda stretch: -stretch.lost_s)


def draw_partings(scores: Sequence[Score], outcome: ComparisonResult, go_to: Callable[[RunRequest, int], None]) -> None:
    """Where the fastest tree lost most time to the fastest chain, and the other way round.

    Args:
        go_to: has Step through decode a request up to an iteration; a callback.
    """
    both = rivals(scores)
    if both is None:
        return
    for place, slower, faster in zip(st.columns(2, gap="medium"), both, both[::-1], strict=True):
        with place:
            names = slower.contestant.label, faster.contestant.label
            st.markdown(escape_markdown(f"Where {names[0]} lost to {names[1]}").join(("**", "**")))
            found = losses(slower, faster)
            if not found:
                st.caption("Nowhere that both begin and end at the same token of the same text.")
            for stretch in found[:LINES]:
                _draw_stretch(stretch, slower, faster, outcome, go_to)
    st.caption("In the median repeat of each method, prefill left out; a stretch begins and ends where both do.")


def _draw_stretch(
    stretch: Stretch,
    slower: Score,
    faster: Score,
    outcome: ComparisonResult,
    go_to: Callable[[RunRequest, int], None],
) -> None:
    text = "".join(outcome.texts[token] for token in slower.output_ids[stretch.start : stretch.end])
    words = stretch_words(stretch, slower.contestant.label, faster.contestant.label, text)
    place, plan = stretch.mine[0], outcome.plan
    asked = RunRequest(plan.prompt, slower.contestant.method, plan.sampling, plan.max_new_tokens)
    label = slower.contestant.label
    with st.container(horizontal=True, vertical_alignment="top", gap="small"):
        st.markdown(escape_markdown(words))
        if st.button(
            f"Iteration {place + 1}", key=f"parting_{label}_{place}", type="tertiary", width="content",
            on_click=go_to, args=(asked, place), icon=":material/footprint:",
            help=escape_markdown(f"Decode {label} up to this iteration on Step through"),
        ):  # fmt: skip
            st.switch_page(PAGES["Step through"], query_params={})
