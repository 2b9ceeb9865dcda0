"""The guided tour: run, iteration, node and phase of each stop, and two sentences with its numbers."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from decoding.analysis.bottom_line import Option, bottom_line, paired
from decoding.common.formats import duration, number, plural
from decoding.trace.records import IterationTrace, RunTrace
from decoding.trace.tree_mask import tree_mask
from viz.explain.bottom_line import bottom_line_words
from viz.explain.iteration import history_changes, why_verdict
from viz.explain.known import Known
from viz.scope.phases import PhaseNode, phases_of
from viz.tokens import quote

# Recordings that the tour shows: one iteration from the draft to the commit, one run that adapts, three methods.
STORY, ADAPTING, COMPARED = "sibling_rescue", "history", "tree_helps"
STEP_THROUGH, WHAT_IF, COMPARE = "Step through", "What if", "Compare"


@dataclass(frozen=True, slots=True)
class TourStep:
    """One stop.

    Attributes:
        key, title: name of the stop and its label in the bar.
        iteration, node, phase: where the scope goes, None to stay.
        words: two sentences with numbers of the run shown.
        page: label of the page it is on. recording: the run shown.
    """

    key: str
    title: str
    iteration: int
    node: int | None
    phase: str | None
    words: str
    page: str = STEP_THROUGH
    recording: str = STORY


@dataclass(frozen=True, slots=True)
class Story:
    """The iteration of the tour, and where in it the sibling of a rejected first choice was accepted."""

    iteration: IterationTrace
    rejected: int
    accepted: int


def tour_steps(
    runs: Mapping[str, RunTrace], story: Story, rivals: Mapping[str, RunTrace], pages: Collection[str]
) -> tuple[TourStep, ...]:
    """The stops in order, without those whose page is missing.

    Args:
        runs: the recordings by name. rivals: the runs compared with `COMPARED`, by `chain` and `plain`.
        pages: labels of the pages that can be shown.
    """
    steps = (
        _draft(story.iteration),
        _tree(story.iteration),
        _mask(story),
        _verify(story.iteration),
        _accept(story),
        _why(story),
        _rollback(story),
        _adapt(runs[ADAPTING]),
        _what_if(story),
        _compare(runs[COMPARED], rivals),
    )
    return tuple(step for step in steps if step.page in pages)


def _last_phase(iteration: IterationTrace, *kinds: str) -> str:
    """Key of the last phase of an iteration whose key begins with one of some words."""
    shown = [PhaseNode((node.node_id,), "node" if node.node_id else "root") for node in iteration.nodes]
    return [phase.key for phase in phases_of(Known(iteration), shown) if phase.key.startswith(kinds)][-1]


def _draft(iteration: IterationTrace) -> TourStep:
    best = max(iteration.nodes[1:], key=lambda node: (node.depth, node.path_probability))
    path = "".join(iteration.nodes[node].text for node in iteration.path(best.node_id)[1:])
    words = (
        f"In {plural(iteration.draft_forwards, 'pass', 'passes')} ({duration(iteration.times.draft_s)}) the small "
        f"draft model drafted {plural(iteration.drafted, 'node')} below the last token "
        f"{quote(iteration.nodes[0].text)}. Its deepest guess is {quote(path)}, with path probability "
        f"{number(best.path_probability)}."
    )
    if iteration.settings.get("branch_first_level"):
        words += " The settings are ours, with which the app begins: the first level may branch."
    return TourStep("draft", "Draft", iteration.index, best.node_id, _last_phase(iteration, "draft"), words)


def _tree(iteration: IterationTrace) -> TourStep:
    grown = [(n.branching, n.confidence, n) for n in iteration.nodes if n.confidence is not None and n.branching]
    children, confidence, unsure = min(grown, key=lambda each: (-each[0], each[1]))
    fewer, highest, sure = max(grown, key=lambda each: (-each[0], each[1]))
    pruned = sum(node.pruned for node in iteration.nodes)
    wide = plural(children, "child is", "children are")
    narrow = f"; after {quote(sure.text)} it has {number(highest)} and gets {fewer}"
    words = (
        f"After {quote(unsure.text)} the draft's top token has only {number(confidence)}, so {wide} drafted"
        f"{narrow if fewer < children else ''}. "
        f"{pruned} of {plural(iteration.drafted, 'node')} are on paths too unlikely to verify and are pruned."
    )
    return TourStep("tree", "Tree", iteration.index, unsure.node_id, _last_phase(iteration, "draft", "prune"), words)


def _mask(story: Story) -> TourStep:
    iteration = story.iteration
    node = iteration.nodes[iteration.accepted[-1]]
    mask, rows = tree_mask(iteration), len(iteration.flatten_order)
    words = (
        f"The tree is flattened into {rows} mask rows for one pass; the mask allows {mask.cells} of their "
        f"{rows * rows} cells. {quote(node.text)} attends to {plural(mask.prefix_columns, 'token')} of text, its "
        f"{plural(node.depth, 'ancestor')} and itself, but to no other branch."
    )
    return TourStep("mask", "Mask", iteration.index, node.node_id, "mask", words)


def _verify(iteration: IterationTrace) -> TourStep:
    compared = [node for node in iteration.nodes if node.target_probability is not None and node.node_id]
    agree = [node for node in compared if iteration.nodes[node.parent_id].target_argmax == node.token_id]
    most = max(agree or compared, key=lambda node: (node.target_probability or 0.0) - (node.draft_probability or 0.0))
    words = (
        f"One pass of the large target model reads the root and all {len(iteration.flatten_order) - 1} verified nodes "
        f"in {duration(iteration.times.verify_s)}; {len(agree)} of {plural(len(compared), 'node')} are its most "
        f"likely token at their position. For {quote(most.text)} the draft has {number(most.draft_probability)}, the "
        f"target {number(most.target_probability)}."
    )
    return TourStep("verify", "Verify", iteration.index, most.node_id, "verify", words)


def _accept(story: Story) -> TourStep:
    iteration = story.iteration
    first, second = iteration.nodes[story.rejected], iteration.nodes[story.accepted]
    below = len(iteration.accepted) - iteration.accepted.index(story.accepted) - 1
    words = (
        f"The draft's first choice {quote(first.text)} ({number(first.draft_probability)}) is rejected, which would "
        f"end a chain; its sibling {quote(second.text)} ({number(second.draft_probability)}) is accepted, and {below} "
        f"more below it. With the {iteration.final_kind} token {quote(iteration.final_text or '')} this pass "
        f"commits {plural(len(iteration.committed_ids), 'token')}."
    )
    return TourStep("accept", "Accept", iteration.index, story.accepted, "select", words)


def _why(story: Story) -> TourStep:
    iteration = story.iteration
    node = iteration.nodes[story.rejected]
    words = (
        f"Click any node: its card says why. {quote(node.text)}, {node.verdict.replace('_', ' ')}: "
        f"{why_verdict(iteration, node.node_id)}"
    )
    return TourStep("why", "Why", iteration.index, node.node_id, "select", words)


def _rollback(story: Story) -> TourStep:
    iteration, cache = story.iteration, story.iteration.kv_target
    words = (
        f"The pass wrote {plural(cache.slots_written, 'slot')} of the target's key/value (KV) cache; the "
        f"{len(cache.moved_from)} of the root and the accepted path are kept, the other {cache.slots_freed} freed. "
        f"The cache now holds {cache.slots_before + len(cache.moved_from)} slots, as if the rest were never computed."
    )
    return TourStep("rollback", "Rollback", iteration.index, story.rejected, "commit", words)


def _adapt(run: RunTrace) -> TourStep:
    moved = [(iteration, iteration.history) for iteration in run.iterations if iteration.history]
    iteration, history = max(moved, key=lambda each: (history_changes(each[1]).count("→"), -each[0].index))
    direction = "bolder" if history.decision == "bolder" else "more careful"
    changes = history_changes(history)
    settings = "" if iteration.settings.get("branch_first_level") else " with the paper's default"
    words = (
        f"Another run{settings}: over its last {plural(len(history.window), 'iteration')} {number(history.mean)} of "
        f"the verified tree's depth was accepted; the aim is {history.target:g} ± {history.dead_band:g}. "
        f"So drafting gets {direction}: {changes}."
    )
    return TourStep("adapt", "Adapt", iteration.index, None, "history", words, recording=ADAPTING)


def _what_if(story: Story) -> TourStep:
    iteration = story.iteration
    words = (
        f"Change the same iteration {iteration.index + 1} with its {plural(iteration.drafted, 'node')}: re-run it "
        f"on this machine, then force a node out or in, or change a setting. A and B compare the new text with its "
        f"{plural(len(iteration.committed_ids), 'token')}."
    )
    return TourStep("what_if", "What if", iteration.index, story.accepted, "select", words, page=WHAT_IF)


def _compare(run: RunTrace, rivals: Mapping[str, RunTrace]) -> TourStep:
    def pace(each: RunTrace) -> str:
        tokens, seconds = each.totals.new_tokens, each.totals.wall_s
        return f"{tokens / len(each.iterations):.2f} and {tokens / seconds:.0f}"

    plain = {(0, 0): rivals["plain"].totals.new_tokens / rivals["plain"].totals.wall_s}
    timed = [(each.label, {(0, 0): each.totals.new_tokens / each.totals.wall_s}) for each in (run, rivals["chain"])]
    line = bottom_line([Option(label, paired(speed, plain)) for label, speed in timed], "plain decoding")
    words = (
        f"Tokens per pass and per second of three recorded calls: tree {pace(run)}, chain {pace(rivals['chain'])}, "
        f"plain decoding {pace(rivals['plain'])}. {bottom_line_words(line)} Press Compare to measure."
    )
    return TourStep("compare", "Compare", 0, None, None, words, COMPARE, COMPARED)
