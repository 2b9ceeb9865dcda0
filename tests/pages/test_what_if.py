"""What if: changes become branches, two of them stand side by side, and what goes wrong is one sentence."""

import html
import io
from dataclasses import replace
from types import SimpleNamespace

import pytest

from decoding.methods.methods import METHODS
from decoding.recorded import logits_run, recorded_run
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits
from decoding.trace.records import SamplingTrace, node_paths
from decoding.trace.run_file import load_run, save_run
from pages.ui.common.models import manager
from pages.ui.common.run_store import store
from pages.ui.common.state import Run
from pages.ui.compare.plan import prompt_of
from pages.ui.what_if.branches import KEY, MOST_HELD, Branch, Edit, held, memory_words
from pages.ui.what_if.change import child_tokens, missing_token, missing_words, starters
from pages.ui.widgets.controls import setting_key
from tests.helpers import traces
from tests.pages.apptest import finish, open_page, sentences
from viz.branches.diff import fork_summary

PAGE = "pages/what_if.py"
PROMPT = "Once upon a time there was a little girl who"
FORCED = "Forced verdicts replace the target's distribution"
BUDGET = setting_key("what_if_method", "dynatree", "node_budget")


def decoded(
    iterations: int | None = 5, method: str = "dynatree", tokens: int = 40, sampling: Sampling | None = None
) -> Run:
    """A run as Step through decodes it."""
    pair = manager().pair()
    limits = Limits(tokens, rows="full")
    session = DecodeSession(pair, METHODS[method], pair.vocabulary.encode(PROMPT), sampling, limits)
    while not session.finished and (iterations is None or len(session.iterations) < iterations):
        session.step()
    return Run(session.trace(), session=session)


def open_with(run: Run, iteration: int = 1):
    at = open_page(None)
    at.session_state["run"], at.session_state["iteration"], at.session_state["node"] = run, iteration, None
    at.switch_page(PAGE)
    return at.run()


@pytest.fixture
def page():
    return open_with(decoded())


def history_of(at):
    return at.session_state[KEY]


def press(at, key: str):
    at.button(key=key).click().run()
    return finish(at, "what_if")


def force(at, kind: str, node: int):
    """Choose a node of tree A as a click in the browser does, and press one of its buttons."""
    history_of(at).nodes["A"] = node
    at.run()
    at.button(key=f"what_if_{kind}").click().run()
    assert sentences(at) == []
    return at


def change_setting(at, key: str, value):
    for _ in range(2):  # popovers do not stay open in these tests; the first run draws the widgets
        at.run()
    at.slider(key=key).set_value(value).run()
    return at


def reported(at) -> str:
    return html.unescape(" ".join(element.proto.body for element in at.get("html")))


def test_a_recorded_run_without_rows_says_what_to_do_and_is_decoded_again():
    at = open_with(Run(recorded_run("tree_helps"), "recorded"))
    assert sentences(at) == []
    before = at.session_state["run"]
    assert before.source == "recorded"
    assert "a recorded run" in " ".join(element.value for element in at.markdown)
    press(at, "what_if_again")
    run = at.session_state["run"]
    assert run.source == "decoded" and run is not before
    assert run.trace.output_ids[: len(before.trace.output_ids)] == before.trace.output_ids
    assert (run.asked.prompt, run.asked.method.name) == (prompt_of(run.trace), run.trace.method), "a link can hold it"
    assert history_of(at).branches[0].run is run
    assert "what_if_again" not in {button.key for button in at.button}


def test_the_page_opens_with_a_recorded_run_a_branch_and_a_change_to_fork():
    at = open_page(PAGE)
    assert sentences(at) == []
    history = history_of(at)
    assert history.branches[0].run.trace is logits_run()
    assert history.branches[history.b].fork.kind == "replayed"
    controls = (*at.button, *at.number_input, *at.selectbox, *at.toggle)
    settings = ("what_if_method", "what_if_sampling")  # in a panel of their own; some depend on others
    assert [each.key for each in controls if each.disabled and not each.key.startswith(settings)] == []
    press(at, "what_if_fork")
    assert [branch.fork.kind for branch in history.branches.values() if branch.fork] == ["replayed"] * 2
    press(at, "what_if_step_b")
    assert sentences(at) == []
    branch = history.branches[history.b]
    assert branch.fork.kind == "live" and len(branch.run.trace.iterations) == branch.at + 2
    press(at, "what_if_step_a")
    assert len(history.branches[0].run.trace.iterations) == len(logits_run().iterations) + 1


