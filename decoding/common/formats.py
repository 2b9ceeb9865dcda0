"""Numbers as text; `components/formats.js` formats them the same way."""

from collections.abc import Sequence


def number(value: float | None, digits: int = 2) -> str:
    """A probability: `0.62`, `<0.01` for what would read 0.00, `–` for None."""
    if value is None or value != value:
        return "–"
    if 0 < value < 0.5 * 10**-digits:
        return f"<{10**-digits:.{digits}f}"
    return f"{value:.{digits}f}"


def chance(probability: float) -> str:
    """A probability in a sentence: never 0 or 1 where it is neither."""
    if probability not in (0.0, 1.0) and not 0 < float(f"{probability:.4f}") < 1:
        return "less than 0.0001" if probability < 0.5 else "more than 0.9999"
    return _inside(probability, 2)


def percent(probability: float) -> str:
    """A probability as a share: never 0% or 100% where it is neither."""
    if probability in (0.0, 1.0):
        return f"{100 * probability:.0f}%"
    for digits in (1, 2):
        if 0 < float(f"{100 * probability:.{digits}f}") < 100:
            return f"{100 * probability:.{digits}f}%"
    return "less than 0.01%" if probability < 0.5 else "more than 99.99%"


def part_of(part: int | None, whole: int | None) -> str:
    """A share with its denominator: `62% (31 / 50)`, `–` for None."""
    return f"{part / whole:.0%} ({part:,} / {whole:,})" if part is not None and whole else "–"


def beside(value: float, *limits: float, digits: int = 3) -> str:
    """A number next to limits it is compared with, with more decimals where it would look equal to one."""
    for more in range(digits, digits + 4):
        said = number(value, more)
        if value in limits or all(said != f"{limit:.{more}f}" for limit in limits):
            break
    return said


def apart(first: float, second: float) -> tuple[str, str]:
    """Two probabilities with at least two decimals, enough to show which is larger and that neither is 0 or 1."""
    for digits in (2, 3, 4, 5):
        if f"{first:.{digits}f}" != f"{second:.{digits}f}":
            return _inside(first, digits), _inside(second, digits)
    return f"{first:g}", f"{second:g}"


def compared(first: float | None, second: float | None) -> tuple[str, str]:
    """Two probabilities in a sentence about which is larger, with more decimals where they would read the same."""
    said = number(first), number(second)
    if first is None or second is None or first == second or said[0] != said[1]:
        return said
    return apart(first, second)


def limit_and_drawn(limit: float, drawn: float | None) -> tuple[str, str]:
    """The limit that a test's draw has to be below, and the draw."""
    return (chance(limit), "none") if drawn is None else apart(limit, drawn)


def _inside(probability: float, digits: int) -> str:
    """A probability, with more decimals where it would read 0 or 1."""
    if probability in (0.0, 1.0):
        return f"{probability:.0f}"
    for more in range(digits, 9):
        if 0 < float(f"{probability:.{more}f}") < 1:
            return f"{probability:.{more}f}"
    return f"{probability:.1e}" if probability < 0.5 else f"{probability:.12g}"


def difference(value: float) -> str:
    """A difference with its sign: `+3`, `−0.5`, `same`."""
    return f"{value:+g}".replace("-", "−") if value else "same"


def relative_change(first: float, second: float, none: str = "same") -> str:
    """Relative change of a value: `+12%`, `−3%`, or `none` below half a percent."""
    share = round(100 * (second / first - 1)) if first else 0
    return f"{share:+d}%".replace("-", "−") if share else none


def duration(seconds: float) -> str:
    """A measured time: `2.9 ms`, `310 µs`, `1.20 s`."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.1f} ms"
    return f"{seconds * 1e6:.0f} µs"


def long_duration(seconds: float) -> str:
    """A duration of work: `under a minute`, `12 min`, `1 h 20 min`, `3 days`."""
    minutes = round(seconds / 60)
    if seconds < 60:
        return "under a minute"
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        hours, rest = divmod(minutes, 60)
        return f"{hours} h {rest} min" if rest and hours < 10 else f"{hours} h"
    return f"{minutes // (24 * 60)} days"


def about(seconds: float) -> str:
    """An estimated time: `about 12 min`."""
    return f"{'about ' if seconds >= 60 else ''}{long_duration(seconds)}"


def elapsed(seconds: float) -> str:
    """Elapsed time: `12 s`, `3 min`."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def byte_size(count: int) -> str:
    """Bytes: `5.6 GiB`, `48 MiB`, `310 KiB`."""
    if count >= 2**29:
        return f"{count / 2**30:.1f} GiB"
    return f"{count / 2**20:.0f} MiB" if count >= 2**20 else f"{count / 2**10:.0f} KiB"


def parameters(count: int) -> str:
    """A parameter count: `70 M`, `2.8 B`."""
    return f"{count / 1e9:.3g} B" if count >= 1e9 else f"{count / 1e6:.3g} M"


def plural(count: int, singular: str, several: str | None = None) -> str:
    """A count with its noun: `1 node`, `3 nodes`."""
    return f"{count:,} {singular if count == 1 else several or singular + 's'}"


def ordinal(place: int) -> str:
    """An ordinal: `1st`, `12th`, `23rd`."""
    ending = "th" if place % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place:,}{ending}"


def listed(words: Sequence[str]) -> str:
    """Words with commas and a last `and`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
