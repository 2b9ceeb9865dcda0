"""What the recorded runs were chosen for, computed from their traces. Torch-free: pages and tests compute it again."""

from collections import Counter
from dataclasses import dataclass

from decoding.trace.records import IterationTrace, RunTrace

PUNCTUATION = (".", ",", "!", "?", " a", " I")


@dataclass(frozen=True, slots=True)
class Rescue:
    """A place where the draft's first choice was rejected and a sibling of it accepted.

    Attributes:
        iteration: index of the iteration.
        rejected, accepted: node ids of the first choice and of the sibling.
        below: accepted nodes below the sibling.
        residual: whether a test that could have passed rejected the first choice and left a recorded residual.
    """

    iteration: int
    rejected: int
    accepted: int
    below: int
    residual: bool


def speed(run: RunTrace) -> float:
    """Tokens per second of wall time, prefill included."""
    return run.totals.new_tokens / run.totals.wall_s


def tokens_per_pass(run: RunTrace) -> float:
    """Committed tokens per verification pass (block efficiency)."""
    return run.totals.new_tokens / len(run.iterations)


def loops(run: RunTrace) -> bool:
    """Whether any iteration begins inside a repeated n-gram."""
    return any(iteration.in_loop for iteration in run.iterations)


def rescues(run: RunTrace) -> tuple[Rescue, ...]:
    """Every rescue of a run, in order."""
    return tuple(found for iteration in run.iterations for found in _rescues(iteration))


def _rescues(iteration: IterationTrace) -> list[Rescue]:
    if not iteration.nodes:
        return []
    found = []
    for place, node_id in enumerate(iteration.accepted):
        children = [iteration.nodes[child] for child in iteration.children(iteration.nodes[node_id].parent_id)]
        first = max(children, key=lambda node: (node.draft_probability or 0.0, -node.node_id))
        if first.node_id == node_id or first.verdict != "rejected":
            continue
        tests = [step for step in iteration.steps if step.child_id == first.node_id and not step.accepted]
        left = any(step.residual_ids and step.acceptance_probability > 0 for step in tests)
        below = len(iteration.accepted) - place - 1
        found.append(Rescue(iteration.index, first.node_id, node_id, below, left))
    return found


def best_rescue(run: RunTrace, residual: bool = False) -> Rescue | None:
    """The rescue to show: one told in words where there is one, then most accepted below it, then the earliest."""
    found = [rescue for rescue in rescues(run) if rescue.residual or not residual]
    return max(found, key=lambda rescue: (in_words(run, rescue), rescue.below, -rescue.iteration), default=None)


def in_words(run: RunTrace, rescue: Rescue) -> bool:
    """Whether both siblings are words and what follows them is words and ordinary punctuation."""
    iteration = run.iterations[rescue.iteration]
    siblings = [iteration.nodes[rescue.rejected].text, iteration.nodes[rescue.accepted].text]
    following = [*iteration.committed_texts, iteration.nodes[0].text]
    return all(map(_is_word, siblings)) and all(_is_word(text) or text in PUNCTUATION for text in following)


def _is_word(text: str) -> bool:
    return len(text.strip()) > 1 and text.strip().isalpha()


def threshold_moves(run: RunTrace) -> Counter:
    """How often history adaptation really moved a setting, by decision (`bolder`, `more_careful`)."""
    moved = (each.history for each in run.iterations if each.history is not None)
    return Counter(history.decision for history in moved if dict(history.before) != dict(history.after))
