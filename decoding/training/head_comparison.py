"""How good draft heads are: exact tokens per pass of optimal trees after held-out windows, the same windows for all.

Windows differ far more than heads do, so that heads are compared by their differences on each window (`compared`).
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from torch import Tensor

from decoding.heads.head import make_head
from decoding.heads.network import HeadNetwork
from decoding.methods.method import Method
from decoding.methods.methods import METHODS
from decoding.models.pair import Pair
from decoding.session.session import DecodeSession, Limits
from decoding.trace.records import IterationTrace, Record

PROMPT_TOKENS = 48  # of a window, which decoding goes on from
COMPARED_NODES, COMPARED_TOKENS = 16, 48  # of a tree, and written after each window
TRAINED_NOW = "the head in training"
DRAFTED_BY: Method = METHODS["salf"].with_settings(draft_head=TRAINED_NOW)
RANKED_BY: Method = METHODS["specexec"].with_settings(node_budget=COMPARED_NODES, draft_head=TRAINED_NOW)


def head_session(
    pair: Pair, network: HeadNetwork, window: Tensor, tokens: int, record: Record, method: Method = DRAFTED_BY
) -> DecodeSession:
    """Decoding after the beginning of a window, drafting with a head as it is."""
    drafting = pair.with_head(make_head(pair.target, network, TRAINED_NOW, TRAINED_NOW))
    prompt = window[: min(PROMPT_TOKENS, len(window) // 2)].tolist()
    return DecodeSession(drafting, method, prompt, limits=Limits(tokens, ignore_end_of_text=True, record=record))


def tokens_by_window(pair: Pair, network: HeadNetwork, windows: Iterable[Tensor]) -> list[float]:
    """Tokens per pass of optimal trees of `COMPARED_NODES` nodes, the mean after each window; nan where all is a loop.

    Exact expectations of node-by-node sampling at temperature 1, 1 + sum over nodes of the target's path probability:
    no draw makes noise, and no tree is larger than another.
    """
    means = []
    for window in windows:
        session = head_session(pair, network, window, COMPARED_TOKENS, "full", RANKED_BY)
        found = [expected_tokens(each) for each in session if not each.in_loop]
        means.append(float(np.mean(found)) if found else float("nan"))
    return means


def expected_tokens(iteration: IterationTrace) -> float:
    """Expected tokens of a pass that verifies the recorded tree node by node at temperature 1."""
    reached = {0: 1.0}
    for node in iteration.nodes[1:]:
        if node.flat_index is not None and node.target_probability is not None:
            reached[node.node_id] = reached[node.parent_id] * node.target_probability
    return sum(reached.values())


def mean_and_error(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """The mean and its standard error, 0 of a single value."""
    error = float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else 0.0
    return float(np.mean(values)), error


def compared(values: Mapping[str, Sequence[float]], baselines: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """Of each head `tokens` with their `error`, and what it `gained` over its baseline on the same windows.

    Windows that are a loop for one head count for none; `windows` says how many do. A baseline that is not there, or
    the head itself, leaves `gained` and `gained_error` out.
    """
    table = np.array(list(values.values()))
    kept = dict(zip(values, table[:, ~np.isnan(table).any(0)], strict=True))
    found = {}
    for name, own in kept.items():
        figures = dict(zip(("tokens", "error"), mean_and_error(own), strict=True)) | {"windows": float(len(own))}
        if baselines[name] in kept and baselines[name] != name:
            gained = mean_and_error(own - kept[baselines[name]])
            figures |= dict(zip(("gained", "gained_error"), gained, strict=True))
        found[name] = figures
    return found
