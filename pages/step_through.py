"""Step through: one run, one iteration at a time, one phase at a time."""

import streamlit as st

from decoding.common.errors import NEEDS_TORCH
from decoding.common.formats import listed
from decoding.recorded import home_run, telling_iteration
from pages.ui import PAGES, ROOT
from pages.ui.app.address import SAID, arrive, forget_message, go_there, keep_address, link_here, restore
from pages.ui.app.file_menu import file_menu, file_messages
from pages.ui.app.setup import setup
from pages.ui.common.errors import escape_markdown, load_torch, torch_there, why_not
from pages.ui.common.state import (
    Run,
    RunRequest,
    current_run,
    decode_asked,
    decode_more,
    keep_run,
    selected_iteration,
    selected_node,
)
from pages.ui.common.worker import ModelTask, is_busy, job_error, job_progress, start_job, take_result
from pages.ui.explain.action import draw_action
from pages.ui.explain.hindsight import draw_luck, draw_possible
from pages.ui.explain.reasons import draw_reasons
from pages.ui.scope.run import as_text, draw_charts, draw_scope
from pages.ui.sweep.filled import open_for_run
from pages.ui.what_if.branches import ask_what_if
from pages.ui.widgets import controls, prompts
from pages.ui.widgets.contestants import COMPARE, include
from pages.ui.widgets.costs import draw_warning, own_costs, slow_words
from viz.tokens import whole

SLOT = "step"
CHOICE = "Why this shape"  # only where a selector chose it
PARTS = {"Why": draw_reasons, CHOICE: draw_action, "Lucky or not": draw_luck, "What was possible": draw_possible}
HELP = {
    "Why": "Why the node or token selected above was accepted or not, with the numbers of this run.",
    "Lucky or not": "The tokens committed in this iteration, compared with the verifier's average over its draws.",
    "What was possible": "The best tree and the best budget in hindsight, and what the run lost compared with them.",
    CHOICE: "What the selector saw before the tree was drafted, and what it expects of every shape: a trunk of L₁ "
    "tokens, then K paths of L₂ tokens each. Where K is 1 or L₂ is 0 the shape is a chain of L₁ + L₂ tokens.",
}
MORE = ((1, "one_more", "Step"), (10, "ten_more", "+10"), (None, "to_end", "To the end"))


def main() -> None:
    """Toolbar, scope, charts."""
    setup("Step through")
    load_torch()
    restore(SLOT)
    result = take_result(SLOT)  # finished by the worker since the page was last drawn
    if isinstance(result, tuple):
        arrive(*result)
    elif result is not None and result.trace.iterations:
        result.origin = again_words(current_run(), result) or result.origin
        keep_run(result, len(result.trace.iterations) - 1)
    if current_run() is None:
        recorded = home_run()
        keep_run(Run(recorded, "recorded"), telling_iteration(recorded))
    with st.container(key="toolbar", horizontal=True, vertical_alignment="center", gap="xsmall"):
        asked = to_decode()
        more_buttons(asked)
        what_if_button()
        fastest_button(asked)
        if torch_there():
            controls.other_default("method")  # behind the others: it comes and goes with the method
        changed = "" if is_busy(SLOT) or asked is None else not_yet_run(current_run(), asked)
        with st.container(key="status"):
            if not job_progress(SLOT):
                st.caption(escape_markdown(status_words(current_run(), changed)))
        slow_note(current_run())
        link = link_here(asked)
        file_menu(link)
    with st.container(key="messages"):  # always present, or the scope below would remount
        if st.session_state.get(SAID):
            st.warning(escape_markdown(st.session_state[SAID]), icon=":material/link_off:")
        file_messages()
        if current_run().origin:
            st.caption(f":material/replay: {escape_markdown(current_run().origin)}")
        job_error(SLOT)
    run = current_run()
    if not run.trace.iterations:
        st.info("Nothing has been decoded yet: press Start.", icon=":material/play_arrow:")
    else:
        draw_scope(run)
        if run.trace.iterations[selected_iteration()].nodes:
            with st.container(key="why", border=True):
                draw_why(run)
        as_text(run)
        draw_charts(run, open_for_run)
    if not is_busy(SLOT):
        keep_address(link)


