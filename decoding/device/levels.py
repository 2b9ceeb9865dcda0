"""A tree on the device that grows level by level: width by confidence, depth by path probability, up to a budget."""

import torch
from torch import Tensor

from decoding.device.rules import REASONS
from decoding.device.tree import FORWARDS, SIZE, VERIFIED, DeviceTree


class LevelTree(DeviceTree):
    """Grows by a `LevelRule`, which the host has written into `inputs`."""

    def grow(self, queries: int) -> None:
        """Append the children that the rule allows below the nodes of the frontier, and make the next frontier."""
        inputs = self.inputs
        nodes = self.level_nodes(queries)
        probs, tokens = self.top_probs[:queries], self.top_tokens[:queries].flatten()
        rule = inputs.table.index_select(0, self.counter(FORWARDS))[0]
        branching = self._branching(probs[:, 0], rule[REASONS:])
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

        reason = self._reasons(path, rule[:REASONS], size)
        self.append(ids, parents, tokens, probs, path, inputs.codes.index_select(0, reason))
        expandable = taken & (reason == REASONS - 1)
        self.frontier.index_copy_(0, self.or_bin(expandable, expandable.cumsum(0) - 1), ids)
        verified = self.counter(VERIFIED) + (taken & (path >= inputs.prune)).sum(0, keepdim=True)
        counters = [size, expandable.sum(0, keepdim=True), verified, self.counter(FORWARDS) + 1]
        self.level_counters.copy_(torch.cat(counters))

    def _branching(self, confidence: Tensor, widths: Tensor) -> Tensor:
        """Children that each node may have, `[num_nodes]`."""
        low, high = self.inputs.confidences[:1], self.inputs.confidences[1:]
        branching = torch.where(confidence < low, widths[2], widths[1])
        return torch.where(confidence >= high, widths[0], branching).long()

    def _reasons(self, path: Tensor, thresholds: Tensor, size: Tensor) -> Tensor:
        """Index of the first reason that holds for each new node, `[num_nodes]`; the last one always does."""
        over = (self.inputs.budget_reason > 0) & (size > self.inputs.node_budget)
        holds = (path[:, None] < thresholds) | over
        return holds.to(torch.uint8).argmax(1)
