"""The papers' tables and figures compared with our own measurements.

paper_result.py    what a table or figure compares, with the paper's own numbers, and how it and we measured
rows.py            what a paper result reads: which results, of runs, passes or phases, and times of another target
judge.py           the rule of verdicts; our numbers with intervals, whether the paper's orderings hold
causes.py          why one does not hold here, from the rows
explained.py       what papers only explain, and the pages that show the thing itself
stored.py          what a benchmark has stored for one
dynatree.py, dynatree_pruned.py, dyspec.py, delayed.py, salf.py    the results of each paper
measured/          benchmarks that paper results use, and running one from the app
"""

from decoding.papers import delayed, dynatree, dynatree_pruned, dyspec, salf
from decoding.papers.explained import EXPLAINED
from decoding.papers.paper_result import PaperResult, numbers_of

# Tables and figures of every paper. The captions say how many there are.
CONTENTS: dict[str, dict[str, int]] = {
    dynatree.PAPER: {"Table": 5, "Figure": 8},
    dynatree_pruned.PAPER: {"Table": 7, "Figure": 7},
    dyspec.PAPER: {"Table": 5, "Figure": 9},
    delayed.PAPER: {"Table": 15, "Figure": 1},
    salf.PAPER: {"Table": 4, "Figure": 4},
}
# Every table and figure that can be re-run on this machine.
PAPER_RESULTS: tuple[PaperResult, ...] = (
    *dynatree.PAPER_RESULTS,
    *dynatree_pruned.PAPER_RESULTS,
    *dyspec.PAPER_RESULTS,
    *delayed.PAPER_RESULTS,
    *salf.PAPER_RESULTS,
)


def not_shown(paper: str) -> tuple[str, ...]:
    """Tables and figures of a paper that nothing here shows, by their numbers."""
    shown = {
        number.rstrip("abcdef")
        for shown_in, title in ((each.paper, each.title) for part in (PAPER_RESULTS, EXPLAINED) for each in part)
        if shown_in == paper
        for number in numbers_of(title)
    }
    wanted = (f"{kind} {number}" for kind, count in CONTENTS[paper].items() for number in range(1, count + 1))
    return tuple(number for number in wanted if number not in shown)
