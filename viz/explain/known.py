"""What sentences about the nodes of an iteration need to know of all of it: made once, when it is first asked for.

known = Known(iteration)
said = [why_verdict(iteration, node.node_id, known) for node in iteration.nodes]
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from decoding.trace.records import IterationTrace, VerificationStep
from viz.explain.draft_rule import Places
from viz.explain.forced import Forced
from viz.explain.tested_law import Rejections, is_sampled, rejections
from viz.explain.truncation import after_end, cut_nodes


@dataclass(frozen=True)
class Known:
    """One iteration and what follows from its whole tree or from all its tests."""

    iteration: IterationTrace

    @cached_property
    def places(self) -> Places:
        """The competition for places in its tree."""
        return Places(self.iteration)

    @cached_property
    def sampled(self) -> bool:
        """Whether chance had a say in the verifier's decisions."""
        return is_sampled(self.iteration)

    @cached_property
    def forced(self) -> Forced:
        """What a person forced."""
        return Forced(self.iteration)

    @cached_property
    def forced_out(self) -> frozenset[int]:
        """Nodes that a person took out before verification, those below them included."""
        return self.iteration.forced_out

    @cached_property
    def cut(self) -> frozenset[int]:
        """Nodes that the verifier accepted after the end of the text."""
        return frozenset(cut_nodes(self.iteration))

    @cached_property
    def after_end(self) -> frozenset[int]:
        """Nodes at which the verifier decided after the end of the text."""
        return after_end(self.iteration)

    @cached_property
    def accepted(self) -> frozenset[int]:
        """Nodes whose tokens were committed."""
        return frozenset(self.iteration.accepted)

    @cached_property
    def taken(self) -> Mapping[int, int]:
        """The accepted node below each node of the accepted path."""
        return {self.iteration.nodes[node].parent_id: node for node in self.iteration.accepted}

    @cached_property
    def walked(self) -> frozenset[int]:
        """Nodes from the root down to where the verifier decided last."""
        steps = self.iteration.steps
        return frozenset(self.iteration.path(steps[-1].node_id)) if steps else frozenset()

    @cached_property
    def decisions(self) -> Mapping[int, Sequence[VerificationStep]]:
        """Tests, matches and choices by the node below which they were made."""
        return _grouped(self.iteration.steps, lambda step: (step.node_id,))

    @cached_property
    def about(self) -> Mapping[int | None, Sequence[VerificationStep]]:
        """Tests, matches and choices by the child that they are about."""
        return _grouped(self.iteration.steps, lambda step: (step.child_id,))

    @cached_property
    def matches(self) -> Mapping[int, Sequence[VerificationStep]]:
        """Matches between two nodes by either of them."""
        between = (step for step in self._of_kind("match") if step.child_id != step.rival_id)
        return _grouped(between, lambda step: (step.child_id, step.rival_id))

    @cached_property
    def choices(self) -> Mapping[int, VerificationStep]:
        """The first choice made below a node."""
        made = _grouped(self._of_kind("choice"), lambda step: (step.node_id,))
        return {place: steps[0] for place, steps in made.items()}

    @cached_property
    def passed(self) -> VerificationStep | None:
        """The first test that passed."""
        return next((step for step in self._of_kind("test") if step.accepted and step.child_id is not None), None)

    def before(self, step: VerificationStep) -> Rejections:
        """What had been rejected at the place of a test when it was made."""
        return self._rejections[id(step)]

    @cached_property
    def _rejections(self) -> Mapping[int, Rejections]:
        return rejections(self.iteration)

    def _of_kind(self, kind: str) -> Iterable[VerificationStep]:
        return (step for step in self.iteration.steps if step.kind == kind)


def _grouped(
    steps: Iterable[VerificationStep], nodes_of: Callable[[VerificationStep], tuple[int | None, ...]]
) -> dict[int | None, list[VerificationStep]]:
    """Steps in their order, by the nodes that each is about."""
    found: dict[int | None, list[VerificationStep]] = {}
    for step in steps:
        for node in nodes_of(step):
            found.setdefault(node, []).append(step)
    return found
