"""Verifiers: all on one tree, replayed without a model; another tree drafted on the same prefix; the whole run."""

import html
import re
from dataclasses import replace

import pytest

from decoding.recorded import home_run, logits_run, recorded_run
from decoding.replay.replay import recorded_outcome, replay
from decoding.replay.stored_state import sampling_of
from decoding.replay.theory import EntryStep, node_steps
from decoding.verifiers import VERIFIERS
from pages.ui.common.state import Run
from pages.ui.common.worker import ModelTask
from pages.ui.verify import tree
from pages.ui.verify.state import Looked
from pages.ui.verify.tree import OWN, refused_words, table_data, table_html, words_html
from tests.helpers.families import family
from tests.helpers.traces import ended
from tests.pages.apptest import finish, open_page, sentences
from viz.scope.phases import FINAL_ID

PAGE = "pages/verifiers.py"


def without_logits(**changed):
    """The page with a recorded run whose logits were not kept."""
    at = open_page(None)
    at.session_state["run"] = Run(replace(recorded_run("tree_helps"), **changed), "recorded")
    return at.switch_page(PAGE).run()


@pytest.fixture
def page():
    """The page with a short sampled run of its own."""
    at = without_logits(max_new_tokens=16)
    at.session_state["verify_rerolls"] = 100  # at first 1,000, a second of work whenever a setting moves
    at.button(key="verify_sampled").click().run()
    return finish(at, "verify")


def run_of(at) -> Run:
    return at.session_state["run"]


def captions(at) -> str:
    return " ".join(caption.value for caption in at.caption).replace("\\", "")


def reported(at) -> str:
    return " ".join(element.proto.body for element in at.get("html"))


def results(at, kind: str) -> dict:
    return {key: value for key, value in at.session_state["results"].items() if key[0] == kind}


def looked_at(at) -> Looked:
    """What the page looks at, made from the session as the page does."""
    from decoding.sampling.sampling import Sampling

    run, index = run_of(at), at.session_state["iteration"]
    return Looked((run.key, index), run, run.trace.iterations[index], "i.i.d. paths", "traversal", Sampling(1.0))


@pytest.mark.slow
def test_a_tree_drafted_again_is_given_up_where_it_is_not_wanted_any_more(page):
    from decoding.common.interruption import CancelledError, interruptible
    from decoding.methods.methods import METHODS
    from pages.ui.verify.draft import draft_again

    looked = looked_at(page)

    def not_wanted(may_wait: bool, timed: bool) -> float:
        if may_wait:
            raise CancelledError
        return 0.0

    with interruptible(not_wanted), pytest.raises(CancelledError):
        draft_again(looked, METHODS["linear"], looked.sampling, ModelTask("Drafting", lambda job: None))


@pytest.mark.parametrize("page_before", family([None, "pages/step_through.py"], None))
def test_the_page_opens_with_a_recorded_run_on_which_every_control_works(page_before):
    at = open_page(page_before)
    at.switch_page(PAGE).run()
    assert sentences(at) == [] and not at.info
    assert run_of(at).trace is logits_run()
    controls = (*at.button, *at.slider, *at.number_input, *at.selectbox)
    assert [each.key for each in controls if each.disabled] == []
    (exact,) = results(at, "exact").values()
    assert [each.verifier.name for each in exact if each.refusal] == ["greedy"]
    at.button(key="verify_run").click().run()
    assert sentences(finish(at, "verify_run")) == []


def test_a_recorded_run_says_what_is_missing_and_what_to_do():
    at = without_logits()
    assert sentences(at) == []
    assert "recorded without the full logits" in at.info[0].value
    assert not at.slider
    assert not at.button(key="verify_sampled").disabled
    assert not at.button(key="verify_as_it_was").disabled


@pytest.mark.slow
def test_the_prompt_is_decoded_again_with_every_row(page):
    assert sentences(page) == []
    assert not page.info
    trace = run_of(page).trace
    assert trace.method == "iid_paths" and trace.sampling.temperature == 1.0
    assert all(iteration.target_logits is not None for iteration in trace.iterations)
    assert trace.totals.new_tokens >= 1
    assert page.slider(key="verify_temperature").value == 1.0
    assert "a tree of independent draws" in captions(page)
    assert "without running a model" in captions(page)


