"""The runs behind a point of a chart or a table row, and a button that decodes one of them again."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import streamlit as st

from decoding.common.errors import NEEDS_TORCH
from decoding.experiments.experiment import ExperimentWatcher, begin_again, kept_output, same_text
from pages.ui.app.address import take_over
from pages.ui.common.errors import escape_markdown, torch_there
from pages.ui.common.models import manager
from pages.ui.common.state import ROW_BYTES, PromptChoice, Run, RunRequest, decode_more, keep_run
from pages.ui.common.worker import ModelTask, is_busy, job_bar, start_job, take_result
from pages.ui.sweep.sentences import FIGURES, base_label
from pages.ui.widgets.prompts import OWN_TEXT
from viz.charts.sweeps import Measure, value_words
from viz.formats import plural

if TYPE_CHECKING:
    from decoding.common.prompts import Prompt
    from decoding.session.session import DecodeSession

SLOT = "sweep_open"


def decode_again(job: ModelTask, row: Mapping[str, Any], folder: Path, past_end: bool) -> Run:
    """Decode the run of a table row again; call it in the worker.

    Args:
        folder: of the experiment. past_end: whether it decoded past the stop tokens.

    Raises:
        DraftscopeError: another pair is in memory, or its prompt is not available.
    """
    from decoding.session.session import Limits

    models = manager()
    job.report(0, 0, "" if models.loaded else "loading the models, a few seconds")
    limits = Limits(int(row["asked_tokens"]), past_end, rows="full", row_bytes=ROW_BYTES)
    session, prompt = begin_again(models.pair(), row, limits)
    run = Run(session.trace(), session=session, asked=_asked(session, prompt, row))
    decode_more(run, None, job)
    same = same_text(kept_output(folder, row["key"]), session.tokens[len(session.prompt_ids) :])
    run.origin = f"A run of the sweep {row['experiment']}, decoded again: {same}; times are from this decoding."
    return run


def show_opened() -> None:
    """Progress of a run being decoded again, or its error; opens Step through when it is done."""
    run = take_result(SLOT)
    if isinstance(run, Run) and run.trace.iterations:
        keep_run(run)
        if run.asked is not None:
            take_over(run.asked)
        st.switch_page("pages/step_through.py", query_params={})
    with st.container(key="sweep_opening"):
        job_bar(SLOT)


def _asked(session: "DecodeSession", prompt: "Prompt", row: Mapping[str, Any]) -> RunRequest | None:
    """The request that reproduces the run in Step through; None where its widgets cannot express it."""
    vocabulary, chat = session.pair.vocabulary, bool(session.pair.vocabulary.chat)
    choice = PromptChoice(f"{prompt.kind}/{prompt.name}", prompt.text, chat)
    whole = vocabulary.encode_chat(prompt.text) if chat else vocabulary.encode(prompt.text)
    if tuple(whole) != session.prompt_ids:
        choice = PromptChoice(OWN_TEXT, vocabulary.decode(session.prompt_ids))
        if chat or tuple(vocabulary.encode(choice.text)) != session.prompt_ids:
            return None
    if "@" in str(row["line"]).partition(":")[0]:  # an engine other than that of the pair in memory
        return None
    return RunRequest(choice, session.method, session.sampling, session.limits.max_new_tokens)


PICKED = "sweep_picked"
MOST, ROW_PX, SHOWN = 200, 35, 4
# Columns that `run_words` reads.
RUN_WORDS = ["label", "kind", "prompt", "cut", "asked_tokens", "temperature", "top_p", "draft_temperature", "seed",
             "repeat"]  # fmt: skip


def pick(followed: ExperimentWatcher, where: Mapping[str, Any] | None, words: str = "") -> None:
    """Select the runs with these values, as the charts report them; None clears the selection."""
    st.session_state[PICKED] = None if where is None else (followed.folder, dict(where), words)


def picked_runs(followed: ExperimentWatcher, runs: pd.DataFrame) -> tuple[pd.DataFrame, str] | None:
    """The selected runs, and the selection as text."""
    kept = st.session_state.get(PICKED)
    if kept is None or kept[0] != followed.folder:
        return None
    _, where, words = kept
    for column, value in where.items():
        if column not in runs:
            return None
        runs = runs[[value in (each, value_words(each)) for each in runs[column].tolist()]]
    return (runs, words) if len(runs) else None


def draw_picked(followed: ExperimentWatcher, runs: pd.DataFrame, measure: Measure) -> None:
    """The chosen runs, the most typical first, and a button that opens one in Step through."""
    found = picked_runs(followed, runs)
    if found is None:
        st.caption("Click a point of a chart or a table row to see its runs and to open one in Step through.")
        return
    chosen, words = found
    column = measure.column
    typical = (chosen[column] - chosen[column].mean()).abs()
    count = len(chosen)
    chosen = chosen.assign(_typical=typical).sort_values("_typical", kind="stable").head(MOST).reset_index(drop=True)
    with st.container(border=True, key="sweep_part_picked"):
        row = chosen.iloc[_draw_runs(followed, chosen, count, words, measure)]
        refusal = f"The run has to be decoded again. {NEEDS_TORCH}"
        if torch_there():
            from decoding.methods.methods import METHODS

            outside = "Hugging Face's own loop records no draft tree, so there is nothing to step through."
            refusal = "" if row["method"] in METHODS else outside
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            if st.button(
                "Open in Step through", key="sweep_open", type="primary", icon=":material/footprint:",
                disabled=bool(refusal) or is_busy(SLOT), help=escape_markdown(refusal),
            ):  # fmt: skip
                kept, folder = dict(row), followed.folder
                past_end = bool(followed.asked.get("ignore_end_of_text", True))
                start_job(SLOT, "Decoding this run again", lambda job: decode_again(job, kept, folder, past_end))
                st.rerun()
            if st.button("Close", key="sweep_close", icon=":material/close:"):
                pick(followed, None)
                st.rerun()
            st.caption(escape_markdown(f"{run_words(row)}. It is decoded again with the same settings and seed."))


def run_words(row: Mapping[str, Any]) -> str:
    """One run as text: method, prompt, sampling."""
    parts = [f"{row['label']} on {row['kind']}/{row['prompt']}", f"{row['asked_tokens']} new tokens"]
    if row["cut"]:
        parts[0] += f" cut to {row['cut']} tokens"
    if row["temperature"] == 0:
        parts.append("greedy")
    else:
        parts += [f"T {row['temperature']:g}", *([f"top-p {row['top_p']:g}"] if row["top_p"] < 1 else [])]
        parts.append(f"seed {row['seed']}")
    if row["draft_temperature"] != 1:
        parts.append(f"draft T {row['draft_temperature']:g}")
    return ", ".join([*parts, *([f"repeat {row['repeat'] + 1}"] if row["repeat"] else [])])


def _draw_runs(followed: ExperimentWatcher, runs: pd.DataFrame, count: int, words: str, measure: Measure) -> int:
    """The table of the first runs out of `count`; returns the index of the selected one."""
    label = words or base_label(str(runs["base"].iloc[0]))
    st.markdown(
        f"**{plural(count, 'run')}** · {escape_markdown(label)}" + (f", the first {MOST}" if count > MOST else ""),
        help=f"Runs whose {escape_markdown(measure.words)} is nearest to the mean come first.",
    )
    columns = {"Prompt": runs["kind"] + "/" + runs["prompt"]}
    if runs["way"].nunique() > 1:
        columns = {"Method": runs["label"], **columns}
    for name, title in (("asked_tokens", "New tokens"), ("cut", "Cut to"), ("temperature", "T"), ("top_p", "Top-p"),
                        ("draft_temperature", "Draft T"), ("seed", "Seed"), ("repeat", "Repeat")):  # fmt: skip
        if runs[name].nunique() > 1:
            columns[title] = runs[name]
    for name in dict.fromkeys([measure.column, "speedup", "tokens_per_iteration", "throughput"]):
        each = FIGURES[name]
        columns[each.words] = (runs[name].astype(float) * each.scale).round(each.digits)
    columns["Tokens counted"] = runs["new_tokens"]
    state = st.dataframe(
        # Other runs give other table rows: the selection is cleared.
        pd.DataFrame(columns), key=f"sweep_runs_{followed.key}_{words}_{measure.column}_{count}",
        hide_index=True, on_select="rerun", selection_mode="single-row",
        height=ROW_PX * (min(len(runs), SHOWN) + 1) + 3, alt=f"The runs of {label}.",
        column_config={
            each.words: st.column_config.NumberColumn(format=f"%.{each.digits}f")
            for each in FIGURES.values()
        },
    )  # fmt: skip
    rows = state["selection"]["rows"]
    return rows[0] if rows and rows[0] < len(runs) else 0
