"""The part below the scope: it follows the scope, answers on a button, and says what to do where it cannot."""

import html
import json
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from decoding.analysis.hindsight import hindsight
from decoding.analysis.luck import Luck, luck_of, lucks, run_luck
from decoding.analysis.smallest_change import SettingChange, SmallestChanges
from decoding.common.formats import chance, number, plural
from decoding.recorded import home_run, telling_iteration
from decoding.replay.stored_state import method_of
from pages.ui.common.models import manager
from pages.ui.common.state import Run
from pages.ui.common.worker import ModelTask
from pages.ui.explain.hindsight import hindsight_words, luck_html, run_html
from pages.ui.explain.reasons import TUNE, _tests, asks_for_change, change_html, key_of, path_to, try_change
from pages.ui.explain.reasons import sentences as reasons
from pages.ui.explain.subject import absent_subject, final_subject
from tests.helpers import traces
from tests.helpers.families import MEASURED
from tests.pages.apptest import finish, open_page, sentences
from tests.viz.test_cut_short import cut
from viz.explain.iteration import why_verdict
from viz.explain.known import Known
from viz.scope.cards import cards, distributions
from viz.scope.scene import build_scene
from viz.tokens import visible

PAGE = "pages/step_through.py"


def texts(at) -> str:
    """Everything that the page says."""
    words = [element.value for element in (*at.markdown, *at.caption)]
    return "\n".join([*words, *(element.proto.body for element in at.get("html"))]).replace("\\", "")


@pytest.fixture
def believed(monkeypatch):
    """Costs of passes are believed, however busy the machine was while they were measured."""
    monkeypatch.setattr("pages.ui.explain.hindsight.doubt_words", lambda run, costs: "")


@pytest.fixture(scope="module")
def sampled(pair):
    """A sampled run with its rows."""
    from decoding.methods.methods import METHODS
    from decoding.sampling.sampling import Sampling
    from decoding.session.session import DecodeSession, Limits

    method = METHODS["iid_paths"].with_settings(paths=3, length=2, verifier="specinfer")
    session = DecodeSession(
        pair, method, pair.vocabulary.encode("One day a dog"), Sampling(1.0, seed=2), Limits(10, rows="full")
    )
    list(session)
    return session.trace()


@pytest.mark.parametrize(
    ("name", "verifier"),
    [
        ("eagle2", "nss"), ("iid_paths", "specinfer"), ("iid_paths", "khisti"), ("iid_paths", "spectr"),
        ("iid_paths", "block"), ("iid_paths", "naive"), ("iid_paths", "traversal"), ("sequoia", "specinfer_wor"),
    ],
)  # fmt: skip
def test_a_greedy_run_is_explained_as_greedy_whatever_verifier_decided(pair, name, verifier):
    from decoding.methods.methods import METHODS
    from decoding.session.session import DecodeSession, Limits

    method = METHODS[name].with_settings(verifier=verifier, **MEASURED.get(name, {}))
    session = DecodeSession(pair, method, pair.vocabulary.encode("One day a dog"), limits=Limits(16))
    list(session)
    drew = 0
    for iteration in session.trace().iterations:
        drew += any(step.drawn is not None for step in iteration.steps)
        scene, known = build_scene(iteration, scene_id=""), Known(iteration)
        said = [why_verdict(iteration, node.node_id, known) for node in iteration.nodes]
        made = [cards(iteration, scene, known), distributions(iteration, scene, known)]
        shown = json.dumps(made, ensure_ascii=False)
        shown += "".join(said) + "".join(phase.caption for phase in scene.phases)
        for words in (
            "drawn from the target",
            "drawn from the residual",
            "Drawn from",
            ", drawn 0.",
            "probability when",
            "target · T",
        ):
            assert words not in shown, words
        for node, words in zip(iteration.nodes, said, strict=True):
            if node.verdict == "accepted":
                assert words.startswith("It is the target's most likely token too")
            elif node.verdict == "rejected":
                preferred = iteration.nodes[node.parent_id].target_argmax == node.token_id
                assert (", but " if preferred else "The target prefers") in words, words
    assert drew


