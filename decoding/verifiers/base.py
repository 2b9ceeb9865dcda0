"""What all verifiers share: the tree it sees, its signature, the trees it is lossless for, its result."""

from collections.abc import Container, Iterable
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from decoding.common.settings import WithSettings
from decoding.drafters.base import DraftSampling
from decoding.sampling.draws import Draws
from decoding.sampling.sampling import (
    Sampling,
    TargetDistributions,
    checked_distribution,
    exact_dtype,
)
from decoding.trace.records import RESIDUAL_TOKENS, FinalKind, VerificationStep
from decoding.tree.draft import Draft


class VerifiedTree:
    """A draft without what was pruned, its children in draw order, its distributions in the widest float of the device.

    Attributes:
        order: ids of the verified nodes in the order of the verification pass, root first.
        tokens, parents: token and parent of every drafted node by id.
        entries: children of each verified node in draw order; one drawn twice appears twice.

    Raises `ValueError` where a parent stands after its child, or a row that is read is no distribution; the message
    names the argument.
    """

    def __init__(self, draft: Draft, target: TargetDistributions):
        self.order = [int(node) for node in draft.order]
        self.tokens: list[int] = draft.tree.tokens.tolist()
        self.parents: list[int] = draft.tree.parents.tolist()
        self.row_of = {node: row for row, node in enumerate(self.order)}
        self._draft, self._target = draft, target
        self._target_distributions: dict[int, Tensor] = {}
        self._draft_distributions: dict[int, Tensor] = {}
        self._check()
        self.entries: dict[int, list[int]] = {node: [] for node in self.order}
        drawn = range(1, draft.tree.size) if draft.drawn is None else draft.drawn.tolist()
        for node in drawn:
            if node in self.row_of:
                self.entries[self.parents[node]].append(node)

    def target_distribution(self, node: int) -> Tensor:
        """The target's distribution after a node, temperature and top-p applied, `[vocab_size]`."""
        if node not in self._target_distributions:
            self._target_distributions[node] = self._target.probs(self.row_of[node])
        return self._target_distributions[node]

    def draft_distribution(self, node: int) -> Tensor:
        """The distribution that the children of a node were drawn from, `[vocab_size]`."""
        if node not in self._draft_distributions:
            probs = self._drafted_without_model(node) if not self._draft.rows else self._row_of_draft(node)
            self._draft_distributions[node] = checked_distribution(
                probs.to(exact_dtype(probs.device)), f"draft_probs of node {node}"
            )
        return self._draft_distributions[node]

    def _row_of_draft(self, node: int) -> Tensor:
        level, row = self._draft_rows[node]
        return self._draft.rows[level][1][row]

    def _drafted_without_model(self, node: int) -> Tensor:
        """What a drafter that asked no model gave the children of a node, which then are all that it could draft.

        Where it did not draw them, counts may have left room for tokens that it did not draft.
        """
        children = [child for child, parent in enumerate(self.parents) if parent == node]
        probs = torch.zeros_like(self.target_distribution(node))
        probs[[self.tokens[child] for child in children]] = probs.new_tensor(
            self._draft.tree.draft_probs[children].tolist()
        )
        return probs / probs.sum() if self._draft.draft_sampling == "deterministic" else probs

    def path(self, node: int) -> tuple[int, ...]:
        """Ids from below the root down to a node."""
        ids: list[int] = []
        while node > 0:
            ids.append(node)
            node = self.parents[node]
        return tuple(reversed(ids))

    @cached_property
    def preferred(self) -> list[int]:
        """The target's most likely token after each verified node, in the order of the verification pass."""
        return self._target.argmax.tolist()

    @cached_property
    def _draft_rows(self) -> dict[int, tuple[int, int]]:
        """Where the draft's distribution after each node stands: level and row."""
        levels = enumerate(self._draft.rows)
        return {int(node): (level, row) for level, (nodes, _) in levels for row, node in enumerate(nodes)}

    def _check(self) -> None:
        if not self.order or self.order[0] != 0 or len(self.row_of) != len(self.order):
            raise ValueError("draft.order must begin with the root and list each verified node once.")
        for row, node in enumerate(self.order[1:], start=1):
            if not 0 <= self.row_of.get(self.parents[node], row) < row:
                raise ValueError(f"draft.order must list the parent of node {node} before it.")
        if len(self._target) != len(self.order):
            raise ValueError(f"target has {len(self._target)} rows for {len(self.order)} verified nodes.")
        self._target.check()


SAMPLED_TREES: tuple[DraftSampling, ...] = ("none", "single_path", "iid", "without_replacement")
IID_TREES: tuple[DraftSampling, ...] = ("none", "single_path", "iid")
SAMPLING_TEXT: dict[DraftSampling, str] = {
    "none": "trees without drafted tokens",
    "deterministic": "trees of the draft's likeliest tokens",
    "single_path": "sampled chains",
    "iid": "trees of independent draws",
    "without_replacement": "trees drawn without replacement",
}


STEP_FIELDS = tuple(each.name for each in fields(VerificationStep))


