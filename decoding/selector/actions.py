"""The actions that a selector chooses from, K, L1 and L2 of a delayed tree (Eq. 8), and what it reads. Torch-free."""

from itertools import product
from typing import NamedTuple

MOST_PATHS, MOST_LENGTH = 4, 8


class Action(NamedTuple):
    """A delayed tree: a trunk of `trunk` tokens (L_1), then `paths` (K) independent paths of `branch` tokens (L_2)."""

    paths: int
    trunk: int
    branch: int

    @property
    def nodes(self) -> int:
        """Tokens drawn, those drawn twice counted twice."""
        return self.trunk + self.paths * self.branch

    @property
    def level_widths(self) -> tuple[int, ...]:
        """Rows of each draft pass, in order: one for every trunk token and for the branching point, then one per path.

        The first one is of the root.
        """
        return (1,) * self.trunk + ((1,) + (self.paths,) * (self.branch - 1) if self.branch else ())


# In the order of labels and logits: [paths, trunk, branch].
ACTIONS: tuple[Action, ...] = tuple(
    Action(*shape) for shape in product(range(1, MOST_PATHS + 1), range(MOST_LENGTH + 1), range(MOST_LENGTH + 1))
)
SHAPE = (MOST_PATHS, MOST_LENGTH + 1, MOST_LENGTH + 1)

# In the order of `features.Features.scalars`.
SCALARS: tuple[str, ...] = (
    "target_entropy",
    "draft_entropy",
    "root_entropy",
    "target_to_draft",
    "draft_to_target",
    "l1_distance",
    "length",
    "temperature",
    "top_p",
    "draft_s",
    "target_s",
)