def test_a_change_of_ones_own_replaces_the_proposed_one():
    at = open_page(PAGE)
    history = history_of(at)
    assert history.interventions == (history.example,) and any("An example, from" in m.value for m in at.markdown)
    change_setting(at, "what_if_sampling_temperature", 0.5)
    assert history_of(at).interventions == ()
    assert not any("An example, from" in m.value for m in at.markdown)


@pytest.mark.slow
def test_a_recorded_run_without_rows_is_forked_by_its_models():
    at = force(open_with(Run(recorded_run("tree_helps"), "recorded")), "accept", 1)
    press(at, "what_if_fork")
    assert sentences(at) == []
    assert history_of(at).branches[1].fork.kind == "live"


def test_a_setting_becomes_a_branch_beside_the_run(page):
    assert page.button(key="what_if_fork").disabled
    change_setting(page, BUDGET, 2)
    press(page, "what_if_fork")
    assert sentences(page) == []
    history = history_of(page)
    branch = history.branches[history.b]
    assert (history.a, branch.parent, branch.at) == (0, 0, 1)
    assert "N_max" in branch.label and branch.fork.kind == "replayed"
    assert branch.run.trace.iterations[1].drafted <= 2
    assert branch.run.trace.iterations[:1] == history.branches[0].run.trace.iterations[:1]
    assert fork_summary(history.iteration(0), history.iteration(1)) in reported(page)
    assert "no model ran" in reported(page)
    assert page.button(key="what_if_fork").disabled, "the change has been used"


@pytest.mark.slow
def test_the_models_run_where_that_is_asked_for(page):
    page.toggle(key="what_if_live").set_value(True).run()
    change_setting(page, BUDGET, 2)
    press(page, "what_if_fork")
    history = history_of(page)
    assert history.branches[1].fork.kind == "live"
    assert history.iteration(1).timed
    assert "no model ran" not in reported(page)


@pytest.mark.slow
def test_the_models_also_run_for_a_change_that_is_offered(page):
    page.toggle(key="what_if_live").set_value(True).run()
    press(page, "what_if_starter_0")
    assert history_of(page).branches[1].fork.kind == "live"
    page.button(key="what_if_delete_b").click().run()
    assert "1 branch holds its KV cache" in memory_words(history_of(page)), "it is held as long as it can come back"


@pytest.mark.slow
def test_values_beyond_the_widgets_are_no_change_until_they_are_moved():
    at = open_with(decoded(2, "iid_paths", 20, Sampling(3.5, seed=2**40)))
    for _ in range(2):
        at.run()
    assert at.slider(key="what_if_sampling_temperature").value == 2.0
    assert at.button(key="what_if_fork").disabled
    at.slider(key="what_if_sampling_top_p").set_value(0.5).run()
    press(at, "what_if_fork")
    assert sentences(at) == []
    assert history_of(at).branches[1].run.trace.sampling == SamplingTrace(3.5, 0.5, 1.0, 2**40)


@pytest.mark.slow
def test_a_contradiction_in_the_settings_cannot_be_forked(page):
    change_setting(page, setting_key("what_if_method", "dynatree", "base_depth"), 8)
    change_setting(page, setting_key("what_if_method", "dynatree", "max_depth"), 3)
    assert any("“Base depth”" in sentence for sentence in sentences(page))
    assert page.button(key="what_if_fork").disabled


def test_forced_nodes_become_a_branch_that_says_what_it_breaks():
    run = decoded()
    found = ((i, node) for i in run.trace.iterations for node in i.nodes if node.verdict == "rejected")
    iteration, rejected = next(found)
    page = open_with(run, iteration.index)
    force(page, "accept", rejected.node_id)
    assert history_of(page).interventions == (Edit("accept", node_paths(iteration)[rejected.node_id], rejected.text),)
    press(page, "what_if_fork")
    history = history_of(page)
    forked = history.iteration(history.b)
    assert forked.committed_ids[len(node_paths(iteration)[rejected.node_id]) - 1] == rejected.token_id
    assert FORCED in reported(page)
    assert FORCED in history.branches[1].line().bias
    assert history.interventions == ()


