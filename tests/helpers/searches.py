"""Trees that drafters made on tables of probabilities, as records: searches of every shape without a model."""

from dataclasses import replace

import numpy as np

from decoding.drafters.base import Drafter
from decoding.sampling.draws import Draws
from decoding.session.recorder import top_by_node
from decoding.trace.records import STOP_REASONS, IterationTrace, NodeTrace
from tests.helpers import traces

ROOT = 9


def searched(drafter: Drafter, source, draws: Draws | None = None) -> IterationTrace:
    """The iteration of a drafter on a table of probabilities; nothing of it is accepted."""
    draft = drafter.draft(None, source, ROOT, draws)
    tree, flat = draft.tree, {int(node): row for row, node in enumerate(draft.order)}
    ids, probs = top_by_node(tree.size, list(draft.rows))
    breadths = drafter.breadths(draft)
    columns = {name: getattr(tree, name).tolist() for name in tree.COLUMNS}
    nodes = []
    for i in range(tree.size):
        level, width, verified = columns["level"][i], columns["branching"][i], i in flat
        nodes.append(
            NodeTrace(
                i, columns["parents"][i], columns["depths"][i], columns["tokens"][i], f"t{columns['tokens'][i]}", 1,
                columns["draft_probs"][i] if i else None, columns["path_probs"][i], None, None if width < 0 else width,
                STOP_REASONS[columns["stop_reason"][i]], not verified, 0.5 if i and verified else None, 0, "t0", 0.5,
                0.5 if i and verified else None, ("rejected" if verified else "not_verified") if i else "root",
                flat.get(i), None if level < 0 else level, None, breadths[i], None,
            )
        )  # fmt: skip
    known = {*ids.ravel().tolist(), *columns["tokens"]}
    return replace(
        traces.bonus(), nodes=tuple(nodes), flatten_order=tuple(draft.order.tolist()), steps=(), accepted=(),
        settings=draft.settings, rule=drafter.rule(draft.settings), texts={each: f"t{each}" for each in known},
        draft_sampling=draft.draft_sampling, draft_top_ids=ids, draft_top_probs=probs, drafted=tree.size - 1,
        target_top_ids=np.full_like(ids, -1), target_top_probs=np.full_like(probs, np.nan),
        verified=len(flat) - 1, tree_depth=int(tree.depths[draft.order].max()), draft_forwards=len(draft.rows),
        times=replace(traces.bonus().times, draft_levels_s=(0.001,) * len(draft.rows)),
    )  # fmt: skip
