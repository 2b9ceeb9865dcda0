"""A run survives its file exactly, and no damaged, foreign or hostile file does anything but raise TraceFileError."""

import io
import json
import math
import random
import re
import struct
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.trace_fuzz import npy
from decoding.common.errors import TraceFileError
from decoding.methods.methods import METHODS
from decoding.trace import run_file
from decoding.trace.codec import ArraysRead, ArraysToWrite, RecordError, array_of, shown
from decoding.trace.records import FORMAT_VERSION, InterventionTrace, RunTrace, SamplingTrace
from decoding.trace.run_file import load_run, save_run
from tests.helpers.families import MEASURED, family
from tests.helpers.traces import (
    Spec,
    bonus,
    dynatree_recovered,
    iteration_of,
    run_autoregressive,
    run_mixed,
    run_of,
    summary,
)


def full_run() -> RunTrace:
    """Every kind of value at once: two row widths, two dtypes, nan, unusual text, every kind of setting."""
    first, second = dynatree_recovered(), bonus()
    logits = np.random.default_rng(0).normal(size=(len(first.nodes), 3000)).astype(np.float32)
    logits[4, 0] = -np.inf
    draft_logits = logits.copy()
    draft_logits[[node.draft_level is None for node in first.nodes]] = np.nan
    wider = np.zeros((len(second.nodes), 3010), np.float32)
    first = replace(
        first,
        draft_logits=draft_logits,
        target_logits=np.asfortranarray(logits * 2),
        target_top_probs=first.target_top_probs.astype(np.float64),
        target_top_ids=first.target_top_ids.astype(np.int64),
        texts={**first.texts, 0: "<0xE2>", 7: "é中🙂\u2028\x00", 4000: ""},
    )
    run = run_of([first, replace(second, target_logits=wider), summary()])
    settings = {"a": 1, "b": 1.0, "c": True, "d": "é", "e": 1e-300, "f": -0.0}
    sampling = SamplingTrace(0.7, 0.9, 1.1, 2**63 - 1)
    return replace(run, settings=settings, label="DynaTree – 中", hardware={}, sampling=sampling)


def saved(run: RunTrace) -> bytes:
    file = io.BytesIO()
    save_run(run, file)
    return file.getvalue()


def loaded(data: bytes) -> RunTrace:
    return load_run(io.BytesIO(data))


def same(left: object, right: object) -> bool:
    """Equal in type and value, field by field; arrays bit by bit."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if is_dataclass(left):  # a record that was written late is read as one that was not
        return isinstance(left, type(right)) and all(
            same(getattr(left, f.name), getattr(right, f.name)) for f in fields(left)
        )
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    if isinstance(left, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float):
        return left.hex() == right.hex()
    return left == right


def document_of(data: bytes) -> dict:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return json.loads(archive.read("run.json"))


def zipped(entries: list[tuple[str, bytes]]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries:
            archive.writestr(name, data)
    return file.getvalue()


def rezipped(data: bytes, change: Callable[[dict], object]) -> bytes:
    """The same file with another document in it, checksums right."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    document = json.loads(entries["run.json"])
    change(document)
    entries["run.json"] = json.dumps(document).encode()
    return zipped(list(entries.items()))


def refusal(data: bytes) -> str:
    """The sentence a file is refused with."""
    with pytest.raises(TraceFileError) as caught:
        loaded(data)
    message = str(caught.value)
    assert message.endswith(".") and ": " in message and "\n" not in message
    return message


@pytest.mark.parametrize("build", [full_run, run_mixed, run_autoregressive, lambda: run_of([])])
def test_round_trip_is_exact(build: Callable[[], RunTrace]):
    run = build()
    again = loaded(saved(run))
    assert same(run, again)
    assert saved(again) == saved(run)


