"""The embedded pair on disk: packed as it comes with the program, and unpacked where every program can read it.

    python -m decoding.models.embedded PAIR --out decoding/embedded_pair

packs a pair that `decoding.training.embedded` has trained. Its weights are in 6 bits, as `trained_store` packs them,
and both models share the tokenizer's files. They are unpacked once, into the user's cache: float32 of the same values.
"""

import argparse
import hashlib
import json
import lzma
import shutil
import sys
import tempfile
from functools import cache
from math import prod
from pathlib import Path

from decoding.common.errors import PairError, TrainingError, command
from decoding.common.files import disk_errors, user_folder, write_whole
from decoding.common.trained_store import SCALE, SPARE_BYTES, load_packed, packed_bytes

EMBEDDED_FOLDER = Path(__file__).resolve().parents[1] / "embedded_pair"
ROLES = ("target", "draft")
EMBEDDED_NAME = "Embedded pair"
SHARED = ("tokenizer.json", "tokenizer_config.json")
OWN = ("config.json", "generation_config.json")
WEIGHTS = "model.safetensors"
PACKED = f"{WEIGHTS}.xz"
MOST_BYTES = 1 << 28  # that weights may unpack to
ADVICE = "set XDG_CACHE_HOME to a folder that can be written"


def embedded_folder(role: str) -> Path:
    """The folder of the embedded `target` or `draft` as transformers reads it, unpacked if it is not there yet.

    Raises `PairError` where a file of it is missing or damaged, `DiskError` where the user's cache cannot be written.
    """
    folder = user_folder("embedded") / f"{role}-{packed_digest(role)[:12]}"
    if folder.is_dir():
        return folder
    from safetensors.torch import save_file

    weights = load_packed(EMBEDDED_FOLDER / role / PACKED, MOST_BYTES)
    with disk_errors(folder, ADVICE):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".", ignore_cleanup_errors=True) as place:
            made = Path(place) / role
            made.mkdir()
            for file in _small_files(EMBEDDED_FOLDER, role):
                shutil.copyfile(file, made / file.name)
            save_file(weights, made / WEIGHTS, metadata={"format": "pt"})
            try:
                made.rename(folder)
            except OSError:  # another process was faster
                if not folder.is_dir():
                    raise
    return folder


@cache
def packed_digest(role: str) -> str:
    """SHA-256 of all packed files of a model."""
    digest = hashlib.sha256()
    try:
        for file in (*_small_files(EMBEDDED_FOLDER, role), EMBEDDED_FOLDER / role / PACKED):
            digest.update(file.read_bytes())
    except OSError as error:
        what = f"{error.filename}: {error.strerror}"
        raise PairError(f"The embedded pair is damaged ({what}): install Draftscope again.") from None
    return digest.hexdigest()


def packed_parameters(role: str) -> int:
    """Number of weights of a model of the pair, from the header of its packed file: nothing is unpacked for it.

    Raises `PairError` where the file is missing or damaged.
    """
    file = EMBEDDED_FOLDER / role / PACKED
    try:
        with lzma.open(file) as content:
            header = json.loads(content.read(min(int.from_bytes(content.read(8), "little"), SPARE_BYTES)))
        return sum(prod(entry["shape"]) for name, entry in header.items() if not name.endswith(SCALE))
    except (OSError, EOFError, ValueError, lzma.LZMAError) as error:
        raise PairError(f"{file} is damaged ({error}): install Draftscope again.") from None


def embedded_weights() -> str:
    """What tells the weights of the embedded pair from earlier ones under its name: the digests of both models."""
    return " ".join(packed_digest(role)[:8] for role in ROLES)


def pack_pair(pair: Path, out: Path) -> None:
    """Pack a trained pair, its `target` and its `draft`; `TrainingError` where a file of it is missing or damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        if len({(pair / role / SHARED[0]).read_bytes() for role in ROLES}) > 1:
            raise TrainingError(f"Target and draft in {pair} have different tokenizers: train the draft again.")
        for role in ROLES:
            write_whole(out / role / PACKED, packed_bytes(load_file(pair / role / WEIGHTS)))
            for name in OWN:
                write_whole(out / role / name, (pair / role / name).read_bytes())
        for name in SHARED:
            write_whole(out / name, (pair / "target" / name).read_bytes())
    except (OSError, SafetensorError) as error:
        raise TrainingError(f"{pair} is no trained pair ({error}): give a folder with target and draft.") from None


def _small_files(folder: Path, role: str) -> list[Path]:
    return [*(folder / name for name in SHARED), *(folder / role / name for name in OWN)]


@command
def main(arguments: list[str] | None = None) -> int:
    """Pack a pair; every error is one sentence on stderr."""
    parser = argparse.ArgumentParser(description="Pack a trained pair as it comes with the program.")
    parser.add_argument("pair", type=Path, help="folder with target and draft")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the packed pair")
    args = parser.parse_args(arguments)
    pack_pair(args.pair, args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
