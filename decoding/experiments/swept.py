"""What varies in an experiment, and the mean of a figure for every combination of what does.

runs = swept(rows)                                       # of `rows.RowStore.frame`
axes(runs)                                               # {"settings.max_depth": (3, 4, 5), "asked_tokens": ...}
cells(runs, ["settings.max_depth"], "speedup")           # value, low, high, prompts, runs
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from decoding.experiments.bootstrap import FEWEST, estimate
from decoding.experiments.prepared import prepared

PREFIX = "settings."
PROMPT = ["prompt_set", "kind", "prompt"]
SAMPLING = ["temperature", "top_p", "draft_temperature", "seed"]
CONDITIONS = ["cut", "asked_tokens", *SAMPLING]
BASE = "base"
FITTED = "verifier=nss"  # takes the place of a verifier that would bias a sampled output


def swept(rows: pd.DataFrame) -> pd.DataFrame:
    """Runs that are no references, as `prepared` makes them, with two columns more.

    `way` is what was run under any sampling: its line, where a verifier that fits may have taken the place of the
    method's own. `base` is the method or configuration that its line names, with its engine.
    """
    runs = prepared(rows)
    runs = runs[~runs["reference"].astype(bool)].copy()
    runs["way"] = runs["line"].map(_ways(runs))
    runs[BASE] = runs["line"].str.partition(":")[0] if len(runs) else runs["line"]
    return runs


def source_of(rows: pd.DataFrame) -> pd.Series:
    """The pair and the machine of every row, in words."""
    return rows["pair"] + " on " + rows["machine"]


def sources_of(rows: pd.DataFrame) -> list[str]:
    """Pairs on machines that have rows, the one with the newest first."""
    if not len(rows):
        return []
    return rows.groupby(source_of(rows))["started"].max().sort_values(ascending=False).index.tolist()


def axes(runs: pd.DataFrame) -> dict[str, tuple]:
    """What takes more than one value, with the values in order: methods, their settings, conditions, kinds of text.

    A setting counts where it varies within a method under one sampling: two methods differ in more than is asked.
    """
    if not len(runs):
        return {}
    names = [name for name in runs.columns if name.startswith(PREFIX)]
    within = runs.groupby([BASE, *SAMPLING], dropna=False)[names].nunique() if names else pd.DataFrame()
    found = [BASE, *(name for name in names if (within[name] > 1).any()), *CONDITIONS, "kind"]
    values = {name: tuple(sorted(runs[name].dropna().unique().tolist(), key=_sortable)) for name in found}
    return {name: each for name, each in values.items() if len(each) > 1}


def cells(runs: pd.DataFrame, by: Sequence[str], column: str, intervals: bool = True) -> pd.DataFrame:
    """The mean of a figure over prompts for every combination of values, over all that else varies.

    Of repeats the median counts: a busy machine stretches a time now and then. Returns columns `by`, `value`, `low`
    and `high` (95% of the bootstrap over prompts; of few prompts they are missing), `prompts` and `runs`.
    """
    known = runs[runs[column].notna()]
    wanted = [*by, "value", "low", "high", "prompts", "runs"]
    if known.empty or not by:
        return pd.DataFrame(columns=wanted)
    made = []
    for values, group in known.groupby(list(by), sort=True):
        of_prompts = _by_prompt(group, column)
        found = estimate(of_prompts) if intervals and len(of_prompts) >= FEWEST else None
        low, high = (found.low, found.high) if found is not None else (None, None)
        made.append((*values, of_prompts.mean(), low, high, len(of_prompts), len(group)))
    return pd.DataFrame(made, columns=wanted)


def _by_prompt(runs: pd.DataFrame, column: str) -> np.ndarray:
    """A figure of every prompt: the mean over all that varies, of repeats the median."""
    if runs["repeat"].nunique() > 1:
        runs = runs.groupby(["way", *PROMPT, *CONDITIONS], dropna=False)[column].median().reset_index()
    return runs.groupby(PROMPT, dropna=False)[column].mean().to_numpy()


def _ways(runs: pd.DataFrame) -> dict[str, str]:
    """What each line is under any sampling: without the fitted verifier, where the two never ran on the same."""
    numbers = runs.groupby([*PROMPT, *CONDITIONS], dropna=False).ngroup()
    places = {line: set(found) for line, found in numbers.groupby(runs["line"])}
    found = {}
    for line, where in places.items():
        plain = without_fitted(line)
        found[line] = plain if plain != line and plain in places and not (places[plain] & where) else line
    return found


def without_fitted(line: str) -> str:
    """The line of a contestant without the verifier that may have taken the place of the method's own."""
    name, colon, listed = line.partition(":")
    kept = [part for part in listed.split(",") if part and part != FITTED]
    return name + (colon + ",".join(kept) if kept else "")


def _sortable(value: object) -> tuple[bool, object]:
    return isinstance(value, str), value
