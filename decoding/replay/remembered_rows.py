"""Draft probabilities after one root by token path, each asked for once however many trees want it.

known = stored_laws(run, index)          # from the rows that the run has kept
known = model_laws(pair, run, index)     # from the draft model
draft = drafter.draft(state, known.source(), root_token, draws)
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from decoding.common.errors import require
from decoding.replay.stored_rows import RowsMissing, StoredRows
from decoding.replay.stored_state import iteration_at, method_of
from decoding.trace.edits import Path
from decoding.trace.records import RunTrace
from decoding.tree.draft import TokenTree, TreePaths

if TYPE_CHECKING:
    from decoding.models.pair import Pair
    from decoding.session.cached_models import HeadSource, ModelSource

MOST_ASKED = 1024  # rows that a draft's cache has to hold beside its text


class AskedTooMuch(RowsMissing):
    """A search has asked the draft about as many nodes as its cache has room for."""


class RememberedLaws:
    """The draft's laws by token path from one root.

    Args:
        ask: probabilities `[num_paths, vocab_size]` after some paths; parents are asked about before their children.
        depth_limit: no node may be deeper.
    """

    def __init__(self, ask: Callable[[Sequence[Path]], Tensor], depth_limit: int):
        self.depth_limit = depth_limit
        self._ask, self._laws = ask, {}

    def source(self) -> "RememberedSource":
        """A source for one tree."""
        return RememberedSource(self)

    def find(self, paths: Sequence[Path]) -> Tensor:
        """Probabilities after some paths, `[num_paths, vocab_size]`.

        Raises:
            RowsMissing: one of them is not known and cannot be asked for.
        """
        asked = [path for path in paths if path not in self._laws]
        if asked:
            self._laws.update(zip(asked, self._ask(asked), strict=True))
        return torch.stack([self._laws[path] for path in paths])


class RememberedSource:
    """Answers a drafter about one tree."""

    def __init__(self, laws: RememberedLaws):
        self.depth_limit = laws.depth_limit
        self._laws, self._paths = laws, TreePaths()

    def expand(self, tree: TokenTree, nodes: np.ndarray) -> Tensor:
        """Draft probabilities after `nodes`, `[len(nodes), vocab_size]`.

        Raises:
            RowsMissing: a row is not known.
        """
        return self._laws.find(self._paths.of(tree, nodes))


def stored_laws(run: RunTrace, index: int) -> RememberedLaws:
    """The draft's laws that a run has kept.

    Raises:
        SettingsError: the run has no such iteration.
    """
    rows, temperature = StoredRows(run, index), run.sampling.draft_temperature
    return RememberedLaws(lambda paths: torch.softmax(rows.find("draft", paths) / temperature, -1), rows.depth_limit)


def model_laws(pair: "Pair", run: RunTrace, index: int) -> RememberedLaws:
    """The laws of the run's draft, a model or a head, as it tells them; it reads the text before the iteration first.

    Raises:
        SettingsError: the run has no such iteration, or another pair decoded it.
        PairError: the head that drafted is damaged.
    """
    # Both bring transformers, which stored rows do without.
    from decoding.engines.clock import PhaseClock
    from decoding.session.cached_models import CachedModels

    require(
        pair.info.name == run.pair.name and not pair.draft.released,
        f"{run.pair.name} decoded this run and is not in memory: load it to ask its draft.",
    )
    iteration = iteration_at(run, index)
    text = [*run.prompt_ids, *run.output_ids][: iteration.prefix_length]
    depth_limit = run.max_new_tokens - (iteration.prefix_length - len(run.prompt_ids)) - 1
    pair = method_of(run).drafting(pair)
    models = CachedModels(pair, len(text), uses_draft=True)
    models.draft_cache = pair.drafting.engine.new_cache(len(text) + MOST_ASKED)
    clock, temperature = PhaseClock(pair.drafting.device), run.sampling.draft_temperature
    if pair.head is not None:  # a draft model reads the text when it is first asked
        with torch.inference_mode():
            models.prefill(text)
    source = models.source(text, depth_limit, clock, temperature)
    return RememberedLaws(_Asked(source, text[-1]), source.depth_limit)


class _Asked:
    """Asks the model about nodes of one tree that holds every path ever asked about."""

    def __init__(self, source: "ModelSource | HeadSource", root_token: int):
        self._source, self._tree = source, TokenTree(root_token)
        self._ids: dict[Path, int] = {(): 0}

    def __call__(self, paths: Sequence[Path]) -> Tensor:
        if self._tree.size + len(paths) > MOST_ASKED:
            raise AskedTooMuch(
                f"The draft was asked about {MOST_ASKED:,} nodes already: more rows are not kept for it."
            )
        new = [path for path in paths if path]
        if new:
            parents = np.array([self._ids[path[:-1]] for path in new])
            ids = self._tree.append(parents, np.array([path[-1] for path in new]), np.ones(len(new)))
            self._ids.update(zip(new, ids.tolist(), strict=True))
        with torch.inference_mode():
            return self._source.expand(self._tree, np.array([self._ids[path] for path in paths]))
