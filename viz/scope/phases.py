"""The phases of one iteration: which nodes exist in each, in which state, and where the time went.

The draft's forwards are separate from the rest of drafting. Where they were not timed one by one, as on a GPU, the
draft has one time. Time outside all phases is `other`.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from math import inf

from decoding.common.formats import byte_size, duration, listed, number, plural
from decoding.trace.records import PHASES, HistoryTrace, IterationTrace, KVTrace, NodeTrace
from decoding.trace.searches import search_kind
from viz.explain.draft_rule import winners
from viz.explain.expansion import stop_reason_text, why_no_draft
from viz.explain.iteration import history_changes, why_final
from viz.explain.known import Known, distribution_text, is_sampled
from viz.glossary import statistic_words
from viz.theme import PHASE_WORDS
from viz.tokens import quote

FORWARDS, TREE, WHOLE = "draft forwards", "build tree", "whole draft"


def prunes(iteration: IterationTrace) -> bool:
    """Whether its method removes nodes from the tree before verification."""
    limit = iteration.settings.get("prune_probability") if iteration.rule.left_out else 0
    return float(limit or 0) > 0 or any(node.pruned for node in iteration.nodes)


def forwards_s(iteration: IterationTrace) -> float:
    """Seconds of the draft's forwards, 0 where they were not timed one by one."""
    return sum(iteration.times.draft_levels_s)


def tree_s(iteration: IterationTrace) -> float:
    """Seconds of drafting outside its forwards, with the prune check of a method that never prunes."""
    times = iteration.times
    return max(times.draft_s - forwards_s(iteration), 0.0) + (0.0 if prunes(iteration) else times.prune_s)


def time_rows(iteration: IterationTrace) -> list[tuple[str, str, float]]:
    """Key, label and seconds of each part, in order; keys are those of the phases, `rebuild` and `other`."""
    if not iteration.timed:
        return []
    times = iteration.times
    drafts = iteration.drafted > 0 or iteration.draft_forwards > 0
    seconds = {name: getattr(times, f"{name}_s") for name in PHASES}
    if not drafts:
        seconds = {name: value for name, value in seconds.items() if name not in ("draft", "prune", "mask")}
    if iteration.history is None:
        del seconds["adapt"]
    rows = []
    for name, value in seconds.items():
        if name == "draft":
            beside = TREE if forwards_s(iteration) > 0 else WHOLE
            rows += [("draft", FORWARDS, forwards_s(iteration)), ("tree", beside, tree_s(iteration))]
        elif name != "prune" or prunes(iteration):
            rows.append((name, PHASE_WORDS[name], value))
    rows.append(("other", PHASE_WORDS["other"], max(times.total_s - sum(row[2] for row in rows), 0.0)))
    return [row for row in rows if row[2] > 0]


MAX_DRAFT_PHASES = 8
WINDOW_SHOWN = 10
MOST_NAMED = 8
FINAL_ID = -2

# What is shown next to a node's text in a phase: draft probability, row of the pass, draft -> target.
DRAFT_DETAIL, ROW_DETAIL, BOTH_DETAIL = "draft", "row", "both"


@dataclass(frozen=True, slots=True)
class Phase:
    """One step of an iteration.

    Attributes:
        key: `draft-1`..., `tree`, `prune`, `mask`, `verify`, `select`, `commit`, `history`.
        title: label of the button. seconds: the measured time, None where it was not timed.
        caption: one sentence with numbers from the trace.
        detail: which numbers are shown next to the nodes.
        states: state of each scene node, in the scene's order; `hidden` where it does not exist yet.
        steps: first step of the search in it and the first after it, where drafting is stepped.
    """

    key: str
    title: str
    seconds: float | None
    caption: str
    detail: str
    states: tuple[str, ...]
    steps: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class PhaseNode:
    """A scene node as the phases see it: the trace nodes it stands for (several in a fold) and its role."""

    members: tuple[int, ...]
    role: str


def phases_of(known: Known, shown: Sequence[PhaseNode]) -> tuple[Phase, ...]:
    """Phases of an iteration in order, only those that its method has."""
    iteration, phases = known.iteration, _draft_phases(known.iteration, shown)
    resting, decided = (tuple(_state(known, entry, late) for entry in shown) for late in (False, True))
    if phases:
        phases.append(_tree(known, shown))
    if iteration.drafted and prunes(iteration):
        phases.append(_prune(known, resting))
    if iteration.drafted:
        phases.append(_mask(iteration, resting))
    phases += [_verify(iteration, resting), _select(iteration, decided), _commit(iteration, decided)]
    if iteration.history is not None:
        phases.append(_history(iteration, iteration.history, decided))
    return tuple(phases if iteration.timed else (replace(phase, seconds=None) for phase in phases))


