"""The suite of heads: what it trains in which order, that it goes on where it was, and what it ships."""

import json
from math import nan
from pathlib import Path

import pytest
import torch

from decoding.common.errors import ENDED, TrainingError
from decoding.heads.network import HeadConfig, HeadNetwork
from decoding.heads.store import equal_time, read_card, same_windows, save_head
from decoding.jobs.job import Status
from decoding.training import head_suite
from decoding.training.folder import Training, TrainingSettings
from decoding.training.head_comparison import compared

NAMES = ["base", "eagle", "hass", "talf", "talf_top2", "talf_top1"]
PAIR = {"name": "a pair", "target": {"name": "t", "parameters": 9, "layers": 1, "vocab_size": 11, "weights": "0.5"}}


@pytest.fixture
def calls(monkeypatch, tmp_path) -> list[list[str]]:
    """The commands that the suite gives, each of which stores a head at once."""
    made: list[list[str]] = []

    def train(words: list[str]) -> int:
        made.append(words)
        out, loss = Path(words[words.index("--out") + 1]), words[words.index("--loss") + 1]
        network = HeadNetwork(HeadConfig(8, 11, 1, 8), torch.Generator().manual_seed(len(made)))
        figures = {key: float(len(made)) for key in head_suite.COMPARED.values()}
        save_head(out / "head", network, loss, PAIR, "2030-01-02T03:04:05", figures)
        return 0

    monkeypatch.setattr(head_suite.head, "main", train)
    monkeypatch.setattr(head_suite, "SHIPPED", tmp_path / "shipped")
    return made


