"""The tables and the figure of SALF & TALF from what was measured, and the verdict on each of the paper's orderings."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from benchmarks.talf_ranks import (
    RANKS,
    Conditioned,
    accuracy,
    calibration_error,
    law_calibration_error,
    rank_names,
)
from decoding.experiments.command import print_table
from decoding.experiments.estimates import Estimate, difference, estimate, middle, verdict

LOSSES = {"eagle": "EAGLE", "hass": "HASS", "talf": "TALF"}
SEARCHES = {"beam": "Beam search", "optimal": "Optimal search", "salf": "SALF"}
WIDTHS = {"hass": "HASS (top-1)", "talf_top1": "TALF (top-1)", "talf_top2": "TALF (top-2)", "talf": "TALF (top-4)"}
# Means of the paper: Table 2 (speed-up, tokens per pass), Table 3 (tokens per pass; mean of its three tasks), Table 4.
PAPER_2 = {
    ("beam", "eagle"): (1.75, 3.44), ("beam", "hass"): (1.84, 3.62), ("beam", "talf"): (1.97, 3.88),
    ("optimal", "eagle"): (1.93, 3.56), ("optimal", "hass"): (2.01, 3.70), ("optimal", "talf"): (2.16, 3.98),
    ("salf", "eagle"): (2.29, 3.34), ("salf", "hass"): (2.37, 3.61), ("salf", "talf"): (2.47, 3.73),
}  # fmt: skip
PAPER_3 = {"hass": 3.96, "talf_top1": 4.03, "talf_top2": 4.18, "talf": 4.26}
PAPER_4 = {
    0.0: (2.32, 4.26), 0.1: (2.36, 4.26), 0.2: (2.46, 4.26), 0.3: (2.55, 4.23), 0.4: (2.58, 4.18),
    0.5: (2.62, 4.10), 0.6: (2.59, 3.99), 0.7: (2.58, 3.83), 0.8: (2.51, 3.63), 0.9: (2.37, 3.32),
}  # fmt: skip
PAPER_SHARES = "first about 55%, fifth or lower over 10%"
CONDITIONED = {
    "accuracy": (accuracy, "Top-1 accuracy: the head's likeliest token is the target's"),
    "ECE": (calibration_error, "ECE of Appendix A, against the target's likeliest token"),
    "law ECE": (law_calibration_error, "ECE against the target's law, which is 0 for the target itself"),
}
FIGURES = {"tokens": "tokens", "expected": "tokens at T=1", "speed": "speed"}
HEADER = ("tokens per pass", "at T=1, exact", "paper", "speed-up", "paper", "nodes", "draft forwards")
NEARLY = 0.1  # tokens per pass; the paper writes 3.70, 4.08, 4.10 against 3.71, 4.08, 4.31


@dataclass(frozen=True)
class Measured:
    """What one way to draft reached on every prompt, all `[prompts]`.

    Attributes:
        tokens: per verification pass, decoded greedily.
        expected: tokens per pass at temperature 1, the exact expectation over verification.
        speed: throughput over that of decoding without a draft, greedy.
        forwards: draft forwards per pass.
        nodes: verified per pass.
    """

    tokens: np.ndarray
    expected: np.ndarray
    speed: np.ndarray
    forwards: np.ndarray
    nodes: np.ndarray


@dataclass(frozen=True)
class Claim:
    """An ordering of the paper, its difference there and here, and whether it holds here."""

    words: str
    paper: str
    found: Estimate
    verdict: str


@dataclass
class Claims:
    """All orderings that were judged."""

    made: list[Claim] = field(default_factory=list)

    def add(self, words: str, paper: str, found: Estimate) -> None:
        """Judge that a difference is above 0."""
        self.made.append(Claim(words, paper, found, verdict(found)))

    def add_same(self, words: str, paper: str, found: Estimate, within: float) -> None:
        """Judge that a difference is next to nothing."""
        inside, apart = -within <= found.low and found.high <= within, found.low > within or found.high < -within
        word = "holds" if inside else "does not hold" if apart else "not decided here"
        self.made.append(Claim(words, paper, found, word))

    def table_2(self, words: str, measured: dict, better: tuple, worse: tuple, *of: str) -> None:
        """Judge that one way of Table 2 is above another, by name of the figure or in all of them."""
        for name in of or ("tokens", "expected", "speed"):
            found = gain(measured[better], measured[worse], name)
            place = 0 if name == "speed" else 1
            self.add(f"{words}, {FIGURES[name]}", f"{PAPER_2[better][place] - PAPER_2[worse][place]:+.2f}", found)

    def show(self) -> None:
        """A line per ordering."""
        print("\nThe paper's orderings: difference here with its 95% interval, difference in the paper")
        rows = [(claim.words, _signed(claim.found), claim.paper, claim.verdict) for claim in self.made]
        print_table(("ordering", "here", "paper", ""), rows)
        verdicts = ("holds", "does not hold", "not decided here")
        print("; ".join(f"{words}: {sum(claim.verdict == words for claim in self.made)}" for words in verdicts))


def gain(better: Measured, worse: Measured, name: str) -> Estimate:
    """How much more one way reaches than another on the same prompts, by the name of a figure."""
    of = middle if name == "speed" else estimate
    return difference(getattr(better, name), getattr(worse, name), of)


def _cells(found: Measured, paper: tuple[float, float]) -> tuple:
    """What a row tells of a way: tokens per pass and speed-up, the paper's beside them; nodes and draft forwards."""
    return (
        estimate(found.tokens),
        estimate(found.expected),
        f"{paper[1]:.2f}",
        middle(found.speed),
        f"{paper[0]:.2f}",
        f"{found.nodes.mean():.1f}",
        f"{found.forwards.mean():.1f}",
    )


