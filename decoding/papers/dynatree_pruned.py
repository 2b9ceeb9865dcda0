"""DynaTree with adaptive pruning, the earlier version: Tables 1 to 7, and the sweep of Figures 3 and 7.

Figure 1 is in explained.py.
"""

from dataclasses import replace

from decoding.papers.dynatree import CPU_MEMORY
from decoding.papers.paper_result import (
    COMMITTED_OVER_DRAFTED,
    DRAFTED,
    MEMORY,
    OVER_DEPTH_1,
    OVER_DRAFTED,
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

PAPER = "DynaTree, earlier version"
MAIN_TEXT = Protocol(
    "Pythia-2.8B with Pythia-70M", "one GPU", "PG-19, short prompts repeated to the least length", "", "500", "greedy",
    "5 runs, the first left out",
)  # fmt: skip
UNJUDGED = replace(
    MAIN_TEXT, note="windowed StreamingLLM writes a different text in our runs, so it is shown but not judged"
)
WIKITEXT = replace(MAIN_TEXT, prompts="WikiText-2")
BY_PROMPT = replace(WIKITEXT, prompt_tokens="at most 100, 200, 800, 1,000")
BOTH_TEXTS = replace(MAIN_TEXT, prompts="PG-19 and WikiText-2", repeats="10 runs, the first left out")
SWEEP = replace(MAIN_TEXT, prompts="", new_tokens="100, 200, 500, 750, 1,000", repeats="2 runs of each of 450 settings")
AR, HF, STREAMING = "Autoregressive", "Hugging Face assisted", "StreamingLLM + speculative"
K6, K7, D6, D7 = "Linear, K = 6", "Linear, K = 7", "DynaTree, D = 6, B = 2", "DynaTree, D = 7, B = 2"
LINES = {
    AR: "autoregressive", HF: "hf_assisted", K6: "linear:length=6", K7: "linear:length=7",
    STREAMING: "linear@streaming", D6: "fixed tree D6 B2 tau 0.05 (earlier version)",
    D7: "fixed tree D7 B2 tau 0.05 (earlier version)",
}  # fmt: skip
# Speed-up, tokens/s, tokens per pass, acceptance.
MAIN = {
    AR: (1.0, 119.4, 1.0), HF: (1.36, 161.9, 3.0), K6: (1.11, 133.1, 4.87, 81.2), K7: (1.16, 138.7, 5.33, 76.2),
    STREAMING: (1.11, 132.9), D6: (1.55, 185.2, 5.56, 79.5), D7: (1.55, 184.6, 5.81, 72.6),
}  # fmt: skip
LATENCY = {AR: (7.47, 18.69), K6: (6.16, 12.17), D6: (5.46, 12.48)}
# Tokens/s by prompt length.
PROMPT_LENGTHS = (100, 200, 800, 1000)
BY_LENGTH = {
    AR: (132.8, 127.4, 133.2, 135.0), K6: (158.4, 175.6, 167.7, 139.8), K7: (161.7, 178.2, 173.4, 143.1),
    D6: (181.2, 197.9, 185.3, 162.8), D7: (177.0, 198.0, 184.5, 172.6),
}  # fmt: skip
# Tokens/s, speed-up, acceptance and depth of the best tree by generation length; all have B = 2, tau = 0.05.
BEST = {
    100: (113.4, 1.54, 50.3, 5),
    200: (166.2, 1.32, 72.0, 6),
    500: (185.3, 1.39, 79.5, 6),
    750: (186.7, 1.48, 75.1, 7),
    1000: (205.6, 1.57, 73.3, 7),
}
SWEPT = ("settings.max_depth", "settings.branching", "settings.prune_probability")

COLUMNS = ("speedup", "throughput", "tokens_per_iteration", "committed_over_depth_1")
TABLE_1 = PaperResult(
    "pruned/table-1", PAPER, "Table 1 and Figure 2: throughput", "dynatree_pruned", UNJUDGED,
    (SPEEDUP, THROUGHPUT, PER_PASS, OVER_DEPTH_1),
    tuple(Entry(words, line, dict(zip(COLUMNS, MAIN[words], strict=False)))
          for words, line in LINES.items()),
    (Ordering(D6, HF, SPEEDUP), Ordering(D6, K6, SPEEDUP), Ordering(HF, K6, SPEEDUP)),
    only={"cut": 800},
)  # fmt: skip

TABLE_2 = PaperResult(
    "pruned/table-2", PAPER, "Table 2: latency", "dynatree_pruned", WIKITEXT, (TPOT, TTFT),
    tuple(Entry(words, LINES[words], dict(zip(("tpot_s", "ttft_s"), paper, strict=True)))
          for words, paper in LATENCY.items()),
    (Ordering(D6, K6, TPOT, False), Ordering(K6, AR, TPOT, False), Ordering(D6, AR, TTFT, False)),
    only={"cut": 800},
)  # fmt: skip

DEEPEST = ", ".join(f"{best[-1]} at {count:,}" for count, best in BEST.items())
OF_SWEEP = replace(SWEEP, note=f"the paper's best trees have D = {DEEPEST} tokens, B = 2 and tau = 0.05")
TABLE_4 = PaperResult(
    "pruned/table-4", PAPER, "Table 4, Figures 4 and 7d: best tree of the sweep by generation length",
    "fixed_tree_sweep", OF_SWEEP, (SPEEDUP, THROUGHPUT, OVER_DEPTH_1),
    (
        Entry("Best fixed tree", "fixed_tree", {("throughput", n): value[0] for n, value in BEST.items()}
            | {("speedup", n): value[1] for n, value in BEST.items()}
            | {("committed_over_depth_1", n): value[2] for n, value in BEST.items()}, SWEPT),
        Entry(AR, "autoregressive", {("speedup", n): 1.0 for n in BEST}),
    ),
    (Ordering("Best fixed tree", AR, SPEEDUP),), by="asked_tokens", axis="tokens requested",
)  # fmt: skip

# The trees that the paper found best, at every length, and which is best at which.
OPTIMA = {depth: f"Fixed tree, D = {depth}, B = 2, tau = 0.05" for depth in (5, 6, 7)}
TABLE_4_OPTIMA = PaperResult(
    "pruned/table-4-settings", PAPER, "Table 4: the best settings by generation length", "fixed_tree_sweep", OF_SWEEP,
    (SPEEDUP, THROUGHPUT, OVER_DEPTH_1),
    (*(
        Entry(words, "fixed_tree",
            {(column, n): value for n, (*values, best) in BEST.items() if best == depth
             for column, value in zip(("throughput", "speedup", "committed_over_depth_1"), values, strict=True)},
            where={"settings.max_depth": depth, "settings.branching": 2, "settings.prune_probability": 0.05})
        for depth, words in OPTIMA.items()
    ), Entry("Best of the sweep here", "fixed_tree", best=SWEPT)),
    tuple(Ordering(OPTIMA[best[3]], words, SPEEDUP, at=(n, n))
          for n, best in BEST.items() for depth, words in OPTIMA.items() if depth != best[3]),
    by="asked_tokens", axis="tokens requested",
)  # fmt: skip

TABLE_6 = PaperResult(
    "pruned/table-6", PAPER, "Table 6 and Figure 6: prompt length", "dynatree_pruned", BY_PROMPT, (THROUGHPUT, SPEEDUP),
    tuple(Entry(words, LINES[words], {("throughput", cut): rate for cut, rate in zip(PROMPT_LENGTHS, row, strict=True)})
          for words, row in BY_LENGTH.items()),
    (Ordering(D6, K6, THROUGHPUT), Ordering(K6, AR, THROUGHPUT)), by="cut", only={"filled": True},
    axis="prompt tokens",
)  # fmt: skip

BEST_TREE = "Fixed tree, D = 8, B = 3, tau = 0.03"
TABLE_3 = PaperResult(
    "pruned/table-3", PAPER, "Table 3: verification", "dynatree_pruned", MAIN_TEXT,
    (PER_PASS, COMMITTED_OVER_DRAFTED, DRAFTED, OVER_DRAFTED),
    (
        Entry(K6, LINES[K6], {"tokens_per_iteration": 4.10, "committed_over_drafted": 68.0, "drafted_per_pass": 6}),
        Entry(BEST_TREE, "fixed tree D8 B3 tau 0.03 (best of the sweep)",
            {"tokens_per_iteration": 6.94, "committed_over_drafted": 38.0, "drafted_per_pass": 18}),
    ),
    (Ordering(BEST_TREE, K6, PER_PASS), Ordering(K6, BEST_TREE, COMMITTED_OVER_DRAFTED)), only={"cut": 800},
)  # fmt: skip

# Tokens/s on PG-19 and WikiText-2, books and articles: our fiction and encyclopedia prompts.
BY_TEXT = {AR: (126.0, 133.2), K6: (151.5, 167.7), K7: (150.7, 173.4), D6: (165.7, 185.3), D7: (160.1, 184.5)}
TABLE_5 = PaperResult(
    "pruned/table-5", PAPER, "Table 5 and Figure 5: kinds of text", "dynatree_pruned", BOTH_TEXTS,
    (SPEEDUP, THROUGHPUT),
    tuple(
        Entry(words, LINES[words],
            {("throughput", kind): value for kind, value in zip(("fiction", "encyclopedia"), row, strict=True)}
            | {("speedup", kind): round(value / plain, 2)
               for kind, value, plain in zip(("fiction", "encyclopedia"), row, BY_TEXT[AR], strict=True)})
        for words, row in BY_TEXT.items()
    ),
    (Ordering(D6, K6, SPEEDUP), Ordering(K6, AR, SPEEDUP)), by="kind", only={"cut": 800}, axis="kind of text",
)  # fmt: skip

TABLE_7 = PaperResult(
    "pruned/table-7", PAPER, "Table 7: peak memory", "dynatree_pruned",
    replace(BOTH_TEXTS, note="the paper's numbers are the means of its columns of PG-19 and WikiText-2, which are not "
                             f"shown apart: memory here is the same for all texts; {CPU_MEMORY}"), (MEMORY,),
    tuple(Entry(words, LINES[words], {"peak_memory_bytes": paper})
          for words, paper in {AR: 5826.9, K6: 5801.8, K7: 5801.9, D6: 5853.3, D7: 5853.3}.items()),
    (Ordering(AR, D6, MEMORY, False), Ordering(K6, D6, MEMORY, False)), only={"cut": 800},
)  # fmt: skip


def _slice(letter: str, title: str, varied: str, values: tuple, best: float, worse: tuple) -> PaperResult:
    """One panel of Figure 7: one setting varies around D = 8, B = 3, tau = 0.03."""
    around = {"max_depth": 8, "branching": 3, "prune_probability": 0.03}
    # A line names the settings that differ from the main table's tree.
    usual = around | {"prune_probability": 0.1}
    lines = {}
    for value in values:
        changed = [f"{name}={chosen}" for name, chosen in (around | {varied: value}).items() if chosen != usual[name]]
        lines[value] = ":".join(["fixed_tree", *([",".join(changed)] if changed else [])])
    return PaperResult(
        f"pruned/figure-7{letter}", PAPER, f"Figure 7{letter}: {title}", "fixed_tree_sweep", SWEEP,
        (SPEEDUP, PER_PASS), tuple(Entry(f"{title} {value:g}", line) for value, line in lines.items()),
        tuple(Ordering(f"{title} {best:g}", f"{title} {value:g}", SPEEDUP) for value in worse),
        only={"asked_tokens": 500},
    )  # fmt: skip


FIGURE_7 = (
    _slice("a", "depth", "max_depth", (3, 4, 5, 6, 7, 8), 8, (3, 5)),
    _slice("b", "branching", "branching", (2, 3, 4), 3, (2, 4)),
    _slice("c", "threshold", "prune_probability", (0.01, 0.02, 0.03, 0.05, 0.1), 0.03, (0.01, 0.1)),
)
FIGURE_7E = PaperResult(
    "pruned/figure-7e", PAPER, "Figure 7e: accepted path over depth and branching", "fixed_tree_sweep", SWEEP,
    (PATH, PER_PASS),
    tuple(Entry(f"B = {width}", "fixed_tree",
                where={"settings.branching": width, "settings.prune_probability": 0.03}) for width in (2, 3, 4)),
    tuple(Ordering(f"B = {width}", f"B = {width}", PATH, at=(8, 3)) for width in (2, 3, 4)),
    by="settings.max_depth", only={"asked_tokens": 500}, axis="depth D", across="settings.branching",
)  # fmt: skip
WIDE = "Fixed tree, D = 8, B = 3"
FIGURE_7F = PaperResult(
    "pruned/figure-7f", PAPER, "Figure 7f: acceptance by pruning threshold", "fixed_tree_sweep",
    replace(SWEEP, note="acceptance as in Tables 1 and 4"),
    (OVER_DEPTH_1, COMMITTED_OVER_DRAFTED, OVER_DRAFTED, SPEEDUP),
    (Entry(WIDE, "fixed_tree", where={"settings.max_depth": 8, "settings.branching": 3}),),
    (Ordering(WIDE, WIDE, OVER_DEPTH_1, at=(0.01, 0.1)),),
    by="settings.prune_probability", only={"asked_tokens": 500}, axis="pruning threshold tau",
)  # fmt: skip
# Figure 3: one setting on the axis, a line for each value of another, the third fixed; as in Figure 7, at 500 tokens.
AXES = {
    "max_depth": ("depth", (3, 4, 5, 6, 7, 8), "D"), "branching": ("branching", (2, 3, 4), "B"),
    "prune_probability": ("threshold", (0.01, 0.02, 0.03, 0.05, 0.1), "tau"),
}  # fmt: skip
BEST_OTHERS = "Best of the other two"


def _panel(letter: str, axis: str, line: str, fixed: dict[str, float], better: float, worse: float) -> PaperResult:
    """A panel of Figure 3: `axis` against `line`, with the best values of the other two settings as reference."""
    title, values, symbol = AXES[axis][0], AXES[line][1], AXES[line][2]
    wanted = {f"settings.{name}": value for name, value in fixed.items()}
    ways = tuple(Entry(f"{symbol} = {value:g}", "fixed_tree", where=wanted | {f"settings.{line}": value})
                 for value in values)  # fmt: skip
    others = tuple(f"settings.{name}" for name in AXES if name != axis)
    first, second = f"{symbol} = {better:g}", f"{symbol} = {worse:g}"
    return PaperResult(
        f"pruned/figure-3{letter}", PAPER, f"Figure 3{letter}: {title} by {AXES[line][0]}", "fixed_tree_sweep",
        SWEEP, (THROUGHPUT, SPEEDUP, PATH),
        (*ways, Entry(BEST_OTHERS, "fixed_tree", best=others), Entry(AR, "autoregressive", flat=True)),
        (Ordering(first, second, THROUGHPUT), Ordering(BEST_OTHERS, AR, THROUGHPUT)),
        by=f"settings.{axis}", only={"asked_tokens": 500}, axis=title,
    )  # fmt: skip


FIGURE_3 = (
    _panel("a", "branching", "max_depth", {"prune_probability": 0.03}, 8, 3),
    _panel("b", "max_depth", "branching", {"prune_probability": 0.03}, 3, 2),
    _panel("c", "prune_probability", "max_depth", {"branching": 3}, 8, 3),
)
PAPER_RESULTS = (
    TABLE_1, TABLE_2, TABLE_3, TABLE_4, TABLE_4_OPTIMA, TABLE_5, TABLE_6, TABLE_7, *FIGURE_3, *FIGURE_7, FIGURE_7E,
    FIGURE_7F,
)  # fmt: skip
