"""A draft tree that lives on the device: how it is to grow, and tensors of fixed size that grow and verify it there.

A drafter has a rule if its tree depends only on what the draft says about the levels before: the device builds the same
tree, node by node and reason by reason, as the drafter itself on the host.

No function here waits for the host or makes a tensor whose size depends on data; all may be captured in a CUDA graph.
The last place of every array is a bin: what a padded lane writes goes there, and nothing in it is ever used.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decoding.drafters import Eagle2Drafter
from decoding.drafters.base import Drafter, deepest_level
from decoding.drafters.levels import (
    MOST_FORWARDS,
    REASONS,
    WIDTHS,
    LevelDrafter,
    LevelRule,
    confidence_class,
    first_reason,
)
from decoding.engines.cuda_graph import bucket
from decoding.trace.records import StopReason
from decoding.tree.draft import NOT_DRAFTED, STOP_REASON_CODE


@dataclass(frozen=True)
class BeamRule:
    """How a beam grows: every level asks about the `top` best nodes of the level above, the best of all stay.

    What it has in common with `LevelRule` goes by the same names. There has to be room for `most_forwards` forwards, of
    which a length limit leaves `forwards`.
    """

    top: int
    node_budget: int
    most_forwards: int
    forwards: int
    at_deepest: StopReason

    certain = True
    prune_probability = confidence_low = confidence_high = 0.0
    budget_reason = np.zeros(REASONS, dtype=np.int64)
    table = np.zeros((0, REASONS + WIDTHS))

    @property
    def codes(self) -> np.ndarray:
        """Why a node that stays was not expanded: it is at the deepest level, or it was not in the beam."""
        return np.array([STOP_REASON_CODE[self.at_deepest]] + [STOP_REASON_CODE["beam"]] * (REASONS - 1))

    @property
    def nodes(self) -> int:
        """Nodes drafted at most: those asked about, and those that stay."""
        return self.top * (self.most_forwards - 1) + self.node_budget

    @property
    def candidates(self) -> int:
        """Children scored at most."""
        return self.top + (self.most_forwards - 1) * self.top**2

    @property
    def level_sizes(self) -> list[int]:
        """Nodes asked about in each forward."""
        return [1] + [self.top] * (self.forwards - 1)

    @property
    def tree_size(self) -> int:
        """Nodes to verify, the root included."""
        return 1 + min(self.node_budget, self.top * sum(self.level_sizes))


Rule = LevelRule | BeamRule


def device_rule(drafter: Drafter, state: Any, depth_limit: int) -> Rule | None:
    """The rule of a drafter in its state, None if it has none; `depth_limit` is 1 or more."""
    if isinstance(drafter, LevelDrafter) and drafter.draft_sampling == "deterministic":
        return drafter.rule_in(state, depth_limit)
    if not isinstance(drafter, Eagle2Drafter):
        return None
    forwards, at_deepest = deepest_level(drafter.max_depth, depth_limit)
    return BeamRule(drafter.beam_width, drafter.node_budget, drafter.max_depth, forwards, at_deepest)


# Arrays of nodes that the host reads. `append` writes the first six, `note_expanded` `stop_reason` to `level`.
COLUMNS = (
    "tokens", "parents", "depths", "draft_probs", "path_probs",
    "stop_reason", "confidence", "branching", "level",
    "order", "preferred", "path", "counters",
)  # fmt: skip
FLOATS = ("draft_probs", "path_probs", "confidence")
# Places in the array of counters: nodes, nodes to expand next, nodes to verify, draft forwards, rows of the draft, and
# accepted nodes.
SIZE, FRONTIER, VERIFIED, FORWARDS, ROWS, ACCEPTED = range(6)
EXPANDED = STOP_REASON_CODE["expanded"]
PENDING = 8  # committed tokens that the draft may not have seen yet
MOST_READ = 4  # counters that the host reads after a level
LEAST_PLACES = 16  # the counters need some of them


def places_for(node_budget: int) -> int:
    """Places of a tree that may draft so many nodes: for them, the root and the bin."""
    return bucket(max(node_budget + 2, LEAST_PLACES))


class TreeInputs:
    """What an iteration needs from the host, in one piece of memory, int64; `[1]` where nothing else is said.

    Attributes:
        pending, pending_count: committed tokens that the draft has not seen, the root last, `[PENDING]`; their number.
        draft_past, target_past: rows that both caches hold.
        node_budget, codes, budget_reason, prune, confidences, table: see `LevelRule`; the last three are floats.
    """

    def __init__(self, device: torch.device | None = None, buffer: Tensor | None = None):
        sizes = (PENDING, 1, 1, 1, 1, 1, REASONS, REASONS, 1, 2, MOST_FORWARDS * (REASONS + WIDTHS))
        self.buffer = torch.zeros(sum(sizes), dtype=torch.int64, device=device) if buffer is None else buffer
        self.pending, self.pending_count, self.draft_past, self.target_past, self.root_position, *rule = (
            self.buffer.split(sizes)
        )
        self.node_budget, self.codes, self.budget_reason = rule[:3]
        self.prune, self.confidences, table = (part.view(torch.float64) for part in rule[3:])
        self.table = table.view(MOST_FORWARDS, REASONS + WIDTHS)

    def fill(self, pending: list[int], draft_past: int, target_past: int, root_position: int, rule: Rule) -> None:
        """Write the inputs of one iteration, on the host."""
        for part, value in (
            (self.pending, pending + [0] * (PENDING - len(pending))),
            (self.pending_count, len(pending)),
            (self.draft_past, draft_past),
            (self.target_past, target_past),
            (self.root_position, root_position),
            (self.node_budget, rule.node_budget),
            (self.codes, rule.codes),
            (self.budget_reason, rule.budget_reason),
            (self.prune, rule.prune_probability),
            (self.confidences, (rule.confidence_low, rule.confidence_high)),
            (self.table[: len(rule.table)], rule.table),
        ):
            part.numpy()[...] = value


class DeviceTree:
    """The tree of one iteration; every iteration starts it anew.

    Args:
        capacity: places, one of them the bin; nodes that are not taken stand there too.
        top: children looked at per node.

    Attributes:
        report: int64 `[len(COLUMNS), capacity]`, everything that the host reads; floats stand there bit by bit.
        ancestors: bool `[capacity, capacity]`, row i marks what node i sees: its ancestors and itself.
        frontier: nodes to expand next, `counters[FRONTIER]` of them.
        flat_of: place of each node in the verification pass.
        row_of, slot_nodes: row of each node after the draft's committed ones, and the node of each such row.
        top_tokens, top_probs: children of the nodes of a level, best first, `[capacity, top]`.
        among: bool `[capacity, capacity]`, who sees whom among the verified nodes.
        finishes: whether `finish` follows the last `grow`.
    """

    finishes = False

    def __init__(self, capacity: int, top: int, device: torch.device):
        def integers(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int64, device=device)

        self.capacity, self.bin, self.top, self.device = capacity, capacity - 1, top, device
        self.report, self._blank = integers(len(COLUMNS), capacity), integers(len(COLUMNS), capacity)
        self.frontier, self.flat_of, self.row_of, self.slot_nodes = (integers(capacity) for _ in range(4))
        self.ids, self.positions = integers(capacity), integers(capacity)
        self.top_tokens = integers(capacity, top)
        self.top_probs = torch.zeros((capacity, top), dtype=torch.float64, device=device)
        self.ancestors = torch.eye(capacity, dtype=torch.bool, device=device)
        self.among = torch.zeros((capacity, capacity), dtype=torch.bool, device=device)
        self.inputs = TreeInputs(device)
        self._lanes = torch.arange(capacity, device=device)
        # Constants on the device: a number of the host in `where` would be copied there, which no graph may do.
        self._zero, self._bin = integers(), torch.full((), capacity - 1, device=device)
        self._masks: dict[tuple[int, int], Tensor] = {}
        # A tree that has only its root, whose token is still open.
        for name, everywhere, root in (
            ("parents", 0, -1),
            ("draft_probs", 0.0, 1.0),
            ("path_probs", 0.0, 1.0),
            ("stop_reason", NOT_DRAFTED, NOT_DRAFTED),
            ("confidence", torch.nan, torch.nan),
            ("branching", -1, -1),
            ("level", -1, -1),
        ):
            column = self.column(name, self._blank)
            column.fill_(everywhere)
            column[:1].fill_(root)
        self.column("counters", self._blank)[: VERIFIED + 1].fill_(1)  # SIZE, FRONTIER and VERIFIED

    def column(self, name: str, of: Tensor | None = None) -> Tensor:
        """One array of the report, `[capacity]`."""
        array = (self.report if of is None else of)[COLUMNS.index(name)]
        return array.view(torch.float64) if name in FLOATS else array

    def counter(self, which: int) -> Tensor:
        """One counter, `[1]`."""
        return self.column("counters")[which : which + 1]

    @property
    def level_counters(self) -> Tensor:
        """Nodes, nodes to expand next and nodes to verify: what the host may read after a level."""
        return self.column("counters")[:MOST_READ]

    def mask_for(self, queries: int, rows: int, dtype: torch.dtype) -> Tensor:
        """Where the mask of the verification pass stands, `[1, 1, queries, rows]`; made when first asked for."""
        if (queries, rows) not in self._masks:
            self._masks[queries, rows] = torch.zeros((1, 1, queries, rows), dtype=dtype, device=self.device)
        return self._masks[queries, rows]

    def start(self) -> None:
        """The root alone."""
        self.report.copy_(self._blank)
        self.frontier.zero_()
        root = self.inputs.pending.index_select(0, self.inputs.pending_count - 1)
        self.column("tokens")[:1].copy_(root)

    def lanes(self, count: int) -> Tensor:
        """0, 1, 2, ..., `[count]`."""
        return self._lanes[:count]

    def or_bin(self, real: Tensor, nodes: Tensor) -> Tensor:
        """The nodes, the bin where they are not real."""
        return torch.where(real, nodes, self._bin)

    def or_zero(self, real: Tensor, numbers: Tensor) -> Tensor:
        """The numbers, 0 where they are not real."""
        return torch.where(real, numbers, self._zero)

    def level_nodes(self, queries: int) -> Tensor:
        """The nodes to expand, `[queries]`, the bin where padded."""
        return self.or_bin(self.lanes(queries) < self.counter(FRONTIER), self.frontier[:queries])

    def enter_level(self) -> None:
        """Make the frontier that the next forward is about, where `grow` has not made it."""

    def grow(self, queries: int) -> None:
        """Use what the draft says after the nodes of the frontier: `top_tokens` and `top_probs`."""
        raise NotImplementedError

    def finish(self) -> None:
        """Choose what is verified, in trees with `finishes`."""
        raise NotImplementedError

    def kept(self) -> Tensor:
        """Which nodes are verified, bool `[capacity]`."""
        likely = self.column("path_probs") >= self.inputs.prune
        return likely & (self.lanes(self.capacity) < self.counter(SIZE))

    def breadth_first(self, kept: Tensor) -> Tensor:
        """Place of each verified node in the verification pass, the bin for the others; ids go level by level."""
        return self.or_bin(kept, kept.cumsum(0) - 1)

    def note_expanded(self, nodes: Tensor, confidence: Tensor, branching: Tensor) -> None:
        """Write what became of the nodes that a forward was about, all `[num_nodes]`."""
        stop_reason, level = torch.full_like(nodes, EXPANDED), self.counter(FORWARDS).expand_as(nodes)
        facts = [stop_reason, confidence.view(torch.int64), branching, level]
        first = COLUMNS.index("stop_reason")
        self.report[first : first + len(facts)].index_copy_(1, nodes, torch.stack(facts))

    def append(
        self, ids: Tensor, parents: Tensor, tokens: Tensor, probs: Tensor, path: Tensor, stop_reason: Tensor
    ) -> None:
        """Write new nodes, all `[num_nodes]`; those that are none have the id of the bin."""
        depths = self.column("depths").index_select(0, parents) + 1
        facts = [tokens, parents, depths, probs.view(torch.int64), path.view(torch.int64), stop_reason]
        self.report[: len(facts)].index_copy_(1, ids, torch.stack(facts))
        seen = self.ancestors.index_select(0, parents) | (self.lanes(self.capacity) == ids[:, None])
        self.ancestors.index_copy_(0, ids, seen)


class LevelTree(DeviceTree):
    """Grows by a `LevelRule`: width by confidence, depth by path probability, up to a budget."""

    def grow(self, queries: int) -> None:
        """Append the children that the rule allows below the nodes of the frontier, and make the next frontier."""
        inputs = self.inputs
        nodes = self.level_nodes(queries)
        probs, tokens = self.top_probs[:queries], self.top_tokens[:queries].flatten()
        rule = inputs.table.index_select(0, self.counter(FORWARDS))[0]
        kinds = confidence_class(probs[:, 0], inputs.confidences[:1], inputs.confidences[1:])
        branching = rule[REASONS:].index_select(0, kinds).long()
        self.note_expanded(nodes, probs[:, 0], branching)

        size = self.counter(SIZE)
        taken = ((self.lanes(self.top) < branching[:, None]) & (nodes < self.bin)[:, None]).flatten()
        place = taken.cumsum(0)
        taken = taken & (place <= inputs.node_budget - size + 1)
        ids = self.or_bin(taken, size - 1 + place)
        parents = nodes[:, None].expand(-1, self.top).flatten()
        probs = probs.flatten()
        path = self.column("path_probs").index_select(0, parents) * probs
        size = size + taken.sum(0, keepdim=True)

        over_budget = (inputs.budget_reason > 0) & (size > inputs.node_budget)
        reason = first_reason(path, rule[:REASONS], over_budget)
        self.append(ids, parents, tokens, probs, path, inputs.codes.index_select(0, reason))
        expandable = taken & (reason == REASONS - 1)
        self.frontier.index_copy_(0, self.or_bin(expandable, expandable.cumsum(0) - 1), ids)
        verified = self.counter(VERIFIED) + (taken & (path >= inputs.prune)).sum(0, keepdim=True)
        counters = [size, expandable.sum(0, keepdim=True), verified, self.counter(FORWARDS) + 1]
        self.level_counters.copy_(torch.cat(counters))


class BeamTree(DeviceTree):
    """Keeps the best of all that a beam has scored (EAGLE-2), of `candidates` at most.

    Candidates of all levels stand in one row, each level sorted, best first. They get nodes when the draft is asked
    about them, or when they stay; `nodes` is -1 before. What is no candidate, padding or of probability 0, has the
    value -1.
    """

    finishes = True

    def __init__(self, capacity: int, top: int, candidates: int, device: torch.device):
        super().__init__(capacity, top, device)
        room = candidates + bucket(top) * top  # the padding of the last level stands after it
        self.values, self.probs = (torch.zeros(room, dtype=torch.float64, device=device) for _ in range(2))
        self.parents, self.tokens, self.depths, self.nodes = (
            torch.zeros(room, dtype=torch.int64, device=device) for _ in range(4)
        )
        self._is_kept = torch.zeros(capacity, dtype=torch.bool, device=device)
        self._room, self._candidate_lanes = room, torch.arange(room, device=device)

    def start(self) -> None:
        """The root alone, and no candidate."""
        super().start()
        self.values.fill_(-1.0)
        self.nodes.fill_(-1)

    def enter_level(self) -> None:
        """The best candidates of the last level get nodes: they are the frontier."""
        places = self._level_start(self.counter(FORWARDS) - 1) + self._candidate_lanes[: self.top]
        real = self.values.index_select(0, places) >= 0
        ids = self._append(places, real)
        self.nodes.index_copy_(0, places, ids)
        self.frontier[: self.top].copy_(ids)
        self.counter(FRONTIER).copy_(real.sum(0, keepdim=True))

    def grow(self, queries: int) -> None:
        """Score the children of the frontier."""
        nodes = self.level_nodes(queries)
        probs, tokens = self.top_probs[:queries], self.top_tokens[:queries].flatten()
        self.note_expanded(nodes, probs[:, 0], torch.zeros_like(nodes))
        parents = nodes[:, None].expand(-1, self.top).flatten()
        probs = probs.flatten()
        values = self.column("path_probs").index_select(0, parents) * probs
        values = torch.where((probs > 0) & (parents < self.bin), values, torch.full_like(values, -1.0))
        values, order = values.sort(descending=True, stable=True)

        first = self._level_start(self.counter(FORWARDS))
        places = first + self._candidate_lanes[: len(values)]
        depths = self.column("depths").index_select(0, parents) + 1
        self.values.index_copy_(0, places, values)
        for array, facts in (
            (self.probs, probs),
            (self.parents, parents),
            (self.tokens, tokens),
            (self.depths, depths),
        ):
            array.index_copy_(0, places, facts.index_select(0, order))
        self.counter(FORWARDS).add_(1)

    def finish(self) -> None:
        """The best of all candidates stay; ties go to the shallower one, then to the earlier one."""
        order = self.values.sort(descending=True, stable=True).indices[: self.capacity]
        rank = self._candidate_lanes[: len(order)]
        stays = (rank < self.inputs.node_budget) & (self.values.index_select(0, order) >= 0)
        known = self.nodes.index_select(0, order)
        ids = self._append(order, stays & (known < 0))
        ids = self.or_bin(stays, torch.where(known < 0, ids, known))

        self._is_kept.zero_()
        self._is_kept[:1].fill_(True)
        self._is_kept.index_fill_(0, ids, True)
        parents = self.or_bin(stays, self.parents.index_select(0, order))
        children = torch.zeros_like(self.frontier).index_add_(0, parents, torch.ones_like(parents))
        branching = self.column("branching")
        branching.copy_(torch.where(self.column("level") >= 0, children, branching))
        self.counter(VERIFIED).add_(stays.sum(0, keepdim=True))

    def kept(self) -> Tensor:
        """Which nodes are verified, bool `[capacity]`: the root and the best; never the bin."""
        return self._is_kept & (self.lanes(self.capacity) < self._bin)

    def breadth_first(self, kept: Tensor) -> Tensor:
        """Place of each verified node in the verification pass, the bin for the others; by depth, then by id."""
        last = torch.full_like(self.frontier, self.capacity)
        order = torch.where(kept, self.column("depths"), last).sort(stable=True).indices
        return self.or_bin(kept, torch.empty_like(order).index_copy_(0, order, self.lanes(self.capacity)))

    def _level_start(self, forward: Tensor) -> Tensor:
        """Where the candidates of a forward begin: the first has `top`, every other `top` below each of `top` nodes."""
        return (self.top + (forward - 1) * self.top**2).clamp(min=0)

    def _append(self, places: Tensor, wanted: Tensor) -> Tensor:
        """Give candidates nodes; their ids, the bin where not wanted."""
        size = self.counter(SIZE)
        ids = self.or_bin(wanted, size - 1 + wanted.cumsum(0))
        size.add_(wanted.sum(0, keepdim=True))
        deepest = (self.depths.index_select(0, places) == self.counter(FORWARDS)).long()
        stop_reason = self.inputs.codes.index_select(0, 1 - deepest)
        self.append(
            ids,
            self.parents.index_select(0, places),
            self.tokens.index_select(0, places),
            self.probs.index_select(0, places),
            self.values.index_select(0, places),
            stop_reason,
        )
        return ids
