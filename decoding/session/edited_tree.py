"""Carries edits out: on a draft before verification, on the target's rows, and in the reasons of the record."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from decoding.common.errors import require
from decoding.drafters.base import ProbabilitySource
from decoding.sampling.sampling import Sampling
from decoding.trace.edits import Edits, Path, edited_nodes, touches_first_child
from decoding.trace.records import ForcedTrace, IterationTrace
from decoding.tree.draft import Draft, TokenTree, TreePaths
from decoding.verifiers.base import Verifier

# Verifiers that draw from the target's law and only look whether a child has the token: any tree will do.
TREE_BLIND = ("nss", "greedy")
# Verifiers that hold only the first child of a node against the law it was drawn from; others are only gone on through.
FIRST_CHILD = ("naive", "naive_tree", "block")


def nodes_by_path(tree: TokenTree) -> dict[Path, int]:
    """Every node of a tree by its token path; the root's is empty."""
    return {path: node for node, path in enumerate(TreePaths().of(tree, np.arange(tree.size)))}


def edit_draft(draft: Draft, source: ProbabilitySource, edits: Edits, text_of: Callable[[int], str]) -> Draft:
    """The draft with nodes put in and taken out; what is put in stands last among its siblings.

    The draft's law after the parent of a node that is put in is asked for where the drafter never did, which is one
    more draft forward.

    Raises:
        SettingsError: an edit does not fit this tree.
    """
    require(
        draft.law != "none" or not edits.force_in,
        "This method drafts nothing: choose one that does before a node is forced in.",
    )
    ids, verified = nodes_by_path(draft.tree), set(draft.order.tolist())
    rows, added = list(draft.rows), []
    for path in sorted(edits.force_in, key=len):
        node = ids.get(path)
        if node is None:
            node = ids[path] = _add(draft.tree, rows, source, path, ids, text_of)
            added.append(node)
        else:
            require(node not in verified, f"{_named(path, text_of)} is in the tree already: there is nothing to add.")
        verified.update(np.flatnonzero(draft.tree.ancestors[node]).tolist())  # with all above it
    for path in edits.force_out:
        node = _verified(path, ids, verified, text_of)
        verified -= set(np.flatnonzero(draft.tree.ancestors[:, node]).tolist())
    for path in (*edits.accept, *edits.reject):
        _verified(path, ids, verified, text_of)
    keep = np.zeros(draft.tree.size, dtype=bool)
    keep[list(verified)] = True
    drawn = draft.drawn if draft.drawn is None else np.append(draft.drawn, np.array(added, dtype=np.int64))
    return replace(draft, order=draft.tree.breadth_first(keep), rows=tuple(rows), drawn=drawn)


def edit_rows(logits: Tensor, draft: Draft, edits: Edits) -> Tensor:
    """The target's raw logits `[num_verified + 1, vocab_size]` with forced verdicts in them: the rest is -inf.

    Temperature and top-p come after it, so what is left of a row is renormalised as they ask.

    Raises:
        SettingsError: nothing is left of a row.
    """
    if not edits.rows:
        return logits
    edited, ids = logits.clone(), nodes_by_path(draft.tree)
    row_of = {int(node): row for row, node in enumerate(draft.order)}
    for path, (only, removed) in edits.rows.items():
        row = edited[row_of[ids[path]]]
        if only is not None:
            kept = float(row[only])
            require(kept > -torch.inf, "The target cannot emit the token forced to pass: choose another one.")
            row.fill_(-torch.inf)
            row[only] = kept
        row[list(removed)] = -torch.inf
        require(bool(row.isfinite().any()), "Every token that the target can emit here is forced to fail: keep one.")
    return edited


def bias(edits: Edits, verifier: Verifier, sampling: Sampling, first_child: bool = True) -> str:
    """One sentence on why the output's law is no longer the target's; empty where it still is.

    A forced verdict changes the target itself. The shape of the tree matters only to verifiers that hold a child
    against the law it was drawn from: not to NSS and greedy ones, so deterministic trees can be edited freely, and
    at temperature 0 to none, since all that is ever emitted is the target's favourite. Of the others, naive and
    block verification hold only the first child against it. That nothing is said of an edit means that the text
    keeps the target's law over all seeds; choosing the edit after seeing the draws of a seed chooses among texts.

    Args:
        first_child: a node put in or taken out is the first verified child of its parent.
    """
    if edits.accept or edits.reject:
        return "Forced verdicts replace the target's own law, so the text no longer follows it."
    if not edits or sampling.greedy or verifier.name in TREE_BLIND:
        return ""
    if verifier.name in FIRST_CHILD and not first_child:
        return ""
    moved = "a node put in" if edits.force_in else "a tree with a node taken out"
    moved = "what was put in or taken out" if edits.force_in and edits.force_out else moved
    return (
        f"{verifier.label} verification relies on children being drawn from the draft's law, and "
        f"{moved} by hand is not, so the text no longer follows the target's law."
    )


def explain_edits(iteration: IterationTrace, edits: Edits, verifier: Verifier, sampling: Sampling) -> IterationTrace:
    """The record with what was edited, whether that biases the text, and reasons of edited nodes that say so."""
    if not edits:
        return iteration
    first = not iteration.nodes or touches_first_child(iteration, edits)
    forced = tuple(ForcedTrace(kind, path) for kind, path in edits)
    iteration = replace(iteration, forced=forced, bias=bias(edits, verifier, sampling, first))
    if not iteration.nodes:
        return iteration
    return replace(iteration, nodes=edited_nodes(iteration, edits))


def _add(tree, rows, source, path: Path, ids: dict[Path, int], text_of) -> int:
    """Append one node below its parent, with the draft's probability of it; returns its id."""
    parent = ids.get(path[:-1])
    require(parent is not None, f"{_named(path[:-1], text_of)} is not in the tree: force it in first.")
    require(
        len(path) <= source.depth_limit,
        f"{_named(path, text_of)} is deeper than the text may grow: raise max_new_tokens.",
    )
    places = {int(node): (level, row) for level, (nodes, _) in enumerate(rows) for row, node in enumerate(nodes)}
    if parent not in places:
        law = source.expand(tree, np.array([parent]))
        rows.append((np.array([parent]), law))
        places[parent] = len(rows) - 1, 0
        tree.level[parent], tree.confidence[parent] = len(rows) - 1, float(law.max())
        tree.set_growth(np.array([parent]), "expanded")
    level, row = places[parent]
    law = rows[level][1][row]
    require(0 <= path[-1] < len(law), f"There is no token {path[-1]}: ids go from 0 to {len(law) - 1}.")
    tree.branching[parent] = max(int(tree.branching[parent]), 0) + 1
    return int(tree.append(np.array([parent]), np.array([path[-1]]), np.array([float(law[path[-1]])]))[0])


def _verified(path: Path, ids: dict[Path, int], verified: set[int], text_of) -> int:
    """The node at a path that goes to verification."""
    node = ids.get(path)
    require(node is not None, f"{_named(path, text_of)} is not in the tree drafted here: force it in first.")
    require(node in verified, f"{_named(path, text_of)} is drafted but not verified here: force it in first.")
    return node


def _named(path: Path, text_of: Callable[[int], str]) -> str:
    """A node in words, the whole path of it."""
    return "The node " + " > ".join(repr(text_of(token)) for token in path) if path else "The root"
