"""What an engine cannot do of a run's method, and the nearest that it can, in the words of an export; the profile that
`speculation_profile` writes for any other engine.
"""

import json
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Any

from decoding.common.errors import printable
from decoding.common.formats import plural
from decoding.trace.draft_figures import DIGITS, DraftFigures
from decoding.trace.records import RunTrace

# What a person replaces
HEAD_PLACE, DRAFT_PLACE = "PATH_OF_EAGLE_HEAD", "PATH_OF_DRAFT_MODEL"


@dataclass(frozen=True, slots=True)
class MeasuredChain:
    """A run of chains that was measured beside a run of trees, on the same prompts.

    Attributes:
        speed: its speed over that of the trees, 1 being as fast; `low` and `high`: the 95% interval of that, None where
            too little was measured.
    """

    label: str
    run: RunTrace
    speed: float
    low: float | None = None
    high: float | None = None


def nearest_beam(run: RunTrace, figures: DraftFigures) -> tuple[int, int, int] | None:
    """Depth, width and verified nodes of the beam nearest to a run's trees; None where their breadth is not known.

    A beam of width k has k children at its first level and k of each of k nodes at every other one.
    """
    if rule(run) == "eagle2":
        depth, width, nodes = (run.settings.get(name) for name in ("max_depth", "beam_width", "node_budget"))
        if isinstance(depth, int) and isinstance(width, int) and isinstance(nodes, int):
            return depth, width, nodes
    if figures.breadth is None:
        return None
    depth, breadth = max(figures.depths), figures.breadth
    return depth, breadth, min(max(figures.sizes), breadth + (depth - 1) * breadth**2)


def chain_limits(label: str, run: RunTrace, figures: DraftFigures, heads: bool = True, sources: int = 1) -> list[str]:
    """What is lost where an engine verifies chains of one length.

    Args:
        heads: the draft head is spoken of too. sources: of drafts that the engine can have beside one another.
    """
    limits = head_limits(label, run, figures) if heads else []
    if rule(run) == "lookup_or_draft" and sources == 1:
        limits.append(
            f"{label} drafts from the text or with a model, not with both: here the model drafts every chain, and what "
            "this run copied from the text is lost. What that accepts was not measured in this run: record the same "
            f"prompt with method linear:length={figures.chain_length} and compare."
        )
    method = "prompt_lookup" if figures.drafted_by == "text" else "linear"
    measure = (
        f"What it accepts was not measured in this run: record the same prompt with method "
        f"{method}:length={figures.chain_length} and compare."
    )
    if not figures.chains:
        limits.append(
            f"With this draft {label} verifies chains only: a chain of {rounded_up(figures)} replaces this run's trees "
            f"({tree_words(figures)}). {measure}"
        )
    elif not figures.fixed and figures.drafted_by != "text":  # a lookup ends where the text does, there as here
        limits.append(
            f"{label} drafts the same number of tokens in every pass: a chain of {rounded_up(figures)} replaces this "
            f"run's chains of {min(figures.depths)} to {max(figures.depths)} tokens. {measure}"
        )
    return limits


def head_limits(label: str, run: RunTrace, figures: DraftFigures) -> list[str]:
    if figures.drafted_by != "head":
        return []
    return [
        f"{label} cannot load the draft head {head(run)}, which has Draftscope's own format: the nearest is an EAGLE "
        f"head for the same target in a format that {label} loads, its path in the place of {HEAD_PLACE}. What that "
        "head has accepted is not in this run."
    ]


def verifier_limits(label: str, run: RunTrace, figures: DraftFigures, known: tuple[str, ...]) -> list[str]:
    """A sentence where sampled tokens are accepted by another rule than an engine's; greedy decoding has one rule."""
    verifier = printable(str(run.settings.get("verifier", "")))
    if run.sampling.temperature == 0 or (figures.chains and verifier in known):
        return []
    return [
        f"{label} accepts sampled tokens by its own rule in the place of this run's verifier {verifier}, so the "
        "acceptance of this run does not carry over."
    ]


def figure_notes(run: RunTrace, figures: DraftFigures, load_test: bool = False) -> list[str]:
    counted = len(figures.accepted)
    notes = [
        f"Figures are of {counted} of this run's {counted + figures.left_out} iterations, on one prompt: "
        f"{_accepted(figures)}. Left out are those that drafted nothing, that a person changed, or that "
        "the end of the text or the requested length may have cut short."
    ]
    if load_test and not figures.fixed:
        notes.append("The load test has the acceptance of this run's own trees, not that of what is drafted instead.")
    if run.sampling.temperature > 0:
        notes.append(
            f"This run sampled at temperature {run.sampling.temperature:g}, top-p {run.sampling.top_p:g} and draft "
            f"temperature {run.sampling.draft_temperature:g}: acceptance holds for these."
        )
    return notes


def tree_words(figures: DraftFigures) -> str:
    return f"{fmean(figures.sizes):.1f} verified nodes per pass on average, {max(figures.sizes)} at most"


def rounded_up(figures: DraftFigures) -> str:
    """Length of the chain that takes the place of a run's drafts, and where it comes from."""
    tokens = plural(figures.chain_length, "token")
    if figures.drafted_by == "text":
        return f"up to {tokens}, the longest of this run"
    return f"{tokens}: {_accepted(figures)}, rounded up"


def _accepted(figures: DraftFigures) -> str:
    accepted = figures.mean_accepted
    return (
        f"{accepted:.2f} accepted draft tokens per pass ({1 + accepted:.2f} with the final one: mean acceptance length "
        "in vLLM, accept length in SGLang)"
    )


def speed_words(chain: MeasuredChain) -> str:
    """What a chain costs against the run beside which it was measured."""
    percent = round(100 * abs(1 - chain.speed))
    said = f"{percent}% {'slower' if chain.speed < 1 else 'faster'} than" if percent else "as fast as"
    sure = "too few repeats for an interval"
    if chain.low is not None and chain.high is not None:
        sure = f"95% interval {chain.low:.2f} to {chain.high:.2f}"
        said = "which may be as fast as" if chain.low <= 1 <= chain.high else said
    return f"{said} this tree ({chain.speed:.2f}× its speed, {sure})"


def rule(run: RunTrace) -> str:
    """Name of the drafter that made the run's trees."""
    return run.iterations[-1].rule.drafter if run.iterations else ""


def head(run: RunTrace) -> str:
    return printable(run.draft_head)


def target(run: RunTrace) -> str:
    return printable(run.pair.target.name)


def draft(run: RunTrace, figures: DraftFigures) -> str:
    return HEAD_PLACE if figures.drafted_by == "head" else printable(run.pair.draft.name)


def quoted(text: str) -> str:
    """A Python or YAML string."""
    return json.dumps(printable(text), ensure_ascii=False)


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