@pytest.mark.slow
def test_a_fork_opened_from_a_file_says_what_it_broke_and_that_it_was_replayed():
    at = open_with(decoded(), 0)
    force(at, "accept", history_of(at).iteration(0).children(0)[0])
    made = press(at, "what_if_fork").session_state[KEY].branches[1].run.trace
    file = io.BytesIO()
    save_run(made, file)
    line = Branch(0, Run(load_run(file), "opened")).line()
    assert FORCED in line.bias and line.kind == "replayed"


@pytest.mark.slow
def test_a_node_is_taken_out_and_the_text_stays_the_targets(page):
    iteration = history_of(page).iteration(0)
    node = iteration.accepted[0]
    force(page, "out", node)
    press(page, "what_if_fork")
    history = history_of(page)
    paths = {node_paths(history.iteration(1))[each.node_id] for each in history.iteration(1).nodes if each.flat_index}
    assert node_paths(iteration)[node] not in paths
    assert history.branches[1].bias == ""
    press(page, "what_if_end_b")
    target = decoded(None, "autoregressive")
    assert history.branches[1].run.trace.output_ids == target.trace.output_ids


@pytest.mark.slow
def test_a_forced_node_can_be_taken_back(page):
    force(page, "reject", 1)
    assert not page.button(key="what_if_fork").disabled
    page.button(key="what_if_reject").click().run()
    assert history_of(page).interventions == ()
    force(page, "reject", 1)
    page.button(key="what_if_accept").click().run()
    assert [edit.kind for edit in history_of(page).interventions] == ["accept"], "one node is forced in one way"
    page.button(key="what_if_clear").click().run()
    assert history_of(page).interventions == ()


def test_a_child_is_added_from_the_likeliest_tokens(page):
    history = history_of(page)
    history.nodes["A"] = 0
    page.run()
    page.session_state["what_if_child_open"] = True
    page.run()
    iteration = history.iteration(0)
    offered = child_tokens(iteration, 0)
    assert not {iteration.nodes[child].token_id for child in iteration.children(0)} & set(offered)
    token = next(iter(offered))
    page.session_state["what_if_child_open"] = True
    page.button(key="what_if_child_add").click().run()
    assert history.interventions == (Edit("force_in", (token,), offered[token][0]),)
    press(page, "what_if_fork")
    assert sentences(page) == []
    tree = history.iteration(history.b)
    assert token in {tree.nodes[child].token_id for child in tree.children(0)}


@pytest.mark.slow
def test_a_replayed_branch_goes_on_with_the_models(page):
    press(page, "what_if_starter_0")
    history = history_of(page)
    assert history.branches[1].fork.kind == "replayed"
    press(page, "what_if_step_b")
    branch = history.branches[1]
    assert len(branch.run.trace.iterations) == 3 and branch.fork.kind == "live"
    assert history.index == 2
    press(page, "what_if_end_b")
    assert branch.run.trace.totals.stopped != "unfinished"
    assert page.button(key="what_if_step_b").disabled
    assert history.index == len(branch.run.trace.iterations) - 1


@pytest.mark.slow
def test_the_end_of_one_side_leaves_the_other_on_an_iteration_that_it_has(page):
    press(page, "what_if_starter_0")
    press(page, "what_if_end_a")
    press(page, "what_if_end_b")
    history = history_of(page)
    ends = [len(branch.run.trace.iterations) for branch in history.shown()]
    assert all(branch.ended for branch in history.shown()) and ends[0] < ends[1]
    assert history.index == ends[0] - 1
    history.look_at(ends[1] - 1)
    page.run()
    assert sentences(page) == []
    assert f"A ended at iteration {ends[0]} and has no iteration {ends[1]}" in reported(page)
    assert page.button(key="what_if_fork").disabled


def test_a_missing_token_that_was_pruned_is_called_so():
    cut = traces.pruned()
    child = next(node for node in cut.nodes if node.pruned and node.parent_id == cut.accepted[-1])
    asked = Edit("force_in", node_paths(cut)[child.node_id], child.text)
    assert missing_words(cut, asked).endswith("which was drafted but pruned")
    other = replace(asked, path=(*node_paths(cut)[child.parent_id], -5))
    assert missing_words(cut, other).startswith("Add the missing token")


