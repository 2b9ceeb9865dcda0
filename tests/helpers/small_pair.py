"""A corpus of some pages and a pair of some thousand weights, trained in seconds."""

import random
import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from decoding.training.pair_loops import LoopSettings
from decoding.training.pair_networks import NetworkShape
from decoding.training.pair_phases import DraftSettings, TargetSettings
from decoding.training.pair_tokens import TokenArrays, prepare
from decoding.training.pair_training import PairSetup
from decoding.training.text import END_OF_TEXT, read_corpus

NAMES, VERBS = ("Tom", "Lily", "Max", "Sara", "Ben"), ("saw", "liked", "found", "lost", "took")
THINGS = ("a red ball", "the big tree", "a small cat", "his old hat", "the blue boat")
SETUP = PairSetup(
    target_shape=NetworkShape(hidden_size=32, layers=2, heads=2),
    draft_shape=NetworkShape(hidden_size=16, layers=1, heads=1),
    target=TargetSettings(batch_tokens=256, window=32, long_window=64, cooling_window=64, warm_up=2),
    loops=LoopSettings(
        rows=4, prompt=8, continuation=40, steps_each=2, batch_tokens=128, window=32, long_window=64, run=4, least=2
    ),
    draft=DraftSettings(
        rows=4, prompt=8, continuation=24, steps_each=2, batch_tokens=256, window=32, long_window=64, warm_up=2
    ),
)


def write_corpus(folder: Path) -> Path:
    """`stories.txt` of many documents and `sums.txt` of one."""
    draws = random.Random(0)

    def sentence() -> str:
        return f"{draws.choice(NAMES)} {draws.choice(VERBS)} {draws.choice(THINGS)}."

    stories = [" ".join(sentence() for _ in range(12)) + "\n\nThe end." for _ in range(160)]
    sums = [f"Question: {a} + {b}?\nAnswer: {a + b}" for a in range(40) for b in range(16)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stories.txt").write_text(f"\n{END_OF_TEXT}\n".join(stories), encoding="utf-8")
    (folder / "sums.txt").write_text("\n\n".join(sums), encoding="utf-8")
    return folder


@cache
def _prepared() -> TemporaryDirectory:
    """The arrays of that corpus in a folder that goes with the process."""
    place = TemporaryDirectory(prefix="draftscope-tests-")
    corpus = write_corpus(Path(place.name) / "texts")
    prepare(Path(place.name) / "data", lambda: read_corpus(corpus), vocabulary=320, report=lambda words: None)
    return place


def arrays_in(folder: Path) -> TokenArrays:
    """The tokens of that corpus: a copy, of which what a test has removed is made again."""
    if not (folder / "data").exists():
        shutil.copytree(_prepared().name, folder, dirs_exist_ok=True)
    corpus = write_corpus(folder / "texts")
    return prepare(folder / "data", lambda: read_corpus(corpus), vocabulary=320, report=lambda words: None)