@dataclass(frozen=True)
class Test(VerificationStep):
    """One test of a walk."""

    residual: Tensor | None = None  # distribution that is left after it, not normalised; None where nothing changed

    __test__ = False  # pytest takes classes of this name for tests

    def step(self) -> VerificationStep:
        """The record of the test with the top of its residual."""
        values = {name: getattr(self, name) for name in STEP_FIELDS}
        if self.residual is not None:
            best = self.residual.topk(min(RESIDUAL_TOKENS, self.residual.numel()))
            total = float(self.residual.sum()) or 1.0
            left = best.values > 0
            values["residual_ids"] = tuple(best.indices[left].tolist())
            values["residual_probs"] = tuple((best.values[left] / total).tolist())
        return VerificationStep(**values)


@dataclass(frozen=True)
class Verification:
    """What a verifier decided."""

    accepted: tuple[int, ...]  # ids of the accepted nodes from the root down, the root left out
    final_token: int  # the token that follows them
    # `bonus` after a leaf of the verified tree, `recovered` above one, `fallback` if none was accepted
    final_kind: FinalKind
    tests: tuple[Test, ...]  # its tests in order
    # The verifier applied to this tree, for what it would do with other draws; None where nothing is recorded
    decision: "Decision | None" = field(repr=False)

    @cached_property
    def steps(self) -> tuple[VerificationStep, ...]:
        """The tests in order, as records."""
        return tuple(test.step() for test in self.tests)

    @property
    def acceptance_probability(self) -> np.ndarray:
        """Exact probability, over all draws, of being reached and accepted; `[num_rows]`, the root has 1."""
        if self.decision is None:
            raise ValueError("nothing was recorded of how this was decided")
        return self.decision.acceptance_probability


class Decision:
    """A verifier applied to one tree. What does not depend on draws is computed once, when first needed."""

    def __init__(self, tree: VerifiedTree):
        self.tree = tree

    def walk(self, draws: Draws) -> Verification:
        """Decide with these draws."""
        raise NotImplementedError

    @cached_property
    def acceptance_probability(self) -> np.ndarray:
        """Exact probability of each verified node of being reached and accepted, `[num_rows]`; the root has 1."""
        raise NotImplementedError

    @property
    def expected_tokens(self) -> float:
        """Exact expected tokens of this tree, accepted ones and the final one: its block efficiency E[tau + 1]."""
        return float(self.acceptance_probability.sum())

    def verification(self, accepted: tuple[int, ...], final_token: int, tests: Iterable[Test]) -> Verification:
        """The outcome of a walk."""
        kind = final_kind(accepted, above_leaf=bool(accepted and self.tree.entries[accepted[-1]]))
        return Verification(accepted, final_token, kind, tuple(tests), self)


def final_kind(accepted: tuple[int, ...], above_leaf: bool) -> FinalKind:
    """What the token after an accepted path is; `above_leaf`: the path ended at a node that has verified children."""
    if not accepted:
        return "fallback"
    return "recovered" if above_leaf else "bonus"


@dataclass(frozen=True)
class Verifier(WithSettings):
    """A verifier accepts tokens of a tree: stateless, frozen settings."""

    name: ClassVar[str] = ""  # key in `VERIFIERS`
    # label, summary, paper: its name on the screen, what it does in one sentence, its source
    label: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    # what it does at one node, as the end of a sentence that begins with its label; where empty, `summary` stands there
    how: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    lossless_for: ClassVar[tuple[DraftSampling, ...]] = ()  # on whose trees the output keeps the target's distribution
    greedy_only: ClassVar[bool] = False  # True if it needs temperature 0
    tests_first_path: ClassVar[bool] = False  # True if it tests no node off the first path that was drawn

    def decide(self, tree: VerifiedTree) -> Decision:
        """This verifier applied to a tree."""
        raise NotImplementedError

    def acceptance_rate(self, target: Tensor, draft: Tensor, draws: int) -> float:
        """Of a solver for independent draws: the probability that its token is among the draws."""
        raise NotImplementedError

    def verify(self, draft: Draft, target: TargetDistributions, draws: Draws) -> Verification:
        """Decide about the tree; `target` has one row per entry of `draft.order`.

        Raises `ValueError` where rows are no distributions, or parents do not precede their children.
        """
        return self.decide(VerifiedTree(draft, target)).walk(draws)

    def refusal(self, draft_sampling: DraftSampling, sampling: Sampling) -> str | None:
        """Why this verifier would bias the output of such a tree, None if it would not."""
        if self.greedy_only and not sampling.greedy:
            return (
                f"{self.label} accepts only the target's most likely token: it needs temperature 0, "
                f"not {sampling.temperature:g}."
            )
        if draft_sampling not in self.lossless_for:
            return f"{self.label} verification would bias the output of {SAMPLING_TEXT[draft_sampling]}."
        return None


def cut_path(
    draft: Draft, verification: Verification, room: int, stops: Container[int]
) -> tuple[tuple[int, ...], tuple[int, ...], FinalKind]:
    """Cut an accepted path at the first stop token and after `room` tokens.

    Returns the tokens that are committed, the final one last if it is among them, the accepted nodes whose tokens are,
    and what the last token is: `none` where the path was cut.
    """
    tokens = [int(token) for token in draft.tree.tokens[list(verification.accepted)]] + [verification.final_token]
    length = min(len(tokens), room)
    ends = next((place + 1 for place, token in enumerate(tokens[:length]) if token in stops), None)
    length = length if ends is None else ends
    kind: FinalKind = "none" if length < len(tokens) else verification.final_kind
    return tuple(tokens[:length]), verification.accepted[:length], kind
