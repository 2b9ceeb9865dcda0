"""Query heads of a group share keys and values without copies, and get what the library's attention gives."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AttentionMaskInterface, DynamicCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from benchmarks.fakes import make_pair
from decoding.engines.attention import GROUPED_SDPA, can_group, grouped_attention
from decoding.models.pair import PairSettings, load_pair
from tests.helpers.families import family

TOLERANCE = 1e-6
HEADS = 4
TREE = torch.tensor(
    [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 1, 0, 1, 0], [1, 0, 1, 0, 1]], dtype=torch.bool
)
DEPTHS = torch.tensor([[0, 1, 1, 2, 2]])


class LargestAllocation(TorchDispatchMode):
    """Elements of the largest tensor with memory of its own that any operation returns."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        before = {a.untyped_storage().data_ptr() for a in args if isinstance(a, torch.Tensor)}
        for tensor in result if isinstance(result, tuple) else (result,):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() not in before:
                self.elements = max(self.elements, tensor.untyped_storage().nbytes() // tensor.element_size())
        return result


@pytest.fixture(
    scope="module",
    params=family((("llama", 4), ("llama", 2), ("llama", 1), ("qwen2", 2), ("qwen2", 1)), ("llama", 2), ("qwen2", 1)),
)
def pair(request, tmp_path_factory):
    """A tiny pair with 4 query heads and some key/value heads, loaded as a user would."""
    architecture, kv_heads = request.param
    folder = tmp_path_factory.mktemp(f"{architecture}-{kv_heads}")
    target, draft = make_pair(folder, architecture, num_key_value_heads=kv_heads)
    return load_pair(PairSettings(str(target), str(draft), device="cpu", context_length=256))


def logits_with(network, attention, call):
    """What a call of the network returns under another attention, which is put back afterwards."""
    own = network.config._attn_implementation
    network.set_attn_implementation(attention)
    try:
        with torch.no_grad():
            return call(network)
    finally:
        network.set_attn_implementation(own)


def assert_same(pair, call):
    network = pair.target.network
    ours, theirs = call(network), logits_with(network, "sdpa", call)
    assert torch.allclose(ours, theirs, atol=TOLERANCE, rtol=0), (ours - theirs).abs().max()


def tokens(*shape):
    return torch.randint(0, 4000, shape, generator=torch.Generator().manual_seed(len(shape)))


def random_heads(batch, kv_heads, num_queries, num_rows, head_dim=16):
    generator = torch.Generator().manual_seed(kv_heads)
    query = torch.randn(batch, HEADS, num_queries, head_dim, generator=generator)
    return query, *torch.randn(2, batch, kv_heads, num_rows, head_dim, generator=generator)


def library(query, key, value, mask, **kwargs):
    module = torch.nn.Module()
    module.num_key_value_groups = query.shape[1] // key.shape[1]
    return sdpa_attention_forward(module, query, key, value, mask, **kwargs)[0]


def test_models_with_shared_heads_load_with_it(pair):
    for model in (pair.target, pair.draft):
        text = model.network.config
        shares = text.num_key_value_heads < text.num_attention_heads
        assert model.info.attention == (GROUPED_SDPA if shares else "sdpa") and model.mask_kind == "bool"


def test_a_tree_behind_a_cached_prefix(pair):
    def call(network):
        cache = DynamicCache(config=network.config)
        network(input_ids=tokens(1, 30), past_key_values=cache, use_cache=True)
        mask = torch.cat([torch.ones(5, 30, dtype=torch.bool), TREE], dim=1)[None, None]
        options = {"attention_mask": mask, "position_ids": 30 + DEPTHS, "past_key_values": cache}
        return network(input_ids=tokens(1, 5), **options).logits

    with torch.no_grad():
        assert_same(pair, call)


@pytest.mark.parametrize("length", [1, 2, 40])
def test_causal_prefill_and_a_single_token_behind_it(pair, length):
    def call(network):
        cache = DynamicCache(config=network.config)
        first = network(input_ids=tokens(1, length), past_key_values=cache, use_cache=True).logits
        return torch.cat([first, network(input_ids=tokens(1, 1), past_key_values=cache).logits], dim=1)

    with torch.no_grad():
        assert_same(pair, call)


def test_a_padded_batch(pair):
    ids, mask = tokens(2, 20), torch.ones(2, 20, dtype=torch.long)
    mask[0, :7] = 0
    with torch.no_grad():
        assert_same(pair, lambda network: network(input_ids=ids, attention_mask=mask).logits[:, 7:])
        padded, alone = (pair.target.network(input_ids=i, attention_mask=m).logits[0, -1] for i, m in
                         ((ids, mask), (ids[:1, 7:], None)))  # fmt: skip
    assert torch.allclose(padded, alone, atol=1e-4)  # padding is really masked


def test_generate_gives_the_same_tokens(pair):
    for ids, mask in ((tokens(1, 12), None), (tokens(2, 12), torch.ones(2, 12).tril(7).long().flip(1))):
        config = pair.generation_config(max_new_tokens=24, min_new_tokens=24)
        mask = torch.ones_like(ids) if mask is None else mask

        def call(network, ids=ids, mask=mask, config=config):
            return network.generate(ids, attention_mask=mask, generation_config=config)

        ours, theirs = call(pair.target.network), logits_with(pair.target.network, "sdpa", call)
        assert torch.equal(ours, theirs)
        assert len(set(ours[0, 12:].tolist())) > 4  # a text that only repeats one token tests nothing


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("mask_heads", [1, HEADS])
@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
def test_masks_of_every_shape(kv_heads, batch, mask_heads, kind):
    query, key, value = random_heads(batch, kv_heads, 5, 12)
    generator = torch.Generator().manual_seed(0)
    mask = torch.rand(batch, mask_heads, 5, 12, generator=generator) > 0.4
    mask[..., 0] = True
    mask = mask if kind == torch.bool else torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(kind).min)
    ours, weights = grouped_attention(torch.nn.Module(), query, key, value, mask, scaling=0.3)
    assert weights is None and ours.is_contiguous()
    theirs = library(query, key, value, mask, scaling=0.3)
    assert torch.allclose(ours, theirs, atol=TOLERANCE, rtol=0)
    assert not torch.allclose(ours, library(query, key, value, None, scaling=0.3, is_causal=False), atol=1e-2)


