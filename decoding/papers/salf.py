"""SALF & TALF: tree searches (Table 2) and thresholds (Table 4) with the pair's draft model, and with heads.

With heads of three losses on one target, Table 2 and the speed-ups of Table 1.
"""

from dataclasses import replace
from statistics import mean

from decoding.papers.paper_result import DRAFT_FORWARDS, PER_PASS, SPEEDUP, Entry, Ordering, PaperResult
from decoding.papers.protocol import Protocol

PAPER = "SALF & TALF"
THREE = "MT-bench, HumanEval and GSM8K"
FIVE = "MT-bench, HumanEval, GSM8K, Alpaca and CNN/DailyMail"
OF_FIVE = Protocol(
    "DeepSeek-R1-Distill-Llama-8B with TALF heads", "an A100", FIVE, sampling="greedy", repeats="means over data sets",
    note="trees of at most 60 nodes",
)  # fmt: skip
OF_THREE = replace(OF_FIVE, prompts=THREE)
FIGURES = (SPEEDUP, PER_PASS, DRAFT_FORWARDS)
BEAM, OPTIMAL, SALF = "Beam search", "Optimal search", "SALF, threshold 0.6"

TABLE_2 = PaperResult(
    "salf/table-2", PAPER, "Table 2: search", "salf_thresholds", OF_FIVE, FIGURES,
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
    "salf/table-4", PAPER, "Table 4: SALF's threshold", "salf_thresholds", OF_THREE, FIGURES,
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
    replace(OF_FIVE, pair="DeepSeek-R1-Distill-Llama-8B with heads of three losses"), FIGURES,
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
            sampling="greedy; T = 1", repeats="means over models and data sets"), (SPEEDUP, PER_PASS),
    tuple(
        Entry(words, line, {("speedup", at): round(mean(by_way[words]), 2) for at, by_way in MEANS.items()})
        for words, line in ((EAGLE_2, "eagle2:draft_head=eagle"), (HASS, "eagle2:draft_head=hass"),
                            (BOTH, "salf:draft_head=talf"))
    ),
    (Ordering(HASS, EAGLE_2, SPEEDUP), Ordering(BOTH, HASS, SPEEDUP)), by="temperature", axis="temperature",
    needs=HEADS,
)  # fmt: skip

PAPER_RESULTS = (TABLE_1, TABLE_2, TABLE_2_HEADS, TABLE_4)
