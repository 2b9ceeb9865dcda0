"""Token recycling: its tree, what the matrix holds after a pass, and that a run is made again from its record."""

import numpy as np
import pytest

from benchmarks.reason_rules import RECYCLED
from benchmarks.table_source import TableSource, path_tokens
from decoding.common.errors import SettingsError
from decoding.drafters import TokenRecyclingDrafter
from decoding.drafters.base import IterationFeedback
from decoding.drafters.token_recycling import template
from decoding.methods.methods import METHODS
from decoding.replay.forks import ForkChange, fork
from decoding.replay.replay import replay
from decoding.replay.stored_state import state_before
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits
from decoding.trace.interventions import Interventions
from decoding.trace.records import STOP_REASONS
from decoding.trace.run_file import load_run, save_run
from viz.explain.expansion import why_absent, why_drafted, why_not_expanded
from viz.explain.known import Known

METHOD = METHODS["token_recycling"]
PROMPT = "Once upon a time there was a dog. The dog ran to the tree and the cat ran to"


def row(*candidates: tuple[int, float]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([token for token, _ in candidates]), np.array([share for _, share in candidates])


def test_the_tree_is_the_published_one_and_smaller_ones_are_its_best_part():
    whole = template(80, 6, 8)
    assert {"".join(map(str, path)) for path in whole} == set(RECYCLED.split()) and len(whole) == 80
    assert [sum(len(path) == depth for path in whole) for depth in range(1, 7)] == [8, 21, 25, 15, 8, 3]
    for budget in range(1, 80):
        part = template(budget, 6, 8)
        assert len(part) == budget and set(part) <= set(template(budget + 1, 6, 8))
        assert all(path[:-1] in {(), *part} for path in part), "a node without its parent"
        assert all(path[-1] == 0 or (*path[:-1], path[-1] - 1) in part for path in part), "a candidate was left out"
    assert template(4, 6, 8) == ((0,), (1,), (2,), (0, 0))
    assert max(map(len, template(80, 3, 8))) == 3 and max(map(max, template(80, 6, 2))) == 1


def test_a_tree_is_read_off_the_matrix_and_says_why_it_ends():
    matrix = {1: row((2, 0.5), (3, 0.25)), 2: row((1, 0.5), (4, 0.125)), 4: row((5, 1.0))}
    drafter = TokenRecyclingDrafter(node_budget=10, max_depth=3)
    draft = drafter.draft(matrix, TableSource({}, [1.0]), 1, None)
    reasons = [STOP_REASONS[code] for code in draft.tree.stop_reason]
    found = {path_tokens(draft.tree, node): reasons[node] for node in range(draft.tree.size)}
    # By budget 10: six first candidates, two below the first of them, one below the second, one chain of three.
    assert found == {
        (): "expanded", (2,): "expanded", (3,): "unread", (2, 1): "expanded", (2, 4): "shape", (2, 1, 2): "max_depth",
    }  # fmt: skip
    assert draft.tree.branching.tolist() == [2, 2, -1, 1, -1, -1] and draft.state is matrix
    assert draft.tree.path_probs[1:].tolist() == [0.5, 0.25, 0.25, 0.0625, 0.125]
    short = drafter.draft(matrix, TableSource({}, [1.0], depth_limit=1), 1, None)
    assert [STOP_REASONS[code] for code in short.tree.stop_reason] == ["expanded", "length_limit", "length_limit"]
    ended = drafter.draft(matrix, TableSource({}, [1.0], depth_limit=0), 1, None)
    assert ended.tree.size == 1 and STOP_REASONS[ended.tree.stop_reason[0]] == "length_limit"
    new = drafter.draft({}, TableSource({}, [1.0]), 1, None)
    assert new.tree.size == 1 and STOP_REASONS[new.tree.stop_reason[0]] == "unread"


def test_a_pass_teaches_what_follows_every_verified_token_the_rejected_included():
    drafter = TokenRecyclingDrafter()
    matrix = {1: row((2, 0.5), (3, 0.25)), 2: row((1, 0.5)), 9: row((9, 1.0))}
    draft = drafter.draft(matrix, TableSource({}, [1.0], depth_limit=2), 1, None)  # 1 -> 2 -> 1, and 1 -> 3
    assert draft.tree.tokens.tolist() == [1, 2, 3, 1]
    ids = np.array([[10, 11], [12, 13], [14, -1], [16, 17]])
    probs = np.array([[0.5, 0.4], [0.5, 0.3], [1.0, np.nan], [0.5, 0.1]])
    outcome = IterationFeedback(0, 1, 3, 3, 2, tree=draft.tree, order=draft.order, top=lambda: (ids, probs))
    after, history = drafter.observe(matrix, outcome)
    known = {token: found.tolist() for token, (found, _) in after.items()}
    assert known == {1: [16, 17], 2: [12, 13], 3: [14], 9: [9]} and history is None
    assert sorted(matrix) == [1, 2, 9] and matrix[1][0].tolist() == [2, 3], "a state never changes"
    with pytest.raises(SettingsError, match="without the target's likeliest tokens"):
        drafter.observe(matrix, IterationFeedback(0, 1, 3, 3, 2, tree=draft.tree, order=draft.order))


@pytest.fixture(scope="module")
def session(embedded) -> DecodeSession:
    made = DecodeSession(embedded, METHOD, embedded.vocabulary.encode(PROMPT), limits=Limits(32, rows="full"))
    list(made)
    return made


def trees(iterations) -> list[list[tuple[int, int, float | None]]]:
    return [[(node.parent_id, node.token_id, node.draft_probability) for node in each.nodes] for each in iterations]


def test_the_record_tells_the_matrix_before_every_iteration(session, tmp_path):
    save_run(session.trace(), tmp_path / "run.dscope")
    run = load_run(tmp_path / "run.dscope")
    for index in range(len(run.iterations)):
        rebuilt, held = state_before(run, index, METHOD), session.standing(index).state
        assert rebuilt.keys() == held.keys() and len(rebuilt) >= index
        for token, columns in held.items():
            assert all(np.array_equal(one, other) for one, other in zip(rebuilt[token], columns, strict=True))
    bare = DecodeSession(session.pair, METHOD, list(session.prompt_ids), limits=Limits(8, record="summary"))
    list(bare)
    with pytest.raises(SettingsError, match="re-run it"):
        state_before(bare.trace(), 1, METHOD)


def test_rewound_and_forked_runs_draft_the_same_trees(session, tmp_path):
    assert sum(each.drafted for each in session.iterations) > 80
    for index in (1, 3):
        again = session.rewind(index)
        list(again)
        assert again.tokens == session.tokens and trees(again.iterations) == trees(session.iterations)
    save_run(session.trace(), tmp_path / "run.dscope")
    opened = load_run(tmp_path / "run.dscope")
    place = next(each.index for each in session.iterations[2:] if each.drafted)
    rejected = next(node for node in session.iterations[place].nodes[1:] if node.depth == 1)
    change = ForkChange(interventions=Interventions(force_out=((rejected.token_id,),)))
    live = fork(session.trace(), session, place, change, live=True)
    for replayed in (fork(session.trace(), session, place, change), fork(opened, None, place, change)):
        assert replayed.kind == "replayed"
        assert trees(replayed.trace.iterations) == trees(live.trace.iterations)
    narrow = ForkChange(METHOD.with_settings(node_budget=8))
    for other in (fork(opened, None, place, narrow), fork(session.trace(), session, place, narrow, live=True)):
        made = other.trace.iterations[place]
        assert 1 < made.drafted <= 8 and made.nodes[0].stop_reason == "expanded", "the matrix is that of the parent"


def test_a_tree_of_counts_is_verified_again_from_its_rows(pair):
    ids = pair.vocabulary.encode("Once upon a time there was a cat who had two friends, a dog and")
    for name in ("token_recycling", "suffix"):
        method = METHODS[name].with_settings(verifier="nss")
        run = DecodeSession(pair, method, ids, Sampling(0.8), Limits(30, rows="full"))
        drafted = [each for each in run if each.drafted]
        assert drafted
        for iteration in drafted:
            (again,) = replay(iteration, Sampling(0.8), [method.verifier], rerolls=0)
            accepted = sum(node.acceptance_probability for node in iteration.nodes if node.flat_index is not None)
            assert again.refusal is None and again.expected_tokens == pytest.approx(accepted, abs=1e-4)


def test_reasons_name_what_the_target_said_before(session):
    for iteration in session.iterations:
        known = Known(iteration)
        for node in iteration.nodes[1:]:
            assert "choice, at" in why_drafted(known, node.node_id)
        for node in iteration.nodes:
            said = why_not_expanded(iteration, node.node_id)
            assert said.startswith("expanded: ") == (node.stop_reason == "expanded") and "draw" not in said
            if node.stop_reason == "unread":
                assert "had not yet read" in said
        if iteration.drafted:
            drafted = {iteration.nodes[child].token_id for child in iteration.children(0)}
            absent = next(token for token in range(100) if token not in drafted)
            assert "choices when it last read" in why_absent(iteration, 0, absent)
