"""The parts of the home page. Every number in them is read from the recorded run."""

import html
from pathlib import Path

import streamlit as st

from decoding.common.formats import duration, parameters, plural
from decoding.recorded import home_run, telling_iteration
from decoding.trace.records import IterationTrace, RunTrace
from pages.ui import PAGES
from pages.ui.common.errors import escape_markdown
from pages.ui.learn.tour import current_tour, show_step, start_tour
from pages.ui.scope.component import lone_tree
from pages.ui.widgets.controls import FASTEST, OURS, proof_link
from viz.explain.iteration import lost_node
from viz.scope.panels import iteration_spans
from viz.theme import MARKS
from viz.tokens import visible

TREE_HEIGHT = 372
# The four steps and the phase of the tree shown with each; the draft is shown whole, pruned nodes marked.
STEPS: dict[str, str] = {"1 Draft": "prune", "2 Verify": "verify", "3 Accept": "select", "4 Commit": "commit"}
NEXT: dict[str, tuple[str, str]] = {
    "Learn": (":material/school:", "A guided tour, puzzles on real iterations, and a glossary."),
    "Step through": (
        ":material/footprint:",
        "Decode your own prompt and look into every iteration: tree, mask, cache, times.",
    ),
    "What if": (":material/call_split:", "Change one thing in one iteration, force a node, and compare both versions."),
    "Tune live": (":material/tune:", "Move a threshold and see the same prefix drafted and verified again."),
    "Verifiers": (":material/fact_check:", "Every verifier on one tree: exact values, re-rolled draws."),
    "Compare": (
        ":material/compare_arrows:",
        "Which method is fastest on your prompt, by how much, and how sure that is.",
    ),
    "Race": (":material/flag:", "Recorded runs side by side, slowed down so that you see which method wins."),
    "Train": (":material/model_training:", "Train a pair, a draft head or a selector, and watch its trees get better."),
    "Sweep": (":material/grid_on:", "Run every combination of settings, see what is best on this machine."),
    "Papers": (":material/library_books:", "The papers' tables and figures, re-run here and compared with theirs."),
    "Your engine": (
        ":material/dns:",
        "What your vLLM or SGLang log means, and whether speculation pays at your batch.",
    ),
}


def draw_introduction() -> None:
    """The idea in three sentences."""
    st.html(Path(__file__).with_suffix(".css"))
    words, tour = st.columns([6.4, 1], vertical_alignment="center")
    on, label = current_tour(), "Continue the tour" if current_tour() else "Take the tour"
    with tour:
        if st.button(label, key="home_tour", type="primary", icon=":material/tour:", width="stretch"):
            if on:
                show_step("Home")
            start_tour()
        with st.container(key="home_fastest"):
            st.page_link(PAGES["Compare"], label=FASTEST, icon=":material/speed:")
            proof_link()
    with words.container(key="home_title"):
        st.title("Several tokens from one pass of the large model", anchor=False)
        st.markdown(
            "A large language model writes one token per pass. In **tree speculative decoding** a small *draft* model "
            "guesses a tree of continuations, the large *target* model checks the whole tree in a single pass, and the "
            "branch it agrees with is accepted. Greedy text is "
            "exactly what the target alone would write; sampled text follows its distribution."
        )


def draw_iteration() -> None:
    """One recorded iteration: its tree in the chosen step, the four steps explained, and the text it added."""
    run = home_run()
    iteration = run.iterations[telling_iteration(run)]
    left, right = st.columns([1.9, 1], gap="medium")
    with left:
        step = st.segmented_control(
            "Step", list(STEPS), default="3 Accept", key="home_step", label_visibility="collapsed", required=True
        )
        phase = STEPS[step]
        with st.container(key="home_tree_area"):
            lone_tree(iteration, "home_tree", TREE_HEIGHT, f"home:{phase}", phase=phase)
    with right:
        lines = (
            f'<div class="home-step{" current" * (name == step)}"><b>{html.escape(name)}</b>{html.escape(words)}</div>'
            for name, words in _steps(iteration).items()
        )
        st.html("".join(lines))
    st.html(_text_html(run, iteration))


def draw_next() -> None:
    """Links to the other pages, and what was recorded."""
    for place, (label, (icon, words)) in zip(st.columns(len(NEXT), gap="xsmall"), NEXT.items(), strict=True):
        with place.container(border=True, key=f"home_next_{label}"):
            st.page_link(PAGES[label], label=f"**{label}**", icon=icon)
            st.caption(words)
    run = home_run()
    hardware = run.hardware
    st.caption(
        escape_markdown(
            f"From a real recorded run: {run.label} ({OURS}, with which Step through begins), "
            f"{run.pair.name} ({parameters(run.pair.target.parameters)} and "
            f"{parameters(run.pair.draft.parameters)} parameters), {hardware.get('processor', '')}, "
            f"{hardware.get('threads', '?')} threads, torch {hardware.get('torch', '?')}, {run.created[:10]}."
        )
    )


def _steps(iteration: IterationTrace) -> dict[str, str]:
    """The four steps explained, with this iteration's numbers."""
    times, cache = iteration.times, iteration.kv_target
    passes, drafted = plural(iteration.draft_forwards, "pass", "passes"), plural(iteration.drafted, "node")
    accepted = visible("".join(iteration.nodes[node].text for node in iteration.accepted))
    final, committed = visible(iteration.final_text or ""), plural(len(iteration.committed_ids), "token")
    gained = "is added for free" if lost_node(iteration) is None else "follows; it had been drafted, then pruned"
    return {
        "1 Draft": f"In {passes} ({duration(times.draft_s)}) the draft grows {drafted} below the last token, wider "
        f"where it is unsure. {iteration.drafted - iteration.verified} unlikely nodes are pruned.",
        "2 Verify": f"The target reads the other {iteration.verified} in one pass ({duration(times.verify_s)}). "
        "A mask lets each node see only the text and its own ancestors.",
        "3 Accept": f"Where both models agree, tokens are accepted: {len(iteration.accepted)} of them, ‘{accepted}’. "
        f"Where they differ, the target's own token ‘{final}’ {gained}.",
        "4 Commit": f"{committed} for one pass. {len(cache.moved_from)} of {cache.slots_written} new key/value slots "
        f"are kept: root and {len(iteration.accepted)} accepted nodes. ‘{final}’ gets one in the next pass, as root.",
    }


def _text_html(run: RunTrace, iteration: IterationTrace) -> str:
    """The end of the text before the iteration and what it added, underlined in the colours of the tree."""
    tail = "".join(run.texts_before(iteration.index))[-110:].replace("\n", " ")
    spans = [f'<span class="prompt">…{html.escape(tail)}</span>']
    for span in iteration_spans(iteration, True):
        color = MARKS["accepted" if span.provenance == "drafted" else span.provenance].color
        spans.append(f'<span class="now" style="border-color:{color}">{html.escape(span.shown)}</span>')
    key = "Next to each token of the tree: the draft's probability → the target's. ‘·’ is a space."
    return f'<div class="home-text">{"".join(spans)}</div><div class="home-key">{key}</div>'
