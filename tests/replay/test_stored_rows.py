"""Drafting from stored rows alone: the very trees that the models would give, or one sentence on what is missing."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from decoding.common.errors import SettingsError
from decoding.methods.methods import METHODS
from decoding.replay.recorded_logits import LogitsMissing, RecordedLogits, RecordedSource, draft_from
from decoding.replay.stored_state import filled_in, method_of, session_state_before
from decoding.sampling.sampling import Sampling
from decoding.session.cached_models import ModelSource
from decoding.session.session import DecodeSession, Limits
from decoding.trace.interventions import Interventions
from decoding.trace.run_file import load_run, save_run
from decoding.tree.draft import TokenTree
from tests.helpers.families import family

AWARE = METHODS["hardware_aware"].with_settings(verify_ms="1:1 64:2", level_ms="1:0.2", odds="1.5 1", node_budget=16)
FULL = METHODS["fixed_tree"].with_settings(
    max_depth=4, branching=4, prune_probability=0.0, node_budget=400, branch_first_level=True
)
RUNS = {
    "autoregressive": (METHODS["autoregressive"], Sampling()),
    "dynatree": (METHODS["dynatree"].with_settings(branch_first_level=True, stop_probability=0.01), Sampling()),
    "as printed": (
        METHODS["dynatree"].with_settings(
            branch_first_level=True,
            verify_pruned=True,
            history_confidence_low=True,
            history_minimum=1,
            history_statistic="accepted_over_drafted_depth",
        ),
        Sampling(),
    ),
    "hardware-aware": (AWARE, Sampling()),
    "hardware-aware, idle": (AWARE.with_settings(level_ms="1:4"), Sampling()),
    "eagle2": (METHODS["eagle2"].with_settings(node_budget=8, beam_width=3, max_depth=3), Sampling(0.7)),
    "dyspec": (METHODS["dyspec"].with_settings(node_budget=12), Sampling(0.8, seed=5)),
    "dyspec threshold": (METHODS["dyspec_threshold"], Sampling(0.8, draft_temperature=0.6)),
    "paths": (METHODS["iid_paths"], Sampling(1.0, top_p=0.9, seed=2)),
}
# What a full tree of four levels has rows for, at any draft temperature.
OTHERS = {
    "linear": METHODS["linear"].with_settings(length=4),
    "dynatree": METHODS["dynatree"].with_settings(base_depth=2, max_depth=3, branch_first_level=True),
    "opt_tree": METHODS["opt_tree"].with_settings(node_budget=4, max_depth=4),
    "eagle2": METHODS["eagle2"].with_settings(node_budget=10, beam_width=4, max_depth=4),
    "specexec": METHODS["specexec"].with_settings(node_budget=4, batch=4, max_depth=4),
    "salf": METHODS["salf"].with_settings(node_budget=10, batch=4, max_depth=4),
    "hardware_aware": AWARE.with_settings(max_depth=3),
}


def decoded(pair, method, sampling=None, new_tokens=24):
    ids = pair.vocabulary.encode("Once upon a time there was a cat who had two friends, a dog and")
    session = DecodeSession(pair, method, ids, sampling, Limits(new_tokens, rows="full"))
    list(session)
    return session


@pytest.fixture(scope="module")
def full(pair):
    return decoded(pair, FULL)


def redraft(run, index: int, method=None, sampling=None):
    """The tree that a method drafts in an iteration from stored rows alone."""
    known = session_state_before(run, index)
    standing = known.changed(method and filled_in(method, known.method), sampling)
    rows = RecordedLogits(run, index)
    return draft_from(RecordedSource(rows, standing.sampling.draft_temperature), rows, standing, Interventions())


def shape(tree, order):
    """A tree node for node, what its drafter noted included."""
    columns = (tree.tokens, tree.parents, tree.stop_reason, tree.branching, tree.multiplicity, tree.level)
    return [column.tolist() for column in columns], order.tolist()


@pytest.mark.parametrize("name", family(RUNS, "dynatree", "as printed", "dyspec"))
def test_nothing_changed_gives_the_recorded_trees(pair, name, tmp_path):
    session = decoded(pair, *RUNS[name])
    save_run(session.trace(), tmp_path / "run.dscope")
    run = load_run(tmp_path / "run.dscope")
    sizes = set()
    for iteration in run.iterations:
        draft = redraft(run, iteration.index)
        nodes = iteration.nodes
        assert draft.tree.tokens.tolist() == [node.token_id for node in nodes]
        assert draft.tree.parents.tolist() == [node.parent_id for node in nodes]
        assert tuple(draft.order.tolist()) == iteration.flatten_order
        assert draft.settings == iteration.settings, "history had moved them"
        probs = [node.draft_probability for node in nodes[1:]]
        assert draft.tree.draft_probs[1:].tolist() == pytest.approx(probs, rel=1e-5)
        sizes.add(len(nodes))
    if name == "hardware-aware, idle":
        assert 1 in sizes, "drafting always paid: what it learned of that was not tested"


def test_history_is_where_the_session_had_it(pair):
    for name in ("dynatree", "as printed", "hardware-aware"):
        session = decoded(pair, *RUNS[name], new_tokens=40)
        run = session.trace()
        for index in range(len(run.iterations)):
            reported, known = session_state_before(run, index), session.standing(index)
            assert reported.method == known.method and reported.sampling == known.sampling
            if name != "hardware-aware":
                assert reported.state == known.state
            else:
                assert reported.state.log_odds == pytest.approx(known.state.log_odds)
                assert reported.state.information == pytest.approx(known.state.information)
                assert (reported.state.tokens, reported.state.seconds) == pytest.approx(
                    (known.state.tokens, known.state.seconds)
                )
        if name != "hardware-aware":
            assert (
                len({state.base_depth for state in (session.standing(i).state for i in range(len(run.iterations)))}) > 1
            )


@pytest.mark.parametrize("name", OTHERS)
def test_other_methods_draft_what_they_would_have_live(full, name):
    run = full.trace()
    for index, sampling in ((0, None), (2, Sampling(draft_temperature=0.5))):
        draft = redraft(run, index, OTHERS[name], sampling)
        live, _ = full.rewind(index).fork(OTHERS[name], sampling=sampling).peek()
        assert shape(draft.tree, draft.order) == shape(live.tree, live.order)
        assert draft.tree.draft_probs == pytest.approx(live.tree.draft_probs, rel=1e-4)
        assert draft.tree.size > 3


def test_sampling_drafters_draw_with_the_seed_given(full):
    run, method = full.trace(), METHODS["iid_paths"].with_settings(paths=2, length=1)
    roots = {tuple(redraft(run, 1, method, Sampling(1.0, seed=seed)).tree.tokens.tolist()) for seed in range(8)}
    assert len(roots) > 2
    live, _ = full.rewind(1).fork(method, sampling=Sampling(1.0, seed=5)).peek()
    draft = redraft(run, 1, method, Sampling(1.0, seed=5))
    assert draft.tree.tokens.tolist() == live.tree.tokens.tolist() and draft.drawn.tolist() == live.drawn.tolist()


def test_rows_of_later_iterations_answer_along_the_text(pair):
    run = decoded(pair, METHODS["linear"].with_settings(length=2)).trace()
    for index in (3, 5):
        here, after = run.iterations[index : index + 2]
        path = here.committed_ids
        paths = {path: 0, (*path, after.nodes[1].token_id): 1}
        rows = RecordedLogits(run, index)
        for side, logits in (("draft", after.draft_logits), ("target", after.target_logits)):
            for one, node in paths.items():
                assert np.array_equal(rows.find(side, [one])[0].numpy(), logits[node])
        # The same row of the same model after the same text, whatever pass it came from.
        source = ModelSource(pair.target, pair.target.engine.new_cache(200), list(_text(run, after)), 4096, 9, _Clock())
        live = source.expand(TokenTree(0), np.zeros(1, dtype=np.int64))
        assert torch.allclose(live[0], rows.find("target", [path])[0].softmax(-1), atol=1e-5)


def test_rows_of_earlier_iterations_answer_along_the_text(full):
    """Committed by hand: a verifier that stops beside a drafted child leaves rows below it."""
    run, first = full.trace(), full.iterations[0]
    parent = next(node for node in first.nodes if node.depth == 2 and first.children(node.node_id))
    top, below = first.nodes[parent.parent_id], first.nodes[first.children(parent.node_id)[0]]
    cut = replace(first, accepted=(top.node_id,), committed_ids=(top.token_id,), committed_texts=(top.text,))
    root = replace(first.nodes[0], token_id=top.token_id)
    following = replace(
        full.iterations[1], prefix_length=first.prefix_length + 1, nodes=(root,), draft_logits=None, target_logits=None
    )
    rows = RecordedLogits(replace(run, iterations=(cut, following)), 1)
    paths = {(): top, (parent.token_id,): parent, (parent.token_id, below.token_id): below}
    found = rows.find("draft", list(paths)).numpy()
    assert np.array_equal(found, first.draft_logits[[node.node_id for node in paths.values()]])


def _text(run, iteration):
    """Everything committed before an iteration."""
    return (*run.prompt_ids, *run.output_ids)[: iteration.prefix_length]


class _Clock:
    def mark(self, name):
        pass


def test_what_is_missing_is_said(pair, full):
    run = full.trace()
    deep = METHODS["linear"].with_settings(length=20)
    with pytest.raises(LogitsMissing, match=r"Iteration 2 has no draft logits after '.*': re-run"):
        redraft(run, 1, deep)
    with pytest.raises(LogitsMissing, match="full logits of iteration 2 were not saved: re-run"):
        redraft(run.without_logits(), 1)
    short = decoded(pair, METHODS["linear"]).trace()
    bare = replace(
        short, iterations=tuple(replace(i, nodes=(), draft_logits=None, target_logits=None) for i in short.iterations)
    )
    with pytest.raises(LogitsMissing, match="full logits of iteration 1 were not saved"):
        redraft(bare, 0)
    for index in (-1, 99):
        with pytest.raises(SettingsError, match=f"no iteration {index + 1}: it has 1 to"):
            redraft(run, index)
    with pytest.raises(SettingsError, match="no method 'other'"):
        redraft(replace(run, method="other"), 0)


def test_measured_settings_are_taken_over_from_the_run(pair):
    run = decoded(pair, AWARE, new_tokens=4).trace()
    again = METHODS["hardware_aware"].with_settings(node_budget=4)
    filled = filled_in(again, method_of(run))
    assert filled.drafter.verify_ms == AWARE.drafter.verify_ms and filled.drafter.node_budget == 4
    assert redraft(run, 0, again).tree.size <= 5
    assert filled_in(METHODS["linear"], method_of(run)) == METHODS["linear"]
