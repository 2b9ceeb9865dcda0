"""Experiments as data: a grid of settings becomes one row per run, which pages and tables read.

grid.py         what varies, read from a TOML file
prompt_sets.py  where prompts come from
plan.py         the runs of a grid, in the order in which they are interleaved
rows.py         what is kept of each run, and the Parquet files it is appended to
runner.py       runs what is missing, here or on several devices
launch.py       the same in a process of its own, and where it stands
followed.py     experiments as somebody watches them
prepared.py     rows as figures are made of, loops apart
swept.py        what varies in them, and means for every combination
best.py         which way is the best, and how sure that is
again.py        a kept run decoded again
"""
