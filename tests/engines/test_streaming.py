"""StreamingLLM's attention against the definition, written out token by token, and trees verified against it."""

import numpy as np
import pytest
import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, LlamaConfig, LlamaForCausalLM

from decoding.common.errors import PairError, SettingsError
from decoding.common.settings import SINKS, streamed_rows
from decoding.compare.comparison import compare, score
from decoding.compare.contestants import parse_contestant
from decoding.compare.identity import MarginJudge
from decoding.engines.base import Visibility
from decoding.engines.choose import make_engine
from decoding.engines.packed import StreamingEngine
from decoding.methods.methods import METHODS
from decoding.models.pair import PairSettings
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits

ROWS, TEXT = 9, 24  # 4 sinks and a window of 5
HOW = {"num_layers": 2, "device": torch.device("cpu"), "dtype": torch.float32,
       "mask_kind": "bool", "mask_layer_types": None}  # fmt: skip
TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 11}


def neox():
    torch.manual_seed(0)
    config = GPTNeoXConfig(**TINY, intermediate_size=24, max_position_embeddings=64, rotary_pct=0.5)
    return GPTNeoXForCausalLM(config).eval().requires_grad_(False)


def llama():
    torch.manual_seed(1)
    config = LlamaConfig(**TINY, intermediate_size=24, num_key_value_heads=1, max_position_embeddings=64)
    return LlamaForCausalLM(config).eval().requires_grad_(False)


def engine_of(network, rows=ROWS):
    plain = make_engine("packed", network, "tiny", 64, **HOW).engine
    return StreamingEngine(plain.forward, rows, **HOW)


def turned(vector, position, size, base=10_000.0):
    """A head rotated by hand: entry i and entry i + size / 2 turn together."""
    half = size // 2
    angles = position * base ** (-torch.arange(half).double() * 2 / size)
    one, two, rest = vector[:half], vector[half:size], vector[size:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([one * cos - two * sin, two * cos + one * sin, rest])


def by_definition(network, tokens):
    """Logits after every token of a text: at each, the sinks and the last rows stand at the places 0, 1, 2, ...

    Queries and keys are rotated by their place in that cache, when they are needed.
    """
    network = network.double()
    body, heads = network.gpt_neox, 2
    x, size = body.embed_in(torch.tensor(tokens)), 4
    for layer in body.layers:
        normed = layer.input_layernorm(x)
        qkv = layer.attention.query_key_value(normed).view(len(tokens), heads, 3, 8)
        attended = torch.zeros(len(tokens), heads, 8, dtype=torch.float64)
        for t in range(len(tokens)):
            seen = [*range(min(SINKS, t + 1)), *range(max(SINKS, t - (ROWS - SINKS) + 1), t + 1)]
            for head in range(heads):
                query = turned(qkv[t, head, 0], len(seen) - 1, size)
                keys = torch.stack([turned(qkv[j, head, 1], place, size) for place, j in enumerate(seen)])
                weights = (keys @ query / 8**0.5).softmax(0)
                attended[t, head] = weights @ qkv[seen, head, 2]
        mlp = layer.mlp(layer.post_attention_layernorm(x))
        x = x + mlp + layer.attention.dense(attended.flatten(1))
    return network.get_output_embeddings()(body.final_layer_norm(x))


@torch.inference_mode()
def logits_of(engine, tokens, sizes):
    """Logits after every token, read in passes of some sizes."""
    cache, found, start = engine.new_cache(TEXT), [], 0
    for size in sizes:
        seen = engine.mask(Visibility.causal(start, size))
        found.append(engine.run(cache, tokens[start : start + size], np.arange(start, start + size), seen, 0))
        start += size
    return torch.cat(found)


TOKENS = np.random.default_rng(0).integers(11, size=TEXT)


def test_it_is_what_the_definition_says():
    engine = engine_of(neox())
    wanted = by_definition(neox(), TOKENS.tolist())
    assert torch.allclose(logits_of(engine, TOKENS, [TEXT]).double(), wanted, atol=2e-5)
    whole = engine_of(neox(), rows=64)
    assert not torch.allclose(logits_of(whole, TOKENS, [TEXT]).double(), wanted, atol=1e-3), "a window must matter"


@pytest.mark.parametrize("network", [neox, llama])
def test_how_tokens_are_grouped_into_passes_does_not_matter(network):
    engine = engine_of(network())
    one_by_one = logits_of(engine, TOKENS, [1] * TEXT)
    for sizes in ([TEXT], [3, 8, 1, 12], [2, 22]):
        assert torch.allclose(logits_of(engine, TOKENS, sizes), one_by_one, atol=1e-5)


@torch.inference_mode()
@pytest.mark.parametrize("text", [2, 5, 20])
def test_a_branch_of_a_tree_is_a_text_of_its_own(text):
    engine = engine_of(llama())
    cache = engine.new_cache(TEXT + 8)
    engine.run(cache, TOKENS[:text], np.arange(text), engine.mask(Visibility.causal(0, text)), 1)
    # Two levels, as a draft model reads them: children 1 and 2 of the root, then a grandchild below each.
    above = np.array([[1, 0], [0, 1]], dtype=bool)
    engine.run(cache, np.array([3, 4]), np.full(2, text), engine.mask(Visibility(text, above)), 0)
    below = np.array([[1, 0, 1, 0], [0, 1, 0, 1]], dtype=bool)
    logits = engine.run(cache, np.array([5, 6]), np.full(2, text + 1), engine.mask(Visibility(text, below)), 0)
    for row, branch in enumerate(([3, 5], [4, 6])):
        alone = logits_of(engine, np.array([*TOKENS[:text], *branch]), [text + 2])[-1]
        assert torch.allclose(logits[row], alone, atol=1e-5)


@pytest.fixture(scope="module")
def pair(embedded):
    return embedded.with_engine("streaming-64")


def decoded(pair, name, tokens=96, sampling=None, **settings):
    method = METHODS[name].with_settings(**settings)
    limits = Limits(tokens, ignore_end_of_text=True, record="summary")
    session = DecodeSession(pair, method, pair.vocabulary.encode("Once upon a time there was a cat"), sampling, limits)
    for _ in session:
        pass
    return session.trace()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["linear", "dynatree", "fixed_tree"])
