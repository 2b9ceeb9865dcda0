"""Dynamic delayed tree expansion: verifiers on i.i.d. paths (Tables 2, 3, 8 to 15), and the selector (Tables 4 to 7).

Figure 1 and the latency model of Eq. 11 are made of what `benchmarks.depth_divergence` and `benchmarks.action_times`
stored.
"""

from collections.abc import Mapping
from statistics import mean

from decoding.papers.exhibit import PER_PASS, THROUGHPUT, Exhibit, Figure, Ordering, Way

SAMPLINGS = ("T = 0.2", "T = 0.4", "T = 0.6", "T = 0.8", "T = 1", "T = 1.2", "top-p = 0.9", "top-p = 0.99")
DATA_SETS = ("writing", "coding", "translation", "math, easy", "math, hard")  # each of Qwen, then Gemma, then Llama
Numbers = tuple[float, ...]

# Tables 10, 12 and 14: tokens per second of Qwen, Gemma and Llama.
THROUGHPUT_BY_SAMPLING: dict[str, tuple[Numbers, Numbers, Numbers]] = {
    "nss": (
        (19.31, 18.97, 18.55, 17.76, 15.93, 12.72, 15.77, 16.04),
        (5.95, 5.96, 6.31, 5.84, 5.83, 5.88, 5.88, 5.86),
        (13.77, 13.36, 13.36, 13.57, 11.93, 12.01, 12.69, 12.59),
    ),
    "naive": (
        (15.4, 15.86, 16.58, 16.85, 16.74, 16.05, 17.51, 17.39),
        (8.99, 9.19, 9.37, 9.45, 9.06, 9.04, 9.25, 9.29),
        (10.61, 11.09, 11.57, 11.96, 12.08, 11.38, 12.06, 11.87),
    ),
    "naive_tree": (
        (19.75, 20.2, 19.82, 19.52, 18.98, 16.9, 19.03, 19.06),
        (6.03, 5.96, 5.86, 6.01, 6.1, 5.94, 6.01, 6.11),
        (14.22, 14.39, 14.41, 15.32, 14.5, 14.34, 15.35, 15.12),
    ),
    "block": (
        (16.07, 17.24, 17.64, 17.81, 17.9, 15.91, 17.96, 17.84),
        (10.44, 10.34, 10.8, 10.84, 10.32, 10.92, 10.43, 10.49),
        (10.97, 11.63, 11.98, 12.55, 12.79, 12.24, 12.74, 12.7),
    ),
    "khisti": (
        (18.23, 18.66, 18.9, 19.07, 19.37, 18.53, 18.11, 18.47),
        (5.95, 5.87, 5.86, 5.82, 6.01, 6.0, 5.98, 5.95),
        (13.52, 13.46, 13.82, 13.89, 13.79, 12.75, 14.06, 13.99),
    ),
    "specinfer": (
        (19.81, 19.99, 20.17, 20.07, 19.61, 17.67, 19.72, 19.62),
        (6.13, 6.2, 6.21, 6.09, 6.35, 6.24, 6.27, 6.21),
        (13.97, 14.3, 14.59, 15.65, 14.74, 15.05, 15.12, 15.42),
    ),
    "spectr": (
        (18.7, 19.49, 19.72, 19.25, 19.14, 17.19, 19.15, 19.46),
        (5.72, 5.91, 5.77, 6.44, 6.25, 6.05, 6.21, 6.34),
        (14.11, 14.27, 14.3, 15.33, 14.68, 15.22, 15.45, 15.54),
    ),
    "traversal": (
        (21.09, 21.56, 21.9, 21.63, 21.52, 19.79, 21.68, 21.6),
        (12.08, 12.01, 11.75, 11.49, 11.16, 11.64, 11.16, 11.22),
        (13.97, 14.52, 15.04, 15.01, 14.77, 15.07, 14.99, 14.79),
    ),
}  # fmt: skip
# Tables 11, 13 and 15: tokens per pass of the same.
PER_PASS_BY_SAMPLING: dict[str, tuple[Numbers, Numbers, Numbers]] = {
    "nss": (
        (5.05, 4.98, 4.89, 4.65, 4.19, 3.38, 4.16, 4.22),
        (2.01, 1.98, 2.09, 1.95, 1.97, 1.95, 1.97, 1.97),
        (6.26, 6.05, 6.06, 5.82, 5.41, 5.2, 5.49, 5.48),
    ),
    "naive": (
        (4.48, 4.65, 4.84, 4.93, 4.61, 4.18, 4.59, 4.56),
        (3.47, 3.34, 3.4, 3.53, 3.5, 3.57, 3.37, 3.37),
        (5.06, 5.3, 5.54, 5.7, 5.73, 5.41, 5.76, 5.68),
    ),
    "naive_tree": (
        (5.16, 5.2, 5.17, 5.11, 4.97, 4.44, 4.98, 4.96),
        (2.02, 2.0, 1.97, 2.02, 2.04, 1.98, 2.04, 2.04),
        (6.42, 6.51, 6.51, 6.61, 6.56, 6.2, 6.65, 6.52),
    ),
    "block": (
        (3.96, 4.2, 4.3, 4.36, 4.37, 3.93, 4.39, 4.38),
        (3.27, 3.27, 3.37, 3.37, 3.24, 3.4, 3.24, 3.24),
        (4.81, 5.11, 5.29, 5.54, 5.6, 5.39, 5.64, 5.59),
    ),
    "khisti": (
        (5.13, 5.25, 5.37, 5.28, 4.51, 3.4, 5.09, 5.21),
        (2.05, 2.04, 2.02, 2.01, 2.07, 2.06, 2.09, 2.06),
        (6.58, 6.58, 6.75, 6.85, 5.72, 4.25, 6.78, 6.81),
    ),
    "specinfer": (
        (5.18, 5.23, 5.27, 5.27, 5.15, 4.64, 5.17, 5.15),
        (2.05, 2.06, 2.06, 2.05, 2.1, 2.08, 2.08, 2.08),
        (6.35, 6.46, 6.6, 6.71, 6.63, 6.45, 6.53, 6.66),
    ),
    "spectr": (
        (5.04, 5.24, 5.28, 5.2, 5.15, 4.62, 5.14, 5.21),
        (1.94, 1.99, 1.94, 2.16, 2.11, 2.06, 2.11, 2.11),
        (6.5, 6.56, 6.6, 6.69, 6.76, 6.66, 6.78, 6.82),
    ),
    "traversal": (
        (5.25, 5.38, 5.4, 5.43, 5.4, 4.97, 5.4, 5.4),
        (3.96, 3.97, 3.83, 3.82, 3.65, 3.9, 3.67, 3.67),
        (6.4, 6.7, 6.86, 6.84, 6.8, 6.9, 6.88, 6.83),
    ),
}  # fmt: skip
# Table 8: tokens per second.
THROUGHPUT_BY_DATA_SET: dict[str, Numbers] = {
    "nss": (8.0, 16.28, 12.67, 24.68, 22.76, 3.5, 5.34, 9.87,
        6.13, 4.85, 10.08, 15.36, 15.03, 12.86, 11.23),
    "naive": (7.9, 17.47, 9.76, 24.84, 22.77, 4.72, 6.79, 7.3,
        13.15, 14.07, 8.65, 13.05, 12.72, 12.42, 11.04),
    "naive_tree": (10.25, 19.08, 13.28, 27.52, 25.67, 3.48, 5.26, 9.74,
        6.48, 5.04, 11.77, 16.1, 15.71, 15.68, 14.28),
    "block": (9.53, 18.24, 11.22, 24.69, 22.81, 5.82, 7.66, 8.57,
        15.58, 15.25, 9.57, 13.38, 12.94, 13.07, 12.04),
    "khisti": (11.22, 19.87, 13.88, 24.29, 24.07, 3.53, 5.08, 8.88,
        6.6, 5.58, 11.71, 14.25, 14.23, 14.18, 13.92),
    "specinfer": (10.77, 19.76, 13.43, 27.81, 26.14, 3.59, 5.34, 9.92,
        6.55, 5.67, 12.29, 16.43, 15.77, 15.52, 14.27),
    "spectr": (10.94, 19.31, 13.29, 26.56, 24.96, 3.54, 5.38, 9.8,
        6.44, 5.26, 12.21, 16.23, 15.63, 15.7, 14.55),
    "traversal": (11.95, 22.9, 14.97, 29.41, 27.49, 6.56, 8.94, 9.73,
        15.35, 17.23, 12.35, 15.74, 15.19, 15.39, 15.18),
}  # fmt: skip
# Table 9: tokens per pass.
PER_PASS_BY_DATA_SET: dict[str, Numbers] = {
    "nss": (2.06, 4.4, 3.46, 6.34, 5.93, 1.17, 1.81, 3.28,
        2.04, 1.63, 4.45, 6.86, 6.69, 5.69, 4.93),
    "naive": (2.18, 4.91, 2.73, 6.91, 6.3, 1.74, 2.6, 2.8,
        4.91, 5.17, 4.08, 6.33, 6.12, 5.85, 5.22),
    "naive_tree": (2.62, 5.14, 3.63, 7.0, 6.6, 1.17, 1.78, 3.25,
        2.19, 1.68, 5.18, 7.19, 7.01, 6.88, 6.24),
    "block": (2.31, 4.48, 2.78, 6.02, 5.59, 1.79, 2.45, 2.76,
        4.76, 4.73, 4.18, 5.93, 5.78, 5.71, 5.25),
    "khisti": (2.78, 5.16, 3.5, 6.59, 6.5, 1.21, 1.77, 3.09,
        2.26, 1.92, 5.26, 6.64, 6.63, 6.57, 6.35),
    "specinfer": (2.79, 5.33, 3.67, 7.12, 6.76, 1.2, 1.8, 3.27,
        2.17, 1.9, 5.39, 7.31, 7.0, 6.84, 6.21),
    "spectr": (2.85, 5.33, 3.69, 7.04, 6.65, 1.2, 1.84, 3.3,
        2.16, 1.77, 5.4, 7.36, 7.07, 7.08, 6.45),
    "traversal": (2.99, 5.8, 3.83, 7.24, 6.78, 2.12, 3.02, 3.29,
        5.05, 5.56, 5.62, 7.36, 7.07, 6.96, 6.86),
}  # fmt: skip


