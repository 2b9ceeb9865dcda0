"""Decoding at a temperature: reproducible, lossless where single tokens can show it, refused where biased."""

import pytest

from decoding.common.errors import SettingsError
from decoding.methods.method import fitted
from decoding.methods.methods import METHODS
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits, prepared
from decoding.verifiers import VERIFIERS
from tests.helpers.families import family

WARM = Sampling(temperature=0.8, top_p=0.95, seed=5)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


def run(pair, method, sampling=WARM, tokens=24, **limits):
    ids = pair.vocabulary.encode("Once upon a time there was a cat who had two friends, a dog and")
    session = DecodeSession(pair, method, ids, sampling, Limits(tokens, **limits))
    return session, list(session)


QUICK = ("autoregressive", "dyspec")


@pytest.mark.parametrize("name", family(METHODS, *QUICK))
def test_the_same_seed_gives_the_same_run_and_another_one_another(pair, name):
    method = prepared(fitted(METHODS[name], WARM), pair, WARM)  # costs that were measured anew would draft other trees
    first, _ = run(pair, method)
    again, _ = run(pair, method)
    other, _ = run(pair, method, Sampling(temperature=0.8, top_p=0.95, seed=6))
    assert first.tokens == again.tokens != other.tokens
    assert [i.draws for i in first.iterations] == [i.draws for i in again.iterations]


@pytest.mark.parametrize("name", ["dynatree", "eagle2", "linear"])
def test_nss_on_a_deterministic_tree_writes_what_autoregressive_sampling_writes(pair, name):
    """One uniform number per token in both, so the seed decides the text and the tree only its speed."""
    plain, _ = run(pair, fitted(METHODS["autoregressive"], WARM))
    tree, iterations = run(pair, fitted(METHODS[name], WARM))
    assert plain.tokens == tree.tokens and len(iterations) < plain.new_tokens


@pytest.mark.parametrize("verifier", family([name for name in VERIFIERS if name != "greedy"], "nss", "traversal_wor"))
def test_every_verifier_decodes_and_tells_its_steps(pair, verifier):
    method = METHODS["iid_paths"].with_settings(paths=3, length=3, verifier=verifier)
    session, iterations = run(pair, method, record="full")
    assert session.trace().settings["verifier"] == verifier
    for iteration in iterations:
        assert iteration.draft_sampling == "iid" and len(iteration.drawn) == 3 * max(n.depth for n in iteration.nodes)
        assert iteration.steps and iteration.steps[-1].kind == "choice"
        assert sum(n.multiplicity for n in iteration.nodes if n.depth == 1) in (0, 3)
        assert {n.verdict for n in iteration.nodes} <= {"root", "accepted", "rejected", "not_reached"}
        accepted = [n.node_id for n in iteration.nodes if n.verdict == "accepted"]
        assert tuple(accepted) == iteration.accepted
        assert all(n.acceptance_probability is not None for n in iteration.nodes)
        assert all(iteration.nodes[a].acceptance_probability > 0 for a in accepted)


REFUSED = [("dyspec", "specinfer"), ("eagle2", "traversal"), ("dynatree", "block")]


@pytest.mark.parametrize(("method", "verifier"), REFUSED)
def test_a_biased_pair_is_refused_with_those_that_fit(pair, method, verifier):
    with pytest.raises(SettingsError, match=r"would bias the output of .*\. Verifiers that fit: .*nss"):
        run(pair, METHODS[method].with_settings(verifier=verifier))


@pytest.mark.slow
def test_greedy_output_does_not_depend_on_verifier_or_seed(pair):
    plain, _ = run(pair, METHODS["autoregressive"], Sampling())
    for seed, verifier in enumerate(("nss", "specinfer", "traversal", "khisti", "block")):
        method = METHODS["iid_paths"].with_settings(verifier=verifier)
        assert run(pair, method, Sampling(seed=seed))[0].tokens == plain.tokens


def test_peeking_changes_nothing(pair):
    ids = pair.vocabulary.encode("Once upon a time")
    session = DecodeSession(pair, METHODS["iid_paths"], ids, WARM, Limits(16))
    session.step()
    twin = session.fork()
    draft, target = session.peek()
    assert len(target) == len(draft.order) and draft.draft_sampling == "iid"
    assert list(session)[-1].committed_ids == list(twin)[-1].committed_ids and session.tokens == twin.tokens


def test_a_fork_with_another_seed_draws_anew(pair):
    ids = pair.vocabulary.encode("Once upon a time")
    session = DecodeSession(pair, METHODS["iid_paths"], ids, WARM, Limits(24))
    session.step()
    texts = {tuple(s.tokens) for s in (session.fork(sampling=Sampling(1.0, seed=seed)) for seed in range(4)) if list(s)}
    assert len(texts) > 1


@pytest.mark.slow
def test_rows_beyond_the_memory_limit_go_from_the_oldest_on(pair):
    session, iterations = run(pair, METHODS["iid_paths"], rows="full")
    size = sum(rows.nbytes for rows in (iterations[-1].draft_logits, iterations[-1].target_logits))
    kept, _ = run(pair, METHODS["iid_paths"], rows="full", row_bytes=3 * size)
    held = [iteration.target_logits is not None for iteration in kept.iterations]
    assert held == sorted(held) and 1 <= sum(held) < len(held)
    opened, _ = run(pair, METHODS["iid_paths"], rows="open")
    assert [i.target_logits is not None for i in opened.iterations] == [False] * (len(held) - 1) + [True]
    assert all(i.target_logits is None for i in session.trace().without_logits().iterations)
