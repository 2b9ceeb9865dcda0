"""Draft probabilities of a recorded run: its stored rows answer other methods without any model, or its draft does.

known = recorded_memo(run, index)          # from the rows that the run has kept
known = model_memo(pair, run, index)     # from the draft model
draft = drafter.draft(state, known.source(), root_token, draws)
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from decoding.common.errors import DraftscopeError, require
from decoding.device.iteration import NoSource
from decoding.engines.clock import PhaseClock
from decoding.replay.stored_state import iteration_at, method_of
from decoding.session.cached_models import CachedModels
from decoding.session.iteration import SessionState, edit_draft
from decoding.trace.interventions import Interventions, Path
from decoding.trace.records import IterationTrace, RunTrace, node_paths
from decoding.tree.draft import Draft, TokenTree, TreePaths, in_order

if TYPE_CHECKING:
    from decoding.models.pair import Pair

Side = Literal["draft", "target"]
Place = tuple[np.ndarray, int]  # raw logits of an iteration, and a row of them
MOST_ASKED = 1024  # rows that a draft's cache has to hold beside its text


class LogitsMissing(DraftscopeError):  # noqa: N818 - it says what is the case
    """Stored rows cannot answer: the models were never asked this, or what they said was not kept."""


class RecordedLogits:
    """Raw logits of both models by token path from the root of one iteration.

    A row belongs to a text, so rows of other iterations answer as well where they stand along the same text.

    Raises `SettingsError` where the run has no such iteration.
    """

    def __init__(self, run: RunTrace, index: int):
        self.run, self.iteration = run, iteration_at(run, index)
        self._own: dict[Side, dict[Path, Place]] = {
            side: dict(_rows_of(self.iteration, side)) for side in ("draft", "target")
        }

    def require_any(self) -> np.ndarray:
        """The target's rows of the iteration itself; raises `LogitsMissing` where they were not saved."""
        rows = self.iteration.target_logits
        if rows is None or not self._own["target"]:
            number = self.iteration.index + 1
            raise LogitsMissing(f"The full logits of iteration {number} were not saved: re-run with its pair loaded.")
        return rows

    def require_draft(self, head: str) -> None:
        """Raise `LogitsMissing` where another draft made the iteration: its logits differ."""
        if self.iteration.draft_head != head:
            raise LogitsMissing(
                f"Iteration {self.iteration.index + 1} used another draft, and the logits of this one were not saved: "
                "re-run with its pair loaded."
            )

    @property
    def root_token(self) -> int:
        """The last token committed before the iteration."""
        return self.iteration.nodes[0].token_id

    @property
    def prefix(self) -> tuple[int, ...]:
        """The text before the iteration, prompt and all."""
        return (*self.run.prompt_ids, *self.run.output_ids)[: self.iteration.prefix_length]

    @property
    def depth_limit(self) -> int:
        """Depth of the deepest node whose token could still be committed with one after it."""
        return self.room - 1

    @property
    def room(self) -> int:
        """Tokens that the iteration could commit before the run's length is reached."""
        return self.run.max_new_tokens - (self.iteration.prefix_length - len(self.run.prompt_ids))

    def find(self, side: Side, paths: Sequence[Path]) -> Tensor:
        """The rows after some paths, `[num_paths, vocab_size]` in float32.

        Raises `LogitsMissing` where one of them is not stored.
        """
        return torch.from_numpy(np.stack([logits[row] for logits, row in self._places(side, paths)]))

    def of_tree(self, side: Side, made: IterationTrace) -> np.ndarray:
        """The rows of another tree in this place, `[num_nodes, vocab_size]` in float32, nan where it has none.

        A tree with the same nodes shares the recorded rows: filling as much memory anew takes longer than all the rest.

        Raises `LogitsMissing` where one of them is not stored.
        """
        wanted, own = dict(_nodes_with_rows(made, side)), self._own[side]
        if len(made.nodes) == len(self.iteration.nodes) and wanted == {path: row for path, (_, row) in own.items()}:
            recorded = getattr(self.iteration, f"{side}_logits")
            if recorded is not None:
                return recorded
        table = np.full((len(made.nodes), self.require_any().shape[1]), np.nan, dtype=np.float32)
        for node, (logits, row) in zip(wanted.values(), self._places(side, wanted), strict=True):
            table[node] = logits[row]
        return table

    def text(self, token_id: int) -> str:
        """Text of a token as the run tells it; one that it never mentions reads `<id>`."""
        return self._texts.get(token_id, f"<{token_id}>")

    @cached_property
    def _texts(self) -> dict[int, str]:
        texts = dict(zip(self.run.prompt_ids, self.run.prompt_texts, strict=True))
        for iteration in self.run.iterations:
            texts |= dict(zip(iteration.committed_ids, iteration.committed_texts, strict=True)) | dict(iteration.texts)
        return texts

    @cached_property
    def _others(self) -> dict[Side, dict[Path, Place]]:
        """Rows of the iterations whose text passes through this root, near enough to have any."""
        found: dict[Side, dict[Path, Place]] = {"draft": {}, "target": {}}
        here, text = self.iteration.prefix_length, (*self.run.prompt_ids, *self.run.output_ids)
        for other in self.run.iterations:
            there = other.prefix_length
            deepest = max((node.depth for node in other.nodes), default=0)
            if other.index == self.iteration.index or here - there > deepest:
                continue
            between = text[min(here, there) : max(here, there)]
            for side, known in found.items():
                if side == "draft" and (self.iteration.draft_head or other.draft_head):
                    continue  # a head's answer rests on features, which for the same text differ by iteration
                for path, place in _rows_of(other, side):
                    if there >= here:
                        known.setdefault(between + path, place)
                    elif path[: len(between)] == between:
                        known.setdefault(path[len(between) :], place)
        return found

    def _places(self, side: Side, paths: Iterable[Path]) -> Iterator[Place]:
        own = self._own[side]
        for path in paths:
            place = own.get(path) or self._others[side].get(path)
            if place is None:
                after = " ".join(repr(self.text(token)) for token in path) or "the root"
                raise LogitsMissing(  # iterations counted as the screen does
                    f"Iteration {self.iteration.index + 1} has no {side} logits after {after}: re-run with its pair "
                    "loaded to compute them."
                )
            yield place


