"""An iteration whose path the end of the text cut: what the verifier would have committed after it.

The end of text token or the requested length ends a run as autoregressive decoding would, in the middle of a path if
need be. The verifier decided about the whole tree all the same, so that its record goes on behind the end.
"""

from decoding.trace.records import IterationTrace, VerificationStep
from viz.tokens import quote


def is_cut(iteration: IterationTrace) -> bool:
    """Whether the text or its requested length ended before the verifier's path did."""
    return iteration.final_kind == "none" and bool(iteration.committed_ids)


def cut_nodes(iteration: IterationTrace) -> tuple[int, ...]:
    """Nodes that the verifier accepted after the end of the text, from the first one down."""
    if not is_cut(iteration) or not iteration.steps:
        return ()
    kept = set(iteration.accepted)
    return tuple(node for node in iteration.path(iteration.steps[-1].node_id)[1:] if node not in kept)


def after_end(iteration: IterationTrace) -> frozenset[int]:
    """Nodes at which the verifier decided after the end of the text: where the text ended, and what was cut off."""
    if not is_cut(iteration):
        return frozenset()
    return frozenset((iteration.accepted[-1] if iteration.accepted else 0, *cut_nodes(iteration)))


def is_after_end(iteration: IterationTrace, step: VerificationStep) -> bool:
    """Whether a decision came after the end of the text: at a node, or about one, that was not committed."""
    return step.node_id in after_end(iteration)


def end_words(iteration: IterationTrace) -> str:
    """Where the text ended."""
    return f"the text or its requested length ended with {quote(iteration.committed_texts[-1])}"


def would_have(iteration: IterationTrace) -> str:
    """What would have been committed after the end; empty where no test was recorded."""
    last = iteration.steps[-1] if iteration.steps else None
    if last is None or last.child_id is not None:
        return ""
    drafted = [iteration.nodes[node].text for node in cut_nodes(iteration)]
    final = iteration.texts.get(last.token_id, f"<{last.token_id}>")
    path = f"{quote(''.join(drafted))} and " if drafted else ""
    return f"{path}the final token {quote(final)}"
