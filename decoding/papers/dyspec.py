"""DySpec: trees of 64 and 768 nodes by text (Tables 1 to 4), Equation 3, Figures 2, 4, 5, 9, and mask rows (Table 5).

Figures 2 and 9, Table 5 and Equation 3 use what `benchmarks.draft_acceptance`, `mask_order` and `tree_times` stored.
"""

from collections.abc import Mapping
from dataclasses import replace
from statistics import mean

from decoding.papers.paper_result import PER_PASS, SPEEDUP, TPOT, Entry, Figure, Ordering, PaperResult, Protocol
from decoding.trace.tree_mask import ORDER_NAMES

PAPER = "DySpec"
DYSPEC, THRESHOLD, SEQUOIA, SPECINFER = "DySpec", "DySpec, threshold", "Sequoia", "SpecInfer"
LINES = {DYSPEC: "dyspec", THRESHOLD: "DySpec threshold, 64 nodes on average", SEQUOIA: "sequoia",
         SPECINFER: "SpecInfer, 8 sequences of 8"}  # fmt: skip
SMALL_PAIR = Protocol(
    "Llama-2-7B with a draft of 68M parameters", "an A100", "1,000 of C4, of OpenWebText, of CNN/DailyMail", "128",
    "128", repeats="one run of each", note="trees of at most 64 nodes",
)  # fmt: skip
# What it says of all its experiments: for figures of which it says no more.
ALL_PAIRS = replace(SMALL_PAIR, pair="Llama-2, which pair is not said", sampling="draft T = 0.6", note="")
LARGER_PAIR = replace(SMALL_PAIR, pair="Llama-2-13B with a draft of 68M parameters")
LARGE_PAIR = replace(SMALL_PAIR, pair="Llama-2-70B with Llama-2-7B", hardware="an A100, the target in CPU memory")
BOTH = {0.0: "greedy, draft T = 0.6", 0.6: "T = 0.6, draft T = 0.6"}
TEXTS = ("C4", "OWT", "CNN")
FIGURES = (PER_PASS, TPOT, SPEEDUP)
# Trees are to be of one size; what each verified in the mean tells how far they are.
NODES = Figure("nodes_per_pass", "verified nodes per pass", digits=1)
# Milliseconds per token and tokens per pass on each of the texts; without a draft milliseconds alone.
Latencies = Mapping[str, tuple[tuple[float, float], ...]]
SMALL: dict[float, Latencies] = {
    0.0: {DYSPEC: ((7.30, 5.25), (9.60, 3.79), (9.26, 3.97)), SEQUOIA: ((8.71, 4.99), (10.01, 3.81), (9.36, 4.04)),
          SPECINFER: ((12.89, 3.32), (14.89, 2.54), (14.64, 2.58))},
    0.6: {DYSPEC: ((9.94, 3.71), (10.96, 3.07), (10.71, 3.18)), SEQUOIA: ((11.85, 3.45), (12.06, 3.04), (11.27, 3.22)),
          SPECINFER: ((12.15, 3.44), (12.62, 2.97), (12.45, 3.06))},
}  # fmt: skip
LARGER: dict[float, Latencies] = {
    0.0: {DYSPEC: ((9.69, 4.98), (12.70, 3.59), (11.90, 3.82)), SEQUOIA: ((11.41, 4.35), (13.40, 3.44), (12.48, 3.67)),
          SPECINFER: ((15.41, 3.14), (18.72, 2.44), (18.03, 2.52))},
    0.6: {DYSPEC: ((12.45, 3.62), (14.43, 3.02), (13.85, 3.11)), SEQUOIA: ((15.05, 3.15), (15.88, 2.80), (15.27, 2.91)),
          SPECINFER: ((15.27, 3.15), (16.53, 2.75), (15.81, 2.84))},
}  # fmt: skip
OFFLOADED: dict[float, Latencies] = {
    0.0: {DYSPEC: ((536.96, 9.10), (781.06, 7.23), (817.16, 6.93)),
          SEQUOIA: ((889.20, 6.08), (918.15, 6.41), (907.51, 6.42)),
          SPECINFER: ((1143.32, 4.67), (1104.49, 4.83), (1106.08, 4.83))},
    0.6: {DYSPEC: ((789.12, 6.21), (875.47, 6.77), (890.55, 6.95)),
          SEQUOIA: ((945.50, 5.72), (942.24, 6.07), (926.59, 6.07)),
          SPECINFER: ((928.29, 5.75), (977.72, 5.46), (928.85, 5.75))},
}  # fmt: skip
OF_768_NODES: dict[float, Latencies] = {
    0.0: {DYSPEC: ((424.12, 16.04), (548.85, 11.79), (547.39, 11.46)),
          SEQUOIA: ((628.41, 9.40), (629.79, 9.81), (602.06, 9.54)),
          SPECINFER: ((860, 8.66), (1020, 7.36), (950, 7.87))},
    0.6: {DYSPEC: ((884.94, 7.14), (810.02, 7.66), (876.48, 7.02)),
          SEQUOIA: ((662.93, 8.96), (651.47, 9.12), (658.35, 8.80)),
          SPECINFER: ((1090, 6.93), (1210, 6.18), (1020, 6.24))},
}  # fmt: skip
WITHOUT_DRAFT = {  # by key of the table and temperature
    ("table-1", 0.0): (23.03, 21.91, 22.46), ("table-1", 0.6): (21.91, 26.34, 22.42),
    ("table-2", 0.0): (30.33, 31.17, 30.54), ("table-2", 0.6): (28.24, 28.27, 28.12),
    ("table-3", 0.0): (5596.50, 5524.62, 5310.49), ("table-3", 0.6): (5347.81, 5303.40, 5292.80),
}  # fmt: skip
WITHOUT_DRAFT |= {("table-4", temperature): WITHOUT_DRAFT["table-3", temperature] for temperature in (0.0, 0.6)}


