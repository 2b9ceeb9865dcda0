"""What drafters that sample share: many draws at once, distributions that lose what was drawn, notes on the leaves."""

import numpy as np
import torch
from torch import Tensor

from decoding.drafters.base import Drafter
from decoding.sampling.draws import Draws
from decoding.trace.records import Breadth, StopReason
from decoding.tree.draft import NOT_DRAFTED, Draft, TokenTree

ROWS_AT_ONCE = 64  # every row drawn from is copied: a whole level of a wide vocabulary would fill the memory


def draw_rows(draws: Draws, distributions: Tensor, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One token for each entry of `rows` from that row of `distributions`, in order.

    Args:
        distributions: `[num_distributions, vocab_size]`, not necessarily normalised.
        rows: `[num_draws]`; a row named twice is drawn from twice, independently.

    Returns:
        Tokens and what the distributions give them, both `[num_draws]`.
    """
    places, tokens = torch.from_numpy(rows).to(distributions.device), []
    for some in places.split(ROWS_AT_ONCE):
        tokens += draws.choose_each(distributions[some])
    probs = distributions[places, torch.tensor(tokens, device=distributions.device)]
    return np.array(tokens, dtype=np.int64), probs.cpu().numpy().astype(np.float64)


class RemainingDistributions:
    """Distributions that are drawn from without replacement: a token leaves its distribution when it is drawn.

    No token is drawn twice below a node, so nodes are appended as they are drawn and their ids are the draw order.

    Attributes:
        mass: probability that is left of each distribution, `[num_distributions]`.
        support: tokens that are left in each distribution, `[num_distributions]`; where it is 0 nothing can be drawn.
    """

    def __init__(self, distributions: Tensor):
        self._distributions = distributions.clone()  # the verifier needs the rows as they were
        self.mass = np.ones(len(distributions))
        self.support = distributions.count_nonzero(-1).cpu().numpy()

    def draw(self, rows: np.ndarray, draws: Draws) -> tuple[np.ndarray, np.ndarray]:
        """One token from each of some distinct distributions, and its probability in the whole distribution."""
        if len(rows) == 1:  # a wide node draws alone for many rounds: no row needs to be gathered
            distribution = self._distributions[rows[0]]
            token = draws.choose(distribution)
            tokens, probs = np.array([token]), np.array([float(distribution[token])])
            distribution[token] = 0.0
        else:
            tokens, probs = draw_rows(draws, self._distributions, rows)
            self._distributions[torch.from_numpy(rows), torch.from_numpy(tokens)] = 0.0
        self.mass[rows] = np.maximum(self.mass[rows] - probs, 0.0)
        self.support[rows] -= 1
        return tokens, probs


def note_stop_reason(tree: TokenTree, max_depth: int, depth_limit: int, otherwise: StopReason = "budget") -> None:
    """Note how many draws every expanded node got, and why the others got none: depth, length, else `otherwise`.

    What a leaf above the depth limits is noted for already stays.
    """
    expanded = tree.level >= 0
    below = np.bincount(tree.parents[1:], weights=tree.multiplicity[1:], minlength=tree.size)
    tree.branching[expanded] = below[expanded]
    open_leaves = ~expanded & (tree.stop_reason == NOT_DRAFTED)
    tree.set_stop_reason(np.flatnonzero(open_leaves), otherwise)
    tree.set_stop_reason(np.flatnonzero(~expanded & (tree.depths >= depth_limit)), "length_limit")
    tree.set_stop_reason(np.flatnonzero(~expanded & (tree.depths >= max_depth)), "max_depth")


class DrawnDrafter(Drafter):
    """A drafter that draws siblings without replacement, as long as a token is left that the draft finds possible."""

    draft_sampling = "without_replacement"

    def breadths(self, draft: Draft) -> list[Breadth | None]:
        tree, support = draft.tree, np.full(draft.tree.size, -1)
        for nodes, distributions in draft.rows:
            support[nodes] = distributions.count_nonzero(-1).cpu().numpy()
        all_drawn = np.bincount(tree.parents[1:], minlength=tree.size) == support
        breadths = zip(super().breadths(draft), all_drawn.tolist(), strict=True)
        return [breadth and ("all_drawn" if empty else breadth) for breadth, empty in breadths]
