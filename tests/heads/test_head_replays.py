"""Runs that were drafted by a head: replayed from stored rows, and forked to another draft."""

import math
import warnings

import numpy as np
import pytest
import torch

from decoding.analysis.smallest_change import change_search, smallest_changes
from decoding.costs import measured_pair, measuring
from decoding.costs.measured_pair import MeasuredPair, acceptance_by_rank, acceptance_odds
from decoding.costs.measuring import COSTS, cost_model, machine_words, measure_costs
from decoding.heads.store import save_head
from decoding.methods.methods import METHODS
from decoding.models.pair import embedded_pair, pair_identity
from decoding.record import main
from decoding.replay.forks import ForkChange, fork, fork_again
from decoding.replay.recorded_logits import LogitsMissing, RecordedLogits, model_memo
from decoding.replay.stored_state import method_of, session_state_before
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits, prepared, unrecorded
from decoding.trace.interventions import Interventions
from decoding.trace.records import node_paths
from decoding.trace.run_file import load_run, save_run
from tests.analysis.test_smallest_change import absent_paths
from tests.helpers.heads import fitted_network, random_network
from tests.replay.test_forks import busy, check_both_ways, reported

TEXT = "Once upon a time there was a cat who had two friends, a dog and"
TREE = METHODS["eagle2"].with_settings(node_budget=16, beam_width=4, max_depth=4, verifier="greedy", draft_head="mine")


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory):
    """A folder of trainings with two heads of the embedded pair, and an empty cache of what is measured."""
    place = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRAFTSCOPE_TRAINING", str(place))
        patch.setenv("XDG_CACHE_HOME", str(place / "cache"))
        yield place


@pytest.fixture(scope="module")
def pair(home):
    pair = embedded_pair()
    plain = DecodeSession(pair, METHODS["autoregressive"], pair.vocabulary.encode(TEXT), limits=Limits(48))
    list(plain)
    networks = {"mine": (fitted_network(pair, [plain.tokens[:48]]), 10), "other": (random_network(pair), 11)}
    for name, (network, hour) in networks.items():
        save_head(home / name / "head", network, "talf", pair_identity(pair), f"2026-11-22T{hour}:00:00", {})
    return pair


def decoded(pair, method=TREE, sampling=None, tokens=30, **limits):
    ids = pair.vocabulary.encode(TEXT)
    session = DecodeSession(pair, method, ids, sampling, Limits(tokens, **{"rows": "full", **limits}))
    list(session)
    return session


@pytest.fixture(scope="module")
def run(pair):
    return decoded(pair)


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        ForkChange(),
        ForkChange(TREE.with_settings(node_budget=5)),
        ForkChange(TREE.with_settings(cache_policy="rebuild")),
        ForkChange(TREE.with_settings(verifier="nss"), Sampling(0.8, seed=3)),
    ],
)
def test_a_replayed_fork_is_what_the_head_would_have_done(run, change):
    for index in (0, busy(run)):
        check_both_ways(run, index, change)


@pytest.mark.slow
def test_a_changed_verdict_is_replayed_and_a_node_forced_in_below_the_tree_goes_live(run):
    index = busy(run)
    iteration = run.iterations[index]
    first = (iteration.nodes[iteration.accepted[0]].token_id,)
    check_both_ways(run, index, ForkChange(interventions=Interventions(reject=(first,))))
    leaf, path = next(
        (n, p) for n, p in zip(iteration.nodes, node_paths(iteration), strict=True) if p and n.draft_level is None
    )
    made = fork(run.trace(), run, index, ForkChange(interventions=Interventions(force_in=((*path, 7),))))
    assert made.kind == "live" and leaf.flat_index is not None
    assert made.trace.iterations[index].draft_forwards == iteration.draft_forwards + 1


