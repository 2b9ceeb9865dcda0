"""A trained selector bound to the machine it runs on: what a delayed drafter asks at every root."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from decoding.costs.latency import latency_model
from decoding.costs.measuring import Decoder
from decoding.models.pair import Pair, pair_identity
from decoding.selector.actions import ACTIONS, Action, LatencyModel
from decoding.selector.features import Features, Past, features_of
from decoding.selector.network import Scaler, SelectorNetwork
from decoding.selector.store import SELECTORS, find_selector, load_network, read_card, require_fit


@dataclass(frozen=True, eq=False)
class Chooser:
    """The network, what its scalars are scaled by, what passes cost here, the pair's identity, and the verifier."""

    network: SelectorNetwork
    scaler: Scaler
    latency: LatencyModel
    pair: Mapping[str, Any]
    verifier: str

    def fits(self, pair: Pair) -> bool:
        """Whether it was loaded for this pair with the draft in use."""
        return dict(self.pair) == pair_identity(pair)

    @torch.inference_mode()
    def choose(self, past: Past) -> Action:
        """The action with the highest probability at a root."""
        draft_s, target_s = self.latency.draft_pass_s(past.length), self.latency.target_pass_s(past.length)
        return self.best(features_of(past, float(draft_s), float(target_s)))

    def best(self, features: Features) -> Action:
        """The action that these features lead to."""
        return ACTIONS[int(self.network(self.scaler.scaled(features)).argmax())]


def load_chooser(name: str, pair: Pair, decoder: Decoder) -> Chooser:
    """A stored selector for a pair; what passes cost here is known or measured now.

    Raises:
        SettingsError: there is no selector of that name.
        PairError: it is damaged, or was trained for another pair.
    """
    card, identity = find_selector(name), pair_identity(pair)
    require_fit(card, identity)
    network = _network(card.folder, name, SELECTORS.stamp(card.folder))
    return Chooser(network, Scaler(card.mean, card.spread), latency_model(pair, decoder), identity, card.verifier)


@lru_cache(maxsize=16)
def _network(folder: Path, name: str, _stamp: int) -> SelectorNetwork:
    return load_network(read_card(folder, name))
