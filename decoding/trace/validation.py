"""What the types of a recorded run cannot say: ids in range, parents before children, lengths that agree."""

from collections.abc import Iterable

import numpy as np

from decoding.common.settings import wrong_sampling
from decoding.trace.codec import RecordError
from decoding.trace.records import (
    FORMAT_VERSION,
    TOP_TOKENS,
    HistoryTrace,
    IterationTrace,
    KVTrace,
    NodeTrace,
    PhaseTimes,
    RuleTrace,
    RunTrace,
    SamplingTrace,
    Setting,
)

ROUNDING = 1e-4  # probabilities are float32 sums
# Bounds far above any run: below them every number, sum and axis that a figure makes of a file stays drawable.
MAX_COUNT, MAX_NODES, MAX_VERIFIED, MAX_DEPTH, MAX_S = 2**48, 2**14, 2**13, 2**8, 1e9
MAX_STEPS, MAX_FORCED = 2**15, 2**9
MAX_SENTENCE, MAX_NAME, MAX_TREE_TEXT = 1000, 100, 2**20  # characters
MAX_FACTOR = 1e6


def check_run(run: RunTrace) -> None:
    """Raise `RecordError` where a run contradicts itself, so that no figure has to."""
    _need(run.format_version == FORMAT_VERSION, "format_version is not the one of this program")
    _need(len(run.prompt_ids) == len(run.prompt_texts), "prompt_ids and prompt_texts differ in length")
    _need(_are_counts(run.prompt_ids), "prompt_ids has an id that is negative or too large")
    tokens = (run.max_new_tokens, run.totals.new_tokens, run.totals.peak_memory_bytes)
    _need(_are_counts(tokens), "a number of tokens or bytes is negative or too large")
    _need(_are_counts([run.own_from]), "own_from is negative or too large")
    times = (run.totals.prefill_s, run.totals.ttft_s, run.totals.wall_s)
    _need(_are_times(times), "totals has a time that is negative or longer than a run")
    _check_sampling(run.sampling)
    for place, iteration in enumerate(run.iterations):
        try:
            _check_iteration(iteration)
            if place:
                _check_follows(run.iterations[place - 1], iteration)
            else:
                first = iteration.index == 0 and iteration.prefix_length == len(run.prompt_ids)
                _need(first, "it is not the first one, right after the prompt")
        except RecordError as error:
            raise error.inside(f"iterations[{place}]") from None
    # More than the iterations committed is right where none of them were recorded.
    _need(run.totals.new_tokens >= len(run.output_ids), "totals.new_tokens is less than the tokens committed")


def _need(condition: bool, problem: str) -> None:
    if not condition:
        raise RecordError(problem)


def _are_counts(values: Iterable[int | None]) -> bool:
    return all(value is None or 0 <= value <= MAX_COUNT for value in values)


def _are_times(values: Iterable[float]) -> bool:
    return all(0 <= value <= MAX_S for value in values)


def _is_probability(value: float | None) -> bool:
    return value is None or 0 <= value <= 1 + ROUNDING


def _check_follows(before: IterationTrace, after: IterationTrace) -> None:
    _need(after.index == before.index + 1, "index does not follow on the iteration before")
    if before.history is not None and after.history is not None:
        _need(set(after.history.before) == set(before.history.before), "history moves other settings than before")
    follows = after.prefix_length == before.prefix_length + len(before.committed_ids)
    _need(follows, "prefix_length does not follow on the iteration before")
    _need(before.ended_s <= after.started_s, "it starts before the iteration before it ends")


