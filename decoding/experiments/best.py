"""Which way of an experiment is the best here, and how sure that is: the bootstrap over prompts."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from decoding.experiments.bootstrap import SEED, Estimate, estimate

DRAWS = 2000


@dataclass(frozen=True)
class Ranked:
    """A way with its figure.

    Attributes:
        line: of the contestant. label: what the screen calls it.
        figure: mean over prompts with its interval.
        chance: share of draws of the prompts in which it is the best of all.
    """

    line: str
    label: str
    figure: Estimate
    chance: float


def ranked(rows: pd.DataFrame, column: str, higher: bool = True) -> list[Ranked]:
    """Every way of some rows, the best first; prompts on which one has no figure are left out for all.

    Args:
        rows: as `papers.judge.prepared` gives them, of one experiment; references are left out.
        column: of the figure. higher: whether more of it is better.
    """
    mine = rows[~rows["reference"]]
    table = mine.pivot_table(index=["prompt_set", "kind", "prompt"], columns="line", values=column, aggfunc="median")
    table = table.dropna(axis=1, how="all").dropna()
    if table.empty:
        return []
    labels = mine.drop_duplicates("line").set_index("line")["label"]
    values = table.to_numpy() if higher else -table.to_numpy()
    drawn = np.random.default_rng(SEED).integers(len(values), size=(DRAWS, len(values)))
    winners = np.bincount(values[drawn].mean(1).argmax(1), minlength=values.shape[1]) / DRAWS
    order = np.argsort(-values.mean(0), kind="stable")
    return [
        Ranked(table.columns[place], labels[table.columns[place]], estimate(table.iloc[:, place].to_numpy()),
               float(winners[place]))
        for place in order
    ]  # fmt: skip


def best_words(found: list[Ranked], unit: str) -> str:
    """The best way in a sentence, with how sure that is."""
    if not found:
        return "Nothing has been measured on all prompts yet."
    best = found[0]
    sure = f"the best in {best.chance:.0%} of 2,000 draws of the prompts"
    value = f"{best.figure.value:.2f} {unit} ({best.figure.low:.2f} to {best.figure.high:.2f})"
    if best.figure.prompts == 1:
        return f"{best.label}: {value.partition(' (')[0]}, on one prompt, which says nothing about others."
    rival = max(found[1:], key=lambda each: each.chance, default=None)
    beside = f"; {rival.label} is it in {rival.chance:.0%}" if rival is not None and rival.chance >= 0.05 else ""
    return f"{best.label}: {value}, {sure}{beside}."
