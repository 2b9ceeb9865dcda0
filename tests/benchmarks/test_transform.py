"""The transform test: uniform for exact sampling, not for a biased one, on tables and on the embedded pair."""

import json
from argparse import Namespace

import numpy as np
import pytest
import torch

import decoding.drafters
from benchmarks import offline_trees, transform_test
from benchmarks.enumeration import Tables
from benchmarks.offline_trees import MemoDistributions, MemoLogits
from benchmarks.table_source import TableSource
from benchmarks.transform_test import (
    DRAFTERS,
    MOST_TOKENS,
    QUICK,
    REFUSED,
    SAMPLINGS,
    Places,
    Task,
    judge,
    p_values,
    sample,
    span,
    telling_prefix,
    transform,
    verifiers_for,
)
from decoding.drafters import IIDPathsDrafter, LinearDrafter, SequoiaDrafter
from decoding.engines.base import Visibility
from decoding.models.pair import tree_forward
from decoding.sampling.draws import GeneratorDraws
from decoding.sampling.sampling import Sampling
from decoding.tree.draft import TokenTree
from decoding.verifiers import VERIFIERS
from decoding.verifiers.base import VerifiedTree
from decoding.verifiers.naive import NaiveSolver
from tests.helpers.families import family

IID = IIDPathsDrafter(paths=2, length=2)
WITHOUT_REPLACEMENT = SequoiaDrafter(node_budget=5, max_depth=2, acceptance="0.5,0.3")
UNLIKE = Tables("unlike", {(0,): [0.1, 0.2, 0.7]}, {(0,): [0.5, 0.4, 0.1]}, [0.7, 0.2, 0.1], [0.3, 0.3, 0.4])
NONE = [(np.nan, np.nan)]