def _kept(found: Measured, paper: tuple[float, float]) -> dict:
    """The same for the file of figures."""
    tokens, expected, speed = estimate(found.tokens), estimate(found.expected), middle(found.speed)
    return {"tokens": vars(tokens), "expected": vars(expected), "speed": vars(speed), "paper": paper}


def _signed(found: Estimate) -> str:
    return f"{found.value:+.3f} ({found.low:+.3f} to {found.high:+.3f})"


def table_2(measured: dict, claims: Claims) -> dict:
    """Tree construction times loss."""
    print("\nTable 2: tree construction and loss")
    ways = [(search, loss) for search in SEARCHES for loss in LOSSES]
    rows = [(f"{SEARCHES[way[0]]}, {LOSSES[way[1]]}", *_cells(measured[way], PAPER_2[way])) for way in ways]
    print_table(("way", *HEADER), rows)
    for search, words in SEARCHES.items():
        for better, worse in (("hass", "eagle"), ("talf", "hass"), ("talf", "eagle")):
            which = f"{words}: {LOSSES[better]} over {LOSSES[worse]}"
            claims.table_2(which, measured, (search, better), (search, worse))
    for loss, words in LOSSES.items():
        beam, optimal, salf = ((search, loss) for search in SEARCHES)
        claims.table_2(f"{words}: optimal search over beam", measured, optimal, beam)
        claims.table_2(f"{words}: optimal search over SALF", measured, optimal, salf, "tokens", "expected")
        claims.table_2(f"{words}: SALF over optimal search", measured, salf, optimal, "speed")
        claims.table_2(f"{words}: SALF over beam", measured, salf, beam, "speed")
    return {" ".join(way): _kept(measured[way], PAPER_2[way]) for way in ways}


def table_3(measured: dict, claims: Claims) -> dict:
    """Width of the trees that TALF trains on, with optimal search, for the heads that are there."""
    print("\nTable 3: tokens per pass by the width of the training trees, optimal search")
    found = {head: measured["optimal", head] for head in WIDTHS if ("optimal", head) in measured}
    rows = [(WIDTHS[head], estimate(each.tokens), estimate(each.expected), f"{PAPER_3[head]:.2f}")
            for head, each in found.items()]  # fmt: skip
    print_table(("loss", *HEADER[:3]), rows)
    missing = [head for head in WIDTHS if head not in found]
    if missing:
        print(f"not there: {', '.join(missing)}; train them with python -m decoding.training.head_suite")
    for worse, better in (("talf_top1", "talf_top2"), ("talf_top2", "talf"), ("hass", "talf_top1")):
        for name in ("tokens", "expected") if worse in found and better in found else ():
            paper, gained = f"{PAPER_3[better] - PAPER_3[worse]:+.2f}", gain(found[better], found[worse], name)
            if worse == "hass":
                claims.add_same(f"TALF (top-1) within {NEARLY} of HASS, {FIGURES[name]}", paper, gained, NEARLY)
            else:
                claims.add(f"{WIDTHS[better]} over {WIDTHS[worse]}, {FIGURES[name]}", paper, gained)
    return {head: {"tokens": vars(estimate(each.tokens)), "expected": vars(estimate(each.expected)),
                   "paper": PAPER_3[head]} for head, each in found.items()}  # fmt: skip


