"""Sessions that draft with a head: the text of `generate`, caches as of a fresh run, ways back to the bit."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from benchmarks.fakes import make_checkpoint
from decoding.common.errors import PairError, SettingsError
from decoding.compare.hf_generate import run_baseline
from decoding.compare.identity import TIE_MARGIN, MarginJudge, explain_difference
from decoding.engines.base import Visibility
from decoding.heads.store import save_head
from decoding.methods.method import CACHE_POLICIES, fitted
from decoding.methods.methods import METHODS
from decoding.models.pair import PairSettings, embedded_pair, load_pair, pair_identity, release
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits
from decoding.trace.records import node_paths
from decoding.trace.validation import check_run
from tests.helpers.families import family
from tests.helpers.heads import NAME, fitted_network, random_network, true_features, with_network
from tests.session.test_checkpoints import reported

SMALL = {
    "hardware_aware": {"verify_ms": "1:1 64:2", "level_ms": "1:0.2", "odds": "1.5 1", "node_budget": 16},
    "sequoia": {"acceptance": "0.5,0.2,0.1", "node_budget": 10, "max_depth": 3},
    "dynatree": {"branch_first_level": True, "stop_probability": 0.01, "prune_probability": 0.005},
    "fixed_tree": {"max_depth": 3, "branch_first_level": True},
    "dyspec": {"node_budget": 6},
    **{name: {"node_budget": 10} for name in ("dyspec_threshold", "eagle2", "specexec", "salf", "opt_tree")},
}
DRAFTING = [name for name, method in METHODS.items() if method.drafter.uses_draft_model]
QUICK = ("dynatree", "salf", "dyspec")
TOKENS = 32


def method_of(name: str, head: str = NAME, **changes):
    return METHODS[name].with_settings(**SMALL.get(name, {}), **changes, draft_head=head)


def prompt(pair):
    return pair.vocabulary.encode("Once upon a time there was a cat who had two friends, a dog and")


def loaded(kind: str, folder):
    if kind == "embedded":
        return embedded_pair()
    target = str(make_checkpoint(folder / "target", kind, seed=3))
    return load_pair(PairSettings(target, target, device="cpu", dtype="float32", context_length=512))


@pytest.fixture(scope="module", params=family(("llama", "embedded"), "llama"))
def good(request, tmp_path_factory):
    """A pair with a head that agrees with its target some of the time, and the text that `generate` makes."""
    pair = loaded(request.param, tmp_path_factory.mktemp(request.param))
    ids = prompt(pair)
    text = run_baseline(pair, "hf_generate", ids, TOKENS).output_ids
    return with_network(pair, fitted_network(pair, [[*ids, *text[: TOKENS * 2 // 3]]])), text


def decoded(pair, method, sampling=None, **limits):
    session = DecodeSession(pair, method, prompt(pair), sampling, Limits(**{"max_new_tokens": TOKENS, **limits}))
    return session, list(session)


@pytest.mark.parametrize("policy", family(CACHE_POLICIES, "compaction"))
@pytest.mark.parametrize("name", family(DRAFTING, *QUICK))
def test_greedy_text_is_that_of_generate(good, name, policy):
    pair, text = good
    session, iterations = decoded(pair, method_of(name, cache_policy=policy))
    ids = prompt(pair)
    difference = explain_difference(pair, ids, tuple(session.tokens[len(ids) :]), text, MarginJudge(pair.target))
    assert difference is None or difference.margin <= TIE_MARGIN, difference
    accepted = sum(len(i.accepted) for i in iterations) / len(iterations)
    least = 0.4 if METHODS[name].drafter.draft_sampling == "deterministic" else 0.1
    assert least <= accepted <= 7, "a head that always or never agrees tests nothing"
    check_run(session.trace())


@pytest.mark.parametrize("kind", family(("llama", "embedded"), "llama"))
def test_a_head_that_has_learned_nothing_changes_no_text(tmp_path, kind):
    pair = loaded(kind, tmp_path)
    text = run_baseline(pair, "hf_generate", prompt(pair), 12).output_ids
    session, _ = decoded(with_network(pair, random_network(pair)), method_of("eagle2"), max_new_tokens=12)
    assert session.trace().output_ids == text


@pytest.mark.parametrize("policy", CACHE_POLICIES)
@pytest.mark.parametrize("engine", ["packed", "cuda_graph", pytest.param("transformers", marks=pytest.mark.slow)])
def test_rows_and_features_equal_a_fresh_run_after_every_iteration(good, policy, engine):
    pair, _ = good
    pair = pair.with_engine(engine)
    session = DecodeSession(
        pair, method_of("eagle2", cache_policy=policy), prompt(pair), limits=Limits(20, record="none")
    )
    moved = False
    while not session.finished:
        moved |= len(session.step().accepted) > 1
        models, tokens = session._models, session.tokens
        assert models.features.length == models.target_cache.length == len(tokens) - 1
        fresh = true_features(pair, tokens[:-1])
        assert torch.allclose(models.features.between(0, len(tokens) - 1), fresh, atol=2e-3)
        assert models.draft_cache.length <= len(tokens) - 2, "rows of drafted tokens are dropped"
        again = pair.head.engine.new_cache(4)
        with torch.inference_mode():
            pair.head.read(again, models.features, tokens[: models.draft_cache.length + 1])
        for one, other in zip(models.draft_cache.rows(), again.rows(), strict=True):
            assert all(torch.allclose(a, b, atol=2e-4) for a, b in zip(one, other, strict=True))
    assert moved, "no path of two nodes was accepted, so nothing had to move"


def test_committed_tokens_take_true_features_and_drafted_ones_the_heads_own(good, monkeypatch):
    pair, _ = good
    session = DecodeSession(pair, method_of("linear"), prompt(pair), limits=Limits(2 * TOKENS))
    asked = []
    engine = type(pair.head.engine)
    run = engine.run

    def watched(self, cache, ids, positions, seen, features):
        made = run(self, cache, ids, positions, seen, features)
        asked.append((list(ids), list(positions), features.clone(), made.clone()))
        return made

    monkeypatch.setattr(engine, "run", watched)
    for _ in range(4):
        session.step()
        asked.clear()
        before = session._models.features.first(9_999)
        iteration = session.step()
        ids, positions, features, _ = asked[0]
        start = iteration.kv_draft.slots_before
        assert ids == session.tokens[start + 1 : iteration.prefix_length] and positions[0] == start + 1
        assert torch.equal(features, before.between(start, iteration.prefix_length - 1))
        for (*_, parent), (*_, own, _) in pairwise(asked):
            assert torch.equal(own, parent[-1:]), "a chain: each takes what its parent gave"
        assert [p for _, p, _, _ in asked[1:]] == [[iteration.prefix_length + d] for d in range(len(asked) - 1)]


@torch.inference_mode()
def test_in_a_tree_every_node_reads_its_own_path(good):
    """The head's logits of each node are those of a walk down its path alone, feature by feature."""
    pair, _ = good
    wide = method_of("fixed_tree").with_settings(branching=2, prune_probability=0.0)
    session = DecodeSession(pair, wide, prompt(pair), limits=Limits(TOKENS, rows="full"))
    session.step()
    before, tokens = session._models.features.first(9_999), list(session.tokens)
    iteration = session.step()
    head, walked = pair.head, 0
    for node, path in zip(iteration.nodes, node_paths(iteration), strict=True):
        if node.draft_level is None:
            continue
        cache = head.engine.new_cache(64)
        feature = head.read(cache, before, tokens)[-1:]
        for depth, token in enumerate(path):
            seen = Visibility(cache.length, np.ones((1, 1), dtype=bool))
            feature = head.engine.run(cache, [token], [len(tokens) + depth], seen, feature)
        assert np.allclose(head.logits(feature)[0], iteration.draft_logits[node.node_id], atol=2e-3)
        walked += len(path) > 1
    assert walked > 2 and len({node.parent_id for node in iteration.nodes if node.depth == 2}) > 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dynatree", "salf", "dyspec"])
