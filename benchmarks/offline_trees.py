"""Every way to draft at a root, and logits after one prompt kept by drafted path.

Verification leaves no chance: on each tree the expected tokens are exact. Trees below one prompt share most of their
contexts, so that both models' rows are computed once.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from benchmarks.table_source import path_tokens
from decoding.engines.base import Visibility
from decoding.methods.method import Method
from decoding.methods.methods import METHODS
from decoding.models.pair import Model, tree_forward
from decoding.papers.measured.depth_divergence import MOST_DEPTH, Root
from decoding.sampling.sampling import Sampling, TargetDistributions
from decoding.tree.draft import TokenTree

MOST_ROWS = 20_000  # 330 MB for the vocabulary of the embedded pair, for each model of each process
ROOM = 64  # cache rows for the paths of one forward


class MemoLogits:
    """Raw logits of one model after a prompt and the paths drafted below its last token.

    Attributes:
        computed: distinct contexts computed. prefix: the prompt.
    """

    def __init__(self, model: Model, prompt_ids: list[int], most_rows: int = MOST_ROWS):
        self.computed, self.prefix = 1, prompt_ids
        self._model, self._most_rows, self._length = model, most_rows, len(prompt_ids)
        self._cache = model.engine.new_cache(self._length + ROOM)
        mask, positions = Visibility.causal(0, self._length), np.arange(self._length)
        self._root = tree_forward(model, self._cache, prompt_ids, positions, mask, keep=1)[0]
        self._rows: dict[tuple[int, ...], Tensor] = {(): self._root}

    def of(self, tree: TokenTree, nodes: Sequence[int]) -> Tensor:
        """Raw logits after some nodes of a tree, `[len(nodes), vocab_size]`; one forward for all that are missing."""
        if len(self._rows) >= self._most_rows:
            self._rows = {(): self._root}
        paths = [path_tokens(tree, int(node)) for node in nodes]
        missing = [int(node) for node, path in zip(nodes, paths, strict=True) if path not in self._rows]
        if missing:
            self._compute(tree, missing)
        return torch.stack([self._rows[path] for path in paths])

    def _compute(self, tree: TokenTree, missing: list[int]) -> None:
        """Run the nodes and their ancestors after the prompt; the cache forgets them, the rows stay."""
        among = tree.ancestors[missing].any(0)
        among[0] = False  # the root is the last token of the prompt
        nodes = np.flatnonzero(among)
        mask = Visibility(self._length, tree.ancestors[nodes][:, nodes])
        positions = self._length - 1 + tree.depths[nodes]
        logits = tree_forward(self._model, self._cache, tree.tokens[nodes], positions, mask)
        self._cache.rollback(self._length)
        for node, row in zip(nodes.tolist(), logits, strict=True):
            path = path_tokens(tree, node)
            if path not in self._rows:  # what was computed with other neighbours differs in its last digits
                self._rows[path] = row.clone()
                self.computed += 1


class MemoSource:
    """The draft's probabilities from kept rows, as `ModelSource` gives them."""

    depth_limit = ROOM

    def __init__(self, rows: MemoLogits, temperature: float = 1.0):
        self._rows, self._temperature, self.prefix = rows, temperature, rows.prefix

    def expand(self, tree: TokenTree, nodes: np.ndarray) -> Tensor:
        """Draft probabilities after `nodes` in float32, `[len(nodes), vocab_size]`."""
        return torch.softmax(self._rows.of(tree, nodes).float() / self._temperature, -1)


class MemoDistributions(TargetDistributions):
    """Rows whose distributions are computed once, for all verifiers that look at one tree."""

    def __init__(self, logits: Tensor, sampling: Sampling):
        super().__init__(logits, sampling)
        self._distributions: dict[int, Tensor] = {}

    def probs(self, row: int) -> Tensor:
        """Distribution after one node, `[vocab_size]`, in float64."""
        if row not in self._distributions:
            self._distributions[row] = super().probs(row)
        return self._distributions[row]


@torch.inference_mode()
def mass_gap(root: Root, one: Method, other: Method) -> float:
    """By how much the path probabilities of one method's tree sum up to more than another's.

    Every draft row is computed once for both: one that was computed with other neighbours differs in its last digits,
    which hides what theory says exactly.
    """
    session = root.session
    source = MemoSource(MemoLogits(session.pair.draft, session.tokens), session.sampling.draft_temperature)
    drafts = [method.drafter.draft(None, source, session.tokens[-1], None) for method in (one, other)]
    first, second = (float(draft.tree.path_probs[draft.order[1:]].sum()) for draft in drafts)
    return first - second


def methods_at_budget(nodes: int) -> dict[str, Method]:
    """Every way to draft, with at most so many nodes."""
    shapes = {
        16: {"widths": "2,2,1,1", "paths": (4, 4), "delayed": (4, 4, 3)},
        32: {"widths": "2,2,2,1,1", "paths": (4, 8), "delayed": (4, 4, 7)},
        64: {"widths": "4,2,2,1,1", "paths": (8, 8), "delayed": (8, 4, 7)},
        128: {"widths": "4,4,2,1,1", "paths": (16, 8), "delayed": (16, 4, 7)},
    }[nodes]
    paths, delayed = shapes["paths"], shapes["delayed"]
    chain = min(nodes, MOST_DEPTH)  # no text agrees for longer, and a longer chain would only cost time
    return {
        "linear": METHODS["linear"].with_settings(length=chain),
        "linear, sampled": METHODS["linear"].with_settings(length=chain, sampled=True, verifier="block"),
        "fixed tree": METHODS["fixed_tree"].with_settings(
            node_budget=nodes, branch_first_level=True, prune_probability=0.01
        ),
        "DynaTree": METHODS["dynatree"].with_settings(
            node_budget=nodes, branch_first_level=True, stop_probability=0.01, prune_probability=0.005
        ),
        "DySpec greedy": METHODS["dyspec"].with_settings(node_budget=nodes),
        "DySpec threshold": METHODS["dyspec_threshold"].with_settings(node_budget=nodes, threshold=1 / nodes),
        "SpecInfer widths": METHODS["specinfer"].with_settings(widths=shapes["widths"]),
        "Sequoia": METHODS["sequoia"].with_settings(node_budget=nodes),
        "OPT-Tree": METHODS["opt_tree"].with_settings(node_budget=nodes, max_depth=8, gain_threshold=0.0),
        "EAGLE-2 beam": METHODS["eagle2"].with_settings(node_budget=nodes, max_depth=8),
        "SpecExec optimal": METHODS["specexec"].with_settings(node_budget=nodes, max_depth=8),
        "SALF": METHODS["salf"].with_settings(node_budget=nodes, max_depth=8),
        "i.i.d. paths": METHODS["iid_paths"].with_settings(paths=paths[0], length=paths[1]),
        "delayed expansion": METHODS["delayed"].with_settings(paths=delayed[0], trunk=delayed[1], branch=delayed[2]),
    }