@pytest.fixture(autouse=True)
def one_thread():
    """As in the worker processes: passes over a few tokens only lose time where threads wait for one another."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def generator():
    return np.random.default_rng(1)


def table_outputs(drafter, verifier: str, count: int) -> np.ndarray:
    """Spans of sampled blocks on a pair of tables."""
    draws, spans = GeneratorDraws(0), np.full((count, MOST_TOKENS, 2), np.nan)
    for output in range(count):
        source = TableSource(UNLIKE.draft, UNLIKE.draft_default)
        draft = drafter.draft(None, source, 0, draws)
        tree = VerifiedTree(draft, UNLIKE.target_rows(draft))
        block = Places(tree, draft, source).block(VERIFIERS[verifier]().decide(tree).walk(draws))
        spans[output, : len(block)] = block
    return spans


def repeated(block: list[tuple[float, float]], count: int = 64) -> np.ndarray:
    """The same block as every output."""
    return np.array([block + NONE * (MOST_TOKENS - len(block))] * count)


def test_tokens_are_ordered_by_ratio_and_equal_ratios_are_one_token():
    target, draft = torch.tensor([0.5, 0.3, 0.2, 0.0]), torch.tensor([0.25, 0.6, 0.1, 0.05])
    ratio = target / draft
    assert span(target, ratio, 1) == pytest.approx((0.0, 0.3))
    assert span(target, ratio, 0) == span(target, ratio, 2) == pytest.approx((0.3, 0.7))
    assert span(target, ratio, 3) == (0.0, 0.0)


def test_behind_a_block_the_target_itself_goes_on(generator):
    values = transform(repeated([(0.5, 0.25)], 4000), generator)
    assert values[:, 0].min() >= 0.5 and values[:, 0].max() <= 0.75
    assert values[:, 1].min() < 0.01 and values[:, 1].max() > 0.99


def test_only_positions_that_are_reached_are_tested(generator):
    found = p_values(repeated([(0.0, 1.0), (0.0, 0.5)], 4096), generator)
    assert len(found) == 2 and found[0] > 1e-3 and found[1] < 1e-100


def test_a_token_that_the_target_cannot_emit_is_no_matter_of_chance(generator):
    spans = repeated([(0.0, 1.0)], 4096)
    assert p_values(spans, generator)[0] > 1e-3
    spans[17, 0] = 0.0, 0.0
    assert p_values(spans, generator)[0] == 0


@pytest.mark.parametrize("verifier", family(("nss", "specinfer", "traversal"), "nss"))
def test_exact_sampling_is_uniform_at_every_position(verifier, generator):
    found = p_values(table_outputs(IID, verifier, 1000), generator)
    assert len(found) == 3 and min(found) > 1e-3


@pytest.mark.slow
def test_biased_sampling_is_not(generator):
    assert min(p_values(table_outputs(WITHOUT_REPLACEMENT, "specinfer_wor", 2000), generator)) > 1e-3
    assert min(p_values(table_outputs(WITHOUT_REPLACEMENT, "specinfer", 2000), generator)) < 1e-10


@pytest.mark.slow
def test_outputs_may_not_be_chosen_by_the_length_of_their_block(generator):
    spans = table_outputs(IID, "traversal", 1000)
    long_ones = spans[~np.isnan(spans[:, 1, 0])]
    assert min(p_values(spans, generator)) > 1e-3 and min(p_values(long_ones, generator)) < 1e-10


def test_every_drafter_is_tested_with_every_verifier_that_fits():
    assert {type(drafter) for drafter in DRAFTERS.values()} == set(decoding.drafters.DRAFTERS.values())
    for name, drafter in DRAFTERS.items():
        for sampling in SAMPLINGS.values():
            for verifier, kind in VERIFIERS.items():
                refused = kind().refusal(drafter.draft_sampling, sampling) is not None
                assert (verifier in verifiers_for(name, sampling)) == (not refused or (name, verifier) in REFUSED)
                assert refused or (name, verifier) not in REFUSED
    assert {name for name, _ in REFUSED} <= set(QUICK) <= set(DRAFTERS)


def test_the_verdict_notices_both_kinds_of_failure():
    uniform, biased = repeated([(0.0, 1.0)], 4096), repeated([(0.0, 0.5)], 4096)
    fine, refused = ("delayed", "nss", "T 1"), (*REFUSED[0], "T 1")
    figures, problems = judge({fine: uniform, refused: biased})
    assert not problems and [f["allowed"] for f in figures] == [True, False]
    assert figures[0]["corrected"] == min(1.0, 2 * figures[0]["p_values"][0])
    _, problems = judge({fine: biased, refused: uniform})
    assert len(problems) == 2 and "is allowed" in problems[0] and "was not noticed" in problems[1]


def branching_tree(root: int) -> TokenTree:
    tree = TokenTree(root)
    tree.append(np.array([0, 0]), np.array([300, 500]), np.array([0.5, 0.5]))
    tree.append(np.array([1, 2, 2]), np.array([20, 20, 40]), np.array([0.5, 0.5, 0.5]))
    return tree


@torch.inference_mode()
def test_kept_rows_are_those_of_the_plain_text(embedded, monkeypatch):
    prompt = embedded.vocabulary.encode("Once upon a time there was")
    tree, model = branching_tree(prompt[-1]), embedded.target
    rows = MemoLogits(model, prompt)
    kept = rows.of(tree, [5, 0, 4, 1])
    for row, path in zip(kept, ([500, 40], [], [500, 20], [300]), strict=True):
        text = prompt + path
        count = len(text)
        plain = tree_forward(model, model.engine.new_cache(count), text, np.arange(count), Visibility.causal(0, count))
        assert torch.allclose(row, plain[-1], atol=1e-3)
    assert rows.computed == 5  # the four asked for, and the parent of two
    assert len(rows.of(tree, [3])) == 1 and rows.computed == 6
    monkeypatch.setattr(offline_trees, "tree_forward", None)
    assert torch.equal(rows.of(tree, [2, 1, 4, 5]), torch.stack([rows.of(tree, [2])[0], *kept[[3, 2, 0]]]))


@torch.inference_mode()
def test_kept_rows_are_bounded(embedded):
    prompt = embedded.vocabulary.encode("Once upon a time there was")
    tree = branching_tree(prompt[-1])
    rows = MemoLogits(embedded.draft, prompt, most_rows=3)
    before = rows.of(tree, [1, 2, 3])
    assert torch.allclose(rows.of(tree, [3]), before[2:], atol=1e-4) and rows.computed == 6
    assert rows.of(tree, [0]).shape == (1, embedded.logits_size)


def test_distributions_are_computed_once():
    rows = MemoDistributions(torch.randn(2, 9, generator=torch.Generator().manual_seed(0)), Sampling(0.6))
    assert rows.probs(1) is rows.probs(1) and not torch.equal(rows.probs(0), rows.probs(1))


def test_the_prefix_ends_where_the_draft_is_sure_and_mistaken(monkeypatch, embedded):
    text = "Once upon a time there was a small dog who lived in a red house by the sea."
    tokens = embedded.vocabulary.encode(text)
    draft = torch.full((len(tokens), 4), 0.25)
    draft[[2, 10]] = torch.tensor([0.91, 0.03, 0.03, 0.03])  # the first one comes too early
    distributions = {id(embedded.draft): draft, id(embedded.target): torch.full((len(tokens), 4), 0.25)}
    monkeypatch.setattr(transform_test, "_distributions", lambda model, _: distributions[id(model)])
    assert telling_prefix(embedded, text) == tokens[:11]
    distributions[id(embedded.target)] = draft.clone()
    distributions[id(embedded.target)][12] = torch.tensor([0.4, 0.2, 0.2, 0.2])
    assert telling_prefix(embedded, text) == tokens[:13]


@pytest.mark.slow
def test_a_wrong_residual_is_noticed_on_the_embedded_pair(monkeypatch, generator):
    name, verifier, label = key = "linear, sampled", "naive", "T 1"
    monkeypatch.setitem(DRAFTERS, name, LinearDrafter(length=1, sampled=True))
    monkeypatch.setattr(transform_test, "SAMPLINGS", {label: SAMPLINGS[label]})
    monkeypatch.setattr(transform_test, "verifiers_for", lambda *_: [verifier])
    task = Task(0, "One day, a small green frog found", (name,), 1024)
    found, contexts = sample(task)
    assert set(found) == {key} and contexts > 20 and min(p_values(found[key], generator)) > 1e-3
    monkeypatch.setattr(NaiveSolver, "residual", lambda self, rejected: self.target)
    assert min(p_values(sample(task)[0][key], generator)) < 1e-6


@pytest.mark.slow
def test_the_command_writes_what_it_found(monkeypatch, tmp_path, capsys):
    task = Task(0, "Once upon a time, there was a little girl who lived in a", ("eagle2",), 300)
    monkeypatch.setattr(transform_test, "tasks_for", lambda args: [task])
    path = tmp_path / "transform.json"
    assert transform_test.test_embedded(Namespace(quick=True, json=path, save=False, prompts=None)) == 0
    written = json.loads(path.read_text())
    assert written["tests"] == sum(len(c["p_values"]) for c in written["combinations"]) and written["contexts"] > 5
    assert {c["verifier"] for c in written["combinations"]} == {"nss", "naive_tree"}
    assert "every goal reached" in capsys.readouterr().out
