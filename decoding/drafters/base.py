"""What all drafters share: signature, declared distribution, and where its probabilities come from."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from torch import Tensor

from decoding.common.cost_model import CostModel
from decoding.common.errors import PairError, SettingsError
from decoding.common.settings import WithSettings
from decoding.sampling.draws import Draws
from decoding.sampling.sampling import topk_rows
from decoding.trace.records import Breadth, DraftSampling, HistoryTrace, IterationTrace, RuleTrace, Setting, StopReason
from decoding.tree.draft import Draft, TokenTree


class ProbabilitySource(Protocol):
    """The draft's distribution after nodes of a tree: a model with its cache, or a table of probabilities."""

    depth_limit: int  # no node may be deeper: end of the context or of the requested length
    prefix: Sequence[int]  # the text so far, prompt and all; its last token is the root's

    def expand(self, tree: TokenTree, nodes: np.ndarray) -> Tensor:
        """Probabilities `[len(nodes), vocab_size]` after the given nodes, in one draft forward.

        The first call of an iteration asks for node 0; every later one for nodes whose parents were asked for.
        """
        ...


class Measured(Protocol):
    """Measurements of a pair on this machine, each made when first needed."""

    def costs(self, batch: int = 1) -> CostModel:
        """What passes cost, over one sequence or over each of a batch."""
        ...

    def acceptance(self) -> tuple[float, ...]:
        """How often each child in draw order is accepted, `[ranks]`."""
        ...

    def odds(self, ranks: int) -> tuple[float, ...]:
        """How far the odds of acceptance are from those that the draft gives, `[ranks]`."""
        ...

    def chooser(self, name: str, known: Any) -> Any:
        """The trained selector of this name on this machine; the known one where it is of this pair."""
        ...

    def matrix(self, name: str) -> str:
        """The full name of a kept matrix for token recycling, checked to be of this target."""
        ...


@dataclass(frozen=True)
class IterationFeedback:
    """What a drafter may learn from an iteration: what was accepted, and the shape of the verified tree."""

    accepted: int
    committed: int
    drafted: int
    verified: int
    depth: int  # of the verified tree
    path: tuple[int, ...] = ()  # ids of the accepted nodes, from the root's child on
    tokens: tuple[int, ...] = ()  # what was committed: the accepted tokens, then the final one if there is one
    # tree, order: the tree drafted and the ids of the nodes that were really verified, root first; None where a record
    # has left them out
    tree: TokenTree | None = field(default=None, compare=False)
    order: np.ndarray | None = field(default=None, compare=False)
    # What gives ids and probabilities, `[num_nodes, 20]` each, of the target's likeliest tokens after every verified
    # node at temperature 1, as a record holds them: -1 and nan where it has none
    top: Callable[[], tuple[np.ndarray, np.ndarray]] | None = field(default=None, compare=False)

    def drafted_tree(self) -> tuple[TokenTree, np.ndarray]:
        """`tree` and `order`; raises `SettingsError` where a record has left them out."""
        if self.tree is None or self.order is None:
            raise SettingsError("An iteration was recorded without its tree: re-run it.")
        return self.tree, self.order

    def target_top(self) -> tuple[np.ndarray, np.ndarray]:
        """What `top` gives; raises `SettingsError` where a record has left it out."""
        if self.top is None:
            raise SettingsError("An iteration was recorded without the target's likeliest tokens: re-run it.")
        return self.top()

    @property
    def drafted_depth(self) -> int:
        """Depth of the tree as drafted; raises `SettingsError` where a record has left it out."""
        return int(self.drafted_tree()[0].depths.max())

    @classmethod
    def recorded(cls, iteration: IterationTrace) -> "IterationFeedback":
        """The outcome of a recorded iteration."""
        ids, probs = iteration.target_top_ids, iteration.target_top_probs
        return cls(
            accepted=len(iteration.accepted),
            committed=len(iteration.committed_ids),
            drafted=iteration.drafted,
            verified=iteration.verified,
            depth=iteration.tree_depth,
            path=iteration.accepted,
            tokens=iteration.committed_ids,
            tree=TokenTree.recorded(iteration.nodes) if iteration.nodes else None,
            order=np.array(iteration.flatten_order) if iteration.nodes else None,
            top=None if ids is None or probs is None else lambda: (ids, probs),
        )


