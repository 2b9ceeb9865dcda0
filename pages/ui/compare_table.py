"""The table of a comparison and what the measurements say in sentences; pure functions of the scores."""

import html

from decoding.scoreboard import Score, without_prefill
from pages.ui.compare import Outcome
from pages.ui.models import gibibytes
from viz.explain import why_not_faster
from viz.tokens import milliseconds

UNREST = 1.5


def label_of(entry: Score) -> str:
    """What the screen calls a contestant."""
    return entry.contestant.label


def is_plain(entry: Score) -> bool:
    """Whether a contestant is one that the others are measured against."""
    return entry.contestant.baseline == "hf_generate" or (
        entry.contestant.method is not None and entry.contestant.method.name == "autoregressive"
    )


def findings(scores: tuple[Score, ...]) -> list[str]:
    """Sentences: who is fastest, why others are not faster than plain decoding, what could not be measured."""
    plain = next((s for s in scores if s.measured and s.run and is_plain(s)), None)
    plain = plain or next((s for s in scores if s.measured and is_plain(s)), None)
    ours = [s for s in scores if s.measured]
    said = []
    if len(ours) > 1:
        best = max(ours, key=lambda s: s.spread_of("throughput").median)
        ratios = [
            f"{ratio.median:.2f}× {name}"
            for ratio, name in ((best.over_autoregressive, "autoregressive"), (best.over_hf, "Hugging Face generate"))
            if ratio
        ]
        against = f": {' and '.join(ratios)}" if ratios and not is_plain(best) else ""
        said.append(f"{label_of(best)} is fastest at {best.spread_of('throughput').median:.1f} tokens/s{against}.")
    for entry in scores:
        if entry.failure:
            said.append(entry.failure)
        elif not entry.measured:
            loops = (
                "its output repeats itself from the first iteration on" if entry.output_ids else "it was not reached"
            )
            said.append(f"{label_of(entry)} has no figures: {loops}.")
        elif plain is not None and not is_plain(entry):
            said += slower_words(entry, plain)
    return said + unrest_words(ours)


def unrest_words(measured: list[Score]) -> list[str]:
    """A warning where repeats of the same call differ so much that figures say more about the machine."""
    spreads = [entry.spread_of("throughput") for entry in measured]
    widest = max((found.high / found.low for found in spreads), default=1.0)
    if widest < UNREST:
        return []
    return [
        f"Repeats of the same call differ by up to {widest:.1f}×: other work disturbs this machine. End it or raise the "
        "repeats before trusting small differences."
    ]


def slower_words(entry: Score, plain: Score) -> list[str]:
    """Why a contestant is not faster than plain decoding, from its measured phases; nothing if it is."""
    ratio = entry.over_autoregressive if plain.run else entry.over_hf
    if ratio is None or ratio.median > 1:
        return []
    said = f"{label_of(entry)} is not faster ({ratio.median:.2f}× {label_of(plain)})"
    if ratio.high > 1:
        said += ", though the quartiles of the repeats reach both sides of 1"
    if entry.run is None:
        return [f"{said}; an outside baseline does not report its phases."]
    said += f". {why_not_faster(entry.run)}"
    later = without_prefill(entry, plain) or ratio.median
    if later > 1:
        prefill = milliseconds(entry.typical.prefill_s)
        return [f"{said} Without prefill it is faster ({later:.2f}×): the prefill of both models takes {prefill}."]
    reached = entry.typical.tokens_per_iteration
    return [f"{said} To break even, an iteration has to commit {reached / later:.1f} tokens; it commits {reached:.1f}."]


def memory_words(outcome: Outcome) -> str:
    """What the row of peak memory counts on this device."""
    if outcome.pair.target.device.startswith("cuda"):
        return "Peak memory: the most bytes allocated on the GPU during the call, both models' weights included."
    return (
        "Peak memory on this device counts weights and key/value caches of the models that the method uses; "
        "what Hugging Face allocates inside its own calls is not known."
    )


Cell = tuple[str, float | None]
"""What stands in a cell of the table, and the number by which the best one is found."""


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


