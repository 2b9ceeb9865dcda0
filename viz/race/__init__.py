"""Recorded calls replayed side by side on one clock."""
