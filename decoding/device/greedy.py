"""Greedy verification of a tree on the device: order and mask, the target's pass, acceptance, rows that move."""

import torch
from torch import Tensor

from decoding.device.tree import ACCEPTED, VERIFIED, DeviceTree
from decoding.engines.kv_cache import KVBlocks
from decoding.engines.static import StaticPass, visible_rows


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
