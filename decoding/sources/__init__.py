"""Where draft probabilities come from while decoding: a draft model, or a draft head."""
