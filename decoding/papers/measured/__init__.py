"""Measurements that tables and figures of the papers are made of, besides the runs of grids."""
