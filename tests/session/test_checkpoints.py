"""Sessions that go back: rewound to any iteration they decode on to the bit; edited ones change one iteration."""

import numpy as np
import pytest
import torch

import decoding.session.iteration as iteration_module
from benchmarks.fakes import make_checkpoint
from decoding.common.errors import PairError, SettingsError
from decoding.methods.methods import METHODS
from decoding.models.pair import PairSettings, embedded_pair, load_pair, release
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits
from decoding.trace.interventions import Interventions
from decoding.trace.validation import check_run
from tests.helpers.families import family
from viz.explain.iteration import why_verdict

WIDE = METHODS["dynatree"].with_settings(branch_first_level=True, stop_probability=0.01, prune_probability=0.005)
REWOUND = {
    "autoregressive": (METHODS["autoregressive"], Sampling()),
    "dynatree": (WIDE, Sampling()),
    "dynatree, rebuilt": (METHODS["dynatree"].with_settings(cache_policy="rebuild"), Sampling()),
    "hardware-aware": (
        METHODS["hardware_aware"].with_settings(verify_ms="1:1 64:2", level_ms="1:0.2", odds="1.5 1", node_budget=16),
        Sampling(),
    ),
    "salf": (METHODS["salf"].with_settings(node_budget=10, batch=4), Sampling()),
    "dyspec, sampled": (METHODS["dyspec"].with_settings(node_budget=12), Sampling(0.8, top_p=0.9, seed=5)),
    "paths, sampled": (METHODS["iid_paths"].with_settings(paths=3, length=3), Sampling(1.0, draft_temperature=0.7)),
}
ENGINES = ["auto", *(pytest.param(name, marks=pytest.mark.slow) for name in ("transformers", "cuda_graph"))]


@pytest.fixture(scope="module", params=family(("llama", "embedded"), "llama"))
def pair(request, tmp_path_factory, embedded):
    """The embedded pair, a GPT-NeoX, or a random Llama whose draft is itself with noise."""
    if request.param == "embedded":
        return embedded
    folder = tmp_path_factory.mktemp(request.param)
    target = make_checkpoint(folder / "target", request.param, seed=3)
    draft = make_checkpoint(folder / "draft", request.param, seed=3, noise_from=target, noise=0.02)
    return load_pair(PairSettings(str(target), str(draft), device="cpu", dtype="float32", context_length=512))


def prompt(pair):
    return pair.vocabulary.encode("Once upon a time there was a cat who had two friends, a dog and")


def run(pair, method, **limits):
    session = DecodeSession(pair, method, prompt(pair), limits=Limits(**limits))
    return session, list(session)


