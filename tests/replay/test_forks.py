"""What if: replayed forks are what the models would have done, live ones go on, and whatever cannot be says why."""

from dataclasses import replace

import numpy as np
import pytest

from decoding.common.errors import PairError, SettingsError
from decoding.methods.methods import METHODS, method_label
from decoding.models.pair import embedded_pair, release
from decoding.replay.forks import ForkChange, fork, fork_again, go_on, run_fork
from decoding.replay.recorded_logits import LogitsMissing
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits
from decoding.trace.interventions import WORDS, Interventions
from decoding.trace.records import node_paths
from decoding.trace.run_file import load_run, save_run
from decoding.trace.validation import check_run

WIDE = METHODS["dynatree"].with_settings(branch_first_level=True, stop_probability=0.01, prune_probability=0.005)
WIDE_LABEL = method_label(WIDE)
SAMPLED = Sampling(0.9, seed=4)


def decoded(pair, method, sampling=None, new_tokens=40, **limits):
    ids = pair.vocabulary.encode("Once upon a time there was a cat who had two friends, a dog and")
    session = DecodeSession(pair, method, ids, sampling, Limits(new_tokens, rows="full", **limits))
    list(session)
    return session


def begun(pair, iterations: int, **limits):
    """A session that has not come to its end."""
    ids = pair.vocabulary.encode("Once upon a time there was a")
    session = DecodeSession(pair, WIDE, ids, limits=Limits(30, **limits))
    for _ in range(iterations):
        session.step()
    return session


@pytest.fixture(scope="module")
def greedy(pair):
    return decoded(pair, WIDE)


@pytest.fixture(scope="module")
def sampled(pair):
    return decoded(pair, METHODS["iid_paths"].with_settings(paths=3, length=3), SAMPLED)


def count(session) -> int:
    return len(session.iterations)


def busy(session) -> int:
    """Index of an iteration of which the first accepted node has siblings and nodes below."""
    return next(i.index for i in session.iterations if len(i.accepted) > 1 and len(i.children(0)) > 1 and i.index > 1)


def reported(iteration):
    """What an iteration did, without times and without the last bits of probabilities."""
    nodes = [
        (n.parent_id, n.token_id, n.text, n.verdict, n.stop_reason, n.reason, n.flat_index) for n in iteration.nodes
    ]
    steps = [(s.node_id, s.child_id, s.token_id, s.accepted, s.kind) for s in iteration.steps]
    counts = (
        iteration.draft_forwards,
        iteration.target_passes,
        iteration.drafted,
        iteration.tree_depth,
        iteration.in_loop,
    )
    ends = (iteration.committed_ids, iteration.committed_texts, iteration.final_kind, iteration.accepted)
    cache = (
        iteration.kv_target,
        iteration.kv_draft,
        iteration.draft_sampling,
        iteration.drawn,
        dict(iteration.settings),
    )
    return nodes, steps, counts, ends, cache, [(d.kind, d.outcome, d.uniform) for d in iteration.draws]


def check_both_ways(session, index, change):
    """A change replayed and made live: the same iteration; returns the replayed fork."""
    run = session.trace()
    replayed, live = (fork(run, session, index, change, live=way) for way in (False, True))
    one, other = (made.trace.iterations[index] for made in (replayed, live))
    assert reported(one) == reported(other)
    probs = [[n.draft_probability or 0.0 for n in each.nodes] for each in (one, other)]
    passes = [[n.acceptance_probability or 0.0 for n in each.nodes] for each in (one, other)]
    assert probs[0] == pytest.approx(probs[1], rel=1e-3) and passes[0] == pytest.approx(passes[1], abs=1e-3)
    assert np.allclose(one.target_logits, other.target_logits, atol=1e-3, equal_nan=True)
    assert (replayed.kind, live.kind) == ("replayed", "live") and replayed.session is None
    assert replayed.words == live.words and replayed.trace.bias == live.trace.bias
    assert one.times.total_s == one.times.record_s == 0 < other.times.total_s
    assert one.started_s == one.ended_s == run.iterations[index].started_s
    for made in (replayed, live):
        check_run(made.trace)
        assert made.trace.iterations[:index] == run.iterations[:index] and len(made.trace.iterations) == index + 1
        assert made.trace.totals.stopped == live.trace.totals.stopped
    return replayed


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (ForkChange(), "nothing changed"),
        (ForkChange(WIDE.with_settings(node_budget=3)), "N_max 256 → 3"),
        (
            ForkChange(WIDE.with_settings(history_statistic="accepted_over_drafted_depth")),
            "statistic accepted_over_depth → accepted_over_drafted_depth",
        ),
        (ForkChange(WIDE.with_settings(cache_policy="rebuild")), "KV cache compaction → rebuild"),
        (ForkChange(METHODS["linear"].with_settings(length=1)), f"{WIDE_LABEL} → Linear chain · length 1"),
        (ForkChange(METHODS["autoregressive"]), f"{WIDE_LABEL} → Autoregressive"),
        (
            ForkChange(WIDE.with_settings(verifier="nss"), Sampling(0.7, top_p=0.9, seed=3)),
            "verifier greedy → nss · temperature 0 → 0.7 · top_p 1 → 0.9 · seed 0 → 3",
        ),
    ],
)
def test_replayed_is_what_live_does(greedy, change, words):
    replayed = check_both_ways(greedy, busy(greedy), change)
    assert replayed.words == words and not replayed.trace.bias
    check_both_ways(greedy, 0, change)


