"""Luck: exact distributions that sum to one, what happened among them, and re-rolled draws that agree."""

from dataclasses import replace

import numpy as np
import pytest

from decoding.analysis.luck import luck_of, lucks, rerolled, run_luck, token_distribution, walked_tokens
from decoding.methods.methods import METHODS
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits
from decoding.trace.records import VerificationStep
from tests.helpers import traces


@pytest.fixture(scope="module")
def run(pair):
    """A sampled run with its rows."""
    method = METHODS["iid_paths"].with_settings(verifier="specinfer")
    ids = pair.vocabulary.encode("Once upon a time there was a cat who had two friends, a dog and")
    session = DecodeSession(pair, method, ids, Sampling(0.9, seed=3), Limits(20, rows="full"))
    list(session)
    return session.trace()


def test_the_law_of_an_iteration_is_exact(run):
    for iteration in run.iterations:
        luck = luck_of(iteration)
        assert sum(luck.probs.values()) == pytest.approx(1)
        verified = [node for node in iteration.nodes if node.flat_index is not None]
        assert luck.expected == pytest.approx(sum(node.acceptance_probability for node in verified))
        assert luck.as_many + luck.more + luck.fewer == pytest.approx(1) and luck.as_many > 0
        if iteration.final_kind != "none":
            assert luck.tokens == len(iteration.committed_ids)


def test_rerolled_draws_agree_with_the_law(run):
    index = max(range(len(run.iterations)), key=lambda place: luck_of(run.iterations[place]).deviation)
    luck, rolled = luck_of(run.iterations[index]), rerolled(run, index, 600)
    assert sum(rolled.values()) == 600
    for tokens, probability in luck.probs.items():
        spread = np.sqrt(600 * probability * (1 - probability))
        assert abs(rolled.get(tokens, 0) - 600 * probability) < 5 * spread + 1


def test_the_run_adds_up(run):
    whole, each = run_luck(run), lucks(run)
    assert whole.happened == len(run.output_ids), "block efficiency counts the same tokens"
    assert whole.mean == pytest.approx(sum(luck.expected for luck in each))
    assert whole.deviation**2 == pytest.approx(sum(luck.deviation**2 for luck in each))
    assert [luck.probs for luck in each[:-1]] == [luck_of(each, run.ending_ids).probs for each in run.iterations[:-1]]
    assert whole.score == pytest.approx((whole.happened - whole.mean) / whole.deviation)


def test_a_run_that_did_not_end_its_text_knows_the_tokens_that_would_have(run, pair):
    assert run.totals.stopped == "length" and run.ending_ids == tuple(sorted(pair.vocabulary.stop_ids))
    older = replace(run, stop_ids=())
    assert older.ending_ids == ()
    assert replace(older, totals=replace(run.totals, stopped="end_of_text")).ending_ids == run.output_ids[-1:]
    inner = [
        (place, each.nodes[node.parent_id])
        for place, each in enumerate(run.iterations)
        for node in each.nodes
        if node.depth > 1 and node.acceptance_probability > 0.01
    ]
    place, stop = inner[0]
    ends = replace(run, stop_ids=(stop.token_id,))
    assert lucks(ends)[place].expected < lucks(older)[place].expected


def test_token_law_by_hand():
    trace = traces.bonus()  # 0 -> 1 -> 3, 0 -> 2
    kept = {0: 1.0, 1: 0.6, 2: 0.1, 3: 0.5}
    assert token_distribution(trace, kept) == pytest.approx({1: 0.3, 2: 0.2, 3: 0.5})
    assert token_distribution(trace, kept, room=2) == pytest.approx({1: 0.3, 2: 0.7})
    stop = [trace.nodes[1].token_id]  # its node is the end of the text: nothing counts after it
    assert token_distribution(trace, kept, stop) == pytest.approx({1: 0.9, 2: 0.1})


def test_greedy_decoding_leaves_nothing_to_luck():
    luck = luck_of(traces.dynatree_recovered())
    assert luck.certain and luck.expected == luck.tokens == 3
    assert run_luck(traces.run_of([traces.dynatree_recovered(), traces.bonus()])).score is None


def test_a_path_cut_by_the_end_of_the_text_counts_whole():
    trace = traces.ended()
    steps = (VerificationStep(2, None, 1, 1.0, None, True, kind="choice"),)
    assert walked_tokens(replace(trace, steps=steps, accepted=(1,), committed_ids=trace.committed_ids[:1])) == 3


def test_an_iteration_without_its_tree_has_no_luck_to_tell():
    assert luck_of(traces.summary()) is None
    assert run_luck(traces.run_of([traces.summary()])).places == ()


def test_without_rows_a_reroll_is_refused(run):
    from decoding.common.errors import SettingsError

    with pytest.raises(SettingsError, match="full logits of this iteration were not saved: re-run it"):
        rerolled(run.without_logits(), 0)
