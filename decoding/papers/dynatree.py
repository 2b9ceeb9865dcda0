"""DynaTree, confidence-aware adaptive tree speculative decoding: Tables 1 to 5, Figures 5 to 8.

Figures 1 and 2 are in explained.py.
"""

from dataclasses import replace

from decoding.papers.paper_result import (
    AGREEMENT,
    COMMITTED_OVER_DRAFTED,
    DRAFTED,
    MEMORY,
    OVER_DEPTH_2,
    OVER_DRAFTED,
    PASSES,
    PATH,
    PER_PASS,
    SPEEDUP,
    THROUGHPUT,
    TPOT,
    TTFT,
    Entry,
    Ordering,
    PaperResult,
    Protocol,
)

PAPER = "DynaTree"
PROTOCOL = Protocol(
    "Pythia-2.8B with Pythia-70M", "one GPU", "WikiText-2", "at most 800", "1,500", "greedy",
    "10 prompts, the first 2 left out as warm-up",
)  # fmt: skip
AR, LINEAR, FIXED, DYNATREE = "Autoregressive", "Linear, K = 8", "Fixed tree, D = 8, B = 3", "DynaTree"
LINES = {AR: "autoregressive", LINEAR: "linear", FIXED: "fixed_tree", DYNATREE: "dynatree"}


SHORT = "Linear, K = 5"
ON_BOOKS = {AR: "autoregressive", SHORT: "linear:length=5", FIXED: "fixed_tree", DYNATREE: "dynatree"}
BOOKS = replace(PROTOCOL, prompts="PG-19", prompt_tokens="at most 1,000", note="ours are the texts of fiction")


def _ways(lines: dict[str, str] = LINES, **figures: tuple[float | None, ...]) -> tuple[Entry, ...]:
    """The four methods of the main table with the paper's numbers by column, in the order of `lines`."""
    found = []
    for place, (words, line) in enumerate(lines.items()):
        paper = {column: value for column, values in figures.items() if (value := values[place]) is not None}
        found.append(Entry(words, line, paper))
    return tuple(found)


TABLE_1 = PaperResult(
    "dynatree/table-1", PAPER, "Table 1 and Figure 3: throughput", "dynatree_main", PROTOCOL, (SPEEDUP, THROUGHPUT),
    _ways(throughput=(133.4, 196.1, 200.7, 219.5), speedup=(1.0, 1.47, 1.50, 1.64)),
    (Ordering(LINEAR, AR, THROUGHPUT), Ordering(FIXED, LINEAR, THROUGHPUT), Ordering(DYNATREE, FIXED, THROUGHPUT)),
)  # fmt: skip

TABLE_1_BOOKS = PaperResult(
    "dynatree/table-1-pg-19", PAPER, "Table 1 and Figure 3: throughput, PG-19", "dynatree_main", BOOKS,
    (SPEEDUP, THROUGHPUT),
    _ways(ON_BOOKS, throughput=(114.8, 144.9, 185.5, 194.9), speedup=(1.0, 1.26, 1.62, 1.70)),
    (Ordering(SHORT, AR, THROUGHPUT), Ordering(FIXED, SHORT, THROUGHPUT), Ordering(DYNATREE, FIXED, THROUGHPUT)),
    only={"kind": "fiction"},
)  # fmt: skip

TABLE_2 = PaperResult(
    "dynatree/table-2", PAPER, "Table 2: latency", "dynatree_main", PROTOCOL, (TPOT, TTFT),
    _ways(ttft_s=(18.9, 14.6, 14.6, 14.4), tpot_s=(7.48, 5.32, 5.30, 4.59)),
    (Ordering(LINEAR, AR, TPOT, False), Ordering(FIXED, LINEAR, TPOT, False), Ordering(DYNATREE, FIXED, TPOT, False),
     Ordering(DYNATREE, AR, TTFT, False)),
)  # fmt: skip

TABLE_2_BOOKS = PaperResult(
    "dynatree/table-2-pg-19", PAPER, "Table 2: latency, PG-19", "dynatree_main", BOOKS, (TPOT, TTFT),
    _ways(ON_BOOKS, ttft_s=(21.8, 11.1, 9.7, 9.6), tpot_s=(9.00, 7.17, 5.55, 5.30)),
    (Ordering(SHORT, AR, TPOT, False), Ordering(FIXED, SHORT, TPOT, False), Ordering(DYNATREE, FIXED, TPOT, False),
     Ordering(DYNATREE, AR, TTFT, False)),
    only={"kind": "fiction"},
)  # fmt: skip