def test_the_comparison_of_this_test_sees_a_difference():
    run = full_run()
    assert not same(run, replace(run, settings={**run.settings, "a": True}))
    changed = run.iterations[0].draft_logits.copy()
    changed[0, 0] += 1
    assert not same(
        run, replace(run, iterations=(replace(run.iterations[0], draft_logits=changed), *run.iterations[1:]))
    )


def test_paths_work_and_saving_leaves_one_file(tmp_path: Path):
    path = tmp_path / "run.dscope"
    save_run(full_run(), path)
    save_run(run_mixed(), str(path))
    assert same(load_run(path), run_mixed())
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_there_stays_unless_asked(tmp_path: Path):
    path = tmp_path / "run.dscope"
    path.write_bytes(b"mine")
    with pytest.raises(TraceFileError, match=r"File exists.*choose"):
        save_run(run_mixed(), path, overwrite=False)
    assert path.read_bytes() == b"mine"
    path.unlink()
    save_run(run_mixed(), path, overwrite=False)
    assert same(load_run(path), run_mixed())
    assert list(tmp_path.iterdir()) == [path]


def test_a_saved_file_is_as_readable_as_others(tmp_path: Path):
    save_run(run_mixed(), tmp_path / "run.dscope")
    (tmp_path / "other").touch()
    assert (tmp_path / "run.dscope").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_loaded_arrays_cannot_be_written():
    with pytest.raises(ValueError):
        loaded(saved(full_run())).iterations[0].draft_logits[0, 0] = 1


def test_a_file_is_compact():
    assert len(saved(run_of([dynatree_recovered()] * 50))) < 50 * 1500


def test_unreadable_and_unwritable_paths(tmp_path: Path):
    for call in (load_run, lambda path: save_run(run_mixed(), path)):
        with pytest.raises(TraceFileError, match=r"nowhere.*choose"):
            call(tmp_path / "nowhere" / "run.dscope")
    with pytest.raises(TraceFileError):
        load_run(tmp_path)


def test_junk_behind_or_before_the_file():
    data = saved(run_mixed())
    refusal(data + b"x")
    refusal(b"x" + data)


def put(document: dict, place: str, value: object) -> None:
    """Another value at a place such as `iterations.nodes[0].depth[1]`."""
    here, *steps = document["run"], *re.findall(r"\w+", place)
    for step in steps[:-1]:
        here = here[int(step) if isinstance(here, list) else step]
    here[int(steps[-1]) if isinstance(here, list) else steps[-1]] = value


