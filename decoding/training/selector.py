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
import json
import sys
from collections.abc import Callable
from pathlib import Path

from decoding.common.errors import command
from decoding.common.settings import from_arguments
from decoding.costs.latency import latency_model
from decoding.jobs.process import FINISHED, conduct
from decoding.models.pair import Pair, pair_identity
from decoding.models.presets import add_pair_arguments
from decoding.sampling.sampling import Sampling
from decoding.selector.actions import LatencyModel
from decoding.selector.store import SELECTORS, SHIPPED, save_selector
from decoding.session.session import unrecorded
from decoding.training.command import NO_FLAGS, minutes_of, noted, pair_of, parser_of, training_of
from decoding.training.folder import SETTINGS, Training
from decoding.training.loop import PhasePlan, load_checkpoint, train
from decoding.training.selector_labels import VERIFIER_NAMES
from decoding.training.selector_learner import SelectorLearner, SelectorSettings, drafting, examples, names_of
from decoding.training.selector_roots import PARTS, SAMPLINGS, RootData, RootPlan, make_roots, open_data
from decoding.training.shards import telling
from decoding.training.text import Texts, read_corpus, sample_texts

PHASE, MAKING = "training the selector", "drawing and labelling trees"


def parser() -> argparse.ArgumentParser:
    """The arguments of the command."""
    made = parser_of("selector", "Train the selector of delayed trees.", verifier={"choices": (*VERIFIER_NAMES, "all")})
    made.add_argument("--entropy", type=float, default=0.05, metavar="WEIGHT", help="entropy bonus at the start")
    made.add_argument("--state-dropout", type=float, default=0.8, metavar="SHARE", help="dropout of the hidden states")
    made.add_argument("--measure-again", action="store_true", help="re-measure pass times even where known")
    made.add_argument("--ship", action="store_true", help="also include it with Draftscope, named by its verifier")
    made.add_argument("--data", type=Path, metavar="DIR", help="folder for labelled roots")
    made.add_argument("--khisti-trees", type=int, default=1, metavar="N", help="trees per root labelled for Khisti")
    made.add_argument("--khisti-every", type=int, default=3, metavar="N", help="label every Nth root for Khisti")
    made.add_argument("--per-root", type=int, default=3, metavar="N", help="samplings that a root is labelled under")
    made.add_argument("--scatter", type=float, default=1.0, metavar="SPREAD",
                      help="of a policy, spread of the logarithms of random factors on costs")  # fmt: skip
    help_of_samplings = ("comma-separated temperature, temperature:top-p or temperature:top-p:draft-temperature "
                         "(default: the paper's, greedy, and those with a draft as warm as the target)")  # fmt: skip
    made.add_argument("--samplings", type=_samplings, default=SAMPLINGS, metavar="LIST", help=help_of_samplings)
    made.add_argument("--only-data", type=_share, metavar="I/N", help="label texts as process I of N, train nothing")
    add_pair_arguments(made, *NO_FLAGS)
    return made


def _samplings(text: str) -> tuple[Sampling, ...]:
    """Samplings as the command takes them: `0,0.6,1:0.9,0.6:1:0.6`."""
    try:
        parts = [[float(number) for number in entry.split(":")] for entry in text.split(",")]
        if not all(len(part) in (1, 2, 3) for part in parts):
            raise ValueError
        full = [(*part, 1.0, 1.0) for part in parts]
        return tuple(Sampling(temperature, top_p, draft) for temperature, top_p, draft, *_ in full)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of samplings: give temperatures from 0, temperature:top-p or "
            "temperature:top-p:draft-temperature, such as 0,1:0.9,0.6:1:0.6."
        ) from None


def _share(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a share: give the number of this process and how many there are, such as 1/2."
        )
    return int(number) - 1, int(count)


@command
def main(arguments: list[str] | None = None) -> int:
    """Label roots, train and store a selector; every error is one sentence on stderr."""
    words = sys.argv[1:] if arguments is None else arguments
    return _run(parser().parse_args(words), words)


def _with_verifier(words: list[str], name: str) -> list[str]:
    """The words of the command for one verifier in the place of all."""
    changed = [name if number and words[number - 1] == "--verifier" else word for number, word in enumerate(words)]
    return [f"--verifier={name}" if word == "--verifier=all" else word for word in changed]