@dataclass(frozen=True)
class Drafter(WithSettings):
    """A drafter builds a tree: frozen settings, explicit state, no model of its own."""

    drafts: ClassVar[bool] = True  # False: the tree is its root alone, which is autoregressive decoding
    # False: `source` is never asked, so the draft model is not prefilled and gets no KV slots, and no draft head fits;
    # a drafter that looks its tokens up in the text drafts without a model
    uses_draft_model: ClassVar[bool] = True
    cost: ClassVar[str] = "one draft forward per level"  # what one tree costs in draft forwards, as text
    # Why an expanded node has as many children as it has, where that is the same for all
    breadth: ClassVar[Breadth] = "fixed"
    traced: ClassVar[RuleTrace | None] = None  # what the trace says about the drafter where no setting decides that

    @property
    def draft_sampling(self) -> DraftSampling:
        """How tokens are chosen."""
        return "deterministic"

    @property
    def needs_past(self) -> bool:
        """Whether `source.past()` is asked: what both models say before the root, hidden states included."""
        return False

    @property
    def moving(self) -> tuple[str, ...]:
        """Settings that change from iteration to iteration; a state that holds one has a field of its name."""
        return ()

    def start(self, prompt_ids: list[int]) -> Any:
        """State before the first iteration; None for drafters that learn nothing."""
        return None

    def carried(self, state: Any, before: Any, prompt_ids: list[int]) -> Any:
        """What the same drafter has learned with other settings, `before`, as far as it holds for these."""
        return state if self == before else self.start(prompt_ids)

    def prepared(self, measured: Measured) -> "Drafter":
        """The same drafter with what it has to know of a pair filled in, unless it was given."""
        return self

    def check_verifier(self, verifier: str) -> None:
        """Raise `SettingsError` where the drafter was built for another verifier."""

    def draft(self, state: Any, source: ProbabilitySource, root_token: int, draws: Draws) -> Draft:
        """Build the tree of one iteration below `root_token`."""
        raise NotImplementedError

    def observe(self, state: Any, outcome: IterationFeedback) -> tuple[Any, HistoryTrace | None]:
        """The state after verification, and what was adapted (None for drafters that adapt nothing)."""
        return state, None

    def resumed(self, state: Any, iteration: IterationTrace) -> Any:
        """The state after an iteration, given the one before it and the record of what was drafted and accepted.

        Override it where `draft` changes the state, or where the record tells the next one.
        """
        return self.observe(state, IterationFeedback.recorded(iteration))[0]

    def taken_over(self, state: Any) -> Any:
        """The state of a drafter with other settings as this one's: what was learned stays, what moves is as set here.

        Called on a drafter whose settings are those in force, one of them changed.
        """
        held = {name: getattr(self, name) for name in self.moving if hasattr(state, name)}
        return replace(state, **held) if held else state

    def in_force(self, state: Any) -> dict[str, Setting]:
        """Every setting by name, those that move as a state holds them."""
        return self.settings() | {name: getattr(state, name) for name in self.moving if hasattr(state, name)}

    def with_in_force(self, settings: Mapping[str, Setting]) -> Self:
        """The same drafter with the settings that were in force in an iteration."""
        own = self.settings()
        return self.with_settings(**{name: value for name, value in settings.items() if name in own})

    def rule(self, settings: Mapping[str, Setting]) -> RuleTrace:
        """What the trace says about the drafter, and explanations need to know, with these settings in force."""
        return self.traced or RuleTrace(type(self).__name__)

    def breadths(self, draft: Draft) -> list[Breadth | None]:
        """Why each node has as many children as it has, by id; None where it was not expanded."""
        return [self.breadth if width >= 0 else None for width in draft.tree.branching.tolist()]


def deepest_level(max_depth: int, depth_limit: int) -> tuple[int, StopReason]:
    """Depth of the deepest nodes that settings and length allow, and why these are not expanded."""
    return min(max_depth, depth_limit), "max_depth" if max_depth <= depth_limit else "length_limit"


