"""What a paper result reads: results of runs, or passes and phases of those runs as rows of their own.

Each row has the name of an entry in `line`, the prompt, where it was measured, and figures.
"""

from collections.abc import Callable

import numpy as np
import pandas as pd

from decoding.common.cost_model import CostModel
from decoding.trace.records import PHASES

STEP = 16  # tokens of text that are one place on the axis of `passes`
OWN = ("line", "label", "prompt_set", "kind", "prompt", "pair", "machine", "started", "temperature", "top_p",
       "new_tokens")  # fmt: skip
# Names that `phases` puts in `line` for the parts of an iteration, with the columns that each sums.
PARTS: dict[str, tuple[str, ...]] = {
    "target": ("verify_s", "rebuild_s"),
    "draft": ("draft_passes_s",),
    "construction": ("construction_s", "prune_s"),
    "mask": ("mask_s",),
    "verification": ("select_s",),
    "cache": ("commit_s", "adapt_s"),
}


def runs(rows: pd.DataFrame) -> pd.DataFrame:
    """The results with columns that only paper results need: `sampling` as text, `drafted_per_pass`, `filled`.

    A prompt that is not `filled` is shorter than the requested length and must not count for it.
    """
    return rows.assign(
        sampling=[
            f"T = {temperature:g}" if top_p == 1 else f"top-p = {top_p:g}"
            for temperature, top_p in zip(rows["temperature"], rows["top_p"], strict=True)
        ],
        drafted_per_pass=rows["drafted"] / rows["iterations"],
        filled=rows["prompt_tokens"] == rows["cut"],
    )


def passes(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over the passes of each run that begin within the same `STEP` tokens of its text.

    `position` is where those tokens begin, `tree_nodes` and `accepted_nodes` are per pass. By position in the text, not
    by pass number: only texts that are hard to predict have many passes.
    """
    parts = []
    for _, row in rows.iterrows():
        drafted, accepted, reached = (row[name] for name in ("drafted_nodes", "accepted_lengths", "committed_tokens"))
        if drafted is None or accepted is None or not len(drafted):
            continue
        reached = np.asarray(reached)
        count = int((reached <= row["new_tokens"]).sum())
        starts = np.concatenate([[0], reached[:-1]])[:count] // STEP * STEP
        found = pd.DataFrame({"position": starts, "tree_nodes": drafted[:count], "accepted_nodes": accepted[:count]})
        parts.append(found.groupby("position", as_index=False).mean().assign(**{name: row[name] for name in OWN}))
    return pd.concat(parts, ignore_index=True) if parts else rows[:0].assign(position=[])


def phases(rows: pd.DataFrame) -> pd.DataFrame:
    """A row per part of an iteration, named in `line`, with its `time_share`: of the seconds of all parts.

    Where draft passes were not timed one by one, neither they nor tree construction are reported.
    """
    if not len(rows):
        return rows.assign(time_share=[])
    rows = rows[rows["drafted"].notna()].copy()
    rows["label"] = rows["label"].str.partition(" · ")[0]  # without changed settings
    rows["construction_s"] = rows["draft_s"] - rows["draft_passes_s"]
    total = rows[[f"{phase}_s" for phase in PHASES]].sum(axis=1)
    parts = [
        rows[list(OWN)].assign(line=name, time_share=rows[list(columns)].sum(axis=1, skipna=False) / total)
        for name, columns in PARTS.items()
    ]
    return pd.concat(parts, ignore_index=True)


VIEWS: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {"runs": runs, "passes": passes, "phases": phases}


def modelled(rows: pd.DataFrame, own: CostModel, other: CostModel) -> pd.DataFrame:
    """Counted results as if every pass of the target took what one of its size takes with another target.

    All else is as it was measured, and prefill longer by the difference of both targets. A run's passes are taken to be
    of their mean size. Loops outside this library and other engines are left out: their passes were not measured.

    Args:
        own, other: measured costs of the pair of these rows, and of one whose target writes the same.
    """

    def seconds(sizes: pd.Series) -> np.ndarray:
        return other.target.seconds(sizes.to_numpy())

    rows = rows[~rows["line"].str.partition(":")[0].str.contains("@|^hf_")].copy()
    plain = rows["drafted"].isna()  # its first pass reads the prompt: it is the prefill
    passes = rows["iterations"] - plain
    verify = seconds(1 + (rows["verified"] / rows["iterations"]).fillna(0.0)) * passes
    rebuild = seconds(rows["tokens_per_iteration"]) * (rows["target_passes"] - rows["iterations"]).clip(lower=0)
    prefill = seconds(rows["prompt_tokens"]) - own.target.seconds(rows["prompt_tokens"].to_numpy())
    more = verify + rebuild - rows["verify_s"] - rows["rebuild_s"]
    first = np.where(plain, 0.0, more / passes.clip(lower=1))
    after_first = rows["new_tokens"] - rows["tokens_per_iteration"]
    wall = rows["wall_s"] + more + prefill
    return rows.assign(
        wall_s=wall,
        ttft_s=rows["ttft_s"] + first + prefill,
        prefill_s=rows["prefill_s"] + prefill,
        tpot_s=rows["tpot_s"] + (more - first) / after_first.where(after_first > 0),
        throughput=rows["new_tokens"] / wall,
        decode_throughput=rows["new_tokens"] / (wall - rows["prefill_s"] - prefill),
        verify_s=verify,
        rebuild_s=rebuild,
    )