NODES = "iterations.nodes[0]"


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (f"{NODES}.verdict[1]", "maybe"),
        (f"{NODES}.depth[1]", "1"),
        (f"{NODES}.depth[1]", True),
        (f"{NODES}.depth[1]", 257),
        (f"{NODES}.pruned[1]", 0),
        (f"{NODES}.text[1]", None),
        (f"{NODES}.text[1]", "x" * 4097),
        (f"{NODES}.parent_id[1]", -2),
        (f"{NODES}.path_probability[1]", 1.5),
        (f"{NODES}.multiplicity[1]", 0),
        (f"{NODES}.token_id[1]", 2**60),
        ("label", "x" * 4097),
        ("settings", []),
        ("settings", {"a": [1]}),
        ("max_new_tokens", 2**60),
        ("iterations", []),
        ("iterations.index", [0] * 65_537),
        ("iterations.settings[0]", {"a": None}),
        ("iterations.texts[0]", {"x": "a"}),
        ("iterations.draft_top_ids[0]", "draft_top_ids.0"),
        ("iterations.draft_sampling[0]", "guessed"),
        ("iterations.tree_depth[0]", 10**9),
        ("iterations.drafted[0]", 10**9),
        ("iterations.verified[0]", 8193),
        ("iterations.target_passes[0]", 2**60),
        ("iterations.ended_s[0]", 1e300),
        ("iterations.flatten_order[0][1]", -1),
        ("iterations.times[0].draft_s", 1e300),
        ("iterations.history[1].before", {"confidence_high": "high"}),
    ],
)
def test_a_value_that_its_type_does_not_allow(place: str, value: object):
    message = refusal(rezipped(saved(full_run()), lambda document: put(document, place, value)))
    assert f"damaged ({place}: {shown(value)} is invalid, " in message


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        (f"{NODES}.depth[1]", 2, "nodes[1]: depth 2 is not its parent's + 1"),
        (f"{NODES}.parent_id[1]", 1, "nodes[1]: parent_id 1 is not an earlier node"),
        (f"{NODES}.parent_id[0]", 0, "nodes[0]: parent_id 0 and depth 0 are not those of a root"),
        (f"{NODES}.verdict[1]", "root", "nodes[1]: verdict is root, and node 0 alone is the root"),
        (f"{NODES}.node_id[1]", 2, "nodes[1]: node_id 2 is not its index"),
        (f"{NODES}.flat_index[1]", 5, "nodes[1]: flat_index 5 contradicts flatten_order"),
        (f"{NODES}.token_id[1]", 3000, "draft_logits has 3000 tokens per node, and its tree the token 3000"),
        ("iterations.accepted[0]", [1, 99], "accepted is not a path of known nodes: 99"),
        ("iterations.accepted[0]", [1, 2], "accepted is not a path from the root: 2"),
        ("iterations.flatten_order[0]", [0, 99], "flatten_order has an unknown node, 99"),
        ("iterations.drawn[0]", [1, 99], "drawn has an unknown node, 99"),
        ("iterations.committed_texts[0]", [], "committed_ids and committed_texts differ in length, 3 and 0"),
        ("iterations.final_kind[0]", "none", "which are not the 2 accepted nodes and the final token"),
        ("iterations.draft_top_ids[0]", ["draft_top_ids.0", 0, 10**6], "are not in the file"),
        ("iterations.draft_top_ids[0]", ["draft_top_ids.0", 0, 1], "are not in the file, or out of order"),
        ("iterations.draft_top_ids[0]", ["draft_top_ids.0", 14, 0], "rows 14 to 0 of 'draft_top_ids.0' are not in"),
        ("iterations.draft_top_ids[0]", ["draft_top_probs.0", 0, 14], "out of order"),
        ("iterations.prefix_length[0]", 2**40, "it is not the first one, right after the prompt"),
        ("iterations.index[0]", 5, "with index 5"),
        ("iterations.index[1]", 5, "iterations[1]: index 5 does not follow"),
        ("iterations.started_s[1]", 0.001, "iterations[1]: started_s 0.001 is before the previous iteration ends"),
        ("iterations.ended_s[0]", 0.0, "is not after started_s"),
        ("iterations.tree_depth[0]", 200, "tree_depth 200, verified"),
        ("iterations.settings[0]", {"prune_probability": "0.1"}, "prune_probability '0.1' is not a number"),
        ("iterations.history[1].before", {}, "history: before and after name different settings"),
        ("prompt_texts", ["a"], "prompt_ids and prompt_texts differ in length"),
        ("sampling.seed", 2**63 - 1, ""),
        ("sampling.temperature", 1e31, "sampling: temperature must be 0, which decodes greedily, or from"),
        ("sampling.temperature", 1e-31, "not 1e-31."),
        ("sampling.draft_temperature", 1e31, "sampling: draft_temperature must be from"),
        ("sampling.top_p", 1e-310, "sampling: top_p must be above 0"),
        ("totals.new_tokens", 1, "totals.new_tokens 1 is less than the"),
        ("format_version", 1, "format_version 1 is not 3, the version of this program"),
        ("extra", 1, "unknown field `extra`"),
    ],
)
def test_values_that_contradict_each_other(place: str, value: object, says: str):
    data = rezipped(saved(full_run()), lambda document: put(document, place, value))
    assert says in refusal(data) if says else loaded(data)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda document: document["run"].pop("pair"), "missing required field `pair`"),
        (lambda document: document["run"]["iterations"]["index"].append(3), "columns of different lengths: 3, 4"),
        (lambda document: document.pop("run"), "expected `object`, got `null`"),
        (lambda document: nothing_committed(document["run"]["iterations"]), "commits no token"),
        (lambda document: shared_rows(document["run"]["iterations"]), "out of order"),
    ],
)
def test_a_record_of_another_shape(change: Callable[[dict], object], says: str):
    assert says in refusal(rezipped(saved(full_run()), change))