def _table(
    key: str, temperature: float, title: str, grid: str, protocol: Protocol, paper: Latencies, lines: Mapping[str, str]
) -> PaperResult:
    """A table at one temperature, by the text that was continued: the paper's three, and our kinds."""
    plain = WITHOUT_DRAFT[key, temperature]

    def numbers(words: str) -> dict[tuple[str, str], float]:
        found: dict[tuple[str, str], float] = {}
        for text, alone, (latency, tokens) in zip(TEXTS, plain, paper.get(words, ()), strict=False):
            figures = (tokens, latency, round(alone / latency, 2))
            found |= {(figure.column, text): value for figure, value in zip(FIGURES, figures, strict=True)}
        return found

    def claimed(other: str, figure: Figure) -> Ordering:
        """DySpec ahead of another, or behind it where the paper's own means over the texts say so."""
        mine, theirs = (mean(value for (column, _), value in numbers(words).items() if column == figure.column)
                        for words in (DYSPEC, other))  # fmt: skip
        first, second = (DYSPEC, other) if (mine > theirs) == (figure is PER_PASS) else (other, DYSPEC)
        return Ordering(first, second, figure, figure is PER_PASS)

    return PaperResult(
        f"dyspec/{key}-t{temperature:g}", PAPER, f"{title}, temperature {temperature:g}", grid,
        replace(protocol, sampling=BOTH[temperature]), (*FIGURES, NODES),
        tuple(Entry(words, line, numbers(words)) for words, line in lines.items()),
        tuple(claimed(other, figure) for figure in (PER_PASS, TPOT) for other in (SEQUOIA, SPECINFER)),
        by="kind", only={"temperature": temperature}, axis="text of the paper, kind of text here",
    )  # fmt: skip


# The paper's 768 nodes are of the threshold form.
LARGE = "DySpec threshold 0.001, tree of 768 (offloading)"
LARGE_LINES = {DYSPEC: LARGE, SEQUOIA: "Sequoia tree of 768 (offloading)",
               SPECINFER: "SpecInfer, 16 sequences of 48 (offloading)"}  # fmt: skip
