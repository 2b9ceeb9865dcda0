"""Runs as large as a file may hold, or larger: trees, tops, texts and lists that fill it, some of them right."""

import copy
import io
import json
from dataclasses import fields, replace
from random import Random

import numpy as np

from benchmarks.trace_document_mutations import RUN, Saved, packed
from decoding.trace.archive import MAX_JSON_BYTES, MAX_VALUES, load_run, save_run
from decoding.trace.records import MAX_DEPTH, MAX_NODES, IterationTrace, NodeTrace, RunTrace

# What a list or a mapping is filled with: the field and one entry of it.
FILLERS = (
    ("prompt_texts", '"ab",'), ("prompt_ids", "999999,"), ("prompt_ids", "[],"), ("prompt_ids", "{},"),
    ("draft_levels_s", "1,"), ("draft_levels_s", "1.5,"), ("texts", '"%d":"ab",'), ("hardware", '"%d":"ab",'),
)  # fmt: skip


def _tops(saved: Saved, chance: Random) -> bytes:
    """The likeliest tokens of every node: more of them than a run has, or the same rows for all iterations."""
    arrays, document = dict(saved.arrays), copy.deepcopy(saved.document)
    factor, shared = chance.choice(((1, True), (2, False), (500, False), (5000, False), (5000, True)))
    for field, column in document["run"]["iterations"].items():
        references = [reference for reference in column if reference] if "_top_" in field else []
        for name in {f"arrays/{reference[0]}.npy" for reference in references}:
            file = io.BytesIO()
            np.save(file, np.repeat(np.load(io.BytesIO(arrays[name])), factor, axis=1))
            arrays[name] = file.getvalue()
        for reference in references if shared else ():
            reference[:] = references[0]
    return Saved(saved.data, document, arrays).packed()


def _filled(saved: Saved, chance: Random) -> bytes:
    """A list, mapping or text that takes the file near its limits, in few files all the way."""
    text = json.dumps(saved.document)
    share = chance.choice((*(0.05,) * 9, 1.0))
    field, entry = chance.choice(FILLERS)
    room = int(share * MAX_JSON_BYTES) - len(text) - 200
    keyed = "%d" in entry
    width, values = len(entry) + 6 * keyed, 2 if keyed or entry in ("[],", "{},") else 1
    count = min((int(share * MAX_VALUES) - 60_000) // values, room // width)
    filler = "".join(entry % (10**7 + place) for place in range(count)) if keyed else entry * count
    if not keyed and chance.random() < 0.5:  # one uncommon character makes a text four times as large
        filler += f'"{chance.choice(("", chr(0x1F600)))}{"x" * (room - len(filler) - 20)}",'
    openings = {"texts": '"texts": [{', "hardware": '"hardware": {', "draft_levels_s": '"draft_levels_s": ['}
    opening = openings.get(field, f'"{field}": [')
    text = text.replace(opening, opening + filler, 1).replace(",]", "]").replace(",}", "}")
    # Stored as it is: what packs well would be refused as repetitions.
    return packed([(RUN, text.encode()), *saved.arrays.items()], stored=share < 1 or chance.random() < 0.9)


def _large_tree(saved: Saved, chance: Random) -> bytes:
    """A first tree with very many nodes that were drafted and left aside: in a chain, below one node, or anyhow."""
    run = load_run(io.BytesIO(saved.data))
    first = run.iterations[0]
    if not first.nodes:
        return saved.data
    count = chance.choice((*(50, MAX_DEPTH - 20, 400) * 5, 3000, MAX_NODES - 40))
    shape = chance.choice(("chain", "star", "any"))
    nodes = list(first.nodes)
    for place in range(len(nodes), len(nodes) + count):
        parent = place - 1 if shape == "chain" else 0 if shape == "star" else chance.randrange(place)
        if nodes[parent].depth >= MAX_DEPTH:
            parent = 0
        token = chance.choice((place, chance.randrange(2**31)))
        nodes.append(_left_aside(nodes[parent], place, token, f" {token}" * chance.choice((1, 1, 1, 9))))
    return _saved_with(run, _grown(first, nodes))


def _left_aside(parent: NodeTrace, place: int, token: int, text: str) -> NodeTrace:
    path = parent.path_probability * 0.5
    return NodeTrace(
        place, parent.node_id, parent.depth + 1, token, text, 1, 0.5, path, None, None, "not_drafted", True, None, None,
        None, None, None, "not_verified", None, None, None, None, "improbable",
    )  # fmt: skip


def _grown(first: IterationTrace, nodes: list[NodeTrace]) -> IterationTrace:
    """The iteration with these nodes; rows of those that it did not have are empty."""

    def rows(array: np.ndarray | None) -> np.ndarray | None:
        if array is None:
            return None
        empty = -1 if array.dtype.kind == "i" else np.nan
        return np.concatenate([array, np.full((len(nodes) - len(array), array.shape[1]), empty, array.dtype)])

    arrays = {field.name: rows(getattr(first, field.name)) for field in fields(first) if "_top_" in field.name}
    arrays |= {"draft_logits": None, "target_logits": None}
    return replace(first, nodes=tuple(nodes), drafted=len(nodes) - 1, drawn=(), **arrays)


def _saved_with(run: RunTrace, first: IterationTrace) -> bytes:
    file = io.BytesIO()
    save_run(replace(run, iterations=(first, *run.iterations[1:])), file)
    return file.getvalue()


SIZE_KINDS = {
    "tops widened or shared": _tops,
    "filled to the limit": _filled,
    "large trees": _large_tree,
}
