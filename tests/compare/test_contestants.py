"""Contestants as text: what is written is read back the same, and what cannot be read is reported in a sentence."""

import pytest

from decoding.common.errors import SettingsError
from decoding.compare.contestants import format_contestant, parse_contestant
from decoding.compare.hf_generate import BASELINES
from decoding.methods.methods import FORMER_PRESETS, METHODS, PRESETS, changed_settings, method_label, settings_words

CHANGED = [
    ("dynatree", {"history": False, "base_depth": 3, "confidence_high": 0.61}),
    ("dynatree", {"history_statistic": "committed_over_drafted", "cache_policy": "rebuild"}),
    ("linear", {"length": 5}),
    ("fixed_tree", {"prune_probability": 0.1 + 0.2}),
]


@pytest.mark.parametrize("name", [*METHODS, *PRESETS, *BASELINES])
def test_every_name_is_written_as_itself_and_read_back(name: str):
    contestant = parse_contestant(name)
    assert format_contestant(contestant) == name
    assert parse_contestant(format_contestant(contestant)) == contestant
    assert (contestant.baseline or contestant.method) in (name, METHODS.get(name) or PRESETS.get(name))


@pytest.mark.parametrize(("name", "changes"), CHANGED)
def test_only_changed_settings_are_written_and_all_come_back(name: str, changes: dict):
    method = METHODS[name].with_settings(**changes)
    text = name + ":" + ",".join(f"{key}={str(value).lower()}" for key, value in changes.items())
    contestant = parse_contestant(text)
    assert contestant.method == method
    written = format_contestant(contestant)
    assert parse_contestant(written) == contestant
    assert set(part.partition("=")[0] for part in written.partition(":")[2].split(",")) == set(changes)


def test_a_changed_preset_is_written_from_the_preset():
    contestant = parse_contestant("fixed tree D5 B2 (ablation): max_depth = 4")
    assert contestant.method.settings()["branching"] == 2
    assert format_contestant(contestant) == "fixed tree D5 B2 (ablation):max_depth=4"
    assert contestant.label == "Fixed tree · D_max 4, B 2", "the configuration, whatever preset it began with"


def test_names_that_are_no_longer_offered_mean_what_they_meant():
    meant = {name: changed_settings(parse_contestant(name).method) for name in FORMER_PRESETS}
    assert meant == {
        "DynaTree as printed": {"verify_pruned": True},
        "DynaTree as published, rollback + rebuild": {
            "history_statistic": "committed_over_drafted", "cache_policy": "rebuild",
        },
    }  # fmt: skip


def test_a_setting_that_is_the_default_is_not_written():
    assert format_contestant(parse_contestant("linear:length=8")) == "linear"


def test_what_is_switched_off_is_said_in_english():
    words = settings_words(METHODS["dynatree"].with_settings(branch_first_level=False, history=False))
    assert {"first level may not branch", "no history adaptation"} <= {*words}


def test_different_settings_have_different_labels():
    labels = {method_label(METHODS[name].with_settings(**changes)) for name, changes in CHANGED}
    assert len(labels) == len(CHANGED)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("dynatree", "DynaTree"),
        ("DynaTree, first level may branch", "DynaTree · first level may branch"),
        ("dynatree:history=false", "DynaTree · no history adaptation"),
        ("dynatree:cache_policy=rebuild", "DynaTree · rebuild"),
        ("linear:length=4", "Linear chain · length 4"),
        ("hardware_aware:odds=1 2", "Hardware-aware"),
        ("specinfer:widths=2", "SpecInfer widths · widths 2"),
        ("delayed:selector=selector-20261122-101010-specinfer", "Delayed expansion · selector"),
        ("delayed:verifier=khisti,selector=khisti", "Delayed expansion · selector khisti, Khisti"),
        ("dynatree:history=false,base_depth=3", "DynaTree · D_0 3, no history adaptation"),
    ],
)
def test_a_label_is_the_method_and_what_was_changed_in_the_fewest_words(text: str, label: str):
    contestant = parse_contestant(text)
    assert contestant.label == method_label(contestant.method) == label
    assert parse_contestant(format_contestant(contestant)) == contestant


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dynatre", "did you mean 'dynatree'"),
        ("", "There is no method ''"),
        ("quantum", "choose autoregressive"),
        ("linear:depth=3", "no setting 'depth'; it has length"),
        ("linear:length", "write setting=value"),
        ("linear:length=4,", "write setting=value"),
        ("linear:length=four", "a whole number, not 'four'"),
        ("linear:length=0", "from 1 to 64"),
        ("dynatree:history=maybe", "true or false"),
        ("dynatree:confidence_high=nan", "confidence_high"),
        ("dynatree:stop_probability=low", "a number, not 'low'"),
        ("dynatree:cache_policy=hope", "compaction"),
        ("dynatree:verifier=hope", "unknown verifier"),
        ("dynatree:base_depth=30", "base_depth"),
        ("hf_generate:length=3", "has no settings"),
    ],
)
def test_what_cannot_be_read_is_reported_in_a_sentence(text: str, words: str):
    with pytest.raises(SettingsError, match=words):
        parse_contestant(text)
