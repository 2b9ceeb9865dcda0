"""Errors, files, processes, settings, cost curves: what everything else may use."""