def _check_iteration(trace: IterationTrace) -> None:
    counts = (trace.index, trace.prefix_length, trace.drafted, trace.verified, trace.tree_depth)
    _need(_are_counts((*counts, trace.draft_forwards, trace.target_passes)), "a count is negative or too large")
    _need(trace.tree_depth <= trace.verified <= trace.drafted, "tree_depth, verified and drafted do not fit together")
    _need(max(trace.drafted, len(trace.nodes)) <= MAX_NODES, f"more than {MAX_NODES:,} nodes were drafted")
    # A path of tokens per node takes memory in the square of the depth.
    deepest = max((trace.tree_depth, *(node.depth for node in trace.nodes)))
    _need(deepest <= MAX_DEPTH, f"its tree is more than {MAX_DEPTH} tokens deep")
    most = max(trace.verified, len(trace.flatten_order) - 1)
    _need(most <= MAX_VERIFIED, f"more than {MAX_VERIFIED:,} nodes were verified")
    _need(0 <= trace.started_s <= trace.ended_s <= MAX_S, "it ends before it starts or too late")
    _need(not trace.timed or trace.started_s < trace.ended_s, "it was timed and ends when it starts")
    _need(_are_counts(trace.texts), "texts has an id that is negative or too large")
    paths = [each.path for each in trace.forced]
    _need(all(path and _are_counts(path) for path in paths), "forced has a path that is empty or no path of tokens")
    longest = max(map(len, paths), default=0)
    _need(len(paths) <= MAX_FORCED and longest <= MAX_DEPTH, f"more than {MAX_FORCED} nodes were forced, or too deep")
    _need(len(trace.steps) <= MAX_STEPS, f"it has more than {MAX_STEPS:,} steps")
    length = sum(len(node.text) for node in trace.nodes)
    _need(length <= MAX_TREE_TEXT, f"the tokens of its tree are longer than {MAX_TREE_TEXT:,} characters")
    _need(len(trace.bias) <= MAX_SENTENCE, "bias is longer than a sentence")
    _need(_is_number(trace.settings.get("prune_probability", 0.0)), "settings: prune_probability is not a number")
    _check_times(trace.times)
    _check_rule(trace.rule)
    if trace.sampling is not None:
        _check_sampling(trace.sampling)
    if trace.history is not None:
        _check_history(trace.history)
    if trace.nodes:
        _check_nodes(trace.nodes)
        _check_order(trace)
    else:
        _need(not trace.steps, "it has steps without nodes")
        _need(all(0 <= node <= trace.drafted for node in trace.flatten_order), "flatten_order has an unknown node")
    _need(all(0 < node <= trace.drafted for node in trace.drawn), "drawn has an unknown node")
    _check_committed(trace)
    _check_steps(trace)
    _check_arrays(trace)
    _check_kv(trace, trace.kv_target, "kv_target")
    if trace.kv_draft is not None:
        _check_kv(trace, trace.kv_draft, "kv_draft")


def _is_number(value: Setting | None) -> bool:
    return isinstance(value, int | float)


def _check_history(history: HistoryTrace) -> None:
    """What adaptation moves has a number before and after."""
    _need(set(history.before) == set(history.after), "history: before and after name different settings")
    moved = (*history.before.values(), *history.after.values())
    _need(all(map(_is_number, moved)), "history moves a setting that is not a number")


def _check_rule(rule: RuleTrace) -> None:
    names = (rule.drafter, rule.depth_setting, rule.threshold_setting, rule.breadth_setting, rule.children_setting)
    _need(all(len(name) <= MAX_NAME for name in names), "rule has a name that is too long")
    numbers = 0 < rule.decay <= 1 and all(0 < factor <= MAX_FACTOR for factor in rule.factors)
    _need(numbers and rule.first_depth in (0, 1), "rule has a number out of its range")
    _need(_are_counts([rule.children]), "rule has a count that is negative or too large")
    _need(len(rule.factors) == 2 or rule.value != "chance", "rule: factors are not two")


def _check_sampling(sampling: SamplingTrace) -> None:
    _need(not wrong_sampling(sampling), "sampling has a temperature, top_p or seed out of its range")


def _check_times(times: PhaseTimes) -> None:
    phases = (times.draft_s, times.prune_s, times.mask_s, times.verify_s, times.select_s, times.commit_s)
    rest = (times.rebuild_s, times.adapt_s, times.record_s, times.total_s, *times.draft_levels_s)
    _need(_are_times((*phases, *rest)), "times has a time that is negative or longer than a run")


def _check_committed(trace: IterationTrace) -> None:
    """Accepted nodes form a path from the root, and they and the final token are what was committed."""
    _need(len(trace.committed_ids) == len(trace.committed_texts), "committed_ids and committed_texts differ in length")
    _need(_are_counts(trace.committed_ids), "committed_ids has an id that is negative or too large")
    expected = len(trace.accepted) + (trace.final_kind != "none")
    _need(len(trace.committed_ids) == expected, "committed_ids are not the accepted nodes and the final token")
    _need(expected > 0, "it commits no token")
    parent, last = 0, len(trace.nodes) - 1 if trace.nodes else trace.drafted
    for node in trace.accepted:
        _need(parent < node <= last, "accepted is not a path of known nodes")
        _need(not trace.nodes or trace.nodes[node].parent_id == parent, "accepted is not a path from the root")
        parent = node


def _check_nodes(nodes: tuple[NodeTrace, ...]) -> None:
    for place, node in enumerate(nodes):
        where = f"nodes[{place}]"
        _need(node.node_id == place, f"{where}: node_id is not its place")
        if place == 0:
            _need(node.parent_id == -1 and node.depth == 0 and node.verdict == "root", f"{where} is not a root")
        else:
            _need(0 <= node.parent_id < place, f"{where}: parent_id is not an earlier node")
            _need(node.depth == nodes[node.parent_id].depth + 1, f"{where}: depth is not its parent's + 1")
            _need(node.verdict != "root", f"{where} is a second root")
        _need(node.multiplicity >= 1, f"{where} was drawn less than once")
        counts = (node.token_id, node.multiplicity, node.branching, node.target_argmax, node.draft_level)
        _need(_are_counts(counts), f"{where} has a count that is negative or too large")
        drafted = (node.draft_probability, node.path_probability, node.confidence)
        target = (node.target_probability, node.target_argmax_probability, node.acceptance_probability)
        known = (*drafted, *target, node.tested_probability)
        _need(all(map(_is_probability, known)), f"{where} has a probability outside 0..1")