TABLES = tuple(
    _table(key, temperature, title, grid, protocol, paper[temperature], lines)
    for key, title, grid, protocol, paper, lines in (
        ("table-1", "Table 1: trees of 64 nodes", "dyspec_64",
         SMALL_PAIR, SMALL, LINES),
        ("table-2", "Table 2: trees of 64 nodes, larger target", "dyspec_64_wide",
         LARGER_PAIR, LARGER, LINES),
        ("table-3", "Table 3: trees of 64 nodes, target mostly offloaded", "dyspec_64_offload",
         LARGE_PAIR, OFFLOADED, LINES),
        ("table-4", "Table 4: trees of 768 nodes, target mostly offloaded", "dyspec_768",
         replace(LARGE_PAIR, note="threshold 0.001; SpecInfer's numbers are those of Sequoia's paper. At temperature "
                                  "0.6 the paper reports Sequoia ahead"), OF_768_NODES, LARGE_LINES),
    )
    for temperature in (0.0, 0.6)
)  # fmt: skip

OF_64, OF_768 = "DySpec, 64 nodes", "DySpec, threshold 0.001, at most 768 nodes"
FIGURE_5 = PaperResult(
    "dyspec/figure-5", PAPER, "Figure 5: tree size and accepted tokens during a generation", "dyspec_large",
    replace(LARGE_PAIR, prompts="1,000 of OpenWebText", sampling=BOTH[0.6],
            note="threshold 0.001 and at most 768 nodes: 551.79 nodes on average"),
    (Figure("tree_nodes", "tree nodes", digits=1), Figure("accepted_nodes", "accepted tokens per pass")),
    (Entry(OF_768, LARGE), Entry(OF_64, "dyspec")), by="position", only={"temperature": 0.6}, view="passes",
    axis="tokens already generated",
)  # fmt: skip

TARGET, DRAFT, CONSTRUCTION = "Passes of the target", "Passes of the draft", "Tree construction"
SHARE = Figure("time_share", "share of the time, %", 100, 1, timed=True)
FIGURE_4 = PaperResult(
    "dyspec/figure-4", PAPER, "Figure 4: where the time goes", "dyspec_64",
    replace(SMALL_PAIR, pair="Llama-2-7B and 13B with a draft of 68M parameters",
            note="tree construction, in C++, takes less than 2% of the time"),
    (SHARE,),
    (
        Entry(TARGET, "target"), Entry(DRAFT, "draft"), Entry(CONSTRUCTION, "construction"), Entry("Mask", "mask"),
        Entry("Verification", "verification"), Entry("Cache and settings", "cache"),
    ),
    (Ordering(TARGET, CONSTRUCTION, SHARE), Ordering(DRAFT, CONSTRUCTION, SHARE)),
    by="label", only={"temperature": 0.6}, view="phases", axis="method",
)  # fmt: skip

ACCEPTANCE = Figure("accepted", "accepted of those tested, %", 100, 1)
GREEDY, SAMPLED = "Temperature 0", "Temperature 0.6"
LOW, MIDDLE, HIGH = 0.05, 0.45, 0.95  # middles of bins
FIGURE_2 = PaperResult(
    "dyspec/figure-2", PAPER, "Figure 2: draft probability against acceptance", "",
    replace(ALL_PAIRS, note="acceptance and the target's probability both rise with the draft's probability"),
    (ACCEPTANCE, Figure("target_probability", "target's probability, %", 100, 1), Figure("tested", "nodes tested")),
    (Entry(GREEDY, "0"), Entry(SAMPLED, "0.6")),
    tuple(Ordering(words, words, figure, at=at) for words in (GREEDY, SAMPLED)
          for figure in (ACCEPTANCE, Figure("target_probability", "target's probability, %", 100, 1))
          for at in ((MIDDLE, LOW), (HIGH, MIDDLE))),
    by="draft_probability", stored="draft_acceptance", unit="tests", axis="draft probability (bin centre)",
)  # fmt: skip