def show(at, run, part="Why", iteration=0, **state):
    """The page with a run on screen, at one of the parts."""
    at.session_state["run"] = Run(run, "opened")
    at.session_state["iteration"], at.session_state["node"] = iteration, None
    at.session_state["why_shown"] = part
    for name, value in state.items():
        at.session_state[name] = value
    return at.run()


@pytest.mark.slow
def test_it_explains_what_the_scope_has_selected():
    at = open_page(PAGE)
    run = traces.run_of([traces.sampled_recovered()])
    assert "‘No’ was drawn from the residual" in texts(show(at, run))
    at.session_state["node"] = 8
    said = texts(at.run())
    assert "Accepted if the draw is below 0.27; it was 0.54: rejected." in said and "after ‘Yes’ was rejected" in said
    assert not sentences(at)
    at.session_state["node"] = 10
    assert "node 10 · depth 4 · not reached" in texts(at.run())
    at.session_state["node"] = -2
    assert "5th choice here at 0.050" in texts(at.run())


def test_it_says_in_one_line_which_rule_drafted_a_node_and_with_which_value():
    iteration = home_run().iterations[telling_iteration(home_run())]
    for node in iteration.nodes[1:]:
        first = reasons(iteration, absent_subject(iteration, 0, node.parent_id, node.token_id))[0]
        parent = iteration.nodes[node.parent_id]
        assert first.startswith("Drafted: the draft's ") and f"choice after ‘{visible(parent.text)}’; " in first
        assert f"allows {plural(parent.branching, 'child', 'children')}." in first and "τ_" in first
    assert not any("Drafted" in each for each in reasons(iteration, absent_subject(iteration, 0, -1, -1)))


def test_it_explains_a_token_that_was_asked_about():
    at, run = open_page(PAGE), traces.run_of([traces.dynatree_recovered()])
    show(at, run)
    key = at.session_state["run"].key
    at.session_state["absent"] = (key, 0, 3, traces._token_id("No"))
    said = texts(at.run())
    assert "after node 3 · not in the draft tree" in said and "5th choice" in said
    assert any(button.key == "why_change" for button in at.button)


@pytest.mark.slow
def test_token_text_is_escaped():
    at = open_page(PAGE)
    said = texts(show(at, traces.run_of([traces.fallback()]), node=1))
    assert "&lt;b&gt;x&lt;/b&gt;" in said and "<b>x</b>" not in said


def test_only_tokens_outside_the_verified_tree_ask_for_a_change():
    iteration = traces.dynatree_recovered()
    absent = absent_subject(iteration, 0, 3, traces._token_id("No"))
    assert absent.node is None and asks_for_change(iteration, absent)
    assert path_to(iteration, absent) == tuple(traces._token_id(text) for text in (",", ' "', "No"))
    drafted = absent_subject(iteration, 0, 3, traces._token_id("Yes"))
    assert drafted.node == 8 and not asks_for_change(iteration, drafted)
    assert asks_for_change(iteration, final_subject(iteration, 0))
    removed = traces.pruned()
    assert asks_for_change(removed, absent_subject(removed, 0, 0, removed.nodes[2].token_id))
    assert not asks_for_change(traces.autoregressive(), final_subject(traces.autoregressive(), 0))
    nodes = list(iteration.nodes)
    nodes[3] = replace(nodes[3], stop_reason="length_limit")  # no setting of the drafter reaches beyond the text's end
    ended = replace(iteration, nodes=tuple(nodes))
    assert not asks_for_change(ended, absent_subject(ended, 0, 3, traces._token_id("No")))