CPU_MEMORY = "on a CPU ours are weights and the KV slots set aside"


def _bonus(chain: float, fixed: float, dynatree: float) -> str:
    return (
        "its acceptance is tokens per pass / (D + 2), of a chain / K, and its path lengths "
        f"({chain:.2f} of the chain, {fixed:.2f} and {dynatree:.2f} of the trees) count the bonus token, as its public "
        "code does: ours do not and have no number of the paper beside them"
    )


VERIFICATION = (PER_PASS, OVER_DEPTH_2, PASSES, PATH, AGREEMENT, COMMITTED_OVER_DRAFTED, OVER_DRAFTED)
TABLE_3 = PaperResult(
    "dynatree/table-3", PAPER, "Table 3: verification", "dynatree_main",
    replace(PROTOCOL, note=_bonus(7.05, 7.10, 7.15)), VERIFICATION,
    _ways(tokens_per_iteration=(1.0, 6.82, 6.79, 7.08), iterations=(1500, 220, 221, 212),
          committed_over_depth_2=(None, 88.2, 71.0, 102.2)),
    (Ordering(DYNATREE, LINEAR, PER_PASS), Ordering(DYNATREE, FIXED, PER_PASS),
     Ordering(DYNATREE, FIXED, OVER_DEPTH_2)),
)  # fmt: skip

TABLE_3_BOOKS = PaperResult(
    "dynatree/table-3-pg-19", PAPER, "Table 3: verification, PG-19", "dynatree_main",
    replace(BOOKS, note=f"{BOOKS.note}; {_bonus(4.63, 6.43, 6.45)}"), VERIFICATION,
    _ways(ON_BOOKS, tokens_per_iteration=(1.0, 4.56, 6.20, 6.17), iterations=(1500, 329, 242, 243),
          committed_over_depth_2=(None, 92.5, 64.3, 92.2)),
    (Ordering(DYNATREE, SHORT, PER_PASS), Ordering(FIXED, SHORT, PER_PASS), Ordering(DYNATREE, FIXED, OVER_DEPTH_2)),
    only={"kind": "fiction"},
)  # fmt: skip

ALL_VERIFIED = "all verified"
TREES = PaperResult(
    "dynatree/algorithm-1", PAPER, "Algorithm 1: nodes below tau, removed or verified", "dynatree_main",
    replace(PROTOCOL, note="its text removes nodes below tau before verification, its pseudo-code verifies them; only "
            "this differs here, all else of both is beside Table 4"),
    (PER_PASS, SPEEDUP, THROUGHPUT, OVER_DEPTH_2),
    (
        Entry(FIXED, "fixed_tree"), Entry(f"{FIXED}, {ALL_VERIFIED}", "fixed tree D8 B3 as printed"),
        Entry(DYNATREE, "dynatree"), Entry(f"{DYNATREE}, {ALL_VERIFIED}", "DynaTree as printed"),
        Entry(LINEAR, "linear"),
    ),
    tuple(Ordering(f"{words}, {ALL_VERIFIED}", other, PER_PASS) for words, other in
          ((FIXED, FIXED), (DYNATREE, DYNATREE), (DYNATREE, LINEAR))),
)  # fmt: skip

SMALL, BOTH, WHOLE = "Fixed tree, D = 5, B = 2", "+ dynamic breadth and depth", "+ history"
IN_MEMORY = {
    AR: "autoregressive", SHORT: "linear:length=5", SMALL: "fixed tree D5 B2 (ablation)", DYNATREE: "dynatree",
}  # fmt: skip
TABLE_5 = PaperResult(
    "dynatree/table-5", PAPER, "Table 5: peak memory", "dynatree_history",
    replace(PROTOCOL, note=f"its PG-19 column is not shown: memory here is the same for all texts; {CPU_MEMORY}"),
    (MEMORY,), _ways(IN_MEMORY, peak_memory_bytes=(6110.0, 6313.8, 6312.8, 6316.1)),
    (Ordering(AR, DYNATREE, MEMORY, False),),
)  # fmt: skip

