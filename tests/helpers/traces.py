"""Small hand-written traces: every test of figures and pages builds on these, none of them needs a model."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from decoding.recorded import FOLDER
from decoding.trace.records import (
    FORMAT_VERSION,
    TOP_TOKENS,
    DrawTrace,
    HistoryTrace,
    IterationTrace,
    KVTrace,
    ModelInfo,
    NodeTrace,
    PairInfo,
    PhaseTimes,
    RuleTrace,
    RunTrace,
    SamplingTrace,
    Totals,
    VerificationStep,
)
from decoding.trace.run_file import load_run

SETTINGS = {
    "node_budget": 64,
    "base_depth": 3,
    "max_depth": 5,
    "branch_min": 1,
    "branch_mid": 2,
    "branch_max": 3,
    "confidence_high": 0.8,
    "confidence_low": 0.3,
    "stop_probability": 0.02,
    "deep_probability": 0.1,
    "prune_probability": 0.0,
}
RULE = RuleTrace(
    "dynatree",
    depth_setting="max_depth",
    first_depth=0,
    threshold_setting="prune_probability",
    breadth_setting="branch_mid",
    left_out="improbable",
)
FILLERS = (" What", " Mom", " S", "O", "Don", " the", " a", " it", "\n", " was", " and", "!", "?", " you", " We")


@dataclass(frozen=True)
class Spec:
    """One node of a hand-written tree; the parent comes first in the list."""

    parent: int
    text: str
    draft: float
    target: float | None
    verdict: str
    stop_reason: str = "expanded"
    pruned: bool = False
    reason: str | None = None
    multiplicity: int = 1


def _token_id(text: str) -> int:
    return 1 + sum((place + 1) * ord(character) for place, character in enumerate(text)) % 4000


def _node(number: int, spec: Spec, parent: NodeTrace, branching: int, flat: int | None, preferred: tuple | None):
    return NodeTrace(
        node_id=number,
        parent_id=parent.node_id,
        depth=parent.depth + 1,
        token_id=_token_id(spec.text),
        text=spec.text,
        multiplicity=spec.multiplicity,
        draft_probability=spec.draft,
        path_probability=parent.path_probability * spec.draft,
        confidence=_confidence(spec),
        branching=branching if spec.stop_reason == "expanded" else None,
        stop_reason=spec.stop_reason,
        pruned=spec.pruned,
        target_probability=spec.target,
        target_argmax=preferred[0] if preferred else None,
        target_argmax_text=preferred[1] if preferred else None,
        target_argmax_probability=preferred[2] if preferred else None,
        acceptance_probability=None if spec.target is None else float(spec.verdict == "accepted"),
        verdict=spec.verdict,
        flat_index=flat,
        draft_level=None if spec.stop_reason == "max_depth" else parent.depth + 1,
        breadth=_breadth(_confidence(spec)) if spec.stop_reason == "expanded" else None,
        reason=spec.reason or ("improbable" if spec.pruned else None),
    )


def _confidence(spec: Spec) -> float | None:
    return None if spec.stop_reason == "max_depth" else min(0.97, 0.3 + spec.draft * 0.6)


def _breadth(confidence: float) -> str:
    """Why a node of a hand-written DynaTree has as many children as it has."""
    if confidence >= SETTINGS["confidence_high"]:
        return "confident"
    return "unsure" if confidence < SETTINGS["confidence_low"] else "between"


def _distributions(specs: Sequence[Spec], final: tuple[int, str, float] | None):
    """Top tokens of both distributions after each node: its children, the final token, and fillers that share the
    rest.
    """
    texts: dict[int, str] = {}
    shape = (len(specs) + 1, TOP_TOKENS)
    tables = [np.full(shape, -1, np.int32), np.full(shape, np.nan, np.float32)] * 2
    tables = [table.copy() for table in tables]
    children: list[list[tuple[str, float, float | None]]] = [[] for _ in range(len(specs) + 1)]
    for spec in specs:
        children[spec.parent].append((spec.text, spec.draft, spec.target))
    for node in range(len(specs) + 1):
        known = list(children[node])
        if final and final[0] == node:
            known.append((final[1], 0.05, final[2]))
        for probs, column in ((0, 1), (2, 2)):
            weights = {text: entry for text, *_ in known for entry in [dict((k[0], k[column]) for k in known)[text]]}
            pairs = [(text, value) for text, value in weights.items() if value is not None]
            rest = max(0.0, 1.0 - sum(value for _, value in pairs))
            fillers = [text for text in FILLERS if text not in weights]
            pairs += [(text, rest * 0.5 ** (place + 1)) for place, text in enumerate(fillers)]
            pairs = sorted(pairs, key=lambda pair: -pair[1])[:TOP_TOKENS]
            for place, (text, value) in enumerate(pairs):
                tables[probs][node, place] = _token_id(text)
                tables[probs + 1][node, place] = value
                texts[_token_id(text)] = text
    return tables, texts


def _kv(slots_before: int, slot_nodes: tuple[int, ...], kept: tuple[int, ...], rebuilt: bool) -> KVTrace:
    moved_from = tuple(slots_before + slot_nodes.index(node) for node in kept)
    moved = 0 if rebuilt else sum(row != slots_before + i for i, row in enumerate(moved_from))
    return KVTrace(
        slots_before=slots_before,
        slots_written=len(slot_nodes),
        slot_nodes=slot_nodes,
        moved_from=moved_from,
        slots_freed=len(slot_nodes) - len(kept),
        rebuilt=rebuilt,
        bytes_per_slot=24576,
        bytes_moved=moved * 24576,
    )


def _times(draft_levels: int, rebuilt: bool) -> PhaseTimes:
    levels = tuple(0.0011 + 0.0002 * level for level in range(draft_levels))
    draft = sum(levels) + 0.0004
    rebuild = 0.0041 if rebuilt else 0.0
    total = draft + 0.0002 + 0.0003 + 0.0069 + 0.0004 + 0.0003 + rebuild
    return PhaseTimes(draft, 0.0002, 0.0003, 0.0069, 0.0004, 0.0003, rebuild, 0.0, 0.0008, total + 0.0002, levels)


def iteration_of(
    specs: Sequence[Spec],
    *,
    final: tuple[int, str, float] | None,
    final_kind: str,
    root_text: str = " said",
    index: int = 0,
    prefix_length: int = 76,
    steps: tuple[VerificationStep, ...] = (),
    draws: tuple[DrawTrace, ...] = (),
    rebuilt: bool = False,
    history: HistoryTrace | None = None,
    in_loop: bool = False,
) -> IterationTrace:
    """An iteration from its nodes; `final` is (node the final token stands after, its text, target's probability)."""
    tables, texts = _distributions(specs, final)
    draft_ids, draft_probs, target_ids, target_probs = tables
    verified = [i + 1 for i, spec in enumerate(specs) if not spec.pruned]
    flat = {node: row for row, node in enumerate([0, *verified])}
    branching = [sum(spec.parent == node for spec in specs) for node in range(len(specs) + 1)]
    preferred = [
        (int(target_ids[n, 0]), texts[int(target_ids[n, 0])], float(target_probs[n, 0])) if n in flat else None
        for n in range(len(specs) + 1)
    ]
    nodes = [
        NodeTrace(
            0, -1, 0, _token_id(root_text), root_text, 1, None, 1.0, 0.5, branching[0] or None,
            "expanded" if specs else "not_drafted", False, None, *preferred[0], None, "root", 0,
            0 if specs else None, None, "between" if specs else None, "root",
        )
    ]  # fmt: skip
    texts[_token_id(root_text)] = root_text
    for number, spec in enumerate(specs, start=1):
        nodes.append(_node(number, spec, nodes[spec.parent], branching[number], flat.get(number), preferred[number]))
        texts[_token_id(spec.text)] = spec.text
    accepted = tuple(number for number, spec in enumerate(specs, start=1) if spec.verdict == "accepted")
    committed = [nodes[number].text for number in accepted] + ([final[1]] if final else [])
    levels = max((node.draft_level or 0) for node in nodes) + 1 if specs else 0
    order = (0, *verified)
    times = _times(levels, rebuilt)
    return IterationTrace(
        index=index,
        prefix_length=prefix_length,
        settings=SETTINGS,
        nodes=tuple(nodes),
        flatten_order=order,
        steps=steps,
        accepted=accepted,
        committed_ids=tuple(_token_id(text) for text in committed),
        committed_texts=tuple(committed),
        final_kind=final_kind,
        draws=draws,
        kv_target=_kv(prefix_length - 1, order, (0, *accepted), rebuilt),
        kv_draft=_kv(prefix_length - 1, order, (0, *accepted), False) if specs else None,
        times=times,
        started_s=0.02 * index,
        ended_s=0.02 * index + times.total_s,
        drafted=len(specs),
        verified=len(verified),
        tree_depth=max(nodes[number].depth for number in order),
        draft_forwards=levels,
        target_passes=2 if rebuilt else 1,
        in_loop=in_loop,
        history=history,
        texts=texts,
        rule=RULE if specs else RuleTrace("none"),
        draft_top_ids=draft_ids,
        draft_top_probs=draft_probs,
        target_top_ids=target_ids,
        target_top_probs=target_probs,
    )


DYNATREE = (
    Spec(0, ",", 0.50, 0.96, "accepted"),
    Spec(0, ".", 0.43, 0.01, "rejected"),
    Spec(1, ' "', 0.83, 1.00, "accepted"),
    Spec(1, " Tom", 0.01, 0.0, "rejected", "early_stop"),
    Spec(2, " He", 0.23, 0.20, "not_reached", "depth_gate"),
    Spec(2, "\n", 0.18, 0.31, "not_reached", "depth_gate"),
    Spec(2, " She", 0.14, 0.12, "not_reached", "depth_gate"),
    Spec(3, "Yes", 0.62, 0.17, "rejected"),
    Spec(3, "Can", 0.12, 0.0, "rejected", "depth_gate"),
    Spec(8, ",", 0.92, 0.81, "not_reached"),
    Spec(10, " I", 0.18, 0.44, "not_reached", "max_depth"),
    Spec(10, " please", 0.16, 0.02, "not_reached", "max_depth"),
    Spec(10, " let", 0.06, 0.01, "not_reached", "max_depth"),
)


def _step(iteration_specs: Sequence[Spec], child: int, accepted: bool, probability: float, drawn=None):
    spec = iteration_specs[child - 1]
    return VerificationStep(spec.parent, child, _token_id(spec.text), probability, drawn, accepted)


def dynatree_recovered(index: int = 0) -> IterationTrace:
    """13 nodes under greedy decoding: two accepted, then the target preferred a token that was not drafted."""
    steps = (
        _step(DYNATREE, 1, True, 1.0),
        _step(DYNATREE, 3, True, 1.0),
        _step(DYNATREE, 8, False, 0.0),
        _step(DYNATREE, 9, False, 0.0),
        VerificationStep(3, None, _token_id("No"), 1.0, None, True),
    )
    return iteration_of(DYNATREE, final=(3, "No", 0.69), final_kind="recovered", index=index, steps=steps)


def sampled_recovered(index: int = 1) -> IterationTrace:
    """The same tree with draws: a test passed at 0.31 < 0.87, one failed at 0.54 > 0.27; residual recorded."""
    step = _step(DYNATREE, 8, False, 0.27, 0.54)
    step = replace(step, residual_ids=(_token_id("No"), _token_id(" What")), residual_probs=(0.83, 0.06))
    steps = (
        _step(DYNATREE, 1, True, 1.0, 0.12),
        _step(DYNATREE, 3, True, 0.87, 0.31),
        step,
        VerificationStep(3, None, _token_id("No"), 0.83, 0.41, True),
    )
    draws = tuple(DrawTrace("accept", s.acceptance_probability, int(s.accepted), s.drawn) for s in steps)
    return iteration_of(
        DYNATREE, final=(3, "No", 0.69), final_kind="recovered", index=index, steps=steps, draws=draws, rebuilt=True
    )


def bonus(index: int = 2) -> IterationTrace:
    """A chain of two accepted to its leaf, so the target's next token comes free."""
    specs = (
        Spec(0, " a", 0.7, 0.8, "accepted"),
        Spec(0, " the", 0.2, 0.1, "rejected", "early_stop"),
        Spec(1, " big", 0.6, 0.5, "accepted", "max_depth"),
    )
    steps = (_step(specs, 1, True, 1.0), _step(specs, 3, True, 1.0), VerificationStep(3, None, 1, 1.0, None, True))
    history = HistoryTrace(
        "accepted_over_depth", (0.4, 0.67, 1.0), 0.69, 0.6, 0.05,
        {"confidence_high": 0.8}, {"confidence_high": 0.75}, "bolder",
    )  # fmt: skip
    return iteration_of(
        specs, final=(3, " dog", 0.9), final_kind="bonus", root_text=" saw", index=index, steps=steps, history=history
    )


def fallback(index: int = 3) -> IterationTrace:
    """Nothing accepted: the target's own token is committed."""
    specs = (
        Spec(0, "<b>x</b>", 0.55, 0.05, "rejected"),
        Spec(0, "<0xE2>", 0.25, 0.01, "rejected", "early_stop"),
        Spec(1, "  \t", 0.9, 0.4, "not_reached", "max_depth"),
    )
    steps = (_step(specs, 1, False, 0.0), _step(specs, 2, False, 0.0), VerificationStep(0, None, 1, 1.0, None, True))
    return iteration_of(specs, final=(0, "\n\n", 0.6), final_kind="fallback", root_text=".", index=index, steps=steps)


def pruned(index: int = 4) -> IterationTrace:
    """Two nodes removed before verification because their path probability was below the threshold."""
    specs = (
        Spec(0, " cat", 0.8, 0.9, "accepted"),
        Spec(0, " zebra", 0.01, None, "not_verified", "early_stop", True),
        Spec(1, " sat", 0.7, 0.2, "rejected", "max_depth"),
        Spec(1, " sang", 0.02, None, "not_verified", "max_depth", True),
    )
    steps = (_step(specs, 1, True, 1.0), _step(specs, 3, False, 0.0), VerificationStep(1, None, 1, 1.0, None, True))
    trace = iteration_of(
        specs, final=(1, " ran", 0.5), final_kind="recovered", root_text=" The", index=index, steps=steps
    )
    return replace(trace, settings=SETTINGS | {"prune_probability": 0.02})


def autoregressive(index: int = 0) -> IterationTrace:
    """One target pass without a draft: only the root, and one token of the target's own."""
    trace = iteration_of((), final=(0, " once", 0.4), final_kind="fallback", root_text=",", index=index)
    return replace(trace, settings={}, kv_draft=None, draft_top_ids=None, draft_top_probs=None)


def ended(index: int = 5) -> IterationTrace:
    """End of text among the accepted tokens: no final token."""
    specs = (Spec(0, " end", 0.9, 0.9, "accepted"), Spec(1, "</s>", 0.9, 0.9, "accepted", "max_depth"))
    return iteration_of(specs, final=None, final_kind="none", root_text=" the", index=index)


def summary(index: int = 6) -> IterationTrace:
    """An iteration recorded without its tree."""
    return replace(
        dynatree_recovered(index), nodes=(), steps=(), flatten_order=(0,), draws=(),
        draft_top_ids=None, draft_top_probs=None, target_top_ids=None, target_top_probs=None,
    )  # fmt: skip


def big(count: int, seed: int = 0, index: int = 0) -> IterationTrace:
    """A deterministic tree of `count` nodes (the root left out) that falls off towards unlikely branches."""
    random = np.random.default_rng(seed)
    specs: list[Spec] = []
    depth, weight, path = [0], [1.0], [0]
    frontier = [0]
    while len(specs) < count:
        parent = frontier.pop(0)
        for place in range(int(random.integers(2, 5))):
            if len(specs) == count:
                break
            share = float((0.62, 0.2, 0.1, 0.05)[place] * random.uniform(0.8, 1.2))
            on_path = parent == path[-1] and len(path) < 4
            verdict = "accepted" if on_path and place == 0 else "rejected" if on_path else "not_reached"
            text = " " + "".join(random.choice(list("aeioutrsnlk"), int(random.integers(1, 9))))
            specs.append(Spec(parent, text, share, share * 0.9, verdict))
            number = len(specs)
            depth.append(depth[parent] + 1)
            weight.append(weight[parent] * share)
            frontier.append(number)
            if verdict == "accepted":
                path.append(number)
        frontier.sort(key=lambda number: (depth[number] // 3, -weight[number]))
    has_children = {spec.parent for spec in specs}
    specs = [
        spec if number in has_children else replace(spec, stop_reason="budget")
        for number, spec in enumerate(specs, start=1)
    ]
    return iteration_of(specs, final=(path[-1], " final", 0.5), final_kind="recovered", index=index, prefix_length=200)


def _model(name: str, layers: int, hidden: int, parameters: int) -> ModelInfo:
    return ModelInfo(name, "gpt_neox", parameters, layers, hidden, 4096, 512, "cpu", "float32", "sdpa", parameters * 4)


PAIR = PairInfo("embedded", _model("target", 8, 384, 11_200_000), _model("draft", 2, 128, 900_000), 512)


def run_of(iterations: Sequence[IterationTrace], method: str = "dynatree", label: str = "DynaTree") -> RunTrace:
    """A run around some iterations: prefix lengths, times and totals are made to follow on each other."""
    prompt = ("Once", " upon", " a", " time", ",", " <b>", " said")
    placed, prefix, clock = [], len(prompt), 0.011
    for index, iteration in enumerate(iterations):
        kv = replace(iteration.kv_target, slots_before=prefix - 1,
                     moved_from=tuple(row - iteration.kv_target.slots_before + prefix - 1
                                     for row in iteration.kv_target.moved_from))  # fmt: skip
        draft = iteration.kv_draft and replace(kv, rebuilt=False)
        end = clock + iteration.times.total_s
        placed.append(replace(iteration, index=index, prefix_length=prefix, started_s=clock, ended_s=end,
                              kv_target=kv, kv_draft=draft))  # fmt: skip
        prefix += len(iteration.committed_ids)
        clock = end + 0.0001
    new_tokens = prefix - len(prompt)
    first = placed[0].ended_s if placed else 0.0
    return RunTrace(
        format_version=FORMAT_VERSION,
        created="2026-11-20T12:00:00",
        method=method,
        label=label,
        settings=SETTINGS,
        pair=PAIR,
        sampling=SamplingTrace(),
        max_new_tokens=new_tokens,
        prompt_ids=tuple(_token_id(text) for text in prompt),
        prompt_texts=prompt,
        hardware={"processor": "test", "cores": "2"},
        iterations=tuple(placed),
        totals=Totals(new_tokens, 0.011, first, clock, "length", None),
    )


def run_mixed() -> RunTrace:
    """Nine iterations of every kind."""
    return run_of(
        [
            dynatree_recovered(), sampled_recovered(), bonus(), fallback(), pruned(), bonus(), dynatree_recovered(),
            replace(bonus(), in_loop=True), ended(),
        ]
    )  # fmt: skip


def run_autoregressive(count: int = 8) -> RunTrace:
    """A baseline of `count` target passes."""
    return run_of([autoregressive() for _ in range(count)], "autoregressive", "Autoregressive")


def run_replayed(count: int = 3) -> RunTrace:
    """A run of which the last iteration was replayed from stored rows, as `decoding.replay.forks` leaves it."""
    run = run_of([dynatree_recovered(index) for index in range(count)])
    last = run.iterations[-1]
    last = replace(last, times=PhaseTimes(*[0.0] * 10), ended_s=last.started_s)
    return replace(run, iterations=(*run.iterations[:-1], last), totals=replace(run.totals, wall_s=last.started_s))


@cache
def recorded(name: str) -> RunTrace:
    """A run that comes with the program, by the name of its file."""
    return load_run(FOLDER / f"{name}.dscope")
