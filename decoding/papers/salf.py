"""SALF & TALF: tree searches (Table 2) and thresholds (Table 4) with the pair's draft model, and with heads.

With heads of three losses on one target: Tables 1 and 2, also by kind of text, widths of training trees (Table 3), and
Figure 2 with Appendix A, of which `benchmarks.draft_ranks` stores what it measures.
"""

from dataclasses import replace
from statistics import mean

from decoding.papers.paper_result import (
    DRAFT_FORWARDS,
    PER_PASS,
    SPEEDUP,
    Entry,
    Figure,
    Ordering,
    PaperResult,
    Protocol,
)

PAPER = "SALF & TALF"
THREE = "MT-bench, HumanEval and GSM8K"
FIVE = "MT-bench, HumanEval, GSM8K, Alpaca and CNN/DailyMail"
OF_FIVE = Protocol(
    "DeepSeek-R1-Distill-Llama-8B with TALF heads", "an A100", FIVE, sampling="greedy", repeats="means over data sets",
    note="trees of at most 60 nodes",
)  # fmt: skip
OF_THREE = replace(OF_FIVE, prompts=THREE)
TRAINED = "heads trained on 68,000 dialogues of ShareGPT"
WITH_DRAFT = f"{OF_FIVE.note}; ours are with the pair's draft model in place of a head"
WITH_HEAD = f"{OF_FIVE.note}; {TRAINED}, ours for the same number of steps each"
FIGURES = (SPEEDUP, PER_PASS, DRAFT_FORWARDS)
BEAM, OPTIMAL, SALF = "Beam search", "Optimal search", "SALF, threshold 0.6"

TABLE_2 = PaperResult(
    "salf/table-2", PAPER, "Table 2: search", "salf_thresholds", replace(OF_FIVE, note=WITH_DRAFT), FIGURES,
    (
        Entry(BEAM, "eagle2", {"speedup": 1.97, "tokens_per_iteration": 3.88}),
        Entry(OPTIMAL, "specexec", {"speedup": 2.16, "tokens_per_iteration": 3.98}),
        Entry(SALF, "salf", {"speedup": 2.47, "tokens_per_iteration": 3.73}),
    ),
    (Ordering(OPTIMAL, BEAM, PER_PASS), Ordering(OPTIMAL, SALF, PER_PASS), Ordering(SALF, OPTIMAL, SPEEDUP),
     Ordering(SALF, BEAM, SPEEDUP)),
    only={"temperature": 0.0},
)  # fmt: skip

# Speed-up and tokens per pass by threshold.
THRESHOLDS = {
    0.0: (2.32, 4.26), 0.1: (2.36, 4.26), 0.2: (2.46, 4.26), 0.3: (2.55, 4.23), 0.4: (2.58, 4.18),
    0.5: (2.62, 4.10), 0.6: (2.59, 3.99), 0.7: (2.58, 3.83), 0.8: (2.51, 3.63), 0.9: (2.37, 3.32),
}  # fmt: skip


def at(threshold: float) -> str:
    """The table's name for SALF with a threshold."""
    return f"Threshold {threshold:.1f}"


TABLE_4 = PaperResult(
    "salf/table-4", PAPER, "Table 4: SALF's threshold", "salf_thresholds", replace(OF_THREE, note=WITH_DRAFT),
    FIGURES,
    tuple(
        Entry(
            at(threshold),
            "salf" if threshold == 0.6 else f"salf:gain_threshold={threshold}",
            {"speedup": speed, "tokens_per_iteration": tokens},
        )
        for threshold, (speed, tokens) in THRESHOLDS.items()
    ),
    (Ordering(at(0.5), at(0.0), SPEEDUP), Ordering(at(0.5), at(0.9), SPEEDUP), Ordering(at(0.0), at(0.9), PER_PASS)),
    only={"temperature": 0.0},
)  # fmt: skip

# With heads: speed-up and tokens per pass by search and loss.
WITH_HEADS = {
    "Beam search": ("eagle2", {"eagle": (1.75, 3.44), "hass": (1.84, 3.62), "talf": (1.97, 3.88)}),
    "Optimal search": ("specexec", {"eagle": (1.93, 3.56), "hass": (2.01, 3.70), "talf": (2.16, 3.98)}),
    "SALF": ("salf", {"eagle": (2.29, 3.34), "hass": (2.37, 3.61), "talf": (2.47, 3.73)}),
}
LOSSES = {"eagle": "EAGLE", "hass": "HASS", "talf": "TALF"}
HEADS = "heads trained for the target with each loss: python -m decoding.training.head"


def head(search: str, loss: str) -> str:
    """The tables' name for a search with the head of a loss."""
    return f"{search}, {LOSSES[loss]} head"