def value(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


def test_all_losses_go_on_from_one_head_on_the_same_batches(calls, tmp_path):
    assert head_suite.main(["--out", str(tmp_path / "s"), "--steps", "5", "--corpus", "c", "--seed", "3"]) == 0
    assert [Path(value(words, "--out")).name for words in calls] == NAMES
    base, *others = calls
    assert "--start-from" not in base and value(base, "--loss") == "eagle"
    for words in others:
        assert value(words, "--start-from") == str(tmp_path / "s" / "base" / "head")
        assert (value(words, "--steps"), value(words, "--corpus"), value(words, "--seed")) == ("5", "c", "3")
    assert len({(value(w, "--windows"), value(w, "--prepared"), value(w, "--learning-rate")) for w in others}) == 1
    assert [value(words, "--top-k") for words in others if "--top-k" in words] == ["4", "2", "1"]
    assert not (tmp_path / "shipped").exists()


def test_three_steps_for_every_ten_and_equal_times_where_asked(calls, tmp_path, capsys):
    assert head_suite.main(["--out", str(tmp_path / "s"), "--base-steps", "40", "--minutes", "1.5"]) == 0
    base, *others = calls
    assert value(base, "--steps") == "40" and "--minutes" not in base
    by_steps, by_time = others[:5], others[5:]
    assert all(value(words, "--steps") == "12" and "--minutes" not in words for words in by_steps)
    assert all(value(words, "--minutes") == "1.5" and "--steps" not in words for words in by_time)
    assert [Path(value(words, "--out")).name for words in by_time] == [f"{name}-time" for name in NAMES[1:]]
    said = capsys.readouterr().out.splitlines()
    assert "tokens at 16 nodes" in said[0] and [line.split()[0] for line in said[1:]] == [*NAMES, *(
        f"{name}-time" for name in NAMES[1:])]  # fmt: skip


def test_it_goes_on_where_it_was_and_ships_what_is_trained(calls, tmp_path):
    out = tmp_path / "s"
    begun = Training(out / "hass")
    begun.begin(TrainingSettings("head", "x", (), {}, {}, "2030-01-02T03:04:05"))
    begun.write_status(Status("stopped"))
    assert head_suite.main(["--out", str(out)]) == 0
    assert [("--resume" in words) for words in calls] == [name == "hass" for name in NAMES]
    calls.clear()
    assert head_suite.main(["--out", str(out), "--ship"]) == 0 and not calls
    shipped = {
        file.parent.name: json.loads(file.read_text())["loss"] for file in (tmp_path / "shipped").glob("*/*.json")
    }
    assert shipped == {"eagle": "eagle", "hass": "hass", "talf": "talf", "talf_top1": "talf", "talf_top2": "talf"}
    assert read_card(tmp_path / "shipped" / "talf", "talf").figures["steps"] == 4
    assert not (tmp_path / "shipped" / head_suite.EQUAL_TIME).exists()


def test_equal_times_alone_ship_their_figures_and_no_head(calls, tmp_path):
    assert head_suite.main(["--out", str(tmp_path / "s"), "--steps", "0", "--minutes", "2", "--ship"]) == 0
    assert [Path(value(words, "--out")).name for words in calls] == ["base", *(f"{name}-time" for name in NAMES[1:])]
    assert [file.name for file in (tmp_path / "shipped").iterdir()] == [head_suite.EQUAL_TIME]
    assert equal_time({"weights": "0.6"}, tmp_path / "shipped") is None, "it is of another target"
    kept = equal_time(PAIR["target"], tmp_path / "shipped")
    assert kept["minutes"] == 2
    assert {name: figures["held_out_tokens_at_16_nodes"] for name, figures in kept["heads"].items()} == {
        name: number for number, name in enumerate(NAMES, 1)
    }


def test_a_head_that_fails_ends_the_suite(calls, tmp_path, monkeypatch):
    monkeypatch.setattr(head_suite.head, "main", lambda words: calls.append(words) or 1)
    assert head_suite.main(["--out", str(tmp_path / "s"), "--ship"]) == 1
    assert len(calls) == 1 and not (tmp_path / "shipped").exists()


def test_a_stopped_head_ends_the_suite_and_the_next_call_trains_the_rest(calls, tmp_path, monkeypatch):
    train, out = head_suite.head.main, tmp_path / "s"

    def stopped_at_hass(words: list[str]) -> int:
        return ENDED if Path(value(words, "--out")).name == "hass" else train(words)

    monkeypatch.setattr(head_suite.head, "main", stopped_at_hass)
    assert head_suite.main(["--out", str(out), "--ship"]) == ENDED
    assert [Path(value(words, "--out")).name for words in calls] == ["base", "eagle"]
    assert not (tmp_path / "shipped").exists()
    monkeypatch.setattr(head_suite.head, "main", train)
    assert head_suite.main(["--out", str(out)]) == 0
    assert [Path(value(words, "--out")).name for words in calls[2:]] == NAMES[2:]


@pytest.mark.parametrize("word", ["--loss", "--top-k=2", "--start-from", "--resume"])
def test_what_the_suite_chooses_is_refused(calls, tmp_path, capsys, word):
    assert head_suite.main(["--out", str(tmp_path), word, "1"]) == 2 and not calls
    assert "is chosen by the suite" in capsys.readouterr().err


def test_nothing_is_shipped_that_is_not_trained(tmp_path):
    with pytest.raises(TrainingError, match="has no trained head"):
        head_suite.ship(tmp_path / "none", tmp_path / "shipped")


def test_differences_on_the_same_windows_tell_heads_apart_that_their_means_do_not():
    """The second is ahead by 0.1 on every window; the fifth is a loop for one of both and counts for none."""
    values = {"eagle": [1.0, 1.5, 2.0, 2.5, 9.0], "talf": [1.1, 1.6, 2.1, 2.6, nan], "eagle-time": [1.0] * 5}
    found = compared(values, {"eagle": "eagle", "talf": "eagle", "eagle-time": "hass"})
    assert found["talf"] == pytest.approx(
        {"tokens": 1.85, "error": 0.3227486, "windows": 4, "gained": 0.1, "gained_error": 0.0}
    )
    assert found["eagle"]["tokens"] == 1.75 and "gained" not in found["eagle"]
    assert "gained" not in found["eagle-time"], "its baseline is not there"


def test_what_was_compared_is_of_these_heads_and_no_later_ones(calls, tmp_path):
    assert head_suite.main(["--out", str(tmp_path / "s"), "--steps", "1", "--ship"]) == 0
    shipped = tmp_path / "shipped"
    card = read_card(shipped / "talf", "talf")
    assert same_windows([card], shipped) is None
    kept = {"created": "2030-01-03", "heads": {"talf": {"trained": card.created, "tokens": 1.5}}}
    (shipped / "same_windows.json").write_text(json.dumps(kept))
    assert same_windows([card], shipped) == kept
    assert same_windows([card, read_card(shipped / "hass", "hass")], shipped) is None
    kept["heads"]["talf"]["trained"] = "2029-01-02T03:04:05"
    (shipped / "same_windows.json").write_text(json.dumps(kept))
    assert same_windows([card], shipped) is None


@pytest.mark.parametrize("words", [("--evaluate",), ("--evaluate", "1", "--corpus", "c")])
def test_comparing_needs_held_out_text_and_two_windows_of_it(calls, tmp_path, capsys, words):
    assert head_suite.main(["--out", str(tmp_path), *words]) == 2 and not calls
    assert "at least 2 windows of held-out text" in capsys.readouterr().err


def test_comparing_needs_heads(calls, tmp_path, capsys):
    assert head_suite.main(["--out", str(tmp_path), "--evaluate", "--corpus", "c"]) == 2 and not calls
    assert "has no heads: train them first." in capsys.readouterr().err
