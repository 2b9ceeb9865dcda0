"""Results as estimates: means over prompts with bootstrap intervals for every combination of settings, and the best.

runs = aggregated(rows)                     # of `rows.RowStore.frame`
axes(runs)                             # {"settings.max_depth": (3, 4, 5), ...}
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.special import ndtr, stdtrit

from decoding.analysis.bottom_line import FEWEST, paired
from decoding.experiments.rows import LOOP_FREE, MEASURED
from decoding.trace.metrics import Counting

DRAWS, SEED = 4000, 0
Numbers = Sequence[Any] | np.ndarray | pd.Series  # one per prompt


@dataclass(frozen=True)
class Estimate:
    """A figure over prompts, or over repeats on one."""

    value: float
    # low, high: 95% interval over them: of the bootstrap, for `ratio_gain` and repeats of Student's t
    low: float
    high: float
    prompts: int

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"

    def times(self, factor: float) -> "Estimate":
        """The same in another unit, or with the sign reversed."""
        value, *ends = (0 + factor * each for each in (self.value, self.low, self.high))  # 0 + turns -0 into 0
        return Estimate(value, min(ends), max(ends), self.prompts)


def estimate(prompts: Numbers, figure: Callable[[np.ndarray], float] | None = None, draws: int = DRAWS) -> Estimate:
    """The mean of numbers, one per prompt, or a figure of the indices of prompts: resampled with replacement."""
    count, chosen = len(prompts), _chosen(len(prompts), draws)
    if figure is None:
        numbers = np.asarray(prompts, dtype=np.float64)
        value, drawn = numbers.mean(), numbers[chosen].mean(1)
    else:
        value, drawn = figure(np.arange(count)), np.array([figure(row) for row in chosen])
    # Share of resamples beyond each end: the expanded percentile interval (Hesterberg, 2015). Means of resampled
    # prompts vary less than means of fresh ones, most of all where there are few.
    tail = float(ndtr(-sqrt(count / (count - 1)) * stdtrit(count - 1, 0.975))) if count > 1 else 0.025
    low, high = np.percentile(drawn, (100 * tail, 100 * (1 - tail)))
    return Estimate(float(value), float(low), float(high), count)


def ratio_gain(better: np.ndarray, worse: np.ndarray) -> Estimate:
    """Relative gain of one mean over another, positive mean on the same prompts.

    The interval is Student's t of the linearised ratio: a bootstrap trusts three prompts that agree by chance.
    """
    count, ratio = len(better), better.mean() / worse.mean()
    apart = (better - ratio * worse) / worse.mean()
    half = stdtrit(count - 1, 0.975) * apart.std(ddof=1) / sqrt(count) if count > 1 else 0.0
    return Estimate(float(ratio - 1), float(ratio - 1 - half), float(ratio - 1 + half), count)


def over_repeats(values: np.ndarray) -> Estimate:
    """A figure over repeats on one prompt, with Student's t: three that agree by chance deserve no trust.

    As in a comparison, the median with an interval of the logarithms; the mean of counts, which may be 0.
    """
    if (values > 0).all():
        found = paired({(0, number): value for number, value in enumerate(values.tolist())})
        return Estimate(found.value, found.low, found.high, found.count)
    return ratio_gain(1 + values, np.ones(len(values)))


def _chosen(count: int, draws: int) -> np.ndarray:
    """Prompts drawn with replacement, `[draws, count]`."""
    return np.random.default_rng(SEED).integers(count, size=(draws, count))


def middle(prompts: Numbers) -> Estimate:
    """The median of numbers, one per prompt: for times, which have outliers on a busy machine."""
    numbers = np.asarray(prompts, dtype=np.float64)
    return estimate(numbers, lambda chosen: float(np.median(numbers[chosen])))


OWN_BLOCK = ["pair", "machine", "block"]  # a grid has the same blocks on every machine


def prepared(rows: pd.DataFrame, counting: Counting = "loop_free") -> pd.DataFrame:
    """Results counted in one way, without failures, with derived columns; see `counted` and `derived`."""
    return derived(counted(rows, counting))


def counted(rows: pd.DataFrame, counting: Counting) -> pd.DataFrame:
    """Results that hold figures of one way of counting, with these in the columns of `MEASURED`.

    A run whose text repeats itself from the start holds only those of its whole text.
    """
    prefix = LOOP_FREE if counting == "loop_free" else ""
    kept = rows[rows["failure"].isna() & rows[f"{prefix}throughput"].notna()].copy()
    for name in MEASURED if prefix else ():
        kept[name] = kept[prefix + name]
    return kept


def recorded(records: pd.DataFrame, counting: Counting) -> pd.DataFrame:
    """Records of a benchmark that hold figures of one way of counting, with these under their plain names."""
    if counting == "whole":
        return records
    both = [name for name in map(str, records) if LOOP_FREE + name in records]
    free = records.assign(**{name: records[LOOP_FREE + name] for name in both})
    return free.dropna(subset=both, how="all") if both else records[:0]


def derived(kept: pd.DataFrame) -> pd.DataFrame:
    """Results with `speedup`, `forwards_per_pass`, `nodes_per_pass` and what the papers call acceptance."""
    plain = kept[kept["reference"].astype(bool)].drop_duplicates(OWN_BLOCK).set_index(OWN_BLOCK)["throughput"]
    reference = plain.reindex(pd.MultiIndex.from_frame(kept[OWN_BLOCK])).to_numpy()
    reach, tree = pd.Series(np.nan, kept.index), kept["method"] != "linear"
    for method, setting in DEPTHS.items():
        if PREFIX + setting in kept:
            reach = reach.where(kept["method"] != method, kept[PREFIX + setting].astype(float))
    return kept.assign(
        speedup=kept["throughput"] / reference,
        forwards_per_pass=kept["draft_forwards"] / kept["iterations"],
        nodes_per_pass=kept["verified"] / kept["iterations"],
        node_agreement=kept["agreeing"] / kept["compared"],
        committed_over_drafted=kept["new_tokens"] / kept["drafted"],  # the bonus token counts, as in DynaTree
        # What the DynaTree papers call acceptance: tokens per pass over the depth as set and 1 or 2, a chain's over K.
        **{f"committed_over_depth_{n}": kept["tokens_per_iteration"] / (reach + n * tree) for n in (1, 2)},
    )


PREFIX = "settings."
DEPTHS = {"linear": "length", "fixed_tree": "max_depth", "dynatree": "base_depth"}  # a method's depth by its setting
PROMPT = ["prompt_set", "kind", "prompt"]
SAMPLING = ["temperature", "top_p", "draft_temperature", "seed"]
CONDITIONS = ["cut", "asked_tokens", *SAMPLING]
BASE = "base"
FITTED = "verifier=nss"  # replaces a verifier that would bias a sampled output


def aggregated(rows: pd.DataFrame, counting: Counting = "loop_free") -> pd.DataFrame:
    """Runs other than references, as `prepared` returns them, with two more columns.

    `way` is the configuration under any sampling: its line, where a lossless verifier may have replaced the method's
    own. `base` is the method or configuration that its line names, with its engine.
    """
    runs = prepared(rows, counting)
    runs = runs[~runs["reference"].astype(bool)].copy()
    numbers = runs.groupby([*PROMPT, *CONDITIONS], dropna=False).ngroup()
    places = {line: set(found) for line, found in numbers.groupby(runs["line"])}
    ways = {}  # with and without the fitted verifier are one where they never ran on the same
    for line, where in places.items():
        plain = without_fitted(line)
        ways[line] = plain if plain != line and plain in places and not (places[plain] & where) else line
    runs["way"] = runs["line"].map(ways)
    runs[BASE] = runs["line"].str.partition(":")[0] if len(runs) else runs["line"]
    return runs


def source_of(rows: pd.DataFrame) -> pd.Series:
    """The pair and the machine of every result, as text."""
    return rows["pair"] + " on " + rows["machine"]


def sources_of(rows: pd.DataFrame) -> list[str]:
    """Pairs on machines that have results, newest first."""
    if not len(rows):
        return []
    return rows.groupby(source_of(rows))["started"].max().sort_values(ascending=False).index.tolist()


def axes(runs: pd.DataFrame) -> dict[str, tuple]:
    """What has more than one value, with the values in order: methods, their settings, conditions, kinds of text.

    A setting counts only where it varies within a method under one sampling: two methods differ in many.
    """
    if not len(runs):
        return {}
    names = [name for name in runs.columns if name.startswith(PREFIX)]
    within = runs.groupby([BASE, *SAMPLING], dropna=False)[names].nunique() if names else pd.DataFrame()
    found = [BASE, *(name for name in names if (within[name] > 1).any()), *CONDITIONS, "kind"]
    values = {
        name: tuple(sorted(runs[name].dropna().unique().tolist(), key=lambda value: (isinstance(value, str), value)))
        for name in found
    }
    return {name: each for name, each in values.items() if len(each) > 1}


def cells(runs: pd.DataFrame, by: Sequence[str], column: str, intervals: bool = True) -> pd.DataFrame:
    """The mean of a figure over prompts for every combination of values, averaged over everything else.

    Repeats count by their median: times have outliers on a busy machine. Returns columns `by`, `value`, `low`
    and `high` (95% bootstrap interval over prompts; missing for few prompts), `prompts` and `runs`.
    """
    known = runs[runs[column].notna()]
    wanted = [*by, "value", "low", "high", "prompts", "runs"]
    if known.empty or not by:
        return pd.DataFrame(columns=wanted)
    made = []
    for values, group in known.groupby(list(by), sort=True):
        count = len(group)
        if group["repeat"].nunique() > 1:
            group = group.groupby(["way", *PROMPT, *CONDITIONS], dropna=False)[column].median().reset_index()
        of_prompts = group.groupby(PROMPT, dropna=False)[column].mean().to_numpy()
        found = estimate(of_prompts) if intervals and len(of_prompts) >= FEWEST else None
        low, high = (found.low, found.high) if found is not None else (None, None)
        made.append((*values, of_prompts.mean(), low, high, len(of_prompts), count))
    return pd.DataFrame(made, columns=wanted)


def without_fitted(line: str) -> str:
    """The line of a contestant without the verifier that may have replaced the method's own."""
    name, colon, listed = line.partition(":")
    kept = [part for part in listed.split(",") if part and part != FITTED]
    return name + (colon + ",".join(kept) if kept else "")