TABLE_2_HEADS = PaperResult(
    "salf/table-2-heads", PAPER, "Table 2: search and loss, with heads", "salf_losses",
    replace(OF_FIVE, pair="DeepSeek-R1-Distill-Llama-8B with heads of three losses", note=WITH_HEAD), FIGURES,
    tuple(
        Entry(head(search, loss), f"{method}:draft_head={loss}", {"speedup": speed, "tokens_per_iteration": tokens})
        for search, (method, by_loss) in WITH_HEADS.items() for loss, (speed, tokens) in by_loss.items()
    ),
    (
        *(Ordering(head(search, "talf"), head(search, worse), PER_PASS)
          for search in WITH_HEADS for worse in ("hass", "eagle")),
        *(Ordering(head("Optimal search", loss), head("Beam search", loss), PER_PASS) for loss in LOSSES),
        *(Ordering(head("SALF", loss), head("Optimal search", loss), SPEEDUP) for loss in LOSSES),
    ),
    only={"temperature": 0.0}, needs=HEADS,
)  # fmt: skip

# Means of Table 1 over the three models by temperature: EAGLE-2 and HASS search with beams.
EAGLE_2, HASS, BOTH = "EAGLE-2", "HASS", "SALF & TALF"
MEANS = {
    0.0: {EAGLE_2: (2.68, 2.13, 1.93), HASS: (2.91, 2.42, 2.01), BOTH: (3.09, 2.87, 2.47)},
    1.0: {EAGLE_2: (2.55, 1.77, 1.78), HASS: (2.78, 2.00, 1.84), BOTH: (3.01, 2.47, 2.28)},
}
TABLE_1 = PaperResult(
    "salf/table-1", PAPER, "Table 1: speed-up", "salf_losses",
    replace(OF_FIVE, pair="Llama-2-7B, Llama-3.1-8B and DeepSeek-R1-Distill-Llama-8B with heads",
            sampling="greedy; T = 1", repeats="means over models and data sets", note=WITH_HEAD), (SPEEDUP, PER_PASS),
    tuple(
        Entry(words, line, {("speedup", at): round(mean(by_way[words]), 2) for at, by_way in MEANS.items()})
        for words, line in ((EAGLE_2, "eagle2:draft_head=eagle"), (HASS, "eagle2:draft_head=hass"),
                            (BOTH, "salf:draft_head=talf"))
    ),
    (Ordering(HASS, EAGLE_2, SPEEDUP), Ordering(BOTH, HASS, SPEEDUP)), by="temperature", axis="temperature",
    needs=HEADS,
)  # fmt: skip

# Both tables by task: EAGLE-2, HASS and both proposals (speed-up, mean over the three models), and Table 2's heads.
TASKS = ("MT-bench", "HumanEval", "GSM8K", "Alpaca", "CNN/DM")
BY_TASK = {
    0.0: {EAGLE_2: (2.25, 2.54, 2.38, 2.18, 1.92), HASS: (2.43, 2.83, 2.60, 2.34, 2.09),
          BOTH: (2.79, 3.12, 2.95, 2.74, 2.49)},
    1.0: {EAGLE_2: (1.92, 2.36, 2.21, 1.95, 1.78), HASS: (2.08, 2.55, 2.40, 2.17, 1.89),
          BOTH: (2.44, 2.88, 2.79, 2.56, 2.31)},
}  # fmt: skip
BY_TASK_WITH_HEADS = {  # speed-up and tokens per pass
    ("Beam search", "eagle"): ((1.76, 3.42), (1.91, 3.76), (1.95, 3.80), (1.66, 3.21), (1.51, 2.98)),
    ("Beam search", "hass"): ((1.84, 3.61), (2.03, 3.98), (2.09, 4.04), (1.75, 3.39), (1.55, 3.06)),
    ("Beam search", "talf"): ((1.98, 3.87), (2.16, 4.23), (2.26, 4.42), (1.85, 3.59), (1.66, 3.28)),
    ("Optimal search", "eagle"): ((1.94, 3.54), (2.09, 3.87), (2.11, 3.88), (1.84, 3.36), (1.69, 3.13)),
    ("Optimal search", "hass"): ((2.02, 3.70), (2.21, 4.08), (2.23, 4.10), (1.91, 3.47), (1.72, 3.17)),
    ("Optimal search", "talf"): ((2.19, 3.98), (2.34, 4.30), (2.44, 4.49), (2.04, 3.71), (1.84, 3.40)),
    ("SALF", "eagle"): ((2.31, 3.33), (2.44, 3.68), (2.39, 3.58), (2.26, 3.18), (2.07, 2.93)),
    ("SALF", "hass"): ((2.41, 3.60), (2.55, 3.99), (2.52, 3.96), (2.30, 3.39), (2.12, 3.09)),
    ("SALF", "talf"): ((2.48, 3.73), (2.64, 4.07), (2.66, 4.16), (2.40, 3.50), (2.19, 3.20)),
}
TEXTS = "task of the paper, kind of text here"


def _by_task(temperature: float) -> PaperResult:
    by_way = BY_TASK[temperature]
    return PaperResult(
        f"salf/table-1-tasks-t{temperature:g}", PAPER, f"Table 1 by task, temperature {temperature:g}", "salf_losses",
        replace(TABLE_1.protocol, sampling="T = 1" if temperature else "greedy", repeats="means over models"),
        (SPEEDUP, PER_PASS),
        tuple(
            Entry(each.words, each.line, {("speedup", task): speed for task, speed in
                                          zip(TASKS, by_way[each.words], strict=True)})
            for each in TABLE_1.ways
        ),
        (Ordering(HASS, EAGLE_2, SPEEDUP), Ordering(BOTH, HASS, SPEEDUP)),
        by="kind", only={"temperature": temperature}, axis=TEXTS, needs=HEADS,
    )  # fmt: skip


