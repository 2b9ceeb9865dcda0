"""How the page Train puts things: states, ages, times left, the best figure."""

import time
from datetime import datetime

from decoding.training.folder import Status
from decoding.training.launch import Followed
from pages.ui.common.models import gibibytes
from viz.charts.training import best, family_of, words_of

KIND_WORDS = {"embedded": "Embedded pair", "head": "Draft head", "selector": "Neural selector"}
STATE_ICONS = {
    "starting": ":material/hourglass_top:",
    "preparing": ":material/hourglass_top:",
    "training": ":material/play_circle:",
    "finished": ":material/check_circle:",
    "stopped": ":material/pause_circle:",
    "failed": ":material/error:",
}
SILENT_S = 120.0  # longer without a word is worth a word


def duration(seconds: float) -> str:
    """A time in words: `under a minute`, `12 min`, `1 h 20 min`, `3 days`."""
    minutes = round(seconds / 60)
    if seconds < 60:
        return "under a minute"
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        hours, rest = divmod(minutes, 60)
        return f"{hours} h {rest} min" if rest and hours < 10 else f"{hours} h"
    return f"{minutes // (24 * 60)} days"


def started_s(followed: Followed) -> float:
    """When a training was first started, in seconds since 1970."""
    if followed.settings is not None:
        try:
            return datetime.fromisoformat(followed.settings.created).timestamp()
        except ValueError:
            pass
    return followed.launched.started if followed.launched is not None else 0.0


def age(followed: Followed) -> str:
    """How long ago it was started."""
    past_s = max(time.time() - started_s(followed), 0.0)
    return "just now" if past_s < 60 else f"{duration(past_s)} ago"


def best_words(followed: Followed) -> str:
    """The best held-out figure so far, empty before the first."""
    found = best(followed.records)
    if found is None:
        return ""
    name, value = found
    family, words = family_of(name), words_of(name).removeprefix("held-out").strip() or "held-out loss"
    if family.percent:
        return f"{words} {100 * value:.0f}%"
    if family.title == "Modelled throughput":
        return f"{value:.2f} times {family.axis.removeprefix('times ')}"
    return f"{value:.2f} {words}" if family.least is not None else f"{words} {value:.2f}"


def progress_words(followed: Followed) -> str:
    """Phase, steps and time left in a line."""
    status, state = followed.stand.status, followed.stand.state
    if state == "starting":
        return "Starting its process: loading torch takes a few seconds"
    parts = [status.phase or "preparing"]
    if status.steps:
        word = "" if state == "preparing" else "step "
        parts.append(f"{word}{status.step:,} of {status.steps:,}")
    elif status.step:
        parts.append(f"step {status.step:,}")
    if status.planned_s:
        parts.append(f"{status.trained_s / 60:.1f} of {status.planned_s / 60:.3g} min")
    if followed.left_s is not None:
        about = "about " if followed.left_s >= 60 else ""
        part = " of this part" if state == "preparing" else ""
        parts.append(f"{about}{duration(followed.left_s)} left{part}")
    return " · ".join(parts)


def machine_words(status: Status) -> str:
    """What it runs on, what it takes, and when it last said something."""
    parts = [status.device] if status.device else []
    if status.memory_bytes:
        parts.append(f"{gibibytes(status.memory_bytes)} of memory")
    silent_s = time.time() - status.written if status.written else 0.0
    if status.running and silent_s > SILENT_S:
        parts.append(f"no word for {duration(silent_s)}")
    return " · ".join(parts)
