"""The benchmark of row orders: its masks and counts by hand, and what it prints."""

import json
import sys

import numpy as np
import pandas as pd
import pytest
import torch

from decoding.papers.measured import mask_order
from decoding.papers.measured.mask_order import ORDERS, blocks_of, kernel_ways, random_tree, tree_mask
from decoding.trace.tree_mask import count_blocks

PARENTS = {0: -1, 1: 0, 2: 0, 3: 1, 4: 2, 5: 2, 6: 5}


def test_a_mask_by_hand():
    mask = tree_mask(PARENTS, (0, 2, 5, 6, 4, 1, 3), prefix=3)
    rows = [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 1, 4], [0, 5], [0, 5, 6]]
    assert [np.flatnonzero(row).tolist() for row in mask.allowed] == rows and mask.prefix_columns == 3
    assert count_blocks(mask, mask.order, block=4).total == 5
    assert blocks_of(PARENTS, "heavy", 30) == {"blocks_16": 3, "blocks": 2, "blocks_64": 1, "blocks_128": 1}


def test_random_trees_are_those_of_the_paper():
    draws = np.random.default_rng(0)
    trees = [random_tree(512, draws) for _ in range(4)]
    assert all(parents[node] < node for parents in trees for node in parents)
    made, breadth, depth, heavy = (np.mean([blocks_of(tree, order, 0)["blocks"] for tree in trees]) for order in ORDERS)
    paper = mask_order.COUNTS[512]
    assert made == pytest.approx(paper[0], rel=0.1) and depth == pytest.approx(paper[1], rel=0.1)
    assert heavy <= depth <= breadth <= made


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_every_way_of_attention_sees_the_same(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    ways = kernel_ways(random_tree(160, np.random.default_rng(0)), 40, torch.device("cpu"), 2, 16)
    assert list(ways) == ["dense", *ORDERS]
    torch.testing.assert_close(ways["dense"](), ways["as made"](), atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_it_prints_counts_and_identity(monkeypatch, capsys, tmp_path):
    words = ["mask_order", "--quick", "--device", "cpu", "--json", str(tmp_path / "figures.json")]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(mask_order, "SIZES", (64,))
    assert mask_order.main() == 0
    said = capsys.readouterr().out
    assert "0 of 20 outputs in another node order differ" in said and "DySpec's trees after a prefix" in said
    assert "Depth-first (DFS)" in said and "Heavy path first" in said
    assert json.loads((tmp_path / "figures.json").read_text())["tokens"]["differing"] == 0
    kept = pd.read_csv(tmp_path / "figures.csv.gz")
    assert set(zip(kept["part"], kept["nodes"], strict=True)) >= {("random", 64), ("real", 64), ("real", 256)}
    assert kept[["blocks_16", "blocks", "blocks_64", "blocks_128"]].notna().all(axis=None)
    assert set(kept["line"]) == set(ORDERS) and sorted(set(kept["prefix"])) == [0, 500, 1000, 2000]
