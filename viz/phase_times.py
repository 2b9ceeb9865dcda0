"""Where the time of one iteration went, in the words and the parts of its phases, so that both add up to the same.

The draft's forwards stand apart from everything else that drafting does. Where they were not timed one by one, as on a
GPU, the draft has one time. What no phase claims is `other`.
"""

from decoding.trace import PHASES, IterationTrace
from viz.theme import PHASE_WORDS

FORWARDS, TREE, WHOLE = "draft forwards", "build tree", "whole draft"


def prunes(iteration: IterationTrace) -> bool:
    """Whether its method takes nodes out of the tree before verification."""
    limit = iteration.settings.get("prune_probability")
    return float(limit or 0) > 0 or any(node.pruned for node in iteration.nodes)


def forwards_s(iteration: IterationTrace) -> float:
    """Seconds of the draft's forwards, 0 where they were not timed one by one."""
    return sum(iteration.times.draft_levels_s)


def tree_s(iteration: IterationTrace) -> float:
    """Seconds of drafting beside its forwards; a method that never prunes has its check for that in it."""
    times = iteration.times
    return max(times.draft_s - forwards_s(iteration), 0.0) + (0.0 if prunes(iteration) else times.prune_s)


def tree_words(iteration: IterationTrace) -> str:
    """What `tree_s` is the time of."""
    return TREE if forwards_s(iteration) > 0 else WHOLE


def time_rows(iteration: IterationTrace) -> list[tuple[str, str, float]]:
    """Key, words and seconds of what took time, in order; keys are those of the phases, `rebuild` and `other`."""
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
            rows += [("draft", FORWARDS, forwards_s(iteration)), ("tree", tree_words(iteration), tree_s(iteration))]
        elif name != "prune" or prunes(iteration):
            rows.append((name, PHASE_WORDS[name], value))
    rows.append(("other", PHASE_WORDS["other"], max(times.total_s - sum(row[2] for row in rows), 0.0)))
    return [row for row in rows if row[2] > 0]
