"""`python -m benchmarks.remake --corpus DIR`: make everything anew that hangs on the embedded pair, part by part.

Draft heads and selectors are trained, runs are recorded (`python -m decoding.recorded`), every grid and every benchmark
of the pair that is stored is run again by its own command, then come the tables and pictures of the docs and what the
tests compare with. Let nothing else run: speeds are measured. Parts that are done are noted for the weights they were
made with, so that the same command goes on where it was stopped; once all are done, the time of each is stored, and the
command begins anew.
"""

import argparse
import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch

from decoding.common.errors import DraftscopeError, command
from decoding.common.files import ROOT, user_folder, write_whole
from decoding.common.formats import duration
from decoding.experiments.command import write_json
from decoding.experiments.experiment import GRIDS, RESULTS, SHIPPED
from decoding.experiments.rows import RowStore
from decoding.heads.store import EQUAL_TIME
from decoding.heads.store import SHIPPED as HEADS
from decoding.models.embedded import EMBEDDED_NAME, embedded_weights
from decoding.recorded import COMPARISON, RECORDINGS
from decoding.training.head_suite import BASE

CORPUS = ("--corpus", "TEXTS")  # which stands for the folder
SELECTORS = ("--texts", "420", "--held-out", "28", "--khisti-every", "6", "--minutes", "3")
# Benchmarks that no weights of the pair change: of tiny models, tables of probabilities, files and published figures.
OF_NO_PAIR = (
    "architectures", "engine_configs", "losslessness", "odd_folders", "random_runs", "reasons", "roofline_published",
    "remake",
)  # fmt: skip
# What a stored command has that is not for other weights, and whether a word belongs to it.
LEFT_OUT = {"--save": False, "--again": False, "--against": True, "--manifest": True}


def parts_of(corpus: Path | None, folder: Path) -> dict[str, tuple[str, ...]]:
    """The command of each part, in the order in which they are made; what is being trained stands in a folder."""
    python = (sys.executable, "-m")
    suite = (*python, "decoding.training.head_suite", *CORPUS, "--ship")
    equal = json.loads((HEADS / EQUAL_TIME).read_text(encoding="utf-8"))
    steps, minutes = f"{equal['heads'][BASE]['steps']:.0f}", f"{equal['minutes']:g}"
    made = {
        "heads": (*suite, "--out", str(folder / "heads")),
        "heads of equal time": (*suite, "--out", str(folder / "equal-time"), "--base-steps", steps, "--steps", "0",
                                "--minutes", minutes),
        "heads on the same windows": (*suite, "--evaluate"),
        "example of training data": (*python, "decoding.training.example"),
        "selectors": (*python, "decoding.training.selector", *CORPUS, "--verifier", "all", *SELECTORS, "--ship"),
        **{name: (*python, "decoding.recorded", name) for name in (*RECORDINGS, "race", COMPARISON.stem)},
        **{f"sweep {' '.join((grid, *words))}":
           (*python, "benchmarks.sweep", str(GRIDS / f"{grid}.toml"), *words, "--save") for grid, *words in grids()},
        **{" ".join((name, *words)):
           (*python, f"benchmarks.{name}", *words, "--save") for name, *words in benchmarks()},
        "tables": (*python, "benchmarks.readme_table"),
        "pictures": (*python, "benchmarks.pictures"),
        "golden": ("make", "golden"),
    }  # fmt: skip
    text = CORPUS[1] if corpus is None else str(corpus)
    return {name: tuple(text if word == CORPUS[1] else word for word in words) for name, words in made.items()}


def grids() -> Iterator[tuple[str, ...]]:
    """Stored grids with the words that widen the pair as it is stored, if they do, one for each width."""
    for folder in sorted(SHIPPED.iterdir()):
        for pair in sorted(set(RowStore(folder).frame()["pair"])):
            if pair.startswith(EMBEDDED_NAME):
                wide = re.search(r"(\d+)× as wide", pair)
                yield folder.name, *(("--widen", wide[1]) if wide else ())


