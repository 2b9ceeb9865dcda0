"""Our numbers for a paper result: estimates with intervals over prompts, which orderings are reproduced, and why not.

A paper result reads a view: results of runs, or passes and phases of those runs as rows of their own. Each row has the
name of an entry in `line`, the prompt, where it was measured, and figures.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
import pandas as pd

from decoding.experiments.estimates import (
    CONDITIONS,
    FEWEST,
    PROMPT,
    Estimate,
    estimate,
    prepared,
    ratio_gain,
    source_of,
    sources_of,
    verdict,
    without_fitted,
)
from decoding.experiments.experiment import GRIDS
from decoding.experiments.rows import LOOP_FREE, SERIES
from decoding.papers.paper_result import PER_PASS, Entry, Figure, Ordering, PaperResult
from decoding.papers.stored import stored_records
from decoding.trace.records import PHASES

STEP = 16  # tokens of text that are one place on the axis of `passes`
OWN = ("line", "label", "prompt_set", "kind", "prompt", "pair", "machine", "started", "temperature", "top_p")
# Names that `phases` puts in `line` for the parts of an iteration, with the columns that each sums.
PARTS: dict[str, tuple[str, ...]] = {
    "target": ("verify_s", "rebuild_s"),
    "draft": ("draft_passes_s",),
    "construction": ("construction_s", "prune_s"),
    "mask": ("mask_s",),
    "verification": ("select_s",),
    "cache": ("commit_s", "adapt_s"),
}
COUNTED = ["drafted", "accepted"]


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
        count = int((reached <= row["loop_free_tokens"]).sum())
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


TIMED = {"draft_s": "drafting", "verify_s": "verifying"}
SAME = 0.02  # smaller shares count as equal


def of_time(better: pd.DataFrame, worse: pd.DataFrame, better_name: str, worse_name: str) -> str:
    """One sentence on the entry that the paper ranks first, from results of both on the same machine."""
    one, other = _means(better), _means(worse)
    tokens, taken = one["tokens"] / other["tokens"] - 1, one["pass_s"] / other["pass_s"] - 1
    more = _by_share(
        tokens, "about as many tokens per pass as", *(f"{way} tokens per pass than" for way in ("more", "fewer"))
    )
    parts = [f"{better_name} commits {more} {worse_name}"]
    parts.append(f"its passes take {_by_share(taken, 'about as long', 'longer', 'less time')}")
    name = max(TIMED, key=lambda phase: one[phase] - other[phase])
    apart = one[name] - other[name]
    if taken > SAME and apart > 0:
        parts.append(
            f"most of the difference is {TIMED[name]} ({1000 * one[name]:.2f} ms against {1000 * other[name]:.2f} ms)"
        )
    draft = one["draft_s"] / one["forwards"] if one["forwards"] else 0.0
    if draft and one["verify_s"]:
        parts.append(f"a draft forward takes {draft / one['verify_s']:.0%} of the time of a verification")
    return "; ".join([" and ".join(parts[:2]), *parts[2:]]) + "."


def of_tokens(better: pd.DataFrame, worse: pd.DataFrame, better_name: str, worse_name: str) -> str:
    """One sentence on the tokens per pass of two entries: how many are drafted and how many of these are accepted."""
    counts = []
    for name, rows in ((better_name, better), (worse_name, worse)):
        drafted, accepted = (rows[column] / rows["iterations"] for column in ("drafted", "accepted"))
        share = accepted.mean() / drafted.mean() if drafted.mean() else 0.0
        counts.append(f"{name} {drafted.mean():.1f}, of which {accepted.mean():.2f} are accepted ({share:.1%})")
    return f"Tokens drafted per pass: {counts[0]}; {counts[1]}."


def apart(figure: Figure, better: float, worse: float, better_name: str, worse_name: str) -> str:
    """One sentence on two entries that are not runs: both figures as measured on the same samples."""
    one, other = (f"{figure.scale * value:,.{figure.digits}f}" for value in (better, worse))
    return f"{figure.words[:1].upper()}{figure.words[1:]}: {one} for {better_name}, {other} for {worse_name}."


def _means(rows: pd.DataFrame) -> dict[str, float]:
    """Per pass, means over rows: tokens, seconds, seconds by phase, draft forwards."""
    passes = rows["iterations"]
    figures = {
        "tokens": rows["tokens_per_iteration"],
        # Without the first, which reads the prompt: baselines do not report prefill separately.
        "pass_s": (rows["wall_s"] - rows["ttft_s"]) / (passes - 1).clip(lower=1),
        "forwards": rows["draft_forwards"].fillna(0) / passes,
    }
    figures |= {phase: rows[phase].fillna(0) / passes for phase in TIMED}
    return {name: float(np.mean(values)) for name, values in figures.items()}


def _by_share(share: float, same: str, more: str, less: str) -> str:
    return same if abs(share) < SAME else f"{abs(share):.0%} {more if share > 0 else less}"


Verdict = Literal["holds", "does not hold", "not decided here", "not run"]
Key = tuple[str, object]  # name of an entry, value on the axis
Rows = Mapping[Key, pd.DataFrame]
OF_PASSES = ("throughput", "speedup", "tpot_s")  # explained by what passes commit and how long they take


@dataclass(frozen=True)
class JudgedClaim:
    """An ordering and what our results say about it.

    Attributes:
        value: on the axis, where there is one; of a claim between two values both, as text.
        gain: relative gain of the better entry over the other on the same prompts; None where not run.
        paper: the same of the paper's numbers; None where it gives none.
        reason: one sentence on why it is not reproduced, from measurements.
    """

    ordering: Ordering
    value: object
    gain: Estimate | None
    paper: float | None
    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True)
class Reproduction:
    """What our results say about a paper result.

    Attributes:
        values: on the axis, ascending; those of the paper where nothing was run; one None for a table.
        ours: by entry, value and column of a figure. runs: results by entry and value.
        where: pairs, machines and days of the results.
        elsewhere: pairs and machines of other results, which do not count because they cannot be mixed.
    """

    paper_result: PaperResult
    values: tuple[object, ...]
    ours: Mapping[tuple[Key, str], Estimate]
    runs: Mapping[Key, int]
    judged: tuple[JudgedClaim, ...]
    where: tuple[str, ...]
    elsewhere: tuple[str, ...] = ()

    @property
    def run(self) -> bool:
        """Whether there is something to compare: results of two entries, or of one at two values."""
        return len(self.runs) > 1


def judge(paper_result: PaperResult, rows: pd.DataFrame) -> Reproduction:
    """What the results of a grid say about its paper result; looping text is left out, as everywhere.

    Args:
        rows: of `rows.RowStore.frame`, also of other grids.
    """
    frame = _frame(paper_result, rows)
    elsewhere: tuple[str, ...] = ()
    if len(frame):  # the pair and machine that has the newest row
        newest, *others = sources_of(frame)
        frame, elsewhere = frame[source_of(frame) == newest], tuple(sorted(others))
    table = {way.words: _of_way(way, frame, paper_result) for way in paper_result.ways}
    flat = {way.words for way in paper_result.ways if way.flat}
    values = _values(paper_result, [found for words, found in table.items() if words not in flat])
    at = {}
    for words, found in table.items():
        for value in values:
            everywhere = words in flat or value is None or not len(found)
            at[words, value] = found if everywhere else found[found[paper_result.by] == value]
    ours = {}
    for key, found in at.items():
        for figure in paper_result.figures if len(found) else ():
            by_prompt = _by_prompt(found, figure)
            if len(by_prompt):
                ours[key, figure.column] = estimate(by_prompt.to_numpy()).times(figure.scale)
    there = {key for key, _ in ours}
    counted = {key: len(found) for key, found in at.items() if key in there}
    judged = tuple(
        _judged(paper_result, each, pair, at)
        for each in paper_result.orderings
        for pair in ([(value, value) for value in values] if each.at is None else [each.at])
    )
    where: tuple[str, ...] = ()
    if counted:
        used = pd.concat(table.values())
        days = used["started"].str[:10]
        when = days.min() + (f" to {days.max()}" if days.nunique() > 1 else "")
        where = tuple(sorted((source_of(used) + ", " + when).unique()))
    return Reproduction(paper_result, values, ours, counted, judged, where, elsewhere)


def claim_words(judged: JudgedClaim) -> str:
    """What an ordering claims, as text: `DynaTree over Linear, K = 8 at 500, speed-up`."""
    ordering, direction = judged.ordering, "over" if judged.ordering.higher else "below"
    if ordering.at is not None:
        first, second = ordering.at
        other = "the same" if ordering.worse == ordering.better else ordering.worse
        return f"{ordering.better} at {first} {direction} {other} at {second}, {ordering.figure.words}"
    at = "" if judged.value is None else f" at {judged.value}"
    return f"{ordering.better} {direction} {ordering.worse}{at}, {ordering.figure.words}"


def _frame(paper_result: PaperResult, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of a paper result, with the number of the prompt in `sample`, without columns that none reads."""
    if paper_result.stored:
        frame = stored_records(paper_result.stored)
    else:
        frame = VIEWS[paper_result.view](prepared(rows[rows["experiment"] == grid_name(paper_result.grid)]))
    if not len(frame):
        return frame
    unread = [name for name in map(str, frame) if name in SERIES or name.startswith(LOOP_FREE)]
    return frame.drop(columns=unread).assign(sample=frame.groupby(PROMPT).ngroup())


