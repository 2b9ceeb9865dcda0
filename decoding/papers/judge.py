"""Our numbers for a paper result: estimates with intervals over prompts, and which orderings hold here.

`verdict` is the rule that all claims are judged by; docs/experiments.md has it in words. Why one does not hold is in
causes.py.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

import numpy as np
import pandas as pd

from decoding.experiments.estimates import (
    CONDITIONS,
    FEWEST,
    PROMPT,
    Estimate,
    counted,
    derived,
    estimate,
    ratio_gain,
    recorded,
    source_of,
    without_fitted,
)
from decoding.experiments.experiment import GRIDS
from decoding.papers.causes import CAUSES, Side, cause_of
from decoding.papers.paper_result import (
    Entry,
    Figure,
    Ordering,
    PaperResult,
    Protocol,
    protocol_here,
)
from decoding.papers.rows import (
    VIEWS,
    WIDE,
    Source,
    best_settings,
    modelled,
    pair_names,
    rows_of,
    separated,
    wanted,
    with_sampling,
)
from decoding.papers.stored import pass_costs, stored_records, took
from decoding.trace.metrics import COUNTINGS, Counting

EQUAL = 0.03
Verdict = Literal["holds", "equal within 3%", "does not hold", "not decided", "not run"]


def verdict(gain: Estimate) -> Verdict:
    """What our results say of a claim, from the relative gain of the better entry and its 95% interval.

    Fewer than `FEWEST` prompts decide nothing. Entries are equal where the whole interval lies within 3% of 0, however
    sure its sign is; else a claim holds where all of it lies above 0, and does not where all of it lies below.
    """
    if gain.prompts < FEWEST:
        return "not decided"
    if gain.low > -EQUAL and gain.high < EQUAL:
        return "equal within 3%"
    return "holds" if gain.low > 0 else "does not hold" if gain.high < 0 else "not decided"


Key = tuple[str, object]  # name of an entry, value on the axis
NOWHERE = np.zeros(0, dtype=np.int64)
ORIGIN = ("pair", "weights", "machine", "started")
READ = (*ORIGIN, "line", "method", "settings.verifier", "new_tokens", *CAUSES)
MODELLED = "times modelled from measured passes"


@dataclass(frozen=True)
class JudgedClaim:
    """An ordering and what our results say about it."""

    ordering: Ordering
    value: object  # on the axis, where there is one; of a claim between two values both, as text
    gain: Estimate | None  # relative gain of the better entry over the other on the same prompts; None where not run
    paper: float | None  # the same of the paper's numbers; None where it gives none
    verdict: Verdict
    reason: str = ""  # one sentence on why it is not reproduced, from measurements
    basis: str = ""  # how our figures came about; empty where not run


@dataclass(frozen=True)
class Reproduction:
    """What our results say about a paper result."""

    paper_result: PaperResult
    values: tuple[object, ...]  # on the axis, ascending; those of the paper where nothing was run; one None for a table
    # ours: by entry, value and column of a figure. runs: results by entry and value.
    ours: Mapping[tuple[Key, str], Estimate]
    runs: Mapping[Key, int]
    judged: tuple[JudgedClaim, ...]
    where: tuple[str, ...]  # pairs, machines and days of the results
    # counting: what the figures count, `no text` for masks. units: how many tokens, or what else the paper result
    # counts, in each run or record, by entry and value.
    counting: Counting | Literal["no text"] = "whole"
    units: Mapping[Key, float] = field(default_factory=dict)
    # bases: how counts and times came about. here: how our results were measured.
    bases: tuple[str, ...] = ()
    here: Protocol = field(default_factory=Protocol)
    one_way: int = 0  # runs that hold only the other way of counting, and are left out
    # Other results, which do not count because they cannot be mixed: their pairs, machines or texts
    elsewhere: tuple[str, ...] = ()
    best: Mapping[Key, str] = field(default_factory=dict)  # of entries that are the best of settings, which those are
    took_s: float | None = None  # of a benchmark all of it, of runs their decoding; None where none was run

    @property
    def counted(self) -> str:
        """What the figures count, in words; empty where no text is counted."""
        return "" if self.counting == "no text" else COUNTINGS[self.counting]

    @property
    def run(self) -> bool:
        """Whether there is something to compare: results of two entries, or of one at two values."""
        return len(self.runs) > 1


@dataclass(frozen=True, eq=False)  # tables have no equality that a key could use: each is itself alone
class Evidence:
    """Rows that figures are read from; `basis` says how they came about."""

    frame: pd.DataFrame
    places: Mapping[Key, np.ndarray]  # numbers of the rows in `frame` by entry and value
    values: tuple[object, ...]
    basis: str

    def rows(self, key: Key) -> pd.DataFrame:
        """The rows of an entry at a value; none where there are none."""
        return self.frame.iloc[self.places.get(key, NOWHERE)]

    def known(self, key: Key, column: str) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of those of its rows that have a figure, and the figures; none where no row has it."""
        if column not in self.frame:  # records of a version that did not save it
            return NOWHERE, NOWHERE.astype(float)
        places = self.places.get(key, NOWHERE)
        figures = self.frame[column].to_numpy(float)[places]
        there = ~np.isnan(figures)
        return places[there], figures[there]

    def by_prompt(self, key: Key, figure: Figure) -> pd.Series:
        """The figure of every prompt: the mean over samplings and lengths of the median over repeats."""
        places, values = self.known(key, figure.column)
        if not len(places):
            return pd.Series(dtype=float)
        repeated, sample = (self.frame[name].to_numpy()[places] for name in ("repeated", "sample"))
        order = np.lexsort((values, repeated))
        values, repeated = values[order], repeated[order]
        starts = np.flatnonzero(np.diff(repeated, prepend=-1))
        counts = np.diff(starts, append=len(values))
        medians = (values[starts + (counts - 1) // 2] + values[starts + counts // 2]) / 2
        samples, place = np.unique(sample[order][starts], return_inverse=True)
        return pd.Series(np.bincount(place, weights=medians) / np.bincount(place), index=samples)


def judge(paper_result: PaperResult, rows: pd.DataFrame, counting: Counting = "whole") -> Reproduction:
    """What the results of a grid, among `RowStore.frame` of several, say about its paper result, counted in one way.

    Counts are those of the plain pair. Times are those of the pair whose target is `WIDE`, so that passes cost what
    they do with real models: measured where all of the grid was run with it, else modelled from measured passes.
    Results of several pairs, machines or texts are not mixed: the newest count that hold something to compare.
    """
    if paper_result.stored:
        rows = stored_records(paper_result.stored)
    else:
        rows = rows[(rows["experiment"] == grid_name(paper_result.grid)) & rows["failure"].isna()]
    chosen, *others = separated(rows)
    if others:
        compared = (each for each in (chosen, *others) if _reproduction(paper_result, each, "whole").run)
        chosen = next(compared, chosen)
    return _reproduction(paper_result, chosen, counting)


def _reproduction(paper_result: PaperResult, source: Source, counting: Counting) -> Reproduction:
    kept = _records(paper_result, source.rows, counting) if paper_result.stored else counted(source.rows, counting)
    counts, times = _evidence(paper_result, kept)

    best = {way.words for way in paper_result.ways if way.best}

    def of(figure: Figure, *names: str) -> Evidence:
        # The best of several settings is chosen by the first figure, and is the same in all.
        return times if (figure if best.isdisjoint(names) else paper_result.figures[0]).timed else counts

    ours: dict[tuple[Key, str], Estimate] = {}
    used: dict[Evidence, list[Key]] = {}
    for figure in paper_result.figures:
        for key in counts.places:
            evidence = of(figure, key[0])
            if len(by_prompt := evidence.by_prompt(key, figure)):
                ours[key, figure.column] = estimate(by_prompt.to_numpy()).times(figure.scale)
                used.setdefault(evidence, []).append(key)
    there, timed = {key for key, _ in ours}, {figure.timed for figure in paper_result.figures}
    main = times if timed == {True} else counts
    shown = {key: main if len(found) else times for key, found in main.places.items() if key in there}
    judged = []
    for each in paper_result.orderings:
        evidence = of(each.figure, each.better, each.worse)
        for pair in [(value, value) for value in counts.values] if each.at is None else [each.at]:
            claim = _judged(paper_result, each, pair, evidence)
            judged.append(claim if claim.gain is None else replace(claim, basis=evidence.basis))
    where: tuple[str, ...] = ()
    if used:
        runs = pd.concat([_origins(each, keys) for each, keys in used.items()])
        runs = runs.assign(pair=pair_names(runs))
        where = tuple(sorted((source_of(runs) + ", " + _days(runs["started"])).unique()))
    chosen = {way.words: best_settings(way, of(paper_result.figures[0], way.words).frame, paper_result)
              for way in paper_result.ways if way.best and used}  # fmt: skip
    bases = dict.fromkeys(each.basis for each, kind in ((counts, False), (times, True)) if used and kind in timed)
    return Reproduction(
        paper_result, counts.values, ours, {key: len(each.places[key]) for key, each in shown.items()}, tuple(judged),
        where, "no text" if paper_result.masks else counting,
        {key: many for key, each in shown.items() if (many := _counted(paper_result, each, key)) is not None},
        tuple(bases), _protocol(kept[wanted(kept, paper_result.only, known=True)]) if used else Protocol(),
        len(source.rows) - len(kept), source.elsewhere,
        {(words, value): said for words, found in chosen.items() for value, said in found.items()},
        _took_s(paper_result, source.rows),
    )  # fmt: skip


def _protocol(rows: pd.DataFrame) -> Protocol:
    return protocol_here(rows.assign(pair=pair_names(rows)))


def _took_s(paper_result: PaperResult, rows: pd.DataFrame) -> float | None:
    if not paper_result.stored:
        return float(rows["wall_s"].sum()) if len(rows) else None
    found = took(paper_result.stored)
    return None if found is None else found[0]


def _origins(evidence: Evidence, keys: Sequence[Key]) -> pd.DataFrame:
    """Where and when the rows of some entries came about."""
    places = np.unique(np.concatenate([evidence.places[key] for key in keys]))
    return evidence.frame[[name for name in ORIGIN if name in evidence.frame]].iloc[places]


def _counted(paper_result: PaperResult, evidence: Evidence, key: Key) -> float | None:
    """How many tokens each run of an entry counts, or what else each record does; None where they do not say."""
    _, many = evidence.known(key, "counted" if paper_result.stored else "new_tokens")
    return float(many.mean()) if len(many) else None


def _evidence(paper_result: PaperResult, kept: pd.DataFrame) -> tuple[Evidence, Evidence]:
    """Where counts and where times are read, from rows of one family."""
    if paper_result.stored or not len(kept):
        own = _at(paper_result, kept, paper_result.basis)
        return own, replace(own, basis=paper_result.times)
    wide, kinds = kept["pair"].str.endswith(WIDE), {figure.timed for figure in paper_result.figures}
    plain = kept if wide.all() else kept[~wide]
    name, pair = plain["pair"].iloc[0], kept["pair"].iloc[0].removesuffix(WIDE)
    like = _modelled(paper_result, plain, pair) if True in kinds and name == pair else None
    if kinds == {True} and like is not None and not wide.any():  # no count is shown
        return like, like
    counts = _at(paper_result, _viewed(paper_result, plain), f"counts of {name}")
    if wide.any() and not wide.all():
        measured = _at(paper_result, _viewed(paper_result, kept[wide]), f"times measured with {pair}{WIDE}")
        if all(_holds(measured.rows(key), counts.rows(key)) for key, found in counts.places.items() if len(found)):
            return counts, measured
    return counts, like or replace(counts, basis=f"times measured with {name}")


def _modelled(paper_result: PaperResult, plain: pd.DataFrame, pair: str) -> Evidence | None:
    """Times of a pair's runs with the passes of the one that is `WIDE`; None where its passes were not measured."""
    costs = pass_costs(plain["machine"].iloc[0])
    if not {pair, pair + WIDE} <= costs.keys():
        return None
    both = costs[pair], costs[pair + WIDE]
    passes = _days(pd.Series([each.measured for each in both]))
    basis = f"{MODELLED} of {pair}{WIDE} ({passes}), all else from the runs ({_days(plain['started'])})"
    return _at(paper_result, _viewed(paper_result, modelled(plain, *both)), basis)


def _records(paper_result: PaperResult, records: pd.DataFrame, counting: Counting) -> pd.DataFrame:
    """Stored records counted in one way; of masks all."""
    records = with_sampling(records) if "temperature" in records else records
    return records if paper_result.masks else recorded(records, counting)


def _days(stamps: pd.Series) -> str:
    """The first and the last day of ISO time stamps: `2030-01-02 to 2030-01-04`."""
    days = stamps.str[:10]
    return days.min() + (f" to {days.max()}" if days.nunique() > 1 else "")


def _holds(wide: pd.DataFrame, plain: pd.DataFrame) -> bool:
    """Whether the rows of an entry hold every prompt, length and sampling of others: an interrupted run does not."""
    if not len(wide):
        return False
    names = [name for name in (*PROMPT, *CONDITIONS) if name in plain]
    places, there = (pd.MultiIndex.from_frame(each[names]) for each in (plain, wide))
    return bool(places.isin(there).all())


def _viewed(paper_result: PaperResult, kept: pd.DataFrame) -> pd.DataFrame:
    """Counted rows as a paper result reads them, without the many columns that it does not read."""
    frame = VIEWS[paper_result.view](derived(kept))
    read = {*READ, *PROMPT, *CONDITIONS, *paper_result.only, paper_result.by}
    read |= {figure.column for figure in paper_result.figures}
    read |= {name for way in paper_result.ways for name in (*way.where, *way.best)}
    return frame[[name for name in frame if name in read]]


def _at(paper_result: PaperResult, frame: pd.DataFrame, basis: str) -> Evidence:
    """The rows of every entry at every value of the axis."""
    if len(frame):
        plain = {line: without_fitted(line) for line in frame["line"].unique()}
        frame = frame.assign(unfitted=frame["line"].map(plain), sample=frame.groupby(PROMPT).ngroup())
        varied = [name for name in CONDITIONS if name in frame]
        frame = frame.assign(repeated=frame.groupby(["sample", *varied], dropna=False).ngroup())
    table = {way.words: rows_of(way, frame, paper_result) if len(frame) else NOWHERE for way in paper_result.ways}
    flat, by = {way.words for way in paper_result.ways if way.flat}, paper_result.by
    axis = frame[by].to_numpy() if by in frame else np.zeros(len(frame), dtype=object)
    moving = [found for words, found in table.items() if words not in flat]
    values, at = _values(paper_result, axis[np.concatenate([*moving, NOWHERE])]), {}
    for words, found in table.items():
        for value in values:
            everywhere = words in flat or value is None or not len(found)
            at[words, value] = found if everywhere else found[axis[found] == value]
    return Evidence(frame, at, values, basis)


def claim_words(judged: JudgedClaim) -> str:
    """What an ordering claims, as text: `DynaTree over Linear, K = 8 at 500, speed-up`."""
    ordering, direction = judged.ordering, "over" if judged.ordering.higher else "below"
    if ordering.at is not None:
        first, second = ordering.at
        other = "the same" if ordering.worse == ordering.better else ordering.worse
        return f"{ordering.better} at {first} {direction} {other} at {second}, {ordering.figure.words}"
    at = "" if judged.value is None else f" at {judged.value}"
    return f"{ordering.better} {direction} {ordering.worse}{at}, {ordering.figure.words}"


@lru_cache(maxsize=64)
def grid_name(stem: str) -> str:
    """The name of a grid in its results; empty for a paper result without a grid."""
    return stem and tomllib.loads((GRIDS / f"{stem}.toml").read_text(encoding="utf-8"))["name"]


def _values(paper_result: PaperResult, there: np.ndarray) -> tuple[object, ...]:
    if not paper_result.by:
        return (None,)
    if len(there):
        found = pd.Series(there).dropna().unique().tolist()  # a column with missing values has whole numbers as floats
        return tuple(sorted(int(each) if isinstance(each, float) and each.is_integer() else each for each in found))
    return tuple(sorted({key[1] for way in paper_result.ways for key in way.paper if isinstance(key, tuple)}))


def _judged(
    paper_result: PaperResult, ordering: Ordering, values: tuple[object, object], evidence: Evidence
) -> JudgedClaim:
    if (_paper_gain(paper_result, ordering, values) or 0) < 0:  # the paper's own numbers say the opposite
        at_both = None if ordering.at is None else ordering.at[::-1]
        ordering = replace(ordering, better=ordering.worse, worse=ordering.better, at=at_both)
        values = values[::-1]
    keys = list(zip((ordering.better, ordering.worse), values, strict=True))
    value = values[0] if ordering.at is None else " against ".join(map(str, values))
    paper = _paper_gain(paper_result, ordering, values)
    not_run = JudgedClaim(ordering, value, None, paper, "not run")
    better, worse = (evidence.by_prompt(key, ordering.figure) for key in keys)
    shared = better.index.intersection(worse.index)
    if not len(shared) or not worse[shared].mean():
        return not_run
    gain = ratio_gain(better[shared].to_numpy(), worse[shared].to_numpy())
    gain = gain if ordering.higher else gain.times(-1)
    decided = verdict(gain)
    if len(shared) < FEWEST:
        of_what = f"{'sample' if paper_result.stored else 'prompt'}{'s' * (len(shared) > 1)}"
        return JudgedClaim(ordering, value, gain, paper, decided, f"Measured on only {len(shared)} {of_what}.")
    said = ""
    if decided != "holds":
        named = [words if ordering.better != ordering.worse else f"{words} at {at}" for words, at in keys]
        first, second = (Side(words, evidence.rows(key), by_prompt[shared].to_numpy())
                         for words, key, by_prompt in zip(named, keys, (better, worse), strict=True))  # fmt: skip
        said = cause_of(paper_result, ordering, first, second, evidence.frame)
    return JudgedClaim(ordering, value, gain, paper, decided, said)


def _paper_gain(paper_result: PaperResult, ordering: Ordering, values: tuple[object, object]) -> float | None:
    column, papers = ordering.figure.column, {way.words: way.paper for way in paper_result.ways}
    better, worse = (papers[name].get(column if value is None else (column, value))
                     for name, value in zip((ordering.better, ordering.worse), values, strict=True))  # fmt: skip
    if better is None or worse is None:
        return None
    gain = better / worse - 1
    return gain if ordering.higher else -gain


def places_of(outcome: Reproduction) -> list[object]:
    """Places on the axis, ours and the paper's; one None for a table."""
    if not outcome.paper_result.by:
        return [None]
    theirs = {key[1] for way in outcome.paper_result.ways for key in way.paper if isinstance(key, tuple)}
    found = theirs | {value for value in outcome.values if value is not None}
    return sorted(found, key=lambda value: (isinstance(value, str), value))


def number_of_paper(way: Entry, figure: Figure, value: object) -> float | None:
    """The paper's number for an entry at a value of the axis; None where it gives none."""
    plain = way.paper.get(figure.column) if value is None or way.flat else None
    return way.paper.get((figure.column, value), plain)


def undecided(judged: Sequence[JudgedClaim], gap: float) -> dict[str, float]:
    """Of the claims that were run and whose gap in the paper is larger, how many are not decided, and their share."""
    verdicts = [each.verdict for each in judged if each.paper is not None and each.paper > gap]
    claims = len(verdicts) - verdicts.count("not run")
    open_ = verdicts.count("not decided")
    return {"claims": claims, "not decided": open_, "share": open_ / claims if claims else 0.0}


def words_of(figure: Figure, found: Estimate | None) -> str:
    """An estimate as tables print it: `1.42 (1.30 to 1.55)`, or with the number of prompts where they are few."""
    if found is None:
        return "not run"
    if found.prompts < FEWEST:
        return f"{found.value:,.{figure.digits}f} (n = {found.prompts})"
    value, low, high = (f"{each:,.{figure.digits}f}" for each in (found.value, found.low, found.high))
    return f"{value} ({low} to {high})"
