"""Which results are compared: those of one pair, machine and text, and in them the rows of a paper's entry."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from decoding.experiments.estimates import PROMPT, without_fitted
from decoding.models.embedded import EMBEDDED_NAME, embedded_weights
from decoding.papers.paper_result import Entry, PaperResult

WIDE = ", target 4× as wide"  # after the name of a pair: of its passes the target's take most of the time


class Source(NamedTuple):
    """Results that may be compared; `elsewhere` names others of the same grid that may not be mixed with them."""

    rows: pd.DataFrame
    elsewhere: tuple[str, ...] = ()


def family_of(rows: pd.DataFrame) -> pd.Series:
    """Pair and machine of every result, where a pair and its widened one are one.

    The embedded pair is another one with other weights than it comes with, whatever its width.
    """
    pairs = rows["pair"].str.removesuffix(WIDE)
    if "weights" in rows:
        earlier = pairs.str.startswith(EMBEDDED_NAME) & rows["weights"].ne(embedded_weights())
        pairs = pairs.where(~earlier, pairs + ", earlier weights")
    return pairs + " on " + rows["machine"]


def separated(rows: pd.DataFrame) -> list[Source]:
    """Results by pair, machine and set of prompts, those with the newest row first; one without rows if there are none.

    Of a prompt whose text was replaced, the newest text counts, by its hash; rows of a version that stored none are of
    a text of their own.
    """
    if not len(rows):
        return [Source(rows)]
    families = family_of(rows)
    newest = rows.groupby([families, rows["prompt_set"]])["started"].max().sort_values(ascending=False).index.tolist()
    found = []
    for family, texts in newest:
        kept, older = _newest_texts(rows[(families == family) & (rows["prompt_set"] == texts)])
        others = sorted({each for each, _ in newest if each != family})
        sets = [f"texts of {other}" for each, other in newest if each == family and other != texts]
        found.append(Source(kept, (*others, *sets, *([f"other texts of {', '.join(older)}"] if older else []))))
    return found


def _newest_texts(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The rows of the newest text of every prompt, and the names of prompts that have rows of other texts."""
    if "text_hash" not in rows:
        return rows, []
    rows = rows.reset_index(drop=True)
    hashes, prompts = rows["text_hash"].fillna(""), rows.groupby(PROMPT, dropna=False).ngroup()
    newest = hashes[rows["started"].sort_values(kind="stable").index].groupby(prompts).transform("last")
    same = hashes.eq(newest)
    others = rows.loc[~same, ["kind", "prompt"]].drop_duplicates()
    return rows[same], [f"{kind} {prompt}" for kind, prompt in others.itertuples(index=False)]


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
