"""A model is tried as decoding will run it: at the end of its context, over our cache, behind as many rows as fit."""

import pytest
import torch
from transformers import AutoModelForCausalLM, GPTNeoConfig, GPTNeoForCausalLM

from benchmarks.fakes import make_checkpoint
from decoding.common.errors import PairError
from decoding.models.checks import check_tree_attention, let_masks_decide

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("llama"), "llama")


def gpt_neo(*kinds, window=64):
    torch.manual_seed(0)
    config = GPTNeoConfig(vocab_size=512, hidden_size=32, num_layers=2, num_heads=4, window_size=window,
                          max_position_embeddings=64, attention_types=[[list(kinds), 2 // len(kinds)]])  # fmt: skip
    return GPTNeoForCausalLM(config).eval()


@pytest.mark.parametrize("lost", ["attention_mask", "position_ids"])
def test_a_model_that_ignores_mask_or_positions_is_refused(llama, lost):
    network = AutoModelForCausalLM.from_pretrained(llama).eval()
    forward = network.forward
    network.forward = lambda **kwargs: forward(**{name: value for name, value in kwargs.items() if name != lost})
    with pytest.raises(PairError, match="cannot take a tree attention mask"):
        check_tree_attention(network, "deaf", sdpa=True, device=CPU, context=256)


def test_a_model_that_gives_all_logits_where_few_are_asked_for_is_refused(llama):
    network = AutoModelForCausalLM.from_pretrained(llama).eval()
    forward = network.forward
    network.forward = lambda logits_to_keep=0, **kwargs: forward(**kwargs)
    with pytest.raises(PairError, match="logits for 3 tokens where one was requested"):
        check_tree_attention(network, "chatty", sdpa=True, device=CPU, context=256)


def test_eager_attention_that_misreads_bool_masks_is_noticed(llama):
    network = AutoModelForCausalLM.from_pretrained(llama, attn_implementation="eager").eval()
    assert check_tree_attention(network, "eager", sdpa=True, device=CPU, context=256) == ("additive", None)


@pytest.mark.parametrize("kinds", [("global",), ("global", "local")])
def test_layers_that_hide_rows_by_number_are_refused_unless_the_mask_decides(kinds):
    network = gpt_neo(*kinds)
    with pytest.raises(PairError, match="cannot take a tree attention mask"):
        check_tree_attention(network, "neo", sdpa=False, device=CPU, context=64)
    ids = torch.arange(60)[None]
    before = network(input_ids=ids).logits
    let_masks_decide(network)
    assert check_tree_attention(network, "neo", sdpa=False, device=CPU, context=64) == ("additive", None)
    torch.testing.assert_close(network(input_ids=ids).logits, before)


def test_a_window_that_no_configuration_tells_of_is_refused(llama):
    """Sliding layers that make their own mask by the number of rows, of a width between context and largest tree."""
    network = AutoModelForCausalLM.from_pretrained(llama, attn_implementation="eager").eval()
    assert check_tree_attention(network, "sliding", sdpa=False, device=CPU, context=256)
    for layer in network.model.layers:
        attend = layer.self_attn.forward

        def windowed(*args, attention_mask, attend=attend, **kwargs):
            queries, rows = attention_mask.shape[-2:]
            back = torch.arange(rows - queries, rows)[:, None] - torch.arange(rows)
            hidden = attention_mask.masked_fill(back >= 1024, torch.finfo(torch.float32).min)
            return attend(*args, attention_mask=hidden, **kwargs)

        layer.self_attn.forward = windowed
    with pytest.raises(PairError, match="differ by"):
        check_tree_attention(network, "sliding", sdpa=False, device=CPU, context=256)


@pytest.mark.parametrize("architecture", ["mistral", "gemma3"])
def test_windows_shorter_than_the_context_are_reported_by_what_the_model_does(tmp_path, architecture):
    network = AutoModelForCausalLM.from_pretrained(make_checkpoint(tmp_path, architecture, sliding_window=64)).eval()
    assert check_tree_attention(network, "sliding", sdpa=True, device=CPU, context=64)[0] == "bool"
    with pytest.raises(PairError, match="all tokens of a context of 65"):
        check_tree_attention(network, "sliding", sdpa=True, device=CPU, context=65)