def _rows_of(iteration: IterationTrace, side: Side) -> Iterator[tuple[Path, Place]]:
    """The rows that an iteration has kept of one model, by path from its own root."""
    logits = getattr(iteration, f"{side}_logits")
    if logits is not None:
        yield from ((path, (logits, node)) for path, node in _nodes_with_rows(iteration, side))


def _nodes_with_rows(iteration: IterationTrace, side: Side) -> Iterator[tuple[Path, int]]:
    """Path and id of the nodes after which a model was asked."""
    for node, path in zip(iteration.nodes, node_paths(iteration), strict=True):
        if (node.draft_level if side == "draft" else node.flat_index) is not None:
            yield path, node.node_id


class RecordedSource(NoSource):
    """Answers drafters from stored rows as `ModelSource` answers from the model.

    Args:
        slots_before: rows that the draft's cache held, for the record of what its passes would have written.
        head: the draft is a head, which has no row of the first token of a text.
    """

    def __init__(self, rows: RecordedLogits, temperature: float = 1.0, slots_before: int = 0, head: bool = False):
        depth_limit = 0 if head and rows.iteration.prefix_length == 1 else rows.depth_limit
        super().__init__(depth_limit, slots_before, rows.prefix)
        self._rows, self._temperature, self._paths = rows, temperature, TreePaths()
        self._pending = rows.iteration.prefix_length - slots_before - head

    def past(self) -> None:
        """Raise `LogitsMissing`: hidden states are not recorded."""
        raise LogitsMissing(
            "A selector reads hidden states of both models, which are not recorded: re-run with its pair loaded."
        )

    def expand(self, tree: TokenTree, nodes: np.ndarray) -> Tensor:
        """Draft probabilities after `nodes` in float32, `[len(nodes), vocab_size]`, or `LogitsMissing`."""
        logits = self._rows.find("draft", self._paths.of(tree, nodes))
        if not self.forwards:
            self.slot_nodes = [-1] * (self._pending - 1)
        self.slot_nodes.extend(nodes.tolist())
        self.forwards += 1
        self.logits.append(logits)
        return torch.softmax(logits if self._temperature == 1 else logits / self._temperature, -1)


