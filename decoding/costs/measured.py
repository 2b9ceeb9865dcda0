"""What a method's drafter has to know of a pair, measured when it is first asked for and kept."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from decoding.common.cost_model import CostModel
from decoding.costs.calibration import calibrated, calibrated_odds
from decoding.costs.measuring import Decoder, cost_model, latency_model
from decoding.models.pair import Pair, pair_identity
from decoding.sampling.sampling import Sampling
from decoding.selector.actions import ACTIONS, Action, LatencyModel
from decoding.selector.network import Features, Past, Scaler, SelectorNetwork, features_of
from decoding.selector.store import SELECTORS, find_selector, load_network, read_card, require_fit


@dataclass(frozen=True, eq=False)
class Chooser:
    """The network, what its scalars are scaled by, what passes cost here, the pair's identity, and the verifier."""

    network: SelectorNetwork
    scaler: Scaler
    latency: LatencyModel
    pair: Mapping[str, Any]
    verifier: str

    @torch.inference_mode()
    def choose(self, past: Past) -> Action:
        """The action with the highest probability at a root."""
        draft_s, target_s = self.latency.draft_pass_s(past.length), self.latency.target_pass_s(past.length)
        return self.best(features_of(past, float(draft_s), float(target_s)))

    def best(self, features: Features) -> Action:
        """The action that these features lead to."""
        return ACTIONS[int(self.network(self.scaler.scaled(features)).argmax())]


@lru_cache(maxsize=16)
def _network(folder: Path, name: str, _stamp: int) -> SelectorNetwork:
    return load_network(read_card(folder, name))


@dataclass(frozen=True)
class MeasuredPair:
    """A pair on this machine at some sampling settings, as `Method.prepared` takes it.

    Attributes:
        decoder: decodes, to measure what an iteration takes beside its passes.
    """

    pair: Pair
    sampling: Sampling
    decoder: Decoder

    def costs(self) -> CostModel:
        """What passes cost."""
        return cost_model(self.pair, self.decoder)

    def acceptance(self) -> tuple[float, ...]:
        """How often each child in draw order is accepted, `[ranks]`."""
        return calibrated(self.pair, self.sampling)

    def odds(self, ranks: int) -> tuple[float, ...]:
        """How far the odds of acceptance are from those that the draft gives, `[ranks]`."""
        return calibrated_odds(self.pair, self.sampling, ranks)

    def chooser(self, name: str, known: Chooser | None) -> Chooser:
        """The trained selector of this name; the known one where it was loaded for this pair.

        Raises:
            SettingsError: there is no selector of that name.
            PairError: it is damaged, or was trained for another pair.
        """
        identity = pair_identity(self.pair)
        if known is not None and dict(known.pair) == identity:
            return known
        card = find_selector(name)
        require_fit(card, identity)
        network = _network(card.folder, name, SELECTORS.stamp(card.folder))
        latency = latency_model(self.pair, self.decoder)
        return Chooser(network, Scaler(card.mean, card.spread), latency, identity, card.verifier)
