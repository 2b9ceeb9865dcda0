"""Our rows for an exhibit: estimates with intervals over prompts, and whether the paper's orderings hold."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
import pandas as pd

from decoding.experiments.bootstrap import Estimate, estimate, ratio_gain
from decoding.experiments.homes import GRIDS
from decoding.experiments.rows import LOOP_FREE, MEASURED
from decoding.papers.exhibit import Exhibit, Figure, Ordering, Way
from decoding.papers.reasons import reason

Verdict = Literal["holds", "does not hold", "not decided here", "not run"]
Key = tuple[str, object]  # words of a way, value on the axis


@dataclass(frozen=True)
class Judged:
    """An ordering with what our rows say of it.

    Attributes:
        value: on the axis, where the exhibit has one.
        gain: by how much the better way is above the other on the same prompts, as a share; None where not run.
        paper: the same of the paper's numbers; None where it gives none.
        reason: one sentence on why it does not hold, from what was measured.
    """

    ordering: Ordering
    value: object
    gain: Estimate | None
    paper: float | None
    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True)
class Outcome:
    """What our rows say of an exhibit.

    Attributes:
        values: on the axis, ascending, those of the paper where nothing was run; one None for a table.
        ours: by way, value and column of a figure. runs: rows by way and value.
        where: pairs, machines and days of the rows.
    """

    exhibit: Exhibit
    values: tuple[object, ...]
    ours: Mapping[tuple[Key, str], Estimate]
    runs: Mapping[Key, int]
    judged: tuple[Judged, ...]
    where: tuple[str, ...]

    @property
    def run(self) -> bool:
        """Whether there is something to compare: rows of two ways, or of one at two values."""
        return len(self.runs) > 1


def judge(exhibit: Exhibit, rows: pd.DataFrame) -> Outcome:
    """What rows of an exhibit's grid say of it; looping text is left out, as it is everywhere.

    Args:
        rows: of `rows.RowStore.frame`, also of other grids.
    """
    mine = prepared(rows[rows["experiment"] == grid_name(exhibit.grid)])
    table = {way.words: _of_way(way, mine, exhibit) for way in exhibit.ways}
    values = _values(exhibit, table)
    ours, runs = {}, {}
    for way in exhibit.ways:
        for value in values:
            found = _at(table[way.words], exhibit, value)
            if not len(found):
                continue
            runs[way.words, value] = len(found)
            for figure in exhibit.figures:
                by_prompt = _by_prompt(found, figure)
                if len(by_prompt):
                    ours[(way.words, value), figure.column] = _scaled(estimate(by_prompt.to_numpy()), figure.scale)
    judged = tuple(_judged(exhibit, each, value, table) for each in exhibit.orderings for value in values)
    return Outcome(exhibit, values, ours, runs, judged, _where(pd.concat(table.values())) if runs else ())


@lru_cache(maxsize=64)
def grid_name(stem: str) -> str:
    """The name that the rows of a grid bear."""
    return tomllib.loads((GRIDS / f"{stem}.toml").read_text(encoding="utf-8"))["name"]


def prepared(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows without loops and failures, with what is made of several columns: `speedup` and others."""
    if not len(rows):
        return rows.assign(speedup=[], forwards_per_pass=[], committed_over_drafted=[])
    kept = rows[rows["failure"].isna() & rows[f"{LOOP_FREE}throughput"].notna()].copy()
    for name in MEASURED:
        kept[name] = kept[LOOP_FREE + name]
    plain = kept[kept["reference"]].set_index("block")["throughput"]
    kept["speedup"] = kept["throughput"] / kept["block"].map(plain[~plain.index.duplicated()])
    kept["forwards_per_pass"] = kept["draft_forwards"] / kept["iterations"]
    kept["committed_over_drafted"] = kept["new_tokens"] / kept["drafted"]  # the bonus token counts, as in DynaTree
    return kept


def _of_way(way: Way, rows: pd.DataFrame, exhibit: Exhibit) -> pd.DataFrame:
    """Rows of the same contestant; at a temperature a verifier that fits may stand in the place of greedy."""
    if not len(rows):
        return rows
    for column, value in exhibit.only.items():
        rows = rows[rows[column] == value]
    if not way.best:
        return rows[rows["line"].map(_without_fitted) == way.line]
    name, _, verifier = way.line.partition(":verifier=")
    alike = rows[rows["method"] == name]
    if verifier:
        alike = alike[alike["settings.verifier"] == verifier]
    groups = ["temperature", "top_p", *([exhibit.by] if exhibit.by else [])]
    return alike.groupby(groups, group_keys=False)[alike.columns].apply(_best, way.best, exhibit.figures[0].column)


