"""Prompt and output with the provenance of each token: drafted, bonus, recovered or fallback."""

import html
from collections.abc import Sequence
from dataclasses import dataclass

from decoding.trace.records import IterationTrace, RunTrace
from viz.theme import MARKS
from viz.tokens import visible

PROVENANCE_WORDS = {
    "prompt": "prompt",
    "drafted": "drafted and accepted",
    "bonus": "bonus",
    "recovered": "recovered",
    "fallback": "fallback",
}
PROVENANCE_MARK = {"drafted": "accepted", "bonus": "bonus", "recovered": "recovered", "fallback": "fallback"}
_BONUS_LINE = "color-mix(in srgb, {} 72%, currentColor)"  # the blue alone would be too pale on white
_DASHES = {"drafted": "solid", "bonus": "double", "recovered": "dotted", "fallback": "dashed"}


@dataclass(frozen=True, slots=True)
class Span:
    """One token of the text.

    Attributes:
        text: as the model wrote it; `shown`: with whitespace visible.
        provenance: `prompt`, `drafted`, `bonus`, `recovered` or `fallback`.
        iteration: the iteration that committed it, None in the prompt.
        node_id: its node, only in the current iteration; the final token is -2.
        current: committed by the current iteration.
    """

    text: str
    shown: str
    provenance: str
    iteration: int | None
    node_id: int | None
    current: bool


def text_spans(run: RunTrace, current: int | None = None, upto: int | None = None) -> tuple[Span, ...]:
    """Spans of prompt and output; with `upto` only the iterations before and including that one."""
    spans = [Span(text, visible(text), "prompt", None, None, False) for text in run.prompt_texts]
    for iteration in run.iterations if upto is None else run.iterations[: upto + 1]:
        spans += iteration_spans(iteration, iteration.index == current)
    return tuple(spans)


def iteration_spans(iteration: IterationTrace, current: bool = False) -> list[Span]:
    """Spans of the tokens that one iteration committed."""
    spans = []
    for place, text in enumerate(iteration.committed_texts):
        drafted = place < len(iteration.accepted)
        node = (iteration.accepted[place] if drafted else -2) if current else None
        provenance = "drafted" if drafted else iteration.final_kind
        spans.append(Span(text, visible(text), provenance, iteration.index, node, current))
    return spans


def underline(provenance: str, width_px: float = 2) -> str:
    """CSS of the line under a token of the output, in its colour and its dash."""
    color, dash = MARKS[PROVENANCE_MARK[provenance]].color, _DASHES[provenance]
    width_px += 2 if dash == "double" else 0  # two lines and what is between them
    color = _BONUS_LINE.format(color) if provenance == "bonus" else color
    return f"border-bottom:{width_px:g}px {dash} {color}"


def text_html(spans: Sequence[Span]) -> str:
    """The spans as escaped HTML: colour and line style under each token say where it came from."""
    pieces = []
    for span in spans:
        rule = f"{underline(span.provenance)};" if span.provenance in PROVENANCE_MARK else "opacity:.65;"
        weight = "font-weight:700;" if span.current else ""
        where = "" if span.iteration is None else f", iteration {span.iteration + 1}"
        title = html.escape(PROVENANCE_WORDS[span.provenance] + where, quote=True)
        # A line break in the text is shown as its name and then really breaks the line.
        breaks = "<br>" if span.text.endswith("\n") else ""
        pieces.append(f'<span style="{rule}{weight}" title="{title}">{html.escape(span.shown)}</span>{breaks}')
    body = "<wbr>".join(pieces)
    return f'<div style="font-family:monospace;line-height:1.9;overflow-wrap:anywhere">{body}</div>'


def provenance_counts(spans: Sequence[Span]) -> dict[str, int]:
    """Number of output tokens by where they came from."""
    counts = dict.fromkeys(PROVENANCE_MARK, 0)
    for span in spans:
        if span.provenance in counts:
            counts[span.provenance] += 1
    return counts
