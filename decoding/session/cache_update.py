"""After verification both caches are brought to the committed text, and what moved is noted."""

from decoding.engines.kv_cache import KVCache, keep_rows
from decoding.session.recorder import Step


def keep_committed_rows(
    step: Step,
    committed: int,
    target: KVCache,
    draft: KVCache | None,
    rebuild: bool = False,
    moved: bool = False,
    head: bool = False,
) -> None:
    """Leave the rows of every committed token but the last one in both caches.

    Args:
        step: the iteration; `kv_target` and `kv_draft` are filled in.
        committed: committed tokens, this iteration's included.
        rebuild: drop what the target wrote instead; a second forward will write it again.
        moved: the device has moved the accepted rows already.
        head: the draft is a head: rows that it drafted go, for they rest on its own features; the next iteration runs
            the accepted tokens again with the target's.
    """
    rows_before = step.target_rows_before
    missing = step.prefix_length - 1 - rows_before
    order = (*[-1] * missing, *step.draft.order.tolist())
    path = {-1, 0, *step.kept}
    kept = [rows_before + row for row, node in enumerate(order) if node in path]
    kept = kept[: committed - 1 - rows_before]
    step.kv_target = keep_rows(target, rows_before, order, kept, drop_all=rebuild, moved=moved)
    if draft is None:
        return
    source = step.source
    path = {-1, 0} if head else path
    kept = [source.rows_before + row for row, node in enumerate(source.row_nodes) if node in path]
    kept = kept[: committed - 1 - source.rows_before]
    step.kv_draft = keep_rows(draft, source.rows_before, tuple(source.row_nodes), kept, moved=moved)