def nothing_committed(iterations: dict) -> None:
    iterations["final_kind"][0] = "none"
    for name in ("accepted", "committed_ids", "committed_texts"):
        iterations[name][0] = []


def shared_rows(iterations: dict) -> None:
    """Both iterations refer to the rows of the first: however large, they would take no room in the file."""
    iterations["target_top_ids"][1] = iterations["target_top_ids"][0]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "9" * 5000])
def test_numbers_that_are_not_finite(number: str):
    text = json.dumps(document_of(saved(run_mixed()))).replace('"started_s": [', f'"started_s": [{number}, ', 1)
    assert "damaged" in refusal(zipped([("run.json", text.encode())]))


def test_history_that_moves_something_else_later():
    def change(document: dict) -> None:
        for side in ("before", "after"):
            document["run"]["iterations"]["history"][1][side] = {"other": 1.0}

    two = saved(run_of([bonus(), bonus()]))
    assert "different settings than before" in refusal(rezipped(two, change))


def test_an_array_that_a_record_refers_to_only_in_part():
    def change(document: dict) -> None:
        document["run"]["iterations"]["target_top_ids"][1][2] -= 1

    assert "or not all of it" in refusal(rezipped(saved(run_of([bonus(), bonus()])), change))


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        (np.zeros((1, 20), np.int32), "not have one row per node"),
        (np.zeros((14, 20), np.float32), "not have one row per node"),
        (np.zeros((14, 21), np.int32), "has 21 tokens per node, more than 20"),
    ],
)
def test_tops_of_another_shape(ids: np.ndarray, says: str):
    first = replace(dynatree_recovered(), target_top_ids=ids, target_top_probs=np.zeros(ids.shape, np.float32))
    with pytest.raises(TraceFileError, match=says):
        saved(run_of([first]))


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("side", ["draft", "target"])
def test_rows_that_are_no_law(side: str, value: float):
    first = full_run().iterations[0]
    logits = getattr(first, f"{side}_logits").copy()
    logits[1, 7] = value
    with pytest.raises(TraceFileError, match=f"{side}_logits has a row that is not a distribution, at node 1"):
        saved(run_of([replace(first, **{f"{side}_logits": logits})]))


def test_a_header_that_repeats_itself():
    """A pattern that tries every way to divide a row of digits takes twice as long for each of them."""
    started = time.process_time()
    for shape in (f"(1, {'1' * 12}{'2' * 60}", f"({'1, ' * 40}", f"(1,{' 1,' * 40}", f"(1, {'1' * 40},)"):
        with pytest.raises(RecordError):
            array_of(npy("'<f4'", "False", shape, b""))
    assert time.process_time() - started < 0.5


@pytest.mark.parametrize("recorded", [True, False])
def test_a_tree_too_deep(recorded: bool):
    """The paths of a chain of nodes are as long as its depth squared."""
    chain = [Spec(node, " a", 0.9, 0.9, "not_reached") for node in range(257)]
    deep = iteration_of(chain, final=(0, " b", 0.5), final_kind="fallback")
    if not recorded:
        tops = dict.fromkeys(("draft_top_ids", "draft_top_probs", "target_top_ids", "target_top_probs"))
        deep = replace(deep, nodes=(), steps=(), **tops)
    with pytest.raises(TraceFileError, match=r"(depth\[257\]|tree_depth\[0\]): 257 is invalid"):
        saved(run_of([deep]))


