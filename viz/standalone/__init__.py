"""Pages of their own that work offline: a scope, or figures."""
