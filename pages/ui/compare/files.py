"""A comparison to take away: CSV of every call, JSON of everything, and the command that repeats it."""

import json
import shlex
from dataclasses import asdict

from decoding.compare.contestants import format_contestant
from decoding.compare.scoreboard import Score, score
from decoding.sampling.sampling import Sampling
from decoding.trace.exports import csv_table
from decoding.trace.metrics import RunMetrics
from pages.ui.compare.plan import Outcome
from pages.ui.widgets.controls import OWN_TEXT

# Columns of the CSV that come from the figures of a call; each stands twice, with and without looping iterations.
FIGURES = (
    "new_tokens", "wall_s", "prefill_s", "throughput", "decode_throughput", "ttft_s", "tpot_s", "iterations",
    "tokens_per_iteration", "drafted", "verified", "accepted", "accepted_mean", "acceptance_drafted",
    "acceptance_verified", "draft_forwards", "target_passes", "peak_memory_bytes",
)  # fmt: skip


_GREEDY = asdict(Sampling())


def as_csv(outcome: Outcome) -> str:
    """One line per measured call; columns that end in `_loop_free` leave looping iterations out."""
    head = ["method", "label", "repeat", "output_tokens", "loop_free_tokens", "failure"]
    head += [*FIGURES, *(f"{name}_loop_free" for name in FIGURES)]
    rows = []
    for result in outcome.comparison.results:
        contestant = outcome.comparison.contestants[result.contestant]
        about = [format_contestant(contestant), contestant.label, result.repeat + 1, len(result.output_ids)]
        values = [_of(metrics, name) for metrics in (result.metrics, result.loop_free) for name in FIGURES]
        rows.append([*about, result.loop_free_tokens, result.failure or "", *values])
    return csv_table(head, rows)


def as_json(outcome: Outcome) -> str:
    """Everything that was asked and measured, the outputs included."""
    comparison, plan = outcome.comparison, outcome.plan
    record = {
        "program": "Draftscope",
        "command": command(outcome),
        "pair": asdict(outcome.pair),
        "pair_settings": asdict(outcome.settings),
        "hardware": outcome.hardware,
        "prompt": {"name": plan.prompt.name, "text": plan.prompt.text, "chat_template": plan.prompt.chat,
                   "token_ids": outcome.prompt_ids},
        "max_new_tokens": plan.max_new_tokens,
        "sampling": asdict(plan.sampling),
        "repeats": plan.repeats,
        "warmup": plan.warmup,
        "cancelled": outcome.cancelled,
        "pauses": outcome.pauses,
        "reference": comparison.contestants[comparison.reference].label,
        "loop_free": [_score_record(entry) for entry in score(comparison, loop_free=True)],
        "whole_output": [_score_record(entry) for entry in score(comparison, loop_free=False)],
        "calls": [
            {
                "method": format_contestant(comparison.contestants[result.contestant]),
                "repeat": result.repeat + 1,
                "output_ids": result.output_ids,
                "loop_free_tokens": result.loop_free_tokens,
                "failure": result.failure,
                "whole_output": _metrics_record(result.metrics),
                "loop_free": _metrics_record(result.loop_free),
            }
            for result in comparison.results
        ],
    }  # fmt: skip
    return json.dumps(record, indent=1, ensure_ascii=False) + "\n"


def command(outcome: Outcome) -> str:
    """The shell command that repeats the comparison."""
    plan, settings = outcome.plan, outcome.settings
    prompt = plan.prompt.text if plan.prompt.name == OWN_TEXT else plan.prompt.name
    words = ["python", "-m", "benchmarks.methods", "--methods"]
    words += [format_contestant(contestant) for contestant in outcome.comparison.contestants]
    words += ["--max-new-tokens", str(plan.max_new_tokens), "--repeats", str(plan.repeats)]
    # With an equals sign a text that begins with a dash is not taken for an option.
    words += ["--warmup", str(plan.warmup), f"--prompt={prompt}"]
    sampling = asdict(plan.sampling)
    words += [f"--{name.replace('_', '-')}={sampling[name]}" for name in sampling if sampling[name] != _GREEDY[name]]
    words += ["--target", settings.target, "--draft", settings.draft]
    words += ["--device", settings.device, "--dtype", settings.dtype]
    words += ["--context-length", str(settings.context_length)] if settings.context_length != 2048 else []
    words += ["--split"] if settings.split else []
    words += ["--chat"] if plan.prompt.chat and settings.chat else []
    return shlex.join(words)


def _of(metrics: RunMetrics | None, name: str) -> float | int | str:
    value = getattr(metrics, name) if metrics else None
    return "" if value is None else value


def _metrics_record(metrics: RunMetrics | None) -> dict | None:
    return asdict(metrics) if metrics else None


def _score_record(entry: Score) -> dict:
    spreads = {name: entry.spread_of(name) for name in ("throughput", "decode_throughput", "ttft_s", "tpot_s")}
    spreads |= {"over_autoregressive": entry.over_autoregressive, "over_hf_generate": entry.over_hf}
    return {
        "method": format_contestant(entry.contestant),
        "label": entry.contestant.label,
        "settings": entry.contestant.method.settings() if entry.contestant.method else None,
        **{name: asdict(value) if value else None for name, value in spreads.items()},
        "typical_call": _metrics_record(entry.typical),
        "loop_tokens": entry.loop_tokens,
        "same_output": entry.same_output,
        "difference": asdict(entry.difference) if entry.difference else None,
        "failure": entry.failure,
    }
