"""Damaged and hostile run files: each must open and draw, or be refused in one sentence, fast and small.

Hypothesis spoils runs decoded here with the embedded pair: their bytes, their archive, their JSON, their arrays, their
size. A table says for every kind of damage how many files opened, were refused and failed; a failure ends it with
code 1. Seconds are processor time, drawing included.
"""

import copy
import faulthandler
import io
import json
import struct
import sys
import time
import tracemalloc
import warnings
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from random import Random
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from benchmarks.trace_drawing import draw_everything
from decoding.common.errors import TraceFileError
from decoding.trace.records import MAX_DEPTH, MAX_NODES, NodeTrace, RunTrace
from decoding.trace.run_file import MAX_JSON_BYTES, MAX_VALUES, RUN_ENTRY, load_run, save_run

EXAMPLES, QUICK_EXAMPLES = 150, 20  # of every kind
# Memory is traced meanwhile, which takes several times as long; a slow processor that does other work needs 20 s.
MOST_SECONDS, MOST_BYTES, MOST_CHARACTERS = 60.0, 768 * 2**20, 300
HANGS_AFTER_S = 240
METHODS = (("dynatree", 0.0), ("dyspec:node_budget=12", 0.8), ("autoregressive", 0.0), ("delayed", 0.7))


@dataclass(frozen=True)
class Saved:
    """A saved run taken apart: its bytes, its document and the other entries of its archive by name."""

    data: bytes
    document: dict[str, Any]
    arrays: dict[str, bytes]

    @classmethod
    def of(cls, run: RunTrace) -> "Saved":
        """Save a run and take the file apart."""
        file = io.BytesIO()
        save_run(run, file)
        with zipfile.ZipFile(file) as archive:
            entries = {name: archive.read(name) for name in archive.namelist()}
        return cls(file.getvalue(), json.loads(entries.pop(RUN_ENTRY)), entries)

    @property
    def text(self) -> str:
        """The document as JSON."""
        return json.dumps(self.document)

    def packed(self, text: bytes | None = None, stored: bool = False) -> bytes:
        """A file with right checksums around the arrays and the document, or another text in its place."""
        return packed([(RUN_ENTRY, self.text.encode() if text is None else text), *self.arrays.items()], stored)


def packed(entries: list[tuple[str, bytes]], stored: bool = False) -> bytes:
    """A zip of some entries, as they are where `stored`; a name may come twice."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile warns of names that come twice
        for name, data in entries:
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED)
    return file.getvalue()


def npy(dtype: str, fortran: str, shape: str, body: bytes, version: bytes = b"\x01\x00") -> bytes:
    """An array as numpy writes it, with any header."""
    header = f"{{'descr': {dtype}, 'fortran_order': {fortran}, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY" + version + struct.pack("<H" if version[0] == 1 else "<I", len(header)) + header + body


def _npy_of(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


# ---- The bytes of a file. Checksums cover them, so what opens at all is the run that was saved.


def _bytes(saved: Saved, chance: Random) -> bytes:
    """Bits flipped; bytes put in, taken out or doubled; the file cut."""
    data, at, size = saved.data, chance.randrange(len(saved.data)), chance.choice((1, 2, 4, 100, 5000))
    flipped = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 8, 64))):
        flipped[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    moved = data[:at] + b"\0P\xff" * size + data[at:], data[:at] + data[at + size :], data[: at + size] + data[at:]
    return chance.choice((bytes(flipped), bytes(flipped), *moved, data[:at], data[at:]))


def _archive(saved: Saved, chance: Random) -> bytes:
    """Fields of the archive's own records: flags, methods, checksums, sizes, offsets, counts."""
    data = bytearray(saved.data)
    central = chance.choice([at for at in range(len(data)) if data[at : at + 4] == b"PK\x01\x02"])
    (local,) = struct.unpack_from("<I", data, central + 42)
    field, end = chance.randrange(6, 46, 2), len(data) - chance.randrange(2, 20, 2)
    both = (central + field, local + field - 2)
    value = chance.choice((0, 1, 9, 12, 14, 0x21, 0x41, 99, 0x8001, 2**16 - 1, chance.randrange(2**16)))
    for place in chance.choice((both, both, both[:1], both[1:], (end,))):
        struct.pack_into("<H", data, place, value)
    return bytes(data)


