"""Figures on held-out text against values worked out by hand, and the benchmark that prints them."""

import argparse
import json
import math
import sys

import numpy as np
import pytest
import torch

from benchmarks import embedded_pair as benchmark
from benchmarks.held_out import (
    Figure,
    Reading,
    _rows,
    calibration,
    calibration_error,
    continuations,
    difference,
    kind_figures,
    pieces_of,
    ratio,
    read,
)
from decoding.common.errors import TrainingError
from tests.helpers.small_pair import write_corpus


def reading(nats, text_bytes, overlap=(0.5,), agrees=(1,), draft=((0.6,),), target=((0.5,),), hits=((1,),)) -> Reading:
    return Reading(text_bytes, *(np.array(part, float) for part in (nats, nats, overlap, agrees, draft, target, hits)))


def test_rows_by_hand():
    target, draft = torch.tensor([[0.5, 0.3, 0.2]]).log(), torch.tensor([[0.2, 0.7, 0.1]]).log()
    found = {name: values[0] for name, values in _rows(target, draft, torch.tensor([2])).items()}
    assert found["target_nats"] == pytest.approx(-math.log(0.2)) and found["draft_nats"] == pytest.approx(
        -math.log(0.1)
    )
    assert found["overlap"] == pytest.approx(0.2 + 0.3 + 0.1) and found["agrees"] == 0
    assert found["draft_chances"] == pytest.approx([0.7, 0.2, 0.1])
    assert found["target_chances"] == pytest.approx([0.3, 0.5, 0.2]) and found["hits"].tolist() == [0, 1, 0]


def test_a_ratio_and_its_interval_by_hand():
    found = ratio(np.array([2.0, 4.0]), np.array([1.0, 3.0]))
    # 6 / 4 = 1.5; residuals (2 - 1.5) / 4 and (4 - 4.5) / 4; their error sqrt(2 * (2 * 0.125**2)).
    assert found.value == 1.5 and found.half == pytest.approx(1.96 * math.sqrt(2 * 2 * 0.125**2))
    assert ratio(np.array([3.0]), np.array([2.0])) == Figure(1.5, None) and str(Figure(1.5, None)) == "1.500"
    same = difference(np.array([2.0, 4.0]), np.ones(2), np.array([1.0, 3.0]), np.ones(2))
    assert same == Figure(1.0, 0.0), "the same difference in every piece leaves no doubt"


def test_calibration_error_by_hand():
    chances, hits = np.array([0.92, 0.94, 0.15, 0.13]), np.array([1.0, 0.0, 0.0, 0.0])
    # Bin of 0.9: two of four, 0.93 against 0.5; bin of 0.1: two of four, 0.14 against 0.
    assert calibration_error(chances, hits) == pytest.approx(0.5 * 0.43 + 0.5 * 0.14)
    assert calibration_error(np.array([1.0, 1.0]), np.array([1.0, 1.0])) == 0
    ranks = calibration([reading([1.0], 4), reading([1.0], 4, draft=((0.2,),), target=((0.1,),), hits=((0,),))])
    (first,) = ranks
    assert (first.rank, first.draft_chance, first.target_chance, first.hit_rate) == (
        1,
        *map(pytest.approx, (0.4, 0.3, 0.5)),
    )
    assert first.calibration_error == pytest.approx(0.1) and first.greedy_error == pytest.approx(0.3)


def test_figures_of_a_kind_by_hand():
    loop = list(range(20)) * 3  # its 16 first tokens are seen again after 20, so that the 36th completes a loop
    found = kind_figures("x", [reading([1.0, 3.0], 8), reading([2.0], 4)], [loop, list(range(40))])
    assert (found.tokens, found.text_bytes, found.pieces) == (3, 12, 2)
    assert found.nats_per_token.value == 2 and found.nats_per_byte.value == 0.5
    # Agresti and Coull: (1 + 2) of (2 + 4).
    assert found.looping == Figure(0.5, pytest.approx(1.96 * math.sqrt(0.25 / 6)))
    assert found.looping_tokens.value == pytest.approx(25 / 100)


