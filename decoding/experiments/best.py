"""Which way of an experiment is the best here, and how sure that is: the bootstrap over prompts."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from decoding.experiments.bootstrap import FEWEST, SEED, Estimate, estimate
from decoding.experiments.swept import CONDITIONS, PROMPT

DRAWS = 2000
ALIKE = 1e-9  # relative: ways that are this close are the same


@dataclass(frozen=True)
class Ranked:
    """A way with its figure.

    Attributes:
        way: of the contestant, as `swept` names it. label: what the screen calls it.
        figure: mean over prompts with its interval.
        chance: share of draws of the prompts in which it is the best of all; what is alike shares.
    """

    way: str
    label: str
    figure: Estimate
    chance: float


def ranked(rows: pd.DataFrame, column: str, higher: bool = True) -> list[Ranked]:
    """Every way of some rows, the best first, all on the same prompts, lengths and samplings.

    Where a way has no figure on some of them, those are left out for all.

    Args:
        rows: as `swept` gives them, of one experiment.
        column: of the figure. higher: whether more of it is better.
    """
    by_prompt = _by_prompt(rows, column)
    if by_prompt.empty:
        return []
    values = by_prompt.to_numpy()
    better = values if higher else -values
    order, chances = np.argsort(-better.mean(0), kind="stable"), _chances(better)
    labels = _labels(rows)
    return [
        Ranked(way := by_prompt.columns[place], labels[way], estimate(values[:, place]), float(chances[place]))
        for place in order
    ]


def best_words(found: list[Ranked], words: str, scale: float = 1.0, digits: int = 2) -> str:
    """The best way in a sentence, with how sure that is.

    Args:
        words: of the figure, with its unit. scale, digits: a figure times `scale` is what is told, with so many digits.
    """
    if not found:
        return "Nothing has been measured for all ways on the same prompt yet."
    best = found[0]
    if best.figure.prompts < FEWEST:
        value, few = f"{scale * best.figure.value:,.{digits}f}", best.figure.prompts
        prompts = "one prompt, which says" if few == 1 else f"{few} prompts, which say"
        return f"{best.label}: {words} {value}, on {prompts} nothing about others."
    value, low, high = (f"{scale * each:,.{digits}f}"
                        for each in (best.figure.value, best.figure.low, best.figure.high))  # fmt: skip
    if len(found) == 1:
        return f"{best.label}: {words} {value} ({low} to {high}); there is no other way to compare it with."
    nearest = ALIKE * abs(best.figure.value)
    alike = [each.label for each in found[1:] if abs(each.figure.value - best.figure.value) <= nearest]
    sure = f"the best in {best.chance:.0%} of {DRAWS:,} draws of the {best.figure.prompts} prompts"
    rival = max(found[1:], key=lambda each: each.chance)
    beside = f"; {rival.label} is it in {rival.chance:.0%}" if rival.chance >= 0.05 else ""
    if alike:
        beside = f"; {alike[0]} {f'and {len(alike) - 1} more reach' if len(alike) > 1 else 'reaches'} the same"
    return f"{best.label}: {words} {value} ({low} to {high}), {sure}{beside}."


def _by_prompt(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """The figure of every prompt (rows) and way (columns), over conditions under which all ways have one."""
    known = rows[rows[column].notna()]
    if known.empty:
        return pd.DataFrame()
    known = known.assign(
        place=known.groupby([*PROMPT, *CONDITIONS], dropna=False).ngroup(),
        prompt_number=known.groupby(PROMPT, dropna=False).ngroup(),
    )
    # The median over repeats: a busy machine stretches a time now and then.
    table = known.pivot_table(index=["prompt_number", "place"], columns="way", values=column, aggfunc="median")
    return table.dropna().groupby(level="prompt_number").mean()


def _chances(better: np.ndarray) -> np.ndarray:
    """Share of draws of the rows in which the mean of a column is the highest; columns that are alike share."""
    count = len(better)
    drawn = np.random.default_rng(SEED).integers(count, size=(DRAWS, count))
    times = np.apply_along_axis(np.bincount, 1, drawn, minlength=count)
    means = times @ better / count
    top = means.max(1, keepdims=True)
    winners = means >= top - ALIKE * np.abs(top)
    return (winners / winners.sum(1, keepdims=True)).mean(0)


def _labels(rows: pd.DataFrame) -> dict[str, str]:
    """What the screen calls each way: the label of the contestant whose line it is, where that was run."""
    own_first = rows.assign(other=rows["line"] != rows["way"]).sort_values("other", kind="stable")
    return dict(own_first.drop_duplicates("way").set_index("way")["label"])
