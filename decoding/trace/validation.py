"""What the types of a recorded run cannot say: ids in range, parents before children, values and lengths that agree."""

from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np

from decoding.common.settings import wrong_sampling
from decoding.trace import records
from decoding.trace.codec import RecordError, shown

MAX_TREE_TEXT = 2**20  # characters of the tokens of one tree
# What goes together: the likeliest tokens after each node, and what models and verifiers give them.
TOPS = {"draft_top_ids": ("draft_top_probs",), "target_top_ids": ("target_top_probs", "tested_top_probs")}
# Where logits must be a distribution: in the rows of the nodes that have this.
COMPUTED = {"draft_logits": "draft_level", "target_logits": "flat_index"}
Problems = Iterator[str]  # a sentence each; the first ends the check, so that the next may build on what holds


def check_run(run: records.RunTrace) -> None:
    """Raise `RecordError` where a run contradicts itself, so that no figure has to."""
    for problem in _of_run(run):
        raise RecordError(problem)


def _of_run(run: records.RunTrace) -> Problems:
    if run.format_version != records.FORMAT_VERSION:
        yield f"format_version {run.format_version} is not {records.FORMAT_VERSION}, the version of this program"
    if len(run.prompt_ids) != len(run.prompt_texts):
        yield f"prompt_ids and prompt_texts differ in length, {len(run.prompt_ids)} and {len(run.prompt_texts)}"
    if wrong := wrong_sampling(run.sampling):
        yield f"sampling: {wrong}"
    for place, iteration in enumerate(run.iterations):
        yield from (f"iterations[{place}]: {problem}" for problem in _of_iteration(iteration))
    if run.iterations:
        first, prompt = run.iterations[0], len(run.prompt_ids)
        if (first.index, first.prefix_length) != (0, prompt):
            yield (
                f"iterations[0]: with index {first.index} and prefix_length {first.prefix_length} it is not the first "
                f"one, right after the prompt of {prompt} tokens"
            )
    for place, (before, after) in enumerate(pairwise(run.iterations), start=1):
        yield from (f"iterations[{place}]: {problem}" for problem in _between(before, after))
    # More than the iterations committed is right where none of them were recorded.
    if run.totals.new_tokens < len(run.output_ids):
        yield f"totals.new_tokens {run.totals.new_tokens} is less than the {len(run.output_ids)} tokens committed"


def _between(before: records.IterationTrace, after: records.IterationTrace) -> Problems:
    if after.index != before.index + 1:
        yield f"index {after.index} does not follow the previous iteration"
    # A fork may have switched on or off that one more setting moves, which stands among the settings then.
    if before.history is not None and after.history is not None and before.settings.keys() == after.settings.keys():
        yield from _of_same_names(
            "history moves different settings than before", before.history.before, after.history.before
        )
    if after.prefix_length != before.prefix_length + len(before.committed_ids):
        yield f"prefix_length {after.prefix_length} does not follow the previous iteration"
    if after.started_s < before.ended_s:
        yield f"started_s {after.started_s} is before the previous iteration ends"


def _of_iteration(trace: records.IterationTrace) -> Problems:
    if not trace.tree_depth <= trace.verified <= trace.drafted:
        counts = f"tree_depth {trace.tree_depth}, verified {trace.verified} and drafted {trace.drafted}"
        yield f"{counts} contradict each other"
    if trace.ended_s < trace.started_s or (trace.timed and trace.ended_s == trace.started_s):
        yield f"ended_s {trace.ended_s} is not after started_s {trace.started_s}"
    if isinstance(least := trace.settings.get("prune_probability", 0.0), str):
        yield f"settings: prune_probability {shown(least)} is not a number"
    if trace.sampling is not None and (wrong := wrong_sampling(trace.sampling)):
        yield f"sampling: {wrong}"
    if trace.history is not None:
        moved = trace.history.before, trace.history.after
        yield from _of_same_names("history: before and after name different settings", *moved)
    if trace.rule.value == "chance" and len(trace.rule.factors) != 2:
        yield f"rule: factors are {len(trace.rule.factors)}, not two"
    yield from _of_nodes(trace.nodes)
    last = len(trace.nodes) - 1 if trace.nodes else trace.drafted
    yield from _of_order(trace, last)
    yield from _of_committed(trace, last)
    for place, step in enumerate(trace.steps):
        yield from (f"steps[{place}]: {problem}" for problem in _of_step(step, len(trace.nodes)))
    yield from _of_tops(trace)
    yield from _of_logits(trace)
    for name in ("kv_target", "kv_draft"):
        if (kv := getattr(trace, name)) is not None:
            yield from (f"{name}: {problem}" for problem in _of_kv(kv, last))