def test_a_position_bias_is_left_to_the_library():
    query, key, value = random_heads(1, 2, 5, 12)
    module = torch.nn.Module()
    module.num_key_value_groups = 2
    mask, bias = torch.ones(1, 1, 5, 12, dtype=torch.bool), torch.randn(1, HEADS, 5, 12)
    ours, _ = grouped_attention(module, query, key, value, mask, position_bias=bias)
    assert torch.equal(ours, library(query, key, value, mask, position_bias=bias))
    assert not torch.allclose(ours, library(query, key, value, mask))


def test_nothing_as_large_as_repeated_keys_is_allocated():
    query, key, value = random_heads(1, 2, 8, 2048)
    mask = torch.rand(1, 1, 8, 2048) > 0.3
    largest = []
    for attention in (lambda *heads: grouped_attention(torch.nn.Module(), *heads)[0], library):
        with LargestAllocation() as seen, torch.no_grad():
            attention(query, key, value, mask)
        largest.append(seen.elements)
    repeated = key.numel() * HEADS // 2
    assert largest[0] < key.numel() / 2 < repeated <= largest[1]


def test_a_pass_of_a_model_repeats_no_keys(pair, monkeypatch):
    def refuse(_, groups):
        raise AssertionError(f"keys are repeated {groups} times")

    monkeypatch.setattr("transformers.integrations.sdpa_attention.repeat_kv", refuse)
    mask = torch.ones(5, 5, dtype=torch.bool).tril()[None, None]
    options = {"input_ids": tokens(1, 5), "attention_mask": mask}
    with torch.no_grad():
        pair.target.network(**options)
        if pair.target.info.attention == GROUPED_SDPA:
            with pytest.raises(AssertionError, match="keys are repeated"):
                logits_with(pair.target.network, "sdpa", lambda network: network(**options))


def test_only_models_that_take_a_registered_attention_use_it(pair):
    network = pair.target.network
    assert GROUPED_SDPA in AttentionMaskInterface()
    assert can_group(type(network), network.config) == (pair.target.info.attention == GROUPED_SDPA)

    class OwnAttention(type(network)):
        _supports_attention_backend = False

    assert not can_group(OwnAttention, network.config)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fused_cuda_kernels_take_it(dtype):
    query, key, value = (heads.to("cuda", dtype) for heads in random_heads(1, 2, 8, 512, head_dim=64))
    mask = (torch.rand(1, 1, 8, 512) > 0.3).cuda()
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION]):
        ours, _ = grouped_attention(torch.nn.Module(), query, key, value, mask)
        theirs = library(query, key, value, mask)
    assert torch.allclose(ours, theirs, atol=1e-5 if dtype == torch.float32 else 2e-2)
