"""Standalone pages that work offline: a scope, or figures."""
