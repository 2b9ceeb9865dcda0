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


def beside(value: float, *limits: float, digits: int = 3) -> str:
    """A number beside limits that it is held against, with more decimals where it would read like one of them."""
    for more in range(digits, digits + 4):
        said = number(value, more)
        if value in limits or all(said != f"{limit:.{more}f}" for limit in limits):
            break
    return said


def apart(first: float, second: float) -> tuple[str, str]:
    """Two numbers with as many decimals as show which one is larger, two at least."""
    for digits in (2, 3, 4, 5):
        said = f"{first:.{digits}f}", f"{second:.{digits}f}"
        if said[0] != said[1]:
            return said
    return f"{first:g}", f"{second:g}"
