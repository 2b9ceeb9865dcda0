"""`draftscope gallery OUT` or `python -m pages.ui.gallery OUT`: write what was recorded as static pages.

They work offline and on any static host: runs to step through with all linked views, the tour, the race and the
comparison that come with the program, from the components and scenes of the app. No model runs.
"""

import argparse
import html
import sys
from collections.abc import Iterator
from pathlib import Path

from decoding.common.errors import command
from decoding.common.files import write_whole
from decoding.common.formats import plural
from decoding.compare.comparison import score
from decoding.recorded import COMPARED_REPEATS, COMPARED_WARMUP, recorded_comparison, recorded_run, recorded_trees
from pages.ui.compare.findings import findings
from pages.ui.compare.plan import hardware_words, recorded_result
from pages.ui.compare.results import STYLE, speed_bars, table_html
from pages.ui.learn.recorded_runs import cards
from pages.ui.learn.tour import all_steps
from pages.ui.race import recorded_race
from pages.ui.widgets.prompts import prompt_words
from viz.charts.methods import ProgressCurve, progress_figure, speed_figure
from viz.learn.tour import STEP_THROUGH
from viz.race.data import race_data
from viz.standalone import figures_html, race_html, scope_html, text_html
from viz.tables import STYLE as TABLES

INDEX, RACE, COMPARISON, TOUR = "index.html", "race.html", "comparison.html", "tour-{}.html"


def nav(*words: str, **links: str) -> str:
    """Links above a page, the index first, and paragraphs below them."""
    listed = "".join(
        f'<a href="{file}">{html.escape(label)}</a>' for label, file in {"All pages": INDEX, **links}.items()
    )
    return f"<nav>{listed}{''.join(f'<p>{html.escape(each)}</p>' for each in words)}</nav>"


def run_pages() -> Iterator[tuple[str, str, str, str]]:
    """File, title, sentence and text of the page of each recorded run."""
    for card in cards():
        page = scope_html(
            recorded_run(card.name), card.iteration, node=card.node, phase=card.phase, whole=True, above=nav(card.words)
        )
        yield f"{card.name}.html", card.title, card.words, page


def tour_pages() -> list[tuple[str, str, str, str]]:
    """The stops of the tour that show a run; those that run models are left out."""
    steps, pages = [step for step in all_steps() if step.page == STEP_THROUGH], []
    for number, step in enumerate(steps, 1):
        beside = {"Back": number - 1, "Next": number + 1}
        links = {word: TOUR.format(there) for word, there in beside.items() if 0 < there <= len(steps)}
        above = nav(f"{step.title}, step {number} of {len(steps)}. {step.words}", **links)
        place = {"node": step.node, "phase": step.phase}
        page = scope_html(recorded_run(step.recording), step.iteration, **place, whole=True, above=above)
        pages.append((TOUR.format(number), step.title, step.words, page))
    return pages


def race_page() -> tuple[str, str, str, str]:
    """The recorded race."""
    race = recorded_race()
    page = race_html(race_data(race.lanes, race.key, race.explained), race.title, race.about, nav())
    return RACE, "Race", race.about, page


def comparison_page() -> tuple[str, str, str, str]:
    """The recorded comparison: what was found, figures, and the table."""
    outcome = recorded_result(recorded_comparison(), COMPARED_REPEATS, COMPARED_WARMUP, recorded_trees())
    scores = score(outcome.comparison)
    curves = [
        ProgressCurve(each.contestant.label, each.typical.timeline.seconds, each.typical.timeline.tokens)
        for each in scores
        if each.measured
    ]
    figures = [
        ("Tokens per second", *(speed_figure(speed_bars(scores), dark) for dark in (False, True))),
        ("Tokens over time, median repeat", *(progress_figure(curves, dark) for dark in (False, True))),
    ]
    about = (
        f"{len(scores)} methods on {prompt_words(outcome.plan.prompt.name)}, {plural(COMPARED_REPEATS, 'repeat')} in "
        f"turn after {COMPARED_WARMUP} warm-up, measured on {hardware_words(outcome.hardware)}."
    )
    style = "".join(f"<style>{each.read_text(encoding='utf-8')}</style>" for each in (TABLES, STYLE))
    page = figures_html(figures, "Comparison", nav(about, *findings(scores)), style + table_html(scores, outcome))
    return COMPARISON, "Comparison", about, page


def write(folder: Path) -> list[Path]:
    """Write all pages; returns them with the index first."""
    folder.mkdir(parents=True, exist_ok=True)
    tour = tour_pages()
    parts = {
        "Step through recorded runs": list(run_pages()),
        "Tour": tour,
        "Methods side by side": [race_page(), comparison_page()],
    }
    body = "".join(
        f"<h2>{html.escape(part)}</h2><ul>"
        + "".join(
            f'<li><a href="{file}">{html.escape(title)}</a>: {html.escape(words)}</li>'
            for file, title, words, _ in pages
        )
        + "</ul>"
        for part, pages in parts.items()
    )
    pages = {INDEX: text_html("Recorded runs of tree speculative decoding", body)}
    pages |= {file: page for each in parts.values() for file, _, _, page in each}
    for name, page in pages.items():
        write_whole(folder / name, page.encode())
    return [folder / name for name in pages]


@command
def main() -> int:
    """Write the pages and say where to begin."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder to write to")
    written = write(parser.parse_args().out)
    size = sum(path.stat().st_size for path in written) / 1e6
    print(f"{plural(len(written), 'page')}, {size:.1f} MB: open {written[0]} in a browser.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
