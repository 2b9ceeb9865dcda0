"""DySpec: trees of 64 and 768 nodes (Tables 1, 3 and 4), Figures 2, 4, 5 and 9, the order of mask rows (Table 5).

Figures 2 and 9 and Table 5 use what `benchmarks.draft_acceptance` and `benchmarks.mask_order` stored.
"""

from collections.abc import Mapping
from dataclasses import replace

from decoding.papers.paper_result import PER_PASS, SPEEDUP, Entry, Figure, Ordering, PaperResult
from decoding.papers.protocol import Protocol
from decoding.trace.tree_mask import ORDER_NAMES

PAPER = "DySpec"
DYSPEC, THRESHOLD, SEQUOIA, SPECINFER = "DySpec", "DySpec, threshold", "Sequoia", "SpecInfer"
# Tokens per pass on C4 by temperature: DySpec, Sequoia, SpecInfer.
TOKENS = {0.0: (5.25, 4.99, 3.32), 0.6: (3.71, 3.45, 3.44)}
SMALL_PAIR = Protocol(
    "Llama-2-7B with a draft of 68M parameters", "an A100", "1,000 of C4", "128", "128", "", "one run of each"
)
BOTH = "greedy, draft T = 0.6; T = 0.6, draft T = 0.6"
LARGE_PAIR = replace(
    SMALL_PAIR, pair="Llama-2-70B with Llama-2-7B", hardware="an A100, the target in CPU memory", sampling=BOTH
)


def _table(temperature: float) -> PaperResult:
    paper = TOKENS[temperature]
    return PaperResult(
        f"dyspec/table-1-t{temperature:g}", PAPER, f"Table 1: trees of 64 nodes, temperature {temperature:g}", "dyspec",
        replace(SMALL_PAIR, sampling=BOTH.split("; ")[temperature > 0]), (PER_PASS, SPEEDUP),
        (
            Entry(DYSPEC, "dyspec", {"tokens_per_iteration": paper[0]}),
            Entry(THRESHOLD, "dyspec_threshold"),
            Entry(SEQUOIA, "sequoia", {"tokens_per_iteration": paper[1]}),
            Entry(SPECINFER, "specinfer", {"tokens_per_iteration": paper[2]}),
        ),
        (Ordering(DYSPEC, SEQUOIA, PER_PASS), Ordering(SEQUOIA, SPECINFER, PER_PASS)),
        only={"temperature": temperature},
    )  # fmt: skip


# Tokens per pass and seconds per token with the large target, without a draft 5.60 and 5.35, in the same order.
OFFLOADED = {0.0: ((9.10, 0.53696), (6.08, 0.88920), (4.67, 1.14332)),
             0.6: ((6.21, 0.78912), (5.72, 0.94550), (5.75, 0.92829))}  # fmt: skip
WITHOUT_DRAFT = {0.0: 5.59650, 0.6: 5.34781}


def _offloaded(place: int) -> dict[tuple[str, float], float]:
    """The paper's figures of one method with the large target, by temperature."""
    found: dict[tuple[str, float], float] = {}
    for temperature, ways in OFFLOADED.items():
        tokens, seconds = ways[place]
        found["tokens_per_iteration", temperature] = tokens
        found["speedup", temperature] = round(WITHOUT_DRAFT[temperature] / seconds, 2)
    return found


TABLE_3 = PaperResult(
    "dyspec/table-3", PAPER, "Table 3: trees of 64 nodes, target mostly offloaded", "dyspec_offload",
    LARGE_PAIR, (PER_PASS, SPEEDUP),
    (
        Entry(DYSPEC, "dyspec", _offloaded(0)), Entry(SEQUOIA, "sequoia", _offloaded(1)),
        Entry(SPECINFER, "specinfer", _offloaded(2)),
    ),
    (Ordering(DYSPEC, SEQUOIA, SPEEDUP), Ordering(DYSPEC, SPECINFER, SPEEDUP), Ordering(DYSPEC, SEQUOIA, PER_PASS)),
    by="temperature", axis="temperature",
)  # fmt: skip

OF_64, OF_768 = "DySpec, 64 nodes", "DySpec, threshold 0.001, at most 768 nodes"
LARGE = "DySpec threshold 0.001, tree of 768 (offloading)"
TABLE_4 = PaperResult(
    "dyspec/table-4", PAPER, "Table 4: trees of at most 768 nodes against 64", "dyspec_large", LARGE_PAIR,
    (PER_PASS, SPEEDUP),
    (
        Entry(OF_64, "dyspec", {("tokens_per_iteration", 0.0): 9.10, ("tokens_per_iteration", 0.6): 6.21}),
        Entry(OF_768, LARGE, {("tokens_per_iteration", 0.0): 16.04, ("tokens_per_iteration", 0.6): 7.14}),
    ),
    (Ordering(OF_768, OF_64, PER_PASS),), by="temperature", axis="temperature",
)  # fmt: skip

