"""Every view of an iteration as text: the tree as an indented outline; tests, mask, KV slots and times as tables.

tree_outline(iteration)          # lines in reading order, each with its depth
outline_html(lines)              # the same as nested lists, escaped
tables(iteration)                # the tests, the mask, the KV slots, the times
table_html(table)                # a table with caption and heads, escaped
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx

from decoding.common.formats import duration, listed, number, plural
from decoding.trace.records import HistoryTrace, IterationTrace, KVTrace
from decoding.trace.tree_mask import tree_mask
from viz.explain.iteration import history_changes, iteration_summary, verdict_words, why_final, why_verdict
from viz.explain.known import Known, distribution_text, end_words, target_shown
from viz.glossary import statistic_words
from viz.scope.phases import FINAL_ID, time_rows
from viz.scope.steps import search_steps
from viz.tables import html_table
from viz.theme import MARKS
from viz.tokens import quote, readable, token_text, visible

NOT_RECORDED = "This iteration was recorded as a summary, without its tree."


@dataclass(frozen=True, slots=True)
class OutlineLine:
    """One node in words; `depth` counts drafted tokens, the root has 0."""

    depth: int
    node_id: int
    words: str


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as words; the first column names its row. `note` is a sentence below, or why there are no rows."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def tree_outline(iteration: IterationTrace) -> tuple[OutlineLine, ...]:
    """One line per node, children below their parent in draft order, the final token where the path ended."""
    if not iteration.nodes:
        return ()
    iteration = readable(iteration)
    known, lines = Known(iteration), []
    tree = nx.DiGraph([(node.parent_id, node.node_id) for node in iteration.nodes[1:]])
    tree.add_node(0)
    ended_at = iteration.accepted[-1] if iteration.accepted else 0
    if iteration.final_kind != "none":
        tree.add_edge(ended_at, FINAL_ID)
    for node_id in nx.dfs_preorder_nodes(tree, 0):
        if node_id == FINAL_ID:
            words = f"Final token {quote(iteration.final_text or '')}: {iteration.final_kind}. {why_final(iteration)}"
            lines.append(OutlineLine(iteration.nodes[ended_at].depth + 1, FINAL_ID, words))
        else:
            lines.append(OutlineLine(iteration.nodes[node_id].depth, node_id, _node_words(known, node_id)))
    return tuple(lines)


def _node_words(known: Known, node_id: int) -> str:
    iteration, node = known.iteration, known.iteration.nodes[node_id]
    why = first_sentence(why_verdict(iteration, node_id, known))
    if not node_id:
        return f"Root {quote(node.text)}: {MARKS['root'].words}"
    drawn = f", drawn {node.multiplicity} times" if node.multiplicity > 1 else ""
    verdict = verdict_words(iteration, node_id, known)
    distributions = f"draft {number(node.draft_probability)} → target {number(target_shown(node))}"
    distributions += (
        f" ({distribution_text(iteration)})" if known.sampled and node.target_probability is not None else ""
    )
    path = f", path probability {number(node.path_probability)}"
    return f"Node {node_id} {quote(node.text)}: {distributions}{path}{drawn}, {verdict}. {why}"


def first_sentence(text: str) -> str:
    """Text up to its first full stop; token text has no plain spaces, so a full stop in a token ends nothing."""
    return text.split(". ", 1)[0].rstrip(".") + "." if text else ""


def outline_text(iteration: IterationTrace) -> str:
    """The outline as plain text, two spaces per level."""
    lines = [iteration_summary(iteration)]
    lines += ["  " * line.depth + line.words for line in tree_outline(iteration)]
    return "\n".join(lines if len(lines) > 1 else [*lines, NOT_RECORDED])


def outline_html(lines: Sequence[OutlineLine]) -> str:
    """The outline as nested lists, so that a screen reader reads out the depth of a node; escaped."""
    pieces, depth = [], -1
    for line in lines:
        pieces.append("<ul><li>" if line.depth > depth else "</li></ul>" * (depth - line.depth) + "</li><li>")
        pieces.append(html.escape(line.words))
        depth = line.depth
    return "".join(pieces) + "</li></ul>" * (depth + 1)


def tables(iteration: IterationTrace) -> tuple[Table, ...]:
    """The linked panels of an iteration as tables."""
    iteration = readable(iteration)
    drafts = () if iteration.kv_draft is None else (cache_table(iteration, "draft", iteration.kv_draft),)
    target = cache_table(iteration, "target", iteration.kv_target)
    history = () if iteration.history is None else (history_table(iteration.index, iteration.history),)
    search = search_steps(iteration)
    searched = () if search is None else (search_table(search),)
    return (*searched, steps_table(iteration), mask_table(iteration), target, *drafts, phase_table(iteration), *history)


def search_table(search: dict) -> Table:
    """The steps of a search that is stepped (`viz.scope.steps`): what each did, and its figures."""
    rows = [(str(place), each["said"], *each["values"]) for place, each in enumerate(search["steps"], start=1)]
    heads = ("Step", "What it does", *(name for name, _ in search["figures"]))
    return Table(f"Drafting: {search['title'].lower()}", heads, tuple(rows), f"{search['about']} {search['help']}")


def steps_table(iteration: IterationTrace) -> Table:
    """The verifier's tests in their order."""
    known = Known(iteration)
    rows, late = [], known.after_end
    for place, step in enumerate(iteration.steps, start=1):
        token = quote(token_text(iteration, step.token_id))
        tested = f"final token {token}" if step.child_id is None else f"node {step.child_id} {token}"
        outcome = "accepted" if step.accepted else "rejected"
        outcome = "chosen" if step.kind == "choice" or step.child_id is None else outcome
        outcome += ", not committed" if outcome != "rejected" and step.node_id in late else ""
        kind = f"match against node {step.rival_id}" if step.kind == "match" else step.kind
        chance, drawn = number(step.acceptance_probability, 3), number(step.drawn if known.sampled else None, 3)
        rows.append((str(place), f"node {step.node_id}", tested, kind, chance, drawn, outcome))
    heads = ("Test", "After", "Tested", "Kind", "Probability", "Drawn", "Outcome")
    note = "" if rows else "No test was recorded."
    if any(step.node_id in late for step in iteration.steps):
        note = f"Decisions at and after the end of the text were not committed: {end_words(iteration)}."
    return Table("Tests of the verifier, in order", heads, tuple(rows), note)


