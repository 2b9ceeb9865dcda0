"""The smallest change of a setting: every answer keeps the token, a nearer whole number does not, none is said so."""

import pytest

from decoding.analysis.smallest_change import (
    SettingChange,
    _closer,
    change_search,
    is_searched,
    keeps,
    rounded,
    smallest_changes,
    values_to_try,
)
from decoding.common.errors import SettingsError
from decoding.common.settings import settings_of
from decoding.methods.methods import METHODS
from decoding.replay.recorded_logits import LogitsMissing, model_memo, recorded_memo
from decoding.replay.stored_state import as_made
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits
from decoding.trace.interventions import Interventions
from decoding.trace.records import node_paths
from tests.helpers.families import MEASURED, family

QUICK = ("dynatree", "specexec", "dyspec")
SETTINGS = {
    "dyspec": {"node_budget": 12},
    "dyspec_threshold": {"node_budget": 24, "threshold": 0.05},
    "sequoia": {"node_budget": 12, "acceptance": "0.5,0.2,0.1"},
    "specexec": {"node_budget": 12, "batch": 4, "max_depth": 4},
    "opt_tree": {"node_budget": 12},
    "eagle2": {"node_budget": 12, "beam_width": 4, "max_depth": 4},
    "salf": {"node_budget": 12, "batch": 4},
    "hardware_aware": MEASURED["hardware_aware"],
}


def run_of(pair, name, sampling=None, rows="full", **settings):
    """Three iterations of a method with small settings."""
    method = METHODS[name].with_settings(verifier="greedy", **SETTINGS.get(name, {}) | settings)
    ids = pair.vocabulary.encode("Once upon a time there was a cat who had two friends, a dog and")
    session = DecodeSession(pair, method, ids, sampling or Sampling(), Limits(24, rows=rows))
    for _ in range(3):
        session.step()
    return session.trace()


def absent_paths(iteration):
    """Paths of likely tokens that were not verified."""
    paths = node_paths(iteration)
    verified = {path for path, node in zip(paths, iteration.nodes, strict=True) if node.flat_index is not None}
    for node, path in zip(iteration.nodes, paths, strict=True):
        for token, _, _ in (*iteration.draft_top(node.node_id)[:3], *iteration.target_top(node.node_id)[:1]):
            if (*path, token) not in verified:
                yield (*path, token)


DRAFTING = [name for name, method in METHODS.items() if method.drafter.uses_draft_model]


@pytest.mark.parametrize("name", family(DRAFTING, *QUICK))
def test_the_tree_as_it_was_is_drafted_again_and_every_answer_keeps_the_token(pair, name):
    run = run_of(pair, name)
    for iteration in run.iterations:
        if not iteration.drafted:
            continue
        search = change_search(run, iteration.index, pair)
        draft, asked = search.draft(search.drafter)
        again = {node for node, path in enumerate(node_paths(iteration)) if node and keeps(draft, path)}
        assert asked == "replayed" and len(draft.order) == len(iteration.flatten_order)
        assert again == set(iteration.flatten_order) - {0}
    iteration = next(each for each in run.iterations if each.drafted)
    search = change_search(run, iteration.index, pair)
    for path in list(absent_paths(iteration))[:2]:
        found = smallest_changes(search, path)
        assert not (found.untried or found.unknown) and set(found.too_large) <= {"node_budget"}
        assert [change.size for change in found.changes] == sorted(change.size for change in found.changes)
        for change in found.changes:
            kept, _ = search.draft(search.drafter.with_settings(**{change.setting: change.after}))
            assert keeps(kept, path) and len(kept.order) - 1 == change.verified
            assert change.before == getattr(search.drafter, change.setting) != change.after


def test_the_nearest_budget_is_found_by_halving(pair):
    run = run_of(pair, "specexec", max_depth=2)
    search, tried = change_search(run, 0, pair), 0
    for path in list(absent_paths(run.iterations[0]))[:8]:
        found = smallest_changes(search, path)
        budget = next((change for change in found.changes if change.setting == "node_budget"), None)
        if budget is not None and budget.after > 20:
            less, _ = search.draft(search.drafter.with_settings(node_budget=budget.after - 1))
            assert not keeps(less, path)  # most probable trees grow with their budget, so this is the smallest
            tried += 1
    assert tried > 1


def test_without_a_model_it_says_what_it_could_not_try(pair):
    run = run_of(pair, "linear")
    iteration = run.iterations[0]
    deepest = node_paths(iteration)[-1]
    path = (*deepest, iteration.target_top(len(iteration.nodes) - 1)[0][0])
    alone = smallest_changes(change_search(run, 0), path)
    assert alone.changes == () and alone.unknown == ("length",)
    (change,) = smallest_changes(change_search(run, 0, pair), path).changes or (None,)
    assert change is None or (change.setting, change.after, change.asked) == ("length", 9, "live")
    with pytest.raises(LogitsMissing, match="has no draft logits after the root: re-run"):
        smallest_changes(change_search(run_of(pair, "linear", rows="top"), 0), path)


def test_no_single_setting_keeps_what_two_rules_keep_out(pair):
    run = run_of(pair, "dynatree")
    iteration = run.iterations[0]
    token = iteration.draft_top(0)[3][0]  # the first level takes one token, and its path is below the pruning threshold
    found = smallest_changes(change_search(run, 0, pair), (token,))
    assert found.changes == () and "branch_first_level" in found.without and "prune_probability" in found.without