@pytest.mark.slow
def test_as_it_was_takes_method_settings_and_prompt_of_the_run():
    at = without_logits()
    before = run_of(at).trace
    at.button(key="verify_as_it_was").click().run()
    finish(at, "verify")
    after = run_of(at).trace
    assert (after.method, dict(after.settings)) == (before.method, dict(before.settings))
    assert after.prompt_ids == before.prompt_ids
    assert after.output_ids == before.output_ids, "greedy decoding repeats itself"
    assert "fit it: press Draft again" in captions(at) or "fits it: press Draft again" in captions(at)


def test_every_verifier_has_its_exact_and_its_replayed_figures(page):
    (exact,) = results(page, "exact").values()
    assert [each.verifier.name for each in exact] == list(VERIFIERS)
    assert [each.verifier.name for each in exact if each.refusal] == ["greedy"]
    (rolled,) = results(page, "rolled").values()
    assert set(rolled) == set(VERIFIERS) - {"greedy"}
    assert all(sum(counts.values()) == 100 for counts in rolled.values())


@pytest.mark.slow
def test_the_first_row_is_what_the_run_did(page):
    iteration = looked_at(page).iteration
    walk = recorded_outcome(iteration)
    assert (walk.accepted, walk.final_token) == (iteration.accepted, iteration.committed_ids[-1])
    assert "as in the run" in reported(page), "at first the table of tests tells of the draws of the run"
    page.session_state["verify_verifier"] = "traversal"
    page.run()
    assert "as in the run" not in reported(page)
    assert f"seed {page.number_input(key='verify_seed').value}" in reported(page)


def test_a_walk_cut_by_the_end_of_the_text_has_no_final_token():
    walk = recorded_outcome(ended())
    assert (walk.final_kind, walk.final_token, walk.tokens) == ("none", -1, len(ended().committed_ids))


@pytest.mark.slow
def test_a_slider_replays_the_same_tree(page):
    before = run_of(page).trace.iterations
    page.slider(key="verify_temperature").set_value(0.5).run()
    page.slider(key="verify_top_p").set_value(0.9).run()
    assert sentences(page) == []
    assert run_of(page).trace.iterations is before
    sampling = list(results(page, "exact"))[-1][2]
    assert (sampling.temperature, sampling.top_p, sampling.draft_temperature) == (0.5, 0.9, 1.0)
    expected = [
        {each.verifier.name: each.expected_tokens for each in value if each.refusal is None}
        for value in results(page, "exact").values()
    ]
    assert len(expected) == 3
    assert expected[0] != expected[1]


@pytest.mark.slow
def test_another_seed_changes_the_walk_and_not_the_rest(page):
    page.number_input(key="verify_seed").set_value(7).run()
    first, second = (
        [each for each in reported if each.refusal is None] for reported in results(page, "exact").values()
    )
    assert [each.expected_tokens for each in first] == [each.expected_tokens for each in second] != []
    assert len(results(page, "rolled")) == 1, "the re-rolled seeds are the same ones"
    page.selectbox(key="verify_rerolls").set_value(1000).run()
    assert {sum(counts.values()) for counts in list(results(page, "rolled").values())[-1].values()} == {1000}


@pytest.mark.slow
def test_temperature_0_lets_greedy_in_and_top_p_rest(page):
    page.slider(key="verify_temperature").set_value(0.0).run()
    assert page.slider(key="verify_top_p").disabled
    exact = {each.verifier.name: each for each in list(results(page, "exact").values())[-1]}
    assert exact["greedy"].refusal is None
    assert exact["greedy"].expected_tokens == pytest.approx(exact["nss"].expected_tokens)