RANKING_DRAWS = 2000
ALIKE = 1e-9  # relative: closer figures count as equal


@dataclass(frozen=True)
class Ranked:
    """A configuration with its figure."""

    # way: of the contestant, as `aggregated` names it. label: its name on the screen.
    way: str
    label: str
    figure: Estimate  # mean over prompts with its interval; over the repeats where there is but one prompt
    chance: float  # share of resamples of the prompts in which it is the best; ties are split
    values: tuple[float, ...] = ()  # the figure of each prompt, in an order common to all
    # What those are of; on one prompt its repeats say how sure a time is there
    per: Literal["prompt", "repeat"] = "prompt"


def ranked(rows: pd.DataFrame, column: str, higher: bool = True) -> list[Ranked]:
    """Every configuration in some results, best first, all on the same prompts, lengths and samplings.

    Where one has no figure in a `column` on some of them, those are left out for all. `rows` are as `aggregated` gives
    them, of one experiment.
    """
    known = rows[rows[column].notna()]
    if known.empty:
        return []
    places = known.groupby([*PROMPT, *CONDITIONS], dropna=False).ngroup()
    known = known.assign(place=places, prompt_number=known.groupby(PROMPT, dropna=False).ngroup())
    once = known["prompt_number"].nunique() > 1 or known["repeat"].nunique() == 1
    per: Literal["prompt", "repeat"] = "prompt" if once else "repeat"
    unit = "prompt_number" if per == "prompt" else "repeat"
    # The median over repeats: times have outliers on a busy machine.
    table = known.pivot_table(index=[unit, "place"], columns="way", values=column, aggfunc="median")
    by_prompt = table.dropna().groupby(level=unit).mean()
    if by_prompt.empty:
        return []
    values = by_prompt.to_numpy()
    better = values if higher else -values
    order, chances = np.argsort(-better.mean(0), kind="stable"), _chances(better)
    own_first = rows.assign(other=rows["line"] != rows["way"]).sort_values("other", kind="stable")
    labels = own_first.drop_duplicates("way").set_index("way")["label"]
    return [
        Ranked(
            way := by_prompt.columns[place],
            labels[way],
            (estimate if per == "prompt" else over_repeats)(own := values[:, place]),
            float(chances[place]),
            tuple(own.tolist()),
            per,
        )
        for place in order
    ]