def _best(rows: pd.DataFrame, settings: tuple[str, ...], column: str) -> pd.DataFrame:
    """The rows of the combination of settings that has the highest mean."""
    means = rows.groupby(list(settings))[column].mean()
    chosen = means.idxmax()
    values = chosen if isinstance(chosen, tuple) else (chosen,)
    return rows[np.logical_and.reduce([rows[name] == value for name, value in zip(settings, values, strict=True)])]


def _without_fitted(line: str) -> str:
    name, colon, listed = line.partition(":")
    kept = [part for part in listed.split(",") if part and part != "verifier=nss"]
    return name + (colon + ",".join(kept) if kept else "")


def _values(exhibit: Exhibit, table: Mapping[str, pd.DataFrame]) -> tuple[object, ...]:
    if not exhibit.by:
        return (None,)
    there = [rows[exhibit.by] for rows in table.values() if len(rows)]
    if there:
        return tuple(sorted(pd.concat(there).unique().tolist()))
    return tuple(sorted({key[1] for way in exhibit.ways for key in way.paper if isinstance(key, tuple)}))


def _at(rows: pd.DataFrame, exhibit: Exhibit, value: object) -> pd.DataFrame:
    return rows if value is None or not len(rows) else rows[rows[exhibit.by] == value]


def _by_prompt(rows: pd.DataFrame, figure: Figure) -> pd.Series:
    """The figure of every prompt, the median over all that else varies."""
    return rows.groupby(["prompt_set", "kind", "prompt"])[figure.column].median().dropna()


def _judged(exhibit: Exhibit, ordering: Ordering, value: object, table: Mapping[str, pd.DataFrame]) -> Judged:
    rows = [_at(table[name], exhibit, value) for name in (ordering.better, ordering.worse)]
    paper = _paper_gain(exhibit, ordering, value)
    if not (len(rows[0]) and len(rows[1])):
        return Judged(ordering, value, None, paper, "not run")
    better, worse = (_by_prompt(each, ordering.figure) for each in rows)
    shared = better.index.intersection(worse.index)
    if not len(shared):
        return Judged(ordering, value, None, paper, "not run")
    gain = ratio_gain(better[shared].to_numpy(), worse[shared].to_numpy())
    gain = gain if ordering.higher else _turned(gain)
    verdict: Verdict = {1: "holds", -1: "does not hold", 0: "not decided here"}[gain.sign]
    said = "" if verdict == "holds" else reason(*rows, ordering.better, ordering.worse)
    return Judged(ordering, value, gain, paper, verdict, said)


def _turned(gain: Estimate) -> Estimate:
    return replace(gain, value=-gain.value, low=-gain.high, high=-gain.low)


def _paper_gain(exhibit: Exhibit, ordering: Ordering, value: object) -> float | None:
    column = ordering.figure.column
    key = column if value is None else (column, value)
    found = [next(way.paper.get(key) for way in exhibit.ways if way.words == name)
             for name in (ordering.better, ordering.worse)]  # fmt: skip
    if None in found:
        return None
    gain = found[0] / found[1] - 1
    return gain if ordering.higher else -gain


def _scaled(found: Estimate, scale: float) -> Estimate:
    return replace(found, value=found.value * scale, low=found.low * scale, high=found.high * scale)


def _where(rows: pd.DataFrame) -> tuple[str, ...]:
    """Pairs, machines and days, each once."""
    days = rows["started"].str[:10]
    when = days.min() + (f" to {days.max()}" if days.nunique() > 1 else "")
    return tuple(sorted((rows["pair"] + " on " + rows["machine"] + ", " + when).unique()))


def words_of(figure: Figure, found: Estimate | None) -> str:
    """An estimate as a table tells it: `1.42 (1.30 to 1.55)`."""
    if found is None:
        return "not run"
    value, low, high = (f"{each:,.{figure.digits}f}" for each in (found.value, found.low, found.high))
    return f"{value} ({low} to {high})"
