"""The distribution that a run tested with is in its record, temperature and top-p applied: of nodes and of top
tokens.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from decoding.methods.methods import METHODS
from decoding.models.pair import Pair
from decoding.sampling.sampling import Sampling, target_distribution
from decoding.session.session import DecodeSession, Limits
from decoding.trace.codec import RecordError
from decoding.trace.records import RunTrace
from decoding.trace.run_file import load_run, save_run
from decoding.trace.validation import check_run

SAMPLINGS = [Sampling(temperature=0.8), Sampling(temperature=0.7, top_p=0.9), Sampling(temperature=1.0)]


def run_of(pair: Pair, sampling: Sampling) -> RunTrace:
    method, prompt = METHODS["dyspec"].with_settings(node_budget=6), pair.vocabulary.encode("Once upon a time")
    session = DecodeSession(pair, method, prompt, sampling, Limits(8, rows="full"))
    list(session)
    return session.trace()


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_what_the_verifier_tested_with_is_recorded(pair, sampling):
    for iteration in run_of(pair, sampling).iterations:
        probs = target_distribution(torch.from_numpy(iteration.target_logits), sampling).numpy()
        for node in iteration.nodes[1:]:
            expected = probs[node.parent_id, node.token_id]
            assert node.tested_probability == pytest.approx(float(expected), abs=1e-6)
        for node, ids in enumerate(iteration.target_top_ids):
            filled = ids >= 0
            assert iteration.tested_top_probs[node, filled] == pytest.approx(probs[node, ids[filled]], abs=1e-6)
        assert iteration.sampling.temperature == sampling.temperature and iteration.sampling.top_p == sampling.top_p


def test_greedy_decoding_has_no_such_law(pair):
    iteration = run_of(pair, Sampling()).iterations[0]
    assert iteration.tested_top_probs is None and iteration.sampling.temperature == 0
    assert all(node.tested_probability is None for node in iteration.nodes)


def test_it_is_saved_and_a_law_of_the_wrong_shape_is_refused(pair, tmp_path):
    run = run_of(pair, SAMPLINGS[0])
    save_run(run, tmp_path / "run.dscope")
    first, again = run.iterations[0], load_run(tmp_path / "run.dscope").iterations[0]
    assert again.nodes[1].tested_probability == first.nodes[1].tested_probability
    assert again.sampling == first.sampling
    np.testing.assert_array_equal(again.tested_top_probs, first.tested_top_probs)
    for spoiled, words in (
        (replace(first, tested_top_probs=first.tested_top_probs[:1]), "not have the rows of target_top_ids"),
        (replace(first, tested_top_probs=first.tested_top_probs + 2), "outside 0..1"),
        (replace(first, target_top_ids=None, target_top_probs=None), "no target_top_ids"),
    ):
        with pytest.raises(RecordError, match=words):
            check_run(replace(run, iterations=(spoiled, *run.iterations[1:])))