def best_words(found: list[Ranked], words: str, scale: float = 1.0, digits: int = 2) -> str:
    """The best configuration in one sentence, with how certain that is.

    `words` are of the figure, with its unit; it is shown times `scale`, with so many `digits`.
    """
    if not found:
        return "No prompt has been measured with every configuration yet."
    best = found[0]
    if best.figure.prompts < FEWEST:
        value, few = f"{scale * best.figure.value:,.{digits}f}", best.figure.prompts
        measured = f"one {best.per}" if few == 1 else f"{few} {best.per}s"
        return f"{best.label}: {words} {value} on {measured}, too few for an interval."
    value, low, high = (f"{scale * each:,.{digits}f}"
                        for each in (best.figure.value, best.figure.low, best.figure.high))  # fmt: skip
    if len(found) == 1:
        return f"{best.label}: {words} {value} ({low} to {high}); there is nothing to compare it with."
    nearest = ALIKE * abs(best.figure.value)
    alike = [each.label for each in found[1:] if abs(each.figure.value - best.figure.value) <= nearest]
    resampled = f"{RANKING_DRAWS:,} bootstrap resamples of the {best.figure.prompts} {best.per}s"
    sure = f"best in {best.chance:.0%} of {resampled}"
    rival = max(found[1:], key=lambda each: each.chance)
    beside = f"; {rival.label} is best in {rival.chance:.0%}" if rival.chance >= 0.05 else ""
    if alike:
        beside = f"; tied with {alike[0]}{f' and {len(alike) - 1} more' if len(alike) > 1 else ''}"
    return f"{best.label}: {words} {value} ({low} to {high}), {sure}{beside}."


def _chances(better: np.ndarray) -> np.ndarray:
    """Share of resamples of the rows in which the mean of a column is the highest; ties are split."""
    count = len(better)
    drawn = _chosen(count, RANKING_DRAWS)
    times = np.apply_along_axis(np.bincount, 1, drawn, minlength=count)
    means = times @ better / count
    top = means.max(1, keepdims=True)
    winners = means >= top - ALIKE * np.abs(top)
    return (winners / winners.sum(1, keepdims=True)).mean(0)
