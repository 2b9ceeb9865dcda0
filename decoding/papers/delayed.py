"""Dynamic delayed tree expansion: verifiers on i.i.d. paths (Tables 2, 3, 8 to 15), and the selector (Tables 4 to 7).

All tables are judged by what `benchmarks.verifier_grid` stored; Figure 1 and the latency model of Eq. 11 use
`benchmarks.depth_divergence` and `benchmarks.action_times`.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

from decoding.papers.paper_result import PER_PASS, THROUGHPUT, Entry, Figure, Ordering, PaperResult, Protocol

SAMPLINGS = ("T = 0.2", "T = 0.4", "T = 0.6", "T = 0.8", "T = 1", "T = 1.2", "top-p = 0.9", "top-p = 0.99")
DATA_SETS = ("writing", "coding", "translation", "math, easy", "math, hard")  # each of Qwen, then Gemma, then Llama
NUMBERS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

PAPER = "Delayed tree expansion"
EIGHT = "T = 0.2; T = 0.4; T = 0.6; T = 0.8; T = 1, top-p 0.9; T = 1, top-p 0.99; T = 1; T = 1.2"
PROTOCOL = Protocol(
    "Llama-3, Qwen and Gemma", "two A100s", "50 each of LitBench, LiveCodeBench, Opus, MATH500 and OlympiadBench", "",
    "", EIGHT, "means over pairs, data sets and samplings", "the best K and L of each verifier",
)  # fmt: skip
# Tokens per pass and tokens per second, averages over the three pairs.
VERIFIERS: dict[str, tuple[str, float, float]] = {
    "nss": ("NSS", 4.05, 11.91), "naive": ("Naive", 4.52, 12.44), "naive_tree": ("NaiveTree", 4.50, 13.29),
    "block": ("Block", 4.30, 13.36), "specinfer": ("SpecInfer", 4.58, 13.55), "spectr": ("SpecTr", 4.61, 13.32),
    "khisti": ("Khisti", 4.41, 12.75), "traversal": ("Traversal", 5.31, 15.89),
}  # fmt: skip
BEST_OF = ("settings.paths", "settings.length")
PAIRS = (("Traversal", "SpecTr"), ("Traversal", "SpecInfer"), ("SpecTr", "NSS"), ("SpecInfer", "NaiveTree"),
         ("Block", "Naive"))  # fmt: skip
# Our kinds of text and the paper's data set that each corresponds to.
KINDS = {"stories": "writing", "code": "coding", "translation": "translation", "mathematics": "math, easy",
         "olympiad": "math, hard"}  # fmt: skip


# What the records of a benchmark hold that leaves nothing of verification to chance.
EXACT: dict[str, Any] = {
    "stored": "verifier_grid", "unit": "trees", "basis": "exact expectations at roots of the target's text",
    "times": "modelled from measured passes",
}  # fmt: skip


def _table(numbers: str, of_what: str, figure: Figure, papers: Mapping[str, Mapping], **more) -> PaperResult:
    """A table of the verifiers, traversal as it is published and ours beside it; in appendix F also with selectors."""
    ways = [_shaped(name, VERIFIERS[name][0], papers[name]) for name in VERIFIERS if name != "traversal"]
    ways.append(_shaped("traversal_wor", "Traversal", papers["traversal"]))  # as it is published
    ways += [_of_paths(count, papers[f"traversal_{count}"]) for count in (2, 3) if f"traversal_{count}" in papers]
    ways.append(_shaped("traversal", "Traversal, repeats kept", {}))
    orderings = [Ordering(better, worse, figure) for better, worse in PAIRS]
    for name in SELECTOR if more else ():
        ways.append(_delayed(name, papers[f"{name}{DELAYED}"]))
        orderings.append(Ordering(_delayed(name, {}).words, VERIFIERS[name][0], figure))
    return PaperResult(
        f"delayed/table-{_first(numbers)}", PAPER, f"{_named(numbers)}: {of_what}", "", PROTOCOL, (figure,),
        tuple(ways), tuple(orderings), **EXACT, **more,
    )  # fmt: skip


def _shaped(name: str, words: str, paper: Mapping[object, float]) -> Entry:
    """A verifier with its best shape of i.i.d. paths, of which one for a single path has one."""
    return Entry(words, f"iid_paths:verifier={name}", paper, BEST_OF)


def _of_paths(count: int, paper: Mapping[object, float]) -> Entry:
    """Traversal as it is published over so many paths, of the best length."""
    where = {"settings.paths": count}
    return Entry(f"Traversal, K = {count}", "iid_paths:verifier=traversal_wor", paper, ("settings.length",), where)


def _first(numbers: str) -> str:
    return numbers.split()[0].rstrip(",")


def _named(numbers: str) -> str:
    return f"Table{'s' * (' ' in numbers)} {numbers}"


def _averages(figure: Figure, place: int) -> dict[str, dict]:
    return {name: {figure.column: entry[place]} for name, entry in VERIFIERS.items()}


def _by_sampling(figure: Figure, numbers: str) -> dict[str, dict]:
    """Means over the three pairs, sampling by sampling."""
    return {name: {(figure.column, sampling): round(mean(row[place] for row in rows), 2)
                   for place, sampling in enumerate(SAMPLINGS)} for name, rows in NUMBERS[numbers].items()}  # fmt: skip


def _by_kind(figure: Figure, numbers: str) -> dict[str, dict]:
    """Means over the three pairs for the data sets that correspond to our kinds of text."""
    count = len(DATA_SETS)
    return {name: {(figure.column, kind): round(mean(row[DATA_SETS.index(data_set) :: count]), 2)
                   for kind, data_set in KINDS.items()} for name, row in NUMBERS[numbers].items()}  # fmt: skip


# Verifiers with the selector: tokens per pass and tokens per second with it (Tables 6 and 7).
SELECTOR = {
    "nss": (4.48, 15.05), "naive_tree": (4.94, 16.18), "specinfer": (5.03, 16.69), "spectr": (5.05, 16.40),
    "khisti": (5.23, 14.83),
}  # fmt: skip


DELAYED = "_delayed"  # ending of the names of these verifiers in the tables of numbers
BY_KIND = {"by": "kind", "axis": "kind of text"}
BY_SAMPLING = {"by": "sampling", "axis": "sampling"}


def _delayed(name: str, paper: Mapping[object, float]) -> Entry:
    """A verifier with its selector."""
    words, line = f"{VERIFIERS[name][0]}, delayed expansion", f"delayed:verifier={name}"
    return Entry(words, line, paper, where={"method": "delayed"})


def _with_selector(name: str) -> str:
    return f"{VERIFIERS[name][0]}, selector"


def _selector(numbers: str, title: str, figure: Figure, place: int, beaten: tuple[str, ...]) -> PaperResult:
    shaped = {name: VERIFIERS[name][0] for name in SELECTOR} | {"traversal_wor": "Traversal"}
    papers: dict[str, Mapping[object, float]] = {
        name: {figure.column: VERIFIERS[name][1:][place]} for name in (*SELECTOR, "traversal")
    }
    ways = [_shaped(name, words, papers[name.removesuffix("_wor")]) for name, words in shaped.items()]
    for name, paper in SELECTOR.items():
        ways.append(replace(_delayed(name, {figure.column: paper[place]}), words=_with_selector(name)))
    orderings = [Ordering(_with_selector(name), VERIFIERS[name][0], figure) for name in SELECTOR]
    orderings += [Ordering(_with_selector(name), "Traversal", figure) for name in beaten]
    return PaperResult(
        f"delayed/tables-{numbers.replace(' and ', '-')}", PAPER, f"Tables {numbers}: {title}", "", PROTOCOL, (figure,),
        tuple(ways), tuple(orderings), **EXACT,
    )  # fmt: skip


SELECTORS = (
    _selector("4 and 6", "tokens per pass with the selector", PER_PASS, 0, ()),
    _selector("5 and 7", "throughput with the selector", THROUGHPUT, 1, ("specinfer", "spectr", "naive_tree")),
)

# Of appendix F: figure, section of the numbers, and by what.
APPENDIX = (
    ("8", "throughput by kind of text", THROUGHPUT, "throughput_by_data_set", BY_KIND),
    ("9", "tokens per pass by kind of text", PER_PASS, "per_pass_by_data_set", BY_KIND),
    ("10, 12 and 14", "throughput by sampling", THROUGHPUT, "throughput_by_sampling", BY_SAMPLING),
    ("11, 13 and 15", "tokens per pass by sampling", PER_PASS, "per_pass_by_sampling", BY_SAMPLING),
)


def _appendix() -> tuple[PaperResult, ...]:
    found = []
    for numbers, of_what, figure, section, axis in APPENDIX:
        papers = (_by_kind if axis is BY_KIND else _by_sampling)(figure, section)
        found.append(_table(numbers, of_what, figure, papers, **axis))
    return tuple(found)


TABLES = (
    _table("2", "tokens per pass of the verifiers", PER_PASS, _averages(PER_PASS, 1)),
    _table("3", "throughput of the verifiers", THROUGHPUT, _averages(THROUGHPUT, 2)),
    *_appendix(),
)

DRAWS = (4, 3, 2, 1)
ACCEPTED = {draws: Figure(f"accepted_of_{draws}", f"acceptance at {draws} draw{'s' * (draws > 1)}, %", 100, 1)
            for draws in DRAWS}  # fmt: skip
DISTANCE = Figure("l1_distance", "L1 distance")
SHALLOW, DEEP = 0, 7
BOTH = "Target and draft"
SOLVERS = ("nss", "naive_tree", "specinfer", "spectr", "khisti")
OFFLINE = Protocol(
    "Llama-3 70B with Llama-3 8B", PROTOCOL.hardware, "LiveCodeBench, MATH500 and OlympiadBench", sampling=EIGHT,
    repeats="200,000 trees along texts of the target",
)  # fmt: skip


def _figure_1(
    letter: str, title: str, figures: tuple[Figure, ...], ways: tuple[Entry, ...], rises: bool
) -> PaperResult:
    at = (DEEP, SHALLOW) if rises else (SHALLOW, DEEP)
    return PaperResult(
        f"delayed/figure-1{letter}", PAPER, f"Figure 1, {title} by depth", "", OFFLINE, figures, ways,
        tuple(Ordering(way.words, way.words, figures[0], at=at) for way in ways),
        by="depth", stored="depth_divergence", unit="roots", basis="exact expectations", axis="node depth",
    )  # fmt: skip


FIGURE_1 = (
    _figure_1("a", "distance between target and draft", (DISTANCE,), (Entry(BOTH, "laws"),), rises=True),
    _figure_1("b", "acceptance of the verifiers", tuple(ACCEPTED.values()),
              tuple(Entry(VERIFIERS[name][0], name) for name in SOLVERS), rises=False),
)  # fmt: skip

EQUATION_11 = PaperResult(
    "delayed/equation-11", PAPER, "Equation 11: modelled against measured pass time", "",
    Protocol(
        PROTOCOL.pair, PROTOCOL.hardware, "a warm-up run", setup="one-token passes at every context length",
        note="the paper chooses actions with this model and does not compare it with measured times",
    ),
    (Figure("pass_ms", "ms per pass", timed=True),
     Figure("of_measured", "of the measured time, %", 100, 0, timed=True)),
    (Entry("Measured", "measured"), Entry("Modelled, passes costed by their tokens", "rows"),
     Entry("Modelled, Eq. 11 as printed", "paper")),
    by="nodes", stored="action_times", unit="passes", times="measured and modelled times", axis="tree nodes",
    needs="runs of decoding/experiments/grids/action_times.toml on this machine",
)  # fmt: skip

PAPER_RESULTS = (*TABLES, *SELECTORS, *FIGURE_1, EQUATION_11)
