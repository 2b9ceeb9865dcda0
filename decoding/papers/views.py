"""What exhibits are made of: rows of runs, or passes and phases of those runs as rows of their own.

    VIEWS[exhibit.view](prepared(rows))

Every view gives a frame that `judge` takes: a way's name in `line`, the prompt, where it was measured, and figures.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

from decoding.trace.records import PHASES

STEP = 16  # tokens of text that are one place on the axis of `passes`
OWN = ("line", "label", "prompt_set", "kind", "prompt", "pair", "machine", "started", "temperature", "top_p")
# How the parts of an iteration are called in `line` by `phases`, with the columns that they are the sum of.
PARTS: dict[str, tuple[str, ...]] = {
    "target": ("verify_s", "rebuild_s"),
    "draft": ("draft_passes_s",),
    "construction": ("construction_s", "prune_s"),
    "mask": ("mask_s",),
    "verification": ("select_s",),
    "cache": ("commit_s", "adapt_s"),
}


def runs(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows as they are, with what only exhibits need: `sampling` in words, `drafted_per_pass`, and `filled`.

    A prompt that is not `filled` is shorter than the length asked for, about which it says nothing.
    """
    return rows.assign(
        sampling=[_sampling(*each) for each in zip(rows["temperature"], rows["top_p"], strict=True)],
        drafted_per_pass=rows["drafted"] / rows["iterations"],
        filled=rows["prompt_tokens"] == rows["cut"],
    )


def passes(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over the passes of each run that begin within the same `STEP` tokens of its text.

    `position` is where those tokens begin, `tree_nodes` and `accepted_nodes` are per pass. By place in the text and not
    by number of the pass: only texts that are hard to guess have many passes.
    """
    parts = []
    for _, row in rows.iterrows():
        drafted, accepted, reached = (row[name] for name in ("drafted_nodes", "accepted_lengths", "committed_tokens"))
        if drafted is None or accepted is None or not len(drafted):
            continue
        reached = np.asarray(reached)
        count = int((reached <= row["loop_free_tokens"]).sum())
        starts = np.concatenate([[0], reached[:-1]])[:count] // STEP * STEP
        found = pd.DataFrame({"position": starts, "tree_nodes": drafted[:count], "accepted_nodes": accepted[:count]})
        parts.append(found.groupby("position", as_index=False).mean().assign(**{name: row[name] for name in OWN}))
    return pd.concat(parts, ignore_index=True) if parts else rows[:0].assign(position=[])


def phases(rows: pd.DataFrame) -> pd.DataFrame:
    """A row per part of an iteration, named in `line`, with its `time_share`: of the seconds that all parts took.

    Where the draft's passes were not timed one by one, neither they nor the tree's construction are told.
    """
    if not len(rows):
        return rows.assign(time_share=[])
    rows = rows[rows["drafted"].notna()].copy()
    rows["label"] = rows["label"].str.partition(" · ")[0]  # changed settings are none of the name
    rows["construction_s"] = rows["draft_s"] - rows["draft_passes_s"]
    total = rows[[f"{phase}_s" for phase in PHASES]].sum(axis=1)
    parts = [
        rows[list(OWN)].assign(line=name, time_share=rows[list(columns)].sum(axis=1, skipna=False) / total)
        for name, columns in PARTS.items()
    ]
    return pd.concat(parts, ignore_index=True)


VIEWS: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {"runs": runs, "passes": passes, "phases": phases}


def _sampling(temperature: float, top_p: float) -> str:
    return f"T = {temperature:g}" if top_p == 1 else f"top-p = {top_p:g}"