def test_speculation_gives_the_text_of_streaming_without_it(pair, name):
    plain, fast = decoded(pair, "autoregressive"), decoded(pair, name)
    assert fast.output_ids == plain.output_ids and fast.pair.target.engine == "streaming-64"
    assert len(fast.iterations) < len(plain.iterations)


@pytest.mark.slow
def test_it_is_not_the_text_of_full_attention(pair, embedded):
    sampling = Sampling(temperature=1.0, seed=1)
    streamed, whole = (decoded(each, "autoregressive", sampling=sampling, verifier="nss").output_ids
                       for each in (pair, embedded))  # fmt: skip
    assert streamed[:16] == whole[:16] and streamed != whole


def test_names_of_streaming_engines():
    assert streamed_rows("streaming") == 256 and streamed_rows("streaming-512") == 512
    assert [streamed_rows(name) for name in ("streaming-8", "packed", "streaming-", "streaming-x")] == [None] * 4
    assert parse_contestant("linear@streaming-512:length=4").engine == "streaming-512"
    with pytest.raises(SettingsError, match=r"There is no engine 'streaming-9': choose auto, .* or streaming-N"):
        parse_contestant("linear@streaming-9")
    with pytest.raises(SettingsError, match="engine is 'stream'"):
        PairSettings(engine="stream")


def test_models_that_cannot_be_turned_back_are_refused():
    with pytest.raises(PairError, match="the packed engine does not support"):
        make_engine("streaming", neox(), "tiny", 64, **{**HOW, "mask_kind": "additive"})
    network = llama()
    network.model.rotary_emb.attention_scaling = 1.2
    with pytest.raises(PairError, match="tiny scales its rotary embeddings and cannot rotate them back"):
        make_engine("streaming", network, "tiny", 64, **HOW)


@pytest.mark.slow
def test_it_is_compared_with_streaming_token_by_token(embedded):
    lines = ("autoregressive", "linear", "linear@streaming-64", "autoregressive@streaming-64", "linear@streaming")
    prompt = embedded.vocabulary.encode("The old man at the sea said that he had never seen so large a fish, and")
    found = compare(embedded, [parse_contestant(line) for line in lines], [("sea", prompt)], 96, repeats=1, warmup=0)
    assert [found.reference_of(number) for number in range(5)] == [0, 0, 3, 3, None]
    assert found.differences == () and [each.same_output for each in score(found)] == [None, True, True, None, None]


def test_where_it_parts_it_is_judged_by_its_own_law(pair, embedded, monkeypatch):
    judge, tokens = MarginJudge(pair.target), list(range(5, 85))
    logits = logits_of(pair.target.engine, np.array(tokens), [80])[-1]
    margin = float(logits.topk(2).values.diff().abs())
    assert not judge.exact and judge.margin(tokens) == pytest.approx(margin, abs=1e-4)
    assert judge.margin(tokens) != pytest.approx(MarginJudge(embedded.target).margin(tokens), abs=1e-6)