def table_4(by_threshold: dict[float, Measured], claims: Claims) -> dict:
    """SALF's threshold, with TALF's head."""
    print("\nTable 4: SALF's threshold, TALF head")
    rows = [(f"{threshold:.1f}", *_cells(found, PAPER_4[threshold])) for threshold, found in by_threshold.items()]
    print_table(("threshold", *HEADER), rows)
    lowest, highest = by_threshold[0.0], by_threshold[0.9]
    for name in ("tokens", "expected"):
        paper = f"{PAPER_4[0.0][1] - PAPER_4[0.9][1]:+.2f}"
        claims.add(f"threshold 0.0 over 0.9, {FIGURES[name]}", paper, gain(lowest, highest, name))
    for other in (0.0, 0.9):
        paper = f"{PAPER_4[0.5][0] - PAPER_4[other][0]:+.2f}"
        claims.add(f"threshold 0.5 over {other}, speed", paper, gain(by_threshold[0.5], by_threshold[other], "speed"))
    fastest = max(by_threshold, key=lambda value: np.median(by_threshold[value].speed))
    print(f"fastest here: threshold {fastest:g}; in the paper: 0.5")
    return {f"{threshold:g}": _kept(found, PAPER_4[threshold]) for threshold, found in by_threshold.items()}


def figure_2a(shares: dict[str, list[dict[str, float]]], claims: Claims) -> dict:
    """Share of tree tokens by rank, from the shares on every prompt."""
    print(f"\nFigure 2a: share of the tokens of a beam's tree by their rank in the draft's law (paper: {PAPER_SHARES})")
    found = {loss: {rank: estimate([each[rank] for each in all_of]) for rank in rank_names()}
             for loss, all_of in shares.items()}  # fmt: skip
    rows = [(rank, *(found[loss][rank] for loss in LOSSES)) for rank in rank_names()]
    print_table(("rank", *LOSSES.values()), rows)
    for loss, name in LOSSES.items():
        above = [each[rank_names()[-1]] - 0.1 for each in shares[loss]]
        claims.add(f"{name}: share ranked {rank_names()[-1]} above 10%", "above", estimate(above))
    return {loss: {rank: vars(each) for rank, each in ranks.items()} for loss, ranks in found.items()}


def figure_2b(parts: dict[str, list[Conditioned]], claims: Claims, draws: int) -> dict:
    """Accuracy and calibration behind the n-th ranked token, from what every prompt gave."""
    print("\nFigure 2b: the head behind its own n-th ranked token, on what the target writes at temperature 1")
    every = range(len(next(iter(parts.values()))))
    figures: dict = {loss: [] for loss in LOSSES}
    for name, (figure, words) in CONDITIONED.items():
        rows = []
        for rank in range(RANKS):
            found = {loss: estimate(every, partial(figure, parts[loss], rank), draws) for loss in LOSSES}
            for loss, each in found.items():
                figures[loss].append({"rank": rank + 1, "figure": name, **vars(each)})
            rows.append((rank + 1, *found.values()))
        print(words)
        print_table(("rank", *LOSSES.values()), rows)
    for other in ("eagle", "hass"):
        for name, (figure, _) in CONDITIONED.items():
            for rank in range(RANKS):
                pair = ("talf", other) if figure is accuracy else (other, "talf")
                gap = estimate(every, partial(_gap, figure, *(parts[loss] for loss in pair), rank), draws)
                better = "above" if figure is accuracy else "below"
                words = f"rank {rank + 1}: TALF's {name} {better} {LOSSES[other]}'s"
                claims.add(words, "about 0.05" if rank else "marginal", gap)
    return figures


def _gap(figure, more: Sequence[Conditioned], less: Sequence[Conditioned], rank: int, prompts: np.ndarray) -> float:
    return figure(more, rank, prompts) - figure(less, rank, prompts)