PAPER = "Delayed tree expansion"
PROTOCOL = "means over three pairs, five data sets and eight samplings on A100s; K and L the best for each verifier"
# Tokens per pass and tokens per second, averages over the three pairs.
VERIFIERS = {
    "nss": ("NSS", 4.05, 11.91), "naive": ("Naive", 4.52, 12.44), "naive_tree": ("NaiveTree", 4.50, 13.29),
    "block": ("Block", 4.30, 13.36), "specinfer": ("SpecInfer", 4.58, 13.55), "spectr": ("SpecTr", 4.61, 13.32),
    "khisti": ("Khisti", 4.41, 12.75), "traversal": ("Traversal", 5.31, 15.89),
}  # fmt: skip
SINGLE_PATH = ("naive", "block")
BEST_OF = ("settings.paths", "settings.length")
PAIRS = (("Traversal", "SpecTr"), ("Traversal", "SpecInfer"), ("SpecTr", "NSS"), ("SpecInfer", "NaiveTree"),
         ("Block", "Naive"))  # fmt: skip
# Kinds of text that are a data set of the paper's in kind.
KINDS = {"stories": "writing", "code": "coding", "translation": "translation", "mathematics": "math, easy"}


def _verifier(name: str, paper: Mapping[object, float]) -> Way:
    """A verifier with its best shape of i.i.d. paths; one for a single path with its best chain."""
    if name in SINGLE_PATH:
        sampled = {"settings.sampled": True}
        return Way(VERIFIERS[name][0], f"linear:verifier={name}", paper, ("settings.length",), sampled)
    return Way(VERIFIERS[name][0], f"iid_paths:verifier={name}", paper, BEST_OF)


