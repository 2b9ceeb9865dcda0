"""What passes cost on this machine: target passes by number of nodes, draft levels by width, as they were measured."""

import json
import re
from dataclasses import dataclass, fields
from functools import cached_property
from statistics import median
from typing import Any

import numpy as np

from decoding.common.errors import require
from decoding.common.files import user_folder

# Other processes disturb a measurement only where they use more than a little of the processors.
QUIET = 0.15
# Times of neighbouring sizes contradict each other where the larger is cheaper by the one, or dearer by the other times
# what its size says; repeats differ too much where their quartiles typically lie so many times apart.
FALL, RISE, RESTLESS = 4 / 3, 1.5, 1.5


@dataclass(frozen=True)
class CostPoint:
    """Time of a pass of one size."""

    size: int  # nodes of a target pass, the root included, or nodes of a draft level
    seconds: float  # what a pass takes when nothing else slows the machine
    # low_s, high_s: quartiles of all repeats
    low_s: float
    high_s: float


@dataclass(frozen=True)
class CostCurve:
    """Times of some sizes, and between them a line."""

    points: tuple[CostPoint, ...]  # by size, ascending
    # Passes are padded to the sizes of the points, so that one between two of them costs what the next does
    padded: bool = False

    def seconds(self, sizes: np.ndarray | float) -> np.ndarray:
        """Seconds of passes of these sizes: piecewise linear between the points, on past the last as before it.

        A pass counts no longer than a larger one: noise only ever adds time, and the larger one would do as well.
        """
        known, times = self._corners
        sizes = np.asarray(sizes, dtype=float)
        slope = (times[-1] - times[-2]) / (known[-1] - known[-2]) if len(known) > 1 else 0.0
        return np.interp(sizes, known, times) + slope * np.maximum(sizes - known[-1], 0.0)

    def raised(self, seconds: float) -> "CostCurve":
        """The curve with a fixed cost on top."""
        points = (CostPoint(p.size, p.seconds + seconds, p.low_s + seconds, p.high_s + seconds) for p in self.points)
        return CostCurve(tuple(points), self.padded)

    def written(self) -> str:
        """The line as text in milliseconds, `1:2.5 8:3.1`, as `read_curve` takes it."""
        return " ".join(f"{int(size)}:{1000 * seconds:.4g}" for size, seconds in zip(*self._corners, strict=True))

    @property
    def uneven(self) -> bool:
        """Whether times of two sizes contradict each other, which kernels chosen by size can do, too."""
        sizes, times = (np.array([getattr(point, name) for point in self.points]) for name in ("size", "seconds"))
        rises = times[1:] > RISE * times[:-1] * sizes[1:] / sizes[:-1]
        return bool((times > FALL * np.minimum.accumulate(times[::-1])[::-1]).any() or rises.any())

    @cached_property
    def _corners(self) -> tuple[np.ndarray, np.ndarray]:
        """Sizes and seconds of the ends of the line's pieces."""
        sizes = np.array([point.size for point in self.points])
        times = np.minimum.accumulate([point.seconds for point in self.points][::-1])[::-1]
        if not self.padded:
            return sizes, times
        starts = np.append(1, sizes[:-1] + 1)  # a step begins after the size before
        corners = dict(zip(np.append(starts, sizes).tolist(), np.append(times, times).tolist(), strict=True))
        return np.array(sorted(corners)), np.array([corners[size] for size in sorted(corners)])


def read_curve(text: str, name: str) -> CostCurve:
    """A curve from milliseconds by size, `1:2.5 8:3.1`, or from one number for every size.

    Raises `SettingsError` where the text is no curve; `name` is the setting it stands in.
    """
    message = (
        f"{name} must be milliseconds by size such as '1:2.5 8:3.1', sizes ascending from 1 or more, or one number for "
        f"every size, not {text!r}."
    )
    pairs = [entry.split(":") for entry in text.split()]
    if len(pairs) == 1 and len(pairs[0]) == 1:
        pairs = [["1", *pairs[0]]]
    try:
        sizes, times = [int(size) for size, _ in pairs], [float(ms) / 1000 for _, ms in pairs]
    except ValueError:
        sizes, times = [], []
    rising = all(before < after for before, after in zip([0, *sizes], sizes, strict=False))
    require(bool(sizes) and rising and all(0 <= seconds < np.inf for seconds in times), message)
    return CostCurve(tuple(CostPoint(size, s, s, s) for size, s in zip(sizes, times, strict=True)))


def restless_words(spread: float) -> str:
    """That repeats of the same pass differ too much, by the ratio of their quartiles, a clause; else empty."""
    return f"repeats of the same pass differed by {spread:.1f}×" if spread > RESTLESS else ""


def others_words(others: float) -> str:
    """That other programs worked meanwhile, by the share of the processors they used, a clause; else empty."""
    return f"other programs used {others:.0%} of the processors" if others > QUIET else ""


