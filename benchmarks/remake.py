"""`python -m benchmarks.remake`: make everything that was recorded and comes with the program anew, part by part.

Runs, the race and the comparison (`python -m decoding.recorded`), then the pictures of the docs, which show them
(`python -m benchmarks.pictures`). Let nothing else run: speeds are measured. Parts that are done are noted, so that the
same command goes on where it was stopped; once all are done, it begins anew.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from decoding.common.errors import DraftscopeError, command
from decoding.common.files import ROOT, user_folder, write_whole
from decoding.common.formats import duration
from decoding.recorded import COMPARISON, RECORDINGS

PARTS = {name: ("decoding.recorded", name) for name in (*RECORDINGS, "race", COMPARISON.stem)}
PARTS["pictures"] = ("benchmarks.pictures",)


def noted(notes: Path) -> dict[str, float]:
    """Seconds that each part took which is done."""
    return json.loads(notes.read_text(encoding="utf-8")) if notes.is_file() else {}


def remake(names: list[str], notes: Path) -> None:
    """Make the parts that are not noted as done, each by its own command; forget their notes at the end.

    Raises:
        DraftscopeError: a part could not be made; those before it are noted.
    """
    for name in names:
        if name in noted(notes):
            print(f"{name}: done before, in {duration(noted(notes)[name])}", flush=True)
            continue
        print(f"{name}: python -m {' '.join(PARTS[name])}", flush=True)
        started = time.monotonic()
        if subprocess.run([sys.executable, "-m", *PARTS[name]], cwd=ROOT, check=False).returncode:
            raise DraftscopeError(f"{name} could not be made: read what it says above, then give the same command.")
        done = noted(notes) | {name: time.monotonic() - started}
        write_whole(notes, json.dumps(done).encode())
        print(f"{name}: done in {duration(done[name])}", flush=True)
    print(f"All of it took {duration(sum(noted(notes)[name] for name in names))}.")
    write_whole(notes, json.dumps({name: took for name, took in noted(notes).items() if name not in names}).encode())


@command
def main() -> int:
    """Make all parts, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"one or more of {', '.join(PARTS)} (default: all)")
    names = parser.parse_args().parts or list(PARTS)
    if unknown := [name for name in names if name not in PARTS]:
        raise DraftscopeError(f"There is no part {unknown[0]!r}: choose of {', '.join(PARTS)}.")
    remake(names, user_folder("remake") / "done.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
