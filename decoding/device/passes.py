"""The passes of an iteration over a tree on the device, and what is made of them.

The draft reads the committed tokens that it lacks, then the tree level by level; the target verifies the tree greedily:
order and mask, its pass, acceptance, rows that move.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from decoding.device.tree import ACCEPTED, FRONTIER, ROWS, VERIFIED, DeviceTree
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


def order_nodes(run: StaticPass, tree: DeviceTree, queries: int, mask: Tensor) -> None:
    """Lay out the verification pass, breadth first, without the nodes that are not verified.

    Args:
        mask: where the mask of the pass goes, `[1, 1, queries, rows]`.
    """
    tree.flat_of.copy_(tree.breadth_first(tree.kept()))
    tree.column("order").index_copy_(0, tree.flat_of, tree.lanes(tree.capacity))

    nodes, real = verified_nodes(tree, queries)
    among = tree.ancestors.index_select(0, nodes).index_select(1, nodes) & real
    tree.among[:queries, :queries].copy_(among)
    depths = tree.column("depths").index_select(0, nodes)
    tree.ids[:queries].copy_(tree.column("tokens").index_select(0, nodes))
    tree.positions[:queries].copy_(tree.or_zero(real, tree.inputs.root_position + depths))
    past = tree.inputs.target_past
    mask.copy_(run.mask(visible_rows(past, among, past + tree.lanes(queries), mask.shape[-1])))


def verify_pass(
    run: StaticPass, blocks: KVBlocks, tree: DeviceTree, queries: int, mask: Tensor, rows: bool
) -> Tensor | None:
    """What the target prefers after each node; its logits `[queries, vocab_size]` where `rows` asks for them."""
    slots = tree.inputs.target_past + tree.lanes(queries)
    logits = run(blocks, tree.ids[:queries], tree.positions[:queries], slots, mask, keep=queries)
    tree.column("preferred")[:queries].copy_(logits.argmax(-1))
    return logits if rows else None


def accept(tree: DeviceTree, queries: int) -> None:
    """Keep the nodes all of whose path is what the target prefers; siblings differ, so that they are one path.

    `path` then holds the accepted node of depth 1, 2, ..., and the counter how many there are.
    """
    nodes, real = verified_nodes(tree, queries)
    lanes = tree.lanes(queries)
    parent = tree.column("parents").index_select(0, nodes).clamp(min=0)
    wanted = tree.column("preferred").index_select(0, tree.flat_of.index_select(0, parent))
    wrong = (tree.ids[:queries] != wanted) & (lanes > 0)
    accepted = ~(tree.among[:queries, :queries] & wrong).any(1) & real
    depth = tree.column("depths").index_select(0, nodes)
    below = accepted & (lanes > 0)
    tree.column("path").index_copy_(0, tree.or_bin(below, depth - 1), nodes)
    tree.counter(ACCEPTED).copy_(below.sum(0, keepdim=True))


def keep_target_rows(blocks: KVBlocks, tree: DeviceTree, longest: int) -> None:
    """Move the rows of the accepted path behind the root's; `longest` is the most nodes that it may have."""
    nodes, real = _path(tree, longest)
    past = tree.inputs.target_past
    places = past + 1 + tree.lanes(longest)
    sources = past + tree.flat_of.index_select(0, nodes)
    blocks.move_rows(torch.where(real, sources, places), places)


def keep_draft_rows(blocks: KVBlocks, tree: DeviceTree, longest: int) -> None:
    """Move the rows of the accepted path, as far as the draft has processed it, behind the committed ones."""
    nodes, real = _path(tree, longest)
    processed = real & (tree.column("level").index_select(0, nodes) >= 0)
    past = tree.inputs.draft_past + tree.inputs.pending_count
    places = past + tree.lanes(longest)
    sources = past + tree.row_of.index_select(0, nodes)
    blocks.move_rows(torch.where(processed, sources, places), places)


def verified_nodes(tree: DeviceTree, queries: int) -> tuple[Tensor, Tensor]:
    """The nodes of the verification pass in order, the bin where padded, and which are real; `[queries]` each."""
    real = tree.lanes(queries) < tree.counter(VERIFIED)
    return tree.or_bin(real, tree.column("order")[:queries]), real


def _path(tree: DeviceTree, longest: int) -> tuple[Tensor, Tensor]:
    real = tree.lanes(longest) < tree.counter(ACCEPTED)
    return tree.or_bin(real, tree.column("path")[:longest]), real
