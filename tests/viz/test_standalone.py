"""Pages of their own: nothing in them asks the network, no token can end the data, scripts are those of the app."""

import base64
import hashlib
import json
import re
import tomllib
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import plotly.graph_objects as go
import pytest

from tests.helpers.traces import big, dynatree_recovered, fallback, run_mixed, run_of, summary
from viz.components import component_script
from viz.standalone import THEME, embedded_json, figures_html, scope_html

ROOT = Path(__file__).resolve().parents[2]
NASTY = "</script><script>alert(1)</script><!-- \u2028\u2029 ]]> &amp; \"'"


class Page(HTMLParser):
    """Elements of a page, its scripts and what they load."""

    def __init__(self, text: str):
        super().__init__()
        self.scripts: list[tuple[dict, str]] = []
        self.addresses: list[str] = []
        self.policy = ""
        self.text: list[str] = []
        self._script: dict | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        given = dict(attrs)
        self.addresses += [given[name] for name in ("src", "href", "action") if name in given]
        if tag == "script":
            self._script = given
            self.scripts.append((given, ""))
        if tag == "meta" and given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"]

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._script = None

    def handle_data(self, data: str) -> None:
        if self._script is None:
            self.text.append(data)
        else:
            self.scripts[-1] = (self._script, self.scripts[-1][1] + data)


def page_of(text: str) -> tuple[Page, dict]:
    """A page and the data in it; its policy lets only the scripts in it run."""
    page = Page(text)
    assert page.addresses == []
    assert page.policy.startswith("default-src 'none'; ")
    data, *scripts = page.scripts
    assert data[0] == {"type": "application/json", "id": "data"}
    for _, script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in page.policy
    assert len(re.findall("sha256-", page.policy)) == len(scripts)
    assert "http" not in page.policy
    assert "'unsafe-inline'" not in page.policy.partition("script-src")[2].partition(";")[0]
    return page, json.loads(data[1])


def nasty_run():
    first = dynatree_recovered()
    nodes = tuple(replace(node, text=NASTY) for node in first.nodes)
    first = replace(first, nodes=nodes, texts={token: NASTY for token in first.texts})
    return replace(run_of([first, fallback()], label=NASTY), created=NASTY)


def test_a_page_holds_the_scope_and_its_data():
    run = run_mixed()
    page, data = page_of(scope_html(run, 2, node=1, phase="verify"))
    assert component_script("standalone/scope.js") in page.scripts[1][1]
    film = data["scope"]["film"]
    assert data["scope"]["ask"] == {"serial": 1, "iteration": 2, "node": 1, "phase": "verify"}
    assert (data["first"], data["last"]) == (0, len(run.iterations) - 1)
    assert len(film["frames"]) == film["count"] == len(run.iterations)
    assert run.pair.name in "".join(page.text)


@pytest.mark.slow
def test_a_long_run_holds_the_iterations_around():
    run = run_of([big(400, seed, seed) for seed in range(14)])
    page, data = page_of(scope_html(run, 7, unfolded={7: (0,)}))
    assert data["first"] < 7 < data["last"] < 13
    assert f"iterations {data['first'] + 1} to {data['last'] + 1} of 14" in "".join(page.text)


@pytest.mark.parametrize("build", [nasty_run, lambda: run_of([summary(0)])])
def test_what_a_model_wrote_stays_data(build):
    run = build()
    text = scope_html(run, 0)
    page, _ = page_of(text)
    assert len(page.scripts) == 2
    assert "<script>alert" not in text
    assert text.count("<!--") == 0
    if run.label == NASTY:
        assert NASTY in "".join(page.text)


def test_json_in_a_script_element():
    assert json.loads(embedded_json({"a": NASTY})) == {"a": NASTY}
    assert not re.search("[<>&\u2028\u2029]", embedded_json({NASTY: NASTY}))
    with pytest.raises(ValueError):
        embedded_json([float("nan")])


def test_figures_with_both_themes():
    light, dark = (go.Figure().add_bar(y=[1, 2], name=NASTY) for _ in range(2))
    page, data = page_of(figures_html([(NASTY, light, dark), ("second", light, dark)], NASTY))
    assert [each["name"] for each in data] == [NASTY, "second"]
    assert [len(each["themes"]) for each in data] == [2, 2]
    assert len(page.scripts) == 3
    assert "".join(page.text).count("Save as SVG") == 2


def test_the_theme_is_that_of_the_app():
    config = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))["theme"]
    for dark, name in ((False, "light"), (True, "dark")):
        for field, value in THEME[dark].items():
            words = field.split("-")
            assert config[name][words[0] + "".join(map(str.title, words[1:]))] == value
