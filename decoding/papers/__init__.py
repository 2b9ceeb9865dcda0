"""The papers' tables and figures beside our own measurements: what they are, and what our rows say of them.

exhibit.py    what a table or figure compares, with the paper's own numbers
judge.py      our numbers for it, with intervals, whether the paper's ordering holds here, and why it does not
stored.py     what a benchmark has stored for one, and running it from the app
dynatree.py, dynatree_pruned.py, dyspec.py, delayed.py, salf.py    the exhibits of each paper
measured/     benchmarks that exhibits are made of
"""

from decoding.papers import delayed, dynatree, dynatree_pruned, dyspec, salf
from decoding.papers.paper_result import PaperResult

# Every table and figure that can be run again here.
PAPER_RESULTS: tuple[PaperResult, ...] = (
    *dynatree.PAPER_RESULTS,
    *dynatree_pruned.PAPER_RESULTS,
    *dyspec.PAPER_RESULTS,
    *delayed.PAPER_RESULTS,
    *salf.PAPER_RESULTS,
)