def _of_nodes(nodes: tuple[records.NodeTrace, ...]) -> Problems:
    """Node 0 is the root; parents come before children, one level above them."""
    for place, node in enumerate(nodes):
        where = f"nodes[{place}]"
        if node.node_id != place:
            yield f"{where}: node_id {node.node_id} is not its index"
        if (node.verdict == "root") != (place == 0):
            yield f"{where}: verdict is {node.verdict}, and node 0 alone is the root"
        if place == 0 and (node.parent_id, node.depth) != (-1, 0):
            yield f"{where}: parent_id {node.parent_id} and depth {node.depth} are not those of a root"
        if place and not 0 <= node.parent_id < place:
            yield f"{where}: parent_id {node.parent_id} is not an earlier node"
        if place and node.depth != nodes[node.parent_id].depth + 1:
            yield f"{where}: depth {node.depth} is not its parent's + 1"
    if (length := sum(len(node.text) for node in nodes)) > MAX_TREE_TEXT:
        yield f"the tokens of its tree have {length:,} characters, more than {MAX_TREE_TEXT:,}"


def _of_order(trace: records.IterationTrace, last: int) -> Problems:
    """The order of the verification pass names each verified node once, parents first, and the nodes agree."""
    order, nodes = trace.flatten_order, trace.nodes
    for name, ids in (("flatten_order", order), ("drawn", trace.drawn)):
        if ids and max(ids) > last:
            yield f"{name} has an unknown node, {max(ids)}"
    if 0 in trace.drawn:
        yield "drawn has the root, 0"
    if not nodes:
        if trace.steps:
            yield f"it has {len(trace.steps)} steps without nodes"
        return
    if len(order) != trace.verified + 1 or order[0] != 0:
        yield f"flatten_order is not the root and the {trace.verified} verified nodes"
    rows = {node: row for row, node in enumerate(order)}
    if len(rows) != len(order):
        yield "flatten_order names a node twice"
    for node in nodes:
        if node.flat_index != rows.get(node.node_id):
            yield f"nodes[{node.node_id}]: flat_index {node.flat_index} contradicts flatten_order"
    for place in order[1:]:
        if rows.get(nodes[place].parent_id, len(rows)) > rows[place]:
            yield f"flatten_order: node {place} comes before its parent, or without it"


def _of_committed(trace: records.IterationTrace, last: int) -> Problems:
    """Accepted nodes form a path from the root, and they and the final token are what was committed."""
    ids, texts = len(trace.committed_ids), len(trace.committed_texts)
    if ids != texts:
        yield f"committed_ids and committed_texts differ in length, {ids} and {texts}"
    if ids != len(trace.accepted) + (trace.final_kind != "none"):
        yield f"committed_ids are {ids}, which are not the {len(trace.accepted)} accepted nodes and the final token"
    if not ids:
        yield "it commits no token"
    for parent, node in pairwise((0, *trace.accepted)):
        if not parent < node <= last:
            yield f"accepted is not a path of known nodes: {node}"
        if trace.nodes and trace.nodes[node].parent_id != parent:
            yield f"accepted is not a path from the root: {node}"


