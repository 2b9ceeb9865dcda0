"""Held-out roots of the selector's benchmark: what every way to shape a delayed tree is exactly worth there.

The text is written by the target under the sampling that is judged; at each root super-trees are drawn, and the
expected tokens of every action under every verifier are exact on them. Only texts, roots and trees are sampled.
"""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context

import numpy as np
import torch

from decoding.models.pair import Pair, PairSettings, load_pair
from decoding.sampling.sampling import Sampling
from decoding.selector.actions import ACTIONS, Action, LatencyModel, Way
from decoding.selector.network import Scaler
from decoding.selector.store import SelectorCard, Static, load_network
from decoding.training.selector_learner import Examples, examples
from decoding.training.selector_roots import RootPlan, Roots, label_text, written

TREES, KHISTI_TREES = 4, 1
# How a tree's shape is found, and what the tables call it.
WAYS = {
    "selector": "selector",
    "choice": "selector, the time it takes left out",
    "static": "best static",
    "static_most": "best static, most tokens",
    "root": "best (K, L) from the root",
    "root_most": "best (K, L) from the root, most tokens",
}
STATIC_FIELDS = {
    "static": "action",
    "static_most": "most_tokens",
    "root": "root_action",
    "root_most": "root_most_tokens",
}


@dataclass(frozen=True)
class Totals:
    """Sums over the roots of each prompt under each sampling, all `[samplings, prompts]`.

    Attributes:
        roots: counted; those in text that repeats itself are not.
        tokens, seconds: expected tokens and modelled time by verifier and way.
    """

    roots: np.ndarray
    tokens: Mapping[tuple[str, str], np.ndarray]
    seconds: Mapping[tuple[str, str], np.ndarray]

    def block_efficiency(self, key: tuple[str, str], prompts: np.ndarray) -> float:
        """Tokens per pass over some prompts, mean over samplings."""
        return float(np.mean(self.tokens[key][:, prompts].sum(1) / self.roots[:, prompts].sum(1)))

    def rate(self, key: tuple[str, str], prompts: np.ndarray) -> float:
        """Modelled tokens per second over some prompts, mean over samplings."""
        return float(np.mean(self.tokens[key][:, prompts].sum(1) / self.seconds[key][:, prompts].sum(1)))


@lru_cache(maxsize=1)
def _pair(settings: PairSettings) -> Pair:
    torch.set_num_threads(1)
    pair = load_pair(settings)
    return pair.with_engine("library") if pair.target.info.engine == "static" else pair


def _roots(job: tuple[PairSettings, RootPlan, list[int], int]) -> Roots:
    """The labelled roots behind one prompt under one sampling."""
    settings, plan, prompt, number = job
    pair = _pair(settings)
    with torch.inference_mode():
        return label_text(
            pair, written(pair, prompt, plan, number), len(prompt), plan, number, 1000 * number + plan.seed
        )


def labelled_roots(
    settings: PairSettings,
    prompts: Sequence[list[int]],
    samplings: Sequence[Sampling],
    roots: int,
    verifiers: Sequence[str],
    processes: int | None = None,
) -> list[list[Roots]]:
    """Roots behind every prompt under every sampling, `[samplings][prompts]`."""
    plans = [
        RootPlan(
            roots=roots, trees=TREES, khisti_trees=KHISTI_TREES, khisti_every=1, samplings=(each,),
            verifiers=tuple(verifiers), seed=7,
        )
        for each in samplings
    ]  # fmt: skip
    jobs = [(settings, plan, prompt, number) for plan in plans for number, prompt in enumerate(prompts)]
    with ProcessPoolExecutor(processes or os.cpu_count(), get_context("spawn")) as workers:
        found = list(workers.map(_roots, jobs))
    return [found[start : start + len(prompts)] for start in range(0, len(found), len(prompts))]


def totals_of(
    found: list[list[Roots]],
    cards: Mapping[str, SelectorCard],
    samplings: Sequence[Sampling],
    latency: LatencyModel,
    way: Way,
) -> Totals:
    """What every way comes to on labelled roots, for each of some selectors by verifier."""
    shape = (len(found), len(found[0]))
    roots = np.zeros(shape)
    keys = [(name, how) for name in cards for how in WAYS]
    tokens, seconds = ({key: np.zeros(shape) for key in keys} for _ in range(2))
    networks = {name: (load_network(card), Scaler(card.mean, card.spread)) for name, card in cards.items()}
    for row, (sampling, texts) in enumerate(zip(samplings, found, strict=True)):
        for column, text in enumerate(texts):
            roots[row, column] = (~text.in_loop).sum()
            if not roots[row, column]:
                continue
            for name, card in cards.items():
                made = examples(text, name, (sampling,), latency, way)
                static = card.static(sampling.temperature, sampling.top_p)
                for how in WAYS:
                    counted = _worth(made, how, static, *networks[name])
                    tokens[name, how][row, column], seconds[name, how][row, column] = counted
    return Totals(roots, tokens, seconds)


@torch.inference_mode()
def _worth(made: Examples, how: str, static: Static, network, scaler: Scaler) -> tuple[float, float]:
    """Expected tokens and modelled seconds at the roots of a text, summed."""
    if how in ("selector", "choice"):
        chosen = network(scaler.scaled(made.features)).argmax(-1)
        taken = made.seconds if how == "selector" else made.static_s
    else:
        action: Action = getattr(static, STATIC_FIELDS[how])
        chosen, taken = torch.full((len(made),), ACTIONS.index(action)), made.static_s
    place = chosen[:, None]
    return float(made.expected.gather(1, place).sum()), float(taken.gather(1, place).sum())