@pytest.mark.slow
def test_the_chosen_verifier_is_the_one_that_steps_are_shown_of(page):
    assert "Traversal tests a child" in reported(page), "at first the verifier of the run"
    page.session_state["verify_verifier"] = "spectr"
    page.run()
    assert "SpecTr tests all entries" in reported(page)
    assert "best possible" in reported(page)
    page.session_state["verify_verifier"] = "greedy"
    page.run()
    assert sentences(page) == []
    assert "Traversal tests a child" in reported(page), "a verifier that refuses cannot be looked at"


@pytest.mark.slow
def test_the_node_clicked_is_the_one_whose_entries_are_shown(page):
    iteration = looked_at(page).iteration
    child = next(node.node_id for node in iteration.nodes[1:] if iteration.children(node.node_id))
    page.session_state["verify_node"] = (looked_at(page).key, child)
    page.run()
    assert f"node {child}, depth" in reported(page)
    leaf = next(node.node_id for node in iteration.nodes[1:] if not iteration.children(node.node_id))
    page.session_state["verify_node"] = (looked_at(page).key, leaf)
    page.run()
    parent = iteration.nodes[leaf].parent_id
    assert (f"node {parent}, depth" if parent else "the root") in reported(page)
    assert f"(node {leaf}) is a leaf: nothing is chosen after it. Shown is its parent" in captions(page)


@pytest.mark.slow
def test_a_pruned_node_is_seen_at_the_nearest_place_whose_children_were_verified(page):
    looked = looked_at(page)
    nodes = looked.iteration.nodes
    leaf = max(nodes, key=lambda node: node.depth)
    gone = [replace(node, flat_index=None if node.depth >= leaf.depth - 1 else node.flat_index) for node in nodes]
    looked = replace(looked, iteration=replace(looked.iteration, nodes=tuple(gone)))
    at = tree.tested_at(looked, leaf.node_id)
    assert nodes[at].depth == max(leaf.depth - 3, 0)
    said = tree.fallback_words(looked, leaf.node_id, at)
    assert "was removed before verification, so no verifier tests it. Shown is" in said
    assert tree.fallback_words(looked, at, at) == ""
    bare = nodes[leaf.parent_id].parent_id  # its children are all among those removed
    assert "has no verified children: nothing is chosen after it" in tree.fallback_words(looked, bare, at)


@pytest.mark.slow
def test_the_verifiers_that_accept_more_in_expectation_are_named(page):
    looked = looked_at(page)
    rows = {each.verifier.name: each for each in replay(looked.iteration, looked.sampling, rerolls=0)}
    fitting = {name: each for name, each in rows.items() if each.refusal is None}
    least = min(fitting, key=lambda name: fitting[name].expected_tokens)
    best = max(fitting.values(), key=lambda each: each.expected_tokens)
    said = tree.most_words(replace(looked, verifier=least), rows)
    assert said.startswith(f"**More expected tokens on this tree than {fitting[least].verifier.label}, which")
    assert f": {best.verifier.label} {best.expected_tokens:.2f}" in said and "“Over the run” below averages" in said
    said = tree.most_words(replace(looked, verifier=best.verifier.name), rows)
    assert said.startswith("**No other verifier has more expected tokens") and f"{best.expected_tokens:.2f}**" in said
    assert tree.most_words(replace(looked, verifier="gone"), rows).startswith("**Most expected tokens on this")


@pytest.mark.slow
def test_what_reads_the_same_is_as_many_in_the_sentence_and_bold_in_the_table(page):
    looked = looked_at(page)
    exact = replay(looked.iteration, looked.sampling, rerolls=0)
    fitting = [each for each in exact if each.refusal is None]
    tokens = dict(zip((each.verifier.name for each in fitting), (1.0053, 1.0121, 1.0098, 1.0049), strict=False))
    one, most, alike, less = tokens
    rows = {
        name: replace(each, expected_tokens=tokens[name]) for each in fitting if (name := each.verifier.name) in tokens
    }
    said = tree.most_words(replace(looked, verifier=one), rows)
    labels = [VERIFIERS[name].label for name in (most, alike)]
    assert f"1.01**; as many: {labels[0]} and {labels[1]}; next is {VERIFIERS[less].label} 1.00." in said
    data = table_data(looked, {OWN: rows[one], **rows}, None, most, 0)
    assert [row["name"] for row in data["rows"] if row["best"]] == [OWN, one, most, alike]


