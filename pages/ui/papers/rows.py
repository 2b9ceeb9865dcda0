"""The results shown on the page Papers, separate for each pair and machine, and the judgement of a paper result."""

import math
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import streamlit as st

from decoding.common.errors import ExperimentError
from decoding.experiments.experiment import all_experiments, experiments_home
from decoding.experiments.rows import FOLDER, PARTS, all_rows
from decoding.papers import PAPER_RESULTS, stored
from decoding.papers.judge import Reproduction, grid_name, judge
from decoding.papers.paper_result import PaperResult
from decoding.papers.rows import family_of
from decoding.trace.metrics import Counting

# The last judgement by paper result, source and way of counting, with the stamps of its files; shared by all sessions.
JUDGED: dict[tuple[str, str | None, str], tuple[tuple, Reproduction, ExperimentError | None]] = {}
# Column: pair, with the widened one whose passes give the times, and machine, and whether the user ran them. None are
# mixed: machines of one name differ, too.
SOURCE = "source"
Stamps = tuple[tuple[str, int], ...]  # files with their modification times


@dataclass(frozen=True)
class StoredResults:
    """The results of one folder.

    Attributes:
        own: whether they are the user's, not shipped ones.
        names: of their grids.
        error: why they cannot be read; then there are none.
    """

    rows: pd.DataFrame
    folder: str
    stamps: Stamps
    own: bool
    names: frozenset[str] = frozenset()
    error: ExperimentError | None = None


@dataclass(frozen=True)
class Judgement:
    """A paper result as shown.

    Attributes:
        sources: pairs on machines with results for it, the newest first. source: the one shown.
        rows: results of its grid and that source, loops and failures included.
        error: why the stored benchmark results cannot be read.
    """

    outcome: Reproduction
    sources: tuple[str, ...]
    source: str | None
    rows: pd.DataFrame
    error: ExperimentError | None = None


def kept_rows() -> list[StoredResults]:
    """The results of all experiments; a folder is read again when its files change."""
    found = []
    for folder in all_experiments():
        stamps, own = _stamps(folder / FOLDER, PARTS), folder.parent == experiments_home()
        kept = _read(str(folder), stamps, own)
        if kept.error is not None and (later := _stamps(folder / FOLDER, PARTS)) != stamps:  # files were just merged
            kept = _read(str(folder), later, own)
        found.append(kept)
    return found


def stamps_now() -> tuple[Stamps, ...]:
    """Stamps that show whether results have arrived."""
    return tuple(_stamps(folder / FOLDER, PARTS) for folder in all_experiments())


def judgement(
    paper_result: PaperResult, kept: Iterable[StoredResults], source: str | None = None, until_s: float = math.inf,
    counting: Counting = "whole",
) -> Judgement | None:  # fmt: skip
    """The judgement of a paper result from the results of one source.

    Args:
        source: pair and machine; the one with the newest results if it has none or is None.
        until_s: on `time.monotonic()`; gives None if not judged by then.
    """
    sources: dict[str, pd.DataFrame] = {}  # the newest first
    if paper_result.stored:
        stamps = tuple((str(file), file.stat().st_mtime_ns) for file in stored.record_files(paper_result.stored))
    else:
        name = grid_name(paper_result.grid)
        mine = [each for each in kept if name in each.names]
        stamps = tuple((each.folder, each.stamps) for each in mine)
        sources = _apart(name, stamps, mine) if mine else {}
    source = source if source in sources else next(iter(sources), None)
    rows = sources[source] if source is not None else _no_rows()
    counted = "no text" if paper_result.masks else counting
    known = JUDGED.get((paper_result.key, source, counted))
    if known is None or known[0] != stamps:
        if time.monotonic() >= until_s:
            return None
        try:
            known = stamps, judge(paper_result, rows, counting), None
        except ExperimentError as error:
            known = stamps, Reproduction(paper_result, (), {}, {}, (), (), counted), error
        JUDGED[paper_result.key, source, counted] = known
    return Judgement(known[1], tuple(sources), source, rows, known[2])


def known_outcomes(
    kept: list[StoredResults], chosen: Mapping[str, str | None], budget_s: float, counting: Counting = "whole"
) -> dict[str, Reproduction]:
    """The outcomes of all paper results by key, as far as known or judged within a time.

    Args:
        chosen: the source shown, by paper result.
    """
    until_s = time.monotonic() + budget_s
    found = {each.key: judgement(each, kept, chosen.get(each.key), until_s, counting) for each in PAPER_RESULTS}
    return {key: each.outcome for key, each in found.items() if each is not None}


@st.cache_resource(max_entries=32, show_spinner=False)
def _apart(name: str, stamps: tuple, _mine: list[StoredResults]) -> dict[str, pd.DataFrame]:
    rows = pd.concat([each.rows[each.rows["experiment"] == name] for each in _mine], ignore_index=True)
    rows = rows.drop_duplicates([SOURCE, "key"])
    newest = rows.groupby(SOURCE)["started"].max().sort_values(ascending=False).index
    return {source: rows[rows[SOURCE] == source] for source in newest}


@st.cache_resource(max_entries=24, show_spinner=False)
def _read(folder: str, stamps: Stamps, own: bool) -> StoredResults:
    try:
        rows = all_rows([Path(folder)])
    except ExperimentError as error:
        return StoredResults(_no_rows(), folder, stamps, own, error=error)
    rows = rows.assign(**{SOURCE: family_of(rows) + (" · run here" if own else "")})
    return StoredResults(rows, folder, stamps, own, frozenset(rows["experiment"]))


@st.cache_resource(show_spinner=False)
def _no_rows() -> pd.DataFrame:
    return all_rows([])


def _stamps(folder: Path, names: str) -> Stamps:
    found = []
    for file in sorted(folder.glob(names)):
        with suppress(FileNotFoundError):  # just merged with others
            found.append((file.name, file.stat().st_mtime_ns))
    return tuple(found)