def test_pieces_end_between_words_and_spread_over_the_text():
    text = "\n\n".join(f"Paragraph {number} has some words in it." for number in range(400))
    pieces = pieces_of([text, "too short"], 5, size=600)
    assert len(pieces) == 5 and pieces[0].startswith("Paragraph 0 ") and "Paragraph 399 " in pieces[-1] + text[-40:]
    assert all(300 <= len(piece) <= 600 and piece in text and piece.endswith(".") for piece in pieces[:-1])
    with pytest.raises(TrainingError, match="shorter than"):
        pieces_of(["too short"], 5)


def test_a_piece_is_read_by_both_models(pair):
    text = "Once upon a time there was a little girl named Lily. She liked to play outside in the park."
    found = read(pair, text)
    ids = pair.vocabulary.encode(text)
    with torch.no_grad():
        loss = pair.target.network(input_ids=torch.tensor([ids]), labels=torch.tensor([ids])).loss
    assert found.target_nats.mean() == pytest.approx(float(loss), rel=1e-4)
    assert found.text_bytes == len(text) - len(pair.vocabulary.text(ids[0]))
    assert 0 < found.overlap.min() <= found.overlap.max() <= 1
    assert (found.hits.sum(-1) <= 1).all() and (np.diff(found.draft_chances) <= 0).all()


def test_greedy_text_ends_with_the_text(pair, monkeypatch):
    prompts = [
        "Once upon a time there was a little dog named Max who",
        "too short",
        "The town lies on the river and was built",
    ]
    rows = continuations(pair, prompts, 9, 12)
    assert [len(row) for row in rows] == [12, 12]
    stop = rows[0][5]
    monkeypatch.setattr(pair.vocabulary, "stop_ids", frozenset({stop}))
    assert continuations(pair, prompts, 9, 12)[0] == rows[0][: rows[0].index(stop)]
    with pytest.raises(TrainingError, match="No held-out piece has 500 tokens"):
        continuations(pair, prompts, 500, 12)


def test_differences_are_judged_by_their_intervals():
    assert benchmark.verdict("overlap", Figure(0.02, 0.01)) == "better"
    assert benchmark.verdict("overlap", Figure(-0.02, 0.01)) == "WORSE"
    assert benchmark.verdict("nats_per_byte", Figure(-0.02, 0.01)) == "better"
    assert benchmark.verdict("looping", Figure(0.02, 0.03)) == benchmark.verdict("looping", Figure(1, None))


@pytest.mark.slow
def test_the_benchmark_prints_what_it_measured(tmp_path, monkeypatch, capsys):
    file, corpus = tmp_path / "found.json", write_corpus(tmp_path / "texts")
    monkeypatch.setattr(benchmark, "NEW_TOKENS", 64)
    monkeypatch.setattr(benchmark, "SHOWN_TOKENS", 8)
    words = ["--corpus", str(corpus), "--quick", "--against", "embedded", "--json", str(file)]
    monkeypatch.setattr(sys, "argv", ["benchmarks/embedded_pair.py", *words])
    assert benchmark.main() == 0
    printed, known = capsys.readouterr().out, json.loads(file.read_text())
    assert "SHA-256" in printed and "rank 5" in printed and "T = 0.8" in printed
    assert {kind["kind"] for kind in known["kinds"]} == {"stories", "sums"} and known["held_out"]
    assert known["files"][0]["bytes"] + known["files"][1]["bytes"] < 30e6
    assert all(
        entry["value"] == 0 and entry["verdict"] == "no clear difference" for entry in known["against"]["differences"]
    )
    assert known["kinds"][0]["nats_per_byte"]["value"] == known["against"]["kinds"][0]["nats_per_byte"]["value"]


def test_without_a_corpus_it_says_what_to_give(capsys):
    texts = benchmark.texts_of(argparse.Namespace(corpus=None, quick=True, prompts=None, pieces=1))
    assert "No --corpus DIR is given" in capsys.readouterr().out
    assert {"stories", "fiction"} <= texts.keys() and all(texts.values())