def test_a_threshold_near_0_keeps_its_digits():
    def said(drawn: float, tested_at: float, result: str) -> str:
        return tree._seed_words(EntryStep(1, "a", 0.06, 0.01, None, None, 0.0, tested_at, drawn, result))

    assert said(0.55, 0.0037, "failed") == "✗ 0.550 ≥ 0.004"
    assert said(0.8, 0.62, "failed") == "✗ 0.80 ≥ 0.62"
    assert said(0.5512, 0.5537, "passed") == "✓ 0.551 < 0.554"
    assert said(0.00001, 0.0002, "passed") == "✓ 0.0000 < 0.0002"


@pytest.mark.slow
def test_another_iteration_is_another_tree_and_step_through_shows_it_too(page):
    count = len(run_of(page).trace.iterations)
    page.number_input(key="verify_iteration").set_value(count).run()
    assert page.session_state["iteration"] == count - 1
    assert {key[1] for key in results(page, "exact")} >= {(run_of(page).key, count - 1)}
    at = page.switch_page("pages/step_through.py").run()
    assert at.session_state["iteration"] == count - 1


@pytest.mark.slow
def test_another_tree_is_drafted_on_the_very_prefix(page):
    at, iterations = page, run_of(page).trace.iterations
    index = at.session_state["iteration"]
    at.session_state["verify_draft_open"] = True
    at.run()
    at.selectbox(key="verify_method").set_value("dyspec").run()
    at.slider(key="verify_draft_temperature").set_value(0.6).run()
    at.button(key="verify_draft").click().run()
    finish(at, "verify")
    assert sentences(at) == []
    drafted = at.session_state["verify_drafted"]
    assert drafted.iteration.prefix_length == iterations[index].prefix_length
    assert drafted.iteration.nodes[0].token_id == iterations[index].nodes[0].token_id
    assert (drafted.iteration.draft_sampling, drafted.sampling.draft_temperature) == ("without_replacement", 0.6)
    assert run_of(at).trace.iterations is iterations, "the run stays"
    assert "drafted on this page" in captions(at) and "draft temperature 0.6" in captions(at)
    refused = {each.verifier.name for each in list(results(at, "exact").values())[-1] if each.refusal}
    assert refused == {"greedy", "spectr", "specinfer", "khisti", "traversal"}
    at.button(key="verify_back").click().run()
    assert "drafted on this page" not in captions(at)


@pytest.mark.slow
def test_settings_that_contradict_one_another_are_one_sentence(page):
    page.session_state["verify_draft_open"] = True
    page.run()
    page.selectbox(key="verify_method").set_value("dynatree").run()
    page.slider(key="verify_method_dynatree_base_depth").set_value(9).run()
    assert len(sentences(page)) == 1
    assert page.button(key="verify_draft").disabled


@pytest.mark.slow
def test_rows_that_were_let_go_are_said(page):
    run = run_of(page)
    first = replace(run.trace.iterations[0], target_logits=None, draft_logits=None)
    run.trace = replace(run.trace, iterations=(first, *run.trace.iterations[1:]))
    page.number_input(key="verify_iteration").set_value(1).run()
    assert "dropped to limit memory" in page.info[0].value
    assert all(button.key != "verify_sampled" for button in page.button)


@pytest.mark.slow
def test_a_run_of_another_pair_is_one_sentence():
    at = open_page(PAGE)
    trace = recorded_run("tree_helps")
    at.session_state["run"] = Run(replace(trace, pair=replace(trace.pair, name="other pair")), "opened")
    at.run()
    at.button(key="verify_sampled").click().run()
    finish(at, "verify")
    assert len(sentences(at)) == 1 and "decoded by other pair" in sentences(at)[0]