def _rows(scores: tuple[Score, ...], reference: str) -> list[tuple[str, str, str, list[Cell]]]:
    """Title, meaning, which end is best, and a cell per contestant."""

    def row(title: str, meaning: str, best: str, cell) -> tuple[str, str, str, list[Cell]]:
        return title, meaning, best, [cell(entry) if entry.measured else ("–", None) for entry in scores]

    def spread_cell(name: str, factor: float = 1.0, digits: int = 1):
        def cell(entry: Score) -> Cell:
            found = entry.spread_of(name)
            if found is None:
                return "–", None
            middle, low, high = (f"{factor * v:.{digits}f}" for v in (found.median, found.low, found.high))
            return f"{middle} ({low}–{high})", found.median

        return cell

    def ratio_cell(name: str):
        def cell(entry: Score) -> Cell:
            found = getattr(entry, name)
            return (
                ("–", None)
                if found is None
                else (f"{found.median:.2f}× ({found.low:.2f}–{found.high:.2f})", found.median)
            )

        return cell

    def plain_cell(name: str, form: str):
        def cell(entry: Score) -> Cell:
            value = getattr(entry.typical, name)
            return ("–", None) if value is None else (format(value, form), value)

        return cell

    def share_cell(name: str, total: str):
        def cell(entry: Score) -> Cell:
            value = getattr(entry.typical, name)
            if value is None:
                return "–", None
            return f"{value:.0%} ({entry.typical.accepted:,} / {getattr(entry.typical, total):,})", value

        return cell

    return [
        row("Tokens/s", "New tokens / wall time of the call, prefill included: median (quartiles) over the repeats.",
            "high", spread_cell("throughput")),
        row("Tokens/s without prefill", "The same with the prefill of the models left out.", "high",
            spread_cell("decode_throughput")),
        row("Against autoregressive", "Tokens/s over that of our autoregressive loop, per repeat.", "high",
            ratio_cell("over_autoregressive")),
        row("Against Hugging Face generate", "Tokens/s over that of Hugging Face generate, per repeat.", "high",
            ratio_cell("over_hf")),
        row("Iterations", "Verification passes of the target; for Hugging Face: how often tokens arrived.", "",
            plain_cell("iterations", ",")),
        row("Tokens per iteration", "Committed tokens / verification passes (block efficiency).", "high",
            plain_cell("tokens_per_iteration", ".2f")),
        row("Accepted length, mean", "Accepted drafted tokens per iteration; the bonus token is not counted.", "high",
            plain_cell("accepted_mean", ".2f")),
        row("Accepted / drafted", "Accepted drafted tokens over all drafted nodes.", "high",
            share_cell("acceptance_drafted", "drafted")),
        row("Accepted / verified", "Accepted drafted tokens over the nodes given to the target.", "high",
            share_cell("acceptance_verified", "verified")),
        row("Draft forwards", "Forward passes of the draft model.", "", plain_cell("draft_forwards", ",")),
        row("Target passes", "Verification passes, and the second passes of rollback + rebuild.", "",
            plain_cell("target_passes", ",")),
        row("TTFT (ms)", "From the call to the first committed tokens, prefill of both models included.", "low",
            spread_cell("ttft_s", 1e3)),
        row("TPOT (ms)", "(Time of the last token - TTFT) / tokens after those of the first iteration.", "low",
            spread_cell("tpot_s", 1e3, 2)),
        row("Peak memory", "See the line under the table.", "",
            _memory_cell),
        row("Tokens measured", "Output tokens that the figures above are made of.", "", plain_cell("new_tokens", ",")),
        row("Tokens in loops", "Output tokens after 16 tokens in a row were seen for the second time.", "",
            lambda s: (f"{s.loop_tokens:,} of {s.new_tokens:,}", None)),
        row(f"Same output as {reference}", "Token for token; see Outputs for the first difference.", "",
            lambda s: (same_words(s), None)),
    ]  # fmt: skip


def _memory_cell(entry: Score) -> Cell:
    count = entry.typical.peak_memory_bytes
    return "–" if count is None else gibibytes(count), None


def same_words(entry: Score) -> str:
    """The identity check in a few words."""
    if entry.same_output is None:
        return "reference" if entry.measured else "–"
    if entry.same_output:
        return "✓ identical"
    kind = "≈ near tie" if entry.difference.near_tie else "✗ differs"
    return f"{kind} at token {entry.difference.position + 1}"
