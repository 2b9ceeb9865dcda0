"""The runs behind a point of a chart or a table row, decoded again: one of them to step through, and what is typical of
the best configuration, to write it as that of an inference engine, and of the best chain, as some verify no trees.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import streamlit as st

from decoding.analysis.bottom_line import paired
from decoding.common.errors import NEEDS_TORCH
from decoding.common.formats import plural
from decoding.experiments.estimates import Ranked
from decoding.experiments.experiment import ExperimentWatcher, begin_again, kept_output, same_text
from decoding.papers.paper_result import SPEEDUP
from decoding.trace.engine_limits import MeasuredChain
from decoding.trace.records import RunTrace
from pages.ui.app.address import take_over
from pages.ui.common.errors import escape_markdown, torch_there
from pages.ui.common.models import manager
from pages.ui.common.state import ROW_BYTES, PromptChoice, Run, RunRequest, decode_more, keep_run
from pages.ui.common.worker import ModelTask, is_busy, job_bar, start_job, take_result
from pages.ui.engine.config import HELP, ICON, LABEL, engine_dialog, measured_chain
from pages.ui.sweep.sentences import FIGURES, base_label
from pages.ui.widgets.prompts import OWN_TEXT
from viz.charts.sweeps import Measure, value_words

if TYPE_CHECKING:
    from decoding.common.prompts import Prompt
    from decoding.session.session import DecodeSession

SLOT, ENGINE_SLOT = "sweep_open", "sweep_engine"
DECODES = "Rows of a sweep have no acceptance by depth, so its most typical run is decoded again."


def goes_past_end(followed: ExperimentWatcher) -> bool:
    """Whether the runs of an experiment went on behind the end of the text; the page asks, for `asked` changes."""
    return bool(followed.asked.get("ignore_end_of_text", True))


def decode_again(job: ModelTask, row: Mapping[str, Any], folder: Path, past_end: bool) -> Run:
    """Decode the run of a table row of the experiment in a folder again; call it in the worker.

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


def table_height(rows: int) -> int:
    """Pixels of a table that shows its first rows, and scrolls to the others."""
    return ROW_PX * (min(rows, SHOWN) + 1) + 3


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
                again = dict(row), followed.folder, goes_past_end(followed)
                start_job(SLOT, "Decoding this run again", lambda job: decode_again(job, *again))
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
        height=table_height(len(runs)), alt=f"The runs of {label}.",
        column_config={
            each.words: st.column_config.NumberColumn(format=f"%.{each.digits}f")
            for each in FIGURES.values()
        },
    )  # fmt: skip
    rows = state["selection"]["rows"]
    return rows[0] if rows and rows[0] < len(runs) else 0


def draw_engine_button(followed: ExperimentWatcher, runs: pd.DataFrame, found: Sequence[Ranked], best: str) -> None:
    """A button that decodes the best way, and the best chain if that is another, for `show_decoded`.

    Args:
        found: ways ranked by their speed. best: label of one of them.
    """
    ready = torch_there() and not is_busy(ENGINE_SLOT)
    help_words = f"{HELP}. {DECODES if torch_there() else NEEDS_TORCH}"
    if not st.button(LABEL, key=ENGINE_SLOT, icon=ICON, disabled=not ready, help=help_words):
        return
    first = next(each for each in found if each.label == best)
    where = followed.folder, goes_past_end(followed)

    def decode(job: ModelTask) -> tuple[RunTrace, MeasuredChain | None]:
        return decoded_again(lambda row: decode_again(job, row, *where).trace, runs, found, first)

    start_job(ENGINE_SLOT, "Decoding the best again", decode)
    st.rerun()


def decoded_again(
    decode: Callable[[Mapping[str, Any]], RunTrace], runs: pd.DataFrame, found: Sequence[Ranked], first: Ranked
) -> tuple[RunTrace, MeasuredChain | None]:
    """A way's typical run, and that of the fastest chain with its speed over the way's; None if the way drafts chains.

    Args:
        decode: decodes the run of a row.
    """
    run = decode(typical(runs, first))
    chains = [each for each in found if _drafts_chains(runs, each)]
    if first in chains or not chains:
        return run, None
    speeds = [{(prompt, 0): value for prompt, value in enumerate(each.values)} for each in (chains[0], first)]
    return run, measured_chain(chains[0].label, decode(typical(runs, chains[0])), paired(*speeds))


def typical(runs: pd.DataFrame, way: Ranked) -> Mapping[str, Any]:
    """The run of a way whose speed is nearest to its mean."""
    own = runs[runs["way"] == way.way]
    column = own[SPEEDUP.column]
    return own.loc[(column - column.mean()).abs().idxmin()].to_dict()


def _drafts_chains(runs: pd.DataFrame, way: Ranked) -> bool:
    """Whether a way drafts one chain per pass."""
    from decoding.methods.methods import METHODS

    name = runs.loc[runs["way"] == way.way, "method"].iloc[0]
    return name in METHODS and METHODS[name].drafter.drafts and METHODS[name].drafter.breadth == "chain"


def show_decoded() -> None:
    """Progress of the decoding, or its error; the dialog when it is done."""
    found = take_result(ENGINE_SLOT)
    with st.container(key="sweep_engine_decoding"):
        job_bar(ENGINE_SLOT)
    if found is not None:
        engine_dialog(*found)