@lru_cache(maxsize=64)
def grid_name(stem: str) -> str:
    """The name of a grid in its results; empty for a paper result without a grid."""
    return stem and tomllib.loads((GRIDS / f"{stem}.toml").read_text(encoding="utf-8"))["name"]


def _of_way(way: Entry, rows: pd.DataFrame, paper_result: PaperResult) -> pd.DataFrame:
    """Rows of the same contestant; at a temperature, a lossless verifier may have replaced greedy."""
    rows = _having(rows, paper_result.only)
    if not len(rows):
        return rows
    if not (way.best or way.where):
        return rows[rows["line"].map(without_fitted) == way.line]
    name, _, verifier = way.line.partition(":verifier=")
    alike = _having(rows[rows["method"] == name], {"settings.verifier": verifier} if verifier else {})
    alike = _having(alike, way.where)
    if not (way.best and len(alike)):
        return alike
    groups = ["temperature", "top_p", *([paper_result.by] if paper_result.by else [])]
    column, best = paper_result.figures[0].column, np.zeros(len(alike), bool)
    narrow = alike[["sample", *way.best, column]]
    for places in alike.groupby(groups, dropna=False).indices.values():
        best[places] = _best(narrow.iloc[places], way.best, column)
    return alike[best]


def _having(rows: pd.DataFrame, wanted: Mapping[str, object]) -> pd.DataFrame:
    """The rows that have the wanted values; none where a column is missing."""
    for column, value in wanted.items():
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


