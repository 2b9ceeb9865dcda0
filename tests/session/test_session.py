"""One call of decoding: identity with `generate`, caches, cuts, forks, errors. On tiny pairs and the embedded one."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.fakes import make_checkpoint
from decoding.common.errors import PromptError, SettingsError
from decoding.compare.hf_generate import run_baseline
from decoding.compare.identity import TIE_MARGIN, MarginJudge, explain_difference
from decoding.engines.base import Visibility
from decoding.methods.method import CACHE_POLICIES
from decoding.methods.methods import METHODS, PRESETS
from decoding.models.pair import PairSettings, load_pair, tree_forward
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits
from tests.helpers.families import family

VARIANTS = {
    "autoregressive": METHODS["autoregressive"],
    "linear": METHODS["linear"].with_settings(length=4),
    "fixed": METHODS["fixed_tree"].with_settings(max_depth=3, prune_probability=0.01, branch_first_level=True),
    "dynatree": METHODS["dynatree"],
    "wide dynatree": METHODS["dynatree"].with_settings(
        branch_first_level=True, stop_probability=0.01, prune_probability=0.005
    ),
    "printed": METHODS["dynatree"].with_settings(branch_first_level=True, verify_pruned=True, cache_policy="rebuild"),
    "dyspec": METHODS["dyspec"].with_settings(node_budget=12),
    "sequoia": METHODS["sequoia"].with_settings(node_budget=10, max_depth=3, acceptance="0.5,0.2,0.1"),
    "eagle2": METHODS["eagle2"].with_settings(node_budget=8, beam_width=3, max_depth=3),
    "salf": METHODS["salf"].with_settings(node_budget=10, batch=4),
    "delayed": METHODS["delayed"].with_settings(paths=2, trunk=1, branch=2),
    "paths": METHODS["iid_paths"].with_settings(paths=3, length=3, verifier="khisti"),
}

QUICK = ("dynatree", "printed", "dyspec", "paths")  # one that prunes, one that verifies all, two that draw


@pytest.fixture(scope="module", params=family(("gpt_neox", "llama", "gpt2", "qwen2"), "llama"))
def tiny(request, tmp_path_factory):
    """A random target of one architecture whose draft is itself with noise."""
    folder = tmp_path_factory.mktemp(request.param)
    target = make_checkpoint(folder / "target", request.param, seed=3)
    draft = make_checkpoint(folder / "draft", request.param, seed=3, noise_from=target, noise=0.02)
    return load_pair(PairSettings(str(target), str(draft), device="cpu", dtype="float32", context_length=512))


def prompt(pair, text="Once upon a time there was a cat who had two friends, a dog and"):
    return pair.vocabulary.encode(text)


def run(pair, method, ids, **limits):
    session = DecodeSession(pair, method, ids, limits=Limits(**limits))
    return session, list(session)


@pytest.mark.parametrize("policy", family(CACHE_POLICIES, "compaction"))
@pytest.mark.parametrize("name", family(VARIANTS, "autoregressive", *QUICK))
def test_greedy_identity_on_tiny_pairs(tiny, name, policy):
    ids = prompt(tiny)
    reference = run_baseline(tiny, "hf_generate", ids, 48).output_ids
    session, iterations = run(tiny, VARIANTS[name].with_settings(cache_policy=policy), ids, max_new_tokens=48)
    output = tuple(session.tokens[len(ids) :])
    difference = explain_difference(tiny, ids, output, reference, MarginJudge(tiny.target))
    assert difference is None or difference.margin <= TIE_MARGIN, difference
    if name != "autoregressive":
        accepted = sum(len(i.accepted) for i in iterations) / len(iterations)
        least = 0.5 if VARIANTS[name].drafter.draft_sampling == "deterministic" else 0.2
        assert least <= accepted <= 4, "a draft that always or never agrees tests nothing"


@pytest.mark.parametrize("policy", CACHE_POLICIES)
@pytest.mark.parametrize("name", family([n for n in VARIANTS if n != "autoregressive"], *QUICK))
def test_caches_equal_a_fresh_prefill_after_every_iteration(tiny, name, policy):
    ids = prompt(tiny)
    session = DecodeSession(
        tiny, VARIANTS[name].with_settings(cache_policy=policy), ids, limits=Limits(max_new_tokens=24, record="none")
    )
    while not session.finished:
        session.step()
        for model, cache in ((tiny.target, session._models.target_cache), (tiny.draft, session._models.draft_cache)):
            assert cache.length <= len(session.tokens) - 1
            fresh = model.engine.new_cache(4)
            tokens = session.tokens[: cache.length]
            with torch.inference_mode():
                tree_forward(model, fresh, tokens, np.arange(len(tokens)), Visibility.causal(0, len(tokens)))
            for (k, v), (fresh_k, fresh_v) in zip(cache.rows(), fresh.rows(), strict=True):
                assert torch.allclose(k, fresh_k, atol=2e-4) and torch.allclose(v, fresh_v, atol=2e-4)
        assert session._models.target_cache.length == len(session.tokens) - 1


def test_the_draft_is_prefilled_once(embedded):
    ids = prompt(embedded)
    _session, iterations = run(embedded, METHODS["dynatree"], ids, max_new_tokens=40)
    for before, after in itertools.pairwise(iterations):
        kv = before.kv_draft
        assert after.kv_draft.slots_before == kv.slots_before + len(kv.moved_from) >= len(ids) - 1
        assert after.kv_draft.slot_nodes.count(-1) <= 2


@pytest.mark.slow
def test_every_preset_gives_the_text_of_generate(embedded):
    ids = prompt(embedded)
    reference = run_baseline(embedded, "hf_generate", ids, 16).output_ids
    for label, method in PRESETS.items():
        session, _ = run(embedded, method, ids, max_new_tokens=16)
        assert tuple(session.tokens[len(ids) :]) == reference, label


@pytest.mark.slow
def test_end_of_text_cuts_where_autoregressive_decoding_stops(embedded):
    ids = prompt(embedded)
    free, _ = run(embedded, METHODS["autoregressive"], ids, max_new_tokens=30, ignore_end_of_text=True)
    output = free.tokens[len(ids) :]
    # Make tokens in the middle of the output stop tokens, one after another, and compare the two cuts.
    stops, original = embedded.vocabulary.stop_ids, embedded.vocabulary.stop_ids
    cut_kinds = set()
    try:
        for position in range(2, 24, 2):
            embedded.vocabulary.stop_ids = stops | {output[position]}
            plain, _ = run(embedded, METHODS["autoregressive"], ids, max_new_tokens=30)
            session, iterations = run(embedded, VARIANTS["wide dynatree"], ids, max_new_tokens=30)
            assert session.tokens == plain.tokens and session.stopped == plain.stopped == "end_of_text"
            last = iterations[-1]
            cut_kinds.add(last.final_kind)
            assert len(last.committed_ids) == len(last.accepted) + (last.final_kind != "none")
            assert session._models.target_cache.length == len(session.tokens) - 1
    finally:
        embedded.vocabulary.stop_ids = original
    assert "none" in cut_kinds, "no stop token fell on an accepted node: the test tests nothing"


@pytest.mark.parametrize("length", family((1, 2, 3, 7), 1, 3))
def test_length_limit_is_exact(embedded, length):
    for method in VARIANTS.values():
        session, _ = run(embedded, method, prompt(embedded), max_new_tokens=length)
        assert session.new_tokens == length and session.stopped == "length"


def test_fork_continues_alike_and_leaves_the_original_alone(embedded):
    ids = prompt(embedded)
    session = DecodeSession(embedded, METHODS["dynatree"], ids, limits=Limits(max_new_tokens=40))
    for _ in range(3):
        session.step()
    before = list(session.tokens)
    forked = session.fork()
    tried = session.fork(METHODS["fixed_tree"].with_settings(branch_first_level=True))
    assert tried.step().prefix_length == len(before) and session.tokens == before
    rest_of_fork, rest = list(forked), list(session)
    assert [i.committed_ids for i in rest_of_fork] == [i.committed_ids for i in rest]
    assert [i.settings for i in rest_of_fork] == [i.settings for i in rest]


def test_a_draft_that_a_fork_lacks_reads_the_text_before_the_first_iteration_is_timed(embedded):
    ids = embedded.vocabulary.encode("Once upon a time there was a cat who had two friends, a dog and")
    plain = DecodeSession(embedded, METHODS["autoregressive"], ids, limits=Limits(12))
    for _ in range(4):
        plain.step()
    later, first = plain.fork(METHODS["linear"]), plain.rewind(0).fork(METHODS["linear"])
    assert later.step().kv_draft.slots_before == len(plain.tokens) - 1
    assert first.step().kv_draft.slots_before == first.iterations[0].kv_target.slots_before == len(ids) - 1
    others = METHODS["autoregressive"], METHODS["linear"], replace(METHODS["linear"], draft_head="talf")
    for session in (first, *(first.rewind(0).fork(method) for method in others)):
        list(session)
        run = session.trace()
        before = 0.0 if run.iterations[0].kv_draft is None else run.totals.prefill_s
        spent = before + sum(each.times.total_s for each in run.iterations)
        assert session.tokens == finished_tokens(embedded, ids) and run.totals.wall_s == pytest.approx(spent, abs=1e-4)


def finished_tokens(pair, ids: list[int]) -> list[int]:
    session = DecodeSession(pair, METHODS["autoregressive"], ids, limits=Limits(12))
    list(session)
    return session.tokens


def test_fork_from_autoregressive_to_a_tree_and_back(embedded):
    ids = prompt(embedded)
    session = DecodeSession(embedded, METHODS["autoregressive"], ids, limits=Limits(max_new_tokens=20))
    for _ in range(4):
        session.step()
    tree = session.fork(METHODS["dynatree"])
    plain = tree.fork(METHODS["autoregressive"])
    for other in (tree, plain, session):
        for _ in other:
            pass
    assert tree.tokens == plain.tokens == session.tokens


def test_full_record_is_consistent(embedded):
    session, iterations = run(embedded, METHODS["dynatree"], prompt(embedded), max_new_tokens=40, rows="full")
    for iteration in iterations:
        assert [n.node_id for n in iteration.nodes] == list(range(iteration.drafted + 1))
        assert iteration.nodes[0].verdict == "root" and iteration.flatten_order[0] == 0
        assert tuple(n.node_id for n in iteration.nodes if n.verdict == "accepted") == iteration.accepted
        for node in iteration.nodes[1:]:
            parent = iteration.nodes[node.parent_id]
            assert node.depth == parent.depth + 1
            assert node.path_probability == pytest.approx(parent.path_probability * node.draft_probability)
            row = torch.softmax(torch.from_numpy(iteration.draft_logits[parent.node_id]), -1)
            assert float(row[node.token_id]) == pytest.approx(node.draft_probability, rel=1e-5)
            if not node.pruned:
                row = torch.softmax(torch.from_numpy(iteration.target_logits[parent.node_id]), -1)
                assert float(row[node.token_id]) == pytest.approx(node.target_probability, rel=1e-4)
        assert iteration.times.total_s == pytest.approx(
            sum(getattr(iteration.times, f"{p}_s") for p in
                ("draft", "prune", "mask", "verify", "select", "commit", "rebuild", "adapt")), abs=1e-4,
        )  # fmt: skip
    trace = session.trace()
    assert trace.output_ids == tuple(session.tokens[len(trace.prompt_ids) :])


def test_records_and_rows_are_as_asked(embedded):
    ids = prompt(embedded)
    session, _ = run(embedded, METHODS["dynatree"], ids, max_new_tokens=12, record="none")
    assert session.trace().iterations == ()
    session, _ = run(embedded, METHODS["dynatree"], ids, max_new_tokens=12, record="summary")
    assert all(i.nodes == () and i.times.total_s > 0 for i in session.iterations)
    session, _ = run(embedded, METHODS["dynatree"], ids, max_new_tokens=12, rows="open")
    assert session.iterations[-1].target_logits is not None
    assert all(i.target_logits is None for i in session.iterations[:-1])


def test_wrong_positions_would_be_noticed(embedded, monkeypatch):
    """Siblings with consecutive positions, as in the published code, do not reproduce greedy decoding."""
    import decoding.session.cached_models as module

    def consecutive(model, cache, tokens, positions, mask, keep=0, features=None):
        return tree_forward(model, cache, tokens, cache.length + np.arange(len(tokens)), mask, keep, features)

    ids = prompt(embedded)
    right, _ = run(embedded, VARIANTS["wide dynatree"], ids, max_new_tokens=60)
    monkeypatch.setattr(module, "tree_forward", consecutive)
    wrong, _ = run(embedded, VARIANTS["wide dynatree"], ids, max_new_tokens=60)
    assert wrong.tokens != right.tokens


@pytest.mark.parametrize(
    ("ids", "new", "says"),
    [([], 10, "empty"), ([5] * 3000, 10, "shorten the prompt"), ([5] * 100, 5000, "request at most 2460 new tokens")],
)
def test_prompts_that_do_not_fit(embedded, ids, new, says):
    with pytest.raises(PromptError, match=says):
        DecodeSession(embedded, METHODS["linear"], ids, limits=Limits(max_new_tokens=new))


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        ([5, 4096], r"whole numbers from 0 to 4,095; index 1 has 4,096\."),
        ([-1], r"index 0 has -1\."),
        ([5, 2.5], r"the entry at index 1 is not\."),
        ("One day", r"the entry at index 0 is not\."),
        ([[5, 6]], r"the entry at index 0 is not\."),
        (7, r"the entry at index 0 is not\."),
        (torch.tensor([5, 10**6]), r"index 1 has 1,000,000\."),
    ],
)
def test_prompt_ids_that_are_none_of_the_pair(embedded, ids, says):
    with pytest.raises(PromptError, match=says):
        DecodeSession(embedded, METHODS["linear"], ids)


def test_arrays_and_tensors_of_ids_are_prompts_too(embedded):
    ids = prompt(embedded)
    for given in (np.array(ids), torch.tensor(ids), tuple(ids)):
        assert DecodeSession(embedded, METHODS["linear"], given).prompt_ids == tuple(ids)


@pytest.mark.parametrize(
    ("limit", "rule"),
    [
        ({"max_new_tokens": 0}, "a whole number, at least 1, not 0"),
        ({"max_new_tokens": 2.5}, "a whole number, at least 1, not 2.5"),
        ({"max_new_tokens": "8"}, "a whole number, at least 1, not '8'"),
        ({"row_bytes": -1}, "a whole number, at least 0, not -1"),
        ({"record": "all"}, "one of none, summary, full, not 'all'"),
        ({"rows": None}, "one of top, open, full, not None"),
    ],
)
def test_limits_out_of_range_are_refused_by_name_and_range(limit, rule):
    with pytest.raises(SettingsError, match=f"^{next(iter(limit))} must be {rule}\\.$"):
        Limits(**limit)


def test_greedy_verifier_with_temperature_is_refused(embedded):
    with pytest.raises(SettingsError, match="temperature 0"):
        DecodeSession(embedded, METHODS["dynatree"], prompt(embedded), Sampling(temperature=1.0))


def test_unknown_settings_are_named():
    with pytest.raises(SettingsError, match="colour"):
        METHODS["dynatree"].with_settings(colour=3)
    with pytest.raises(SettingsError, match="cache_policy"):
        METHODS["dynatree"].with_settings(cache_policy="forget")


def test_a_finished_run_says_so(embedded):
    session, _ = run(embedded, METHODS["linear"], prompt(embedded), max_new_tokens=4)
    with pytest.raises(SettingsError, match="has ended"):
        session.step()


def test_a_session_streams(embedded):
    stream = iter(DecodeSession(embedded, METHODS["dynatree"], prompt(embedded), limits=Limits(max_new_tokens=10)))
    assert next(stream).index == 0 and next(stream).index == 1


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("no room"),
        pytest.param(RuntimeError("MPS backend out of memory"), marks=pytest.mark.slow),
        pytest.param(
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes."),
            marks=pytest.mark.slow,
        ),
        MemoryError(),
    ],
    ids=["cuda", "mps", "cpu", "python"],
)
def test_out_of_memory_frees_the_caches_and_can_go_on(embedded, monkeypatch, error):
    import decoding.session.cached_models as module
    from decoding.common.errors import OutOfMemoryError

    session = DecodeSession(embedded, METHODS["dynatree"], prompt(embedded), limits=Limits(max_new_tokens=20))
    session.step()
    real = module.tree_forward

    def full(*args, **kwargs):
        raise error

    monkeypatch.setattr(module, "tree_forward", full)
    with pytest.raises(OutOfMemoryError, match="node_budget"):
        session.step()
    assert len(session.iterations) == 1 and session._models.target_cache.length == 0
    monkeypatch.setattr(module, "tree_forward", real)
    plain, _ = run(embedded, METHODS["autoregressive"], prompt(embedded), max_new_tokens=20)
    for _ in session:
        pass
    assert session.tokens == plain.tokens


@pytest.mark.slow
def test_out_of_memory_in_the_rebuild_takes_the_unfinished_iteration_back(embedded, monkeypatch):
    import gc
    import weakref

    from decoding.common.errors import OutOfMemoryError

    method = replace(METHODS["dynatree"], cache_policy="rebuild")
    session = DecodeSession(embedded, method, prompt(embedded), limits=Limits(max_new_tokens=20))
    session.step()
    before, held = list(session.tokens), []

    def full(tokens):
        scratch = torch.zeros(8)
        held.append(weakref.ref(scratch))
        raise RuntimeError("MPS backend out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(session._models, "fill_target", full)
        with pytest.raises(OutOfMemoryError) as reported:
            session.step()
    gc.collect()
    assert reported.value is not None and [kept() for kept in held] == [None]  # the error that is kept holds no tensors
    assert session.tokens == before and session.trace().output_ids == tuple(before[len(session.prompt_ids) :])
    plain, _ = run(embedded, METHODS["autoregressive"], prompt(embedded), max_new_tokens=20)
    list(session)
    assert session.tokens == plain.tokens and session.trace().output_ids == plain.trace().output_ids
