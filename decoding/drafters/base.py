"""What every way to build a draft tree shares: signature, declared law, and where its probabilities come from."""

import time
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from decoding.draws import Draws
from decoding.optional_torch import Tensor
from decoding.row_search import topk_rows
from decoding.sampling import Sampling
from decoding.token_tree import TokenTree
from decoding.trace import HistoryTrace, Setting, TreeLaw


class ProbabilitySource(Protocol):
    """The draft's distribution after nodes of a tree: a model with its cache, or a table of probabilities.

    Attributes:
        depth_limit: no node may be deeper (end of the context or of the requested length).
    """

    depth_limit: int

    def expand(self, tree: TokenTree, nodes: np.ndarray) -> Tensor:
        """Probabilities `[len(nodes), vocab_size]` after the given nodes, in one draft forward.

        The first call of an iteration asks for node 0; every later one for nodes whose parents were asked for.
        """
        ...


@dataclass(frozen=True)
class Draft:
    """A drafted tree.

    Attributes:
        tree: every node drafted, the pruned ones included.
        order: ids of the nodes to verify in the order of the verification pass, root first, parents before children.
        law: how tokens were chosen; decides which verifiers are lossless.
        state: the drafter's next state.
        rows: the draft's probabilities level by level as `(node ids, [len(ids), vocab_size])`.
        settings: settings in force while this tree was drafted.
        prune_s: seconds that pruning took.
        drawn: ids of the nodes in the order in which they were drawn, one entry per draw, so that a node drawn twice
            stands there twice; None where every node was drawn once, in the order of ids.
    """

    tree: TokenTree
    order: np.ndarray
    law: TreeLaw
    state: Any
    rows: tuple[tuple[np.ndarray, Tensor], ...]
    settings: dict[str, Setting]
    prune_s: float = 0.0
    drawn: np.ndarray | None = None


@dataclass(frozen=True)
class Outcome:
    """What a drafter may learn from an iteration: what was accepted, and the shape of the verified tree.

    Attributes:
        accepted: number of accepted drafted tokens.
        depth: of the verified tree.
        path: ids of the accepted nodes, from the root's child on.
    """

    accepted: int
    committed: int
    drafted: int
    verified: int
    depth: int
    path: tuple[int, ...] = ()


@dataclass(frozen=True)
class Drafter:
    """A way to build a tree: frozen settings, explicit state, no model of its own.

    Attributes:
        law: how tokens are chosen; a property where a setting decides it.
        needs_past: whether `source.past()` is asked: what both models say before the root, hidden states included.
        optional: settings that `settings` leaves out where they are empty.
        cost: what one tree costs in draft forwards, in words.
    """

    law: ClassVar[TreeLaw] = "deterministic"
    uses_draft_model: ClassVar[bool] = True
    needs_past: ClassVar[bool] = False
    optional: ClassVar[tuple[str, ...]] = ()
    cost: ClassVar[str] = "one draft forward per level"

    def start(self, prompt_ids: list[int]) -> Any:
        """State before the first iteration; None for drafters that learn nothing."""
        return None

    def prepared(self, pair: Any, sampling: Sampling) -> "Drafter":
        """The same drafter with what it has to know of a pair (`decoding.pair.Pair`) filled in."""
        return self

    def check_verifier(self, verifier: str) -> None:
        """Raise `SettingsError` where the drafter was made for another verifier than this one."""

    def draft(self, state: Any, source: ProbabilitySource, root_token: int, draws: Draws) -> Draft:
        """Build the tree of one iteration below `root_token`."""
        raise NotImplementedError

    def observe(self, state: Any, outcome: Outcome) -> tuple[Any, HistoryTrace | None]:
        """The state after verification, and what was adapted (None for drafters that adapt nothing)."""
        return state, None

    def settings(self) -> dict[str, Setting]:
        """Every setting by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def with_settings(self, **changes: Setting) -> "Drafter":
        """The same drafter with some settings changed; out of range raises `SettingsError`."""
        return replace(self, **changes)


class Growing:
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
        self.tree.set_growth(np.zeros(1, dtype=np.int64), "length_limit")
        return np.zeros(0, dtype=np.int64)

    def expand(self, nodes: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
        """One draft forward; returns the `top` best tokens and their probabilities, both `[len(nodes), top]`."""
        probs = self._ask(nodes)
        best_probs, best_tokens = topk_rows(probs, min(top, probs.shape[-1]))
        top_probs = best_probs.cpu().double().numpy()
        self.tree.confidence[nodes] = top_probs[:, 0]
        return best_tokens.cpu().numpy(), top_probs

    def expand_laws(self, nodes: np.ndarray) -> Tensor:
        """One draft forward; returns the whole laws to draw from, `[len(nodes), vocab_size]`."""
        probs = self._ask(nodes)
        self.tree.confidence[nodes] = probs.amax(-1).tolist()
        return probs

    def _ask(self, nodes: np.ndarray) -> Tensor:
        probs = self.source.expand(self.tree, nodes)
        self.rows.append((nodes, probs))
        self.tree.level[nodes] = len(self.rows) - 1
        self.tree.set_growth(nodes, "expanded")
        return probs

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
        law: TreeLaw,
        state: Any,
        settings: dict[str, Setting],
        prune_probability: float = 0.0,
        keep: np.ndarray | None = None,
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
        return Draft(self.tree, order, law, state, tuple(self.rows), settings, prune_s, drawn)