def _values(paper_result: PaperResult, table: list[pd.DataFrame]) -> tuple[object, ...]:
    if not paper_result.by:
        return (None,)
    there = [rows[paper_result.by].dropna() for rows in table if len(rows)]
    if there:
        found = pd.concat(there).unique().tolist()  # a column with missing values has whole numbers as floats
        return tuple(sorted(int(each) if isinstance(each, float) and each.is_integer() else each for each in found))
    return tuple(sorted({key[1] for way in paper_result.ways for key in way.paper if isinstance(key, tuple)}))


def _by_prompt(rows: pd.DataFrame, figure: Figure) -> pd.Series:
    """The figure of every prompt: the mean over samplings and lengths of the median over repeats."""
    varied = [name for name in CONDITIONS if name in rows]
    repeats = rows.groupby(["sample", *varied], dropna=False)[figure.column].median().dropna()
    return repeats.groupby("sample").mean()


def _judged(paper_result: PaperResult, ordering: Ordering, values: tuple[object, object], at: Rows) -> JudgedClaim:
    if (_paper_gain(paper_result, ordering, values) or 0) < 0:  # the paper's own numbers say the opposite
        at_both = None if ordering.at is None else ordering.at[::-1]
        ordering = replace(ordering, better=ordering.worse, worse=ordering.better, at=at_both)
        values = values[::-1]
    keys = list(zip((ordering.better, ordering.worse), values, strict=True))
    first, second = (at.get(key) for key in keys)
    value = values[0] if ordering.at is None else " against ".join(map(str, values))
    paper = _paper_gain(paper_result, ordering, values)
    not_run = JudgedClaim(ordering, value, None, paper, "not run")
    if first is None or second is None or first.empty or second.empty:
        return not_run
    better, worse = (_by_prompt(each, ordering.figure) for each in (first, second))
    shared = better.index.intersection(worse.index)
    if not len(shared) or not worse[shared].mean():
        return not_run
    gain = ratio_gain(better[shared].to_numpy(), worse[shared].to_numpy())
    gain = gain if ordering.higher else gain.times(-1)
    decided = verdict(gain)
    if len(shared) < FEWEST:
        few = (
            f"Measured on only {len(shared)} {'sample' if paper_result.stored else 'prompt'}{'s' * (len(shared) > 1)}."
        )
        return JudgedClaim(ordering, value, gain, paper, "not decided here", few)
    of_runs = paper_result.view == "runs" and not paper_result.stored
    if decided == "holds":
        said = ""
    elif of_runs and ordering.figure.column in OF_PASSES:
        said = of_time(first, second, ordering.better, ordering.worse)
    elif of_runs and ordering.figure == PER_PASS and not pd.concat((first, second))[COUNTED].isna().any(axis=None):
        said = of_tokens(first, second, ordering.better, ordering.worse)
    else:
        names = [words if ordering.at is None else f"{words} at {value}" for words, value in keys]
        said = apart(ordering.figure, better[shared].mean(), worse[shared].mean(), names[0], names[1])
    return JudgedClaim(ordering, value, gain, paper, decided, said)


def _paper_gain(paper_result: PaperResult, ordering: Ordering, values: tuple[object, object]) -> float | None:
    column, papers = ordering.figure.column, {way.words: way.paper for way in paper_result.ways}
    better, worse = (papers[name].get(column if value is None else (column, value))
                     for name, value in zip((ordering.better, ordering.worse), values, strict=True))  # fmt: skip
    if better is None or worse is None:
        return None
    gain = better / worse - 1
    return gain if ordering.higher else -gain


def words_of(figure: Figure, found: Estimate | None) -> str:
    """An estimate as tables print it: `1.42 (1.30 to 1.55)`, or with the number of prompts where they are few."""
    if found is None:
        return "not run"
    if found.prompts < FEWEST:
        return f"{found.value:,.{figure.digits}f} (n = {found.prompts})"
    value, low, high = (f"{each:,.{figure.digits}f}" for each in (found.value, found.low, found.high))
    return f"{value} ({low} to {high})"
