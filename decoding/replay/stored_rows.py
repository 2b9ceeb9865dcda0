"""The rows of a recorded run as a source of probabilities: other methods draft from them without any model."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from decoding.common.errors import DraftscopeError
from decoding.replay.stored_state import iteration_at
from decoding.session.iteration import Standing, edit_draft
from decoding.trace.edits import Edits, Path
from decoding.trace.records import IterationTrace, RunTrace, node_paths
from decoding.tree.draft import Draft, TokenTree, TreePaths, in_order

Side = Literal["draft", "target"]
Place = tuple[np.ndarray, int]  # raw logits of an iteration, and a row of them


class RowsMissing(DraftscopeError):  # noqa: N818 - it says what is the case
    """Stored rows cannot answer: the models were never asked this, or what they said was not kept."""


class StoredRows:
    """Raw logits of both models by token path from the root of one iteration.

    A row belongs to a text, so rows of other iterations answer as well where they stand along the same text.

    Raises:
        SettingsError: the run has no such iteration.
    """

    def __init__(self, run: RunTrace, index: int):
        self.run, self.iteration = run, iteration_at(run, index)
        self._own: dict[Side, dict[Path, Place]] = {
            side: dict(_rows_of(self.iteration, side)) for side in ("draft", "target")
        }

    def require_any(self) -> None:
        """Raise `RowsMissing` where the iteration itself has kept no rows."""
        if not self._own["target"]:
            number = self.iteration.index + 1
            raise RowsMissing(
                f"The full rows of iteration {number} were not kept: decode this run again with its pair loaded."
            )

    def require_draft(self, head: str) -> None:
        """Raise `RowsMissing` where another draft than this one made the iteration: its rows are another's answers."""
        if self.iteration.draft_head != head:
            raise RowsMissing(
                f"Another draft was asked in iteration {self.iteration.index + 1}, and only the models can tell what "
                "this one says: decode this run again with its pair loaded."
            )

    @property
    def root_token(self) -> int:
        """The last token committed before the iteration."""
        return self.iteration.nodes[0].token_id

    @property
    def depth_limit(self) -> int:
        """Depth of the deepest node whose token could still be committed with one behind it."""
        return self.room - 1

    @property
    def room(self) -> int:
        """Tokens that the iteration could commit before the run's length is reached."""
        return self.run.max_new_tokens - (self.iteration.prefix_length - len(self.run.prompt_ids))

    def find(self, side: Side, paths: Sequence[Path]) -> Tensor:
        """The rows after some paths, `[num_paths, vocab_size]` in float32.

        Raises:
            RowsMissing: one of them is not stored.
        """
        return torch.from_numpy(np.stack([logits[row] for logits, row in self._places(side, paths)]))

    def of_tree(self, side: Side, made: IterationTrace) -> np.ndarray:
        """The rows of another tree in this place, `[num_nodes, vocab_size]` in float32, nan where it has none.

        A tree with the same nodes shares the recorded rows: filling as much memory anew takes longer than all the rest.

        Raises:
            RowsMissing: one of them is not stored.
        """
        wanted, own = dict(_nodes_with_rows(made, side)), self._own[side]
        if len(made.nodes) == len(self.iteration.nodes) and wanted == {path: row for path, (_, row) in own.items()}:
            recorded = _logits(self.iteration, side)
            if recorded is not None:
                return recorded
        table = np.full((len(made.nodes), self.iteration.target_logits.shape[1]), np.nan, dtype=np.float32)
        for node, (logits, row) in zip(wanted.values(), self._places(side, wanted), strict=True):
            table[node] = logits[row]
        return table

    def text(self, token_id: int) -> str:
        """Text of a token as the run tells it; one that it never mentions reads `<id>`."""
        return self._texts.get(token_id, f"<{token_id}>")

    @cached_property
    def _text(self) -> tuple[int, ...]:
        return (*self.run.prompt_ids, *self.run.output_ids)

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
        here = self.iteration.prefix_length
        for other in self.run.iterations:
            there = other.prefix_length
            deepest = max((node.depth for node in other.nodes), default=0)
            if other.index == self.iteration.index or here - there > deepest:
                continue
            between = self._text[min(here, there) : max(here, there)]
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
                raise self._missing(side, path)
            yield place

    def _missing(self, side: Side, path: Path) -> RowsMissing:
        number = self.iteration.index + 1  # counted as the screen does
        after = " ".join(repr(self.text(token)) for token in path) or "the root"
        model = "draft" if side == "draft" else "target"
        return RowsMissing(
            f"The {model} was never asked what follows {after} in iteration {number}, and only the models can tell: "
            "decode this run again with its pair loaded."
        )


def _rows_of(iteration: IterationTrace, side: Side) -> Iterator[tuple[Path, Place]]:
    """The rows that an iteration has kept of one model, by path from its own root."""
    logits = _logits(iteration, side)
    if logits is not None:
        yield from ((path, (logits, node)) for path, node in _nodes_with_rows(iteration, side))


def _logits(iteration: IterationTrace, side: Side) -> np.ndarray | None:
    return iteration.draft_logits if side == "draft" else iteration.target_logits


def _nodes_with_rows(iteration: IterationTrace, side: Side) -> Iterator[tuple[Path, int]]:
    """Path and id of the nodes after which a model was asked."""
    for node, path in zip(iteration.nodes, node_paths(iteration), strict=True):
        if (node.draft_level if side == "draft" else node.flat_index) is not None:
            yield path, node.node_id


class StoredSource:
    """Answers drafters from stored rows as `ModelSource` answers from the model.

    Args:
        rows_before: rows that the draft's cache held, for the record of what its passes would have written.
        head: the draft is a head, which has no row of the first token of a text.
    """

    def __init__(self, rows: StoredRows, temperature: float = 1.0, rows_before: int = 0, head: bool = False):
        self.depth_limit = 0 if head and rows.iteration.prefix_length == 1 else rows.depth_limit
        self.forwards = 0
        self.row_nodes: list[int] = []
        self.logits: list[Tensor] = []
        self.rows_before = rows_before
        self._rows, self._temperature, self._paths = rows, temperature, TreePaths()
        self._pending = rows.iteration.prefix_length - rows_before - head

    def past(self) -> None:
        """Raise `RowsMissing`: rows hold no hidden states."""
        raise RowsMissing(
            "A selector reads hidden states of both models, which no record keeps, so that only the models can tell "
            "what it chooses: decode this run again with its pair loaded."
        )

    def expand(self, tree: TokenTree, nodes: np.ndarray) -> Tensor:
        """Draft probabilities after `nodes` in float32, `[len(nodes), vocab_size]`.

        Raises:
            RowsMissing: a row is not stored.
        """
        logits = self._rows.find("draft", self._paths.of(tree, nodes))
        if not self.forwards:
            self.row_nodes = [-1] * (self._pending - 1)
        self.row_nodes.extend(nodes.tolist())
        self.forwards += 1
        self.logits.append(logits)
        return torch.softmax(logits if self._temperature == 1 else logits / self._temperature, -1)


def draft_from(source: StoredSource, rows: StoredRows, standing: Standing, edits: Edits) -> Draft:
    """Draft from stored rows and carry the edits out.

    Raises:
        RowsMissing: the draft was never asked what this method wants to know.
        SettingsError: an edit does not fit the tree.
    """
    rows.require_any()
    draft = standing.method.drafter.draft(standing.state, source, rows.root_token, standing.draws)
    draft = edit_draft(draft, source, edits, rows.text) if edits else draft
    return in_order(draft, standing.method.node_order)