def _check_order(trace: IterationTrace) -> None:
    """The order of the verification pass names each verified node once, and the nodes agree."""
    order = trace.flatten_order
    _need(len(order) == trace.verified + 1 and order[0] == 0, "flatten_order is not the root and the verified nodes")
    rows = {node: row for row, node in enumerate(order)}
    _need(len(rows) == len(order), "flatten_order names a node twice")
    _need(all(0 <= node < len(trace.nodes) for node in order), "flatten_order has an unknown node")
    _need(
        all(node.flat_index == rows.get(node.node_id) for node in trace.nodes), "flat_index contradicts flatten_order"
    )
    _need(
        all(rows.get(trace.nodes[node].parent_id, -1) < rows[node] for node in order),
        "a child stands before its parent",
    )


def _check_steps(trace: IterationTrace) -> None:
    for place, step in enumerate(trace.steps):
        known = 0 <= step.node_id < len(trace.nodes)
        others = (step.child_id, step.rival_id)
        known = known and all(node is None or 0 <= node < len(trace.nodes) for node in others)
        _need(known and step.token_id >= 0, f"steps[{place}] names an unknown node or token")
        agree = len(step.residual_ids) == len(step.residual_probs)
        _need(agree, f"steps[{place}]: residual_ids and residual_probs differ in length")
        probabilities = (step.acceptance_probability, step.drawn, *step.residual_probs)
        _need(all(map(_is_probability, probabilities)), f"steps[{place}] has a probability outside 0..1")
    for place, draw in enumerate(trace.draws):
        _need(draw.outcome >= 0, f"draws[{place}] has a negative outcome")
        _need(_is_probability(draw.probability) and _is_probability(draw.uniform), f"draws[{place}] is outside 0..1")


def _check_arrays(trace: IterationTrace) -> None:
    for side in ("draft", "target"):
        ids, probs = getattr(trace, f"{side}_top_ids"), getattr(trace, f"{side}_top_probs")
        _need((ids is None) == (probs is None), f"{side}_top_ids and {side}_top_probs do not go together")
        if ids is not None:
            rows = ids.ndim == 2 and ids.shape == probs.shape and ids.shape[0] == len(trace.nodes)
            _need(rows and ids.dtype.kind == "i" and probs.dtype.kind == "f", f"{side}_top_ids is not a row per node")
            _need(ids.shape[1] <= TOP_TOKENS, f"{side}_top_ids has more than {TOP_TOKENS} tokens per node")
            filled = ids >= 0
            _need(bool((ids >= -1).all()), f"{side}_top_ids has an id that is negative or too large")
            in_range = (probs[filled] >= 0) & (probs[filled] <= 1 + ROUNDING)
            _need(bool(in_range.all()), f"{side}_top_probs has a probability outside 0..1")
        logits: np.ndarray | None = getattr(trace, f"{side}_logits")
        if logits is not None:
            rows = logits.ndim == 2 and logits.shape[0] == len(trace.nodes) and logits.dtype.kind == "f"
            _need(rows and logits.shape[1] > 0, f"{side}_logits is not a row per node")
            computed = "draft_level" if side == "draft" else "flat_index"
            usable = np.isfinite(logits.max(axis=1))  # no nan, no infinity, and not nothing but -inf
            there = [getattr(node, computed) is not None for node in trace.nodes]
            _need(bool(usable[there].all()), f"{side}_logits has a row that is no law")
    if trace.tested_top_probs is not None:
        _check_tested(trace.tested_top_probs, trace.target_top_ids)


def _check_tested(probs: np.ndarray, ids: np.ndarray | None) -> None:
    _need(ids is not None, "tested_top_probs has no target_top_ids to go with")
    filled = ids >= 0
    fits = probs.shape == filled.shape and probs.dtype.kind == "f"
    _need(fits, "tested_top_probs is not a row per node like target_top_ids")
    in_range = (probs[filled] >= 0) & (probs[filled] <= 1 + ROUNDING)
    _need(bool(in_range.all()), "tested_top_probs has a probability outside 0..1")


def _check_kv(trace: IterationTrace, kv: KVTrace, name: str) -> None:
    counts = (kv.rows_before, kv.rows_written, kv.rows_freed, kv.bytes_per_row, kv.bytes_moved)
    _need(_are_counts((*counts, *kv.kept_from)), f"{name} has a count that is negative or too large")
    _need(len(kv.row_nodes) in (0, kv.rows_written), f"{name}: row_nodes is not a node per row written")
    last = len(trace.nodes) - 1 if trace.nodes else trace.drafted
    _need(all(-1 <= node <= last for node in kv.row_nodes), f"{name}: row_nodes has an unknown node")
    _need(all(row < kv.rows_before + kv.rows_written for row in kv.kept_from), f"{name}: kept_from has an unknown row")
