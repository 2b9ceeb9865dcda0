"""What older formats lack or call otherwise.

Up to format 2 some fields had other names. Records of format 1 also leave unsaid the drafter, which is known by the
settings that it alone had, and hold a sentence where the present ones hold the code of a reason, and coarser codes of
why a node was not expanded.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from decoding.common.errors import SettingsError
from decoding.common.settings import present_engines
from decoding.trace.codec import RecordError
from decoding.trace.interventions import Verdicts, intervened_nodes, interventions_of
from decoding.trace.records import Breadth, IterationTrace, NodeTrace, RuleTrace, RunTrace, Setting, StopReason

IMPROBABLE: dict[str, Any] = {"threshold_setting": "prune_probability", "left_out": "improbable", "first_depth": 0}
RANKED: dict[str, Any] = {"depth_setting": "max_depth", "left_out": "outranked", "value": "path"}
# A setting that only this drafter had: the first that is there tells.
TELLING: tuple[tuple[str, RuleTrace], ...] = (
    ("base_depth", RuleTrace("dynatree", depth_setting="max_depth", breadth_setting="branch_mid", **IMPROBABLE)),
    ("branching", RuleTrace("fixed_tree", depth_setting="max_depth", breadth_setting="branching", **IMPROBABLE)),
    ("widths", RuleTrace("specinfer", breadth_setting="widths")),
    ("trunk", RuleTrace("delayed")),
    ("paths", RuleTrace("iid_paths", depth_setting="length")),
    ("length", RuleTrace("linear", depth_setting="length")),
    ("acceptance", RuleTrace("sequoia", depth_setting="max_depth")),
    ("threshold", RuleTrace("dyspec_threshold", depth_setting="max_depth", threshold_setting="threshold")),
    ("beam_width", RuleTrace("eagle2", children_setting="beam_width", **RANKED)),
    ("decay", RuleTrace("specexec", children_setting="children", **RANKED)),
    ("top_up", RuleTrace("salf", **RANKED)),
    ("gain_threshold", RuleTrace("opt_tree", **RANKED)),
    ("level_ms", RuleTrace("hardware_aware", **RANKED | {"left_out": "unprofitable", "value": "chance"}, children=8)),
)
BREADTHS: dict[str, Breadth] = {
    "linear": "chain", "fixed_tree": "fixed", "specinfer": "level", "delayed": "level", "iid_paths": "level",
    "sequoia": "shape", "dyspec": "outdrawn", "dyspec_threshold": "worth", "eagle2": "ranked", "specexec": "ranked",
    "salf": "ranked", "opt_tree": "ranked", "hardware_aware": "ranked",
}  # fmt: skip
# What a coarser code meant of each drafter.
BUDGETS: dict[str, StopReason] = {
    "eagle2": "beam", "specexec": "outranked", "salf": "outranked", "opt_tree": "outranked", "sequoia": "shape",
    "dyspec": "outdrawn",
}  # fmt: skip
EARLY: dict[str, StopReason] = {"salf": "low_promise", "opt_tree": "low_gain", "hardware_aware": "unprofitable"}


# Names of fields up to format 2, of an iteration, of its nodes, and of what it did to a cache.
RENAMED = {"law": "draft_sampling", "forced": "interventions"}
RENAMED_IN_NODES = {"growth": "stop_reason"}
RENAMED_IN_CACHES = {
    "rows_before": "slots_before", "rows_written": "slots_written", "row_nodes": "slot_nodes",
    "rows_freed": "slots_freed", "bytes_per_row": "bytes_per_slot", "kept_from": "moved_from",
}  # fmt: skip


def rename_fields(document: Any) -> None:
    """Give the fields in the JSON of a run of format 1 or 2 their present names, in place.

    What is no such JSON, and a field under its present name already, is refused when it is read.
    """
    with suppress(AttributeError, KeyError, TypeError):
        iterations = document["run"]["iterations"]
        _rename(iterations, RENAMED)
        for table in iterations["nodes"]:
            _rename(table, RENAMED_IN_NODES)
        for cache in (*iterations["kv_target"], *iterations["kv_draft"]):
            if cache is not None:
                _rename(cache, RENAMED_IN_CACHES)


def _rename(fields: dict[str, Any], names: Mapping[str, str]) -> None:
    for before, now in names.items():
        if before in fields and now not in fields:
            fields[now] = fields.pop(before)


def rename_engines(document: Any) -> None:
    """Give the engines in the JSON of a run their present names, in place."""
    with suppress(AttributeError, KeyError, TypeError):
        for role in ("target", "draft"):
            model = document["run"]["pair"][role]
            model["engine"] = present_engines(model["engine"])


def drop_sentences(document: Any) -> None:
    """Take the sentences out of the JSON of a run of format 1; what is no such JSON is refused when it is read."""
    with suppress(AttributeError, KeyError, TypeError):
        for table in document["run"]["iterations"]["nodes"]:
            table.pop("reason", None)


def upgraded(run: RunTrace) -> RunTrace:
    """A run of format 1 with its drafters named and its reasons filled in; its values have been checked.

    Raises `RecordError` where edits of an iteration contradict each other.
    """
    first_path = run.settings.get("verifier") == "block"  # no other verifier of those files tests the first path alone
    return replace(run, iterations=tuple(_upgraded(iteration, first_path) for iteration in run.iterations))


def rule_of(settings: Mapping[str, Setting]) -> RuleTrace:
    """The rule behind some settings in force, as far as they tell it."""
    found = next((rule for name, rule in TELLING if name in settings), None)
    if found is None:
        known = "none" if not settings else "dyspec" if set(settings) == {"node_budget", "max_depth"} else ""
        return RuleTrace(known, depth_setting="max_depth" if known == "dyspec" else "")
    if found.drafter == "dynatree" and settings.get("dynamic_depth") is False:
        found = replace(found, depth_setting="base_depth")
    if found.children_setting:
        children = settings.get(found.children_setting)
        most = children if isinstance(children, int) and not isinstance(children, bool) else 0
        found = replace(found, children=most) if most > 0 else replace(found, children_setting="")
    if 0 < _number(settings, "decay", 1.0) < 1 and found.drafter == "specexec":
        found = replace(found, decay=_number(settings, "decay", 1.0))
    return replace(found, factors=_factors(settings)) if found.value == "chance" else found


def _factors(settings: Mapping[str, Setting]) -> tuple[float, ...]:
    words = str(settings.get("odds", "")).split()
    try:
        factors = tuple(float(word) for word in words)
    except ValueError:
        factors = ()
    return factors if len(factors) == 2 and all(0 < factor < 1e6 for factor in factors) else (1.0, 1.0)


def _upgraded(iteration: IterationTrace, first_path: bool) -> IterationTrace:
    rule = rule_of({name: value for name, value in iteration.settings.items() if name != "draft_head"})
    iteration = replace(iteration, rule=rule)
    if not iteration.nodes:
        return iteration
    steps, reached, order = iteration.steps, iteration.accepted, iteration.flatten_order
    if iteration.final_kind == "none" and steps:  # the verifier's path goes on after what was committed
        reached = iteration.path(steps[-1].node_id)
    verdicts = Verdicts(steps, order, reached, iteration.accepted, rule.left_out, first_path)
    left = [1.0] * len(iteration.nodes)
    for node in iteration.nodes[1:]:
        left[node.parent_id] -= node.draft_probability or 0.0
    full = iteration.verified >= _number(iteration.settings, "node_budget", float("inf"))
    values = {n.node_id: n.path_probability * rule.decay**n.depth for n in iteration.nodes}
    last = min((values[node] for node in order if node), default=0.0) if full else 0.0
    nodes = []
    for node in iteration.nodes:
        stop_reason, path = node.stop_reason, values[node.node_id]
        if stop_reason == "budget":
            stop_reason = BUDGETS.get(rule.drafter, stop_reason)
        elif stop_reason == "early_stop":
            stop_reason = EARLY.get(rule.drafter, stop_reason)
            stop_reason = (
                "outranked" if stop_reason in ("low_gain", "low_promise") and full and path <= last else stop_reason
            )
        _, reason = verdicts.of(node.node_id, node.parent_id, node.token_id)
        breadth = _breadth(rule, node, iteration.settings)
        if breadth == "worth" and left[node.node_id] * path >= _number(iteration.settings, "threshold", 1.0):
            breadth = "budget"
        nodes.append(replace(node, stop_reason=stop_reason, reason=reason, breadth=breadth))
    iteration = replace(iteration, nodes=tuple(nodes))
    try:
        interventions = interventions_of((each.kind, each.path) for each in iteration.interventions)
    except SettingsError as error:
        raise RecordError(str(error)) from None
    return replace(iteration, nodes=intervened_nodes(iteration, interventions)) if interventions else iteration


def _breadth(rule: RuleTrace, node: NodeTrace, settings: Mapping[str, Setting]) -> Breadth | None:
    """Why a node has as many children as it has, by the rules as they were."""
    if node.stop_reason != "expanded":
        return None
    adaptive = rule.drafter == "dynatree"
    if node.node_id == 0 and (adaptive or rule.drafter == "fixed_tree") and settings.get("branch_first_level") is False:
        return "first_level"
    if not adaptive:
        return BREADTHS.get(rule.drafter)
    if settings.get("adaptive_breadth") is False:
        return "fixed"
    if node.confidence is None:
        return None
    if node.confidence >= _number(settings, "confidence_high", 1.0):
        return "confident"
    return "unsure" if node.confidence < _number(settings, "confidence_low", 0.0) else "between"


def _number(settings: Mapping[str, Setting], name: str, otherwise: float) -> float:
    value = settings.get(name)
    return value if isinstance(value, int | float) else otherwise
