"""Where draft probabilities come from: a draft model, a draft head, or a table."""
