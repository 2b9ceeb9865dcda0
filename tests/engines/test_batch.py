"""Passes over several sequences give each of them the logits that it has alone."""

import numpy as np
import pytest
import torch

from benchmarks.fakes import make_pair
from decoding.common.errors import PairError
from decoding.engines.base import Visibility
from decoding.engines.batch import BatchCache, BatchEngine, BatchMask
from decoding.heads.head import with_draft
from decoding.models.pair import PairSettings, embedded_pair, load_pair, tree_forward
from tests.helpers.tape import TapeGraphs

TREE = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]], dtype=bool)
PLACES = np.array([0, 1, 1, 2])


def batched(model, batch):
    return BatchEngine(model.with_engine("transformers").engine, model.engine, model.network, model.positions, batch)


def log_probs_alone(model, ids, past):
    cache = model.engine.new_cache(past + 8)
    with torch.inference_mode():
        tree_forward(model, cache, ids[:past], np.arange(past), Visibility.causal(0, past))
        logits = tree_forward(model, cache, ids[past:], past + PLACES, Visibility(past, TREE))
    return torch.log_softmax(logits.float(), -1)


@pytest.mark.slow
def test_a_captured_pass_over_a_batch_reads_what_is_new_each_time():
    model = embedded_pair().target.with_engine("cuda_graph")
    past, batch = 12, 3
    ids = np.random.default_rng(1).integers(model.info.vocab_size, size=(4, batch, past + 4))
    found = []
    for graphs in (TapeGraphs(model.device), None):
        one, cache = batched(model, batch), BatchCache(batch, past + 4)
        one.graphs, answers = graphs or one.graphs, []
        with torch.inference_mode():
            one.run(cache, ids[0, :, :past], np.arange(past), Visibility.causal(0, past), keep=1)
            for turn in range(4):  # warmed up, captured, replayed twice
                cache.length = past
                tree = TREE if turn % 2 else np.tri(4, dtype=bool)
                answers.append(one.run(cache, ids[turn, :, past:], past + PLACES, Visibility(past, tree)))
        found.append(torch.stack(answers))
        assert graphs is None or graphs.captured == 1
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("architecture", "engine"),
    [
        *((kind, engine) for kind in ("gpt_neox", "llama") for engine in ("packed", "transformers", "static-host")),
        ("gpt2", "transformers"),
        ("gemma3", "transformers"),
    ],
)
def test_every_sequence_of_a_batch_gets_its_own_logits(tmp_path, architecture, engine):
    target, draft = make_pair(tmp_path, architecture)
    model = load_pair(
        PairSettings(str(target), str(draft), device="cpu", dtype="float32", context_length=128, engine=engine)
    ).target
    past, batch = 12, 3
    ids = np.random.default_rng(1).integers(model.info.vocab_size, size=(batch, past + 4))
    one, cache = batched(model, batch), BatchCache(batch, past + 4)
    with torch.inference_mode():
        one.run(cache, ids[:, :past], np.arange(past), Visibility.causal(0, past), keep=1)
        logits = one.run(cache, ids[:, past:], past + PLACES, Visibility(past, TREE))
    assert cache.length == cache.get_seq_length() == past + 4
    found = torch.log_softmax(logits.float(), -1).unflatten(0, (batch, -1))
    expected = torch.stack([log_probs_alone(model, row, past) for row in ids])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


def test_a_draft_head_predicts_for_every_sequence_of_a_batch_what_it_does_alone():
    head = with_draft(embedded_pair(), "talf").head
    batch, size = 2, head.info.hidden_size
    maker = np.random.default_rng(2)
    ids, features = maker.integers(4096, size=(batch, 4)), torch.randn(batch, 4, size)
    with torch.inference_mode():
        mask = BatchMask.of(Visibility(0, TREE), batch, head.device)
        cache = BatchCache(batch, 4)
        found = head.engine.run(cache, ids.ravel(), np.tile(1 + PLACES, batch), mask, features.flatten(0, 1))
        expected = [
            head.engine.run(head.engine.new_cache(4), row, 1 + PLACES, Visibility(0, TREE), some)
            for row, some in zip(ids, features, strict=True)
        ]
    torch.testing.assert_close(found, torch.cat(expected), rtol=0, atol=1e-4)


@pytest.mark.slow
def test_attention_with_a_window_of_its_own_is_refused():
    model = embedded_pair().target.with_engine("streaming-64")
    with pytest.raises(PairError, match="does not run in batches"):
        batched(model, 2)
