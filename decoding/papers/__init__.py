"""The papers' tables and figures compared with our own measurements.

paper_result.py    what a table or figure compares, with the paper's own numbers
judge.py           our numbers for it, with intervals, whether the paper's orderings are reproduced, and why not
stored.py          what a benchmark has stored for one, and running it from the app
dynatree.py, dynatree_pruned.py, dyspec.py, delayed.py, salf.py    the results of each paper
measured/          benchmarks that paper results use
"""

from decoding.papers import delayed, dynatree, dynatree_pruned, dyspec, salf
from decoding.papers.paper_result import PaperResult

# Every table and figure that can be re-run on this machine.
PAPER_RESULTS: tuple[PaperResult, ...] = (
    *dynatree.PAPER_RESULTS,
    *dynatree_pruned.PAPER_RESULTS,
    *dyspec.PAPER_RESULTS,
    *delayed.PAPER_RESULTS,
    *salf.PAPER_RESULTS,
)
