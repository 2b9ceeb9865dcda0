"""What a draft head is trained on, prepared once and kept: windows of text, features and trees of the target."""

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from decoding.common.errors import TrainingError
from decoding.common.files import disk_errors, training_home, write_whole
from decoding.common.prompts import load_prompts
from decoding.models.pair import Pair, pair_identity
from decoding.training.common.corpus import read_corpus
from decoding.training.common.loop import StoppedError, memory_bytes
from decoding.training.common.run_folder import RunFolder, Status
from decoding.training.heads.losses import Drafted, Text
from decoding.training.heads.trees import target_trees, text_features
from decoding.training.heads.windows import Texts, WindowPlan, windows_of

MANIFEST, VERSION = "manifest.json", 1
SHARD_WINDOWS = 16
GROWS = ("windows", "held_out")  # windows are a function of their number alone, so there may be more of them later

Part = Literal["train", "held_out"]
PARTS: tuple[Part, ...] = ("held_out", "train")
Report = Callable[[str, int, int], None]  # what is prepared, shards that are there, shards in all


@dataclass
class Prepared:
    """A folder of prepared windows.

    Attributes:
        belongs_to: the target, the text and the plan that everything in it is for.
    """

    folder: Path
    plan: WindowPlan
    belongs_to: Mapping[str, Any]
    _open: dict[Path, Any] = field(default_factory=dict)

    def count(self, part: Part) -> int:
        """Windows of a part."""
        return self.plan.windows if part == "train" else self.plan.held_out

    def text(self, part: Part, numbers: Sequence[int], device: torch.device) -> Text:
        """Some windows with the target's features."""
        tokens, features = (self._rows(part, "text", name, numbers, device) for name in ("tokens", "features"))
        return Text(tokens.long(), features.float(), self.plan.depth)

    def trees(self, part: Part, numbers: Sequence[int], top_k: int, device: torch.device) -> Drafted:
        """The target's trees of width `top_k` in some windows."""
        names = ("tokens", "parents", "features")
        tokens, parents, labels = (self._rows(part, f"trees{top_k}", name, numbers, device) for name in names)
        return Drafted(tokens.long(), parents.long(), labels.float())

    def shard(self, part: Part, what: str, number: int) -> Path:
        """Where a shard is kept; it may not be there yet."""
        return self.folder / f"{part}-{what}-{number:05d}.safetensors"

    def _rows(self, part: Part, what: str, name: str, numbers: Sequence[int], device: torch.device) -> Tensor:
        rows = []
        for window in numbers:
            shard, inside = divmod(int(window), SHARD_WINDOWS)
            rows.append(self._shard(self.shard(part, what, shard)).get_slice(name)[inside : inside + 1])
        return torch.cat(rows).to(device)

    def _shard(self, file: Path) -> Any:
        if file not in self._open:
            try:
                self._open[file] = safe_open(file, "pt")
            except FileNotFoundError:
                raise TrainingError(f"{file} is missing: prepare the data again with the same settings.") from None
            except (SafetensorError, OSError) as error:
                raise TrainingError(f"{file} is damaged ({error}): delete it and prepare the data again.") from None
        return self._open[file]


def open_prepared(folder: Path, pair: Pair, plan: WindowPlan, text_identity: str) -> Prepared:
    """The prepared data in a folder, which is begun where there is none.

    Args:
        text_identity: tells the text from others.

    Raises:
        TrainingError: what is there was prepared for another target, text or plan, or the folder cannot be written.
    """
    belongs_to = _belongs_to(pair, plan, text_identity)
    file = folder / MANIFEST
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        there = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if any(folder.iterdir()):
            raise TrainingError(f"{folder} holds other files: name an empty folder with --prepared.") from None
        write_whole(file, json.dumps(belongs_to, indent=1).encode())
        return Prepared(folder, plan, belongs_to)
    except (OSError, ValueError) as error:
        raise TrainingError(f"{file} cannot be read ({error}): name another folder with --prepared.") from None
    fixed = [name for name in belongs_to if name not in GROWS]
    other = next((name for name in fixed if there.get(name) != belongs_to[name]), None)
    if other is not None:
        raise TrainingError(
            f"{folder} was prepared for another {other} ({there.get(other)} instead of {belongs_to[other]}): "
            "name another folder with --prepared."
        )
    return Prepared(folder, plan, belongs_to)