def test_a_pass_over_too_many_nodes():
    """The mask of a pass is its rows squared."""
    first = dynatree_recovered()
    many = replace(first, nodes=(), steps=(), drafted=10_000, verified=10_000, flatten_order=tuple(range(10_001)))
    many = replace(many, draft_top_ids=None, draft_top_probs=None, target_top_ids=None, target_top_probs=None)
    with pytest.raises(TraceFileError, match=r"verified\[0\]: 10000 does not fit|of length <= 8193"):
        saved(run_of([many]))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        pytest.param(
            {"steps": dynatree_recovered().steps[:1] * (2**15 + 1)}, "length <= 32768", marks=pytest.mark.slow
        ),
        ({"interventions": (InterventionTrace("accept", (5,)),) * 513}, "length <= 512"),
        ({"interventions": (InterventionTrace("accept", (5,) * 257),)}, r"path\[0\]: .*length <= 256"),
    ],
)
def test_more_than_can_be_drawn_in_a_moment(changed: dict, says: str):
    with pytest.raises(TraceFileError, match=says):
        saved(run_of([replace(dynatree_recovered(), **changed)]))


def test_a_tree_of_long_texts():
    specs = [Spec(0, str(node).ljust(4096, "x"), 1e-3, 1e-3, "not_reached") for node in range(257)]
    with pytest.raises(TraceFileError, match=r"tokens of its tree have .* characters, more than 1,048,576"):
        saved(run_of([iteration_of(specs, final=(0, " b", 0.5), final_kind="fallback")]))


def test_a_missing_field_with_a_default_is_read():
    """Fields added later with a default do not shut out older files."""
    data = rezipped(saved(full_run()), lambda document: document["run"]["iterations"].pop("draft_sampling"))
    assert loaded(data).iterations[0].draft_sampling == "deterministic"


def test_foreign_files():
    npz = io.BytesIO()
    np.savez(npz, a=np.zeros(3))
    foreign = [
        b"",
        b"hello",
        b"PK\x03\x04",
        zipped([("word/document.xml", b"<x/>")]),
        zipped([("run.json", b'{"format": "other"}')]),
        zipped([("run.json", b"[]")]),
        npz.getvalue(),
    ]
    for data in foreign:
        assert "not a Draftscope run" in refusal(data) or data == b"PK\x03\x04"


@pytest.mark.parametrize(
    "text", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"format": "draftscope-run", "version": "1"}']
)
def test_broken_documents(text: bytes):
    assert "damaged" in refusal(zipped([("run.json", text)]))


def test_a_file_from_the_future():
    data = rezipped(saved(run_mixed()), lambda document: document.update(version=FORMAT_VERSION + 1))
    assert "newer Draftscope" in refusal(data)


def test_limits_on_what_a_file_unpacks_to(monkeypatch: pytest.MonkeyPatch):
    data = saved(run_mixed())
    noise = random.Random(5).randbytes(1_000_000).hex().encode()
    large = zipped([("run.json", b"{}"), *((f"arrays/a.{place}.npy", noise) for place in range(4))])
    for file, most in ((data, len(data) - 1), (data, len(data) + 1000), (large, len(large) + 1000)):
        monkeypatch.setattr(run_file, "MAX_BYTES", most)
        assert "the limit is" in refusal(file)


def test_a_small_file_with_huge_arrays(monkeypatch: pytest.MonkeyPatch):
    """Half a megabyte of packed zeros would take the memory of half a gigabyte of logits."""
    monkeypatch.setattr(run_file, "_packs_too_well", lambda pieces: False)
    first = full_run().iterations[1]
    zeros = np.zeros((len(first.nodes), 2**18), np.float32)
    data = saved(run_of([replace(first, index=0, target_logits=zeros)]))
    assert len(data) < 100_000 and "of repetitions" in refusal(data)


