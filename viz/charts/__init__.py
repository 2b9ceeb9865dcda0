"""Plotly figures from traces and plain numbers."""
