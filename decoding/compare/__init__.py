"""Methods and outside baselines on the same prompts, interleaved, with a check of their output."""