@pytest.mark.parametrize("verifier", ["traversal", "specinfer", "khisti", "naive"])
def test_another_verifier_sees_the_same_draws(sampled, verifier):
    method = METHODS["iid_paths"].with_settings(paths=3, length=3, verifier=verifier)
    replayed = check_both_ways(sampled, 3, ForkChange(method))
    before, after = sampled.iterations[3], replayed.trace.iterations[3]
    assert [n.token_id for n in after.nodes] == [n.token_id for n in before.nodes], "the drafter drew as it had"
    assert after.draws[: len(before.drawn)] == before.draws[: len(before.drawn)]


def test_temperature_keeps_the_draws_and_a_seed_begins_them(sampled):
    cooler = check_both_ways(sampled, 2, ForkChange(sampling=replace(SAMPLED, temperature=0.3)))
    uniforms = [d.uniform for d in sampled.iterations[2].draws][:5]
    assert [d.uniform for d in cooler.trace.iterations[2].draws][:5] == uniforms
    seeded = fork(sampled.trace(), sampled, 2, ForkChange(sampling=replace(SAMPLED, seed=9)))
    assert [d.uniform for d in seeded.trace.iterations[2].draws][:5] != uniforms and seeded.words == "seed 4 → 9"


@pytest.mark.parametrize("kind", ["force_in", "force_out", "accept", "reject"])
def test_edits_replayed_are_edits_live(greedy, sampled, kind):
    for session in (greedy, sampled):
        index = busy(session)
        iteration = session.iterations[index]
        taken = node_paths(iteration)[iteration.accepted[0]]
        beside = next(p for p in node_paths(iteration)[1:] if len(p) == 1 and p != taken)
        if kind == "force_in":  # what the target gave instead: the next iteration has the rows after it
            iteration = next(
                i for i in session.iterations if i.final_kind == "recovered" and i.index + 1 < count(session)
            )
        recovered = (*(node_paths(iteration)[iteration.accepted[-1]]), iteration.committed_ids[-1])
        path = {"force_in": recovered, "force_out": taken, "accept": beside, "reject": taken}[kind]
        made = check_both_ways(session, iteration.index, ForkChange(interventions=Interventions(**{kind: (path,)})))
        changed = made.trace.iterations[-1]
        shown = changed.texts[path[-1]].replace(" ", "·")
        assert made.words.endswith(f"‘{shown}’ {WORDS[kind]}")
        by_path = dict(zip(node_paths(changed), changed.nodes, strict=True))
        verdicts = {"force_out": ("not_verified",), "accept": ("accepted",), "reject": ("rejected", "not_reached")}
        assert by_path[path].verdict in verdicts.get(kind, ("accepted", "rejected", "not_reached"))
        biased = kind in ("accept", "reject") or session is sampled
        assert bool(made.trace.bias) == biased


