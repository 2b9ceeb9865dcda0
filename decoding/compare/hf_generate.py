"""Hugging Face `generate` and assisted generation with a clean generation config and timestamps."""

import time
from dataclasses import dataclass
from typing import Literal

import torch

from decoding.common.interruption import CancelledError, pause_point, turn
from decoding.models.pair import Pair
from decoding.sampling.sampling import Sampling
from decoding.trace.metrics import Timeline

Baseline = Literal["hf_generate", "hf_static", "hf_assisted", "hf_prompt_lookup"]
BASELINES: dict[Baseline, str] = {
    "hf_generate": "Hugging Face generate",
    "hf_static": "Hugging Face static cache",
    "hf_assisted": "Hugging Face assisted",
    "hf_prompt_lookup": "Hugging Face prompt lookup",
}
SINGLE_ROWS = (
    "In bfloat16 on a CPU, torch's product for a single row took 3 to 7 times as long as for 8 rows, where it was "
    "measured. Hugging Face generate and the transformers engine multiply single rows; the packed engine pads those of "
    "large weights. A ratio to generate may flatter: look at the one to our autoregressive loop in the packed engine."
)
LOOKUP_TOKENS = 10  # of a chain, as many as `prompt_lookup` drafts at most


def single_row_words(device: str, dtype: str) -> list[str]:
    """What to know of ratios to `generate` where single rows may be slow; empty elsewhere."""
    return [SINGLE_ROWS] if device == "cpu" and dtype == "bfloat16" else []


class _Stopwatch:
    """A streamer that notes when tokens arrive; the first call brings the prompt."""

    def __init__(self, device: torch.device, samples: bool, cancelled=None):
        self.seconds: list[float] = []
        self.tokens: list[int] = []
        self._cancelled, self._samples = cancelled, samples
        self._total: int | None = None
        self._devices = [device] if device.type == "cuda" else []
        self.started = time.perf_counter()

    def put(self, tokens: torch.Tensor) -> None:
        if self._cancelled is not None and self._cancelled():
            raise CancelledError
        # Whoever else samples meanwhile seeds the same generators.
        with torch.random.fork_rng(self._devices, enabled=self._samples):
            self.started += pause_point(timed=True)  # the clock stands meanwhile
        if self._total is None:
            self._total = 0
            return
        self._total += tokens.numel()
        self.seconds.append(time.perf_counter() - self.started)
        self.tokens.append(self._total)

    def end(self) -> None:
        pass


@dataclass(frozen=True)
class BaselineRun:
    """One call of an outside baseline.

    Attributes:
        peak_memory_bytes: on CUDA, None elsewhere and where other work was there too.
    """

    output_ids: tuple[int, ...]
    timeline: Timeline
    peak_memory_bytes: int | None


@torch.inference_mode()
def run_baseline(
    pair: Pair,
    baseline: Baseline,
    prompt_ids: list[int],
    max_new_tokens: int,
    ignore_end_of_text: bool = False,
    cancelled=None,
    sampling: Sampling | None = None,
) -> BaselineRun:
    """Call `generate` (with the draft as assistant for `hf_assisted`) and note when each token arrived.

    `hf_prompt_lookup` has it copy chains from the text, at most `LOOKUP_TOKENS` long, matching up to two tokens.
    `hf_static` gives it the static cache, with which transformers compiles the forward where the device is CUDA.

    Sampling takes its numbers from the seeded generator of torch, so its tokens are not those of our methods.
    """
    device = pair.target.device
    config = pair.generation_config()
    config.max_new_tokens = max_new_tokens
    if sampling is not None and not sampling.greedy:
        config.do_sample, config.top_k = True, 0
        config.temperature, config.top_p = sampling.temperature, sampling.top_p
        torch.manual_seed(sampling.seed)
    if ignore_end_of_text:
        config.eos_token_id = None
    extra = {}
    if baseline == "hf_static":
        config.cache_implementation = "static"
    if baseline == "hf_prompt_lookup":
        config.prompt_lookup_num_tokens = LOOKUP_TOKENS
    if baseline == "hf_assisted":
        extra["assistant_model"] = pair.draft.network
        if pair.draft.info.vocab_size != pair.target.info.vocab_size:
            extra |= {"tokenizer": pair.vocabulary.tokenizer, "assistant_tokenizer": pair.vocabulary.tokenizer}
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    ids = torch.tensor([prompt_ids], device=device)
    stopwatch, peak_of = _Stopwatch(device, bool(config.do_sample), cancelled), turn()
    output = pair.target.network.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        generation_config=config,
        streamer=stopwatch,
        **extra,
    )
    new = tuple(output[0, len(prompt_ids) :].tolist())
    alone = turn() == peak_of
    peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" and alone else None
    # An assistant may bring tokens past the limit to the streamer; what was returned is what counts.
    tokens = tuple(min(count, len(new)) for count in stopwatch.tokens)
    return BaselineRun(new, Timeline(tuple(stopwatch.seconds), tokens), peak)
