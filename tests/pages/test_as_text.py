"""As text: built only when it is opened, and about what is on screen."""

import html

import pytest
from streamlit.testing.v1 import AppTest

from decoding.recorded import home_run
from pages.ui.scope.run import iterations_table, run_table
from tests.helpers import traces
from tests.pages.apptest import open_page, sentences

PAGE = "pages/step_through.py"


def shown(at: AppTest) -> str:
    return html.unescape("".join(element.proto.body for element in at.get("html")))


@pytest.fixture
def opened():
    at = open_page(PAGE)
    assert "last committed token</li>" not in shown(at), "nothing is built before it is opened"
    at.session_state["as_text"] = True
    return at.run()


def test_the_tree_on_screen_is_reported(opened):
    at = opened
    assert sentences(at) == []
    index = at.session_state["iteration"]
    iteration = home_run().iterations[index]
    assert any(f"Iteration {index + 1}: " in element.value for element in at.text)
    for node in iteration.nodes[1:]:
        assert f"Node {node.node_id} ‘" in shown(at)


@pytest.mark.slow
def test_panels_and_run_are_tables(opened):
    at = opened
    at.segmented_control(key="as_text_part").set_value("Panels").run()
    for caption in (
        "Tests of the verifier, in order",
        "Attention mask",
        "KV slots of the draft",
        "Time by phase",
    ):
        assert f"<caption>{caption}</caption>" in shown(at)
    at.segmented_control(key="as_text_part").set_value("Run").run()
    assert "<caption>Iterations</caption>" in shown(at)


def test_the_figures_of_a_run_have_their_denominators():
    run = home_run()
    rows = dict(run_table(run).rows)
    accepted, drafted = (
        sum(count) for count in zip(*((len(i.accepted), i.drafted) for i in run.iterations), strict=True)
    )
    assert rows["Accepted / drafted"].endswith(f"({accepted} / {drafted})")
    assert rows["New tokens"].startswith(f"{run.totals.new_tokens} of at most ")
    assert len(iterations_table(run).rows) == len(run.iterations)
    for count in (1, 2):
        replayed = dict(run_table(traces.run_replayed(count)).rows)
        assert "replayed" in replayed["Times"] and not any("Tokens/s" in name or "Wall" in name for name in replayed)
    plain = dict(run_table(traces.run_autoregressive()).rows)
    assert plain["Accepted / drafted"] == "–"
