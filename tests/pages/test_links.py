"""Links: a view goes into an address and comes back; what a stranger writes there does nothing but a sentence."""

from dataclasses import fields
from types import SimpleNamespace
from urllib.parse import parse_qs, quote_plus

import pytest

from decoding.methods.methods import METHODS
from pages.ui.app.links import MAX_TEXT, RunName, View, decode, encode, split_run, with_run
from pages.ui.common.errors import known_settings
from pages.ui.common.worker import ModelTask
from pages.ui.widgets.controls import SAMPLING
from pages.ui.widgets.prompts import DEFAULT_PROMPT, sample_prompts
from tests.pages.apptest import finish, open_page, sentences

PAGE = "pages/step_through.py"
VIEWS = [
    View(),
    View(recorded="home", iteration=3, node=0),
    View(prompt="code/grid_paths", method="linear", settings={"length": 4, "sampled": True}, iteration=1, node=-2),
    View(text="a\u00a0b\u3000c\td 👩\u200d👩\u200d👧 می\u200cخواهم \ufeff\u00ad"),
    View(text="Zwölf Boxkämpfer\n<b>&=+ #?", chat=False, method="specinfer", settings={"widths": "2,2"}),
    View(
        prompt="stories/frog_and_boat",
        method="dynatree",
        settings={"verifier": "khisti", "truncation": 4, "confidence_high": 0.85, "history": False},
        sampling={"temperature": 0.7, "top_p": 0.9, "draft_temperature": 0.6, "seed": 2**31 - 1},
        max_new_tokens=32,
        iteration=7,
        node=12,
        pair="pythia-2.8b",
    ),
]


def params(query: str) -> dict[str, list[str]]:
    return parse_qs(query, keep_blank_values=True)


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_comes_back_from_its_link(view):
    link = encode(view)
    assert link.lacks == ""
    assert decode(params(link.query), ["home"]) == (view, "")


def test_every_setting_of_every_method_comes_back():
    for name, method in METHODS.items():
        view = View(method=name, settings=method.settings())
        assert decode(params(encode(view).query), ()) == (view, ""), name
    names = {field.name for field in fields(View)} | set(SAMPLING)
    assert not names & set(known_settings()), "a setting has the name of another parameter"


def test_a_long_prompt_is_refused_both_ways():
    text = "ä" * (MAX_TEXT // 6 + 1)
    link = encode(View(text=text, method="linear", iteration=3))
    assert link.query == ""
    assert "longer than a link can hold" in link.lacks
    view, said = decode({"text": [text]}, ())
    assert view == View()
    assert "at most 2,000 encoded characters" in said


@pytest.mark.parametrize("name", [RunName("aB3_-" + "x" * 17), RunName("x" * 22, 46)])
def test_the_name_of_a_run_comes_back_beside_the_view(name):
    view = View(method="linear", iteration=3)
    found, rest = split_run(params(with_run(encode(view), name).query))
    assert (found, decode(rest, ())) == (name, (view, ""))


@pytest.mark.parametrize("names", [["1"], ["x" * 21], ["x" * 22 + ".0"], ["x" * 22] * 2, ["../" + "x" * 19], []])
def test_what_names_no_run_is_ignored_like_any_unknown_parameter(names):
    found, rest = split_run({"run": names, "iteration": ["3"]})
    assert found is None
    assert decode(rest, ()) == (View(iteration=3), "Some of the link was ignored: ‘run’ (not a known parameter).")


@pytest.mark.parametrize("sign", ["\x1b", "\r", "\x7f", "\ud800"])
def test_a_prompt_that_no_link_can_hold_is_reported_where_it_is_made(sign: str):
    link = encode(View(text=f"a{sign}b", method="linear", iteration=3))
    assert link.query == ""
    assert "control characters" in link.lacks


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prompt", "<script>alert(1)</script>"),
        ("prompt", "../../etc/passwd"),
        ("method", "__class__"),
        ("recorded", "../home"),
        ("text", "\x00\x1b[31m"),
        ("text", "a\x85b"),
        ("text", "a\ud800b"),
        ("text", " "),
        ("chat", "maybe"),
        ("temperature", "NaN"),
        ("temperature", "inf"),
        ("temperature", "-0.1"),
        ("top_p", "1e308"),
        ("seed", "-1"),
        ("seed", "1" * 5000),
        ("seed", "٣"),
        ("max_new_tokens", "0"),
        ("max_new_tokens", "1_0"),
        ("iteration", "0"),
        ("iteration", "0x10"),
        ("node", "-2"),
        ("node", "__import__('os')"),
        ("node_budget", "-5"),
        ("node_budget", "2.5"),
        ("history", "[]"),
        ("verifier", "eval"),
        ("history_statistic", "os.system"),
        ("cache_policy", ""),
        ("no_such", "1"),
        ("<img src=x onerror=alert(1)>", "1"),
        ("pair", "x" * 300),
    ],
)
def test_what_an_address_may_not_say_is_one_sentence(name, value):
    view, said = decode({name: [value]}, ["home"])
    assert view == View()
    assert said.startswith("Some of the link was ignored: ")
    assert said.count("\n") == 0
    assert len(said) < 200


