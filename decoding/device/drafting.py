"""The draft's forwards over a tree on the device: the committed tokens it lacks, then level by level."""

from dataclasses import dataclass

import torch
from torch import Tensor

from decoding.device.tree import FRONTIER, ROWS, DeviceTree
from decoding.engines.kv_cache import KVBlocks
from decoding.engines.static import StaticPass, visible_rows
from decoding.models.pair import match_vocabulary


@dataclass(frozen=True)
class Asked:
    """How the draft's logits are read.

    Attributes:
        width: vocabulary size of the target.
        temperature: of the draft.
        rows: give logits and probabilities back, for the record.
    """

    width: int
    temperature: float
    rows: bool


def pending_pass(
    run: StaticPass, blocks: KVBlocks, tree: DeviceTree, asked: Asked, queries: int, rows: int
) -> tuple[Tensor, Tensor] | None:
    """Start the tree and ask the draft about its root, behind the committed tokens that it has not seen."""
    tree.start()
    inputs, place = tree.inputs, tree.lanes(queries)
    slots = inputs.draft_past + place
    positions = tree.or_zero(place < inputs.pending_count, inputs.root_position - inputs.pending_count + 1 + place)
    mask = run.mask(torch.arange(rows, device=tree.device) <= slots[:, None])
    logits = run(blocks, inputs.pending[:queries], positions, slots, mask, keep=inputs.pending_count - 1)
    return look(tree, logits, asked)


def level_pass(
    run: StaticPass, blocks: KVBlocks, tree: DeviceTree, asked: Asked, queries: int, rows: int
) -> tuple[Tensor, Tensor] | None:
    """Ask the draft about the nodes of the frontier; `[queries, ...]`, the last ones padding."""
    tree.enter_level()
    inputs, nodes = tree.inputs, tree.level_nodes(queries)
    real = nodes < tree.bin
    drafted = tree.counter(ROWS)
    row = drafted + tree.lanes(queries)
    tree.row_of.index_copy_(0, nodes, row)
    tree.row_nodes.index_copy_(0, tree.or_bin(real, row), nodes)

    past = inputs.draft_past + inputs.pending_count
    slots = past + row
    written = tree.lanes(tree.capacity) < drafted
    among = tree.ancestors.index_select(0, nodes).index_select(1, tree.row_nodes) & written
    depths = tree.column("depths").index_select(0, nodes)
    positions = tree.or_zero(real, inputs.root_position + depths)
    ids = tree.column("tokens").index_select(0, nodes)
    mask = run.mask(visible_rows(past, among, slots, rows))
    logits = run(blocks, ids, positions, slots, mask, keep=queries)
    drafted.add_(tree.counter(FRONTIER))
    return look(tree, logits, asked)


def look(tree: DeviceTree, logits: Tensor, asked: Asked) -> tuple[Tensor, Tensor] | None:
    """Note the best children of each node; logits and probabilities where they are asked for."""
    logits = match_vocabulary(logits, asked.width).float()
    probs = torch.softmax(logits if asked.temperature == 1 else logits / asked.temperature, -1)
    best = probs.topk(tree.top, dim=-1)
    count = logits.shape[0]
    tree.top_tokens[:count].copy_(best.indices)
    tree.top_probs[:count].copy_(best.values)
    return (logits, probs) if asked.rows else None