@pytest.mark.slow
def test_a_final_token_whose_node_was_pruned_asks_for_a_change():
    iteration = traces.pruned()
    gone = iteration.nodes[4]
    ended = replace(
        iteration,
        committed_ids=(*iteration.committed_ids[:-1], gone.token_id),
        committed_texts=(*iteration.committed_texts[:-1], gone.text),
    )
    subject = final_subject(ended, 0)
    assert asks_for_change(ended, subject)
    assert any("path probability" in sentence and "Pruning (τ)" in sentence for sentence in reasons(ended, subject))
    said = texts(show(open_page(PAGE), traces.run_of([traces.autoregressive()]), node=-2))
    assert "Nothing was drafted in this iteration." in said and "A node has this token too" not in said


def test_an_answer_is_kept_for_what_could_be_tried(monkeypatch):
    """Without the pair some values stay unknown; with it the same question is asked again."""
    run = Run(traces.run_of([traces.dynatree_recovered()]))
    monkeypatch.setattr("pages.ui.explain.reasons.manager", lambda: SimpleNamespace(info=None))
    without = key_of(run, 0, (1, 2))
    monkeypatch.setattr("pages.ui.explain.reasons.manager", lambda: SimpleNamespace(info=run.trace.pair))
    assert key_of(run, 0, (1, 2)) != without


@pytest.mark.slow
def test_a_search_that_was_ended_can_be_done_again():
    at, trace = open_page(PAGE), traces.run_of([traces.dynatree_recovered()])
    show(at, trace)
    run = at.session_state["run"]
    subject = absent_subject(trace.iterations[0], 0, 3, traces._token_id("No"))
    at.session_state["absent"] = (run.key, 0, 3, subject.token_id)
    ended = SmallestChanges((), ("decay",), (), ("children",), ("max_depth",), 13, 13, 5)
    at.session_state["results"] = {key_of(run, 0, path_to(trace.iterations[0], subject)): ended}
    said = texts(at.run())
    assert "No setting tried includes it" in said and "Stopped before trying: " in said
    assert "more nodes than one search allows" in said and "load the run's pair" not in said
    assert at.button(key="why_change").label == "Search again"


def test_changes_from_zero_are_not_reported_as_a_share():
    change = SettingChange("children", 0, 3, 0.05, 13, 13, "replayed")
    found = SmallestChanges((), (), (), (), (), 13, 13, 5)
    assert "no limit → <b>3</b><br>" in change_html(found, change)
    share = replace(change, setting="node_budget", before=256, after=12, size=0.95)
    assert "256 → <b>12</b> (a change of 95%)" in change_html(found, share), "not taken for an interval"


@pytest.mark.slow
def test_the_smallest_change_is_looked_for_and_can_be_tried():
    """The recorded run has no rows: its pair is loaded and its draft asked."""
    at, run = open_page(PAGE), home_run()
    index = telling_iteration(run)
    iteration = run.iterations[index]
    removed = max((node for node in iteration.nodes if node.pruned), key=lambda node: node.path_probability)
    show(at, run, iteration=index, node=removed.node_id)
    at.button(key="why_change").click().run()
    finish(at, "why_change")
    assert not sentences(at)
    said = texts(at)
    assert "Smallest changes that include it" in said and "Pruning (τ)" in said
    assert "the draft model was run again" in said
    at.button(key="why_try_0").click().run()
    assert at.session_state["tune_source"] == "Run in Step through"
    assert at.session_state["tune_position"] == iteration.prefix_length - len(run.prompt_ids)
    pinned = at.session_state["tune_pinned"].drafter.settings()
    assert {name: pinned[name] for name in iteration.settings} == dict(iteration.settings)


