"""`python -m decoding.widen --like pythia-2.8b --out DIR`: the embedded pair with the shapes and cost of a large one.

The two models written compute the function of the embedded ones (`decoding/widen_weights.py` says how), so that a run
costs what the large pair's would and accepts what a real trained pair accepts, with no download.
"""

import argparse
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import save_file

from decoding.errors import DraftscopeError, PairError, require
from decoding.presets import DTYPE_BYTES, EMBEDDED_FOLDER, choose_device
from decoding.widen_shapes import LIKES
from decoding.widen_weights import Widening, load_narrow

SMALL_FILES_BYTES = 1_000_000  # configuration, index and tokenizer of one model


class PairFolders(NamedTuple):
    """Where a widened pair lies, for `PairSettings`."""

    target: Path
    draft: Path


def widened_pair_folders(
    like: str,
    out: Path | str,
    dtype: str = "bfloat16",
    device: str = "cpu",
    report: Callable[[str], None] = print,
) -> PairFolders:
    """The folders `widened-...` of a pair below `out`; each is written unless it already holds just that model.

    Args:
        like: a key of `LIKES`.
        dtype: what the weights are stored in.
        device: where the weights are widened.
        report: takes lines of progress.

    Raises:
        SettingsError: an unknown shape or dtype.
        PairError: a folder holds something else or cannot be written, the disk has no room, there is no such device.
    """
    require(like in LIKES, f"There is no shape {like!r} to widen to: choose one of {', '.join(LIKES)}.")
    require(dtype in DTYPE_BYTES, f"dtype is {dtype!r}; choose one of {', '.join(DTYPE_BYTES)}.")
    device, out = choose_device(device), Path(out).expanduser()
    models = [
        Widening(load_narrow(role, device), shape, dtype)
        for role, shape in (("target", LIKES[like].target), ("draft", LIKES[like].draft))
    ]
    try:
        missing = [model for model in models if not _is_there(model, out / model.shape.folder)]
        _check_disk(out, sum(model.weight_bytes() + SMALL_FILES_BYTES for model in missing))
        for model in missing:
            _write(model, out / model.shape.folder, report)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise PairError(f"{out} could not be written ({reason}): choose another folder.") from error
    return PairFolders(*(out / model.shape.folder for model in models))


def _is_there(model: Widening, folder: Path) -> bool:
    """Whether a folder holds a whole widened model of this origin, shape and dtype; False if it is empty or missing."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return False
    config = folder / "config.json"  # written last
    if config.is_file() and config.read_bytes() == _json(model.config):
        return True
    raise PairError(f"{folder} holds something else or was left half written: delete it or choose another folder.")


def _check_disk(out: Path, need: int) -> None:
    there = next(folder for folder in (out.resolve(), *out.resolve().parents) if folder.exists())
    free = shutil.disk_usage(there).free
    if need > free:
        raise PairError(
            f"The widened pair needs {need / 1e9:.1f} GB and the disk of {out} has {free / 1e9:.1f} GB free: free some "
            "space, choose another folder or a 16-bit dtype."
        )


def _write(model: Widening, folder: Path, report: Callable[[str], None]) -> None:
    """Write one model, a shard in memory at a time; config.json comes last and marks the folder as whole."""
    folder.mkdir(parents=True, exist_ok=True)
    shards, total, written, files = model.shards(), model.weight_bytes(), 0, {}
    for number, names in enumerate(shards, start=1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        save_file({name: model.tensor(name).cpu() for name in names}, folder / file, metadata={"format": "pt"})
        files |= dict.fromkeys(names, file)
        written += model.weight_bytes(names)
        report(f"{folder.name}: {written / 1e9:.2f} of {total / 1e9:.2f} GB written, file {number} of {len(shards)}")
    index = {"metadata": {"total_size": total}, "weight_map": files}
    (folder / "model.safetensors.index.json").write_bytes(_json(index))
    source = EMBEDDED_FOLDER / model.narrow.role
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(source / name, folder / name)
    generation = json.loads((source / "generation_config.json").read_text(encoding="utf-8"))
    (folder / "generation_config.json").write_bytes(_json(generation | {"use_cache": True}))
    (folder / "config.json").write_bytes(_json(model.config))


def _json(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=2) + "\n").encode()


def main(arguments: list[str] | None = None) -> None:
    """Widen the embedded pair and say how to use what was written."""
    parser = argparse.ArgumentParser(prog="python -m decoding.widen", description="Widen the embedded pair.")
    parser.add_argument("--like", required=True, metavar="SHAPE", help=f"one of {', '.join(LIKES)}")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="where the two folders go")
    parser.add_argument("--dtype", default="bfloat16", choices=tuple(DTYPE_BYTES))
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="where the weights are widened")
    args = parser.parse_args(arguments)
    try:
        folders = widened_pair_folders(args.like, args.out, args.dtype, args.device)
    except DraftscopeError as error:
        parser.exit(2, f"error: {error}\n")
    print(f"These are the embedded pair's weights, widened: --target {folders.target} --draft {folders.draft}")


if __name__ == "__main__":
    main()
