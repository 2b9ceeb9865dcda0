"""Which iterations keep their raw logits: rows of a whole vocabulary fill memory sooner than anything else."""

from dataclasses import replace

from decoding.trace.records import IterationTrace


def trace_bytes(trace: IterationTrace) -> int:
    """Bytes of the raw logits that an iteration holds."""
    return sum(rows.nbytes for rows in (trace.draft_logits, trace.target_logits) if rows is not None)


def drop_old_rows(iterations: list[IterationTrace], room: int) -> None:
    """Drop the raw logits of the oldest iterations until what is left fits into `room` bytes."""
    for place in range(len(iterations) - 1, -1, -1):
        held = iterations[place]
        if held.target_logits is None:  # rows go from the oldest on, so nothing older has any
            break
        room -= trace_bytes(held)
        if room < 0:
            iterations[place] = replace(held, draft_logits=None, target_logits=None)