@pytest.mark.parametrize("name", ["", "other"])
def test_another_draft_goes_live(pair, run, name):
    change, index = ForkChange(TREE.with_settings(draft_head=name)), busy(run)
    used = f"Iteration {index + 1} used another draft, and the logits of this one were not saved: re-run with its pair"
    with pytest.raises(LogitsMissing, match=used):
        fork(run.trace(), None, index, change)
    made = fork(run.trace(), run, index, change)
    assert made.kind == "live" and made.trace.iterations[index].draft_head == name
    assert made.trace.own_from == index and made.trace.pair.draft != run.trace().pair.draft
    names = {"": "embedded-draft", "other": "TALF head, 2026-11-22 11:00"}
    assert made.words == f"draft TALF head, 2026-11-22 10:00 → {names[name]}"
    back = fork_again(made, index + 1, ForkChange(TREE))
    assert back.kind == "live" and back.trace.iterations[-1].settings["draft_head"] == "mine"
    again = fork_again(made, index, ForkChange())
    assert reported(again.trace.iterations[index]) == reported(made.trace.iterations[index])


def test_rows_of_a_later_iteration_are_not_taken_for_the_heads_own(run):
    """What a head says after a path rests on features: the row of a later root along the same text is another one."""
    trace, index = run.trace(), busy(run)
    here, later = trace.iterations[index : index + 2]
    path = here.committed_ids
    with pytest.raises(LogitsMissing, match="has no draft logits after"):
        RecordedLogits(trace, index).find("draft", [path])
    target = RecordedLogits(trace, index).find("target", [path])[0]
    assert np.array_equal(target, later.target_logits[0]), "the target says the same wherever it is asked"


def test_the_record_tells_its_draft_and_is_forked_without_it(run, tmp_path):
    file = tmp_path / "run.dscope"
    save_run(run.trace(), file)
    opened = load_run(file)
    assert opened.pair.draft.architecture == "DraftHead" and opened.pair.draft.name == "TALF head, 2026-11-22 10:00"
    assert opened.settings["draft_head"] == "mine" and method_of(opened).settings() == run.method.settings()
    assert session_state_before(opened, 1).method.settings() == run.method.settings()
    assert session_state_before(opened, 2).method.draft_head == "mine"
    made = fork(opened, None, 1, ForkChange(method_of(opened).with_settings(node_budget=5)))
    assert made.kind == "replayed" and made.trace.iterations[1].verified == 5


@pytest.mark.slow
def test_the_command_records_with_a_head(pair, tmp_path, capsys):
    out = tmp_path / "run.dscope"
    arguments = ["--prompt", TEXT, "--max-new-tokens", "12", "--warm-up", "0", "--device", "cpu", "--out", str(out)]
    assert main([*arguments, "--method", "salf:draft_head=mine"]) == 0
    opened = load_run(out)
    assert opened.settings["draft_head"] == "mine" and opened.pair.draft.name.startswith("TALF head")
    assert main([*arguments, "--force", "--method", "salf:draft_head=nobody"]) == 2
    said = capsys.readouterr().err
    assert "There is no draft head 'nobody' for draft_head: choose one of" in said and "other, mine" in said
    assert main([*arguments, "--force", "--method", "autoregressive:draft_head=mine"]) == 2
    assert "has no setting 'draft_head'" in capsys.readouterr().err


def test_the_smallest_change_asks_the_head(pair, run):
    trace, index = run.trace(), busy(run)
    iteration = trace.iterations[index]
    distributions, paths = model_memo(pair, trace, index), node_paths(iteration)
    asked = torch.cat([distributions.find(paths[:1]), distributions.find(paths[1:3])])
    stored = torch.softmax(torch.from_numpy(iteration.draft_logits[:3]), -1)
    assert torch.allclose(asked, stored, atol=2e-3)
    search = change_search(trace, index, pair)
    found = smallest_changes(search, next(absent_paths(iteration)))
    assert found.changes and all(change.after != change.before for change in found.changes)


