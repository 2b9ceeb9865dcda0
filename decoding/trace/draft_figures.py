"""What a run drafted and what was accepted of it, in the figures that inference engines take.

Acceptance by depth is marginal: entry i is the share of the counted iterations whose accepted path has at least i + 1
drafted tokens, so that the entries of all depths add up to the mean accepted length. An iteration is counted if it
drafted something, no person changed it, and neither the end of the text nor the requested length can have cut it short;
a run without such iterations counts all that drafted.
"""

import math
from collections import Counter
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from decoding.trace.records import IterationTrace, RunTrace

DIGITS = 6  # of a rate


@dataclass(frozen=True, slots=True)
class DraftFigures:
    """What a run drafted and what was accepted of it, over its counted iterations.

    Attributes:
        accepted: accepted drafted tokens of each counted iteration.
        left_out: iterations of the method that are not counted.
        drafted_by: the pair's draft model, a draft head, or no model: the text alone.
        depths, sizes: depth and nodes of each verified tree, roots left out.
        breadth: most children of a node of a verified tree, None where no trees were recorded.
        single_path: whether the tokens of a chain were drawn from the draft's distribution.
    """

    accepted: tuple[int, ...]
    left_out: int
    drafted_by: Literal["model", "head", "text"]
    depths: tuple[int, ...]
    sizes: tuple[int, ...]
    breadth: int | None
    single_path: bool

    @property
    def mean_accepted(self) -> float:
        """Mean accepted length, the bonus token left out."""
        return fmean(self.accepted)

    @property
    def chains(self) -> bool:
        """Whether no verified tree has a branch."""
        return self.depths == self.sizes

    @property
    def fixed(self) -> bool:
        """Whether all verified trees are chains of one length."""
        return self.chains and len(set(self.depths)) == 1

    @property
    def chain_length(self) -> int:
        """Tokens of a chain: as many as the run's chains have, or the mean accepted length rounded up; 1 at least.

        Copied from the text, a longer draft costs no pass of a model: there it is the longest of the run.
        """
        own = self.fixed or self.drafted_by == "text"
        return max(1, max(self.depths) if own else math.ceil(self.mean_accepted))

    def rates(self, depth: int) -> list[float]:
        """Marginal acceptance of the first `depth` depths, each from 0 to 1, never rising."""
        reached = (sum(length >= d for length in self.accepted) for d in range(1, depth + 1))
        return [round(count / len(self.accepted), DIGITS) for count in reached]


def draft_figures(run: RunTrace) -> DraftFigures | None:
    """Figures of a run's own iterations (those of a fork's parent left out); None where nothing was drafted."""
    own = run.iterations[run.own_from :]
    drafting = [each for each in own if each.drafted]
    if not drafting:
        return None
    deepest = max(each.tree_depth for each in drafting)
    end = len(run.prompt_ids) + run.max_new_tokens
    whole = [
        each
        for each in drafting
        if not each.interventions and each.final_kind != "none" and end - each.prefix_length > deepest
    ]
    counted = whole or drafting
    without_model = not any(each.draft_forwards for each in drafting)
    recorded = all(each.nodes for each in counted)
    return DraftFigures(
        accepted=tuple(len(each.accepted) for each in counted),
        left_out=len(own) - len(counted),
        drafted_by="head" if run.settings.get("draft_head") else "text" if without_model else "model",
        depths=tuple(each.tree_depth for each in counted),
        sizes=tuple(each.verified for each in counted),
        breadth=max(map(_most_children, counted)) if recorded else None,
        single_path=all(each.draft_sampling == "single_path" for each in counted),
    )


def _most_children(iteration: IterationTrace) -> int:
    verified = (node for node in iteration.nodes if node.flat_index is not None and node.parent_id >= 0)
    return max(Counter(node.parent_id for node in verified).values(), default=0)
