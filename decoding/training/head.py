"""Train a draft head for the target of a pair: `python -m decoding.training.head --loss talf --corpus DIR`.

Windows of the text, the target's features and, for TALF, the target's own trees are prepared first and kept: a second
training on the same text begins at once. As in the paper a head is trained with EAGLE's loss first, and HASS and TALF
go on from it for equal numbers of steps, on the same batches:

    python -m decoding.training.head --loss eagle --corpus DIR --steps 6000
    python -m decoding.training.head --loss talf  --corpus DIR --steps 600 --start-from head-eagle-2030-01-02

The head is then in the folder of the training, `head/`, and every method can draft with it (setting `draft_head`).
Without `--corpus` the target itself continues the sample prompts. Exit code 0: finished; 1: stopped, out of memory or
failed; 2: what was asked for cannot be done.
"""

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoding.common.errors import TrainingError, require
from decoding.models.presets import DTYPES, EMBEDDED, PairSettings
from decoding.training.common.command import add_common_arguments, conduct, folder_of, run_command
from decoding.training.common.run_folder import RunFolder, TrainingSettings

if TYPE_CHECKING:
    from decoding.heads.network import HeadNetwork
    from decoding.models.pair import Pair
    from decoding.training.heads.learner import HeadLearner
    from decoding.training.heads.windows import WindowPlan

MINUTES, LEARNING_RATE = 10.0, 3e-4
HEAD, PHASE = "head", "training the head"
KINDS_OF_LOSS = {"eagle": "EAGLE", "hass": "HASS", "talf": "TALF"}


def parser() -> argparse.ArgumentParser:
    """The arguments of the command."""
    made = argparse.ArgumentParser(
        prog="python -m decoding.training.head", description="Train a draft head for a target."
    )
    made.add_argument("--loss", choices=tuple(KINDS_OF_LOSS), default="talf")
    made.add_argument("--top-k", type=int, default=4, metavar="K", help="width of the target's trees (TALF)")
    made.add_argument("--start-from", metavar="HEAD", help="a trained head to go on from: its name, or its folder")
    add_common_arguments(made, MINUTES, LEARNING_RATE)
    made.add_argument("--batch", type=int, default=4, metavar="N", help="windows of a step")
    made.add_argument("--mlp-size", type=int, metavar="N", help="inner size of the MLP (default 1.6 times hidden)")
    text = made.add_argument_group("text")
    text.add_argument("--corpus", type=Path, metavar="DIR", help="folder of .txt and .txt.gz; default: sample prompts")
    text.add_argument("--prepared", type=Path, metavar="DIR", help="where windows and trees are kept")
    text.add_argument("--windows", type=int, default=1024, metavar="N", help="windows to train on")
    text.add_argument("--held-out", type=int, default=32, metavar="N", help="windows to measure on")
    text.add_argument("--roots", type=int, default=256, metavar="N", help="tokens of a window that trees grow below")
    text.add_argument("--depth", type=int, default=3, metavar="N", help="forwards of the head that are trained")
    text.add_argument("--continued", type=float, default=0.5, metavar="SHARE", help="windows that the target continues")
    text.add_argument("--temperature", type=float, default=1.0, help="at which the target continues them")
    pair = made.add_argument_group("pair")
    pair.add_argument("--target", default=EMBEDDED, help="Hugging Face id or folder")
    pair.add_argument("--draft", default=EMBEDDED, help="Hugging Face id or folder")
    pair.add_argument("--dtype", choices=DTYPES, default="auto")
    pair.add_argument("--context-length", type=int, default=2048, metavar="N", help="tokens that must fit")
    pair.add_argument("--split", action="store_true", help="spread the target over several GPUs")
    return made


def main(arguments: list[str] | None = None) -> int:
    """Prepare, train and store a head; every error is one sentence on stderr."""
    words = sys.argv[1:] if arguments is None else arguments
    args = parser().parse_args(words)

    def run() -> int:
        if args.resume and args.out is None:
            raise TrainingError("Name the training that --resume is to go on with: --out DIR.")
        folder = folder_of(args.out, f"head-{args.loss}")
        if args.resume:
            folder.settings()
            folder.clear_stop()
        return conduct(folder, lambda: _prepared(args, words, folder))

    return run_command(run)