FIGURE_5 = PaperResult(
    "dyspec/figure-5", PAPER, "Figure 5: tree size and accepted tokens during a generation", "dyspec_large",
    replace(LARGE_PAIR, prompts="1,000 of OpenWebText", sampling=BOTH.split("; ")[1],
            note="threshold 0.001 and at most 768 nodes: 551.79 nodes on average"),
    (Figure("tree_nodes", "tree nodes", digits=1), Figure("accepted_nodes", "accepted tokens per pass")),
    (Entry(OF_768, LARGE), Entry(OF_64, "dyspec")), by="position", only={"temperature": 0.6}, view="passes",
    axis="tokens already generated",
)  # fmt: skip

TARGET, DRAFT, CONSTRUCTION = "Passes of the target", "Passes of the draft", "Tree construction"
SHARE = Figure("time_share", "share of the time, %", 100, 1, timed=True)
FIGURE_4 = PaperResult(
    "dyspec/figure-4", PAPER, "Figure 4: where the time goes", "dyspec",
    replace(SMALL_PAIR, pair="Llama-2-7B and 13B with a draft of 68M parameters", sampling=BOTH,
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
    Protocol(note="acceptance and the target's probability both rise with the draft's probability"),
    (ACCEPTANCE, Figure("target_probability", "target's probability, %", 100, 1), Figure("tested", "nodes tested")),
    (Entry(GREEDY, "0"), Entry(SAMPLED, "0.6")),
    tuple(Ordering(words, words, figure, at=at) for words in (GREEDY, SAMPLED)
          for figure in (ACCEPTANCE, Figure("target_probability", "target's probability, %", 100, 1))
          for at in ((MIDDLE, LOW), (HIGH, MIDDLE))),
    by="draft_probability", stored="draft_acceptance", holds="loop_free", axis="draft probability (bin centre)",
)  # fmt: skip

MADE, BFS, DFS, HEAVY = "In creation order", *(ORDER_NAMES[order] for order in ("breadth", "depth", "heavy"))
BLOCKS = Figure("blocks", "non-empty blocks of 32 x 32", digits=1)
KERNEL = Figure("kernel_ms", "attention of a layer, ms", timed=True)
KERNELS = Protocol(
    "attention with 64 heads of 128",
    note="mask rows depth-first against creation order, which the paper calls original",
)
# Table 5: blocks and milliseconds of the paper's kernel by nodes, in creation order and reordered.
COUNTS = {256: (36.0, 22.5), 512: (135.5, 52.8), 1024: (490.2, 119.3), 2048: (1654.5, 278.7)}
TIMES = {256: (0.07548, 0.05406), 512: (0.21317, 0.11364), 1024: (0.63368, 0.31801), 2048: (2.27148, 1.02645)}
DENSE = {256: 0.14089, 512: 0.56264, 1024: 2.08612, 2048: 9.20739}  # attention that reads the whole mask
# Figure 9: real trees after prefixes of unreported length: without a prefix no order has as many blocks.
REAL = Protocol(
    note="366.12 in creation order and 218.31 reordered at 768 nodes, 580.07 and 295.59 at 1,024; the paper does not "
    "report the prefix lengths, so these are not compared with ours"
)


def _orders(
    key: str, title: str, figure: Figure, part: str, paper: Mapping[int, tuple[float, float]] | None = None,
    protocol: Protocol = KERNELS, by: str = "nodes", **only,
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
        by=by, only={"part": part, **only}, stored="mask_order", basis="exact counts of the masks",
        axis={"nodes": "tree nodes", "prefix": "prefix tokens"}[by],
    )  # fmt: skip


ORDERS = (
    _orders("table-5", "Table 5: mask blocks, random trees", BLOCKS, "random", COUNTS, prefix=0),
    _orders("table-5-times", "Table 5: attention time, random trees", KERNEL, "kernels", TIMES, prefix=0),
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

PAPER_RESULTS = (_table(0.0), _table(0.6), TABLE_3, TABLE_4, FIGURE_2, FIGURE_4, FIGURE_5, *ORDERS)