def _state(known: Known, entry: PhaseNode, decided: bool) -> str:
    """State of a scene node after the verifier decided, or before, when only the final token is missing."""
    if entry.role == "final":
        return known.iteration.final_kind if decided else "hidden"
    if entry.role in ("root", "fold"):
        return entry.role
    node = known.iteration.nodes[entry.members[0]]
    return final_state(known, node) if decided or node.pruned or node.verdict == "not_verified" else "drafted"


def final_state(known: Known, node: NodeTrace) -> str:
    """State of a node in the end: its verdict, or what removed it; nothing is reached after the end of the text."""
    if node.pruned:
        return "forced_out" if node.node_id in known.forced_out else "pruned"
    return "not_reached" if node.node_id and node.parent_id in known.after_end else node.verdict


def appearance_levels(iteration: IterationTrace) -> list[int]:
    """Draft forward that added each node: the one that processed its parent, or its depth without one.

    A heap goes back to earlier parents: it has a node no earlier than the nodes before it.
    """
    levels = [0] * len(iteration.nodes)
    for node in iteration.nodes[1:]:
        level = iteration.nodes[node.parent_id].draft_level
        levels[node.node_id] = max((node.depth - 1 if level is None else level), levels[node.parent_id])
    return list(accumulate(levels, max)) if iteration.rule.drafter == "dyspec" else levels


def step_levels(iteration: IterationTrace) -> list[int]:
    """Draft forward of each step of the search, empty where drafting is not stepped.

    A pop of a heap belongs to the last forward before it or in it. The check that ends a search by rounds comes after
    all forwards.
    """
    kind = search_kind(iteration)
    rounds = list(range(_forwards(iteration) + 1)) if kind == "rounds" else []
    return appearance_levels(iteration)[1:] if kind == "heap" else rounds


def _forwards(iteration: IterationTrace) -> int:
    """Draft forwards that processed nodes of the tree."""
    return 1 + max((node.draft_level for node in iteration.nodes if node.draft_level is not None), default=-1)


def appearances(iteration: IterationTrace, shown: Sequence[PhaseNode]) -> tuple[int, ...]:
    """Step of the search with which each scene node appears, -1 for the root; empty where drafting is not stepped.

    The final token never does: its step is beyond all others.
    """
    if not (kind := search_kind(iteration)):
        return ()
    first = range(-1, len(iteration.nodes) - 1) if kind == "heap" else appearance_levels(iteration)
    by_role = {"root": -1, "final": len(iteration.nodes) + 1}
    return tuple(by_role.get(entry.role) or min(first[member] for member in entry.members) for entry in shown)