NAMES = ("../run.json", "/etc/passwd", "arrays/../../x.npy", "arrays\\a.0.npy", "C:/x", "arrays/", "run.json/", "a\0b",
         "arrays/a.0.npy.gz", "arrays/A.0.npy", "arrays/a.0.npy\n", "x" * 5000, "run.json ", "./run.json")  # fmt: skip


def _entries(saved: Saved, chance: Random) -> bytes:
    """An entry of the archive under another name, beside a further one, twice or missing."""
    entries = [(RUN_ENTRY, saved.text.encode()), *saved.arrays.items()]
    place, name = chance.randrange(len(entries)), chance.choice(NAMES)
    one, further = entries[place], (name, b"x" * chance.choice((0, 1, 1000)))
    instead = chance.choice(([(name, one[1])], [one, further], [one, one], [one, (one[0], b"{}")], []))
    return packed([*entries[:place], *instead, *entries[place + 1 :]])


# ---- Files that are larger than they look, and runs as large as a file may hold.


def _bomb(saved: Saved, chance: Random) -> bytes:
    """Much from little: zeros in an array to which a record refers or none does, spaces, sizes that lie."""
    size = chance.choice((2**20, 2**22, 2**24, 2**26))
    if chance.choice((True, False)):
        name = chance.choice((*saved.arrays, "arrays/draft_logits.7.npy"))
        zeros = npy("'<f4'", "False", f"({size}, 1)", b"\0" * (4 * size))
        return replace(saved, arrays={**saved.arrays, name: zeros}).packed()
    data = bytearray(saved.packed(saved.text.encode() + b" " * size))
    place = data.rindex(b"PK\x01\x02") + 24
    struct.pack_into("<I", data, place, chance.choice((0, 10, 2**32 - 2, *struct.unpack_from("<I", data, place))))
    return bytes(data)


FILLERS = (
    ("prompt_texts", '"ab",'), ("prompt_texts", '"",'), ("prompt_texts", f'"{chr(0x1F600)}",'), ("prompt_ids", "[],"),
    ("prompt_ids", "{},"), ("prompt_ids", "[[[[]]]],"), ("prompt_ids", "999999,"), ("draft_levels_s", "1.5,"),
    ("texts", '"%d":"ab",'), ("hardware", '"%d":"ab",'),
)  # fmt: skip


