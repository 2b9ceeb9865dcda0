"""Which figures of a training stand together: families by what they measure, panels by what there is of them."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PLACE = ("phase", "step", "trained_s", "written")
Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Family:
    """Figures that share an axis.

    Attributes:
        title: heading of the panel. axis: what the y axis says, with its unit.
        names: pattern that a figure's name holds. percent: whether the figures are shares, shown from 0%.
        least: value below which none of them can be, where there is one.
        word: what a legend need not repeat.
    """

    title: str
    axis: str
    names: str
    percent: bool = False
    least: float | None = None
    word: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart: a family and the figures of it that are there."""

    family: Family
    names: tuple[str, ...]

    @property
    def held_out(self) -> bool:
        """Whether all of it was measured on text that is not trained on."""
        return all("held_out" in name for name in self.names)

    @property
    def title(self) -> str:
        """Heading of the panel."""
        told = "held-out" in self.family.title or not self.held_out
        return self.family.title if told else f"{self.family.title}, held-out text"

    def words(self, name: str) -> str:
        """A figure in the legend, without what the heading says already."""
        if len(self.names) == 1:
            return words_of(name)
        shared = all(self.family.word in words_of(each).split(" ") for each in self.names)
        words = [word for word in words_of(name).split(" ") if not (shared and word == self.family.word)]
        left = [word for word in words if word != "held-out"]
        # Kinds of text are measured on held-out text alone: what also has a training figure needs the word.
        if self.held_out:
            words = left or ["mean"]
        elif left and name.removeprefix("held_out_") not in self.names:
            words = left
        return " ".join(words).removeprefix("at ") or "training"


# The first family whose pattern a name holds takes it.
FAMILIES: tuple[Family, ...] = (
    Family("Greedy agreement", "share (%)", r"agreement|accuracy|top_?1", percent=True, word="agreement"),
    Family("Acceptance", "overlap of the two laws (%)", r"accept|overlap", percent=True, word="overlap"),
    Family("Text that loops", "share (%)", r"looping", percent=True, word="looping"),
    Family("Calibration", "error (%)", r"calibration|ece\b", percent=True),
    Family("Tokens per target pass", "tokens per target pass", r"efficiency|per_pass|block", least=1.0),
    Family("Modelled throughput", "times the best static shape", r"over_static"),
    Family("Throughput", "tokens / s", r"throughput|per_s\b"),
    Family("Gradient norm", "norm of the gradient", r"gradient|grad_norm"),
    Family("Learning rate", "learning rate", r"learning_rate|\blr\b"),
    Family(
        "Parts of the loss", "part, unweighted", r"regression|classification|distillation|gain", word="classification"
    ),
    Family("Loss", "loss", r"loss|held_out|entropy|divergence"),
)
HELD_OUT_LOSS = Family("Loss on held-out text", "loss (nats per token)", "")
ORDER = (
    "Loss", "Acceptance", "Tokens per target pass", "Modelled throughput", "Greedy agreement", "Loss on held-out text",
    "Throughput", "Text that loops", "Calibration", "Parts of the loss", "Gradient norm", "Learning rate",
)  # fmt: skip


def family_of(name: str) -> Family:
    """The family that a figure belongs to by its name; one that is not known gets a panel of its own."""
    known = next((family for family in FAMILIES if re.search(family.names, name)), None)
    return known or Family(words_of(name).capitalize(), words_of(name), re.escape(name))


def panels(records: Sequence[Record]) -> list[Panel]:
    """The charts that some records fill, in a fixed order."""
    names = list(dict.fromkeys(name for record in records for name in record if name not in PLACE))
    # A weighted loss of several parts is no loss per token: held-out losses then have a panel of their own.
    parts = any(family_of(name).title == "Parts of the loss" for name in names)
    grouped: dict[Family, list[str]] = {}
    for name in names:
        family = family_of(name)
        apart = parts and family.title == "Loss" and "held_out" in name
        grouped.setdefault(HELD_OUT_LOSS if apart else family, []).append(name)
    rank = {title: place for place, title in enumerate(ORDER)}
    ordered = sorted(grouped, key=lambda family: (rank.get(family.title, len(rank)), family.title))
    return [Panel(family, tuple(sorted(grouped[family], key=_series_rank))) for family in ordered]


def best(records: Sequence[Record]) -> tuple[str, float] | None:
    """The held-out figure that a list shows of a training, the best it has reached: its name and value.

    Throughput against the best static shape or tokens per target pass where there are any, else a share of acceptance,
    else a held-out loss; None before the first.
    """
    names = dict.fromkeys(name for record in records for name in record if name not in PLACE)
    for title, better in (
        ("Modelled throughput", max),
        ("Tokens per target pass", max),
        ("Acceptance", max),
        ("Loss", min),
    ):
        fit = [name for name in names if family_of(name).title == title]
        held_out = [name for name in fit if "held_out" in name or better is max]
        name = min(held_out, key=_series_rank, default="")
        values = [record[name] for record in records if is_number(record.get(name))]
        if values:
            return name, better(values)
    return None


def words_of(name: str) -> str:
    """A figure's name in words: `held_out_loss` becomes `held-out loss`."""
    words = name.replace("held_out", "held-out").replace("_", " ")
    words = re.sub(r" static$", ", best static shape", words) if "over" not in words else words
    return re.sub(r"(overlap|agreement|classification|regression|distillation) (\d+)$", r"\1 at depth \2", words)


def is_number(value: Any) -> bool:
    """Whether a figure can be drawn."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _series_rank(name: str) -> tuple[int, int, str]:
    """Training before held-out, the whole before its kinds."""
    return "held_out" in name, name.count("_"), name
