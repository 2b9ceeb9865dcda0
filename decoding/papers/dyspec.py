"""DySpec: accepted tokens of Table 1 at both temperatures, against SpecInfer's and Sequoia's trees of 64 nodes."""

from decoding.papers.exhibit import PER_PASS, SPEEDUP, Exhibit, Ordering, Way

PAPER = "DySpec"
DYSPEC, SEQUOIA, SPECINFER = "DySpec", "Sequoia", "SpecInfer"
# Tokens per pass on C4 by temperature: DySpec, Sequoia, SpecInfer.
TOKENS = {0.0: (5.25, 4.99, 3.32), 0.6: (3.71, 3.45, 3.44)}


def _table(temperature: float) -> Exhibit:
    paper = TOKENS[temperature]
    return Exhibit(
        f"dyspec/table-1-t{temperature:g}", PAPER, f"Table 1: trees of 64 nodes, temperature {temperature:g}", "dyspec",
        "Llama-2-7B with a draft of 68M parameters on an A100, C4, 128 tokens, draft temperature 0.6",
        (PER_PASS, SPEEDUP),
        (
            Way(DYSPEC, "dyspec", {"tokens_per_iteration": paper[0]}),
            Way("DySpec, threshold", "dyspec_threshold"),
            Way(SEQUOIA, "sequoia", {"tokens_per_iteration": paper[1]}),
            Way(SPECINFER, "specinfer", {"tokens_per_iteration": paper[2]}),
        ),
        (Ordering(DYSPEC, SEQUOIA, PER_PASS), Ordering(SEQUOIA, SPECINFER, PER_PASS)),
        only={"temperature": temperature},
    )  # fmt: skip


EXHIBITS = (_table(0.0), _table(0.6))