def test_a_node_below_a_leaf_needs_the_model(greedy):
    iteration = greedy.iterations[busy(greedy)]
    leaf = next(n for n in iteration.nodes if n.draft_level is None and n.flat_index is not None)
    change = ForkChange(interventions=Interventions(force_in=((*node_paths(iteration)[leaf.node_id], 17),)))
    with pytest.raises(LogitsMissing, match="has no draft logits after"):
        fork(greedy.trace(), None, iteration.index, change)
    live = fork(greedy.trace(), greedy, iteration.index, change)
    added = live.trace.iterations[-1].nodes[-1]
    assert live.kind == "live" and added.token_id == 17 and added.parent_id == leaf.node_id
    assert live.trace.iterations[-1].draft_forwards == iteration.draft_forwards + 1
    check_run(live.trace)


def test_forks_go_on_and_leave_their_parent_alone(greedy):
    run, index = greedy.trace(), busy(greedy)
    tokens = list(greedy.tokens)
    for change, live in ((ForkChange(WIDE.with_settings(node_budget=3)), None), (ForkChange(METHODS["eagle2"]), True)):
        made = fork(run, greedy, index, change, live=live)
        seen: list[tuple[int, int]] = []
        part = go_on(made, 2, lambda *counts, seen=seen: seen.append(counts) or True)
        assert part.kind == "live" and len(part.trace.iterations) == index + 3 and len(seen) == 2
        assert seen[-1] == (part.trace.totals.new_tokens, 40)
        stopped = go_on(part, None, lambda done, total: False)
        assert len(stopped.trace.iterations) == index + 4
        whole = go_on(stopped)
        assert whole.trace.output_ids == run.output_ids, "greedy: the text is the target's whatever drafts"
        assert whole.trace.totals.stopped == "length" and whole.words == made.words
        check_run(whole.trace)
        with pytest.raises(SettingsError, match="This fork has ended"):
            go_on(whole)
    assert greedy.tokens == tokens and greedy.trace().iterations == run.iterations


def test_a_fork_of_a_fork(greedy):
    run, index = greedy.trace(), busy(greedy)
    narrow = ForkChange(WIDE.with_settings(node_budget=3))
    replayed = fork(run, greedy, index, narrow)
    same = fork_again(
        replayed, index, ForkChange(interventions=Interventions(reject=(node_paths(greedy.iterations[index])[1],)))
    )
    assert same.kind == "replayed" and "N_max 256 → 3" in same.words and "force-rejected" in same.words
    later = fork_again(replayed, index + 1, ForkChange(METHODS["linear"]))
    assert later.kind == "live" and later.words == f"{replayed.trace.label} → Linear chain" and later.at == index + 1
    assert later.trace.iterations[index].settings["node_budget"] == 3
    earlier = fork_again(replayed, 1, ForkChange(METHODS["linear"]))
    assert len(earlier.trace.iterations) == 2
    ran = go_on(replayed, 3)
    again = fork_again(ran, index + 1, ForkChange(WIDE))
    assert again.words == "N_max 3 → 256" and go_on(again).trace.output_ids == run.output_ids
    for made in (same, later, earlier, again):
        check_run(made.trace)


def test_a_run_from_a_file_is_replayed_or_says_what_it_needs(greedy, tmp_path):
    save_run(greedy.trace(), tmp_path / "run.dscope")
    run, index = load_run(tmp_path / "run.dscope"), busy(greedy)
    made = fork(run, None, index, ForkChange(WIDE.with_settings(node_budget=3)))
    live = fork(greedy.trace(), greedy, index, ForkChange(WIDE.with_settings(node_budget=3)), live=True)
    assert reported(made.trace.iterations[index]) == reported(live.trace.iterations[index])
    save_run(made.trace, tmp_path / "fork.dscope")
    assert reported(load_run(tmp_path / "fork.dscope").iterations[index]) == reported(made.trace.iterations[index])
    assert fork(made.trace, None, index, ForkChange()).words == "nothing changed"
    for act in (lambda: fork(run, None, 0, ForkChange(), live=True), lambda: go_on(made), lambda: run_fork(made)):
        with pytest.raises(SettingsError, match="The models of this run are not loaded"):
            act()
    with pytest.raises(LogitsMissing, match="full logits of iteration 1 were not saved"):
        fork(run.without_logits(), None, 0, ForkChange())
    with pytest.raises(LogitsMissing, match=r"has no draft logits after .* to compute them"):
        fork(run, None, 0, ForkChange(METHODS["linear"].with_settings(length=30)))


