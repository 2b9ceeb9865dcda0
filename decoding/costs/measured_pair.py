"""What a method's drafter has to know of a pair, measured when it is first asked for and kept.

Sequoia needs how often each child in draw order is accepted, the hardware-aware tree how far the odds of acceptance are
from those that the draft gives, a trained selector what passes cost.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from decoding.common import matrix_store
from decoding.common.cost_model import CostModel
from decoding.common.errors import require
from decoding.common.interruption import pause_point
from decoding.common.prompts import calibration_prompts
from decoding.costs.batches import batch_costs
from decoding.costs.latency import latency_model
from decoding.costs.measuring import CalibrationCache, Decoder, cost_model
from decoding.engines.base import Visibility
from decoding.engines.kv_cache import FeatureRows
from decoding.models.pair import Model, Pair, match_vocabulary, pair_identity, tree_forward
from decoding.sampling.draws import Draws, GeneratorDraws
from decoding.sampling.sampling import Sampling, exact_dtype, target_distribution
from decoding.selector.chooser import Chooser, NetworkOutputs
from decoding.selector.store import SELECTORS, find_selector, load_network, read_card, require_fit

RANKS = 16
POSITIONS = 1024  # the standard error of a rate is then at most 0.016
ROWS_AT_ONCE = 64  # both distributions of a wide vocabulary fill the memory where all positions are looked at together
SEED = 0
NEWTON_STEPS = 30


@torch.inference_mode()
def acceptance_by_rank(
    pair: Pair, sampling: Sampling, prompts: Sequence[str] | None = None, ranks: int = RANKS
) -> tuple[float, ...]:
    """Measure how often the b-th child drawn without replacement is the one accepted, `[ranks]`.

    Both models read each text, of `calibration_prompts` by default, in one causal pass. After positions spread over it,
    children are drawn from the draft's distribution and the chance of each to be accepted by SpecInfer verification
    without replacement is computed; the rates are means over all positions.
    """
    draws, total, rows = GeneratorDraws(SEED), np.zeros(ranks), 0
    for target, draft in _distributions(pair, sampling, prompts):
        total += accepted_by_rank(target, draft, ranks, draws)
        rows += len(target)
    return tuple((total / rows).tolist())


@torch.inference_mode()
def acceptance_odds(
    pair: Pair, sampling: Sampling, children: int, prompts: Sequence[str] | None = None
) -> tuple[float, float]:
    """Measure by how much the odds of acceptance exceed those of the draft probability: of first children, of others.

    A token of draft probability q is accepted where the target draws it (or has it first, when greedy). The odds of
    that are taken to be a factor times q / (1 - q), and the factor is the likeliest one over the `children` likeliest
    tokens at places of each text.
    """
    drafted, accepted = [], []
    for target, draft in _distributions(pair, sampling, prompts):
        likeliest = draft.topk(min(children, draft.shape[-1]), dim=-1)
        drafted.append(likeliest.values.double().cpu().numpy())
        accepted.append(target.gather(-1, likeliest.indices).double().cpu().numpy())
    probs, chances = np.concatenate(drafted), np.concatenate(accepted)
    return odds_factor(probs[:, :1], chances[:, :1]), odds_factor(probs[:, 1:], chances[:, 1:])


def odds_factor(probs: np.ndarray, chances: np.ndarray) -> float:
    """The likeliest factor between the odds of `probs` and those of events with these chances, `[any shape]`.

    One more event, as likely as its probability of one half says, keeps it finite where all or none came true.
    """
    probs = np.append(np.clip(probs, 1e-9, 1 - 1e-9), 0.5)
    chances, log_odds, shift = np.append(chances, 0.5), np.log(probs / (1 - probs)), 0.0
    for _ in range(NEWTON_STEPS):
        expected = 1 / (1 + np.exp(-(log_odds + shift)))
        step = (chances - expected).sum() / (expected * (1 - expected)).sum()
        shift += float(np.clip(step, -1.0, 1.0))
    return float(np.exp(shift))


def _distributions(pair: Pair, sampling: Sampling, prompts: Sequence[str] | None) -> Iterator[tuple[Tensor, Tensor]]:
    """Distributions of target and draft, `[num_places, vocab_size]` each, at places in texts that both read."""
    texts = [prompt.text for prompt in calibration_prompts()] if prompts is None else prompts
    first = 0 if pair.head is None else 1  # a head says nothing after the first token of a text
    encoded = [pair.vocabulary.encode(text)[: pair.context] for text in texts]
    encoded = [tokens for tokens in encoded if len(tokens) > first]
    require(bool(encoded), "Measuring acceptance needs text: give at least one that is not empty.")
    for tokens in encoded:
        count = min(len(tokens) - first, -(-POSITIONS // len(texts)))
        places = torch.from_numpy(np.linspace(first, len(tokens) - 1, count).round().astype(np.int64))
        pause_point()
        target_logits, draft_logits = _both_logits(pair, tokens, places)
        draft_logits = match_vocabulary(draft_logits.to(target_logits.device), pair.logits_size)
        for some in torch.arange(count).split(ROWS_AT_ONCE):
            target = target_distribution(target_logits[some].to(exact_dtype(target_logits.device)), sampling)
            yield target, torch.softmax(draft_logits[some].to(target.dtype) / sampling.draft_temperature, -1)


def accepted_by_rank(target: Tensor, draft: Tensor, ranks: int, draws: Draws) -> np.ndarray:
    """Sum over positions of the chance that the b-th child drawn is accepted, `[ranks]`; distributions `[places,
    vocab_size]`.

    With a_j the acceptance of the j-th child drawn once those before it are rejected, that is
    a_b prod_{j<b} (1 - a_j): a rejection takes the draft's distribution from the target's and the token from the
    draft's.
    """
    chances, left = np.zeros(ranks), torch.ones(len(target), 1, dtype=target.dtype, device=target.device)
    for rank in range(ranks):
        pause_point()
        tokens = torch.tensor(draws.choose_each(draft), device=draft.device)[:, None]
        passes = (target.gather(1, tokens) / draft.gather(1, tokens)).clamp(max=1)
        chances[rank] = float((left * passes).sum())
        left = left * (1 - passes)
        residual, draft = (target - draft).clamp(min=0), draft.scatter(1, tokens, 0.0)
        going_on = ((left > 0) & (draft.sum(-1, True) > 0) & (residual.sum(-1, True) > 0))[:, 0]
        if not bool(going_on.any()):
            break
        left, residual, draft = left[going_on], residual[going_on], draft[going_on]
        target, draft = residual / residual.sum(-1, True), draft / draft.sum(-1, True)
    return chances


def _both_logits(pair: Pair, tokens: list[int], places: Tensor) -> tuple[Tensor, Tensor]:
    """Raw logits of target and draft after some places of a text, `[len(places), vocab_size]` each.

    A head reads the target's true features here, as it does for the first level of a tree.
    """
    if pair.head is None:
        return _causal_logits(pair.target, tokens, places), _causal_logits(pair.draft, tokens, places)
    features = FeatureRows(len(tokens))
    target, head = _causal_logits(pair.target, tokens, places, features), pair.head
    predicted = head.read(head.engine.new_cache(len(tokens)), features, tokens)
    return target, head.logits(predicted[places.to(predicted.device) - 1])


def _causal_logits(model: Model, tokens: list[int], places: Tensor, features: FeatureRows | None = None) -> Tensor:
    """Raw logits after some places of a text, `[len(places), vocab_size]`."""
    count, cache = len(tokens), model.engine.new_cache(len(tokens))
    logits = tree_forward(
        model, cache, np.array(tokens), np.arange(count), Visibility.causal(0, count), features=features
    )
    return logits[places.to(logits.device)]


def _entry(sampling: Sampling) -> str:
    return (
        f"temperature {sampling.temperature:.2f}, top_p {sampling.top_p:.2f}, "
        f"draft_temperature {sampling.draft_temperature:.2f}, calibration prompts"
    )


def _rates(stored: list[float]) -> tuple[float, ...]:
    """Acceptance rates as a file holds them, `[RANKS]`: probabilities of disjoint events."""
    if len(stored) != RANKS or not all(0 <= rate <= 1 for rate in stored) or sum(stored) > 1.001:
        raise ValueError("these are not acceptance rates")
    return tuple(stored)


def _odds(stored: list[float]) -> tuple[float, float]:
    """The two factors of `acceptance_odds` as a file holds them."""
    first, others = stored
    if not (0 < first < np.inf and 0 < others < np.inf):
        raise ValueError("these are not odds factors")
    return first, others


RATES, ODDS = CalibrationCache("", _rates, list), CalibrationCache("odds", _odds, list)


@lru_cache(maxsize=16)
def _network(folder: Path, name: str, _stamp: int) -> NetworkOutputs:
    return NetworkOutputs(load_network(read_card(folder, name)))


@dataclass(frozen=True)
class MeasuredPair:
    """A pair on this machine at some sampling settings, as `Method.prepared` takes it."""

    pair: Pair
    sampling: Sampling
    decoder: Decoder

    def costs(self, batch: int = 1) -> CostModel:
        """What passes cost, over one sequence or over each of a batch: of the next larger one that was measured.

        Raises `SettingsError` where so large a batch does not fit into memory; `PairError` where the pair's engine runs
        no batches.
        """
        if batch == 1:
            return cost_model(self.pair, self.decoder)
        known = batch_costs(self.pair, self.decoder)
        enough = [size for size in known if size >= batch]
        require(bool(enough), f"At most {max(known)} sequences fit into memory here: choose a batch up to that.")
        return known[min(enough)]

    def acceptance(self) -> tuple[float, ...]:
        """How often each child in draw order is accepted, `[ranks]`."""
        return RATES.of(self.pair, _entry(self.sampling), lambda: acceptance_by_rank(self.pair, self.sampling))

    def odds(self, ranks: int) -> tuple[float, ...]:
        """How far the odds of acceptance are from those that the draft gives, `[ranks]`."""
        entry = f"{_entry(self.sampling)}, {ranks} children"
        return ODDS.of(self.pair, entry, lambda: acceptance_odds(self.pair, self.sampling, ranks))

    def chooser(self, name: str, known: Chooser | None) -> Chooser:
        """The trained selector of this name; the known one where it was loaded for this pair.

        Raises `SettingsError` where there is none; `PairError` where it is damaged, or was trained for another pair.
        """
        identity = pair_identity(self.pair)
        if known is not None and dict(known.pair) == identity:
            return known
        card = find_selector(name)
        require_fit(card, identity)
        network = _network(card.folder, name, SELECTORS.stamp(card.folder))
        latency = latency_model(self.pair, self.decoder, card.verifier)
        return card.chooser(network, latency, identity)

    def matrix(self, name: str) -> str:
        """The full name of a kept matrix, which also tells its content.

        Raises what `find_matrix` does, and `PairError` where it was made with another target.
        """
        card = matrix_store.find_matrix(name)
        matrix_store.require_fit(card, pair_identity(self.pair))
        return card.full_name