def draft_from(
    source: RecordedSource, rows: RecordedLogits, standing: SessionState, interventions: Interventions
) -> Draft:
    """Draft from stored rows and carry the edits out.

    Raises `LogitsMissing` where the draft was never asked what this method wants to know; `SettingsError` where an edit
    does not fit the tree.
    """
    rows.require_any()
    draft = standing.method.drafter.draft(standing.state, source, rows.root_token, standing.draws)
    draft = edit_draft(draft, source, interventions, rows.text) if interventions else draft
    return in_order(draft, standing.method.node_order)


class AskedTooMuch(LogitsMissing):
    """A search has asked the draft about as many nodes as its cache has room for."""


class DraftMemo:
    """The draft's distributions by token path from one root, each asked for once however many trees want it.

    Args:
        ask: probabilities `[num_paths, vocab_size]` after some paths; parents are asked about before their children.
        depth_limit: no node may be deeper. prefix: the text so far, prompt and all.
    """

    def __init__(self, ask: Callable[[Sequence[Path]], Tensor], depth_limit: int, prefix: Sequence[int]):
        self.depth_limit, self.prefix = depth_limit, prefix
        self._ask = ask
        self._distributions: dict[Path, Tensor] = {}

    def source(self) -> "PathSource":
        """A source for one tree."""
        return PathSource(self)

    def find(self, paths: Sequence[Path]) -> Tensor:
        """Probabilities after some paths, `[num_paths, vocab_size]`; `LogitsMissing` where nobody can tell."""
        asked = [path for path in paths if path not in self._distributions]
        if asked:
            self._distributions.update(zip(asked, self._ask(asked), strict=True))
        return torch.stack([self._distributions[path] for path in paths])


class PathSource:
    """Answers a drafter about one tree by the paths of its nodes."""

    def __init__(self, memo: DraftMemo):
        self.depth_limit, self.prefix = memo.depth_limit, memo.prefix
        self._memo, self._paths = memo, TreePaths()

    def expand(self, tree: TokenTree, nodes: np.ndarray) -> Tensor:
        """Draft probabilities after `nodes`, `[len(nodes), vocab_size]`; `LogitsMissing` where a row is not known."""
        return self._memo.find(self._paths.of(tree, nodes))


def recorded_memo(run: RunTrace, index: int) -> DraftMemo:
    """The draft's distributions that a run has kept; raises `SettingsError` where the run has no such iteration."""
    rows, temperature = RecordedLogits(run, index), run.sampling.draft_temperature
    return DraftMemo(
        lambda paths: torch.softmax(rows.find("draft", paths) / temperature, -1), rows.depth_limit, rows.prefix
    )


def model_memo(pair: "Pair", run: RunTrace, index: int) -> DraftMemo:
    """The distributions of the run's draft, a model or a head, as it tells them once it has read the text before.

    Raises `SettingsError` where the run has no such iteration, or another pair decoded it; `PairError` where the head
    that drafted is damaged.
    """
    require(
        pair.info.name == run.pair.name and not pair.draft.released,
        f"{run.pair.name} decoded this run and is not loaded: load it to use its draft.",
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
    asked = TokenTree(text[-1])  # every path ever requested
    ids: dict[Path, int] = {(): 0}

    def ask(paths: Sequence[Path]) -> Tensor:
        if asked.size + len(paths) > MOST_ASKED:
            raise AskedTooMuch(f"The draft has already computed {MOST_ASKED:,} nodes, the most that are cached.")
        new = [path for path in paths if path]
        if new:
            parents = np.array([ids[path[:-1]] for path in new])
            places = asked.append(parents, np.array([path[-1] for path in new]), np.ones(len(new)))
            ids.update(zip(new, places.tolist(), strict=True))
        with torch.inference_mode():
            return source.expand(asked, np.array([ids[path] for path in paths]))

    return DraftMemo(ask, source.depth_limit, text)