def test_arrays_and_floods_are_one_sentence():
    view, said = decode({"node": ["1", "2"], "temperature": ["0.5"]}, ())
    assert view == View(sampling={"temperature": 0.5})
    assert "node (given more than once)" in said
    assert decode({"text": ["x" * 10_000_000]}, ())[0] == View()
    view, said = decode({f"name{i}": ["1"] for i in range(200)}, ())
    assert view == View()
    assert said.endswith("and 196 more.")


def opened(query: str, **state):
    """Step through as a browser opens it from a link."""
    at = open_page()
    at.switch_page(PAGE)
    for name, value in state.items():
        at.session_state[name] = value
    for name, values in params(query).items():
        at.query_params[name] = values
    return at.run()


def warned(at) -> list[str]:
    assert not at.exception, at.exception[0].message
    return [element.value.replace("\\", "") for element in at.warning]


@pytest.mark.slow
def test_a_reloaded_page_goes_to_its_place_where_its_work_was_given_up():
    def reloaded(query: str):
        job = ModelTask("To the end", lambda job: None, slot="step", found=True)
        job.end()
        at = opened(query, job_step=job)
        assert not job.found, "a later link is obeyed again"
        return at

    view = View(text="Once upon a time there was a", method="linear", max_new_tokens=24, iteration=2)
    at = finish(reloaded(encode(view).query), "step")
    assert sentences(at) == warned(at) == [] and len(at.session_state["run"].trace.iterations) == 2
    reloaded("")


def test_a_link_decodes_to_its_place():
    view = View(
        text="Once upon a time there was a",
        method="linear",
        settings={"length": 3, "verifier": "nss"},
        sampling={"temperature": 0.8, "seed": 4},
        max_new_tokens=24,
        iteration=3,
        node=1,
    )
    at = finish(opened(encode(view).query), "step")
    assert sentences(at) == warned(at) == []
    run, state = at.session_state["run"], at.session_state
    assert len(run.trace.iterations) == 3
    assert "".join(run.trace.prompt_texts) == view.text
    assert (run.trace.method, run.trace.settings["length"], run.trace.sampling.seed) == ("linear", 3, 4)
    assert (state["iteration"], state["node"]) == (2, 1)
    assert (state["asked_view"].iteration, state["asked_view"].node) == (2, 1)
    again = finish(opened(encode(view).query), "step")
    assert again.session_state["run"].trace.output_ids == run.trace.output_ids

    # What the user does next stays: the address is not obeyed a second time.
    at.slider(key="method_linear_length").set_value(6).run()
    assert at.session_state["run"] is run
    at.button(key="one_more").click().run()
    finish(at, "step")
    assert (len(run.trace.iterations), at.session_state["iteration"]) == (4, 3)
    assert at.slider(key="method_linear_length").value == 6


def test_a_link_to_a_recorded_run_needs_no_decoding():
    at = opened("recorded=home&iteration=2&node=1")
    assert sentences(at) == warned(at) == []
    assert at.session_state["run"].source == "recorded"
    assert (at.session_state["iteration"], at.session_state["node"]) == (1, 1)
    assert "job_step" not in at.session_state


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("recorded=home&iteration=5000", "the link asks for iteration 5,000, but the run has"),
        ("recorded=home&iteration=2&node=900", "asks for node 900, which iteration 2 does not have"),
        pytest.param("recorded=nowhere&temperature=NaN", "no recorded run of that name", marks=pytest.mark.slow),
    ],
)
def test_a_place_that_is_not_there_is_reported(query, words):
    at = opened(query)
    assert sentences(at) == []
    assert len(warned(at)) == 1
    assert words.lower() in warned(at)[0].lower()


@pytest.mark.slow
def test_settings_that_contradict_one_another_decode_nothing():
    at = opened("method=DynaTree&base_depth=9&max_depth=6&iteration=4")
    assert any("“Base depth”" in sentence for sentence in sentences(at))
    assert at.session_state["run"].source == "recorded"
    assert "job_step" not in at.session_state


@pytest.mark.slow
def test_without_torch_a_link_says_what_it_needs(monkeypatch):
    from pages.ui.app import address

    monkeypatch.setattr(address, "torch_there", lambda: False)
    at = opened("method=Linear+chain&iteration=4")
    assert len(warned(at)) == 1
    assert "needs torch" in warned(at)[0]
    assert "job_step" not in at.session_state
    at = opened("recorded=home&method=Linear+chain&iteration=4&node=1")
    assert warned(at) == [] and (at.session_state["iteration"], at.session_state["node"]) == (3, 1)