def _prepared(args: argparse.Namespace, words: list[str], folder: RunFolder) -> Callable[[], None]:
    """All that comes before the first step; gives what trains."""
    import transformers

    from decoding.training.common.loop import Plan
    from decoding.training.heads.data import HELD_OUT_WIDTH, prepared_data, texts_from
    from decoding.training.heads.learner import HeadLearner, HeadSettings, target_sides

    transformers.logging.set_verbosity_error()
    # A norm in bfloat16 with its weights in float32 takes a slower kernel; it is a small part of a step.
    warnings.filterwarnings("ignore", message="Mismatch dtype between input and weight")
    settings = HeadSettings(args.loss, args.top_k, args.batch, args.learning_rate, seed=args.seed)
    minutes = MINUTES if args.minutes is None and args.steps is None else args.minutes
    plan = Plan(args.steps, minutes)
    windows = _window_plan(args)
    source = texts_from(args.corpus)
    pair = pair_of(args)
    require(
        windows.size <= pair.context,
        f"Windows of {windows.size} tokens do not fit the context of {pair.context}: lower --roots or --depth.",
    )
    network, begun_from = first_network(args, pair)
    target_sides(pair)  # a target without features is refused before anything is begun
    if not args.resume:
        folder.begin(_settings(args, words, pair))
    top_k = args.top_k if args.loss == "talf" else None
    prepared = prepared_data(pair, source, windows, top_k, args.prepared, folder)
    learner = HeadLearner(pair, network, prepared, settings, HELD_OUT_WIDTH)
    belongs_to = {
        "loss": args.loss,
        "top_k": top_k or 0,
        "batch": args.batch,
        "learning_rate": args.learning_rate,
        "seed": args.seed,
        "begun_from": begun_from,
        "head": json.dumps(network.config.to_json()),
        "data": json.dumps({**prepared.belongs_to, "windows": windows.windows}),
    }
    return lambda: _train(args, learner, folder, plan, belongs_to)


def _train(args: argparse.Namespace, learner: "HeadLearner", folder: RunFolder, plan: Any, belongs_to: dict) -> None:
    """Train, and store the head."""
    from decoding.common.trained_store import rounded
    from decoding.heads.store import save_head
    from decoding.models.pair import pair_identity
    from decoding.training.common.loop import reporter, train

    status = train(learner, folder, plan, phase=PHASE, belongs_to=belongs_to, resume=args.resume, report=reporter())
    learner.network.load_state_dict(rounded(learner.network.state_dict()))  # measured as it will be read back
    figures = {"steps": status.step, "trained_s": status.trained_s, **learner.evaluate()}
    figures |= {"top_k": args.top_k} if args.loss == "talf" else {}
    identity = pair_identity(learner.pair)
    save_head(folder.path / HEAD, learner.network, args.loss, identity, folder.settings().created, figures)
    print(f"{folder.path / HEAD}: {KINDS_OF_LOSS[args.loss]} head, {status.step} steps; draft_head={folder.path.name}")


def pair_of(args: argparse.Namespace) -> "Pair":
    """Load the pair, its target run by an engine that takes passes of any size."""
    from decoding.models.pair import load_pair

    asked = {name: getattr(args, name) for name in ("target", "draft", "device", "dtype", "split", "context_length")}
    pair = load_pair(PairSettings(**asked))
    return pair.with_engine("library") if pair.target.info.engine == "static" else pair


def first_network(args: argparse.Namespace, pair: "Pair") -> tuple["HeadNetwork", str]:
    """The head as it begins, fresh or trained before, and what tells it from others.

    Raises:
        SettingsError: there is no head of that name.
        PairError: it is damaged, or of another target.
    """
    import torch

    from decoding.heads.network import HeadConfig, HeadNetwork
    from decoding.heads.store import HEADS, find_head, load_network, read_card, require_fit, weights_digest
    from decoding.models.pair import pair_identity

    if args.start_from is None:
        hidden = pair.target.info.hidden_size
        config = HeadConfig.of(hidden, pair.logits_size, args.mlp_size or max(1, hidden * 8 // 5))
        return HeadNetwork(config, torch.Generator().manual_seed(args.seed)), ""
    folder = Path(args.start_from)
    card = read_card(folder, folder.name) if (folder / HEADS.card).exists() else find_head(args.start_from)
    require_fit(card, pair_identity(pair))
    return load_network(card), weights_digest(card)


def _window_plan(args: argparse.Namespace) -> "WindowPlan":
    from decoding.training.heads.windows import WindowPlan

    return WindowPlan(
        windows=args.windows,
        held_out=args.held_out,
        roots=args.roots,
        depth=args.depth,
        continued=args.continued,
        temperature=args.temperature,
        seed=args.seed,
    )


def _settings(args: argparse.Namespace, words: list[str], pair: "Pair") -> TrainingSettings:
    from decoding.models.pair import pair_identity

    date = time.strftime("%Y-%m-%d")
    wide = f" (top-{args.top_k})" if args.loss == "talf" else ""
    name = f"{KINDS_OF_LOSS[args.loss]} head{wide}, {pair.info.name}, {date}"
    # The arguments alone, without the folder and without --resume: with those added they start the training again.
    told = [word for number, word in enumerate(words) if not _is_place(words, number)]
    shown = {key: str(value) if isinstance(value, Path) else value for key, value in vars(args).items()}
    return TrainingSettings(
        kind="head",
        name=name,
        command=("-m", "decoding.training.head", *told),
        settings=shown,
        pair=pair_identity(pair),
        created=time.strftime("%Y-%m-%dT%H:%M:%S"),
    )


def _is_place(words: list[str], number: int) -> bool:
    word, before = words[number], words[number - 1] if number else ""
    return word in ("--out", "--resume") or before == "--out" or word.startswith("--out=")


if __name__ == "__main__":
    sys.exit(main())
