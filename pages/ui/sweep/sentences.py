"""Texts of the page Sweep: figures, axes, the contents of a grid."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pandas as pd

from decoding.common.errors import SettingsError
from decoding.common.formats import plural
from decoding.experiments.estimates import BASE, PREFIX, axes
from decoding.papers.paper_result import (
    AGREEMENT,
    DRAFT_FORWARDS,
    MEMORY,
    OVER_DRAFTED,
    OWN_SETS,
    PASSES,
    PER_PASS,
    SPEEDUP,
    THROUGHPUT,
    TPOT,
    TTFT,
    Figure,
)
from pages.ui.common.errors import info_of, torch_there
from viz.charts.sweeps import Axis, Measure, value_words

CONDITION_WORDS = {
    BASE: "method", "cut": "prompt tokens (0: all)", "asked_tokens": "new tokens",
    "temperature": "temperature", "top_p": "top-p", "draft_temperature": "draft temperature", "seed": "seed",
    "kind": "kind of text",
}  # fmt: skip
FIGURES: dict[str, Measure] = {
    figure.column: Measure(figure.column, figure.words, figure.scale, figure.digits)
    for figure in (
        SPEEDUP, THROUGHPUT, PER_PASS, OVER_DRAFTED,
        Figure("acceptance_verified", "accepted / verified, %", 100, 1), AGREEMENT, TPOT, TTFT, PASSES,
        DRAFT_FORWARDS, MEMORY,
    )
}  # fmt: skip
LESS_IS_BETTER = frozenset(figure.column for figure in (TPOT, TTFT, PASSES, DRAFT_FORWARDS, MEMORY))


def axis_of(column: str) -> Axis:
    """A varied setting or condition as an axis of a chart."""
    if column in CONDITION_WORDS:
        return Axis(column, CONDITION_WORDS[column])
    return Axis(column, info_of(column.removeprefix(PREFIX)).title)


def base_label(base: str) -> str:
    """Label of a method or configuration: `DynaTree`, `Linear chain (streaming)`.

    Labels are defined next to the methods, so none is known without torch.
    """
    name, at, engine = base.partition("@")
    label = name.replace("_", " ")
    if torch_there():
        from decoding.methods.methods import METHODS

        label = METHODS[name].label if name in METHODS else label
    return f"{label} ({engine})" if at else label


def with_labels(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs under the labels that their methods have on every page; as they were run where this program has others.

    What varies in a method is named in all its labels, the usual value too. Labels are defined next to the methods, so
    none is known without torch.
    """
    if not torch_there():
        return runs
    from decoding.compare.contestants import parse_contestant

    labels = {}
    for _, own in runs.groupby(BASE):
        varied = [name.removeprefix(PREFIX) for name in axes(own) if name.startswith(PREFIX)]
        for way in own["way"].unique():
            with suppress(SettingsError):
                labels[way] = parse_contestant(way, varied).label
    return runs.assign(label=runs["way"].map(labels).fillna(runs["label"]))


def short_title(column: str) -> str:
    """The shortest name of a setting: its symbol in the papers, else its label."""
    return info_of(column.removeprefix(PREFIX)).short


def asked_words(asked: Mapping[str, Any]) -> list[str]:
    """The contents of a grid: a line per method, then one on what they share.

    Args:
        asked: a grid as plain data, as an experiment stores it.
    """
    if not asked:
        return []
    lines = []
    for axis in asked["methods"]:
        varied = [
            f"{info_of(name).title}: {', '.join(map(value_words, values))}" for name, values in axis["vary"].items()
        ]
        base, colon, listed = axis["method"].partition(":")
        label = base_label(base) + (f" ({listed})" if colon else "")
        lines.append(" · ".join([label, *varied]))
    prompts = asked["prompts"]
    kinds = f" ({', '.join(prompts['kinds'])})" if prompts["kinds"] else ""
    count = "all prompts" if prompts["count"] is None else plural(prompts["count"], "prompt")
    texts = OWN_SETS.get(prompts["set"], prompts["set"])
    kinds += f" in {prompts['parts']} parts" if prompts.get("parts", 1) > 1 else ""
    cut = [f"at most {each}" if each else "whole" for each in prompts["max_tokens"]]
    shared = [
        f"{count} of {texts}{kinds}, {' and '.join(cut)}{' tokens' if any(prompts['max_tokens']) else ''}",
        f"{', '.join(map(value_words, asked['new_tokens']))} new tokens",
        ", ".join(dict.fromkeys(_sampling_words(each) for each in asked["samplings"])),
        f"{asked['repeats']} times" if asked["repeats"] > 1 else "",
        f"against {base_label(asked['reference'])}" if asked["reference"] else "no reference",
    ]
    return [*lines, " · ".join(filter(None, shared))]


def _sampling_words(sampling: Mapping[str, Any]) -> str:
    words = "greedy" if sampling["temperature"] == 0 else f"T {sampling['temperature']:g}"
    words += f" top-p {sampling['top_p']:g}" if sampling["temperature"] and sampling["top_p"] < 1 else ""
    words += f" draft T {sampling['draft_temperature']:g}" if sampling["draft_temperature"] != 1 else ""
    return f"{words} seed {sampling['seed']}" if sampling["seed"] else words