@pytest.mark.parametrize(
    "query",
    [
        "method_dynatree_node_budget=5&sampling_temperature=NaN&max_new_tokens=-3&prompt_text=x&iteration=two",
        pytest.param("run=1&unfolded=1&scope=1&job_step=1&page=Home&start=true&one_more=true", marks=pytest.mark.slow),
        "prompt=%3Cscript%3Ealert(1)%3C%2Fscript%3E&method=%3Cimg+src%3Dx+onerror%3Dalert(1)%3E&node=" + "9" * 300,
    ],
)
def test_strange_addresses_leave_the_page_as_it_was(query):
    at = opened(query)
    assert sentences(at) == []
    assert len(warned(at)) == 1
    assert at.selectbox(key="prompt").value == DEFAULT_PROMPT
    assert at.text_area(key="prompt_text").value == sample_prompts()[DEFAULT_PROMPT].text
    assert at.slider(key="method_dynatree_node_budget").value == METHODS["dynatree"].settings()["node_budget"]
    assert at.session_state["run"].source == "recorded"
    assert "job_step" not in at.session_state


def test_the_link_says_what_is_on_screen():
    at = open_page(PAGE)
    at.session_state["prompt_text"] = "A prompt of my own & more"
    at.session_state["prompt"] = "own text"
    at.session_state["max_new_tokens"] = 20
    at.button(key="start").click().run()
    finish(at, "step")
    # A setting that is not decoded yet is not what is on screen.
    at.slider(key="method_dynatree_node_budget").set_value(17).run()
    link = at.code[0].value
    assert quote_plus("A prompt of my own & more") in link
    name, rest = split_run(params(link.split("?", 1)[1]))
    assert name == RunName(at.session_state["run"].id, 1)
    view, said = decode(rest, ["home"])
    assert said == ""
    begun = {"method": "dynatree", "settings": {"branch_first_level": True}}
    assert view == View(text="A prompt of my own & more", **begun, max_new_tokens=20, iteration=1)


@pytest.mark.slow
def test_a_run_from_a_file_has_no_link():
    from decoding.recorded import home_run
    from pages.ui.common.state import Run

    at = open_page(PAGE)
    at.session_state["run"] = Run(home_run(), "opened")
    at.run()
    assert len(at.code) == 0
    assert any("No link can hold this run" in element.value for element in at.caption)


@pytest.mark.slow
def test_the_address_of_a_run_from_a_file_finds_it_and_decodes_no_other_in_its_place():
    from decoding.recorded import home_run
    from pages.ui.common.state import Run, known_run, store

    at = open_page(PAGE)
    run = Run(home_run(), "opened")
    store().put(run)
    query = f"run={run.id}&method=Linear+chain&iteration=3&node=1"
    at = opened(query)
    assert at.session_state["run"] is known_run(run.id) is run
    assert (at.session_state["iteration"], at.session_state["node"], warned(at)) == (2, 1, [])
    assert at.session_state["method"] == run.trace.method == "dynatree", "the toolbar shows the run on screen"
    assert "Not run yet" not in " ".join(each.value for each in at.caption)
    at = opened(query.replace(run.id, "x" * 22))
    assert warned(at) == ["The run of this link is not kept here, and this address cannot decode it again."]
    assert at.session_state["run"].source == "recorded" and "job_step" not in at.session_state


@pytest.mark.slow
def test_a_run_with_a_prompt_too_long_for_a_link_is_found_by_its_name():
    at = open_page(PAGE)
    at.session_state["prompt"], at.session_state["prompt_text"] = "own text", "ä" * (MAX_TEXT // 6 + 1)
    at.session_state["max_new_tokens"] = 4
    at.button(key="start").click().run()
    run = finish(at, "step").session_state["run"]
    assert any("longer than a link can hold" in element.value for element in at.caption)
    at.run()
    assert at.session_state["worker_address"][2] == {"run": [run.id], "iteration": ["1"]}
    assert opened(f"run={run.id}&iteration=1").session_state["run"] is run


@pytest.mark.slow
def test_a_run_decoded_again_says_why_it_has_no_link_where_its_prompt_is_no_text():
    from decoding.recorded import home_run
    from pages.ui.common.state import Run
    from pages.ui.what_if.branches import prompt_of_ids

    class Words:
        """A pair that reads two spaces as one token where a model wrote two."""

        vocabulary = SimpleNamespace(decode=lambda ids: " " * len(ids), encode=lambda text: [len(text)])

    assert prompt_of_ids(Words, [2]) is None
    assert prompt_of_ids(Words, [1]).text == " "
    at = open_page(PAGE)
    at.session_state["run"] = Run(home_run(), "decoded")
    at.run()
    assert any("known only as tokens" in element.value for element in at.caption)