class TreeBuilder:
    """A tree under construction: asks the source level by level and keeps the probability rows."""

    def __init__(self, source: ProbabilitySource, root_token: int, capacity: int = 128):
        self.source = source
        self.tree = TokenTree(root_token, capacity)
        self.rows: list[tuple[np.ndarray, Tensor]] = []
        self._drawn: list[int] = []
        self._ids: dict[tuple[int, int], int] = {}

    def root_frontier(self) -> np.ndarray:
        """The root as first frontier; empty where the length limit leaves no room for a drafted token."""
        if self.source.depth_limit > 0:
            return np.zeros(1, dtype=np.int64)
        self.tree.set_stop_reason(np.zeros(1, dtype=np.int64), "length_limit")
        return np.zeros(0, dtype=np.int64)

    def expand(self, nodes: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
        """One draft forward; returns the `top` best tokens and their probabilities, both `[len(nodes), top]`."""
        probs = self._ask(nodes)
        best_probs, best_tokens = topk_rows(probs, min(top, probs.shape[-1]))
        top_probs = best_probs.cpu().double().numpy()
        self._note_confidence(nodes, top_probs[:, 0])
        return best_tokens.cpu().numpy(), top_probs

    def expand_distributions(self, nodes: np.ndarray) -> Tensor:
        """One draft forward; returns the whole distributions to draw from, `[len(nodes), vocab_size]`."""
        probs = self._ask(nodes)
        # NumPy reads the rows sooner than PyTorch wakes its threads.
        highest = probs.numpy().max(-1) if probs.device.type == "cpu" else probs.amax(-1).cpu().numpy()
        self._note_confidence(nodes, highest.astype(np.float64))
        return probs

    def _ask(self, nodes: np.ndarray) -> Tensor:
        probs = self.source.expand(self.tree, nodes)
        self.rows.append((nodes, probs))
        self.tree.level[nodes] = len(self.rows) - 1
        self.tree.set_stop_reason(nodes, "expanded")
        return probs

    def _note_confidence(self, nodes: np.ndarray, confidence: np.ndarray) -> None:
        if not math.isfinite(confidence.sum()):
            raise PairError(
                "The draft gives nan or infinite logits for this text; load the pair in float32, or choose another "
                "draft."
            )
        self.tree.confidence[nodes] = confidence

    def add_drawn(self, parents: np.ndarray, tokens: np.ndarray, probs: np.ndarray) -> np.ndarray:
        """Append drawn children in draw order; a child drawn again gains multiplicity. Returns the id of each draw."""
        ids = np.zeros(len(tokens), dtype=np.int64)
        new: list[int] = []
        for place, key in enumerate(zip(np.asarray(parents).tolist(), np.asarray(tokens).tolist(), strict=True)):
            known = self._ids.get(key)
            if known is None:
                known = self._ids[key] = self.tree.size + len(new)
                new.append(place)
            ids[place] = known
        self.tree.append(np.asarray(parents)[new], np.asarray(tokens)[new], np.asarray(probs)[new])
        np.add.at(self.tree.multiplicity, ids, 1)
        self.tree.multiplicity[ids[new]] -= 1
        self._drawn.extend(ids.tolist())
        return ids

    def add_best(self, nodes: np.ndarray, branching: np.ndarray, tokens: np.ndarray, probs: np.ndarray, room: int):
        """Append the `branching[i]` best children of each node while there is room; return the new ids."""
        self.tree.branching[nodes] = branching
        taken = np.arange(tokens.shape[1])[None, :] < branching[:, None]
        parents = np.repeat(nodes, taken.sum(1))[:room]
        return self.tree.append(parents, tokens[taken][:room], probs[taken][:room])

    def finish(
        self,
        draft_sampling: DraftSampling,
        state: Any,
        settings: dict[str, Setting],
        prune_probability: float = 0.0,
        keep: np.ndarray | None = None,
        choice: Any = None,
    ) -> Draft:
        """Close the tree: nodes whose path probability is below `prune_probability` are not verified.

        Path probability never rises downwards, so what stays is connected. `keep`, a bool mask `[size]` that is closed
        under parents, leaves out others as well.
        """
        started = time.perf_counter()
        if prune_probability > 0:
            likely = self.tree.path_probs >= prune_probability
            likely[0] = True
            keep = likely if keep is None else keep & likely
        order = self.tree.breadth_first(keep)
        prune_s = time.perf_counter() - started
        drawn = np.array(self._drawn, dtype=np.int64) if self._drawn else None
        return Draft(self.tree, order, draft_sampling, state, tuple(self.rows), settings, prune_s, drawn, choice=choice)
