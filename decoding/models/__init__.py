"""Load and check a pair; presets; tokenizer; one forward pass over a tree."""
