"""Which branches of What if keep their key/value caches: a few, and the others read their text again to go on."""

from pages.ui.models import gibibytes
from pages.ui.what_if import History
from pages.ui.what_if_branch import Branch
from viz.tokens import plural

MOST_HELD = 4


def mark_used(history: "History", number: int) -> None:
    """Note that a branch was decoded; beyond `MOST_HELD` those used longest ago let go of their caches.

    Call it in the worker, where nothing else decodes them meanwhile.
    """
    history.uses += 1
    history.branches[number].used = history.uses
    for branch in held(history)[:-MOST_HELD]:
        branch.run.session.release()
        branch.let_go_at = len(branch.run.trace.iterations)


def held(history: "History") -> list[Branch]:
    """Branches with caches of their own in memory, the one used last at the end; deleted ones too."""
    deleted = history.deleted.branches if history.deleted else {}
    branches = (deleted | history.branches).values()
    return sorted((branch for branch in branches if branch.holds_caches), key=lambda branch: branch.used)


def memory_words(history: "History") -> str:
    """What the branches keep in memory, and what becomes of more of them."""
    kept = held(history)
    if not kept:
        return f"At most {MOST_HELD} branches keep a KV cache."
    size = sum(cache_bytes(branch) for branch in kept)
    shown = gibibytes(size) if size >= 2**20 else "less than 1 MiB"
    said = f"{plural(len(kept), 'branch keeps its', 'branches keep their')} KV cache ({shown})"
    return f"{said}, at most {MOST_HELD} do." if len(kept) < MOST_HELD else f"{said}, older ones let go of it."


def cache_bytes(branch: Branch) -> int:
    """Bytes of the rows that both caches of a branch hold."""
    last = branch.run.trace.iterations[-1]
    caches = (cache for cache in (last.kv_target, last.kv_draft) if cache is not None)
    return sum((cache.rows_before + len(cache.kept_from)) * cache.bytes_per_row for cache in caches)
