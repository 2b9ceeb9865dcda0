"""SALF & TALF: the tree searches of Table 2 and the thresholds of Table 4, with the draft model of the loaded pair."""

from decoding.papers.exhibit import DRAFT_FORWARDS, PER_PASS, SPEEDUP, Exhibit, Ordering, Way

PAPER = "SALF & TALF"
PROTOCOL = "means over three models with TALF heads on an A100, trees of at most 60 nodes, temperature 0"
FIGURES = (SPEEDUP, PER_PASS, DRAFT_FORWARDS)
BEAM, OPTIMAL, SALF = "Beam search", "Optimal search", "SALF, threshold 0.6"

TABLE_2 = Exhibit(
    "salf/table-2", PAPER, "Table 2: search", "salf_thresholds", PROTOCOL, FIGURES,
    (
        Way(BEAM, "eagle2", {"speedup": 1.97, "tokens_per_iteration": 3.88}),
        Way(OPTIMAL, "specexec", {"speedup": 2.16, "tokens_per_iteration": 3.98}),
        Way(SALF, "salf", {"speedup": 2.47, "tokens_per_iteration": 3.73}),
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
    """What the table calls SALF with a threshold."""
    return f"Threshold {threshold:.1f}"


TABLE_4 = Exhibit(
    "salf/table-4", PAPER, "Table 4: SALF's threshold", "salf_thresholds", PROTOCOL, FIGURES,
    tuple(
        Way(
            at(threshold),
            "salf" if threshold == 0.6 else f"salf:gain_threshold={threshold}",
            {"speedup": speed, "tokens_per_iteration": tokens},
        )
        for threshold, (speed, tokens) in THRESHOLDS.items()
    ),
    (Ordering(at(0.5), at(0.0), SPEEDUP), Ordering(at(0.5), at(0.9), SPEEDUP), Ordering(at(0.0), at(0.9), PER_PASS)),
    only={"temperature": 0.0},
)  # fmt: skip

EXHIBITS = (TABLE_2, TABLE_4)
