"""What a law of the target gives to the tokens of a draft tree and to tokens already picked out."""

import numpy as np

from decoding.draft import Draft
from decoding.optional_torch import Tensor, torch
from decoding.sampling import Sampling, target_law


def tested_law(logits: Tensor, sampling: Sampling, probs: Tensor) -> Tensor | None:
    """The law that the verifier used, `[num_rows, vocab_size]`; None under greedy decoding, which asks for no law.

    Args:
        logits: raw logits after each verified node. probs: their softmax at temperature 1.
    """
    if sampling.greedy:
        return None
    return probs if sampling.temperature == 1 and sampling.top_p == 1 else target_law(logits, sampling)


def token_probabilities(draft: Draft, law: Tensor) -> np.ndarray:
    """What a law gives each verified node after its parent, `[num_nodes]`; nan for the root and where not verified.

    Args:
        law: one row per entry of `draft.order`, `[num_rows, vocab_size]`.
    """
    tree, order = draft.tree, draft.order
    result = np.full(tree.size, np.nan)
    if len(order) > 1:
        row_of = np.zeros(tree.size, dtype=np.int64)
        row_of[order] = np.arange(len(order))
        result[order[1:]] = _at(law, row_of[tree.parents[order[1:]]], tree.tokens[order[1:]])
    return result


def top_probabilities(draft: Draft, law: Tensor, ids: np.ndarray) -> np.ndarray:
    """What a law gives tokens picked out after each node, `[num_nodes, count]`; nan where the id is -1.

    Args:
        ids: token ids `[num_nodes, count]`, -1 where there is none.
    """
    row_of = np.full(len(ids), -1, dtype=np.int64)
    row_of[draft.order] = np.arange(len(draft.order))
    result = np.full(ids.shape, np.nan, dtype=np.float32)
    filled = (ids >= 0) & (row_of >= 0)[:, None]
    rows = np.broadcast_to(row_of[:, None], ids.shape)[filled]
    result[filled] = _at(law, rows, ids[filled].astype(np.int64))
    return result


def _at(law: Tensor, rows: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Single entries of a law, read on its device and brought over together."""
    places = torch.from_numpy(np.ascontiguousarray(rows)).to(law.device)
    picked = law[places, torch.from_numpy(np.ascontiguousarray(tokens)).to(law.device)]
    return picked.double().cpu().numpy()