def _tables(numbers: str, of_what: str, figure: Figure, papers: Mapping[str, Mapping], **more) -> Exhibit:
    return Exhibit(
        f"delayed/table-{numbers.split()[0].rstrip(',')}", PAPER, f"Table{'s' * (' ' in numbers)} {numbers}: {of_what}",
        "delayed_expansion", PROTOCOL, (figure,), tuple(_verifier(name, paper) for name, paper in papers.items()),
        tuple(Ordering(better, worse, figure) for better, worse in PAIRS), **more,
    )  # fmt: skip


def _averages(figure: Figure, place: int) -> dict[str, dict]:
    return {name: {figure.column: entry[place]} for name, entry in VERIFIERS.items()}


def _by_sampling(figure: Figure, tables: Mapping[str, tuple]) -> dict[str, dict]:
    """Means over the three pairs, sampling by sampling."""
    return {name: {(figure.column, sampling): round(mean(row[place] for row in tables[name]), 2)
                   for place, sampling in enumerate(SAMPLINGS)} for name in VERIFIERS}  # fmt: skip


def _by_kind(figure: Figure, table: Mapping[str, tuple]) -> dict[str, dict]:
    """Means over the three pairs for the data sets that a kind of text stands for."""
    count = len(DATA_SETS)
    return {name: {(figure.column, kind): round(mean(table[name][DATA_SETS.index(data_set) :: count]), 2)
                   for kind, data_set in KINDS.items()} for name in VERIFIERS}  # fmt: skip