@dataclass(frozen=True)
class CostModel:
    """Costs of one pair on one machine."""

    target: CostCurve  # passes over a tree, by number of nodes with the root, from its mask to the logits of every node
    draft: CostCurve  # draft levels, by width
    iteration_s: float  # what an iteration takes beside drafting, mask and pass; median of `iterations` real ones
    level_s: float  # what drafting takes per level beside the draft's passes; median of the same iterations
    iterations: int
    prefix_length: int  # tokens that the passes stood after
    measured: str  # when, in UTC
    machine: str  # hardware, precision, engines and library versions in one line
    others: float = 0.0  # share of the processors that other processes used meanwhile
    corrected: str = ""  # why kept costs were replaced by these, a clause; empty where none were
    batch: int = 1  # sequences that every pass is over; sizes are nodes of each
    plain_s: float | None = None  # what an iteration of plain decoding takes beside its pass; None: as any other

    @cached_property
    def verification(self) -> CostCurve:
        """Cost of an iteration without its drafting, by number of nodes."""
        return self.target.raised(self.iteration_s)

    @cached_property
    def plain_iteration_s(self) -> float:
        """An iteration of plain decoding, which has no draft to look after, in seconds."""
        return float(self.target.seconds(1)) + (self.iteration_s if self.plain_s is None else self.plain_s)

    @cached_property
    def level(self) -> CostCurve:
        """Cost of a draft level with what goes on around it, by width."""
        return self.draft.raised(self.level_s)

    @property
    def placement(self) -> str:
        """Device, precision, engine and attention that passes ran with, the draft's too where they differ."""
        return ", ".join(part for part in self.machine.split(", ") if part.partition(" ")[0].split(":")[0] in DEVICES)

    @property
    def when(self) -> str:
        """When they were measured, for people."""
        return f"{self.measured[:10]} at {self.measured[11:16]} UTC"

    @cached_property
    def disturbed(self) -> str:
        """What tells that other work disturbed the measurement, a clause in the past tense; empty where nothing does.

        Busy processors alone do not, as others may have given way.
        """
        points = (*self.target.points, *self.draft.points)
        spread = median(point.high_s / point.low_s if point.low_s else 1.0 for point in points)
        if words := restless_words(spread):
            return words
        busy = others_words(self.others)
        return f"{busy} and passes of similar size differ too much" if busy and self.target.uneven else ""

    @property
    def beside(self) -> str:
        """What tells that other programs worked meanwhile, whether or not they disturbed it; empty where none did."""
        return self.disturbed or others_words(self.others)

    def as_json(self) -> dict[str, Any]:
        """The model as JSON holds it."""
        curves = {
            name: {"padded": curve.padded, "points": [[p.size, p.seconds, p.low_s, p.high_s] for p in curve.points]}
            for name, curve in (("target", self.target), ("draft", self.draft))
        }
        rest = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in curves}
        return rest | curves

    @staticmethod
    def from_json(content: dict[str, Any]) -> "CostModel":
        """The model that `as_json` wrote.

        Raises `ValueError`, `KeyError` or `TypeError` where the content is damaged.
        """
        curves, batch = {}, int(content.get("batch", 1))
        if batch < 1:
            raise ValueError("a batch has one sequence at least")
        for name in ("target", "draft"):
            points = content[name]["points"]
            points = [CostPoint(int(size), *(_checked(float(s)) for s in times)) for size, *times in points]
            sizes = [point.size for point in points]
            if not points or sizes != sorted(set(sizes)) or sizes[0] < 1:
                raise ValueError("sizes of a cost curve must ascend")
            curves[name] = CostCurve(tuple(points), bool(content[name]["padded"]))
        return CostModel(
            target=curves["target"],
            draft=curves["draft"],
            iteration_s=_checked(float(content["iteration_s"])),
            level_s=_checked(float(content["level_s"])),
            iterations=int(content["iterations"]),
            prefix_length=int(content["prefix_length"]),
            measured=str(content["measured"]),
            machine=content["machine"],
            others=_checked(float(content.get("others", 0.0))),
            corrected=str(content.get("corrected", "")),
            batch=batch,
            plain_s=None if content.get("plain_s") is None else _checked(float(content["plain_s"])),
        )


DEVICES = ("cpu", "cuda", "mps")  # first words of a placement
CALIBRATION, COSTS_KIND = "calibration", "costs"  # folder of what was measured of pairs, ending of the files' names
HEAD_WEIGHTS = re.compile("[0-9a-f]{12}")  # in the identity of a pair: a head's digest, where a model has a mean


def kept_costs() -> list[tuple[str, CostModel]]:
    """Names of pairs and the newest costs kept of each, one for each placement; those of draft heads are left out.

    Torch-free. Unreadable files are left to who measures.
    """
    found: dict[tuple[str, str], tuple[str, CostModel]] = {}
    for file in user_folder(CALIBRATION).glob(f"*-{COSTS_KIND}.json"):
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            pair, models = content["pair"], [*map(CostModel.from_json, content["entries"].values())]
            if HEAD_WEIGHTS.fullmatch(str(pair["draft"]["weights"])):
                continue  # it has the name of the pair that it drafts for
            for costs in models:
                place = json.dumps(pair, sort_keys=True), costs.placement
                if place not in found or costs.measured > found[place][1].measured:
                    found[place] = str(pair["name"]), costs
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return list(found.values())


def _checked(seconds: float) -> float:
    if not 0 <= seconds < np.inf:
        raise ValueError("a time must be finite and not negative")
    return seconds