TABLE_4 = PaperResult(
    "dynatree/table-4", PAPER, "Table 4 and Figure 4: ablation", "dynatree_ablation",
    replace(PROTOCOL, note="all with tau = 0.05, which the paper does not give"),
    (SPEEDUP, THROUGHPUT, PER_PASS, PASSES, OVER_DEPTH_2),
    (
        Entry(SMALL, "fixed tree D5 B2 tau 0.05 (ablation)", {"throughput": 188.0, "speedup": 1.42}),
        Entry("+ dynamic breadth", "DynaTree breadth only (ablation)"),
        Entry(BOTH, "DynaTree breadth + depth (ablation)", {"throughput": 213.2, "speedup": 1.61}),
        Entry(WHOLE, "DynaTree (main table)", {"throughput": 218.5, "speedup": 1.65}),
    ),
    (Ordering(BOTH, SMALL, THROUGHPUT), Ordering(WHOLE, BOTH, THROUGHPUT)),
)  # fmt: skip

# What the paper says of history, and what its public code does; each against the same tree without history.
NO_HISTORY, NO_HISTORY_ALL = "No history", f"No history, {ALL_VERIFIED}"
USUALLY = "Our default"
OURS, CODE = f"{USUALLY}: accepted / depth as verified", f"{USUALLY}, committed / (D_0 + 2) as its public code"
DESCRIBED, PRINTED = "Section 3 as described", "Algorithm 1 as printed"
HISTORY = PaperResult(
    "dynatree/history", PAPER, "Table 4 and Algorithm 1: what history averages and moves", "dynatree_history",
    replace(PROTOCOL, note="its text averages accepted / drafted, its pseudo-code passes committed tokens and the "
            "tree, and both move tau_h, tau_l and D_0; its public code and our default move tau_h, rho_deep and D_0"),
    (PER_PASS, PASSES, DRAFTED, OVER_DRAFTED, COMMITTED_OVER_DRAFTED, OVER_DEPTH_2),
    (
        Entry(NO_HISTORY, "DynaTree breadth + depth (ablation)"),
        Entry(NO_HISTORY_ALL, "DynaTree breadth + depth (ablation):verify_pruned=true"),
        Entry(OURS, "dynatree"),
        Entry(f"{USUALLY}, accepted / depth as drafted", "dynatree:history_statistic=accepted_over_drafted_depth"),
        Entry(f"{USUALLY}, accepted / drafted as its text", "dynatree:history_statistic=accepted_over_drafted"),
        Entry(f"{USUALLY}, committed / drafted as its pseudo-code",
              "dynatree:history_statistic=committed_over_drafted"),
        Entry(CODE, "dynatree:history_statistic=committed_over_base_depth"),
        Entry(f"{USUALLY}, tau_l too", "dynatree:history_confidence_low=true"),
        Entry(DESCRIBED, "DynaTree, Section 3 as described"), Entry(PRINTED, "DynaTree, Algorithm 1 as printed"),
    ),
    (*(Ordering(words, NO_HISTORY, PER_PASS) for words in (OURS, CODE, DESCRIBED)),
     Ordering(PRINTED, NO_HISTORY_ALL, PER_PASS)),
)  # fmt: skip

FIGURE_5 = PaperResult(
    "dynatree/figure-5", PAPER, "Figure 5: generation length", "dynatree_lengths",
    replace(PROTOCOL, new_tokens="up to 1,500"),
    (SPEEDUP, THROUGHPUT, PER_PASS, PATH, OVER_DEPTH_2),
    _ways(), (Ordering(DYNATREE, LINEAR, SPEEDUP), Ordering(DYNATREE, FIXED, SPEEDUP)), by="asked_tokens",
    axis="tokens requested",
)  # fmt: skip

FIGURE_8 = PaperResult(
    "dynatree/figure-8", PAPER, "Figure 8: prompt length", "dynatree_prompts",
    replace(PROTOCOL, prompt_tokens="at most each of several lengths"), (SPEEDUP, THROUGHPUT, TTFT),
    _ways(), (Ordering(DYNATREE, LINEAR, SPEEDUP), Ordering(DYNATREE, FIXED, SPEEDUP)), by="cut",
    only={"filled": True}, axis="prompt tokens",
)  # fmt: skip

