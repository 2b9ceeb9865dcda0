"""Small parts of sentences: a token in quotes, a place in an order, a list."""

from collections.abc import Sequence

from viz.tokens import number, visible


def quote(text: str) -> str:
    """A token in a sentence."""
    return f"‘{visible(text, 24)}’"


def ordinal(place: int) -> str:
    """A place in an order: `1st`, `12th`, `23rd`."""
    ending = "th" if place % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place:,}{ending}"


def listed(words: Sequence[str]) -> str:
    """Words with commas and a last `and`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def chance(probability: float) -> str:
    """A probability in a sentence: never 0 or 1 where it is neither."""
    if probability in (0.0, 1.0):
        return f"{probability:.0f}"
    for digits in (2, 3, 4):
        if 0 < float(f"{probability:.{digits}f}") < 1:
            return f"{probability:.{digits}f}"
    return "less than 0.0001" if probability < 0.5 else "more than 0.9999"


def percent(probability: float) -> str:
    """A probability as a share: never 0% or 100% where it is neither."""
    if probability in (0.0, 1.0):
        return f"{100 * probability:.0f}%"
    for digits in (1, 2):
        if 0 < float(f"{100 * probability:.{digits}f}") < 100:
            return f"{100 * probability:.{digits}f}%"
    return "less than 0.01%" if probability < 0.5 else "more than 99.99%"


def beside(value: float, *limits: float, digits: int = 3) -> str:
    """A number beside limits that it is held against, with more decimals where it would read like one of them."""
    for more in range(digits, digits + 4):
        said = number(value, more)
        if value in limits or all(said != f"{limit:.{more}f}" for limit in limits):
            break
    return said


def apart(first: float, second: float) -> tuple[str, str]:
    """Two probabilities with as many decimals as show which one is larger, two at least, and that neither is 0 or 1."""
    for digits in (2, 3, 4, 5):
        if f"{first:.{digits}f}" != f"{second:.{digits}f}":
            return _inside(first, digits), _inside(second, digits)
    return f"{first:g}", f"{second:g}"


def limit_and_drawn(limit: float, drawn: float | None) -> tuple[str, str]:
    """What the number drawn in a test has to be below, and that number."""
    return (chance(limit), "none") if drawn is None else apart(limit, drawn)


def _inside(probability: float, digits: int) -> str:
    """A probability with more decimals where it would read 0 or 1."""
    if probability in (0.0, 1.0):
        return f"{probability:.0f}"
    for more in range(digits, 9):
        if 0 < float(f"{probability:.{more}f}") < 1:
            return f"{probability:.{more}f}"
    return f"{probability:.1e}" if probability < 0.5 else f"{probability:.12g}"