def to_decode() -> RunRequest | None:
    """The settings and the button that decodes them; None where they contradict one another or torch is missing."""
    if not torch_there():
        st.button("Start", type="primary", key="start", disabled=True, icon=":material/play_arrow:", help=NEEDS_TORCH)
        return None
    # What the popovers hold is read from the session: their contents are drawn only while they are open.
    prompt, sampling, tokens = prompts.picked_prompt(), controls.picked_sampling(), controls.picked_length()
    words = escape_markdown(prompts.prompt_title(prompt))
    place = controls.settings_popover(words, "prompt_open", ":material/edit_note:")
    if place.open:
        with place, st.container(width=460):
            prompts.prompt_picker()
            controls.length_control()
    controls.seed_method("method")
    words = controls.method_words("method")
    if not sampling.greedy:
        words += f" · {controls.sampling_words(sampling)}"
    place = controls.settings_popover(escape_markdown(words), "method_open", ":material/tune:")
    if place.open:
        with place, st.container(key="settings_panel"):
            head = st.container()
            controls.sampling_controls("sampling", columns=2)
            method = controls.method_picker("method", sampling, head)
            controls.reset_button("method")
    else:
        method = controls.picked_method("method", sampling)
    asked = method and RunRequest(prompt, method, sampling, tokens)
    go_there(asked, SLOT)
    ready = asked is not None and not is_busy(SLOT)
    # Values are read here: a callback would see older ones.
    kind = "secondary" if asked is not None and goes_on(current_run(), asked) else "primary"
    if st.button("Start", type=kind, key="start", disabled=not ready, icon=":material/play_arrow:"):
        forget_message()
        start_job(SLOT, "First iteration", lambda job: decode_asked(asked, 1, job))
        st.rerun()
    return asked


def more_buttons(asked: RunRequest | None) -> None:
    """Buttons that continue the run; a recorded one ends where it was recorded."""
    run = current_run()
    if run.source == "recorded":
        return
    for count, key, label in MORE:
        st.button(
            label,
            key=key,
            type="primary" if key == "one_more" and asked is not None and goes_on(run, asked) else "secondary",
            disabled=is_busy(SLOT) or not run.can_continue,
            help=more_help(run, count),
            on_click=decode,
            args=(count,),
        )


def decode(count: int | None) -> None:
    """Decode `count` more iterations of the run on screen in the worker."""
    run = current_run()
    forget_message()

    def more(job: ModelTask) -> Run:
        decode_more(run, count, job)
        return run

    start_job(SLOT, "Next iteration" if count == 1 else "Decoding", more)


def slow_note(run: Run) -> None:
    """That other work disturbed the times, where it did: in the toolbar, so that nothing below it moves."""
    if not is_busy(SLOT) and (said := slow_words(run.trace.iterations, own_costs(run))):
        with st.popover("Slow", key="slow_open", icon=":material/warning:"), st.container(width=420):
            draw_warning(said, SLOT, run.trace.draft_head)


def what_if_button() -> None:
    """Go to What if, with the selected iteration and node."""
    if st.button(
        "What if",
        key="what_if_from_here",
        disabled=not (current_run().trace.iterations and torch_there()),
        help=why_not("Change one thing in this iteration and see both versions side by side on What if"),
    ):
        ask_what_if(selected_iteration(), selected_node())
        st.switch_page("pages/what_if.py", query_params={})


def status_words(run: Run, changed: str) -> str:
    """What is wrong with the settings, or what is on screen, in one line; `changed`: what is not run yet."""
    contradiction = st.session_state.get(controls.error_key("method"))
    if contradiction is not None:
        return str(contradiction)
    words = {
        "recorded": "A recorded run.",
        "opened": f"Opened from a file: {run.trace.pair.name}, {run.trace.created[:10]}",
        "forked": "A branch from What if",
    }.get(run.source, "")
    if changed:
        return f"{changed} {words}".strip()
    if run.source == "recorded":
        return f"{words} {'Start decodes one of your own.' if torch_there() else NEEDS_TORCH}"
    if words:
        return words
    totals = run.trace.totals
    ends = {"length": "length limit", "end_of_text": "end of text"}.get(totals.stopped)
    return (
        f"{totals.new_tokens} tokens · {ends}" if ends else f"{totals.new_tokens} of {run.trace.max_new_tokens} tokens"
    )