def _of_step(step: records.VerificationStep, nodes: int) -> Problems:
    for name in ("node_id", "child_id", "rival_id"):
        if (node := getattr(step, name)) is not None and node >= nodes:
            yield f"{name} {node} is unknown"
    if (ids := len(step.residual_ids)) != (probs := len(step.residual_probs)):
        yield f"residual_ids and residual_probs differ in length, {ids} and {probs}"


def _of_tops(trace: records.IterationTrace) -> Problems:
    for ids_name, names in TOPS.items():
        ids: np.ndarray | None = getattr(trace, ids_name)
        if ids is not None:
            if ids.ndim != 2 or len(ids) != len(trace.nodes) or ids.dtype.kind != "i":
                yield f"{ids_name} of shape {ids.shape} and type {ids.dtype} does not have one row per node"
            if ids.shape[1] > records.TOP_TOKENS:
                yield f"{ids_name} has {ids.shape[1]} tokens per node, more than {records.TOP_TOKENS}"
            if (ids < -1).any():
                yield f"{ids_name} has the id {ids.min()}"
            if getattr(trace, names[0]) is None:
                yield f"{ids_name} has no {names[0]} to go with"
        for name in names:
            probs: np.ndarray | None = getattr(trace, name)
            if probs is None:
                continue
            if ids is None:
                yield f"{name} has no {ids_name} to go with"
                continue
            if probs.shape != ids.shape or probs.dtype.kind != "f":
                yield f"{name} of shape {probs.shape} and type {probs.dtype} does not have the rows of {ids_name}"
            known = probs[ids >= 0]
            wrong = known[~((known >= 0) & (known <= 1 + records.ROUNDING))]
            if len(wrong):
                yield f"{name} has a probability outside 0..1, {wrong[0]}"


def _of_logits(trace: records.IterationTrace) -> Problems:
    tokens = [*(node.token_id for node in trace.nodes), *(token for each in trace.interventions for token in each.path)]
    for name, computed in COMPUTED.items():
        logits: np.ndarray | None = getattr(trace, name)
        if logits is None:
            continue
        if logits.ndim != 2 or len(logits) != len(trace.nodes) or logits.dtype.kind != "f":
            yield f"{name} of shape {logits.shape} and type {logits.dtype} does not have one row per node"
        if max(tokens, default=0) >= logits.shape[1]:
            yield f"{name} has {logits.shape[1]} tokens per node, and its tree the token {max(tokens, default=0)}"
        usable = np.isfinite(logits.max(axis=1))  # no nan, no infinity, and not nothing but -inf
        for node in trace.nodes:
            if getattr(node, computed) is not None and not usable[node.node_id]:
                yield f"{name} has a row that is not a distribution, at node {node.node_id}"
    widths = {rows.shape[1] for rows in (trace.draft_logits, trace.target_logits) if rows is not None}
    if len(widths) > 1:
        yield f"draft_logits and target_logits differ in tokens per node, {' and '.join(map(str, widths))}"


def _of_kv(kv: records.KVTrace, last: int) -> Problems:
    if len(kv.slot_nodes) not in (0, kv.slots_written):
        yield f"slot_nodes are {len(kv.slot_nodes)}, not one node for each of {kv.slots_written} slots written"
    if max(kv.slot_nodes, default=0) > last:
        yield f"slot_nodes has an unknown node, {max(kv.slot_nodes)}"
    if max(kv.moved_from, default=-1) >= kv.slots_before + kv.slots_written:
        yield f"moved_from has an unknown slot, {max(kv.moved_from)}"


def _of_same_names(
    problem: str, first: Mapping[str, records.Setting], second: Mapping[str, records.Setting]
) -> Problems:
    if first.keys() != second.keys():
        yield f"{problem}, {shown(', '.join(first))} and {shown(', '.join(second))}"
