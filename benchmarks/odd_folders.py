"""Damaged and odd model folders, each opened as the app opens a pair: `python -m benchmarks.odd_folders`.

A generator damages small random models in every way of `benchmarks.folder_damage`, first each way once, then ways
drawn by chance. A folder works, or is refused with a sentence: another error or a call that hangs is an escape, a
sentence in the words of Python is badly worded. Each way is printed with its sentences, for a person to read. Exits 1
on either.
"""

import faulthandler
import os
import re
import shutil
import signal
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch

from benchmarks.folder_damage import KINDS, Kind, sound_folder
from decoding.common.errors import DraftscopeError, run_main
from decoding.experiments.command import arguments, parse_amounts, save_figures
from decoding.models.loading import find_model
from decoding.models.pair import release
from decoding.models.presets import PairSettings, memory_estimate
from decoding.session.session import open_pair

FOLDERS, QUICK_FOLDERS, SEED = 200, 60, 0
SECONDS = 180  # a folder that takes longer hangs, even on a busy machine
PROMPT = "Once upon a time there was a fox."
LONGEST_SENTENCE = 420
# Words of Python and of libraries that tell nobody what to do.
FOREIGN_WORDS = re.compile(
    r"Traceback|Error\b|object has no attribute|NoneType|not subscriptable|not iterable|the above|<class|\bself\b|"
    r"unexpected keyword|positional argument|Validation error|\\n|\bNone\b|0x[0-9a-f]{6}|trust_remote_code|kwargs"
)
REFUSED, OPENED = "refused", "opened"


class StillAtWork(BaseException):
    """Raised in what takes longer than its time; no Exception, as code that makes refusals of errors would take it."""


@dataclass(frozen=True)
class FolderResult:
    """What became of a folder.

    Attributes:
        what: `refused`, `opened`, or the name of what escaped.
        sentence: with which it was refused; of an escape, where it came from.
        wrong: what is wrong with that, empty where nothing is.
    """

    kind: str
    model: str
    role: str
    what: str
    sentence: str
    wrong: str = ""


def outcomes(count: int, seed: int, home: Path) -> Iterator[FolderResult]:
    """Damage and open `count` folders, one after another; the same ones for the same seed."""
    draws, names = Random(seed), list(KINDS)
    draws.shuffle(names)
    for number in range(count):
        name = names[number] if number < len(names) else draws.choice(names)
        yield opened(name, home, Random(f"{seed} {number}"))


def opened(name: str, home: Path, draws: Random) -> FolderResult:
    """Make one folder damaged in one way, and open a pair with it."""
    kind = KINDS[name]
    model = draws.choice(kind.models)
    role = "both" if kind.both else draws.choice(("target", "draft"))
    sound, damaged = home / f"sound-{model}", home / "damaged" / "model"
    if not sound.exists():
        sound_folder(sound, model)
    shutil.rmtree(damaged.parent, ignore_errors=True)
    damaged.parent.mkdir(parents=True)
    shutil.copytree(sound, damaged)
    kind.damage(damaged, draws)
    places = {each: str(damaged if role in (each, "both") else sound) for each in ("target", "draft")}
    try:
        with time_limit(SECONDS):
            _open(PairSettings(**places, device="cpu", context_length=256, **kind.settings))
    except DraftscopeError as error:
        return FolderResult(name, model, role, REFUSED, str(error), _wrong(kind, REFUSED, str(error), home))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{error} ({Path(last.filename).name}:{last.lineno})"
        return FolderResult(name, model, role, type(error).__name__, where, "escaped")
    return FolderResult(name, model, role, OPENED, "", _wrong(kind, OPENED, "", home))


def _open(settings: PairSettings) -> None:
    """What the app does between a press on Load and the first tokens."""
    memory_estimate(settings)
    for role in ("target", "draft"):
        find_model(getattr(settings, role), role)
    pair, _ = open_pair(settings)
    if settings.chat:
        pair.vocabulary.encode_chat(PROMPT)
    release(pair)


def _wrong(kind: Kind, what: str, sentence: str, home: Path) -> str:
    if kind.opens is not None and kind.opens != (what == OPENED):
        return "opened" if what == OPENED else "refused"
    reported = sentence.replace(str(home), "")
    if found := FOREIGN_WORDS.search(reported):
        return f"says {found[0]!r}"
    if sentence and ("\n" in sentence or not sentence.endswith(".")):
        return "is no sentence"
    return "too long" if len(reported) > LONGEST_SENTENCE else ""


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise `StillAtWork` in what takes longer."""

    def late(_number, _frame):
        raise StillAtWork(f"still at work after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    faulthandler.dump_traceback_later(2 * seconds, exit=True)  # what waits outside Python hears no signal
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--kind", choices=tuple(KINDS), metavar="KIND", help="only this way, again and again")
    args = parse_amounts(parser, folders=(FOLDERS, QUICK_FOLDERS, "to open"))
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="odd-folders-") as home_name:
        home = Path(home_name)
        os.environ["XDG_CACHE_HOME"] = str(home / "cache")  # what is measured of such pairs is no use to anybody
        if args.kind:
            found = [opened(args.kind, home, Random(f"{args.seed} {number}")) for number in range(args.folders)]
        else:
            found = list(outcomes(args.folders, args.seed, home))
    said = set()  # of sentences that differ in names and numbers alone, one is reported
    for name in KINDS:
        of_kind = [outcome for outcome in found if outcome.kind == name]
        if of_kind:
            print(f"{name}: {len(of_kind)}")
        for outcome in of_kind:
            sentence = outcome.sentence.replace(f"{home}/", "")
            alike = (name, outcome.what, re.sub(r"[\d'\".]+|sound-\w+", "", sentence))
            if alike not in said:
                said.add(alike)
                note = f"  <-- {outcome.wrong}" if outcome.wrong else ""
                print(f"    {outcome.what:8} {outcome.model}, {outcome.role}: {sentence}{note}".rstrip(": "))
    counts = {what: sum(outcome.what == what for outcome in found) for what in (REFUSED, OPENED)}
    wrong = [outcome for outcome in found if outcome.wrong]
    escaped = sum(outcome.wrong == "escaped" for outcome in found)
    print(
        f"\n{len(found)} folders, {len({outcome.kind for outcome in found})} of {len(KINDS)} kinds of damage: "
        f"{counts[REFUSED]} refused, {counts[OPENED]} opened, {escaped} escaped, {len(wrong) - escaped} badly worded"
    )
    figures = {
        "folders": len(found),
        **counts,
        "escaped": escaped,
        "badly_worded": len(wrong) - escaped,
        "seed": args.seed,
    }
    save_figures(args, "odd_folders", figures, torch.device("cpu"))
    return 1 if wrong else 0


if __name__ == "__main__":
    run_main(main)
