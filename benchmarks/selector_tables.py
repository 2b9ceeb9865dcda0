"""Figures and tables of `benchmarks.selector`: Tables 4 to 7 in kind, and how much there was to win."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.talf import Claims
from decoding.common.formats import plural
from decoding.experiments.command import goal_line, print_table
from decoding.experiments.estimates import Estimate, estimate
from decoding.papers.delayed import SELECTOR
from decoding.papers.delayed import VERIFIERS as PAPER_VERIFIERS
from decoding.verifiers import VERIFIERS

# How a tree's shape is found, and what the tables call it.
WAYS = {
    "selector": "selector",
    "choice": "selector, the time it takes left out",
    "static": "best static",
    "static_most": "best static, most tokens",
    "root": "best (K, L) from the root",
    "root_most": "best (K, L) from the root, most tokens",
    "oracle": "best at each root, found by other trees",
    "same_trees": "best at each root, found by the same trees",
}


@dataclass(frozen=True)
class SelectorTotals:
    """Sums over the roots of each prompt under each sampling, all `[samplings, prompts]`.

    Attributes:
        roots: counted; those in text that repeats itself are not.
        tokens, seconds: expected tokens and modelled time by verifier and way.
    """

    roots: np.ndarray
    tokens: Mapping[tuple[str, str], np.ndarray]
    seconds: Mapping[tuple[str, str], np.ndarray]

    def block_efficiency(self, key: tuple[str, str], prompts: np.ndarray) -> float:
        """Tokens per pass over some prompts, mean over samplings."""
        return float(np.mean(self.tokens[key][:, prompts].sum(1) / self.roots[:, prompts].sum(1)))

    def rate(self, key: tuple[str, str], prompts: np.ndarray) -> float:
        """Modelled tokens per second over some prompts, mean over samplings."""
        return float(np.mean(self.tokens[key][:, prompts].sum(1) / self.seconds[key][:, prompts].sum(1)))


# Averages of the paper: Table 4 and 5 (ratios over the baseline), Table 6 and 7 (tokens per pass, tokens per second).
PAPER_RATIOS = {
    "khisti": (1.19, 1.16), "naive_tree": (1.09, 1.30), "nss": (1.11, 1.26), "specinfer": (1.10, 1.23),
    "spectr": (1.10, 1.23),
}  # fmt: skip
PAPER_LEVELS = {**SELECTOR, "traversal": PAPER_VERIFIERS["traversal"][1:]}
DRAWS = 1000
ALONE = "modelled, its own time left out"
OT = tuple(PAPER_RATIOS)
Key = tuple[str, str]


@dataclass(frozen=True)
class SelectorFigures:
    """One figure of every verifier and way, as a function of the prompts that it is taken over.

    Attributes:
        words: what it is. of: `(key, prompts) -> value`. keys: that there are. prompts: how many.
    """

    words: str
    of: object
    keys: tuple[Key, ...]
    prompts: int

    def level(self, key: Key) -> Estimate:
        """The figure with its interval."""
        return estimate(range(self.prompts), partial(self.of, key), DRAWS)

    def gain(self, better: Key, worse: Key) -> Estimate:
        """By how much, as a share, one exceeds the other on the same prompts."""
        return estimate(range(self.prompts), lambda rows: self.of(better, rows) / self.of(worse, rows) - 1, DRAWS)


def exact_figures(totals: SelectorTotals) -> tuple[SelectorFigures, SelectorFigures]:
    """Block efficiency, exact over the verifier, and modelled throughput."""
    keys, prompts = tuple(totals.tokens), totals.roots.shape[1]
    return (
        SelectorFigures("tokens per pass, exact over the verifier", totals.block_efficiency, keys, prompts),
        SelectorFigures("modelled tokens per second", totals.rate, keys, prompts),
    )


def measured_figures(speeds: dict[Key, np.ndarray]) -> SelectorFigures:
    """Measured throughput from tokens per second `[samplings, prompts]`: geometric means over both."""
    logs = {key: np.log(values) for key, values in speeds.items()}
    count = next(iter(speeds.values())).shape[1]

    def of(key: Key, prompts: np.ndarray) -> float:
        return float(np.exp(logs[key][:, prompts].mean()))

    return SelectorFigures("measured tokens per second", of, tuple(speeds), count)


def ratio_table(figures: Sequence[SelectorFigures], base: str, claims: Claims) -> dict:
    """Tables 4 and 5: how much the selector adds to each verifier."""
    print(f"\nTables 4 and 5: the selector over {WAYS[base]}, as a ratio (Traversal is ours: the paper has none)")
    names = [name for name, how in figures[0].keys if how == "selector"]
    rows, found = [], {}
    for name in names:
        cells = []
        for each in figures:
            worse = (name, f"{base}_most" if each is figures[0] else base)
            if worse not in each.keys or (name, "selector") not in each.keys:
                cells.append("-")
                continue
            gain = each.gain((name, "selector"), worse)
            cells.append(_ratio(gain))
            found[f"{name}: {each.words}"] = vars(gain)
            if name in PAPER_RATIOS:
                paper = PAPER_RATIOS[name][0 if each is figures[0] else 1] - 1
                words = f"{VERIFIERS[name].label}: selector over {WAYS[worse[1]]}, {each.words}"
                claims.add(words, paper, gain)
        paper_cells = [f"{value:.2f}" for value in PAPER_RATIOS.get(name, ())] or ["-", "-"]
        alone = figures[1].gain((name, "choice"), (name, base))
        found[f"{name}: {ALONE}"] = vars(alone)
        rows.append((VERIFIERS[name].label, cells[0], paper_cells[0], *cells[1:], paper_cells[1], _ratio(alone)))
    print_table(("verifier", figures[0].words, "paper", *(each.words for each in figures[1:]), "paper", ALONE), rows)
    return found


def _ratio(gain: Estimate) -> str:
    return f"{1 + gain.value:.3f} ({1 + gain.low:.3f} to {1 + gain.high:.3f})"


def level_table(figures: Sequence[SelectorFigures], claims: Claims) -> dict:
    """Tables 6 and 7: the OT verifiers with the selector against traversal."""
    print("\nTables 6 and 7: every verifier with every way to shape the tree")
    rows, found = [], {}
    for key in figures[0].keys:
        name, how = key
        cells = [str(each.level(key)) if key in each.keys else "-" for each in figures]
        paper = PAPER_LEVELS.get(name) if how == ("root" if name == "traversal" else "selector") else None
        rows.append((f"{VERIFIERS[name].label}, {WAYS[how]}", cells[0], f"{paper[0]:.2f}" if paper else "",
                     *cells[1:], f"{paper[1]:.2f}" if paper else ""))  # fmt: skip
        found[f"{name}, {how}"] = {e.words: vars(e.level(key)) for e in figures if key in e.keys}
    print_table(("verifier, shape", figures[0].words, "paper", *(each.words for each in figures[1:]), "paper"), rows)
    for place, each in enumerate(figures):
        base = ("traversal", "root_most" if place == 0 else "root")
        if base not in each.keys:
            base = ("traversal", "static")
        for name in OT:
            if (name, "selector") not in each.keys or base not in each.keys:
                continue
            column = min(place, 1)
            apart = PAPER_LEVELS[name][column] / PAPER_LEVELS["traversal"][column] - 1
            pair = ((name, "selector"), base)
            better, worse = pair if apart > 0 else pair[::-1]
            words = " over ".join(f"{VERIFIERS[n].label}, {WAYS[how]}" for n, how in (better, worse))
            paper = apart if apart > 0 else 1 / (1 + apart) - 1
            claims.add(f"{words}, {each.words}", paper, each.gain(better, worse))
    return found


def selector_goal(possible: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """The verdict on the goal: ahead of the best static action, measured, with half of the verifiers or more.

    A selector is ahead where the whole interval says so. Where too few are, the gains of the best shape of each root
    say how much there was to win: less than those by the same trees.
    """
    measured = [gains["measured"] for gains in possible.values() if "measured" in gains]
    ahead = sum(gain["low"] > 0 for gain in measured)
    reached = 2 * ahead >= len(measured) > 0
    what = (
        f"selectors are ahead of the best fixed shape, measured, with {ahead} of {plural(len(measured), 'verifier')}, "
        f"goal {-(-len(measured) // 2)}"
    )
    if reached:
        return goal_line(True, what)
    sure = sum(gain["high"] < 0 for gain in measured)
    known = [100 * gains["oracle"]["value"] for gains in possible.values()]
    most = [100 * gains["same_trees"]["value"] for gains in possible.values()]
    return goal_line(
        False,
        f"{what}; by means with {sum(gain['value'] > 0 for gain in measured)}, behind for sure with {sure}. The best "
        f"shape of each root would win {min(known):+.1f} to {max(known):+.1f}% where it is found by other trees, "
        f"{min(most):+.1f} to {max(most):+.1f}% where it is found by the same trees",
    )


def possible_table(figures: Sequence[SelectorFigures]) -> dict:
    """How much of what there is to win over the best static action a selector wins."""
    print("\nOver the best static action, as a ratio")
    modelled, measured = figures[1], figures[-1]
    rows, found = [], {}
    for name in [name for name, how in modelled.keys if how == "selector"]:
        gains = {
            how: modelled.gain((name, how), (name, "static")) for how in ("selector", "choice", "oracle", "same_trees")
        }
        if (name, "selector") in measured.keys:
            gains["measured"] = measured.gain((name, "selector"), (name, "static"))
        found[name] = {how: vars(gain) for how, gain in gains.items()}
        rows.append((VERIFIERS[name].label, *(_ratio(gain) for gain in gains.values())))
    heads = (
        "selector, modelled",
        "its own time left out",
        "best at each root, by other trees",
        "by the same trees",
        "selector, measured",
    )
    print_table(("verifier", *heads[: len(rows[0]) - 1]), rows)
    return found
