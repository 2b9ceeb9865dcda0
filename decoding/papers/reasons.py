"""Why an order of a paper is not ours: one sentence from the measurements of both entries."""

import numpy as np
import pandas as pd

from decoding.papers.paper_result import Figure

TIMED = {"draft_s": "drafting", "verify_s": "verifying"}
SAME = 0.02  # smaller shares count as equal


def of_time(better: pd.DataFrame, worse: pd.DataFrame, better_name: str, worse_name: str) -> str:
    """One sentence on the entry that the paper ranks first, from results of both on the same machine."""
    one, other = _means(better), _means(worse)
    tokens, taken = one["tokens"] / other["tokens"] - 1, one["pass_s"] / other["pass_s"] - 1
    more = _by_share(
        tokens, "about as many tokens per pass as", *(f"{way} tokens per pass than" for way in ("more", "fewer"))
    )
    parts = [f"{better_name} commits {more} {worse_name}"]
    parts.append(f"its passes take {_by_share(taken, 'about as long', 'longer', 'less time')}")
    name = max(TIMED, key=lambda phase: one[phase] - other[phase])
    apart = one[name] - other[name]
    if taken > SAME and apart > 0:
        parts.append(
            f"most of the difference is {TIMED[name]} ({1000 * one[name]:.2f} ms against {1000 * other[name]:.2f} ms)"
        )
    draft = one["draft_s"] / one["forwards"] if one["forwards"] else 0.0
    if draft and one["verify_s"]:
        parts.append(f"a draft forward takes {draft / one['verify_s']:.0%} of the time of a verification")
    return "; ".join([" and ".join(parts[:2]), *parts[2:]]) + "."


def of_tokens(better: pd.DataFrame, worse: pd.DataFrame, better_name: str, worse_name: str) -> str:
    """One sentence on the tokens per pass of two entries: how many are drafted and how many of these are accepted."""
    counts = []
    for name, rows in ((better_name, better), (worse_name, worse)):
        drafted, accepted = (rows[column] / rows["iterations"] for column in ("drafted", "accepted"))
        share = accepted.mean() / drafted.mean() if drafted.mean() else 0.0
        counts.append(f"{name} {drafted.mean():.1f}, of which {accepted.mean():.2f} are accepted ({share:.1%})")
    return f"Tokens drafted per pass: {counts[0]}; {counts[1]}."


def apart(figure: Figure, better: float, worse: float, better_name: str, worse_name: str) -> str:
    """One sentence on two entries that are not runs: both figures as measured on the same samples."""
    one, other = (f"{figure.scale * value:,.{figure.digits}f}" for value in (better, worse))
    return f"{figure.words[:1].upper()}{figure.words[1:]}: {one} for {better_name}, {other} for {worse_name}."


def _means(rows: pd.DataFrame) -> dict[str, float]:
    """Per pass, means over rows: tokens, seconds, seconds by phase, draft forwards."""
    passes = rows["iterations"]
    figures = {
        "tokens": rows["tokens_per_iteration"],
        # Without the first, which reads the prompt: baselines do not report prefill separately.
        "pass_s": (rows["wall_s"] - rows["ttft_s"]) / (passes - 1).clip(lower=1),
        "forwards": rows["draft_forwards"].fillna(0) / passes,
    }
    figures |= {phase: rows[phase].fillna(0) / passes for phase in TIMED}
    return {name: float(np.mean(values)) for name, values in figures.items()}


def _by_share(share: float, same: str, more: str, less: str) -> str:
    return same if abs(share) < SAME else f"{abs(share):.0%} {more if share > 0 else less}"