TABLES = (
    _tables("2", "tokens per pass of the verifiers", PER_PASS, _averages(PER_PASS, 1)),
    _tables("3", "throughput of the verifiers", THROUGHPUT, _averages(THROUGHPUT, 2)),
    _tables("8", "throughput by kind of text", THROUGHPUT, _by_kind(THROUGHPUT, THROUGHPUT_BY_DATA_SET),
            by="kind", axis="kind of text"),
    _tables("9", "tokens per pass by kind of text", PER_PASS, _by_kind(PER_PASS, PER_PASS_BY_DATA_SET),
            by="kind", axis="kind of text"),
    _tables("10, 12 and 14", "throughput by sampling", THROUGHPUT, _by_sampling(THROUGHPUT, THROUGHPUT_BY_SAMPLING),
            by="sampling", axis="sampling"),
    _tables("11, 13 and 15", "tokens per pass by sampling", PER_PASS, _by_sampling(PER_PASS, PER_PASS_BY_SAMPLING),
            by="sampling", axis="sampling"),
)  # fmt: skip

# The selector's ways and their rivals: tokens per pass and tokens per second with it (Tables 6 and 7).
SELECTOR = {
    "nss": (4.48, 15.05), "naive_tree": (4.94, 16.18), "specinfer": (5.03, 16.69), "spectr": (5.05, 16.40),
    "khisti": (5.23, 14.83),
}  # fmt: skip


def _with_selector(name: str) -> str:
    return f"{VERIFIERS[name][0]}, selector"


def _selector(numbers: str, title: str, figure: Figure, place: int, beaten: tuple[str, ...]) -> Exhibit:
    ways = [_verifier(name, {figure.column: VERIFIERS[name][place + 1]}) for name in (*SELECTOR, "traversal")]
    for name, paper in SELECTOR.items():
        where = {"settings.selector": name.replace("_", "-")}
        ways.append(Way(_with_selector(name), f"delayed:verifier={name}", {figure.column: paper[place]}, where=where))
    orderings = [Ordering(_with_selector(name), VERIFIERS[name][0], figure) for name in SELECTOR]
    orderings += [Ordering(_with_selector(name), "Traversal", figure) for name in beaten]
    return Exhibit(
        f"delayed/tables-{numbers.replace(' and ', '-')}", PAPER, f"Tables {numbers}: {title}", "delayed_selector",
        PROTOCOL, (figure,), tuple(ways), tuple(orderings),
        needs="selectors trained for the pair: python -m decoding.training.selector --verifier all",
    )  # fmt: skip


SELECTORS = (
    _selector("4 and 6", "tokens per pass with the selector", PER_PASS, 0, ()),
    _selector("5 and 7", "throughput with the selector", THROUGHPUT, 1, ("specinfer", "spectr", "naive_tree")),
)

DRAWS = (4, 3, 2, 1)
ACCEPTED = {draws: Figure(f"accepted_of_{draws}", f"acceptance at {draws} draw{'s' * (draws > 1)}, %", 100, 1)
            for draws in DRAWS}  # fmt: skip
DISTANCE = Figure("l1_distance", "L1 distance")
SHALLOW, DEEP = 0, 7
BOTH = "Target and draft"
SOLVERS = ("nss", "naive_tree", "specinfer", "spectr", "khisti")
OFFLINE = "200,000 trees of Llama-3 8B along texts of Llama-3 70B, eight samplings"


def _figure_1(letter: str, title: str, figures: tuple[Figure, ...], ways: tuple[Way, ...], rises: bool) -> Exhibit:
    at = (DEEP, SHALLOW) if rises else (SHALLOW, DEEP)
    return Exhibit(
        f"delayed/figure-1{letter}", PAPER, f"Figure 1, {title} by depth", "", OFFLINE, figures, ways,
        tuple(Ordering(way.words, way.words, figures[0], at=at) for way in ways),
        by="depth", stored="depth_divergence", axis="depth of the node",
    )  # fmt: skip


FIGURE_1 = (
    _figure_1("a", "distance of both laws", (DISTANCE,), (Way(BOTH, "laws"),), rises=True),
    _figure_1("b", "acceptance of the solvers", tuple(ACCEPTED.values()),
              tuple(Way(VERIFIERS[name][0], name) for name in SOLVERS), rises=False),
)  # fmt: skip

EQUATION_11 = Exhibit(
    "delayed/equation-11", PAPER, "Equation 11: modelled against measured time of a pass", "",
    "the paper chooses actions by this model and does not compare it with measured times",
    (Figure("pass_ms", "ms per pass"), Figure("of_measured", "of the measured time, %", 100, 0)),
    (Way("Measured", "measured"), Way("Modelled, passes priced by their rows", "rows"),
     Way("Modelled, Eq. 11 as printed", "paper")),
    by="nodes", stored="action_times", axis="nodes of the tree",
    needs="runs of decoding/experiments/grids/action_times.toml on the same machine",
)  # fmt: skip

EXHIBITS = (*TABLES, *SELECTORS, *FIGURE_1, EQUATION_11)