def _draft_phases(iteration: IterationTrace, shown: Sequence[PhaseNode]) -> list[Phase]:
    """One phase per draft forward; drafters with many forwards (heaps) get groups of them."""
    if not iteration.nodes or not iteration.tree_was_drafted:
        return []
    levels, steps = appearance_levels(iteration), step_levels(iteration)
    present = sorted(set(levels[1:])) or [0]
    size = -(-len(present) // MAX_DRAFT_PHASES)
    groups = [present[start : start + size] for start in range(0, len(present), size)]
    phases = []
    for place, group in enumerate(groups, start=1):
        new = [node for node in iteration.nodes[1:] if levels[node.node_id] in group]
        states = tuple(_drafted_state(entry, levels, group) for entry in shown)
        # A forward that added no node counts with the one before it, so that the phases add up to all forwards.
        first = group[0] if place > 1 else 0
        after = groups[place][0] if place < len(groups) else len(iteration.times.draft_levels_s)
        seconds = iteration.times.draft_levels_s[first:after]
        took = sum(seconds) if seconds else None
        inside = bisect_left(steps, first), bisect_left(steps, after if place < len(groups) else _forwards(iteration))
        # Named after the forwards, which start at 1 on screen, not after the group.
        named = f"{group[0] + 1}–{group[-1] + 1}" if len(group) > 1 else str(group[0] + 1)
        title = "Draft" if len(groups) == 1 else f"Draft {named}"
        caption = _draft_caption(iteration, new, group, took)
        phases.append(Phase(f"draft-{place}", title, took, caption, DRAFT_DETAIL, states, inside))
    return phases


def _draft_caption(iteration: IterationTrace, new: list, group: list[int], seconds: float | None) -> str:
    if not new:
        forwards = plural(iteration.draft_forwards, "draft forward")
        return f"{forwards} added no node: {stop_reason_text(iteration, 0)}."
    best = max(new, key=lambda node: node.path_probability)
    depths = sorted({node.depth for node in new})
    where = f"depth {depths[0]}" if len(depths) == 1 else f"depths {depths[0]} to {depths[-1]}"
    took = f" in {duration(seconds)}" if seconds is not None else ""
    who = f"Draft forward {group[0] + 1}" if len(group) == 1 else f"{len(group)} draft forwards"
    who = who if iteration.draft_forwards else "The drafter, without a model,"
    return (
        f"{who} adds {plural(len(new), 'node')} at {where} under {plural(len({n.parent_id for n in new}), 'parent')}"
        f"{took}; the likeliest path now ends in {quote(best.text)} at {number(best.path_probability, 3)}."
    )


def _tree(known: Known, shown: Sequence[PhaseNode]) -> Phase:
    """Drafting outside its forwards: the rest of its time, so that the phases add up to all of it."""
    iteration = known.iteration
    forwards, beside = forwards_s(iteration), tree_s(iteration)
    caption = f"The tree has {plural(iteration.drafted, 'node')}"
    if not iteration.timed:
        caption += "."
    elif forwards > 0:
        count = plural(len(iteration.times.draft_levels_s), "draft forward")
        caption += (
            f": choosing and storing them took {duration(beside)} on top of the {count} ({duration(forwards)}), so "
            f"drafting took {duration(forwards + beside)}."
        )
    else:
        caption += f"; drafting took {duration(beside)} in all; its forwards were not timed one by one."
    leaves = [node for node in iteration.nodes if node.stop_reason not in ("expanded", "length_limit")]
    if leaves:
        leaf = max(leaves, key=lambda node: node.path_probability)
        why = stop_reason_text(iteration, leaf.node_id, known)
        name = f"{quote(leaf.text)} (node {leaf.node_id})" if leaf.node_id else "the root"
        caption += f" It grew no further; at its likeliest leaf, {name}: {why}."
    levels = appearance_levels(iteration)
    states = tuple(_drafted_state(entry, levels, [max(levels) + 1]) for entry in shown)
    title = (TREE if forwards > 0 or not iteration.timed else WHOLE).capitalize()
    steps = step_levels(iteration)
    last = bisect_left(steps, _forwards(iteration)), len(steps)  # what ended the search
    return Phase("tree", title, beside, caption, DRAFT_DETAIL, states, last)


def _drafted_state(entry: PhaseNode, levels: list[int], group: list[int]) -> str:
    if entry.role == "root":
        return "root"
    first = min(levels[member] for member in entry.members) if entry.role != "final" else inf
    if first > group[-1]:
        return "hidden"
    return "fold" if entry.role == "fold" else "new" if first >= group[0] else "drafted"


def _prune(known: Known, states: tuple[str, ...]) -> Phase:
    iteration, forced_out = known.iteration, known.forced_out
    removed = [node for node in iteration.nodes if node.pruned and node.node_id not in forced_out]
    limit = iteration.settings.get("prune_probability") if iteration.rule.left_out == "improbable" else None
    rule = f": path probability < {limit:g}" if isinstance(limit, int | float) and limit else ""
    if iteration.rule.left_out in ("outranked", "unprofitable"):
        rule = f": verified are {winners(iteration)}"
    caption = f"{len(removed)} of {plural(iteration.drafted, 'node')} removed before verification{rule}."
    caption += f" {len(forced_out)} forced out by hand." if forced_out else ""
    return Phase("prune", "Prune", iteration.times.prune_s, caption, DRAFT_DETAIL, states)


def _mask(iteration: IterationTrace, states: tuple[str, ...]) -> Phase:
    rows = len(iteration.flatten_order)
    columns = iteration.kv_target.slots_before + iteration.kv_target.slots_written
    caption = (
        f"The tree becomes {rows} mask rows (the root and {plural(iteration.verified, 'node')}); each attends to the "
        f"text before it and its own ancestors, in a mask of {rows} × {columns:,}."
    )
    return Phase("mask", "Flatten & mask", iteration.times.mask_s, caption, ROW_DETAIL, states)


def _verify(iteration: IterationTrace, states: tuple[str, ...]) -> Phase:
    rows = max(len(iteration.flatten_order), 1)
    part = f"{rows - 1:,} of " if rows - 1 < iteration.drafted else ""
    what = f"the root and {part}{plural(iteration.drafted, 'node')}" if rows > 1 else "the one new token"
    if (earlier := iteration.kv_target.slots_written - 1 - iteration.verified) > 0:  # as the pass that reads the prompt
        what = f"{plural(earlier, 'earlier token')}{',' if rows > 1 else ' and'} {what}"
    took = f"took {duration(iteration.times.verify_s)}" if iteration.timed else "was replayed from recorded logits"
    caption = f"One target pass over {what} {took}."
    compared = [n for n in iteration.nodes if n.target_probability is not None and n.draft_probability is not None]
    if compared:
        agree = [n.node_id for n in compared if iteration.nodes[n.parent_id].target_argmax == n.token_id]
        are, nodes = ("is", "its position: node") if len(agree) == 1 else ("are", "their position: nodes")
        ids = f" {listed([str(each) for each in agree])}"
        which = nodes + ids if 0 < len(agree) <= MOST_NAMED else nodes.partition(":")[0]
        caption += (
            f" {len(agree)} of {plural(len(compared), 'node')} {are} the target's top token at {which} "
            f"(shown: draft → target{', ' + distribution_text(iteration) if is_sampled(iteration) else ''})."
        )
    return Phase("verify", "Verify", iteration.times.verify_s, caption, BOTH_DETAIL, states)


def _select(iteration: IterationTrace, states: tuple[str, ...]) -> Phase:
    late = Known(iteration).after_end
    counted = [step for step in iteration.steps if step.node_id not in late]
    tests = sum(step.kind == "test" and step.child_id is not None for step in counted)
    draws = sum(step.kind == "choice" for step in counted)
    after = f" after {plural(tests, 'test')}" if tests else ""
    if not tests and draws and is_sampled(iteration):  # NSS tests nothing
        after = f" by {plural(draws, 'draw')} from the target's distribution"
    accepted = f"{len(iteration.accepted)} of {plural(iteration.verified, 'node')} accepted"
    caption = f"{accepted}{after}. {why_final(iteration)}" if iteration.verified else why_final(iteration)
    if not iteration.drafted:
        why = f", as {words}" if (words := why_no_draft(iteration)) else ""
        caption = f"Nothing was drafted{why}: the target's own token {quote(iteration.final_text or '')} is next."
    return Phase("select", "Select", iteration.times.select_s, caption, BOTH_DETAIL, states)


def _commit(iteration: IterationTrace, states: tuple[str, ...]) -> Phase:
    kv = iteration.kv_target
    kept = len(kv.moved_from)
    how = "recomputed by a second target pass" if kv.rebuilt else "kept"
    moved = f", {byte_size(kv.bytes_moved)} moved" if kv.bytes_moved else ""
    caption = (
        f"{plural(len(iteration.committed_ids), 'token')} committed. "
        f"Target cache: {kept} of {kv.slots_written} new KV slots {how}{moved}{_dropped(kv)}; "
        f"it now holds {kv.slots_before + kept:,} slots."
    )
    if kv.rebuilt and iteration.timed:
        caption += f" The second pass took {duration(iteration.times.rebuild_s)} of that time."
    seconds = iteration.times.commit_s + iteration.times.rebuild_s
    return Phase("commit", "Commit & KV", seconds, caption, BOTH_DETAIL, states)


def _dropped(kv: KVTrace) -> str:
    """Whose slots were not kept: `; dropped: nodes in slots 61 and 63 to 68`; their number where too many to name.

    The slots that become free are those at the end of the cache, after the kept ones have moved up.
    """
    written = range(kv.slots_before, kv.slots_before + kv.slots_written)
    dropped = [slot for slot in written if slot not in kv.moved_from]
    runs = [list(group) for _, group in groupby(dropped, key=lambda slot: slot - dropped.index(slot))]
    ranges = ([f"{run[0]:,} to {run[-1]:,}"] if len(run) > 2 else [f"{slot:,}" for slot in run] for run in runs)
    words = [word for each in ranges for word in each]
    if len(words) > MOST_NAMED:
        return f"; dropped: {plural(len(dropped), 'node')}"
    return f"; dropped: {'node in slot' if len(dropped) == 1 else 'nodes in slots'} {listed(words)}" if words else ""


def _history(iteration: IterationTrace, history: HistoryTrace, states: tuple[str, ...]) -> Phase:
    changes, said = history_changes(history), statistic_words(history.statistic)
    decision = {
        "too_few": "too few iterations to judge",
        "hold": "inside the band, so settings stay",
        "bolder": "above the band, so trust the draft more",
        "more_careful": "below the band, so trust it less",
        "off": "adaptation is off",
    }.get(history.decision, history.decision)
    caption = (
        f"{said[0].upper()}{said[1:]} averages {number(history.mean)} over "
        f"{plural(len(history.window), 'iteration')} (aim {history.target:g} ± {history.dead_band:g}): "
        f"{decision}{': ' + changes if changes else ''}. Window, newest last: "
        f"{'… ' if len(history.window) > WINDOW_SHOWN else ''}{' '.join(map(number, history.window[-WINDOW_SHOWN:]))}."
    )
    return Phase("history", "History", iteration.times.adapt_s, caption, BOTH_DETAIL, states)
