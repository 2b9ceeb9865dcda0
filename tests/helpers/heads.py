"""Draft heads for tests: random ones, and ones that agree with their target some of the time without being trained."""

import numpy as np
import torch
from torch.nn import functional

from decoding.engines.base import Visibility
from decoding.heads.head import Head, make_head
from decoding.heads.network import HeadConfig, HeadNetwork

NAME = "some-head"


def config_for(pair) -> HeadConfig:
    """A small head for the target of a pair."""
    info = pair.target.info
    return HeadConfig.of(info.hidden_size, info.vocab_size, mlp_size=2 * info.hidden_size)


def random_network(pair, seed: int = 0) -> HeadNetwork:
    """A head that has learned nothing."""
    return HeadNetwork(config_for(pair), torch.Generator().manual_seed(seed))


@torch.inference_mode()
def true_features(pair, tokens: list[int]) -> torch.Tensor:
    """The target's features of a text in one causal pass, `[num_tokens, hidden_size]`."""
    engine, count = pair.target.engine, len(tokens)
    mask = engine.mask(Visibility(0, np.tri(count, dtype=bool)))
    return engine.run_with_features(engine.new_cache(count), tokens, np.arange(count), mask, 0, 1)[1]


@torch.no_grad()
def fitted_network(pair, texts: list[list[int]], ridge: float = 1e-3, attention: float = 0.05) -> HeadNetwork:
    """A head whose first product is fitted by least squares to the target's features on some texts.

    Its attention and MLP are random and small: enough to be seen when a mask or a position is wrong.
    """
    network = random_network(pair)
    embedding = pair.target.network.get_input_embeddings()
    inputs, wanted = [], []
    for tokens in texts:
        features = true_features(pair, tokens).clone().float()
        embedded = embedding(torch.tensor(tokens[1:])).float()
        normed = functional.rms_norm(embedded, embedded.shape[1:], eps=network.config.norm_eps)
        inputs.append(torch.cat([normed, features[:-1]], 1))
        wanted.append(features[1:])
    x, y = torch.cat(inputs).double(), torch.cat(wanted).double()
    solved = torch.linalg.solve(x.T @ x + ridge * len(x) * torch.eye(x.shape[1], dtype=x.dtype), x.T @ y)
    network.fc.weight.copy_(solved.T)
    network.feature_gain.zero_()
    network.attention_out.weight *= attention
    network.down.weight *= attention
    return network


def with_network(pair, network: HeadNetwork, name: str = NAME):
    """The pair that drafts with a head that is stored nowhere; methods name it by `draft_head`."""
    return pair.with_head(bound(pair, network, name))


def bound(pair, network: HeadNetwork, name: str = NAME) -> Head:
    """A network as a head of a pair's target."""
    return make_head(pair.target, network, name, "Some head", digest=name)
