"""Where the methods of a comparison part: what a tree lost to the chain, and the chain to the tree, with the causes."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations

import streamlit as st

from decoding.analysis.slowdown import Stretch, stretches
from decoding.compare.comparison import Score
from decoding.trace.records import RunTrace
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


def steady(entry: Score, outcome: ComparisonResult) -> RunTrace:
    """The run of a method with each iteration from the repeat in which it took its median time.

    Other work on the machine slows single iterations; repeats that took other steps leave the median repeat as it is.
    """
    runs = [call.run for call in outcome.comparison.of(outcome.comparison.contestants.index(entry.contestant))]
    steps = [tuple(each.committed_ids for each in run.iterations) for run in runs if run is not None]
    if len(steps) < len(runs) or any(each != steps[0] for each in steps):
        return entry.run
    middle = (len(runs) - 1) // 2
    same = zip(*(run.iterations for run in runs), strict=True)
    typical = [sorted(each, key=lambda iteration: iteration.times.total_s)[middle] for each in same]
    return replace(entry.run, iterations=tuple(typical[: len(entry.run.iterations)]))


def losses(slower: RunTrace, faster: RunTrace) -> list[Stretch]:
    """Where one run took longer than the other for the same tokens, most time first."""
    found = [stretch for stretch in stretches(slower, faster) if stretch.lost_s > 0]
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
            found = losses(steady(slower, outcome), steady(faster, outcome))
            if not found:
                st.caption("Nowhere that both begin and end at the same token of the same text.")
            for stretch in found[:LINES]:
                _draw_stretch(stretch, slower, faster, outcome, go_to)
    st.caption("Each iteration at its median time over the repeats, prefill left out, where both begin and end one.")


def places(scores: Sequence[Score]) -> list[int]:
    """Numbers of output tokens after which two methods that draft take different steps, in order."""
    runs = [entry.run for entry in scores if entry.run is not None and any(i.drafted for i in entry.run.iterations)]
    both = (stretches(mine, other) for mine, other in combinations(runs, 2))
    return sorted({stretch.start for found in both for stretch in found if stretch.parts})


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
    said, link = st.columns([4, 1], vertical_alignment="center")
    said.markdown(escape_markdown(words))
    if link.button(
        f"Iteration {place + 1}", key=f"parting_{label}_{place}", type="tertiary", icon=":material/footprint:",
        on_click=go_to, args=(asked, place), help=escape_markdown(f"Decode {label} up to here on Step through"),
    ):  # fmt: skip
        st.switch_page(PAGES["Step through"], query_params={})