@pytest.mark.parametrize("engine", ["auto", "cuda_graph"])
def test_a_rewound_session_and_a_fork_decode_on_to_the_bit(good, name, engine):
    pair, _ = good
    sampling = Sampling(0.8, seed=5) if name == "dyspec" else Sampling()
    session, iterations = decoded(
        pair.with_engine(engine), fitted(method_of(name), sampling), sampling, max_new_tokens=16, rows="full"
    )
    for index in {0, 1, len(iterations) // 2, len(iterations) - 1}:
        again = session.rewind(index)
        forked = again.fork()
        rest = list(again)
        assert list(map(reported, rest)) == list(map(reported, iterations[index:]))
        assert np.array_equal(rest[0].draft_logits, iterations[index].draft_logits, equal_nan=True)
        assert list(map(reported, forked)) == list(map(reported, rest))


def test_rows_that_were_given_back_are_filled_again(good):
    pair, _ = good
    session, iterations = decoded(pair, method_of("salf"))
    session.release()
    assert session._models.features.allocated_bytes == 0
    again = session.rewind(2)
    list(again)
    assert again.tokens == session.tokens and again.prefill_s == session.prefill_s
    assert [i.prefix_length for i in again.iterations][:3] == [i.prefix_length for i in iterations][:3]


@pytest.mark.slow
def test_a_fork_may_take_another_draft_and_come_back(good, tmp_path, monkeypatch):
    pair, text = good
    monkeypatch.setenv("DRAFTSCOPE_TRAINING", str(tmp_path))
    network, identity = (
        fitted_network(pair, [[*prompt(pair), *text[: TOKENS // 2]]]),
        pair_identity(pair.with_head(None)),
    )
    save_head(tmp_path / "mine" / "head", network, "talf", identity, "2026-11-22T10:00:00", {})
    session, _ = decoded(pair.with_head(None), method_of("salf", head="mine"))
    assert session.trace().pair.draft.name == "TALF head, 2026-11-22 10:00"
    plain = session.rewind(2).fork(method_of("salf", head=""))
    assert plain.pair.head is None and plain._models.features is None
    first = plain.step()
    assert "draft_head" not in first.settings and first.kv_draft.slots_before == first.prefix_length - 1
    assert first.started_s == session.iterations[1].ended_s, "reading the text again is no part of the call"
    assert plain.trace().pair.draft == pair.draft.info
    back = plain.fork(session.method)
    iteration = back.step()
    assert iteration.settings["draft_head"] == "mine" and iteration.kv_draft.slots_before == iteration.prefix_length - 2
    assert iteration.started_s == first.ended_s, "reading the text again is no part of the call"
    fresh = true_features(pair, back.tokens[:-1])
    assert torch.allclose(back._models.features.between(0, len(fresh)), fresh, atol=2e-3)
    list(back)
    assert tuple(back.tokens[len(prompt(pair)) :]) == text
    before = back.rewind(3)
    assert before.pair.head is not None and before.iterations[2].settings.get("draft_head") is None
    assert reported(before.step()) == reported(back.iterations[3])
    bare = DecodeSession(pair, METHODS["autoregressive"], prompt(pair), limits=Limits(TOKENS))
    assert bare.pair.head is None and bare.step().drafted == 0
    assert bare.fork(session.method).step().kv_draft.slots_before == len(prompt(pair)) - 1


def test_a_text_of_one_token_is_decoded(good):
    pair, _ = good
    ids = prompt(pair)[:1]
    session = DecodeSession(pair, method_of("salf"), ids, limits=Limits(12))
    first, second = session.step(), session.step()
    assert first.drafted == 0 and first.draft_forwards == 0 and second.drafted > 0
    list(session)
    plain = run_baseline(pair, "hf_generate", ids, 12).output_ids
    difference = explain_difference(pair, ids, session.trace().output_ids, plain, MarginJudge(pair.target))
    assert difference is None or difference.margin <= TIE_MARGIN


def test_the_draft_model_does_not_run_and_memory_and_times_are_the_heads(good, monkeypatch):
    pair, _ = good
    if pair.draft.engine is not pair.target.engine:  # None: whatever asks it fails
        monkeypatch.setattr(pair.draft, "_loaded", replace(pair.draft._loaded, network=None, engines={}))
    session, iterations = decoded(pair, method_of("salf"))
    run, held = session.trace(), session._models
    assert run.pair.draft.name == "Some head" and run.pair.draft.parameters == pair.head.info.parameters
    assert run.settings["draft_head"] == NAME and run.totals.prefill_s > 0
    weights = run.pair.target.weight_bytes + run.pair.draft.weight_bytes
    caches = held.target_cache.allocated_bytes + held.draft_cache.allocated_bytes + held.features.allocated_bytes
    assert run.totals.peak_memory_bytes == weights + caches and held.features.allocated_bytes > 0
    for iteration in iterations:
        assert len(iteration.times.draft_levels_s) == iteration.draft_forwards and iteration.times.verify_s > 0
        kv = iteration.kv_draft
        assert kv.slots_freed == sum(node > 0 for node in kv.slot_nodes) and kv.bytes_moved == 0


@pytest.mark.parametrize("name", ["dynatree", "eagle2", "linear"])
def test_with_a_head_the_device_path_is_left(good, name):
    """Static engines run drafting of these methods on the device, which knows draft models alone."""
    pair, text = good
    session, iterations = decoded(pair.with_engine("cuda_graph"), method_of(name))
    assert session.trace().pair.target.engine == "cuda_graph" and session.trace().output_ids == text
    assert any(iteration.drafted and iteration.kv_draft.slot_nodes[-1] > 0 for iteration in iterations)


def test_a_method_that_drafts_nothing_takes_no_head():
    with pytest.raises(SettingsError, match="method autoregressive asks no draft, so draft_head must be empty"):
        METHODS["autoregressive"].with_settings(draft_head="talf")


@pytest.mark.slow
def test_released_pairs_take_their_heads_along():
    pair = embedded_pair()
    pair = with_network(pair, random_network(pair))
    session, _ = decoded(pair, method_of("linear"), max_new_tokens=4)
    release(pair)
    assert pair.head.target.released
    with pytest.raises(PairError, match="released from memory"):
        session.rewind(0)