def test_verifying_what_is_pruned_is_a_change_too(pair):
    run = run_of(pair, "dynatree", branch_first_level=True)
    iteration, node = next((each, node) for each in run.iterations for node in each.nodes if node.pruned)
    path = node_paths(iteration)[node.node_id]
    found = smallest_changes(change_search(run, iteration.index, pair), path)
    change = next(each for each in found.changes if each.setting == "verify_pruned")
    assert (change.before, change.after, change.drafted, change.verified) == (
        False, True, iteration.drafted, iteration.drafted
    )  # fmt: skip


def test_a_search_can_be_ended(pair):
    run = run_of(pair, "dynatree")
    path = next(absent_paths(run.iterations[0]))
    found = smallest_changes(change_search(run, 0, pair), path, proceed=lambda done, _: done < 2)
    assert found.untried and not set(found.untried) & set(found.without)


def test_why_a_value_could_not_be_tried_is_reported_apart(pair, monkeypatch):
    """Rows that are missing, a model that was asked too much, time that ran out."""
    run = run_of(pair, "linear")
    path = (*node_paths(run.iterations[0])[-1], run.iterations[0].target_top(len(run.iterations[0].nodes) - 1)[0][0])
    late = smallest_changes(change_search(run, 0, pair), path, most_s=0.0)
    assert (late.untried, late.unknown, late.without) == (("length",), (), ())
    monkeypatch.setattr("decoding.replay.recorded_logits.MOST_ASKED", 6)
    full = smallest_changes(change_search(run, 0, pair), path)
    assert (full.too_large, full.unknown, full.untried) == (("length",), (), ())


def test_a_nearer_value_that_could_not_be_tried_leaves_the_answer_unsure(pair):
    run = run_of(pair, "linear")
    search = change_search(run, 0, pair)
    found = SettingChange("length", 8, 40, 4.0, 40, 40, "live")
    path = (*node_paths(run.iterations[0])[-1], -1)  # a token that no tree has
    assert _closer(search, "length", 8, found, path).sure
    assert not _closer(change_search(run, 0), "length", 8, found, path).sure


def test_a_tree_that_the_method_did_not_draft_is_not_explained_by_its_settings(pair):
    method = METHODS["dynatree"].with_settings(verifier="greedy")
    ids = pair.vocabulary.encode("Once upon a time there was a cat who had two friends, a dog and")
    session = DecodeSession(pair, method, ids, Sampling(), Limits(24, rows="full"))
    first = session.step()
    path = next(absent_paths(first))
    fork = session.fork(METHODS["linear"].with_settings(verifier="greedy"))
    fork.step()
    with pytest.raises(SettingsError, match="drafts another tree in iteration 1"):
        smallest_changes(change_search(fork.trace(), 0, pair), path)
    made = as_made(fork.trace(), fork.standing(0))
    assert smallest_changes(change_search(made, 0, pair), path) == smallest_changes(
        change_search(session.trace(), 0, pair), path
    )
    edited = session.fork(interventions=Interventions(force_out=((session.peek()[0].tree.tokens[1].item(),),)))
    edited.step()
    with pytest.raises(SettingsError, match="an edit"):
        smallest_changes(change_search(edited.trace(), 1, pair), path)


def test_an_iteration_without_a_tree_has_no_settings_to_change(pair):
    run = run_of(pair, "autoregressive")
    with pytest.raises(SettingsError, match="Nothing was drafted"):
        change_search(run, 0)


def test_the_model_tells_what_the_rows_tell_and_is_asked_once(pair):
    run = run_of(pair, "dynatree")
    stored, model = recorded_memo(run, 1), model_memo(pair, run, 1)
    paths = [
        p for p, node in zip(node_paths(run.iterations[1]), run.iterations[1].nodes, strict=True) if node.branching
    ]
    for depth in range(max(map(len, paths)) + 1):
        level = [path for path in paths if len(path) == depth]
        assert model.find(level).allclose(stored.find(level), atol=1e-4)
    model._ask = None  # whoever asks again fails
    assert len(model.find(paths)) == len(paths)


def test_every_setting_of_a_tree_is_searched_or_left_out_on_purpose():
    left_out = {"sampled", "learn", "history", "widths", "acceptance", "verify_ms", "level_ms", "odds"}
    left_out |= {"selector", "matrix"}
    for method in METHODS.values():
        for name, info in settings_of(type(method.drafter)).items():
            assert is_searched(info) != (name in left_out or name.startswith("history_")), name


@pytest.mark.parametrize("before", [0, 1, 60, 1024, 3000, 0.0, 0.05, 0.999, 1.0])
def test_all_values_to_try_are_accepted(pair, before):
    iteration = run_of(pair, "dynatree").iterations[0]
    path = next(absent_paths(iteration))
    for method in METHODS.values():
        for name, info in settings_of(type(method.drafter)).items():
            if is_searched(info) and type(before) is type(info.default) and before in info.accepted:
                tried = [value for value, _ in values_to_try(iteration, info, before, path)]
                assert tried and before not in tried, name
                assert [info.checked(value) for value in tried] == tried


@pytest.mark.parametrize(
    ("value", "up", "result"), [(0.07331, False, 0.0733), (0.07331, True, 0.0734), (0.99995, True, 0.99995)]
)
def test_probabilities_are_rounded_to_one_side(value, up, result):
    assert rounded(value, up) == pytest.approx(result) and 0 < rounded(value, up) < 1
