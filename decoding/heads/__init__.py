"""Draft heads: one decoder layer over the target's features and the next token, in the place of a draft model."""
