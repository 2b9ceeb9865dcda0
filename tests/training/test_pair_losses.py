"""Losses of the pair's training against values worked out by hand, and the fast forward against transformers'."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from decoding.training.pair_loops import go_back, loops, run_lengths, unlikelihood
from decoding.training.pair_networks import (
    NetworkShape,
    RowCache,
    continuations,
    has_shape,
    head_logits,
    hidden_states,
    load_network,
    new_network,
    save_network,
    shrink_embeddings,
)
from decoding.training.pair_phases import TargetSettings, distributions, divergence, overlap, token_losses
from decoding.training.pair_tokens import END_ID

VOCABULARY = 50


@pytest.fixture(autouse=True)
def in_float32(monkeypatch):
    """Compare exactly: also where the processor would compute in bfloat16."""
    for module in ("phases", "networks", "loops"):
        monkeypatch.setattr(f"decoding.training.pair_{module}.compute_dtype", lambda device: torch.float32)


@pytest.fixture
def network():
    made = new_network(NetworkShape(hidden_size=32, layers=2, heads=2), VOCABULARY, seed=1)
    with torch.no_grad():
        for weight in made.parameters():
            weight.mul_(3)  # random weights as they begin say nearly nothing
    return made


def windows(rows: int, size: int) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (rows, size), generator=torch.Generator().manual_seed(size))


@pytest.mark.parametrize("size", [5, 256, 300, 530])
def test_the_fast_forward_is_that_of_transformers(network, size):
    tokens = windows(2, size)
    with torch.no_grad():
        expected = network(input_ids=tokens).logits
        found = head_logits(network, hidden_states(network, tokens, torch.float32))
    assert expected.std() > 0.1
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_rows_in_a_cache_go_on_where_they_were(network):
    tokens = windows(3, 12)
    with torch.no_grad():
        whole = hidden_states(network, tokens, torch.float32)
        cache = RowCache(network, 3, 12, torch.float32)
        parts = [hidden_states(network, part, torch.float32, cache) for part in tokens.split((7, 1, 4), dim=1)]
    torch.testing.assert_close(torch.cat(parts, 1), whole, atol=1e-5, rtol=1e-4)


def test_greedy_text_is_that_of_generate(network):
    prompts = windows(3, 6)
    mine = continuations(network, prompts, 10)
    theirs = network.generate(
        prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=10, do_sample=False, eos_token_id=None,
        pad_token_id=0,
    )  # fmt: skip
    assert (mine == theirs[:, 6:]).all()


def test_the_gradient_of_the_loss_is_that_of_transformers(network):
    rows = windows(2, 40)
    token_losses(network, rows).mean().backward()
    mine = {name: weight.grad.clone() for name, weight in network.named_parameters()}
    network.zero_grad()
    network(input_ids=rows, labels=rows).loss.backward()
    for name, weight in network.named_parameters():
        torch.testing.assert_close(mine[name], weight.grad, atol=1e-5, rtol=1e-3, msg=name)


def test_drawn_text_follows_the_distribution_at_its_temperature(network):
    count, prompts = 4000, windows(1, 6).repeat(4000, 1)
    draws = torch.Generator().manual_seed(3)
    drawn = continuations(network, prompts, 1, torch.full((count,), 0.5), draws)[:, 0]
    chances = (network(input_ids=prompts[:1]).logits[0, -1] / 0.5).softmax(-1)
    found = torch.bincount(drawn, minlength=VOCABULARY) / count
    assert (found - chances).abs().sum() < 0.1, "at 4,000 draws, of 50 tokens"
    cold = continuations(network, prompts[:2], 4, torch.zeros(2), draws)
    assert torch.equal(cold, continuations(network, prompts[:2], 4))


def test_a_text_that_need_not_go_on_changes_no_other(network):
    prompts = windows(4, 10)
    whole = continuations(network, prompts, 40)
    parts = continuations(network, prompts, 40, done=lambda texts: (texts[:, :10] == prompts[0]).all(1))
    assert torch.equal(parts[1:], whole[1:])
    assert torch.equal(parts[0, :6], whole[0, :6]) and (parts[0, 6:] == END_ID).all(), "asked at 16 tokens"


def test_runs_that_stood_earlier_in_their_row():
    rows = np.array([[1, 2, 3, 9, 1, 2, 3, 1, 2, 3, 7], [5, 5, 5, 5, 6, 5, 8, 4, 3, 2, 1]])
    assert run_lengths(rows).tolist() == [[0, 0, 0, 0, 1, 2, 3, 1, 2, 3, 0], [0, 1, 2, 3, 0, 1, 0, 0, 0, 0, 0]]


def test_of_a_text_in_a_loop_its_runs_are_marked_up_to_a_little_behind_its_beginning():
    looping = [1, 2, 3, 4, 9, 2, 3, 8, 2, 3, 4, 9, 2, 3, 8, 7]
    ending = [1, 2, 3, 4, END_ID, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    going_on = [1, 2, 3, 4, 5, 6, 7, 2, 3, 8, 9, 10, 11, 12, 13, 14]
    rows = np.array([looping, ending, going_on])
    marked, ends = loops(rows, run=4, least=2, prompt=4)
    assert ends.tolist() == [15, 16, 16]
    assert loops(rows, run=4, least=2, prompt=5)[1].tolist() == [15, 12, 16], "one in the prompt ends nothing"
    assert marked[0].nonzero()[0].tolist() == [6, 9, 10, 11, 12, 13, 14]
    assert not marked[1].any(), "behind an end of text there is another one"
    assert not marked[2].any(), "ordinary text repeats short runs"
    assert loops(rows, run=7, least=2, prompt=4)[1].tolist() == [15, 16, 16]
    assert loops(rows, run=8, least=2, prompt=4)[1].tolist() == [16, 16, 16]


def test_unlikelihood_is_that_of_the_marked_tokens_alone(network):
    rows, weights = windows(2, 6), torch.zeros(2, 6)
    weights[0, 3], weights[1, 5] = 0.25, 2.0
    for temperature in (1.0, 0.5):
        chances = (network(input_ids=rows).logits / temperature).softmax(-1).detach()
        expected = -0.25 * math.log(1 - chances[0, 2, rows[0, 3]]) - 2 * math.log(1 - chances[1, 4, rows[1, 5]])
        found = unlikelihood(network, rows, weights, temperature).item()
        assert found == pytest.approx(temperature * expected, rel=1e-4)


def test_a_narrower_network_begins_with_the_embeddings_on_their_principal_axes(network):
    same, wider, narrow = (new_network(NetworkShape(size, 1, 2), VOCABULARY, seed=2) for size in (32, 48, 16))
    shrink_embeddings(network, same)
    mine, theirs = same.gpt_neox.embed_in.weight, network.gpt_neox.embed_in.weight
    torch.testing.assert_close(mine @ mine.T, theirs @ theirs.T, atol=1e-4, rtol=1e-4)
    rest = wider.gpt_neox.embed_in.weight[:, 32:].clone()
    shrink_embeddings(network, wider)
    assert torch.equal(wider.gpt_neox.embed_in.weight[:, 32:], rest)
    shrink_embeddings(network, narrow)
    kept = float(narrow.gpt_neox.embed_in.weight.detach().square().sum())
    assert float(torch.linalg.svdvals(theirs.detach())[:16].square().sum()) == pytest.approx(kept, rel=1e-4)


def test_divergence_and_overlap_by_hand():
    target, draft = torch.tensor([[0.5, 0.3, 0.2]]).log(), torch.tensor([[0.2, 0.2, 0.6]]).log()
    by_hand = 0.5 * math.log(0.5 / 0.2) + 0.3 * math.log(0.3 / 0.2) + 0.2 * math.log(0.2 / 0.6)
    assert float(divergence(target, draft)) == pytest.approx(by_hand, rel=1e-5)
    assert float(overlap(target, draft)) == pytest.approx(0.2 + 0.2 + 0.2, rel=1e-5)
    assert float(divergence(target, target)) == pytest.approx(0) and float(overlap(draft, draft)) == pytest.approx(1)


def test_only_the_draft_learns_from_the_target(network):
    draft = new_network(NetworkShape(hidden_size=16, layers=1, heads=1), VOCABULARY, seed=2)
    for theirs, mine in distributions(network, draft, windows(2, 9)):
        (divergence(theirs, mine).mean() - overlap(theirs, mine).mean()).backward()
    assert all(weight.grad is None for weight in network.parameters())
    assert all(weight.grad is not None and weight.grad.any() for weight in draft.parameters())


def test_windows_are_short_most_of_the_time_and_reach_far_while_cooling():
    settings = TargetSettings()
    steady = [settings.window_of(step, cooling=False) for step in range(8)]
    assert steady == [256, 256, 256, 1024] * 2
    assert [settings.window_of(step, cooling=True) for step in range(4)] == [256, 1536] * 2


def test_a_network_is_stored_once_and_in_16_bits(network, tmp_path):
    source = tmp_path / "tokenizer"
    source.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (source / name).write_text("{}")
    save_network(network, source, tmp_path / "stored")
    weights = load_file(tmp_path / "stored" / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.float16}
    assert sum(map(torch.numel, weights.values())) == sum(map(torch.numel, network.parameters()))
    tokens = windows(1, 9)
    stored = load_network(tmp_path / "stored")
    assert torch.allclose(stored(tokens).logits, network(tokens).logits, atol=0.05)
    assert json.loads((tmp_path / "stored" / "config.json").read_text())["architectures"] == ["GPTNeoXForCausalLM"]
    shape = NetworkShape(hidden_size=32, layers=2, heads=2)
    assert has_shape(tmp_path / "stored", shape) and not has_shape(tmp_path / "stored", replace(shape, layers=1))
    assert not has_shape(tmp_path, shape)


def test_a_part_of_the_way_back(network):
    before = {name: torch.zeros_like(weights) for name, weights in network.named_parameters()}
    now = {name: weights.detach().clone() for name, weights in network.named_parameters()}
    go_back(network, before, 0.25)
    assert all(torch.allclose(weights, 0.25 * now[name]) for name, weights in network.named_parameters())
    go_back(network, now, 0.0)
    assert all(torch.equal(weights, now[name]) for name, weights in network.named_parameters())