def test_without_rows_the_models_run(pair):
    session = decoded(pair, WIDE)
    bare = session.trace().without_logits()
    assert fork(bare, session, 2, ForkChange(METHODS["linear"])).kind == "live"
    with pytest.raises(LogitsMissing, match="full logits of iteration 3 were not saved"):
        fork(bare, session, 2, ForkChange(METHODS["linear"]), live=False)


def test_what_cannot_be_is_said(pair, greedy):
    run = greedy.trace()
    last = len(run.iterations)
    with pytest.raises(SettingsError, match="no iteration 100: it has 1 to"):
        fork(run, greedy, 99, ForkChange())
    with pytest.raises(SettingsError, match="no iteration 100 to go back to"):
        fork(run, greedy, 99, ForkChange(), live=True)
    with pytest.raises(SettingsError, match="This run ended there: choose an earlier iteration"):
        fork(run, greedy, last, ForkChange())
    with pytest.raises(SettingsError, match=r"needs temperature 0, not 0\.7\. Verifiers that fit: nss"):
        fork(run, greedy, 1, ForkChange(sampling=Sampling(0.7)))
    with pytest.raises(SettingsError, match="is not in the tree of this iteration: force it in first"):
        fork(run, greedy, 1, ForkChange(interventions=Interventions(force_out=((1, 2, 3),))))
    other = DecodeSession(pair, WIDE, pair.vocabulary.encode("Something else"))
    with pytest.raises(SettingsError, match="decoded a different text"):
        fork(run, other, 1, ForkChange())


def test_a_run_goes_on_from_its_end_in_another_way(pair):
    session = begun(pair, 2, rows="full")
    made = fork(session.trace(), session, 2, ForkChange(METHODS["linear"]))
    assert made.kind == "live" and len(made.trace.iterations) == 3 and len(session.iterations) == 2
    go_on(made, 2)  # its session has moved on: the fork itself still ends where it did
    again = fork_again(made, 3, ForkChange(WIDE))
    assert again.kind == "live" and len(again.trace.iterations) == 4
    assert again.trace.iterations[:3] == made.trace.iterations


@pytest.mark.slow
def test_a_released_pair_still_replays():
    pair = embedded_pair()
    session = decoded(pair, WIDE, new_tokens=12)
    run = session.trace()
    release(pair)
    made = fork(run, session, 1, ForkChange(WIDE.with_settings(node_budget=3)))
    assert made.kind == "replayed"
    with pytest.raises(PairError, match="released from memory: load the pair"):
        fork(run, session, 1, ForkChange(), live=True)
    with pytest.raises(PairError, match="released from memory: load the pair"):
        go_on(made)


def test_the_prefill_of_a_replayed_run_is_what_its_run_took(pair):
    session = decoded(pair, WIDE, new_tokens=12)
    run = session.trace()
    for index in (0, 1):
        made = fork(run, None, index, ForkChange(WIDE.with_settings(node_budget=3)))
        assert made.kind == "replayed" and made.trace.totals.prefill_s == run.totals.prefill_s > 0


def test_the_end_of_text_ends_a_replayed_fork(pair):
    free = decoded(pair, WIDE, ignore_end_of_text=True)
    whole = next(i for i in free.iterations if len(i.accepted) > 2)
    stops = pair.vocabulary.stop_ids
    try:
        pair.vocabulary.stop_ids = stops | {whole.committed_ids[1]}
        session = decoded(pair, WIDE)
        assert session.stopped == "end_of_text"
        replayed = check_both_ways(session, len(session.iterations) - 1, ForkChange(WIDE.with_settings(node_budget=40)))
        assert replayed.trace.totals.stopped == "end_of_text" and replayed.trace.iterations[-1].final_kind == "none"
        alone = fork(session.trace(), None, len(session.iterations) - 1, ForkChange())
        assert alone.trace.iterations[-1].committed_ids == session.iterations[-1].committed_ids
    finally:
        pair.vocabulary.stop_ids = stops


def test_a_run_that_keeps_no_record_is_forked_with_one(pair):
    session = begun(pair, 3, record="summary")
    made = fork(session.trace(), session, 1, ForkChange(METHODS["linear"]))
    assert made.kind == "live" and made.trace.iterations[1].nodes and not made.trace.iterations[0].nodes
    with pytest.raises(LogitsMissing, match="full logits of iteration 2 were not saved"):
        fork(session.trace(), None, 1, ForkChange(METHODS["linear"]))