@pytest.mark.slow
def test_theory_over_the_run_is_computed_once_asked(page):
    page.button(key="verify_run").click().run()
    finish(page, "verify_run")
    assert sentences(page) == []
    _, theory = page.session_state["results"]["run_theory", run_of(page).key]
    assert theory.trees == sum(iteration.drafted > 0 for iteration in run_of(page).trace.iterations)
    assert page.button(key="verify_run").disabled
    assert f"{theory.trees} trees" in captions(page)
    assert "Compare Figure 2 of DySpec" in captions(page)

    def figures() -> list[tuple]:
        return [made for key, made in page.session_state["results"].items() if key[0] == "run_theory_charts"]

    page.segmented_control(key="verify_draws").set_value(1).run()
    first, second = figures()
    assert second[0] is not first[0]
    page.number_input(key="verify_seed").set_value(3).run()
    assert len(figures()) == 2, "figures of the run are not built again"
    page.slider(key="verify_temperature").set_value(0.7).run()
    assert not page.button(key="verify_run").disabled
    assert "has changed since" in captions(page)


@pytest.mark.slow
def test_autoregressive_iterations_have_one_token_with_every_verifier(page):
    at = page
    looked = looked_at(at)
    bare = replace(
        looked.iteration, nodes=looked.iteration.nodes[:1], flatten_order=(0,), drafted=0, verified=0, tree_depth=0,
        draft_sampling="none", drawn=(), draft_logits=None, accepted=(), steps=(),
    )  # fmt: skip
    trace = replace(run_of(at).trace, iterations=(bare, *run_of(at).trace.iterations[1:]))
    at.session_state["run"], at.session_state["iteration"] = Run(trace), 0
    at.run()
    assert sentences(at) == []
    assert "there is nothing to test" in captions(at)
    exact = list(results(at, "exact").values())[-1]
    assert {each.expected_tokens for each in exact if each.refusal is None} == {1.0}


@pytest.mark.slow
def test_the_table_holds_plain_texts_and_both_distributions_of_the_count(page):
    looked = looked_at(page)
    exact = replay(looked.iteration, looked.sampling, rerolls=0)
    walked = {each.verifier.name: each for each in exact}
    walked = {OWN: replace(walked["traversal"], outcome=recorded_outcome(looked.iteration))} | walked
    data = table_data(looked, walked, {each.verifier.name: {1: 60, 2: 40} for each in exact}, "spectr", 100)
    rows = {row["name"]: row for row in data["rows"]}
    assert list(rows) == [OWN, *VERIFIERS] and data["selected"] == "spectr"
    assert "needs temperature 0" in rows["greedy"]["refusal"] and "expected" not in rows["greedy"]
    for each in exact[1:]:
        row = rows[each.verifier.name]
        mean = sum(tokens * chance for tokens, chance in enumerate(row["exact"], start=1))
        assert mean == pytest.approx(row["expected"]) == pytest.approx(each.expected_tokens)
        assert row["rolled"][:2] == [0.6, 0.4]
        assert len(row["path"]) == len(each.outcome.accepted)
    assert data["most"] == max(row["expected"] for row in rows.values() if not row["refusal"])
    assert [name for name, row in rows.items() if row["own"]] == [OWN]
    waiting = table_data(looked, walked, None, "spectr", 100)
    assert {row.get("rolled") for row in waiting["rows"]} == {None}


@pytest.mark.slow
def test_token_text_in_words_and_table_is_escaped(page):
    looked = looked_at(page)
    evil = "<img src=x>"
    nodes = tuple(replace(node, text=evil) for node in looked.iteration.nodes)
    looked = replace(looked, iteration=replace(looked.iteration, nodes=nodes))
    replayed = replay(looked.iteration, looked.sampling, [VERIFIERS["nss"]()], rerolls=0)[0]
    steps = node_steps(looked.iteration, looked.sampling, replayed, 0, lambda token: evil)
    markup = words_html(looked, replayed, steps) + table_html(steps, "seed 0", "target")
    assert "<img" not in markup and "&lt;img" in markup


