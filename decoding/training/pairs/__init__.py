"""Training the embedded pair from text: tokenizer, target, what it repeats, and the distilled draft."""
