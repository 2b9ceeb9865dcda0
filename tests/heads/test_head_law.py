"""A head only proposes: what an iteration commits has the target's distribution to the last digit, over every draw."""

from itertools import product

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.enumeration import Tables, bias, enumerate_draws
from decoding.engines.clock import PhaseClock
from decoding.heads.head import make_head
from decoding.methods.methods import METHODS
from decoding.models.pair import Loaded, Model, Pair
from decoding.models.presets import PairSettings
from decoding.sampling.sampling import Sampling, target_distribution
from decoding.session.cached_models import CachedModels
from decoding.session.iteration import Iteration, SessionState
from decoding.session.recorder import IterationState
from decoding.trace.interventions import Interventions
from decoding.trace.records import ModelInfo, PairInfo
from tests.helpers.families import family
from tests.helpers.heads import NAME, random_network, with_network

VOCABULARY, TEXT = 3, [0, 2, 1, 1]
SAMPLING = Sampling(temperature=0.8, draft_temperature=0.7)
FEW = np.array([0, 2])  # tokens that a narrowed head drafts
PATHS = {"paths": 2, "length": 2}
NARROWED = {
    **{f"paths, {verifier}": ("iid_paths", PATHS | {"verifier": verifier})
       for verifier in ("nss", "naive_tree", "spectr", "specinfer", "khisti", "traversal")},
    **{f"drawn tree, {verifier}": ("dyspec", {"node_budget": 3, "verifier": verifier})
       for verifier in ("specinfer_wor", "traversal_wor", "block")},
    "chain, naive": ("linear", {"length": 2, "sampled": True, "verifier": "naive"}),
}  # fmt: skip
CASES = {
    "chain, block": ("linear", {"length": 2, "sampled": True, "verifier": "block"}),
    "paths, traversal": ("delayed", {"paths": 2, "trunk": 1, "branch": 1, "verifier": "traversal"}),
    "drawn tree": ("dyspec", {"node_budget": 3}),
    "likeliest nodes, NSS": ("salf", {"node_budget": 4, "batch": 2, "gain_threshold": 0.0}),
}


@pytest.fixture(scope="module")
def pair() -> Pair:
    """A target that knows three tokens, with a head; its draft model is never asked."""
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=64,
    )  # fmt: skip
    network = LlamaForCausalLM(config).eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(0)
    for weight in network.parameters():
        weight.copy_(torch.randn(weight.shape, generator=generator) * 0.6)
    info = ModelInfo("tiny", "LlamaForCausalLM", 0, 1, 16, VOCABULARY, 64, "cpu", "float32", "sdpa", 0)
    model = Model(info, torch.device("cpu"), torch.float32, "bool", None, 1, 64, Loaded(network))
    bare = Pair(model, model, None, PairInfo("Tiny", info, info, 64), PairSettings(), 64, VOCABULARY)
    return with_network(bare, random_network(bare))


@pytest.fixture(scope="module")
def narrowed(pair) -> Pair:
    """The same with a head that drafts two of the three tokens: the third has draft probability 0."""
    return pair.with_head(make_head(pair.target, random_network(pair), NAME, "Narrow head", NAME, FEW))


@torch.inference_mode()
def committed(pair: Pair, method, start: CachedModels, draws, room: int) -> tuple[int, ...]:
    """Tokens that one iteration commits behind the text."""
    models = start.clone(pair, True)
    iteration = Iteration(
        models, SessionState(method, SAMPLING, None, draws), list(TEXT), room, (), Interventions(), False
    )
    step = IterationState(0, len(TEXT), False, 0.0)
    iteration.run(step, PhaseClock(torch.device("cpu")))
    return step.committed


@pytest.mark.parametrize("case", CASES)
def test_an_iteration_keeps_the_targets_law(pair, case):
    check_law(pair, *CASES[case])


@pytest.mark.parametrize("case", family(NARROWED | CASES, "paths, traversal", "drawn tree, block", "chain, naive"))
def test_so_does_one_of_a_head_that_cannot_draft_every_token(narrowed, case):
    check_law(narrowed, *(NARROWED | CASES)[case])


def check_law(pair: Pair, name: str, settings: dict) -> None:
    method = METHODS[name].with_settings(**settings, draft_head=NAME)
    method.check(SAMPLING)
    room = 4
    start = CachedModels(pair, 16, True)
    with torch.inference_mode():
        start.prefill(TEXT)
    probs: dict[tuple[int, ...], float] = {}
    for block, chance in enumerate_draws(lambda draws: committed(pair, method, start, draws, room)):
        probs[block] = probs.get(block, 0.0) + chance
    assert sum(probs.values()) == pytest.approx(1) and max(map(len, probs)) > 2, "no draft was ever accepted whole"
    paths = [path for length in range(room) for path in product(range(VOCABULARY), repeat=length)]
    with torch.no_grad():
        rows = [pair.target.network(input_ids=torch.tensor([[*TEXT, *path]])).logits[0, -1] for path in paths]
    distributions = target_distribution(torch.stack(rows).double(), SAMPLING).tolist()
    tables = Tables("tiny", {}, dict(zip(paths, distributions, strict=True)), [], [0.0] * VOCABULARY)
    assert bias(probs, tables) < 1e-6, "beyond what float32 forwards of other sizes differ by"
    first = np.array([sum(chance for block, chance in probs.items() if block[0] == t) for t in range(VOCABULARY)])
    assert np.abs(first - np.array(distributions[0])).max() < 1e-6
