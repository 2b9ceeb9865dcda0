"""A run as a `speculation_profile.json`: acceptance by depth, mean length, histogram, and under what."""

from collections import Counter
from itertools import pairwise
from typing import Any

from decoding.trace.draft_figures import DIGITS, DraftFigures
from decoding.trace.engine_limits import head
from decoding.trace.records import RunTrace

PROFILE_TOLERANCE = 0.02  # the schema's own, between the mean and what the rates add up to


def speculation_profile(run: RunTrace, figures: DraftFigures) -> dict[str, Any]:
    """The profile of a run by the schema that `ENGINE_SOURCES` names."""
    deepest = max(1, *figures.depths)
    marginal = figures.rates(deepest)
    reached = [sum(length >= depth for length in figures.accepted) for depth in range(deepest + 1)]
    conditional = [round(now / before, DIGITS) if before else 0.0 for before, now in pairwise(reached)]
    mean = round(1 + figures.mean_accepted, DIGITS)
    implied = round(1 + sum(marginal), DIGITS)
    lengths = Counter(1 + length for length in figures.accepted)
    chain = figures.fixed and figures.drafted_by == "model"
    return {
        "schema_version": "1.0",
        "measured": True,
        "method": {"model": "draft_model", "head": "eagle", "text": None}[figures.drafted_by]
        if figures.chains
        else None,
        "draft_checkpoint": {"name": head(run) if figures.drafted_by == "head" else run.pair.draft.name}
        if figures.drafted_by != "text"
        else None,
        "target_model": {"name": run.pair.target.name},
        "num_speculative_tokens": deepest,
        "block_size": None,
        "max_supported_k": deepest,
        "verification_method": "block" if run.settings.get("verifier") == "block" else "longest_prefix",
        "conditional_accept_rates": conditional,
        "marginal_accept_rates": marginal,
        "mean_accept_length": mean,
        "mean_accept_length_per_request": mean,
        "accept_length_model": "chain_analytic" if chain else "measured_per_k",
        "accept_length_by_k": {str(deepest): mean},
        "acceptance_length_histogram": {str(length): lengths[length] for length in sorted(lengths)},
        "per_category": None,
        "measurement_conditions": {
            "measured_with": "Draftscope",
            "run": run.label,
            "settings": dict(run.settings),
            "temperature": run.sampling.temperature,
            "top_p": run.sampling.top_p,
            "draft_temperature": run.sampling.draft_temperature,
            "batch_size": 1,
            "prompts": 1,
            "decode_steps": len(figures.accepted),
            "device": run.pair.target.device,
            "dtype": run.pair.target.dtype,
        },
        "validation": {
            "mean_consistency": {
                "implied_mean_accept_length": implied,
                "reported_mean_accept_length": mean,
                "abs_delta": round(abs(implied - mean), DIGITS),
                "tolerance": PROFILE_TOLERANCE,
                "passed": abs(implied - mean) <= PROFILE_TOLERANCE,
            },
            "marginal_monotonicity": {"passed": True, "violations": []},
        },
    }
