"""Train the neural selector of delayed trees: `python -m decoding.training.selector --verifier specinfer --corpus DIR`.

Roots along the pair's own text are labelled first, for all verifiers at once, and kept: the next selector begins to
learn at once. All six, one after another, from nothing to selectors that come with the program:

    python -m decoding.training.selector --verifier all --corpus DIR --ship

Text that is labelled by several processes, here two, each of which makes its own shards:

    python -m decoding.training.selector --corpus DIR --only-data 1/2 &
    python -m decoding.training.selector --corpus DIR --only-data 2/2

The selector is then in the folder of the training, `selector/`, and delayed trees can use it (setting `selector`).
Without `--corpus` the target continues the sample prompts. Exit code 0: finished; 1: stopped, out of memory or failed;
2: what was asked for cannot be done.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoding.common.errors import TrainingError
from decoding.common.files import training_home
from decoding.sampling.sampling import Sampling
from decoding.training.common.command import FINISHED, conduct, folder_of, run_command
from decoding.training.common.run_folder import SETTINGS, RunFolder, Status, TrainingSettings
from decoding.training.selector_arguments import MINUTES, parser
from decoding.training.selectors.data import RootData, RootPlan, data_folder, make_roots, open_data
from decoding.training.selectors.labels import VERIFIER_NAMES

if TYPE_CHECKING:
    from decoding.models.pair import Pair
    from decoding.selector.latency import LatencyModel
    from decoding.training.selectors.learner import SelectorLearner

SELECTOR, PHASE, MAKING = "selector", "training the selector", "drawing and labelling trees"


def main(arguments: list[str] | None = None) -> int:
    """Label roots, train and store a selector; every error is one sentence on stderr."""
    words = sys.argv[1:] if arguments is None else arguments
    args = parser().parse_args(words)
    if args.only_data is not None:
        return run_command(lambda: _only_data(args))
    if args.verifier != "all":
        return run_command(lambda: _one(args, words, args.verifier, args.out))
    return run_command(lambda: _all(args, words))


def _all(args: argparse.Namespace, words: list[str]) -> int:
    """One after another, each in a folder of its own; resumed, those that have not begun begin."""
    for name in VERIFIER_NAMES:
        out = None if args.out is None else args.out / name
        begun = out is None or (out / SETTINGS).exists()
        own = argparse.Namespace(**{**vars(args), "resume": args.resume and begun})
        code = _one(own, _with_verifier(words, name), name, out)
        if code != FINISHED:
            return code
    return FINISHED


def _one(args: argparse.Namespace, words: list[str], verifier: str, out: Path | None) -> int:
    if args.resume and out is None:
        raise TrainingError("Name the training that --resume is to go on with: --out DIR.")
    folder = folder_of(out, f"selector-{verifier.replace('_', '-')}")
    if args.resume:
        folder.settings()
        folder.clear_stop()
    return conduct(folder, lambda: _prepared(args, words, verifier, folder))


def _prepared(args: argparse.Namespace, words: list[str], verifier: str, folder: RunFolder) -> Callable[[], None]:
    """All that comes before the first step; gives what trains."""
    import json

    from decoding.training.common.loop import Plan
    from decoding.training.selectors.examples import examples
    from decoding.training.selectors.learner import SelectorLearner, SelectorSettings, drafting

    settings = SelectorSettings(
        verifier=verifier,
        batch=args.batch,
        penalty=args.penalty,
        worst=args.worst,
        entropy=args.entropy,
        dropout=args.dropout,
        state_dropout=args.state_dropout,
        weight_decay=args.weight_decay,
        learning_rate=args.learning_rate,
        seed=args.seed,
    )
    plan = Plan(args.steps, MINUTES if args.minutes is None and args.steps is None else args.minutes, tree_every_s=20.0)
    pair, data, label = _data(args, folder)
    if not args.resume:
        folder.begin(_settings(args, words, verifier, pair))
    label()
    latency = _latency(args, folder, pair)
    trained, held_out = (
        examples(data.read(part), verifier, data.plan.samplings, latency, args.time) for part in ("trained", "held_out")
    )
    learner = SelectorLearner(
        settings, trained, held_out, data.plan.samplings, drafting(pair, verifier, latency, data.plan.draft_temperature)
    )
    belongs_to = {**vars(settings), "time": args.time, "latency": json.dumps(latency.as_json()),
                  "data": json.dumps(dict(data.belongs_to), sort_keys=True)}  # fmt: skip
    return lambda: _train(args, learner, folder, plan, belongs_to, pair, latency)


def _latency(args: argparse.Namespace, folder: RunFolder, pair: "Pair") -> "LatencyModel":
    """What forwards cost; a training that goes on keeps the costs that it began with, which its labels rest on."""
    import json

    from decoding.costs.measuring import latency_model
    from decoding.selector.latency import LatencyModel
    from decoding.session.session import unrecorded
    from decoding.training.common.loop import load_checkpoint

    if args.resume and folder.checkpoint.exists():
        kept = load_checkpoint(folder.checkpoint).belongs_to.get("latency")
        if kept is not None:
            return LatencyModel.from_json(json.loads(kept))
    return latency_model(pair, unrecorded, args.measure_again)


def _train(
    args: argparse.Namespace, learner: "SelectorLearner", folder: RunFolder, plan: Any, belongs_to: dict[str, Any],
    pair: "Pair", latency: "LatencyModel",
) -> None:  # fmt: skip
    """Train, and store the selector."""
    from decoding.models.pair import pair_identity
    from decoding.selector.store import SHIPPED, save_selector
    from decoding.training.common.loop import reporter, train

    status = train(learner, folder, plan, phase=PHASE, belongs_to=belongs_to, resume=args.resume, report=reporter())
    network = learner.finished_network()
    verifier = learner.settings.verifier
    content = {
        "verifier": verifier,
        "created": folder.settings().created,
        "pair": pair_identity(pair),
        "mean": list(learner.scaler.mean),
        "spread": list(learner.scaler.spread),
        "statics": learner.statics,
        "latency": latency.as_json(),
        "way": args.time,
        "figures": {"steps": status.step, "trained_s": status.trained_s, **learner.finished_figures()},
    }
    save_selector(folder.path / SELECTOR, network, content)
    print(f"\n{folder.path / SELECTOR}: selector for {verifier}, {status.step} steps; selector={folder.path.name}")
    if args.ship:
        name = verifier.replace("_", "-")
        save_selector(SHIPPED / name, network, content)
        print(f"{SHIPPED / name}: selector={name}")


def _data(args: argparse.Namespace, folder: RunFolder | None) -> "tuple[Pair, RootData, Callable[[], None]]":
    """The pair, its labelled roots, and what labels those that are missing.

    Args:
        folder: hears how far it is; None: only stderr does.
    """
    import transformers

    from decoding.training.common.loop import StoppedError, memory_bytes
    from decoding.training.head import pair_of
    from decoding.training.heads.data import texts_from

    transformers.logging.set_verbosity_error()
    samplings = tuple(Sampling(s.temperature, s.top_p, args.draft_temperature) for s in args.samplings)
    plan = RootPlan(
        texts=args.texts, held_out=args.held_out, roots=args.roots, spacing=args.spacing, trees=args.trees,
        khisti_trees=args.khisti_trees, khisti_every=args.khisti_every, samplings=samplings, seed=args.seed,
    )  # fmt: skip
    texts, text_identity = texts_from(args.corpus)
    pair = pair_of(args)
    place = args.data or data_folder(training_home() / "roots", pair, plan, text_identity)
    data = open_data(place, pair, plan, text_identity)

    def report(done: int, total: int) -> None:
        print(f"{MAKING}: {done} of {total} texts", file=sys.stderr, flush=True)
        if folder is not None:
            memory = memory_bytes(pair.target.device)
            folder.write_status(
                Status("preparing", MAKING, done, total, device=str(pair.target.device), memory_bytes=memory)
            )

    def label() -> None:
        stopped = folder.asked_to_stop if folder is not None else lambda: False
        if not make_roots(data, pair, texts, report, stopped, args.only_data or (0, 1)):
            raise StoppedError("Stopped while trees were labelled; go on with --resume.")

    return pair, data, label


def _only_data(args: argparse.Namespace) -> int:
    _, data, label = _data(args, None)
    label()
    print(f"{data.folder}: labelled roots")
    return FINISHED


def _settings(args: argparse.Namespace, words: list[str], verifier: str, pair: "Pair") -> TrainingSettings:
    from decoding.models.pair import pair_identity

    told = [word for number, word in enumerate(words) if not _is_place(words, number)]
    shown = {key: str(value) if isinstance(value, Path) else value for key, value in vars(args).items()}
    shown["samplings"] = [f"{s.temperature:g}:{s.top_p:g}" for s in args.samplings]
    return TrainingSettings(
        kind="selector",
        name=f"Selector for {verifier}, {pair.info.name}, {time.strftime('%Y-%m-%d')}",
        command=("-m", "decoding.training.selector", *told),
        settings=shown | {"verifier": verifier},
        pair=pair_identity(pair),
        created=time.strftime("%Y-%m-%dT%H:%M:%S"),
    )


def _is_place(words: list[str], number: int) -> bool:
    word, before = words[number], words[number - 1] if number else ""
    return word in ("--out", "--resume") or before == "--out" or word.startswith("--out=")


def _with_verifier(words: list[str], name: str) -> list[str]:
    """The words of the command for one verifier in the place of all."""
    changed = [name if number and words[number - 1] == "--verifier" else word for number, word in enumerate(words)]
    return [f"--verifier={name}" if word == "--verifier=all" else word for word in changed]


if __name__ == "__main__":
    sys.exit(main())