MADE, BFS, DFS, HEAVY = "In creation order", *(ORDER_NAMES[order] for order in ("breadth", "depth", "heavy"))
BLOCKS = Figure("blocks", "non-empty blocks of 32 x 32", digits=1)
KERNEL = Figure("kernel_ms", "attention of a layer, ms", timed=True)
MASKS = Protocol(
    hardware="an A100", prompts="random trees", setup="blocks of 32 x 32",
    note="mask rows depth-first against creation order, which the paper calls original",
)  # fmt: skip
KERNELS = replace(
    MASKS, setup="64 heads of 128, a kernel of its own with blocks of 32 x 32; its dense mask is Manual Attn",
    note=f"{MASKS.note}; its column of xFormers has no counterpart here",
)  # fmt: skip
PAPER_BLOCK, KERNEL_BLOCK = 32, 128  # rows of a block: of the paper's kernel, of FlexAttention's
# Table 5: blocks and milliseconds of the paper's kernel by nodes, in creation order and reordered.
COUNTS = {256: (36.0, 22.5), 512: (135.5, 52.8), 1024: (490.2, 119.3), 2048: (1654.5, 278.7)}
TIMES = {256: (0.07548, 0.05406), 512: (0.21317, 0.11364), 1024: (0.63368, 0.31801), 2048: (2.27148, 1.02645)}
DENSE = {256: 0.14089, 512: 0.56264, 1024: 2.08612, 2048: 9.20739}  # attention that reads the whole mask
# Figure 9: real trees after prefixes of unreported length: without a prefix no order has as many blocks.
REAL = replace(
    ALL_PAIRS, prompts="a real workload, after prefixes of unreported lengths", prompt_tokens="", new_tokens="",
    repeats="", setup=MASKS.setup,
    note="366.12 in creation order and 218.31 reordered at 768 nodes, 580.07 and 295.59 at 1,024; without the prefix "
         "lengths these are not compared with ours",
)  # fmt: skip


def _orders(
    key: str, title: str, figure: Figure, part: str, paper: Mapping[int, tuple[float, float]] | None = None,
    protocol: Protocol = MASKS, by: str = "nodes", **only,
) -> PaperResult:  # fmt: skip
    """Orders of mask rows, one part of what `benchmarks.mask_order` measures."""
    dense = (Entry("Dense mask", "dense", {(figure.column, nodes): ms for nodes, ms in DENSE.items()}),)
    made, reordered = (
        {(figure.column, nodes): both[place] for nodes, both in (paper or {}).items()} for place in range(2)
    )
    return PaperResult(
        f"dyspec/{key}", PAPER, title, "",
        protocol, (figure,),
        (*(dense if figure is KERNEL else ()), Entry(MADE, "as made", made), Entry(BFS, "breadth"),
         Entry(DFS, "depth", reordered), Entry(HEAVY, "heavy")),
        (Ordering(DFS, MADE, figure, False), Ordering(DFS, BFS, figure, False)),
        by=by, only={"part": part, **only}, stored="mask_order", masks=True, basis="exact counts of the masks",
        axis={"nodes": "tree nodes", "prefix": "prefix tokens"}[by],
    )  # fmt: skip


ORDERS = (
    _orders("table-5", "Table 5: mask blocks, random trees", BLOCKS, "random", COUNTS, prefix=0),
    _orders("table-5-times", "Table 5: attention time, random trees", KERNEL, "kernels", TIMES, KERNELS, prefix=0),
    _orders("figure-9", "Figure 9: mask blocks, real trees", BLOCKS, "real", protocol=REAL, prefix=0),
    _orders(
        "figure-9-prefix",
        "Figure 9: real trees of 768 nodes by prefix",
        BLOCKS,
        "real",
        protocol=REAL,
        by="prefix",
        nodes=768,
    ),
)

DRAFTING = Figure("draft_ms", "drafting per pass, ms", timed=True)
GREEDY, LAYERS = "Greedy, measured", "Threshold, measured"
EQUATION_3 = PaperResult(
    "dyspec/equation-3", PAPER, "Equation 3: drafting token by token and layer by layer", "",
    replace(ALL_PAIRS, note="the greedy form asks the draft once for every node, the threshold form once for every "
                            "layer (Section 4.3); these are counts that the paper does not time"),
    (DRAFTING, Figure("forwards", "draft forwards per pass", digits=1),
     Figure("drafted", "nodes drafted per pass", digits=1)),
    (Entry(GREEDY, "greedy"), Entry("Nodes x T_draft", "greedy model"), Entry(LAYERS, "threshold"),
     Entry("Depth x T_draft", "threshold model")),
    (Ordering(LAYERS, GREEDY, DRAFTING, False),),
    by="nodes", stored="tree_times", unit="passes", times="measured and modelled times", axis="nodes asked for",
)  # fmt: skip

PAPER_RESULTS = (*TABLES, EQUATION_3, FIGURE_2, FIGURE_4, FIGURE_5, *ORDERS)