def mask_table(iteration: IterationTrace) -> Table:
    """The attention mask: what each node of the verification pass attends to."""
    heads = ("Row", "Node", "Token", "Attends to")
    if not iteration.nodes:
        return Table("Attention mask", heads, (), NOT_RECORDED)
    mask = tree_mask(iteration)
    rows = []
    for row, node_id in enumerate(mask.order):
        seen = [str(mask.order[place]) for place in mask.allowed[row].nonzero()[0]]
        words = f"{plural(mask.prefix_columns, 'prefix token')}, node{'s' if len(seen) > 1 else ''} {listed(seen)}"
        rows.append((str(row), str(node_id), visible(iteration.nodes[node_id].text), words))
    return Table("Attention mask", heads, tuple(rows), mask.stats() + ".")


def cache_table(iteration: IterationTrace, model: str, kv: KVTrace) -> Table:
    """What became of each KV slot that an iteration wrote."""
    goes_to = {row: kv.slots_before + place for place, row in enumerate(kv.moved_from)}
    rows = []
    for place, node_id in enumerate(kv.slot_nodes):
        row = kv.slots_before + place
        if row not in goes_to:
            fate = "dropped"
        elif kv.rebuilt:
            fate = f"recomputed, as slot {goes_to[row]}"
        else:
            fate = "kept in place" if goes_to[row] == row else f"moved to slot {goes_to[row]}"
        token = visible(iteration.nodes[node_id].text) if iteration.nodes and node_id >= 0 else ""
        rows.append((str(row), "committed text" if node_id < 0 else f"node {node_id}", token, fate))
    note = f"{plural(kv.slots_before, 'earlier slot')} untouched; {plural(kv.bytes_per_slot, 'byte')} per slot, exact."
    return Table(f"KV slots of the {model}", ("Slot", "Written for", "Token", "Afterwards"), tuple(rows), note)


def phase_table(iteration: IterationTrace) -> Table:
    """Measured time of each phase and its share."""
    times = time_rows(iteration)
    total = sum(seconds for _, _, seconds in times)
    if not total > 0:
        return Table("Time by phase", ("Phase", "Time", "Share"), (), "No times: this iteration was not measured.")
    rows = [(words, duration(seconds), f"{seconds / total:.0%}") for _, words, seconds in times]
    rows.append(("all", duration(total), "100%"))
    passes = plural(iteration.target_passes, "target pass", "target passes")
    note = f"Measured; {plural(iteration.draft_forwards, 'draft forward')}, {passes}."
    return Table("Time by phase", ("Phase", "Time", "Share"), tuple(rows), note)


def history_table(index: int, history: HistoryTrace) -> Table:
    """The window that history adaptation looked at after an iteration, and what it changed."""
    first = index + 2 - len(history.window)
    rows = tuple((str(place), number(value, 3)) for place, value in enumerate(history.window, start=first))
    note = f"Mean {number(history.mean, 3)}, aim {history.target:g} ± {history.dead_band:g}: "
    note += history_changes(history) or "nothing changed"
    return Table("History adaptation", ("Iteration", statistic_words(history.statistic)), rows, f"{note}.")


def table_html(table: Table) -> str:
    """A table with its title and its note; everything escaped."""
    note = f"<p>{html.escape(table.note)}</p>" if table.note else ""
    if not table.rows:
        return f'<div class="as-text"><p><b>{html.escape(table.title)}</b></p>{note}</div>'
    return f'<div class="as-text">{html_table(table.heads, table.rows, "ruled", table.title)}{note}</div>'