def test_what_is_measured_is_measured_of_the_draft_in_use(pair, monkeypatch):
    texts = [TEXT, "The king", "a"]
    drafting = TREE.drafting(pair)
    rates, plain = (acceptance_by_rank(each, Sampling(), texts) for each in (drafting, pair))
    assert rates[0] != plain[0] and 0 < sum(rates) <= 1.001
    odds = acceptance_odds(drafting, Sampling(), 4, texts)
    assert all(np.isfinite(odds)) and odds != acceptance_odds(pair, Sampling(), 4, texts)
    first, text = decoded(pair, tokens=2).iterations[0], pair.vocabulary.encode(TEXT)
    with torch.inference_mode():
        _, head = measured_pair._both_logits(drafting, text, torch.tensor([3, len(text) - 1]))
    assert np.allclose(head[1], first.draft_logits[0], atol=2e-3), "what the head says at the end of the text"
    asked = []
    monkeypatch.setattr(measured_pair, "acceptance_by_rank", lambda each, _: asked.append(each.head) or rates)
    method = METHODS["sequoia"].with_settings(verifier="greedy", draft_head="mine")
    assert prepared(method, pair, Sampling()).drafter.acceptance.startswith(f"{rates[0]:.4g}")
    assert [head.name for head in asked] == ["mine"] and MeasuredPair(drafting, Sampling(), None).acceptance() == rates
    MeasuredPair(pair, Sampling(), None).acceptance()
    assert asked[1:] == [None], "the draft model's own are kept apart"


def test_costs_are_of_the_heads_forwards(pair, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # nothing that another test measured is known
    monkeypatch.setattr(measuring, "SIZES", (1, 4, 16))
    monkeypatch.setattr(measuring, "MOST_RATIO", math.inf)  # however the first passes of a process are delayed
    monkeypatch.setattr(measuring, "SLOW_PASS_S", math.inf)
    monkeypatch.setattr(measuring, "DECODE_S", 0.05)
    drafting = TREE.drafting(pair)
    seen = []
    engine = type(drafting.head.engine)
    one_pass = engine.run
    monkeypatch.setattr(engine, "run", lambda self, *args: seen.append(len(args[1])) or one_pass(self, *args))
    costs = measure_costs(drafting, unrecorded, budget_s=0.05)
    assert {1, 4, 16} <= set(seen) and [point.size for point in costs.draft.points] == [1, 4, 16]
    assert all(point.seconds > 0 for point in costs.draft.points) and costs.iterations > 0
    monkeypatch.setattr(measuring, "measure_costs", lambda *_: costs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cost_model(drafting, unrecorded) == costs and COSTS.known(drafting, machine_words(drafting)) == costs
    assert COSTS.known(pair, machine_words(pair)) is None, "of the draft model nothing was measured"


@pytest.mark.slow
def test_a_hardware_aware_tree_is_prepared_for_its_draft(pair, monkeypatch):
    odds = {"": (2.0, 1.0), "mine": (1.5, 1.0)}
    monkeypatch.setattr(measured_pair, "acceptance_odds", lambda each, *_: odds[each.head.name if each.head else ""])
    method = METHODS["hardware_aware"].with_settings(verify_ms="1:2 64:4", level_ms="1:0.2", draft_head="mine")
    session = decoded(pair, method, tokens=16)
    assert session.method.drafter.odds == "1.5 1" and session.trace().settings["draft_head"] == "mine"
    parted = fork(session.trace(), session, 1, ForkChange(method.with_settings(draft_head=""))).session
    assert parted.method.drafter.odds == "2 1"
    measured = session.method.with_settings(draft_head="", verify_ms="1:3")  # as an editor of settings holds them
    again = fork(session.trace(), session, 1, ForkChange(measured)).session.method.drafter
    assert (again.odds, again.verify_ms) == ("2 1", "1:3"), "what was given is kept, what was measured is not"
    fresh = session.rewind(1).fork(session.method.with_settings(draft_head=""))
    assert fresh._state.tokens == 0 < session._state.tokens, "what one draft taught says nothing of another"
