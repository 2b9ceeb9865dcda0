"""Errors, files, formats, prompts, settings, cost curves: what everything else may use."""