def benchmarks() -> list[tuple[str, ...]]:
    """Name and arguments of each benchmark of the embedded pair that is stored of a CPU; last what reads the others."""
    found = set()
    for file in RESULTS.glob("*.json"):
        record = json.loads(file.read_text(encoding="utf-8"))
        words = shlex.split(record["command"])[3:]
        if record["benchmark"] not in OF_NO_PAIR and "gpu" not in record["hardware"] and "--target" not in words:
            found.add((record["benchmark"], *kept(words)))
    return sorted(found, key=lambda words: (words[0] == "papers", words))


def kept(words: Sequence[str]) -> Iterator[str]:
    """Arguments of a stored command that are for any weights and any folder of text, without `--save`."""
    for before, word in zip(("", *words), words, strict=False):
        if before == CORPUS[0]:
            yield CORPUS[1]
        elif word not in LEFT_OUT and not LEFT_OUT.get(before):
            yield word


def noted(notes: Path) -> dict[str, float]:
    """Seconds that each part took which is done."""
    return json.loads(notes.read_text(encoding="utf-8")) if notes.is_file() else {}


def remake(names: Sequence[str], parts: Mapping[str, Sequence[str]], notes: Path) -> None:
    """Make the parts that are not noted as done, each by its own command; forget their notes at the end.

    Raises:
        DraftscopeError: a part could not be made; those before it are noted.
    """
    for name in names:
        if name in noted(notes):
            print(f"{name}: done before, in {duration(noted(notes)[name])}", flush=True)
            continue
        words = parts[name]
        print(f"{name}: {typed(words)}", flush=True)
        started = time.monotonic()
        if subprocess.run(words, cwd=ROOT, check=False).returncode:
            raise DraftscopeError(f"{name} could not be made: read what it says above, then give the same command.")
        done = noted(notes) | {name: time.monotonic() - started}
        write_whole(notes, json.dumps(done).encode())
        print(f"{name}: done in {duration(done[name])}", flush=True)
    took = {name: noted(notes)[name] for name in names}
    print(f"All of it took {duration(sum(took.values()))}.")
    if took.keys() == parts.keys():
        figures = {"weights": embedded_weights(), "took_s": sum(took.values()), "parts": took}
        write_json(RESULTS / "remake-cpu.json", "remake", figures, torch.device("cpu"))
    write_whole(notes, json.dumps({name: s for name, s in noted(notes).items() if name not in names}).encode())


@command
def main() -> int:
    """Make all parts, or those that are named."""
    # What was made with other weights is not taken for what these make.
    home = user_folder("remake") / embedded_weights().replace(" ", "-")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help="one or more of those that --list names (default: all)"
    )
    parser.add_argument("--list", action="store_true", help="name the parts and their commands, and make none")
    parser.add_argument("--corpus", type=Path, metavar="DIR", help="folder of text that heads and selectors learn from")
    args = parser.parse_args()
    parts = parts_of(args.corpus and args.corpus.resolve(), home)
    names = args.parts or list(parts)
    if unknown := [name for name in names if name not in parts]:
        raise DraftscopeError(f"There is no part {unknown[0]!r}: choose of {', '.join(parts)}.")
    if args.list:
        print(*(f"{name}: {typed(parts[name])}" for name in names), sep="\n")
        return 0
    if args.corpus is None and (untold := [name for name in names if CORPUS[1] in parts[name]]):
        raise DraftscopeError(f"{untold[0]}: it reads text; name a folder of it with --corpus, or other parts.")
    remake(names, parts, home / "done.json")
    return 0


def typed(words: Sequence[str]) -> str:
    """A command as it can be typed."""
    return shlex.join(("python", *words[1:]) if words[0] == sys.executable else words)


if __name__ == "__main__":
    sys.exit(main())
