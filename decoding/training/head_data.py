"""What a draft head is trained on, from what was asked for: the text, and the windows and trees prepared of it."""

import hashlib
import json
import sys
from pathlib import Path

from decoding.common.files import training_home
from decoding.common.prompts import load_prompts
from decoding.models.pair import Pair
from decoding.training.corpus import read_corpus
from decoding.training.loop import StoppedError, memory_bytes
from decoding.training.prepared import Prepared, open_prepared, prepare_text, prepare_trees, prepared_folder
from decoding.training.run_folder import RunFolder, Status
from decoding.training.windows import Texts, WindowPlan

HELD_OUT_WIDTH = 4  # of the held-out trees, which all losses are measured on


def texts_from(corpus: Path | None) -> tuple[Texts, str]:
    """What windows are cut from, a corpus or without one the sample prompts, and what tells it from other text.

    Raises:
        TrainingError: the corpus is no good.
    """
    if corpus is not None:
        read = read_corpus(corpus)
        trained = {kind: tuple(read.trained(kind)) for kind in read.kinds}
        held_out = {kind: tuple(read.held_out(kind)) for kind in read.kinds}
        return Texts(trained, {kind: texts for kind, texts in held_out.items() if texts}), read.identity()
    by_kind: dict[str, list[str]] = {}
    for prompt in load_prompts():
        by_kind.setdefault(prompt.kind, []).append(prompt.text)
    digest = hashlib.sha256(json.dumps(by_kind, sort_keys=True).encode()).hexdigest()
    # The last prompt of each kind is held out.
    trained = {kind: tuple(texts[:-1]) for kind, texts in by_kind.items() if len(texts) > 1}
    return Texts(trained, {kind: tuple(by_kind[kind][-1:]) for kind in trained}, prompts=True), digest


def prepared_data(
    pair: Pair,
    source: tuple[Texts, str],
    plan: WindowPlan,
    top_k: int | None,
    place: Path | None,
    folder: RunFolder,
) -> Prepared:
    """Windows, features and trees, made as far as they are not there yet; the status tells how far it is.

    Args:
        source: from `texts_from`.
        top_k: width of the trees to train on; None: without trees.
        place: where they are kept; None: below the user's trainings.
        folder: of the training, which may be asked to stop.

    Raises:
        StoppedError: somebody asked to stop; what was prepared is kept.
        TrainingError: another text or target was prepared in that place, or the disk is full.
    """
    texts, identity = source
    home = training_home() / "prepared"
    prepared = open_prepared(place or prepared_folder(home, pair, plan, identity), pair, plan, identity)
    device = pair.target.device

    def report(what: str, done: int, shards: int) -> None:
        phase, held = f"preparing {what}", memory_bytes(device)
        folder.write_status(Status("preparing", phase, done, shards, device=str(device), memory_bytes=held))
        print(f"{phase}: {done} of {shards}", file=sys.stderr, flush=True)

    stopped = folder.asked_to_stop
    done = prepare_text(prepared, pair, texts, report, stopped)
    done = done and prepare_trees(prepared, pair, HELD_OUT_WIDTH, report, stopped, parts=("held_out",))
    if top_k is not None:
        done = done and prepare_trees(prepared, pair, top_k, report, stopped, parts=("train",))
    if not done:
        raise StoppedError("Stopped while the data was prepared; go on with --resume.")
    return prepared
