"""`python -m decoding.import_metrics FILE`: what an engine says of its speculative decoding. Needs no torch.

Exit code 0: the figures were written; 2: the file cannot be read, or is of no engine that is known.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from textwrap import fill

from decoding.common.errors import command
from decoding.trace.engine_metrics import EngineMetrics, load_metrics

WIDTH = 100  # characters of a line of words


def metric_lines(metrics: EngineMetrics) -> Iterator[str]:
    """The whole record as a person reads it."""
    yield f"{metrics.engine}: {metrics.form}"
    if metrics.added:
        yield metrics.added
    about = "" if metrics.passes_exact else "about "
    counts = {
        "draft tokens per pass (K)": _whole(metrics.draft_length),
        "passes with a draft": about + _whole(metrics.passes) if metrics.passes else "-",
        "draft tokens": _whole(metrics.drafted),
        "accepted draft tokens": _whole(metrics.accepted),
    }
    yield ""
    yield from (f"{name:26} {value:>14}" for name, value in counts.items())
    if metrics.positions:
        yield f"\n{'position':10} {'marginal':>18} {'conditional':>18}"
        for each in metrics.positions:
            marginal = _share(each.marginal, each.marginal_error)
            yield f"{each.position:<10} {marginal:>18} {_share(each.conditional, each.conditional_error):>18}"
    yield ""
    for figure in metrics.definitions:
        if figure.value is not None:
            yield f"{figure.name:41} {figure.value:.4f}"
            called = "".join(f"; {who}: {name}" for who, name in figure.called)
            yield fill(f"{figure.formula}{called}.", WIDTH, initial_indent="    ", subsequent_indent="    ")
    missing = [figure.name for figure in metrics.definitions if figure.value is None]
    if missing:
        yield fill(f"Not to be had from these figures: {', '.join(missing)}.", WIDTH)
    if metrics.other_lengths:
        yield f"\n{'other K':10} tokens per pass, the bonus token counted"
        for other in metrics.other_lengths:
            exact = f"{other.low:.4f}"
            bounds = f"{exact} to {other.high:.4f}; {other.stayed:.4f} if the last conditional rate stayed"
            yield f"{other.draft_length:<10} {exact if other.exact else bounds}"
    if metrics.odd or metrics.notes:
        yield ""
    source = f"{metrics.engine} {metrics.version}: names read on {metrics.read} in {', '.join(metrics.sources)}."
    for sentence in (*(f"Odd: {sentence}" for sentence in metrics.odd), *metrics.notes, source):
        yield fill(sentence, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _whole(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _share(value: float | None, error: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if error is None else f"{value:.4f} +- {error:.4f}"


@command
def main(arguments: list[str] | None = None) -> int:
    """Print the figures; the code is 0 or 2 as the module says."""
    parser = argparse.ArgumentParser(
        prog="python -m decoding.import_metrics",
        description="Say what an inference engine's own figures mean for its speculative decoding.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="what the engine gave; its form is recognised")
    parser.add_argument("--json", action="store_true", help="write everything as one JSON object")
    args = parser.parse_args(arguments)
    metrics = load_metrics(args.file)
    if args.json:
        print(json.dumps(asdict(metrics), indent=2))
    else:
        print(*metric_lines(metrics), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
