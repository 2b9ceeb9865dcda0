"""Every setting is declared once, and what is declared is what is accepted."""

import math
from dataclasses import dataclass, fields
from fractions import Fraction

import numpy as np
import pytest

from decoding.common.errors import SettingsError
from decoding.common.settings import (
    FORMER_ENGINES,
    GROUPS,
    Range,
    former_engine,
    is_engine,
    present_engines,
    settings_of,
)
from decoding.compare.contestants import parse_contestant
from decoding.drafters import DRAFTERS, DynaTreeDrafter
from decoding.drafters.base import Drafter
from decoding.methods.method import Method
from decoding.methods.methods import METHODS, PRESETS
from decoding.models.presets import PairSettings
from decoding.verifiers import VERIFIERS

OWNERS = (*DRAFTERS.values(), *VERIFIERS.values(), Method)
ALL = [(kind, info) for kind in OWNERS for info in settings_of(kind).values()]
NUMBERS = [(kind, info) for kind, info in ALL if type(info.default) in (int, float)]


def undeclared(kind: type) -> list[str]:
    return [field.name for field in fields(kind) if field.compare and field.name not in settings_of(kind)]


def test_every_field_of_a_drafter_and_a_verifier_is_declared():
    @dataclass(frozen=True)
    class Careless(Drafter):
        width: int = 2

    assert undeclared(Careless) == ["width"]
    assert [(kind, undeclared(kind)) for kind in OWNERS[:-1] if undeclared(kind)] == []


def test_what_methods_say_they_have_is_declared():
    for method in (*METHODS.values(), *PRESETS.values()):
        assert method.all_settings().keys() <= method.infos.keys(), method.label


@pytest.mark.parametrize(("kind", "info"), ALL, ids=[f"{kind.__name__}-{info.name}" for kind, info in ALL])
def test_a_declaration_is_whole(kind, info):
    assert info.label and info.help.endswith(".") and info.group in GROUPS
    own = settings_of(kind)
    assert not info.needs or own[info.needs].default in (True, False)
    assert not info.given_by or own[info.given_by].default == ""
    number, low_high = type(info.default) in (int, float), info.offered
    assert number == (info.accepted is not None) == (low_high is not None) == (info.step is not None)
    if number:
        assert {type(info.default)} == {type(each) for each in (*low_high, info.step)}
        assert low_high[0] <= info.default <= low_high[1] and info.step > 0
        assert low_high[0] in info.accepted and low_high[1] in info.accepted
    alike = [other for _, other in ALL if other.name == info.name]
    assert {(other.label, other.symbol, other.help, other.group) for other in alike} == {
        (info.label, info.symbol, info.help, info.group)
    }


@pytest.mark.parametrize(("kind", "info"), NUMBERS, ids=[f"{kind.__name__}-{info.name}" for kind, info in NUMBERS])
def test_the_ends_of_the_range_are_those_of_validation(kind, info):
    accepted, step = info.accepted, 1 if type(info.default) is int else 1e-9
    for end, is_open, away in ((accepted.low, accepted.low_open, -step), (accepted.high, accepted.high_open, step)):
        inside, outside = (end - away, end) if is_open else (end, end + away)
        assert info.checked(inside) == inside
        with pytest.raises(SettingsError, match=f"^{info.name} .*must be a .*number {accepted}, not"):
            kind(**{info.name: outside})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("node_budget", value, rf"^node_budget \(N_max\) must be a whole number from 1 to 4096, not {shown}\.$")
        for value, shown in (
            (2.5, "2.5"), ("64", "'64'"), (True, "True"), (math.nan, "nan"), (-math.inf, "-inf"), (None, "None"),
            ([1], r"\[1\]"), (np.float32(0.5), "0.5"), (1j, r"1j"), (10**40, r"1\d+"), ("9" * 500, r"'9+\.\.\.9+'"),
        )
    ]
    + [
        ("prune_probability", np.nan, "must be a number from 0 to below 1, not nan"),
        ("prune_probability", "0.1", "must be a number from 0 to below 1, not '0.1'"),
        ("confidence_high", 10**400, "must be a number above 0 and below 1, not 1"),
        ("history", 1, "history must be true or false, not 1"),
        ("history", "on", "history must be true or false, not 'on'"),
        ("history_statistic", 3, "must be one of accepted_over_depth, accepted_over_drafted_depth, "),
        ("history_statistic", ["x"], "must be one of"),
    ],
)  # fmt: skip
def test_another_kind_of_value_is_refused_in_a_sentence(name, value, said):
    with pytest.raises(SettingsError, match=said):
        DynaTreeDrafter(**{name: value})
    with pytest.raises(SettingsError, match=said):
        METHODS["dynatree"].with_settings(**{name: value})


