"""Selectors and kept matrices: offered where one fits pair and verifier; a selector makes K, L1 and L2 idle."""

import shutil

import numpy as np
import pytest

from decoding.common.matrix_store import find_matrix, save_matrix
from decoding.methods.methods import METHODS
from decoding.models.pair import embedded_pair, pair_identity
from pages.ui.common.models import manager
from pages.ui.widgets.trained import MATRIX, SELECTOR, trained_choices
from tests.helpers.selectors import store
from tests.pages.apptest import open_page, sentences

pytestmark = pytest.mark.slow

STEP, WIDGET = "pages/step_through.py", "method_delayed_selector"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A folder of trainings with a selector for SpecInfer; none comes with the program."""
    monkeypatch.setenv("DRAFTSCOPE_TRAINING", str(tmp_path))
    monkeypatch.setattr("decoding.selector.store.SHIPPED", tmp_path / "trained")
    store(tmp_path / "mine" / "selector", embedded_pair())
    return tmp_path


def delayed(at):
    return at.selectbox(key="method").select("delayed").run()


def selects(at):
    return [box for box in at.selectbox if box.key == WIDGET]


def test_a_selector_is_offered_for_its_verifier_alone():
    at = delayed(open_page(STEP))
    assert selects(at)[0].options == ["None: K, L1 and L2 as set", "Selector for specinfer, Embedded pair, 2030-01-02"]
    at.button(key="method_delayed_verifier_traversal").click().run()
    assert not selects(at) and sentences(at) == []
    at.button(key="method_delayed_verifier_specinfer").click().run()
    assert selects(at)


def test_a_chosen_selector_makes_the_shape_idle_and_leaves_with_its_verifier():
    at = delayed(open_page(STEP))
    assert not at.slider(key="method_delayed_paths").disabled
    selects(at)[0].select("mine").run()
    assert all(at.slider(key=f"method_delayed_{name}").disabled for name in ("paths", "trunk", "branch"))
    assert sentences(at) == [] and not at.button(key="start").disabled
    at.button(key="method_delayed_verifier_traversal").click().run()
    assert sentences(at) == [] and not at.slider(key="method_delayed_paths").disabled


def test_without_one_nothing_is_shown(home):
    (home / "mine" / "selector" / "selector.json").unlink()
    assert not selects(delayed(open_page(STEP)))


def test_another_pair_is_offered_nothing(monkeypatch):
    identity = {**manager().identity} if manager().identity else None
    assert SELECTOR in trained_choices(METHODS["delayed"])
    other = {"name": "x", **{role: {"name": "m", "parameters": 1, "layers": 1, "vocab_size": 2, "weights": "1"}
                             for role in ("target", "draft")}}  # fmt: skip
    monkeypatch.setattr(manager(), "identity", other)
    assert SELECTOR not in trained_choices(METHODS["delayed"])
    monkeypatch.setattr(manager(), "identity", identity)
    assert SELECTOR not in trained_choices(METHODS["iid_paths"])


def test_a_kept_matrix_is_offered_by_name_and_content_to_token_recycling_alone(home):
    row = {7: (np.array([8], np.int32), np.array([0.5], np.float32))}
    counts = {"prompts": 2, "tokens": 1234}
    save_matrix(home / "tales" / "matrix", row, pair_identity(embedded_pair()), "2030-01-02T03:04:05", "", counts)
    at = open_page(STEP)
    at = at.selectbox(key="method").select("token_recycling").run()
    box, full_name = at.selectbox(key="method_token_recycling_matrix"), find_matrix("tales").full_name
    assert box.options == ["Empty at first", "tales, 1,234 tokens of embedded-target, 2030-01-02"]
    at = box.select(full_name).run()
    assert sentences(at) == [] and at.selectbox(key="method_token_recycling_matrix").value == full_name
    assert MATRIX not in trained_choices(METHODS["delayed"])
    shutil.rmtree(home / "tales")
    assert MATRIX not in trained_choices(METHODS["token_recycling"])
