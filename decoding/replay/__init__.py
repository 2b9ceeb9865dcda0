"""Another verifier, seed or setting from recorded logits, and forks of a run: without torch, a sentence says so."""

from decoding.common.errors import needing_torch

with needing_torch():
    import torch  # noqa: F401
