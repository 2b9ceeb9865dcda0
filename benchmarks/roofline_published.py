"""`python -m benchmarks.roofline_published`: modelled costs beside figures that others or this repository measured.

Every figure names its source. Published speed-ups come with the acceptance length published for the same heads, so that
only the costs are modelled. Rows that a default of `Efficiency` was read off are marked as fitted.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from statistics import median

import torch

from decoding.analysis.batch import DraftShape
from decoding.analysis.known_models import known_shape
from decoding.analysis.model_shape import EAGLE3_VOCABULARY, ModelShape, eagle_head
from decoding.analysis.roofline import ACCELERATORS, Setup, pass_time, roofline_costs
from decoding.common.errors import run_main
from decoding.experiments.command import arguments, print_table, save_figures

OURS = "docs/gpu.md, one captured pass"
GPT_FAST = "gpt-fast README, batch 1, power limited to 330 W"
SGLANG = "SGLang documentation, speculative decoding; EAGLE-3 paper, table 4"
QWEN8 = "Hugging Face model card Tengyunw/qwen3_8b_eagle3, SGLang"
VLLM = "vLLM GitHub thread 20780, MT-bench, batch 1"
EAGLE3 = "EAGLE-3 paper (Li et al. 2025), table 3: SGLang, MT-bench, chain of 3"
EAGLE3_VLLM = "EAGLE-3 paper (Li et al. 2025), table 5: vLLM, MT-bench, chain of 2"
SPECFORGE = "SpecForge GitHub thread 339: SGLang, MT-bench, chain of 3"
SILYBENCH = "silybench-data (tgarg01), run 20260924T225750Z: vLLM 0.30, 2,048 + 2,048 tokens, median between tokens"
DYSPEC = "DySpec (Xiong et al. 2024), section 5.3: about 25 ms, not captured"

# Mean acceptance length by K on MT-bench, and milliseconds per token: vLLM GitHub thread 20780, Llama-3.1-8B.
EAGLE1_LENGTHS = {2: (2.10, 4.37), 3: (2.29, 4.29), 4: (2.39, 4.48), 5: (2.43, 4.71), 6: (2.45, 4.94), 7: (2.47, 5.20)}
EAGLE3_LENGTHS = {2: (2.36, 4.32), 3: (2.79, 4.09), 4: (3.08, 4.05), 5: (3.32, 4.13), 6: (3.46, 4.20), 7: (3.54, 4.29)}
VLLM_PLAIN_MS = 7.07


@dataclass(frozen=True)
class Beside:
    """A published figure and the modelled one; `fitted` where a default of `Efficiency` was read off it.

    Attributes:
        batch, length, tokens: of a speed-up: sequences, K, and the mean acceptance length published for it.
    """

    what: str
    unit: str
    published: float
    modelled: float
    source: str
    fitted: bool = False
    batch: int = 1
    length: int = 0
    tokens: float = 0.0

    @property
    def error(self) -> float:
        """How much faster than published, as a share: above 0 the model is too optimistic."""
        return (self.published / self.modelled if self.unit == "ms" else self.modelled / self.published) - 1


def passes() -> Iterator[Beside]:
    """Passes and plain decoding."""

    def ms(model: str, setup: Setup, batch: int = 1, rows: int = 1) -> float:
        return 1000 * pass_time(known_shape(model), setup, batch, rows).seconds

    chip = ACCELERATORS["h200"]
    for model, context, rows, measured, fitted in (
        ("Pythia-2.8B", 200, 1, 2.44, True), ("Pythia-2.8B", 200, 64, 2.80, False),
        ("Pythia-2.8B", 1000, 1, 2.65, False), ("Pythia-2.8B", 1000, 64, 3.46, False),
        ("Pythia-70M", 200, 1, 0.345, True), ("Pythia-70M", 1000, 64, 0.395, False),
        ("TinyLlama-1.1B", 200, 1, 1.41, True), ("TinyLlama-1.1B", 200, 64, 1.89, False),
    ):  # fmt: skip
        what = f"{model}, H200, {rows} tokens behind {context:,}"
        yield Beside(what, "ms", measured, ms(model, Setup(chip, context=context), rows=rows), OURS, fitted)
    a100 = ACCELERATORS["a100-80gb"]
    for model, devices, weights, speed, fitted in (
        ("Llama-2-7B", 1, "bf16", 104.9, True), ("Llama-2-7B", 1, "int8", 155.58, False),
        ("Llama-2-7B", 1, "int4", 196.80, False), ("Llama-2-7B", 2, "bf16", 168.84, True),
        ("Llama-2-7B", 4, "bf16", 254.02, True), ("Llama-2-7B", 8, "bf16", 328.43, True),
        ("Llama-2-70B", 1, "int8", 19.13, False), ("Llama-2-70B", 1, "int4", 25.25, False),
        ("Llama-2-70B", 2, "bf16", 21.32, False), ("Llama-2-70B", 4, "bf16", 38.01, False),
        ("Llama-2-70B", 8, "bf16", 62.50, False),
    ):  # fmt: skip
        setup = Setup(a100, devices, weights, context=100)
        yield Beside(
            f"{model}, {devices} A100, {weights}", "tokens/s", speed, 1000 / ms(model, setup), GPT_FAST, fitted
        )
    h100 = ACCELERATORS["h100-sxm"]
    short = Setup(h100, context=500)
    yield Beside("Llama-3.1-8B, H100", "tokens/s", 158.34, 1000 / ms("Llama-3.1-8B", short), SGLANG)
    yield Beside("Llama-3.1-8B, H100", "ms", VLLM_PLAIN_MS, ms("Llama-3.1-8B", short), VLLM)
    yield Beside("Qwen3-8B, H200", "tokens/s", 187, 1000 / ms("Qwen3-8B", Setup(chip, context=500)), QWEN8)
    long = Setup(h100, weights="fp8", context=3072)
    for batch, measured in ((1, 4.796), (4, 5.319), (16, 7.217)):
        yield Beside(f"Qwen3-8B, H100, fp8, batch {batch}", "ms", measured, ms("Qwen3-8B", long, batch), SILYBENCH)
    eager = Setup(ACCELERATORS["a100-40gb"], context=200)
    yield Beside("Llama-2-7B, A100 40GB, eager", "ms", 25, ms("Llama-2-7B", eager), DYSPEC)
    two = Setup(h100, 2, context=500)
    for batch, speed in ((1, 222.47), (4, 566.21), (8, 733.61), (16, 1012.96)):
        modelled = 1000 * batch / ms("Qwen3-30B-A3B", two, batch)
        yield Beside(f"Qwen3-30B-A3B, 2 H100, batch {batch}", "tokens/s", speed, modelled, SPECFORGE)


def speedup(target: ModelShape, draft: ModelShape, setup: Setup, batch: int, length: int, tokens: float) -> float:
    """Of a chain with a known mean acceptance length, over plain decoding."""
    costs = roofline_costs(target, draft, setup, batch)
    return DraftShape(length, (1,) * length, tokens).speedup(costs)


def speculation() -> Iterator[Beside]:
    """Chains against plain decoding of the same engine."""
    llama, h100 = known_shape("Llama-3.1-8B"), Setup(ACCELERATORS["h100-sxm"], context=500)
    heads = {
        "EAGLE": (eagle_head(llama), EAGLE1_LENGTHS),
        "EAGLE-3": (eagle_head(llama, EAGLE3_VOCABULARY), EAGLE3_LENGTHS),
    }
    for name, (head, lengths) in heads.items():
        for k, (tokens, ms) in lengths.items():
            modelled = speedup(llama, head, h100, 1, k, tokens)
            what, fitted = f"Llama-3.1-8B + {name}, H100, batch 1, K={k}", name == "EAGLE"
            yield Beside(what, "x", VLLM_PLAIN_MS / ms, modelled, VLLM, fitted, 1, k, tokens)
    sizes = (2, 4, 8, 16, 24, 32, 48, 56, 64)
    tables = {
        "EAGLE": (1.40, 1.38, 1.23, 1.02, 0.93, 0.94, 0.88, 0.99, 0.99),
        "EAGLE-3": (1.81, 1.82, 1.62, 1.48, 1.39, 1.32, 1.38, 1.34, 1.38),
    }
    for name, published in tables.items():
        head, lengths = heads[name]
        for batch, ratio in zip(sizes, published, strict=True):
            modelled, what = speedup(llama, head, h100, batch, 3, lengths[3][0]), f"Llama-3.1-8B + {name}, H100"
            yield Beside(f"{what}, batch {batch}, K=3", "x", ratio, modelled, EAGLE3, False, batch, 3, lengths[3][0])
    small = Setup(ACCELERATORS["rtx-3090"], context=500)
    tables = {
        "EAGLE": (1.30, 1.25, 1.21, 1.10, 1.03, 0.93, 0.82, 0.71),
        "EAGLE-3": (1.75, 1.68, 1.58, 1.49, 1.42, 1.36, 1.21, 1.01),
    }
    for name, published in tables.items():
        head, lengths = heads[name]
        for batch, ratio in zip(sizes, published, strict=False):
            modelled, what = speedup(llama, head, small, batch, 2, lengths[2][0]), f"Llama-3.1-8B + {name}, RTX 3090"
            tokens = lengths[2][0]
            yield Beside(f"{what}, batch {batch}, K=2", "x", ratio, modelled, EAGLE3_VLLM, False, batch, 2, tokens)
    sparse, two = known_shape("Qwen3-30B-A3B"), Setup(ACCELERATORS["h100-sxm"], 2, context=500)
    for batch, ratio in ((1, 159.78 / 222.47), (4, 447.90 / 566.21)):
        modelled = speedup(sparse, eagle_head(sparse, EAGLE3_VOCABULARY), two, batch, 3, 1.86)
        what = f"Qwen3-30B-A3B + EAGLE-3, 2 H100, batch {batch}, K=3"
        yield Beside(what, "x", ratio, modelled, SPECFORGE, False, batch, 3, 1.86)


def summary(rows: list[Beside]) -> list[dict]:
    """Errors of each source, of passes and of speed-ups apart; rows that defaults were read off are left out."""
    groups: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if not row.fitted:
            kind = "speed-up" if row.unit == "x" else "pass"
            groups.setdefault((row.source, kind), []).append(row.error)
    return [
        {
            "source": source,
            "of": kind,
            "figures": len(errors),
            "median": median(errors),
            "largest": max(errors, key=abs),
        }
        for (source, kind), errors in groups.items()
    ]


def main() -> int:
    """Print both tables, and save them."""
    args = arguments(__doc__.splitlines()[0]).parse_args()
    rows = [*passes(), *speculation()]
    print_table(
        ("what", "unit", "published", "modelled", "error", ""),
        [(r.what, r.unit, f"{r.published:.3g}", f"{r.modelled:.3g}", f"{r.error:+.0%}", "fitted" if r.fitted else "")
         for r in rows],
    )  # fmt: skip
    print()
    print_table(
        ("source", "of", "figures", "median error", "largest"),
        [(s["source"], s["of"], s["figures"], f"{s['median']:+.0%}", f"{s['largest']:+.0%}") for s in summary(rows)],
    )
    figures = {"figures": [asdict(row) | {"error": row.error} for row in rows], "by_source": summary(rows)}
    save_figures(args, "roofline_published", figures, torch.device("cpu"))
    return 0


if __name__ == "__main__":
    run_main(main)
