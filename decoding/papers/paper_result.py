"""A table or figure of a paper as data: the methods it compares, the paper's numbers, the orderings it claims.

How something was measured, in a paper or here, is a `Protocol`; `compared` puts a word on each difference of two.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from typing import Any, NamedTuple

import pandas as pd

EMBEDDED = "Embedded pair"
SMALL = "a small pair that runs on any machine: its orders and proportions are compared, not its heights"
OWN_SETS = {"samples": "samples", "long": "long texts"}  # written for this project, by the words that name them
# Data sets that `--prompts` takes where a network is there: `experiments.plan.DATA_SETS`, which needs torch
BY_NAME = ("wikitext-2", "pg-19", "gsm8k", "humaneval", "mt-bench", "cnn-dailymail", "c4", "openwebtext")
DIFFERS = {
    "pair": "another pair than the paper's",
    "hardware": "times are compared as ratios on one machine",
    "prompts": "other texts than the paper's, or others of the same set",
    "prompt_tokens": "where lengths differ, prefill has another share of the time, and the draft another context",
    "new_tokens": "other lengths, or not all of the paper's",
    "sampling": "other samplings than the paper's, or one that it does not name",
    "repeats": "our intervals are over prompts",
    "setup": "other sizes, shapes or training than the paper's",
}
DRAFT_TEMPERATURE = re.compile(r", draft T = [\d.]+")
OF_RECORDS = "protocol."  # before the names of columns in which the records of a benchmark say how they were measured


@dataclass(frozen=True)
class Protocol:
    """How something was measured; what a paper leaves open is empty."""

    # pair, hardware: what ran, and on what. prompts: which texts. prompt_tokens, new_tokens: lengths.
    pair: str = ""
    hardware: str = ""
    prompts: str = ""
    prompt_tokens: str = ""
    new_tokens: str = ""
    # sampling: temperatures. repeats: what figures are means over. note: what else must be known.
    sampling: str = ""
    repeats: str = ""
    note: str = ""
    setup: str = ""

    def __str__(self) -> str:
        parts = [
            " on ".join(filter(None, (self.pair, self.hardware))),
            self.prompts,
            self.prompt_tokens and f"prompts of {self.prompt_tokens} tokens",
            self.new_tokens and f"{self.new_tokens} new tokens",
            self.sampling,
            self.repeats,
            self.setup,
        ]
        return "; ".join(filter(None, [", ".join(filter(None, parts)), self.note]))


class Aspect(NamedTuple):
    """One line of two protocols: what the paper did, what we did, and a word where the two differ."""

    name: str
    paper: str
    here: str
    said: str


def compared(paper: Protocol, here: Protocol, by_name: bool = True) -> list[Aspect]:
    """Both protocols side by side.

    Args:
        by_name: whether the command that measures takes data sets by name, as that of a grid does.
    """
    found = []
    for name in (each.name for each in fields(Protocol) if each.name != "note"):
        theirs, ours = getattr(paper, name), getattr(here, name)
        if theirs or ours:
            said = "" if theirs == ours else _said(name, paper, here, by_name)
            found.append(Aspect(name.replace("_", " "), theirs or "–", ours or "–", said))
    return found


def _said(name: str, paper: Protocol, here: Protocol, by_name: bool) -> str:
    """A word on an aspect in which two protocols differ, true of both."""
    if not getattr(paper, name):
        return "not given by the paper"
    if not getattr(here, name):
        return "not in our records"
    embedded, sets = here.pair.startswith(EMBEDDED), here.prompts.partition(" of ")[2].partition(" (")[0]
    if name == "pair" and embedded:
        return SMALL
    named = [each for each in BY_NAME if _letters(each) in _letters(paper.prompts)]
    if name == "prompts" and by_name and named and OWN_SETS.keys() & set(sets.split(", ")):
        return f"texts of the paper, where a network is there: --prompts {' or '.join(named)}"
    if name == "sampling" and DRAFT_TEMPERATURE.sub("", here.sampling) == paper.sampling:
        return "the target's are the same; the paper does not say at which temperature the draft samples"
    return DIFFERS[name]


def _letters(text: str) -> str:
    return re.sub(r"\W", "", text).lower()


def protocol_here(rows: pd.DataFrame) -> Protocol:
    """How results, at least one, were measured; of records that are no runs as they say themselves."""
    where = Protocol(pair=_listed(rows["pair"]), hardware=_listed(rows["machine"]))
    if "asked_tokens" not in rows:
        texts = {"prompts": _texts(rows)} if "text_hash" in rows else {}
        columns = {each.name: OF_RECORDS + each.name for each in fields(Protocol)}
        known = {name: rows[column].dropna() for name, column in columns.items() if column in rows}
        return replace(where, **texts, **{name: _listed(said) for name, said in known.items() if len(said)})
    samplings = rows[["temperature", "top_p", "draft_temperature"]].drop_duplicates()
    lengths, cuts = rows["prompt_tokens"], rows["cut"]
    several = lengths.nunique() > 1 and (lengths == cuts).any()
    cut = f", cut to {_listed(cuts[cuts > 0])}" if several else ""
    repeats = rows["repeat"].nunique()
    each = f"{repeats} runs of each" if repeats > 1 else "one run of each"
    if "roots" in rows:  # nothing is decoded
        each = f"{_listed(rows['roots'])} roots in the target's text after each"
    return Protocol(
        where.pair, where.hardware, _texts(rows), between(lengths) + cut, _listed(rows["asked_tokens"]),
        sampling_words(samplings.itertuples(index=False)), each,
    )  # fmt: skip


def sampling_words(samplings: Iterable[tuple[float, float, float]]) -> str:
    """Samplings, each (temperature, top-p, temperature of the draft): `greedy; T = 0.6, top-p 0.9, draft T = 0.6`."""
    return "; ".join(
        ("greedy" if temperature == 0 else f"T = {temperature:g}")
        + (f", top-p {top_p:g}" if temperature and top_p < 1 else "")
        + (f", draft T = {draft:g}" if draft != 1 else "")
        for temperature, top_p, draft in sorted(samplings)
    )


def between(lengths: Iterable[int]) -> str:
    """The least and the largest of some numbers: `44 to 81`."""
    found = sorted(lengths)
    return f"{found[0]:,.0f}" if found[0] == found[-1] else f"{found[0]:,.0f} to {found[-1]:,.0f}"


def _texts(rows: pd.DataFrame) -> str:
    """Which texts results were measured on: `16 of samples (stories, code, hash 01234567)`."""
    sets, kinds = _listed(rows["prompt_set"]), _listed(rows["kind"])
    count = len(rows[["prompt_set", "kind", "prompt"]].drop_duplicates())
    hashes = sorted(rows["text_hash"].dropna().unique()) if "text_hash" in rows else []
    texts = f", hash {sha256(' '.join(hashes).encode()).hexdigest()[:8]}" if len(hashes) == count else ""
    return f"{count} of {sets} ({kinds}{texts})"


def _listed(values: pd.Series) -> str:
    """The distinct values in order; numbers with commas."""
    return ", ".join(value if isinstance(value, str) else f"{value:,.0f}" for value in sorted(values.unique()))


@dataclass(frozen=True)
class Figure:
    """What is measured."""

    column: str  # of the results, without the prefix `loop_free_`; `speedup` is the ratio to the reference of a block
    words: str  # with the unit
    scale: float = 1.0  # factor from the column to what is shown
    digits: int = 2  # after the decimal point
    timed: bool = False  # whether it is a time or a rate, which depends on what passes cost; else a count
    by_shape: bool = False  # whether chains have another formula than trees, so that the two cannot be compared


THROUGHPUT = Figure("throughput", "tokens/s", digits=1, timed=True)
SPEEDUP = Figure("speedup", "speed-up", timed=True)
TTFT = Figure("ttft_s", "TTFT, ms", 1000, timed=True)
TPOT = Figure("tpot_s", "TPOT, ms", 1000, timed=True)
PER_PASS = Figure("tokens_per_iteration", "tokens per pass")
OVER_DRAFTED = Figure("acceptance_drafted", "accepted / drafted, %", 100, 1)
COMMITTED_OVER_DRAFTED = Figure("committed_over_drafted", "committed / drafted, %", 100, 1)
# What DynaTree defines in Section 4.2 and its public code does not compute: of the whole tree, not of the path alone.
AGREEMENT = Figure("node_agreement", "node agreement, %", 100, 1)
# As the two DynaTree papers compute acceptance: not a share of drafted tokens.
OVER_DEPTH_2 = Figure(
    "committed_over_depth_2", "committed per pass / (D + 2), of a chain / K, %", 100, 1, by_shape=True
)
OVER_DEPTH_1 = Figure(
    "committed_over_depth_1", "committed per pass / (D + 1), of a chain / K, %", 100, 1, by_shape=True
)
PASSES = Figure("iterations", "verification passes", digits=0)
MEMORY = Figure("peak_memory_bytes", "peak memory, MB", 1e-6, 1)
PATH = Figure("accepted_mean", "accepted path, tokens")
DRAFTED = Figure("drafted_per_pass", "drafted tokens per pass", digits=1)
DRAFT_FORWARDS = Figure("forwards_per_pass", "draft forwards per pass")


@dataclass(frozen=True)
class Entry:
    """A row of a table or a line in a figure."""

    words: str  # as the paper calls it
    # Of the contestant, as `contestants.format_contestant` writes it, or its name in the records of a benchmark; with
    # `best` or `where` its method, and its verifier after `:verifier=`
    line: str
    # The paper's numbers by column of a figure; where the result has `by`, by (column, value)
    paper: Mapping[Any, float] = field(default_factory=dict)
    # Columns of settings: of all their combinations only the one best in the first figure counts, chosen separately for
    # every sampling and every value of the axis
    best: tuple[str, ...] = ()
    where: Mapping[str, Any] = field(default_factory=dict)  # values that columns of settings must have
    flat: bool = False  # the same at every value of the axis, as a horizontal line


@dataclass(frozen=True)
class Ordering:
    """A claim that one entry is above another in a figure, or below it where lower is better."""

    better: str
    worse: str
    figure: Figure
    higher: bool = True
    # Two values on the axis: the first entry at the one is compared with the second at the other
    at: tuple[object, object] | None = None


@dataclass(frozen=True)
class PaperResult:
    """A table or figure."""

    # key: such as `dynatree/table-1`. paper, title: what it is.
    key: str
    paper: str
    title: str
    grid: str  # file in `decoding/experiments/grids` whose results it uses; empty where a benchmark stored them
    protocol: Protocol  # how the paper measured
    figures: tuple[Figure, ...]  # columns; the first is the one that is drawn
    ways: tuple[Entry, ...]
    orderings: tuple[Ordering, ...] = ()
    by: str = ""  # column of the results on a figure's axis; empty for a table
    only: Mapping[str, object] = field(default_factory=dict)  # values that columns must have for a result to count
    view: str = "runs"  # how results are transformed first, one of `rows.VIEWS`
    stored: str = ""  # benchmark whose records in `decoding/experiments/results` it uses; empty for a grid
    unit: str = "tokens"  # what a row of results counts: tokens, roots, trees, ...
    masks: bool = False  # such records are of masks: no text is counted
    # basis, times: how the counts and the times in such records came about
    basis: str = "counts"
    times: str = "measured times"
    axis: str = ""  # title of the axis
    # Column whose values the entries have in `where`: figures stand as coloured marks over it and `by`
    across: str = ""
    needs: str = ""  # what the command needs to measure this; empty where the sample prompts suffice

    def __post_init__(self):
        shape = {way.words: way.line.partition(":")[0] == "linear" for way in self.ways}
        for each in self.orderings:
            if each.figure.by_shape and shape[each.better] != shape[each.worse]:
                raise ValueError(f"{self.key}: {each.figure.words} is one statistic of chains and another of trees")

    @property
    def numbers(self) -> tuple[str, ...]:
        """The tables and figures of the paper that it is, see `numbers_of`."""
        return numbers_of(self.title)

    @property
    def command(self) -> str:
        """The command that measures it."""
        if self.stored:
            return f"python -m benchmarks.{self.stored} --save"
        return f"python -m benchmarks.sweep decoding/experiments/grids/{self.grid}.toml"

    @property
    def wide_command(self) -> str:
        """The command that measures its times with the wide pair; empty where it has none."""
        timed = any(figure.timed for figure in self.figures)
        return f"{self.command} --widen 4" if timed and not self.stored else ""


KINDS = ("Table", "Figure", "Algorithm", "Equation")
NUMBERED = re.compile(r"(Table|Figure|Algorithm|Equation)s? ((?:\d+[a-z]?(?:, | and |$)?)+)")


def numbers_of(title: str) -> tuple[str, ...]:
    """What a title names by number: `Tables 10, 12 and 14: throughput` is `("Table 10", "Table 12", "Table 14")`."""
    head = title.partition(":")[0]
    return tuple(
        f"{kind} {number}" for kind, found in NUMBERED.findall(head) for number in re.findall(r"\w*\d\w*", found)
    )


def place_of(title: str) -> tuple[int, int, str]:
    """Where a title stands in the list of a paper: tables before figures, by their numbers."""
    kind, number = numbers_of(title)[0].split()
    digits = number.rstrip("abcdef")
    return KINDS.index(kind), int(digits), number[len(digits) :]