def test_the_run_itself_goes_on_too(page):
    press(page, "what_if_step_a")
    assert len(page.session_state["run"].trace.iterations) == 6
    assert history_of(page).index == 5


def test_two_branches_stand_side_by_side_and_a_fork_can_be_forked(page):
    press(page, "what_if_starter_0")
    press(page, "what_if_step_b")
    history = history_of(page)
    history.show(1, "A")
    page.run()
    assert (history.a, history.b) == (1, 0)
    force(page, "accept", 1)
    press(page, "what_if_fork")
    assert sentences(page) == []
    second = history.branches[2]
    assert (second.parent, second.at, history.a, history.b) == (1, 2, 1, 2)
    assert history.part_at() == 2
    page.selectbox(key="what_if_b").set_value(0).run()
    assert (history.a, history.b) == (1, 0)
    assert history.part_at() == 1
    page.selectbox(key="what_if_a").set_value(2).run()
    assert history.part_at() == 1
    page.number_input(key="what_if_iteration").set_value(1).run()
    assert "they diverge at iteration 2" in reported(page)


@pytest.mark.slow
def test_a_shared_iteration_is_forked_from_the_branch_that_made_it(page):
    press(page, "what_if_starter_0")
    history = history_of(page)
    history.show(1, "A", 0)
    page.run()
    force(page, "accept", 1)
    press(page, "what_if_fork")
    assert (history.branches[2].parent, history.branches[2].at) == (0, 0)
    assert (history.a, history.b) == (1, 2)


@pytest.mark.slow
def test_a_deleted_branch_takes_its_forks_with_it(page):
    press(page, "what_if_starter_0")
    press(page, "what_if_step_b")
    history = history_of(page)
    history.show(1, "A")
    page.run()
    force(page, "accept", 1)
    press(page, "what_if_fork")
    page.button(key="what_if_delete_a").click().run()
    assert sentences(page) == []
    assert list(history.branches) == [0]
    assert (history.a, history.b) == (0, None)
    assert "what_if_delete_a" not in [button.key for button in page.button], "the run itself stays"


@pytest.mark.slow
def test_a_deletion_can_be_undone_until_the_next_fork(page):
    press(page, "what_if_starter_0")
    history = history_of(page)
    before, seen = dict(history.branches), (history.a, history.b)
    page.button(key="what_if_delete_b").click().run()
    said = " ".join(element.value for element in page.markdown)
    assert "Deleted: branch 1. You can undo this until the next fork" in said
    page.button(key="what_if_undo").click().run()
    assert sentences(page) == []
    assert history.branches == before and (history.a, history.b) == seen
    assert "what_if_undo" not in {button.key for button in page.button}
    page.button(key="what_if_delete_b").click().run()
    press(page, "what_if_starter_0")
    assert list(history.branches) == [0, 2]
    assert history.deleted is None


@pytest.mark.slow
def test_few_branches_keep_their_caches_and_the_others_read_their_text_again(page):
    page.toggle(key="what_if_live").set_value(True).run()
    for number in range(1, MOST_HELD + 2):
        history_of(page).look_at(1)
        force(page, "reject", 1)
        press(page, "what_if_fork")
        history_of(page).show(0, "A")
        assert sentences(page) == [], number
    history = history_of(page)
    assert [branch.number for branch in held(history)] == list(range(2, MOST_HELD + 2))
    assert "older ones have released it" in memory_words(history)
    oldest, other = history.branches[1], history.branches[2]
    assert "cache released" in oldest.line().note and "cache released" not in other.line().note
    history.show(1, "B")
    page.run()
    assert "read its text again" in page.button(key="what_if_step_b").proto.help
    press(page, "what_if_step_b")
    history.show(2, "B")
    page.run()
    press(page, "what_if_step_b")
    assert [branch.number for branch in held(history)][-2:] == [1, 2]
    assert len(held(history)) == MOST_HELD
    assert oldest.run.trace.iterations[2].committed_ids == other.run.trace.iterations[2].committed_ids
    assert "cache released" in history.branches[3].line().note


