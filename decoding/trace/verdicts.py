"""The verdict on each node of an iteration and the code of its reason, from the tests that the verifier made."""

from collections.abc import Collection, Sequence

from decoding.trace.records import LeftOut, Reason, Verdict, VerificationStep


class Verdicts:
    """What the tests of one iteration mean for its nodes.

    Args:
        steps: the verifier's tests in order.
        verified: ids of the nodes of the verification pass.
        reached: ids of the nodes that the verifier accepted.
        kept: of these, those whose tokens were committed.
        left_out: why the other nodes were not verified.
        first_path: the verifier tests no node off the first path that was drawn.
    """

    def __init__(
        self,
        steps: Sequence[VerificationStep],
        verified: Collection[int],
        reached: Collection[int],
        kept: Collection[int],
        left_out: LeftOut | None,
        first_path: bool,
    ):
        self._verified, self._reached, self._kept, self._left_out = set(verified), {0, *reached}, set(kept), left_out
        self._tested = {step.child_id: step for step in steps if step.kind == "test" and step.child_id is not None}
        self._chosen = {step.node_id: step for step in steps if step.kind == "choice"}
        matches = [step for step in steps if step.kind == "match" and step.child_id != step.rival_id]
        self._beaten = {step.rival_id if step.accepted else step.child_id for step in matches}
        # Bottom-up verifiers weigh paths; a test of theirs that passes settles the whole path.
        self._bottom_up = any(step.weight is not None for step in steps)
        self._settled = not first_path and any(step.accepted for step in self._tested.values())

    def of(self, node: int, parent: int, token: int) -> tuple[Verdict, Reason | None]:
        """Verdict and reason of one node."""
        if node == 0:
            return "root", "root"
        if node not in self._verified:
            return "not_verified", self._left_out
        test = self._tested.get(node)
        if node in self._reached:
            if node not in self._kept:
                return "not_reached", "text_ended"
            if test is not None and test.accepted:
                return "accepted", "favourite" if test.drawn is None else "test_passed"
            drawn = parent in self._chosen and self._chosen[parent].child_id == node
            return "accepted", "drawn" if drawn else "kept_below"
        if test is not None:
            return "rejected", "not_favourite" if test.drawn is None else "test_failed"
        if parent in self._reached and parent in self._chosen:
            if node in self._beaten:
                return "rejected", "match_lost"
            return "rejected", "first_path_only" if self._chosen[parent].token_id == token else "not_drawn"
        if self._bottom_up:
            return "not_reached", "path_settled" if self._settled else "first_path_only"
        if parent not in self._reached:
            return "not_reached", "ancestor_lost"
        return "not_reached", "match_lost" if node in self._beaten else "sibling_taken"