def reported(iteration):
    """What an iteration did, without its times."""
    verdicts = tuple((node.token_id, node.parent_id, node.verdict, node.draft_probability) for node in iteration.nodes)
    rows = (iteration.kv_target, iteration.kv_draft, iteration.in_loop, iteration.history)
    return iteration.index, iteration.committed_ids, verdicts, iteration.draws, dict(iteration.settings), rows


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", family(REWOUND, "dyspec, sampled"))
def test_a_rewound_session_decodes_on_to_the_bit(pair, name, engine):
    pair, (method, sampling) = pair.with_engine(engine), REWOUND[name]
    session = DecodeSession(pair, method, prompt(pair), sampling, Limits(max_new_tokens=24, rows="full"))
    caches, loops = [(None, None)], [session._loops.copy()]
    while not session.finished:
        session.step()
        held = session._models.target_cache, session._models.draft_cache
        caches.append(tuple(cache and cache.clone() for cache in held))
        loops.append(session._loops.copy())
    count = len(session.iterations)
    ends = {0, 1, count // 2, count - 2, count - 1}
    for index in range(count):
        again = session.rewind(index)
        assert again.elapsed_s == session.iterations[index].started_s and not again.finished
        assert vars(again._loops) == vars(loops[index])
        for kept, cache in zip(caches[index], (again._models.target_cache, again._models.draft_cache), strict=True):
            if kept is not None:
                one, other = (torch.stack([torch.stack(layer) for layer in each.rows()]) for each in (kept, cache))
                assert torch.equal(one, other)
        # To the end from some places; the others are followed to the next one, where the caches are compared again.
        whole = index in ends
        rest = list(again) if whole else [again.step()]
        assert list(map(reported, rest)) == list(map(reported, session.iterations[index : index + len(rest)]))
        assert np.array_equal(rest[0].target_logits, session.iterations[index].target_logits, equal_nan=True)
        if whole:
            assert again.tokens == session.tokens and again.stopped == session.stopped
            assert [i.index for i in again.iterations] == list(range(len(session.iterations)))


@pytest.mark.slow
def test_a_fork_rewinds_to_what_its_parent_did(embedded):
    ids = prompt(embedded)
    session = DecodeSession(embedded, METHODS["autoregressive"], ids, limits=Limits(max_new_tokens=30))
    for _ in range(4):
        session.step()
    sampled = Sampling(1.0, seed=3)
    tree = session.fork(METHODS["dyspec"], sampling=sampled)
    later = list(tree)
    before = tree.rewind(2)
    assert before.method == session.method and before.sampling == session.sampling
    assert before.step().committed_ids == session.iterations[2].committed_ids
    again = tree.rewind(5)
    assert again.sampling == sampled and list(map(reported, again)) == list(map(reported, later[1:]))
    assert [reported(i) for i in tree.rewind(len(tree.iterations)).iterations] == [reported(i) for i in tree.iterations]


def test_rewinding_says_where_it_can_go(embedded):
    session = DecodeSession(embedded, METHODS["linear"], prompt(embedded), limits=Limits(max_new_tokens=30))
    with pytest.raises(SettingsError, match="no iteration 3 to go back to: it has recorded none"):
        session.rewind(2)
    for _ in range(3):
        session.step()
    for index in (-1, 4):
        with pytest.raises(SettingsError, match=f"no iteration {index + 1} to go back to: it has recorded 1 to 3"):
            session.rewind(index)


def test_caches_that_were_given_back_are_filled_again(embedded):
    session, iterations = run(embedded, METHODS["dynatree"], max_new_tokens=30)
    session.release()
    again = session.rewind(3)
    assert [i.committed_ids for i in again] == [i.committed_ids for i in iterations[3:]]
    assert again.prefill_s == session.prefill_s, "reading the text again is no prefill of the call"


def test_a_text_read_again_is_in_no_pass(embedded, monkeypatch):
    session, _ = run(embedded, METHODS["autoregressive"], max_new_tokens=6)
    session.release()
    again, missing = session.rewind(3), []
    verify = type(again._models).verify

    def watched(models, draft, text, clock):
        missing.append(len(text) - 1 - models.target_cache.length)
        return verify(models, draft, text, clock)

    monkeypatch.setattr(type(again._models), "verify", watched)
    again.step()
    assert missing == [0] and again.elapsed_s == pytest.approx(
        session.iterations[3].started_s + again.iterations[3].times.total_s
    )


@pytest.mark.slow
def test_a_released_pair_cannot_be_rewound():
    pair = embedded_pair()
    session, _ = run(pair, METHODS["linear"], max_new_tokens=8)
    release(pair)
    with pytest.raises(PairError, match="released from memory: load the pair"):
        session.rewind(0)


@pytest.mark.parametrize("name", family(("dynatree", "hardware-aware", "dyspec, sampled"), "dynatree"))
def test_edits_change_the_first_iteration_of_a_fork_alone(embedded, name):
    method, sampling = REWOUND[name]
    session = DecodeSession(embedded, method, prompt(embedded), sampling, Limits(max_new_tokens=40, rows="full"))
    list(session)
    whole = next(i for i in session.iterations if len(i.accepted) > 1)
    first = (whole.nodes[whole.accepted[0]].token_id,)
    there = {whole.nodes[child].token_id for child in whole.children(0)}
    other = next(token for token in whole.draft_top_ids[0].tolist() if token not in there)
    interventions = Interventions(force_in=((other,),), accept=((other,),), reject=(first,))
    forked = session.rewind(whole.index).fork(interventions=interventions)
    changed = forked.step()
    added = changed.nodes[-1]
    assert changed.committed_ids[0] == other == added.token_id and changed.accepted[0] == added.node_id
    assert added.verdict == "accepted" and added.reason == "forced_pass"
    assert why_verdict(changed, added.node_id).startswith("Forced into the tree: force-accepted: ")
    rejected = next(n for n in changed.nodes if n.parent_id == 0 and n.token_id == first[0])
    assert rejected.verdict in ("rejected", "not_reached")
    assert why_verdict(changed, rejected.node_id).startswith("Force-rejected: ")
    assert added.acceptance_probability == pytest.approx(1) and rejected.acceptance_probability == 0
    assert not any(i.interventions or "forced" in (n.reason or "") for i in forked for n in i.nodes)
    check_run(forked.trace())


def test_a_node_forced_out_takes_its_subtree_along(embedded):
    session, iterations = run(embedded, WIDE, max_new_tokens=40)
    whole = next(i for i in iterations if len(i.accepted) > 1)
    first = (whole.nodes[whole.accepted[0]].token_id,)
    changed = session.rewind(whole.index).fork(interventions=Interventions(force_out=(first,))).step()
    out, below = (changed.nodes[node] for node in whole.accepted[:2])
    assert out.verdict == below.verdict == "not_verified" and changed.verified < whole.verified
    assert (out.reason, below.reason) == ("forced_out", "below_forced_out")
    assert why_verdict(changed, out.node_id).startswith("Forced out")
    assert why_verdict(changed, below.node_id).startswith("A node above it was forced out")
    assert changed.committed_ids == whole.committed_ids[:1], "greedy: the text stays, the final token takes its place"


def test_an_edited_iteration_leaves_the_device_path_and_the_next_one_takes_it_again(embedded, monkeypatch):
    taken = []
    choose = iteration_module.choose_iteration
    monkeypatch.setattr(iteration_module, "choose_iteration", lambda *given: taken.append(choose(*given)) or taken[-1])
    session, _ = run(embedded.with_engine("cuda_graph"), METHODS["dynatree"], max_new_tokens=30)
    whole = next(i for i in session.iterations if i.accepted and 0 < i.index < len(session.iterations) - 2)
    first = (whole.nodes[whole.accepted[0]].token_id,)
    forked = session.rewind(whole.index).fork(interventions=Interventions(force_out=(first,)))
    taken.clear()
    assert forked.step().accepted == () and not taken
    assert forked.step() and [type(iteration).__name__ for iteration in taken] == ["DeviceIteration"]
