"""Records of every method with every verifier that fits it, greedy and sampled, on a tiny and on the embedded pair.

What differs from machine to machine is left out: times, memory, hardware, the engine. Numbers are kept to four digits.
"""

import math
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.tiny_models import PairPlan, load_tiny_pair
from decoding.methods.method import Method, fitting
from decoding.methods.methods import METHODS
from decoding.models.pair import Pair, embedded_pair
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits
from decoding.trace.codec import to_json
from decoding.trace.records import RunTrace

SIZES = ("tiny", "embedded")
SAMPLINGS = {"greedy": Sampling(), "sampled": Sampling(0.8, 0.95, 1.0, 7)}
# With the usual seed a draw lies within rounding of the border between two tokens, and processors part there.
BORDERLINE = {"embedded, delayed, nss, sampled": 8}
LIMITS = Limits(12, rows="top")
TEXT = "Once upon a time there was a little girl who had"
TINY = tuple(range(20, 32))
# What would be measured where it is left empty.
MEASURED = {
    "sequoia": {"acceptance": "0.6,0.2,0.1"},
    "hardware_aware": {"verify_ms": "1:1 64:2", "level_ms": "0.2", "odds": "1.5 1"},
}
SMALL = {"node_budget": 12, "max_depth": 4, "base_depth": 3, "length": 4, "widths": "1,2,2"}
LEFT_OUT = {
    "created", "hardware", "times", "started_s", "ended_s", "texts", "prompt_texts", "committed_texts", "prefill_s",
    "ttft_s", "wall_s", "peak_memory_bytes", "pair", "format_version", "text",
}  # fmt: skip


def records(size: str) -> Iterator[tuple[str, Any]]:
    """The name of each run and what is kept of it.

    Args:
        size: of the pair, one of `SIZES`.
    """
    with tempfile.TemporaryDirectory() as folder:
        if size == "tiny":
            pair, ids = load_tiny_pair(PairPlan("llama", 96, 150, 150, "library", "auto", 3), Path(folder))[0], [*TINY]
        else:
            pair = embedded_pair()
            ids = pair.vocabulary.encode(TEXT)
        for title, method, sampling in _ways():
            name = f"{size}, {title}"
            sampling = replace(sampling, seed=BORDERLINE.get(name, sampling.seed))
            yield name, plain(_decoded(pair, method, ids, sampling))


def _ways() -> Iterator[tuple[str, Method, Sampling]]:
    for name, method in METHODS.items():
        own = method.drafter.settings()
        small = {key: value for key, value in SMALL.items() if key in own} | MEASURED.get(name, {})
        method = method.with_settings(**small)
        for kind, sampling in SAMPLINGS.items():
            for verifier in fitting(method.drafter.draft_sampling, sampling):
                yield f"{name}, {verifier}, {kind}", method.with_settings(verifier=verifier), sampling


def _decoded(pair: Pair, method: Method, ids: list[int], sampling: Sampling) -> RunTrace:
    session = DecodeSession(pair, method, ids, sampling, LIMITS)
    list(session)
    return session.trace()


def plain(run: RunTrace) -> Any:
    """A record as JSON holds it, without its arrays and what differs from machine to machine."""
    return _rounded(to_json(run, lambda name, array: None))


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _rounded(each) for name, each in value.items() if name not in LEFT_OUT}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.4g}") if math.isfinite(value) else str(value)
    return value