def test_a_change_is_tried_on_the_drafter_as_it_says_that_it_was_in_force(monkeypatch):
    run, there = home_run(), {}
    iteration = run.iterations[telling_iteration(run)]
    drafter = type(method_of(run).drafter)
    monkeypatch.setattr(drafter, "with_in_force", lambda self, settings: self.with_settings(node_budget=17))
    monkeypatch.setattr("pages.ui.tune.controls.trace_at", lambda run, index: run.trace)
    for module in ("pages.ui.tune.controls", "pages.ui.explain.reasons"):
        monkeypatch.setattr(f"{module}.set_method", there.__setitem__)
    monkeypatch.setattr("pages.ui.explain.reasons.st.session_state", there)
    change = SettingChange("prune_probability", 0.02, 0.01, 0.5, 13, 13, "replayed")
    try_change(SimpleNamespace(trace=run, key="run"), iteration, change)
    assert there["tune_pinned"].drafter.node_budget == 17
    assert there[TUNE].drafter == there["tune_pinned"].drafter.with_settings(prune_probability=0.01)


def test_greedy_decoding_says_that_no_luck_is_involved():
    at = open_page(PAGE)
    assert "Greedy decoding involves no luck" in texts(show(at, home_run(), "Lucky or not"))


def test_shares_of_all_draws_are_never_all_or_nothing_by_rounding():
    iteration = traces.sampled_recovered()
    likely = Luck(3, {2: 1e-7, 3: 1 - 3e-5, 4: 3e-5 - 1e-7}, 3.0, 0.01)
    said = luck_html(iteration, likely)
    assert "more than 99.99% of draws commit exactly this many, less than 0.01% more, less than 0.01% fewer" in said
    assert "all draws commit this many." in luck_html(iteration, Luck(3, {3: 1.0}, 3.0, 0.0))


@pytest.mark.slow
def test_luck_is_exact_and_can_be_rerolled(sampled):
    at = open_page(PAGE)
    said = texts(show(at, sampled, "Lucky or not"))
    assert "expected (exact)" in said and "standard deviations" in said
    at.button(key="why_reroll").click().run()
    assert "seeds 0 to 999" in texts(finish(at, "why_luck"))
    assert not sentences(at)
    assert "decode the run again" in texts(show(open_page(PAGE), sampled.without_logits(), "Lucky or not"))


def test_a_sampled_final_token_is_not_shown_as_a_test(pair):
    from decoding.methods.methods import METHODS
    from decoding.sampling.sampling import Sampling
    from decoding.session.session import DecodeSession, Limits

    prompt, seen = pair.vocabulary.encode("One day a dog"), {"nss": 0, "specinfer": 0}
    for verifier in seen:
        method = METHODS["iid_paths"].with_settings(paths=3, length=2, verifier=verifier)
        for iteration in DecodeSession(pair, method, prompt, Sampling(1.0, seed=2), Limits(24)):
            if iteration.final_kind != "fallback" or not iteration.drafted:
                continue
            token, floor = iteration.committed_ids[-1], iteration.draft_top(0)[-1][2]
            table = _tests(iteration, 0, absent_subject(iteration, 0, 0, token))
            chosen = iteration.steps[-1]
            cells = re.findall(r"<td[^>]*>([^<]*)</td>", table.split("<tr")[-1])
            assert cells[-1] == f"fallback token, sampled at {chance(chosen.acceptance_probability)}"
            assert (">passes<" in table) is (verifier == "specinfer")
            assert cells[-2] == number(chosen.drawn) and (verifier == "nss" or cells[-3] == "–")
            ranked = {each: p for each, _, p in iteration.draft_top(0)}
            bound = f"&lt;{number(floor, 3).removeprefix('<')}"
            assert cells[0] == (html.escape(number(ranked[token], 3)) if token in ranked else bound)
            seen[verifier] += 1
    assert all(seen.values())


@pytest.mark.slow
def test_what_was_possible_along_the_text():
    at = open_page(PAGE)
    said = texts(show(at, home_run(), "What was possible", iteration=telling_iteration(home_run())))
    assert "in the draft's own order commits" in said and "Ceiling: **" in said
    assert "what a chain of exactly the text that followed would commit. No tree of" in said
    assert "can commit more of it, however it is drafted." in said
    run = traces.run_of([traces.autoregressive()])
    assert "Nothing was drafted in this iteration" in texts(show(at, run, "What was possible"))
    bare = traces.dynatree_recovered()
    gone = tuple(replace(node, pruned=bool(node.node_id), flat_index=None) for node in bare.nodes)
    run = traces.run_of([replace(bare, nodes=gone, verified=0, flatten_order=(0,), accepted=(), steps=())])
    assert "Nothing was verified in this iteration" in texts(show(at, run, "What was possible"))


