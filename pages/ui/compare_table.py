"""The table of a comparison: figures as rows, contestants as columns."""

import html
from collections.abc import Callable

from decoding.scoreboard import Score
from pages.ui.compare import Outcome
from pages.ui.compare_words import label_of, same_words
from pages.ui.models import gibibytes

Cell = tuple[str, float | None]
"""What stands in a cell of the table, and the number by which the best one is found."""

NOTHING: Cell = ("–", None)
TABLE_STYLE = """
<style>
.ds-table-box { overflow-x: auto; }
.ds-table { border-collapse: collapse; width: 100%; font-size: 0.84rem; font-variant-numeric: tabular-nums; }
.ds-table th, .ds-table td { padding: 0.2rem 0.6rem; text-align: right; }
.ds-table th, .ds-table td { border: 0; border-bottom: 1px solid var(--st-border-color); }
.ds-table thead th { vertical-align: bottom; font-weight: 600; min-width: 6.5rem; max-width: 12rem; }
.ds-table tbody th { text-align: left; font-weight: 400; white-space: nowrap; }
.ds-table tbody th[title] { text-decoration: underline dotted; text-underline-offset: 3px; cursor: help; }
.ds-table tbody tr:hover { background: var(--st-secondary-background-color); }
</style>
"""


def table_html(scores: tuple[Score, ...], outcome: Outcome) -> str:
    """Figures as rows, contestants as columns; the best of a row is bold. Everything escaped."""
    heads = "".join(f"<th>{html.escape(label_of(entry))}</th>" for entry in scores)
    reference = outcome.comparison.contestants[outcome.comparison.reference].label
    body = []
    for title, meaning, best, cells in _rows(scores, reference):
        values = [value for _, value in cells if value is not None]
        top = (max(values) if best == "high" else min(values)) if best and len(values) > 1 else None
        written = "".join(
            f"<td>{'<b>' if value is not None and value == top else ''}{html.escape(shown)}</td>"
            for shown, value in cells
        )
        body.append(f'<tr><th title="{html.escape(meaning, quote=True)}">{html.escape(title)}</th>{written}</tr>')
    return (
        f'{TABLE_STYLE}<div class="ds-table-box"><table class="ds-table"><thead><tr><th></th>{heads}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _rows(scores: tuple[Score, ...], reference: str) -> list[tuple[str, str, str, list[Cell]]]:
    """Title, meaning, which end is best, and a cell per contestant."""

    def row(title: str, meaning: str, best: str, cell: Callable[[Score], Cell]) -> tuple[str, str, str, list[Cell]]:
        return title, meaning, best, [cell(entry) if entry.measured else NOTHING for entry in scores]

    return [
        row("Tokens/s", "New tokens / wall time of the call, prefill included: median (quartiles) over the repeats.",
            "high", _spread("throughput")),
        row("Tokens/s without prefill", "The same with the prefill of the models left out.", "high",
            _spread("decode_throughput")),
        row("Against autoregressive", "Tokens/s over that of our autoregressive loop, per repeat.", "high",
            _ratio("over_autoregressive")),
        row("Against Hugging Face generate", "Tokens/s over that of Hugging Face generate, per repeat.", "high",
            _ratio("over_hf")),
        row("Iterations", "Verification passes of the target; for Hugging Face: how often tokens arrived.", "",
            _plain("iterations", ",")),
        row("Tokens per iteration", "Committed tokens / verification passes (block efficiency).", "high",
            _plain("tokens_per_iteration", ".2f")),
        row("Accepted length, mean", "Accepted drafted tokens per iteration; the bonus token is not counted.", "high",
            _plain("accepted_mean", ".2f")),
        row("Accepted / drafted", "Accepted drafted tokens over all drafted nodes.", "high",
            _share("acceptance_drafted", "drafted")),
        row("Accepted / verified", "Accepted drafted tokens over the nodes given to the target.", "high",
            _share("acceptance_verified", "verified")),
        row("Draft forwards", "Forward passes of the draft model.", "", _plain("draft_forwards", ",")),
        row("Target passes", "Verification passes, and the second passes of rollback + rebuild.", "",
            _plain("target_passes", ",")),
        row("TTFT (ms)", "From the call to the first committed tokens, prefill of both models included.", "low",
            _spread("ttft_s", 1e3)),
        row("TPOT (ms)", "(Time of the last token - TTFT) / tokens after those of the first iteration.", "low",
            _spread("tpot_s", 1e3, 2)),
        row("Peak memory", "See the line under the table.", "",
            _memory),
        row("Tokens measured", "Output tokens that the figures above are made of.", "", _plain("new_tokens", ",")),
        row("Tokens in loops", "Output tokens after 16 tokens in a row were seen for the second time.", "",
            lambda s: (f"{s.loop_tokens:,} of {s.new_tokens:,}", None)),
        row(f"Same output as {reference}", "Token for token; see Outputs for the first difference.", "",
            lambda s: (same_words(s), None)),
    ]  # fmt: skip


def _spread(name: str, factor: float = 1.0, digits: int = 1) -> Callable[[Score], Cell]:
    """Median and quartiles of a figure."""

    def cell(entry: Score) -> Cell:
        found = entry.spread_of(name)
        if found is None:
            return NOTHING
        middle, low, high = (f"{factor * value:.{digits}f}" for value in (found.median, found.low, found.high))
        return f"{middle} ({low}–{high})", found.median

    return cell


def _ratio(name: str) -> Callable[[Score], Cell]:
    """Median and quartiles of a speed-up."""

    def cell(entry: Score) -> Cell:
        found = getattr(entry, name)
        if found is None:
            return NOTHING
        return f"{found.median:.2f}× ({found.low:.2f}–{found.high:.2f})", found.median

    return cell


def _plain(name: str, form: str) -> Callable[[Score], Cell]:
    """A figure of the median repeat."""

    def cell(entry: Score) -> Cell:
        value = getattr(entry.typical, name)
        return NOTHING if value is None else (format(value, form), value)

    return cell


def _share(name: str, total: str) -> Callable[[Score], Cell]:
    """An acceptance with its denominator."""

    def cell(entry: Score) -> Cell:
        value = getattr(entry.typical, name)
        if value is None:
            return NOTHING
        return f"{value:.0%} ({entry.typical.accepted:,} / {getattr(entry.typical, total):,})", value

    return cell


def _memory(entry: Score) -> Cell:
    count = entry.typical.peak_memory_bytes
    return "–" if count is None else gibibytes(count), None