def again_words(before: Run | None, run: Run) -> str:
    """Whether a run that was started again with the same choices has the same tokens; empty where it was not."""
    if before is None or before is run or before.asked is None:
        return ""
    if (before.asked, before.trace.pair) != (run.asked, run.trace.pair):
        return ""
    count = min(len(before.trace.output_ids), len(run.trace.output_ids))
    same = before.trace.output_ids[:count] == run.trace.output_ids[:count]
    seed = "" if run.asked.sampling.greedy else f" and seed {run.asked.sampling.seed}"
    said = f"Started again with the same settings{seed}"
    if same and seed:
        return f"{said}: the same draws, so the same tokens come out. Another seed draws others."
    if same:
        return f"{said}: greedy decoding gives the same tokens."
    return f"{said}, but the trees differ, so the draws of the seed fell on other tokens." if seed else ""


def goes_on(run: Run, asked: RunRequest) -> bool:
    """Whether the next thing to do is to go on with the run on screen, whose choices are those above."""
    return run.source == "decoded" and run.can_continue and not not_yet_run(run, asked)


def not_yet_run(run: Run, asked: RunRequest) -> str:
    """Which choices above are not those that a run was decoded with; empty where all are."""
    trace, prompt, shown = run.trace, asked.prompt, run.asked
    method = "settings" if trace.method == asked.method.name else "method"
    if shown is not None:
        same = {
            "prompt": (shown.prompt.text, shown.prompt.chat) == (prompt.text, prompt.chat),
            method: shown.method == asked.method,
            "sampling": shown.sampling == asked.sampling,
            "length": shown.max_new_tokens == asked.max_new_tokens,
        }
    else:
        text = whole("".join(trace.prompt_texts))
        same = {
            "prompt": prompt.text in text if prompt.chat else text.endswith(prompt.text) and prompt.text != "",
            method: (trace.method, trace.settings) == (asked.method.name, asked.method.settings()),
            "sampling": all(
                getattr(trace.sampling, name) == getattr(asked.sampling, name) for name in controls.SAMPLING
            ),
        }
    changed = [name for name, kept in same.items() if not kept]
    return f"Not run yet: {listed(changed)}. Press Start." if changed else ""


def fastest_button(asked: RunRequest | None) -> None:
    """Leads to Compare, where the method chosen here takes part."""
    if asked is not None and st.button(
        "Fastest?",
        key="fastest",
        help=f"{controls.FASTEST} Compare measures several methods in turn on this prompt, this one among them.",
    ):
        include(COMPARE, asked.method)
        st.switch_page(PAGES["Compare"], query_params={})


@st.fragment
def draw_why(run: Run) -> None:
    """Why the selected iteration went as it did; a fragment, so that a click in it does not redraw the scope."""
    asked = any(iteration.selector is not None for iteration in run.trace.iterations)
    parts = [part for part in PARTS if asked or part != CHOICE]
    if st.session_state.get("why_shown") not in parts:
        st.session_state["why_shown"] = parts[0]
    st.html(ROOT / "pages/ui/explain/why.css")
    shown = st.segmented_control(
        "About this iteration", parts, key="why_shown", required=True, label_visibility="collapsed",
        persist_state="session",
    )  # fmt: skip
    st.caption(f"Iteration {selected_iteration() + 1}. {HELP[shown]}")
    with st.container(key="why_part"):
        PARTS[shown](run)


def more_help(run: Run, count: int | None) -> str:
    """What a button does, or why it is disabled."""
    if run.session is None:
        forked = "This branch was replayed: continue it on What if."
        recorded = "This run was recorded earlier and has no models loaded: press Start for a run of your own."
        return forked if run.source == "forked" else recorded
    if not run.has_models:
        return "The models of this run are no longer in memory: press Start."
    if run.session.finished:
        return "This run has ended: press Start for a new one."
    return {1: "Decode one more iteration", None: "Decode until the text ends"}.get(count, f"Decode {count} iterations")


main()
