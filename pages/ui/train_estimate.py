"""How long a training will take, before it starts: what was asked for, and what the last one like it took here."""

from collections.abc import Mapping, Sequence
from typing import Any

from decoding.training.follow import Followed
from decoding.training.run_folder import Kind
from pages.ui.train_words import duration, started_s

# Settings in which a training must be the same for its pace to say something about another.
SAME: dict[Kind, tuple[str, ...]] = {
    "head": ("loss", "top_k", "batch", "roots", "depth", "device"),
    "selector": ("verifier", "device"),
    "embedded": ("device",),
}


def estimate_words(kind: Kind, values: Mapping[str, Any], found: Sequence[Followed]) -> str:
    """What is planned, and how long the last training like this took on this machine.

    Args:
        values: of the form, by flag.
        found: trainings of this machine, newest first.
    """
    like = next((each for each in found if each.records and _alike(kind, values, each)), None)
    if "--minutes" in values:
        words = f"It trains for {duration(60 * values['--minutes'])}"
    else:
        words = f"It trains for {values['--steps']:,} steps"
        step_s = pace_s(like) if like is not None else None
        if step_s is not None:
            words += f", about {duration(values['--steps'] * step_s)} at the pace of the last one like it here"
    whole_s = whole_time_s(like) if like is not None else None
    if whole_s is None:
        return (
            f"{words}. Before that text and data are prepared: how long that takes is told a moment after it begins, "
            "and what was prepared is kept where it is stopped."
        )
    trained_s = sum(phase_seconds(like).values())
    return (
        f"{words}. Before that text and data are prepared, as far as they are not kept from another training. The last "
        f"one like it took {duration(whole_s)} in all, {duration(trained_s)} of them training."
    )


def pace_s(followed: Followed) -> float | None:
    """Measured seconds of a step over all phases, None before the first."""
    steps = {record["phase"]: record["step"] for record in followed.records}
    total = sum(steps.values())
    return sum(phase_seconds(followed).values()) / total if total else None


def phase_seconds(followed: Followed) -> dict[str, float]:
    """Seconds trained in each phase so far."""
    return {record["phase"]: record["trained_s"] for record in followed.records}


def whole_time_s(followed: Followed) -> float | None:
    """Seconds from its start to its end, None where it has not finished in one go."""
    resumed = followed.launched is not None and "--resume" in followed.launched.command
    if followed.stand.state != "finished" or resumed:
        return None
    return max(followed.stand.status.written - started_s(followed), 0.0)


def _alike(kind: Kind, values: Mapping[str, Any], followed: Followed) -> bool:
    """Whether a training is of the same kind and has the settings that decide its pace."""
    if followed.settings is None or followed.kind != kind:
        return False
    known = followed.settings.settings
    flags = {name: f"--{name.replace('_', '-')}" for name in SAME[kind]}
    return all(str(known.get(name)) == str(values[flag]) for name, flag in flags.items() if flag in values)