@pytest.mark.parametrize("value", [np.int64(64), np.uint8(64), 64.0, np.float32(64), Fraction(64)])
def test_whole_numbers_of_other_types_become_plain_ones(value):
    drafter = DynaTreeDrafter(node_budget=value, history=np.bool_(False), prune_probability=np.float64(0.25))
    assert drafter == DynaTreeDrafter(node_budget=64, history=False, prune_probability=0.25)
    assert [type(each) for each in (drafter.node_budget, drafter.history, drafter.prune_probability)] == [
        int, bool, float,
    ]  # fmt: skip


def test_a_number_that_may_be_whole_becomes_a_number():
    assert repr(DynaTreeDrafter(prune_probability=0).prune_probability) == "0.0"


def test_texts_and_choices_of_a_method_are_checked():
    for name, value in (("cache_policy", "none"), ("node_order", 3), ("draft_head", 4)):
        with pytest.raises(SettingsError, match=f"^{name} must be "):
            METHODS["salf"].with_settings(**{name: value})
    for name in ("selector", "matrix", "widths", "acceptance", "odds"):
        owner = next(kind for kind in DRAFTERS.values() if name in settings_of(kind))
        with pytest.raises(SettingsError, match=f"^{name}.* must be a string, not 5"):
            owner(**{name: 5})


def test_every_configuration_of_the_papers_lies_in_what_sliders_offer():
    for label, method in {**METHODS, **PRESETS}.items():
        for name, value in method.settings().items():
            offered = method.infos[name].offered
            assert offered is None or offered[0] <= value <= offered[1], (label, name)


@pytest.mark.parametrize(
    ("method", "name", "values"),
    [
        ("fixed_tree", "node_budget", (63, 95, 127)), ("eagle2", "node_budget", (63, 95, 127)),
        ("eagle2", "beam_width", (8, 9, 10)), ("eagle2", "max_depth", (5, 6, 7, 8)),
        ("hardware_aware", "node_budget", (63, 95, 127)), ("linear", "length", (16, 32, 64)),
    ],
)  # fmt: skip
def test_trees_of_the_size_that_a_gpu_wants_can_be_set_by_hand(method, name, values):
    low, high = METHODS[method].infos[name].offered
    assert METHODS[method].infos[name].step == 1 and all(low <= value <= high for value in values)


def test_a_range_says_which_ends_belong_to_it():
    ends = (False, False), (True, True), (False, True), (True, False)
    assert [str(Range(0.0, 1.0, *each)) for each in ends] == [
        "from 0 to 1", "above 0 and below 1", "from 0 to below 1", "above 0 and at most 1",
    ]  # fmt: skip
    assert str(Range(1, 4096)) == "from 1 to 4096"


def test_former_names_of_engines_are_read():
    settings = PairSettings(engine="lean")
    assert settings.engine == "packed" and settings == PairSettings(engine="packed")
    assert parse_contestant("linear@static-host:length=3") == parse_contestant("linear@cuda_graph-host:length=3")
    assert present_engines("cpu float32 lean sdpa, 2 threads") == "cpu float32 packed sdpa, 2 threads"
    for former, present in FORMER_ENGINES.items():
        assert is_engine(present) and not is_engine(former) and former_engine(present) == former
