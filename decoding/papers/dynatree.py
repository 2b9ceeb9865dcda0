"""DynaTree, confidence-aware adaptive tree speculative decoding: Tables 1 to 5, Figures 5, 6 and 8.

Figure 3 shows Table 1, Figure 4 Table 4; the fixed trees of Figure 7 are swept in `dynatree_pruned`.
"""

from decoding.papers.paper_result import (
    COMMITTED_OVER_DRAFTED,
    COUNTED,
    MEMORY,
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
)

PAPER = "DynaTree"
PROTOCOL = "Pythia-2.8B with Pythia-70M on one GPU, WikiText-2, 1,500 greedy tokens, 8 prompts of at most 800"
AR, LINEAR, FIXED, DYNATREE = "Autoregressive", "Linear, K = 8", "Fixed tree, D = 8, B = 3", "DynaTree"
LINES = {AR: "autoregressive", LINEAR: "linear", FIXED: "fixed_tree", DYNATREE: "dynatree"}


def _ways(**figures: tuple[float | None, ...]) -> tuple[Entry, ...]:
    """The four methods of the main table with the paper's numbers by column, in the order of `LINES`."""
    found = []
    for place, (words, line) in enumerate(LINES.items()):
        paper = {column: value for column, values in figures.items() if (value := values[place]) is not None}
        found.append(Entry(words, line, paper))
    return tuple(found)


TABLE_1 = PaperResult(
    "dynatree/table-1", PAPER, "Table 1: throughput", "dynatree_main", PROTOCOL, (SPEEDUP, THROUGHPUT),
    _ways(throughput=(133.4, 196.1, 200.7, 219.5), speedup=(1.0, 1.47, 1.50, 1.64)),
    (Ordering(LINEAR, AR, THROUGHPUT), Ordering(FIXED, LINEAR, THROUGHPUT), Ordering(DYNATREE, FIXED, THROUGHPUT)),
)  # fmt: skip

TABLE_2 = PaperResult(
    "dynatree/table-2", PAPER, "Table 2: latency", "dynatree_main", PROTOCOL, (TPOT, TTFT),
    _ways(ttft_s=(18.9, 14.6, 14.6, 14.4), tpot_s=(7.48, 5.32, 5.30, 4.59)),
    (Ordering(LINEAR, AR, TPOT, False), Ordering(FIXED, LINEAR, TPOT, False), Ordering(DYNATREE, FIXED, TPOT, False),
     Ordering(DYNATREE, AR, TTFT, False)),
)  # fmt: skip

TABLE_3 = PaperResult(
    "dynatree/table-3", PAPER, "Table 3: verification", "dynatree_main",
    f"{PROTOCOL}; its acceptance rate counts the bonus token",
    (PER_PASS, PATH, PASSES, COMMITTED_OVER_DRAFTED, OVER_DRAFTED),
    _ways(tokens_per_iteration=(1.0, 6.82, 6.79, 7.08), accepted_mean=(None, 7.05, 7.10, 7.15),
          iterations=(1500, 220, 221, 212),
          committed_over_drafted=(None, 88.2, 71.0, 102.2)),
    (Ordering(DYNATREE, LINEAR, PER_PASS), Ordering(DYNATREE, FIXED, PER_PASS),
     Ordering(DYNATREE, FIXED, COMMITTED_OVER_DRAFTED)),
)  # fmt: skip

TABLE_5 = PaperResult(
    "dynatree/table-5", PAPER, "Table 5: peak memory", "dynatree_main",
    f"{PROTOCOL}; the paper uses linear with K = 5 and a fixed tree of D = 5, B = 2", (MEMORY,),
    _ways(peak_memory_bytes=(6110.0, 6313.8, 6312.8, 6316.1)), (Ordering(AR, DYNATREE, MEMORY, False),),
)  # fmt: skip

SMALL, BOTH, WHOLE = "Fixed tree, D = 5, B = 2", "+ dynamic breadth and depth", "+ history"
TABLE_4 = PaperResult(
    "dynatree/table-4", PAPER, "Table 4 and Figure 4: ablation", "dynatree_ablation", PROTOCOL,
    (SPEEDUP, THROUGHPUT, PER_PASS),
    (
        Entry(SMALL, "fixed tree D5 B2 (ablation)", {"throughput": 188.0, "speedup": 1.42}),
        Entry("+ dynamic breadth", "DynaTree breadth only (ablation)"),
        Entry(BOTH, "DynaTree breadth + depth (ablation)", {"throughput": 213.2, "speedup": 1.61}),
        Entry(WHOLE, "DynaTree (main table)", {"throughput": 218.5, "speedup": 1.65}),
    ),
    (Ordering(BOTH, SMALL, THROUGHPUT), Ordering(WHOLE, BOTH, THROUGHPUT)),
)  # fmt: skip

FIGURE_5 = PaperResult(
    "dynatree/figure-5", PAPER, "Figure 5: generation length", "dynatree_lengths", PROTOCOL,
    (SPEEDUP, THROUGHPUT, PER_PASS, PATH, COMMITTED_OVER_DRAFTED, COUNTED),
    _ways(), (Ordering(DYNATREE, LINEAR, SPEEDUP), Ordering(DYNATREE, FIXED, SPEEDUP)), by="asked_tokens",
    axis="tokens requested",
)  # fmt: skip

LONG_TEXTS = (
    "texts of at least 1,000 tokens, the length of its longest prompts: --prompts with a folder of .txt files, or pg-19"
)
FIGURE_8 = PaperResult(
    "dynatree/figure-8", PAPER, "Figure 8: prompt length", "dynatree_prompts", PROTOCOL, (SPEEDUP, THROUGHPUT, TTFT),
    _ways(), (Ordering(DYNATREE, LINEAR, SPEEDUP), Ordering(DYNATREE, FIXED, SPEEDUP)), by="cut",
    only={"filled": True}, axis="prompt tokens", needs=LONG_TEXTS,
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
    letter: str, title: str, ways: tuple[Entry, ...], usual: str, axis: str = "", words: str = ""
) -> PaperResult:
    """A panel of Figure 6, with the main table's setting against the fixed tree."""
    at = (USUAL[axis], USUAL[axis]) if axis else None
    return PaperResult(
        f"dynatree/figure-6{letter}", PAPER, f"Figure 6{letter}: {title}", "dynatree_sensitivity", PROTOCOL,
        (THROUGHPUT, SPEEDUP, PER_PASS), (*ways, *LEVELS), (Ordering(usual, FIXED, THROUGHPUT, at=at),),
        by=f"settings.{axis}" if axis else "", axis=words,
    )  # fmt: skip


FIGURE_6 = (
    _sensitivity(
        "a", "confidence thresholds",
        tuple(_around(f"tau_l = {low}", "confidence_high", confidence_low=low) for low in (0.2, 0.3, 0.4, 0.5)),
        "tau_l = 0.4", "confidence_high", "tau_h",
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
)  # fmt: skip

PAPER_RESULTS = (TABLE_1, TABLE_2, TABLE_3, TABLE_4, TABLE_5, FIGURE_5, *FIGURE_6, FIGURE_8)
