"""Experiments as data: a grid of settings becomes one row per run, which pages and tables read.

grid.py         what varies, and the TOML file that it is read from
plan.py         where prompts come from, and the runs of a grid in the order in which they are interleaved
executors.py    who makes the runs, a row each: this process, one per device, Ray
sweep.py        runs what is missing; the command
rows.py         what is kept of each run, and the Parquet files it is appended to
experiment.py   experiments as jobs: started, listed, followed, a kept run decoded again
estimates.py    what rows say: means with intervals for every combination, and the best
command.py      what the benchmarks share
"""
