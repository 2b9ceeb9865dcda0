"""Delayed expansion: one sampled trunk, and independent paths only below its end (delayed tree expansion)."""

from dataclasses import dataclass

from decoding.drafters.base import Draft, Drafter, Growing
from decoding.drafters.iid_paths import grow_iid
from decoding.errors import require


@dataclass(frozen=True)
class DelayedDrafter(Drafter):
    """A trunk of `trunk` (L_1) samples, then `paths` (K) independent paths of `branch` (L_2) tokens below its end.

    The trunk's tokens are drawn once, so verifiers see one entry there and K at the branching point. Without a branch
    there is only the trunk; without a trunk the paths start at the root.
    """

    paths: int = 4
    trunk: int = 2
    branch: int = 4

    def __post_init__(self):
        require(1 <= self.paths <= 16, f"paths (K) must be from 1 to 16, not {self.paths}.")
        require(0 <= self.trunk <= 16, f"trunk (L_1) must be from 0 to 16, not {self.trunk}.")
        require(0 <= self.branch <= 16, f"branch (L_2) must be from 0 to 16, not {self.branch}.")

    @property
    def law(self):
        """Where nothing branches the tree is a chain."""
        return "single_path" if self.paths == 1 or self.branch == 0 else "iid"

    def draft(self, state, source, root_token, draws) -> Draft:
        growing = Growing(source, root_token)
        below = (self.paths, *[1] * (self.branch - 1))[: self.branch]
        grow_iid(growing, (*[1] * self.trunk, *below), draws)
        return growing.finish(self.law, state, self.settings())
