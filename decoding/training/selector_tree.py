"""The held-out prompt drafted with a selector under training, for the page that watches it learn."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from torch import Tensor

from decoding.common.prompts import load_prompts
from decoding.costs.chooser import Chooser
from decoding.drafters import DelayedDrafter
from decoding.methods.methods import METHODS
from decoding.models.pair import Pair, pair_identity
from decoding.sampling.sampling import Sampling
from decoding.selector.latency import LatencyModel
from decoding.selector.network import SelectorNetwork
from decoding.session.session import DecodeSession, Limits
from decoding.trace.records import RunTrace

if TYPE_CHECKING:
    from decoding.training.selector_learner import SelectorLearner

TOKENS, LONGEST = 16, 96
TRAINED_NOW = "the selector in training"


def drafting(
    pair: Pair, verifier: str, latency: LatencyModel, draft_temperature: float
) -> "Callable[[SelectorLearner, Mapping[str, Tensor]], RunTrace]":
    """What drafts the prompt with the weights that a learner gives it, under temperature 1."""
    texts = [prompt for prompt in load_prompts() if prompt.kind == load_prompts()[0].kind]
    prompt = pair.vocabulary.encode(texts[-1].text)[:LONGEST]  # held out where the sample prompts are trained on
    sampling = Sampling(temperature=1.0, draft_temperature=draft_temperature)
    identity = pair_identity(pair)

    def drafted(learner: "SelectorLearner", weights: Mapping[str, Tensor]) -> RunTrace:
        network = SelectorNetwork(learner.network.config)
        network.load_state_dict(dict(weights))
        chooser = Chooser(network.eval(), learner.scaler, latency, identity, verifier)
        method = METHODS["delayed"].with_settings(verifier=verifier)
        method = replace(method, drafter=DelayedDrafter(selector=TRAINED_NOW, chooser=chooser))
        limits = Limits(min(TOKENS, pair.context - len(prompt)), ignore_end_of_text=True, record="full")
        session = DecodeSession(pair, method, prompt, sampling, limits)
        for _ in session:
            pass
        return session.trace()

    return drafted
