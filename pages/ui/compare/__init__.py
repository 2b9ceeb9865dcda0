"""The page Compare: methods on one prompt, interleaved, with a check of their output."""