@pytest.mark.slow
def test_verifiers_that_do_not_fit_share_one_line(page):
    looked = replace(looked_at(page), iteration=replace(looked_at(page).iteration, draft_sampling="deterministic"))
    assert refused_words(looked, 2) == ""
    assert refused_words(looked, 9).startswith("9 verifiers do not fit trees of the draft's likeliest tokens")


@pytest.mark.slow
def test_a_recovered_token_is_looked_at_where_the_path_ended(page):
    looked = looked_at(page)
    page.session_state["node"] = FINAL_ID
    page.run()
    stop = looked.iteration.accepted[-1] if looked.iteration.accepted else 0
    at = tree.tested_at(looked, stop)
    assert (f"node {at}, depth" if at else "the root") in reported(page)


@pytest.mark.slow
def test_the_run_whose_tree_was_asked_about_stays_though_it_has_no_logits():
    at = open_page(None)
    run = Run(home_run(), "recorded")
    at.session_state["run"] = run
    assert run_of(at.switch_page(PAGE).run()).trace is not home_run(), "nobody chose it: one with logits is shown"
    at.session_state["run"], at.session_state["verify_asked"] = run, run.key
    assert run_of(at.run()).trace is home_run()
    assert any("Decode its prompt again" in each.value for each in at.info)


@pytest.mark.parametrize("name", ["traversal", "nss"])
def test_a_verifier_says_that_it_is_lossless_before_how_far_one_drawn_tree_is_off(name):
    run = logits_run()
    iteration, sampling = run.iterations[2], sampling_of(run)
    looked = Looked(("a", 2), Run(run, "recorded"), iteration, run.label, name, sampling)
    (replayed,) = replay(iteration, sampling, [VERIFIERS[name]()], rerolls=0)
    said = words_html(looked, replayed, node_steps(iteration, sampling, replayed, 0, str))
    assert f". Lossless: {html.escape(tree.EVEN_OUT)}" in said and "bias" not in said
    assert re.search(r"[0-9a-z]\.[A-Z]", said.replace("-", "")) is None, "a space after every sentence"
    assert re.search("[0-9]\u00a0entr(y|ies)<", said)


def test_the_test_of_a_rejected_token_is_opened_where_step_through_had_it_selected(monkeypatch):
    run = logits_run()
    iteration = next(each for each in run.iterations if any(node.verdict == "rejected" for node in each.nodes))
    looked = Looked(("a", iteration.index), Run(run, "recorded"), iteration, run.label, "nss", sampling_of(run))
    monkeypatch.setattr(tree.st, "session_state", {})
    for node in iteration.nodes[1:]:
        monkeypatch.setattr(tree, "selected_node", lambda node=node: node.node_id)
        missed = node.verdict in ("rejected", "not_reached")
        assert tree.node_in_view(looked) == (node.parent_id if missed else node.node_id)
    monkeypatch.setattr(tree, "selected_node", lambda: None)
    at = replace(looked, iteration=replace(iteration, final_kind="fallback", accepted=()))
    assert tree.node_in_view(at) == 0, "where the path ended, as Step through shows at first"


def test_the_target_of_the_tests_is_named_with_its_temperature():
    run = logits_run()
    for temperature, head in ((0.0, "target · T 0"), (0.8, "target · T 0.8")):
        sampling = replace(sampling_of(run), temperature=temperature)
        (replayed,) = replay(run.iterations[2], sampling, [VERIFIERS["nss"]()], rerolls=0)
        drawn = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tree.st, "html", drawn.append)
            patch.setattr(tree, "chart", lambda figure, drawn=drawn, **_: drawn.append(figure.data[0].name))
            patch.setattr(tree, "proof_link", lambda: None)
            looked = Looked(("a", temperature), Run(run, "recorded"), run.iterations[2], run.label, "nss", sampling)
            tree.draw_steps(looked, sampling, replayed, 0, "seed 0")
        assert f">{head}</th>" in "".join(map(str, drawn)) and drawn[-1].startswith(head)
