"""The papers' tables and figures beside our own measurements: what they are, and what our rows say of them.

exhibit.py    what a table or figure compares, with the paper's own numbers
views.py      what it is made of: rows of runs, their passes, their phases
stored.py     the same from what a benchmark has stored
judge.py      our numbers for it, with intervals, and whether the paper's ordering holds here
reasons.py    why it does not, from what was measured
dynatree.py, dynatree_pruned.py, dyspec.py, delayed.py, salf.py    the exhibits of each paper
registry.py   all of them
"""
