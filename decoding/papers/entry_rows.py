"""Rows of an entry of a table or figure: its contestant, the values it must have, the best of several settings."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from decoding.experiments.estimates import without_fitted
from decoding.papers.paper_result import Entry, PaperResult


def rows_of(way: Entry, rows: pd.DataFrame, paper_result: PaperResult) -> pd.DataFrame:
    """Rows of the same contestant; at a temperature, a lossless verifier may have replaced greedy."""
    rows = having(rows, paper_result.only)
    if not len(rows):
        return rows
    if not (way.best or way.where):
        return rows[rows["line"].map(without_fitted) == way.line]
    name, _, verifier = way.line.partition(":verifier=")
    alike = having(rows[rows["method"] == name], {"settings.verifier": verifier} if verifier else {})
    alike = having(alike, way.where)
    if not (way.best and len(alike)):
        return alike
    groups = ["temperature", "top_p", *([paper_result.by] if paper_result.by else [])]
    column, best = paper_result.figures[0].column, np.zeros(len(alike), bool)
    narrow = alike[["sample", *way.best, column]]
    for places in alike.groupby(groups, dropna=False).indices.values():
        best[places] = _best(narrow.iloc[places], way.best, column)
    return alike[best]


def having(rows: pd.DataFrame, wanted: Mapping[str, object], known: bool = False) -> pd.DataFrame:
    """The rows that have the wanted values; none where a column is missing, unless only `known` ones count."""
    for column, value in wanted.items():
        if column in rows or not known:
            rows = rows[rows[column] == value] if column in rows else rows[:0]
    return rows


def _best(rows: pd.DataFrame, settings: tuple[str, ...], column: str) -> np.ndarray:
    """Which rows count, `[num_rows]`: for every prompt, the settings with the highest mean on the other prompts.

    Chosen on the prompts it is then measured on, the best of many would look better than it is.
    """
    values = rows[column].to_numpy(dtype=float)
    known = ~np.isnan(values)
    if not known.any():
        return known
    way, prompt = rows.groupby(list(settings)).ngroup().to_numpy(), rows.groupby("sample").ngroup().to_numpy()
    sums, counts = np.zeros((prompt.max() + 1, way.max() + 1)), np.zeros((prompt.max() + 1, way.max() + 1))
    np.add.at(sums, (prompt[known], way[known]), values[known])
    np.add.at(counts, (prompt[known], way[known]), 1)
    if (counts.sum(1) > 0).sum() > 1:
        sums, counts = sums.sum(0) - sums, counts.sum(0) - counts
    means = np.divide(sums, counts, out=np.full_like(sums, -np.inf), where=counts > 0)
    return known & (means.argmax(1)[prompt] == way)