@pytest.mark.slow
def test_a_branch_becomes_the_run_on_screen_and_comes_back(page):
    press(page, "what_if_starter_0")
    press(page, "what_if_step_b")
    history = history_of(page)
    branch = history.branches[1]
    page.button(key="what_if_look_b").click().run()
    assert page.session_state["run"] is branch.run
    page.switch_page("pages/step_through.py").run()
    assert sentences(page) == []
    assert "A branch from What if" in " ".join(caption.value for caption in page.caption)
    page.button(key="one_more").click().run()
    finish(page, "step")
    assert len(branch.run.trace.iterations) == 4
    page.switch_page(PAGE).run()
    assert history_of(page) is history and history.a == 1
    press(page, "what_if_step_a")
    assert len(branch.run.trace.iterations) == 5, "it goes on from where Step through has brought it"


@pytest.mark.slow
def test_step_through_leads_here_to_its_iteration_and_node():
    at = open_page(None)
    run = decoded()
    node = run.trace.iterations[1].flatten_order[-1]
    at.session_state["run"], at.session_state["iteration"], at.session_state["node"] = run, 1, node
    at.switch_page("pages/step_through.py").run()
    at.button(key="what_if_from_here").click().run()
    at.switch_page(PAGE).run()
    assert (history_of(at).index, history_of(at).nodes["A"]) == (1, node)
    assert not at.button(key="what_if_accept").disabled


@pytest.mark.slow
def test_another_run_begins_another_history(page):
    press(page, "what_if_starter_0")
    page.session_state["run"] = decoded(1)
    page.run()
    assert list(history_of(page).branches) == [0]


@pytest.mark.slow
def test_a_reloaded_page_has_the_run_of_its_address_with_its_branches(page):
    press(page, "what_if_starter_0")
    before = history_of(page)
    for branch in before.branches.values():  # the run itself, and the branch once it was looked into
        store().put(branch.run)
        at = open_page(None)
        at.switch_page(PAGE)
        at.query_params["run"], at.query_params["iteration"] = branch.run.id, "2"
        history = history_of(at.run())
        assert history is not before and history.branches == before.branches and history.index == 1
        assert (history.a, history.b) == (branch.number, 1 - branch.number)
        assert at.session_state["worker_address"][2] == {"run": [branch.run.id], "iteration": ["2"]}
    force(at, "reject", 1)
    press(at, "what_if_fork")
    assert list(history_of(at).branches) == [0, 1, 2] and list(before.branches) == [0, 1]


@pytest.mark.slow
def test_a_saved_run_with_rows_is_replayed_without_its_models():
    buffer = io.BytesIO()
    save_run(decoded().trace, buffer)
    buffer.seek(0)
    at = open_with(Run(load_run(buffer), "opened"))
    press(at, "what_if_starter_0")
    assert sentences(at) == []
    assert history_of(at).branches[1].fork.kind == "replayed"
    assert at.button(key="what_if_step_b").disabled
    assert "require decoding the run again" in " ".join(element.value for element in at.markdown)
    press(at, "what_if_again")
    assert at.session_state["run"].session is not None


@pytest.mark.slow
def test_a_branch_whose_models_are_gone_says_so(page):
    session = history_of(page).branches[0].run.session
    target = SimpleNamespace(released=True, info=session.pair.target.info)
    kept, session.pair = session.pair, SimpleNamespace(target=target, info=session.pair.info)
    page.toggle(key="what_if_live").set_value(True).run()
    force(page, "accept", 1)
    try:
        page.button(key="what_if_fork").click().run()
        finish(page, "what_if")
        (sentence,) = sentences(page)
    finally:
        session.pair = kept
    assert "released" in sentence
    assert list(history_of(page).branches) == [0]
    assert history_of(page).interventions, "the change is still there to be tried again"


def test_starters_name_what_this_iteration_offers():
    tree = traces.dynatree_recovered()
    labels = [label for label, *_ in starters(tree, {"node_budget": 64})]
    assert labels == [
        "Draft at most 6 nodes, not 13",
        "Add the missing token ‘No’ to the tree",
        "Accept ‘.’, which was rejected",
    ]
    assert missing_token(tree).path == (*node_paths(tree)[3], tree.committed_ids[-1])
    assert missing_token(traces.bonus()) is None
    assert starters(traces.autoregressive(), {})[0][0].startswith("Add the missing token")
    assert starters(traces.summary(), {}) == []