# Figure 6 varies one pair of settings around the main table's; fixed trees and no draft are its horizontal lines.
USUAL = {
    "confidence_high": 0.9, "confidence_low": 0.4, "branch_min": 1, "branch_mid": 2, "branch_max": 3, "base_depth": 5,
    "max_depth": 8,
}  # fmt: skip
LEVELS = (Entry(FIXED, "fixed_tree", flat=True), Entry(AR, "autoregressive", flat=True))


def _around(words: str, axis: str = "", **settings: float) -> Entry:
    """DynaTree with some settings different from the main table, at every value of one of them."""
    wanted = {f"settings.{name}": value for name, value in (USUAL | settings).items() if name != axis}
    return Entry(words, "dynatree", where=wanted)


def _sensitivity(
    letter: str, title: str, ways: tuple[Entry, ...], usual: str, axis: str = "", words: str = "", across: str = ""
) -> PaperResult:
    """A panel of Figure 6, with the main table's setting against the fixed tree."""
    at = (USUAL[axis], USUAL[axis]) if axis else None
    return PaperResult(
        f"dynatree/figure-6{letter}", PAPER, f"Figure 6{letter}: {title}", "dynatree_sensitivity", PROTOCOL,
        (THROUGHPUT, SPEEDUP, PER_PASS), (*ways, *LEVELS), (Ordering(usual, FIXED, THROUGHPUT, at=at),),
        by=f"settings.{axis}" if axis else "", axis=words, across=across and f"settings.{across}",
    )  # fmt: skip


FIGURE_6 = (
    _sensitivity(
        "a", "confidence thresholds",
        tuple(_around(f"tau_l = {low}", "confidence_high", confidence_low=low) for low in (0.2, 0.3, 0.4, 0.5)),
        "tau_l = 0.4", "confidence_high", "tau_h", "confidence_low",
    ),
    _sensitivity(
        "b", "breadth bounds",
        tuple(_around(f"B = {low} to {high}", branch_min=low, branch_max=high)
              for low in (1, 2) for high in (2, 3, 4)),
        "B = 1 to 3",
    ),
    _sensitivity(
        "c", "depth range",
        tuple(_around(f"D_0 = {base}", "max_depth", base_depth=base) for base in (3, 4, 5, 6)),
        "D_0 = 5", "max_depth", "D_max",
    ),
    _sensitivity(
        "d", "crossings of thresholds, breadth and depth",
        (_around("main table"),
         *(_around(f"tau_h = {high}, B to {most}, D = {base} to {deep}",
                   confidence_high=high, branch_max=most, base_depth=base, max_depth=deep)
           for high in (0.8, 0.9) for most in (3, 4) for base in (4, 6) for deep in (8, 10))),
        "main table",
    ),
)  # fmt: skip

# Figure 7 varies one setting of the main table's fixed tree; the paper's main table is its horizontal line.
TREE = {"max_depth": 8, "branching": 3, "prune_probability": 0.1}


def _fixed(letter: str, axis: str, words: str) -> PaperResult:
    """A panel of Figure 7: fixed trees that differ from the main table's in one setting."""
    others = {f"settings.{name}": value for name, value in TREE.items() if name != axis}
    return PaperResult(
        f"dynatree/figure-7{letter}", PAPER, f"Figure 7{letter}: fixed trees by {words}", "fixed_tree_long", PROTOCOL,
        (SPEEDUP, THROUGHPUT, PER_PASS, OVER_DEPTH_2),
        (Entry("Fixed tree", "fixed_tree", where=others), Entry(AR, "autoregressive", flat=True)),
        (Ordering("Fixed tree", AR, SPEEDUP, at=(TREE[axis], TREE[axis])),), by=f"settings.{axis}", axis=words,
    )  # fmt: skip


FIGURE_7 = (
    _fixed("a", "max_depth", "depth"), _fixed("b", "branching", "branching"),
    _fixed("c", "prune_probability", "pruning threshold"),
)  # fmt: skip

PAPER_RESULTS = (
    TABLE_1, TABLE_1_BOOKS, TABLE_2, TABLE_2_BOOKS, TABLE_3, TABLE_3_BOOKS, TABLE_4, HISTORY, TABLE_5, TREES, FIGURE_5,
    *FIGURE_6, *FIGURE_7, FIGURE_8,
)  # fmt: skip