def _filled(saved: Saved, chance: Random) -> bytes:
    """A list or mapping that takes the document near its limits or beyond, in few files all the way."""
    field, entry = chance.choice(FILLERS)
    most = min(MAX_VALUES // sum(map(entry.count, ",:[{")), MAX_JSON_BYTES // (6 + len(entry.encode()))) - 70_000
    count = int(most * chance.choice((0.05, 0.05, 0.05, 0.05, 1.0, 1.2)))
    filler = "".join(entry % (10**7 + place) for place in range(count)) if "%" in entry else entry * count
    opening = {"texts": '"texts": [{', "hardware": '"hardware": {'}.get(field, f'"{field}": [')
    text = saved.text.replace(opening, opening + filler, 1).replace(",]", "]").replace(",}", "}")
    return saved.packed(text.encode(), stored=chance.choice((True, True, False)))  # what packs well is refused sooner


def _large_tree(saved: Saved, chance: Random) -> bytes:
    """A right run whose first tree has very many nodes that were left aside, in chains below the root."""
    run = load_run(io.BytesIO(saved.data))
    first, nodes = run.iterations[0], list(run.iterations[0].nodes)
    if not nodes:
        return saved.data
    longest = chance.choice((1, 9, MAX_DEPTH))
    for place in range(len(nodes), len(nodes) + chance.choice((50, MAX_DEPTH - 20, 400, 400, 3000, MAX_NODES - 40))):
        parent = nodes[-1] if nodes[-1].depth < longest else nodes[0]
        nodes.append(NodeTrace(
            place, parent.node_id, parent.depth + 1, place, f" {place}" * (1 + 8 * (place % 4 == 0)), 1, 0.5,
            parent.path_probability * 0.5, None, None, "not_drafted", True, None, None, None, None, None,
            "not_verified", None, None, reason="improbable",
        ))  # fmt: skip
    arrays = dict.fromkeys(field.name for field in fields(first) if field.type == np.ndarray | None)
    grown = replace(first, nodes=tuple(nodes), drafted=len(nodes) - 1, drawn=(), **arrays)
    return Saved.of(replace(run, iterations=(grown, *run.iterations[1:]))).data


# ---- The document.

JUNK = (None, -1, 0, 1, 0.5, -0.5, 1e308, "x", "", [], {}, [1], ["a"], {"a": 1}, True, False, "\u2028</script>", "=1+1",
        2**31, 2**53, 2**63, 2**64, 10**30, -(2**31), -(2**63), 1e-308)  # fmt: skip


def _places(value: Any) -> Iterator[tuple[str, Any, Any]]:
    """Every (field, container, key) of a document; entries of a list belong to the field that it is."""
    left = [("", value)]
    while left:
        field, here = left.pop()
        for key in here if isinstance(here, dict) else range(len(here)):
            name = key if isinstance(here, dict) and not key.isdigit() else field
            yield name, here, key
            if isinstance(here[key], dict | list):
                left.append((name, here[key]))


def _edited(saved: Saved, chance: Random, change: Callable[[Any], Any], fits: Callable[[Any], bool]) -> bytes:
    """The file with one to three fitting values of its document changed, in fields that are all as likely."""
    document = copy.deepcopy(saved.document)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        by_field = defaultdict(list)
        for field, here, key in _places(document):
            if fits(here[key]):
                by_field[field].append((here, key))
        if by_field:
            here, key = chance.choice(by_field[chance.choice(sorted(by_field))])
            here[key] = change(here[key])
    return replace(saved, document=document).packed()


def _junk(saved: Saved, chance: Random) -> bytes:
    """Values of another type, null, numbers out of all bounds."""
    return _edited(saved, chance, lambda _: copy.deepcopy(chance.choice(JUNK)), lambda _: True)


def _exchanged(saved: Saved, chance: Random) -> bytes:
    """What could be right: a little more or less, words and numbers from elsewhere, lists of another length."""
    values = [here[key] for _, here, key in _places(saved.document)]
    numbers, words = ([each for each in values if isinstance(each, kind)] for kind in (int | float, str))

    def change(value: Any) -> Any:
        if isinstance(value, list):
            return chance.choice((value[:-1], value[1:], value * 2, value[::-1], value * 500, []))
        if isinstance(value, dict):
            name = chance.choice(sorted(value) or [""])
            without = {key: each for key, each in value.items() if key != name}
            return chance.choice((without, without, {**value, f"{name}_": value.get(name)}))
        if isinstance(value, str):
            return chance.choice((chance.choice(words), value * 1000, "\0", "\U0010ffff", "<b>"))
        return chance.choice((value + 1, value - 1, -value, 2 * value, 0, chance.choice(numbers)))

    return _edited(saved, chance, change, lambda value: value is not None)


def _text(saved: Saved, chance: Random) -> bytes:
    """A document that is no right JSON, no right text, nested too deep, or of another version."""
    text = saved.text.encode()
    at, depth = chance.randrange(len(text)), chance.choice((50, 900, 3_000, 100_000))
    opened, closed = chance.choice(((b"[", b"]"), (b'{"a":', b"}")))
    nest = opened * depth + b"1" + closed * chance.choice((0, depth))
    field = chance.choice((b'"settings": ', b'"iterations": ', b'"hardware": ', b'"format": '))
    version = chance.choice((b'"version": ', b'"format_version": '))
    values = (b"0", b"-1", b"1", b"99", b"1" + b"0" * 30, b'"1"', b"null", b"true", b"1.0", b"[1]", b"{}")
    swaps = (
        (b"0.", b"NaN,0."), (b": 0", b": Infinity"), (b": 0", b": -Infinity"), (b": 1", b": 1e999"),
        (b": 1", b": " + b"9" * 4000), (b'"a"', b'"\\ud800"'), (b'"', b"'"), (field, field + nest + b", " + field),
        (field, field + nest + b', "x": '), *((version + b"2", version + value) for value in values),
    )  # fmt: skip
    whole = (
        text[:at], text[:at] + b"\xff\xfe" + text[at:], text[:at] + b"\0" + text[at:], b"\xef\xbb\xbf" + text,
        text.decode().encode("utf-16"), text + text, b"9" * 5000, b"[]", b"null",
    )  # fmt: skip
    return saved.packed(chance.choice((*whole, *(text.replace(old, new, 1) for old, new in swaps))))


# ---- The arrays, and what refers to them.

DTYPES = ("'<f4'", "'<f4'", "'|O'", "'<U9'", "[('a', '<f4')]", "'<c8'", "'>f4'", "'<i4'", "'<M8[s]'", "'|b1'", "'<f2'")
SHAPES = (None, None, "(1000000000000,)", "(-1, 20)", "(2, 999999999999)", "()", "(0,)", "(0, 999999999999)",
          "(1, 1, 1, 1, 1, 1)", "(True, 20)", f"({2**70},)", "(__import__('os').getpid(),)", "(3.0, 4)",
          f"({'1' * 40}", f"(1, {'2' * 40}", f"(1,{' 3,' * 40}")  # fmt: skip


def _arrays(saved: Saved, chance: Random) -> bytes:
    """Other headers, values that no model gives, arrays of another shape or type or in the place of others."""
    name, data = chance.choice(sorted(saved.arrays.items()))
    array, way = np.load(io.BytesIO(data)).copy(), chance.randrange(4)
    if way == 0:
        shape, fortran = chance.choice(SHAPES), chance.choice(("False", "False", "True", "0"))
        version = chance.choice((b"\x01\x00", b"\x01\x00", b"\x02\x00", b"\x09\x09"))
        whole = npy(chance.choice(DTYPES), fortran, shape or str(array.shape), array.tobytes(), version)
        data = chance.choice((whole, whole, whole[:-4], whole + b"\0" * 4, whole[:20], b"", b"\x80" + whole))
    elif way == 1:
        data = saved.arrays[chance.choice(sorted(saved.arrays))]
    elif way == 2:
        wide, other = np.repeat(array, 500, axis=1), array.astype(chance.choice((np.float64, np.float16, np.complex64)))
        data = _npy_of(chance.choice((array[:-1], array[:, :-1], array[..., None], array.reshape(-1), wide, other)))
    else:
        floats = (np.nan, np.inf, -np.inf, -1.0, 2.0, 1e38)
        for _ in range(chance.choice((1, 5))):
            value = chance.choice(floats if array.dtype.kind == "f" else (-1, -2, 2**31 - 1, -(2**31), 0))
            array.reshape(-1)[chance.randrange(array.size)] = value
        data = _npy_of(array)
    return replace(saved, arrays={**saved.arrays, name: data}).packed()


def _references(saved: Saved, chance: Random) -> bytes:
    """References to other arrays, to other rows, or to the rows of another iteration."""

    def refers(value: Any) -> bool:
        return isinstance(value, list) and len(value) == 3 and isinstance(value[0], str)

    def change(value: list[Any]) -> list[Any]:
        other = chance.choice(known)
        moved = [
            chance.choice((other[0], "x")),
            chance.choice((0, 1, -1, 10**20)),
            chance.choice((0, 5, 10**20, value[2])),
        ]
        return chance.choice((moved, other))

    known = [here[key] for _, here, key in _places(saved.document) if refers(here[key])]
    return _edited(saved, chance, change, refers)


KINDS: dict[str, Callable[[Saved, Random], bytes]] = {
    "bytes": _bytes, "archive records": _archive, "entries": _entries, "bombs": _bomb, "filled to the limit": _filled,
    "large trees": _large_tree, "junk values": _junk, "values exchanged": _exchanged, "broken JSON": _text,
    "arrays": _arrays, "references to arrays": _references,
}  # fmt: skip
SAME_RUN = ("bytes", "archive records")


def spoiled(kind: str, saved: list[Saved]) -> st.SearchStrategy[tuple[Saved, bytes]]:
    """One of some saved runs, and its file damaged in one way."""
    drawn = st.tuples(st.sampled_from(saved), st.randoms(use_true_random=False))
    return drawn.map(lambda each: (each[0], KINDS[kind](*each)))


def outcome(kind: str, saved: Saved, data: bytes) -> str:
    """What became of a spoiled file: the sentence of a refusal, or nothing where it opened, drew and saved.

    Raises:
        AssertionError: it took too long or too much memory, was refused in other than one short sentence, or opened as
            another run where that cannot be; whatever else comes out of opening and drawing comes out here too.
    """
    run, words, started = None, "", time.process_time()
    tracemalloc.start()
    try:
        run = load_run(io.BytesIO(data))
    except TraceFileError as error:
        words = str(error)
        one_sentence = words.isprintable() and len(words) < MOST_CHARACTERS and words.endswith(".")
        assert one_sentence, f"not one short sentence: {words[:500]!r}"
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    seconds = time.process_time() - started
    assert seconds < MOST_SECONDS, f"it took {seconds:.1f} s"
    assert peak < MOST_BYTES, f"it took {peak / 2**20:.0f} MB"
    if run is not None:
        again = Saved.of(run).data
        if kind in SAME_RUN:
            assert again == saved.data, "it opened as another run"
        else:
            draw_everything(run, load_run(io.BytesIO(saved.data)))
    return words


def saved_runs() -> list[Saved]:
    """Short runs decoded here with all their rows: a tree, a sampled tree, no tree, a sampled delayed one."""
    from decoding.compare.contestants import parse_contestant
    from decoding.methods.method import fitted
    from decoding.models.pair import embedded_pair
    from decoding.sampling.sampling import Sampling
    from decoding.session.session import DecodeSession, Limits

    pair, found = embedded_pair(), []
    prompt_ids = pair.vocabulary.encode("Once upon a time there was a little dog. He liked to")
    for text, temperature in METHODS:
        sampling = Sampling(temperature, seed=1)
        method = fitted(parse_contestant(text).method, sampling)
        session = DecodeSession(pair, method, prompt_ids, sampling, Limits(10, ignore_end_of_text=True, rows="full"))
        list(session)
        found.append(Saved.of(session.trace()))
    return found


def main() -> int:
    import torch

    from decoding.experiments.command import arguments, print_table, save_figures

    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, help=f"files of every kind of damage, {EXAMPLES} by default")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    runs, rows, failures = saved_runs(), [], []
    examples = args.examples or (QUICK_EXAMPLES if args.quick else EXAMPLES)
    for kind in KINDS:
        counts, started = Counter(), time.process_time()
        _try_many(kind, runs, examples, args.seed, counts, failures)
        seconds = f"{(time.process_time() - started) / counts.total():.2f}"
        rows.append((kind, *(counts[what] for what in ("opened", "refused", "failed")), seconds))
    header = ("kind of damage", "opened", "refused", "failed", "s per file")
    print_table(header, rows)
    print("\n".join([*(f"failed: {each}" for each in failures[:40]), f"seed {args.seed}, {len(failures)} failed"]))
    figures = {"seed": args.seed, "table": [dict(zip(header, row, strict=True)) for row in rows]}
    save_figures(args, "trace_fuzz", figures, torch.device("cpu"))
    return 1 if failures else 0


def _try_many(kind: str, runs: list[Saved], examples: int, number: int, counts: Counter, failures: list[str]) -> None:
    """Spoil files in one way and count what became of them."""

    @seed(number)
    @settings(max_examples=examples, deadline=None, database=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(spoiled(kind, runs))
    def spoil(drawn: tuple[Saved, bytes]) -> None:
        faulthandler.dump_traceback_later(HANGS_AFTER_S, exit=True)
        try:
            counts["refused" if outcome(kind, *drawn) else "opened"] += 1
        except Exception as error:  # noqa: BLE001 - what else can come out of a file is what is looked for
            counts["failed"] += 1
            failures.append(f"{kind}: {type(error).__name__}: {str(error)[:300]}")
        faulthandler.cancel_dump_traceback_later()

    spoil()


if __name__ == "__main__":
    sys.exit(main())
