"""`python -m benchmarks.remake --corpus DIR`: make everything anew that hangs on the embedded pair, part by part.

Draft heads and selectors are trained, runs are recorded (`python -m decoding.recorded`), what is said of heads and
selectors is measured, then come the tables and pictures of the docs and what the tests compare with. Let nothing else
run: speeds are measured. Parts that are done are noted, so that the same command goes on where it was stopped; once all
are done, it begins anew.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from decoding.common.errors import DraftscopeError, command
from decoding.common.files import ROOT, user_folder, write_whole
from decoding.common.formats import duration
from decoding.experiments.experiment import GRIDS
from decoding.models.embedded import embedded_weights
from decoding.recorded import COMPARISON, RECORDINGS

FROM_TEXT = ("heads", "heads on the same windows", "selectors")
SELECTORS = ("--texts", "420", "--held-out", "28", "--khisti-every", "6", "--minutes", "3")
OF_HEADS = ("salf_losses", "salf_widths", "heads_that_pay")  # grids


def parts_of(corpus: Path | None, folder: Path) -> dict[str, tuple[str, ...]]:
    """The command of each part, in the order in which they are made; what is being trained stands in a folder."""
    python = (sys.executable, "-m")
    text = () if corpus is None else ("--corpus", str(corpus))
    return {
        "heads": (*python, "decoding.training.head_suite", *text, "--out", str(folder / "heads"), "--ship"),
        "heads on the same windows": (*python, "decoding.training.head_suite", "--evaluate", *text, "--ship"),
        "example of training data": (*python, "decoding.training.example"),
        "selectors": (*python, "decoding.training.selector", *text, "--verifier", "all", *SELECTORS, "--ship"),
        **{name: (*python, "decoding.recorded", name) for name in (*RECORDINGS, "race", COMPARISON.stem)},
        **{grid: (*python, "benchmarks.sweep", str(GRIDS / f"{grid}.toml"), "--save") for grid in OF_HEADS},
        "figures of heads": (*python, "benchmarks.talf", "--save"),
        "figures of selectors": (*python, "benchmarks.selector", "--widen", "4", "--count", "10",
                                 "--prompts", "decoding/experiments/texts", "--save"),
        "grid of verifiers": (*python, "benchmarks.verifier_grid", "--save"),
        "figures of methods": (*python, "benchmarks.methods", "--save"),
        "tables": (*python, "benchmarks.readme_table"),
        "pictures": (*python, "benchmarks.pictures"),
        "golden": ("make", "golden"),
    }  # fmt: skip


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
        print(f"{name}: {' '.join(('python', *words[1:]) if words[0] == sys.executable else words)}", flush=True)
        started = time.monotonic()
        if subprocess.run(words, cwd=ROOT, check=False).returncode:
            raise DraftscopeError(f"{name} could not be made: read what it says above, then give the same command.")
        done = noted(notes) | {name: time.monotonic() - started}
        write_whole(notes, json.dumps(done).encode())
        print(f"{name}: done in {duration(done[name])}", flush=True)
    print(f"All of it took {duration(sum(noted(notes)[name] for name in names))}.")
    write_whole(notes, json.dumps({name: took for name, took in noted(notes).items() if name not in names}).encode())


@command
def main() -> int:
    """Make all parts, or those that are named."""
    home = user_folder("remake")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = parts_of(None, home)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one or more of {', '.join(known)} (default: all)")
    parser.add_argument("--corpus", type=Path, metavar="DIR", help="folder of text that heads and selectors learn from")
    args = parser.parse_args()
    names = args.parts or list(known)
    if unknown := [name for name in names if name not in known]:
        raise DraftscopeError(f"There is no part {unknown[0]!r}: choose of {', '.join(known)}.")
    if args.corpus is None and (untold := [name for name in names if name in FROM_TEXT]):
        raise DraftscopeError(f"{untold[0]} need text: name a folder of it with --corpus, or other parts.")
    # What was trained for other weights is not taken for these.
    corpus = None if args.corpus is None else args.corpus.resolve()
    remake(names, parts_of(corpus, home / embedded_weights().replace(" ", "-")), home / "done.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