def test_an_entry_that_lies_about_its_packed_size():
    bomb = bytearray(zipped([("run.json", b"{}"), ("arrays/a.0.npy", b"\0" * 50_000_000)]))
    directory = bomb.rindex(b"PK\x01\x02")
    struct.pack_into("<I", bomb, directory + 20, 10_000_000)
    assert "claim more bytes" in refusal(bytes(bomb))


def test_logits_that_pack_too_well_are_stored_and_open():
    """Of a wide tree most rows may never have been computed: they are nan."""
    first = full_run().iterations[0]
    wide = np.full((len(first.nodes), 2**16), np.nan, np.float32)
    wide[[node.draft_level is not None for node in first.nodes]] = 0.5
    run = run_of([replace(first, draft_logits=wide, target_logits=None)])
    assert len(saved(run)) > wide.nbytes / 2 and same(run, loaded(saved(run)))


def test_logits_that_half_precision_holds_take_half_the_bytes_and_come_back_in_single():
    rough = np.random.default_rng(0).integers(-300, 0, size=(3, 4000)).astype(np.float32) / 16
    exact = rough + np.float32(1e-5)
    for logits, size in ((rough, 2), (exact, 4)):
        arrays = ArraysToWrite()
        name, *_ = arrays.put("target_logits", logits)
        content = b"".join(arrays.pieces(name))
        assert size * logits.size <= len(content) < size * logits.size + 200
        assert same(array_of(content), logits) and arrays.num_bytes == logits.nbytes
    read = ArraysRead(rough.nbytes - 1)
    arrays = ArraysToWrite()
    reference = arrays.put("target_logits", rough)
    read.add(reference[0], lambda: b"".join(arrays.pieces(reference[0])))
    with pytest.raises(RecordError):  # in memory they take as much as any
        read.get(reference)


def test_memory_that_is_not_there_is_reported(monkeypatch: pytest.MonkeyPatch):
    def full(*_):
        raise MemoryError

    monkeypatch.setattr("decoding.trace.codec.array_of", full)
    assert "not enough free memory" in refusal(saved(full_run()))


def test_a_bomb_that_lies_about_its_size(monkeypatch: pytest.MonkeyPatch):
    """The directory claims 10 bytes; reading stops there instead of unpacking everything."""
    bomb = bytearray(zipped([("run.json", b" " * 30_000_000)]))
    directory = bomb.rindex(b"PK\x01\x02")
    struct.pack_into("<I", bomb, directory + 24, 10)
    with monkeypatch.context() as smaller:
        smaller.setattr(run_file, "MAX_BYTES", 1_000_000)
        assert "damaged" in refusal(bytes(bomb))
    monkeypatch.setattr(run_file, "MAX_JSON_BYTES", 1_000_000)
    noise = random.Random(3).randbytes(600_000).hex().encode()
    assert "the limit is" in refusal(zipped([("run.json", noise)]))