def test_hindsight_says_why_there_is_no_more_text_and_what_did_better():
    trace = traces.run_of([traces.dynatree_recovered()])
    reported = replace(hindsight(trace, 0), committed=5, best=3, ends=True, complete=True)

    def said(stopped, draft_sampling="deterministic", **changes):
        totals, first = (
            replace(trace.totals, stopped=stopped),
            replace(trace.iterations[0], draft_sampling=draft_sampling),
        )
        run = Run(replace(trace, totals=totals, iterations=(first,)), "recorded")
        return hindsight_words(run, 0, replace(reported, **changes))

    assert "decode further" not in said("end_of_text") and said("end_of_text").endswith("The text ends there.")
    assert said("length").endswith("at its length limit.")
    assert said("unfinished").endswith("The record ends there.")
    assert "the sampled tree did better" in said("length", "iid") and "sampled" not in said("length")
    assert "this tree is not in that order" in said("length") and "order. C" not in said("length", complete=False)


@pytest.mark.slow
def test_two_budgets_and_their_job_are_drawn_with_one_progress_bar(sampled, believed):
    """A job that outlives the moment that is waited for it."""
    at = open_page(PAGE)
    show(at, sampled, "What was possible")
    if manager().costs is None:
        at.button(key="why_measure").click().run()
    at.session_state["job_why_possible"] = ModelTask("Budgets", lambda job: None)
    at.run()
    assert not at.exception and at.button(key="why_budget").disabled and at.button(key="why_run_budget").disabled
    at.session_state["job_why_possible"].run()


@pytest.mark.slow
def test_budgets_of_a_run_without_rows_say_so_and_offer_no_button(sampled, believed):
    at = open_page(PAGE)
    show(at, sampled.without_logits(), "What was possible")
    if manager().costs is None:
        at.button(key="why_measure").click().run()
    said = texts(at)
    assert "What the run lost by its budgets is unknown" in said and "needs the full logits of this iteration" in said
    assert not any(button.key == "why_run_budget" for button in at.button)


@pytest.mark.slow
def test_budgets_need_costs_of_the_runs_own_pair(sampled, believed):
    at = open_page(PAGE)
    show(at, sampled, "What was possible")
    if manager().costs is None:
        at.button(key="why_measure").click().run()
    at.button(key="why_budget").click().run()
    finish(at, "why_possible")
    at.button(key="why_run_budget").click().run()
    said = texts(finish(at, "why_possible"))
    assert "Over the run, modelled" in said and "Subtrees: the nodes sampled first" in said
    assert "Over the run, measured" in said and "This iteration, measured: " in said and not sentences(at)
    other = replace(sampled, pair=replace(sampled.pair, name="another"))
    assert "load the run's pair" in texts(show(at, other, "What was possible"))


def test_what_follows_the_end_of_the_text_is_not_counted():
    trace = cut()
    kept = (None, 1.0, 0.9, 0.36)
    nodes = tuple(replace(node, acceptance_probability=kept[node.node_id]) for node in trace.nodes)
    iteration = replace(trace, nodes=nodes)
    run = traces.run_of([traces.sampled_recovered(), iteration])
    run = replace(run, max_new_tokens=len(run.output_ids), totals=replace(run.totals, stopped="length"))
    luck = lucks(run)[1]
    assert luck_of(iteration).tokens == 3 and luck.tokens == len(iteration.committed_ids) == 1
    assert luck.expected == 1 and "The text ends there" in luck_html(iteration, luck)
    said = run_html(run_luck(run))
    assert f"{len(run.output_ids) / 2:.2f} tokens per pass came" in said, "that of the strip and of Compare"
