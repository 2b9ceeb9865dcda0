"""Why a way is not ahead here: what its passes draft, commit and cost, all measured, against the other's."""

import numpy as np
import pandas as pd

from decoding.papers.exhibit import Figure

PHASES = {"draft_s": "drafting", "verify_s": "verifying"}
SAME = 0.02  # shares below it are told as equal


def of_time(better: pd.DataFrame, worse: pd.DataFrame, better_name: str, worse_name: str) -> str:
    """One sentence on the way that the paper has ahead, from rows of both on the same machine."""
    one, other = _means(better), _means(worse)
    tokens, taken = one["tokens"] / other["tokens"] - 1, one["pass_s"] / other["pass_s"] - 1
    parts = [f"{better_name} commits {_more(tokens, 'tokens')} per pass than {worse_name}"]
    parts.append(f"its passes take {_longer(taken)}")
    name = max(PHASES, key=lambda phase: one[phase] - other[phase])
    apart = one[name] - other[name]
    if taken > SAME and apart > 0:
        parts.append(f"most of it {PHASES[name]} ({1000 * one[name]:.2f} against {1000 * other[name]:.2f} ms)")
    draft = one["draft_s"] / one["forwards"] if one["forwards"] else 0.0
    if draft and one["verify_s"]:
        parts.append(f"a draft forward costs {draft / one['verify_s']:.0%} of a verification here")
    return "; ".join([" and ".join(parts[:2]), *parts[2:]]) + "."


def of_tokens(better: pd.DataFrame, worse: pd.DataFrame, better_name: str, worse_name: str) -> str:
    """One sentence on the tokens per pass of two ways: how many are drafted and how many of them are accepted."""
    told = []
    for name, rows in ((better_name, better), (worse_name, worse)):
        drafted, accepted = (rows[column] / rows["iterations"] for column in ("drafted", "accepted"))
        share = accepted.mean() / drafted.mean() if drafted.mean() else 0.0
        told.append(f"{name} {drafted.mean():.1f} of which {accepted.mean():.2f} are accepted ({share:.1%})")
    return f"Tokens drafted per pass: {told[0]}, {told[1]}."


def apart(figure: Figure, better: float, worse: float, better_name: str, worse_name: str) -> str:
    """One sentence on where two ways stand that are no runs: both figures as they were measured on the same samples."""
    one, other = (f"{figure.scale * value:,.{figure.digits}f}" for value in (better, worse))
    return f"{figure.words[:1].upper()}{figure.words[1:]}: {one} for {better_name}, {other} for {worse_name}."


def _means(rows: pd.DataFrame) -> dict[str, float]:
    """Per pass, means over rows: tokens, seconds, seconds by phase, draft forwards."""
    passes = rows["iterations"]
    figures = {
        "tokens": rows["tokens_per_iteration"],
        # Without the first, which reads the prompt: of baselines the prefill is not known apart.
        "pass_s": (rows["wall_s"] - rows["ttft_s"]) / (passes - 1).clip(lower=1),
        "forwards": rows["draft_forwards"].fillna(0) / passes,
    }
    figures |= {phase: rows[phase].fillna(0) / passes for phase in PHASES}
    return {name: float(np.mean(values)) for name, values in figures.items()}


def _more(share: float, what: str) -> str:
    if abs(share) < SAME:
        return f"no more {what}"
    return f"{abs(share):.0%} {'more' if share > 0 else 'fewer'} {what}"


def _longer(share: float) -> str:
    if abs(share) < SAME:
        return "as long"
    return f"{abs(share):.0%} {'longer' if share > 0 else 'less time'}"