TABLE_2_TASKS = PaperResult(
    "salf/table-2-tasks", PAPER, "Table 2 by task: search and loss, with heads", "salf_losses",
    replace(TABLE_2_HEADS.protocol, repeats=""), FIGURES,
    tuple(
        Entry(head(search, loss), f"{WITH_HEADS[search][0]}:draft_head={loss}",
              {(column, task): both[place] for task, both in zip(TASKS, by_task, strict=True)
               for place, column in enumerate(("speedup", "tokens_per_iteration"))})
        for (search, loss), by_task in BY_TASK_WITH_HEADS.items()
    ),
    TABLE_2_HEADS.orderings, by="kind", only={"temperature": 0.0}, axis=TEXTS, needs=HEADS,
)  # fmt: skip

# Tokens per pass by the loss and the width of the target's trees it was trained on.
WIDTHS = {"hass": ("HASS (top-1)", 3.96), "talf_top1": ("TALF (top-1)", 4.03), "talf_top2": ("TALF (top-2)", 4.18),
          "talf": ("TALF (top-4)", 4.26)}  # fmt: skip
TABLE_3 = PaperResult(
    "salf/table-3", PAPER, "Table 3: width of the training trees", "salf_widths",
    replace(OF_THREE, note=WITH_HEAD), (PER_PASS, SPEEDUP),
    tuple(Entry(words, f"specexec:draft_head={name}", {"tokens_per_iteration": tokens})
          for name, (words, tokens) in WIDTHS.items()),
    tuple(Ordering(WIDTHS[wide][0], WIDTHS[narrow][0], PER_PASS)
          for narrow, wide in (("talf_top1", "talf_top2"), ("talf_top2", "talf"), ("hass", "talf"))),
    needs=HEADS,
)  # fmt: skip

SHARE = Figure("share", "share of the tree's tokens, %", 100, 1)
ACCURACY = Figure("accuracy", "top-1 accuracy, %", 100, 1)
ECE = Figure("ece", "calibration error, points", 100, 1)
DISTRIBUTION_ECE = Figure("distribution_ece", "the same against the target's distribution, points", 100, 1)
OF_EACH = tuple(Entry(words, loss) for loss, words in LOSSES.items())


RANKS = Protocol(
    "Llama-2-7B, Llama-3.1-8B or DeepSeek-R1-Distill-Llama-8B with heads; which is not said", OF_FIVE.hardware,
    f"held-out texts of {FIVE}",
)  # fmt: skip


def _ranks(
    key: str, title: str, note: str, figures: tuple[Figure, ...], orderings: tuple[Ordering, ...], part: str
) -> PaperResult:
    """One part of what `benchmarks.draft_ranks` measures, by rank."""
    trees = ", trees of at most 60 nodes, 10 expanded on a level, depth 7" if part == "shares" else ""
    protocol = replace(RANKS, note=note, setup=TRAINED + trees)
    return PaperResult(
        f"salf/{key}", PAPER, title, "", protocol, figures, OF_EACH, orderings, by="rank",
        only={"part": part}, stored="draft_ranks", unit="trees" if part == "shares" else "roots", needs=HEADS,
        axis="rank in the draft's distribution (5: fifth or lower)" if part == "shares"
        else "rank of the token that the head is conditioned on",
    )  # fmt: skip


BEHIND = "the head after its own n-th ranked token, against what the target says there; "
RANKED = (
    _ranks("figure-2a", "Figure 2a: tree tokens by rank",
           "about 55% of the tokens of a draft tree are ranked first, over 10% fifth or lower", (SHARE,),
           tuple(Ordering(words, words, SHARE, at=(1, 2)) for words in LOSSES.values()), "shares"),
    _ranks("figure-2b", "Figure 2b: accuracy by rank",
           BEHIND + "TALF is about 5 points more accurate behind lower ranks, HASS behind the first alone", (ACCURACY,),
           (Ordering("TALF", "HASS", ACCURACY), Ordering("TALF", "EAGLE", ACCURACY),
            Ordering("HASS", "EAGLE", ACCURACY, at=(1, 1))), "behind"),
    _ranks("appendix-a", "Figure 2b and Appendix A: calibration by rank",
           BEHIND + "TALF's calibration error is about 5 points lower behind lower ranks", (ECE, DISTRIBUTION_ECE),
           (Ordering("TALF", "HASS", ECE, False), Ordering("TALF", "EAGLE", ECE, False)), "behind"),
)  # fmt: skip

PAPER_RESULTS = (
    TABLE_1, _by_task(0.0), _by_task(1.0), TABLE_2, TABLE_2_HEADS, TABLE_2_TASKS, TABLE_3, TABLE_4, *RANKED,
)  # fmt: skip