def _run(args: argparse.Namespace, words: list[str]) -> int:
    """Label alone, or train one, or all one after another in folders of their own, those that have not begun anew."""
    if args.only_data is not None:
        pair, data, texts = _data(args)
        make_roots(data, pair, texts, telling(None, MAKING, pair.target.device), args.only_data)
        print(f"{data.folder}: labelled roots")
        return FINISHED
    if args.verifier != "all":
        training = training_of(args.out, args.resume, f"selector-{args.verifier}")
        return conduct(training, lambda: _prepared(args, words, training))
    for name in VERIFIER_NAMES:
        out = None if args.out is None else args.out / name
        begun = out is None or (out / SETTINGS).exists()
        changes = {"verifier": name, "out": out, "resume": args.resume and begun}
        code = _run(argparse.Namespace(**{**vars(args), **changes}), _with_verifier(words, name))
        if code != FINISHED:
            return code
    return FINISHED


def _prepared(args: argparse.Namespace, words: list[str], training: Training) -> Callable[[], None]:
    """All that comes before the first step; gives what trains and stores the selector."""
    settings = from_arguments(SelectorSettings, args)
    plan = PhasePlan(args.steps, minutes_of(args, "selector"), tree_every_s=20.0)
    pair, data, texts = _data(args)
    if not args.resume:
        samplings = [f"{s.temperature:g}:{s.top_p:g}:{s.draft_temperature:g}" for s in args.samplings]
        shown = {**vars(args), "samplings": samplings}
        training.begin(noted("selector", f"Selector for {args.verifier}", words, shown, pair))
    make_roots(data, pair, texts, telling(training, MAKING, pair.target.device))
    kept = None
    if args.resume and training.checkpoint.exists():
        kept = load_checkpoint(training.checkpoint).belongs_to.get("latency")
    # A training that goes on keeps the costs that it began with, which its labels rest on.
    latency = (
        latency_model(pair, unrecorded, args.verifier, args.measure_again)
        if kept is None
        else LatencyModel.from_json(json.loads(kept))
    )
    names = names_of(settings.rule)
    judged, held_out, trained = (
        examples(data.read(part), args.verifier, data.plan.samplings, latency, args.time, names) for part in PARTS
    )
    drafted = drafting(pair, args.verifier, latency)
    learner = SelectorLearner(settings, trained, held_out, judged, data.plan.samplings, drafted)
    belongs_to = {**vars(settings), "hidden": str(settings.hidden), "time": args.time,
                  "latency": json.dumps(latency.as_json()),
                  "data": json.dumps(dict(data.belongs_to), sort_keys=True)}  # fmt: skip

    def work() -> None:
        status = train(learner, training, plan, phase=PHASE, belongs_to=belongs_to, resume=args.resume)
        network = learner.finished_network()
        content = {
            "verifier": args.verifier,
            "created": training.settings().created,
            "pair": pair_identity(pair),
            "mean": list(learner.scaler.mean),
            "spread": list(learner.scaler.spread),
            "statics": learner.statics,
            "latency": latency.as_json(),
            "way": args.time,
            "scalars": list(names),
            "rule": settings.rule,
            "data": {name: value for name, value in data.belongs_to.items() if name != "pair"},
            "settings": vars(settings),
            "figures": {"steps": status.done, "trained_s": status.trained_s, **learner.finished_figures()},
        }
        place, shipped = training.path / SELECTORS.folder, SHIPPED / args.verifier.replace("_", "-")
        save_selector(place, network, content)
        print(f"\n{place}: selector for {args.verifier}, {status.done} steps; selector={training.path.name}")
        if args.ship:
            save_selector(shipped, network, content)
            print(f"{shipped}: selector={shipped.name}")

    return work


def _data(args: argparse.Namespace) -> tuple[Pair, RootData, Texts]:
    """The pair, its roots as far as they are labelled, and the texts that they stand in."""
    plan = from_arguments(RootPlan, args)
    texts = read_corpus(args.corpus) if args.corpus is not None else sample_texts()
    pair = pair_of(args)
    return pair, open_data(args.data, pair, plan, texts.identity), texts


if __name__ == "__main__":
    sys.exit(main())