def prepared_folder(home: Path, pair: Pair, plan: WindowPlan, text_identity: str) -> Path:
    """The folder below `home` for a target, a text and a plan; the number of windows does not matter."""
    what = json.dumps({**_belongs_to(pair, plan, text_identity), **dict.fromkeys(GROWS)}, sort_keys=True)
    return home / hashlib.sha256(what.encode()).hexdigest()[:12]


def _belongs_to(pair: Pair, plan: WindowPlan, text_identity: str) -> dict[str, Any]:
    return {"version": VERSION, "target": pair_identity(pair)["target"], "text": text_identity, **plan.to_json()}


def prepare_text(
    prepared: Prepared, pair: Pair, texts: Texts, report: Report, stopped: Callable[[], bool] = lambda: False
) -> bool:
    """Prepare the windows and features that are missing; False if somebody stopped it.

    Raises:
        TrainingError: the text is too short, the disk is full, or a feature is too large for 16 bits.
    """
    return _prepare(prepared, "text", PARTS, partial(_text_shard, prepared, pair, texts), report, stopped)


def prepare_trees(
    prepared: Prepared,
    pair: Pair,
    top_k: int,
    report: Report,
    stopped: Callable[[], bool] = lambda: False,
    parts: Sequence[Part] = PARTS,
) -> bool:
    """Prepare the target's trees of one width that are missing, behind `prepare_text`; False if somebody stopped it."""
    return _prepare(prepared, f"trees{top_k}", parts, partial(_tree_shard, prepared, pair, top_k), report, stopped)


def _prepare(
    prepared: Prepared, what: str, parts: Sequence[Part], make: Callable, report: Report, stopped: Callable[[], bool]
) -> bool:
    shards = [(part, number) for part in parts for number in range(-(-prepared.count(part) // SHARD_WINDOWS))]
    for done, (part, number) in enumerate(shards):
        if stopped():
            return False
        file = prepared.shard(part, what, number)
        if not file.exists():
            report(what, done, len(shards))
            write_whole(file, save(make(part, range(number * SHARD_WINDOWS, (number + 1) * SHARD_WINDOWS))))
    return True


def _text_shard(prepared: Prepared, pair: Pair, texts: Texts, part: Part, numbers: range) -> dict[str, Tensor]:
    windows = windows_of(pair, texts, prepared.plan, numbers, held_out=part == "held_out")
    features = torch.stack([text_features(pair.target, window) for window in windows])
    return {"tokens": torch.from_numpy(windows).int(), "features": _sixteen_bits(features, pair)}


def _tree_shard(prepared: Prepared, pair: Pair, top_k: int, part: Part, numbers: range) -> dict[str, Tensor]:
    plan = prepared.plan
    tokens = prepared.text(part, numbers, torch.device("cpu")).tokens.numpy().astype(np.int64)
    grown = [target_trees(pair.target, window[: plan.roots + 1], top_k, plan.depth - 1) for window in tokens]
    return {
        "tokens": torch.stack([trees.tokens for trees in grown]).int().cpu(),
        "parents": torch.stack([trees.parents for trees in grown]).to(torch.int16).cpu(),
        "features": _sixteen_bits(torch.stack([trees.features for trees in grown]), pair),
    }


def _sixteen_bits(features: Tensor, pair: Pair) -> Tensor:
    """Features in 16 bits: as the target computes them where it computes in 16 bits, else in float16."""
    dtype = torch.bfloat16 if pair.target.dtype == torch.bfloat16 else torch.float16
    kept = features.cpu().to(dtype)
    if not kept.isfinite().all():
        raise TrainingError("A feature of the target is too large for 16 bits: load the pair with --dtype bfloat16.")
    return kept.contiguous()


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
