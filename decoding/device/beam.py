"""A tree on the device that keeps the best of all that a beam has scored (EAGLE-2)."""

import torch
from torch import Tensor

from decoding.device.tree import FORWARDS, FRONTIER, SIZE, VERIFIED, DeviceTree
from decoding.engines.static_cache import bucket


class BeamTree(DeviceTree):
    """Candidates of all levels stand in one row, each level sorted, best first.

    They get nodes when the draft is asked about them, or when they stay. What is no candidate, padding or of
    probability 0, has the value -1.

    Args:
        candidates: children scored in one iteration at most.

    Attributes:
        values, probs, parents, tokens, depths, nodes: of each candidate; `nodes` is -1 without one.
    """

    finishes = True

    def __init__(self, capacity: int, top: int, candidates: int, device: torch.device):
        super().__init__(capacity, top, device)
        room = candidates + bucket(top) * top  # the padding of the last level stands behind it
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
        growth = self.inputs.codes.index_select(0, 1 - deepest)
        self.append(
            ids,
            self.parents.index_select(0, places),
            self.tokens.index_select(0, places),
            self.probs.index_select(0, places),
            self.values.index_select(0, places),
            growth,
        )
        return ids