@pytest.mark.slow
def test_a_small_file_with_a_huge_document():
    """What unpacks to far more text or values than a run has is refused before it is read."""
    assert "repetitions" in refusal(zipped([("run.json", b" " * 30_000_000)]))
    chance = random.Random(4)
    lists = [b"[],", b"{},", b"[ ],", b"{ },"]
    text = b"[" + b"".join(chance.choices(lists, k=run_file.MAX_VALUES // 2 + 1)) + b"1]"
    assert "more values" in refusal(zipped([("run.json", text)]))


def test_a_run_that_packs_too_well_is_stored_and_opens():
    run = run_of([])
    count = 600_000
    run = replace(run, prompt_ids=(7,) * count, prompt_texts=("a",) * count)
    data = saved(run)
    assert len(data) > 2_000_000
    assert loaded(data).prompt_ids == run.prompt_ids


def test_an_array_that_nothing_refers_to():
    """It is not even unpacked."""
    document = json.dumps(document_of(saved(run_of([])))).encode()
    extra = zipped([("run.json", document), ("arrays/a.0.npy", b"no array")])
    assert "no record uses the array" in refusal(extra)


def test_long_and_odd_words_of_a_file_do_not_break_the_sentence():
    versions = (10**3000, "\n" * 50)
    for version in versions:
        text = json.dumps({"format": "draftscope-run", "version": version}).encode()
        assert len(refusal(zipped([("run.json", text)]))) < 300
    odd = "\U000e0001" * 5000
    assert len(refusal(rezipped(saved(run_mixed()), lambda document: document["run"].update({odd: 1})))) < 300
    assert len(refusal(zipped([("run.json", b"{}"), ("\u2028\n" * 500, b"x")]))) < 300


def test_a_directory_too_long_to_read():
    assert "not a Draftscope run" in refusal(zipped([(f"{i}.txt", b"") for i in range(200)]))


@pytest.mark.parametrize(
    "name",
    ["../run.json", "/etc/passwd", "arrays/../../x.npy", "arrays\\x.0.npy", "C:/x", "arrays/", "arrays/a.0.npy.gz"],
)
def test_paths_in_a_file_are_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    document = json.dumps(document_of(saved(run_autoregressive()))).encode()
    assert "unknown entry" in refusal(zipped([("run.json", document), (name, b"x")]))
    assert not list(tmp_path.iterdir())


def test_the_same_name_twice():
    data = zipped([("run.json", b"{}"), ("run_json", b"{}")]).replace(b"run_json", b"run.json")
    assert "same name" in refusal(data)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(2, np.complex64),
        np.array(["x"]),
        np.array([None]),
        np.array(1),
        np.zeros((2, 2), order="F"),
        np.zeros(1, ">f4"),
    ],
)
def test_arrays_of_another_kind(array: np.ndarray):
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    with pytest.raises(RecordError, match="unknown type"):
        array_of(file.getvalue())


@pytest.mark.parametrize("shape", ["(10,)", "(1000000000000,)", f"({2**70},)", "(2, -2)", "('x',)"])
def test_arrays_that_claim_more_than_they_hold(shape: str):
    with pytest.raises((RecordError, ValueError)):
        array_of(npy("'<f4'", "False", shape, b"\0" * 16))


def test_a_wrong_record_is_not_saved(tmp_path: Path):
    run = run_mixed()
    broken = replace(run.iterations[0], ended_s=math.nan)
    for wrong in (
        replace(run, iterations=(broken, *run.iterations[1:])),
        replace(run, max_new_tokens=np.int64(3)),
        replace(run, settings={"a": np.float32(1)}),
        replace(run, format_version=FORMAT_VERSION + 1),
    ):
        with pytest.raises(TraceFileError, match="cannot be saved"):
            save_run(wrong, tmp_path / "run.dscope")
    assert not list(tmp_path.iterdir())


def test_a_run_too_large_to_load_is_not_saved(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run_file, "MAX_BYTES", 10_000)
    with pytest.raises(TraceFileError, match="record fewer tokens"):
        saved(run_mixed())


IN_EVERY_WAY = [*METHODS][::5]


@pytest.mark.parametrize("name", family(METHODS, *IN_EVERY_WAY))
def test_runs_of_every_method_survive_their_file(pair, name):
    from decoding.session.session import DecodeSession, Limits

    prompt = pair.vocabulary.tokenizer("Once upon a time there was a little dog. He liked to")["input_ids"]
    kinds = (("full", "full", "rebuild"), ("full", "top", "compaction"), ("summary", "top", "rebuild"))
    method = METHODS[name].with_settings(**MEASURED.get(name, {}))
    for record, rows, policy in kinds if name in IN_EVERY_WAY else kinds[:1]:
        limits = Limits(6, record=record, rows=rows)
        session = DecodeSession(pair, method.with_settings(cache_policy=policy), prompt, limits=limits)
        list(session)
        run = session.trace()
        assert run.iterations
        run = replace(run, hardware={name: str(value) for name, value in run.hardware.items()})
        assert same(run, loaded(saved(run))), (name, record)
