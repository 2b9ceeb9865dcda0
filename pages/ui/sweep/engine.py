"""A sweep's best configuration as that of an inference engine: its most typical run is decoded again for what the rows
lack, acceptance by depth, and so is that of the best chain, for engines that verify no trees.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from decoding.analysis.bottom_line import paired
from decoding.common.errors import NEEDS_TORCH
from decoding.experiments.estimates import Ranked
from decoding.experiments.experiment import ExperimentWatcher
from decoding.papers.paper_result import SPEEDUP
from decoding.trace.engine_limits import MeasuredChain
from decoding.trace.records import RunTrace
from pages.ui.common.errors import torch_there
from pages.ui.common.worker import ModelTask, is_busy, job_bar, start_job, take_result
from pages.ui.engine.config import HELP, ICON, LABEL, engine_dialog, measured_chain
from pages.ui.sweep.runs import decode_again

SLOT = "sweep_engine"
DECODES = "Rows of a sweep have no acceptance by depth, so its most typical run is decoded again."


def draw_engine_button(followed: ExperimentWatcher, runs: pd.DataFrame, found: Sequence[Ranked], best: str) -> None:
    """A button that decodes the best way, and the best chain if that is another, for `show_decoded`.

    Args:
        found: ways ranked by their speed. best: label of one of them.
    """
    ready = torch_there() and not is_busy(SLOT)
    help_words = f"{HELP}. {DECODES if torch_there() else NEEDS_TORCH}"
    if not st.button(LABEL, key=SLOT, icon=ICON, disabled=not ready, help=help_words):
        return
    first = next(each for each in found if each.label == best)
    folder, past_end = followed.folder, bool(followed.asked.get("ignore_end_of_text", True))

    def decode(job: ModelTask) -> tuple[RunTrace, MeasuredChain | None]:
        return decoded_again(lambda row: decode_again(job, row, folder, past_end).trace, runs, found, first)

    start_job(SLOT, "Decoding the best again", decode)
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
    found = take_result(SLOT)
    with st.container(key="sweep_engine_decoding"):
        job_bar(SLOT)
    if found is not None:
        engine_dialog(*found)
