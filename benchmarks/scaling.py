"""Cost against node budget, depth, context and length of the output: each phase's time and how fast it grows.

One tree grows along one axis at a time: `nodes` in chains of equal depth below the root. Times are medians over
iterations; recording is all that a step takes outside the iteration itself. The growth exponent is the slope of log
time against log size by least squares, with its standard error. Goal: mask building, compaction and recording each
stay below 10% of the iteration throughout. Whole texts count, as the same sizes are asked of any text.
"""

import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from decoding.common.errors import require, run_main
from decoding.common.settings import setting
from decoding.drafters.base import Drafter, TreeBuilder
from decoding.experiments.command import arguments, choose_prompts, goal_line, pair_from, print_table, save_figures
from decoding.methods.method import Method
from decoding.models.embedded import embedded_folder
from decoding.models.pair import Pair, load_pair
from decoding.models.presets import PairSettings, add_pair_arguments
from decoding.session.session import DecodeSession, Limits
from decoding.tree.draft import Draft

LAYERS, DRAFT_LAYERS = 4, 1
# Embeddings that outweigh the layers let the draft, the target's first layers, agree with the target: paths are
# accepted to their ends, which is the dearest case for the cache.
EMBEDDING_GAIN = 50.0


def random_pair(folder: Path, context: int, device: str = "auto", dtype: str = "auto") -> Pair:
    """Write a target as wide as the embedded one, and its first layers as the draft; load both.

    Args:
        folder: where the two models are written.
        context: most tokens of prompt and output together.
    """
    torch.manual_seed(0)
    target, draft = _model(LAYERS, context), _model(DRAFT_LAYERS, context)
    target.get_input_embeddings().weight.data.mul_(EMBEDDING_GAIN)
    draft.load_state_dict(target.state_dict(), strict=False)  # the target's further layers find no place
    for name, model in (("target", target), ("draft", draft)):
        model.save_pretrained(folder / name)
        AutoTokenizer.from_pretrained(embedded_folder("target")).save_pretrained(folder / name)
    return load_pair(
        PairSettings(str(folder / "target"), str(folder / "draft"), device=device, dtype=dtype, context_length=context)
    )


def _model(layers: int, context: int) -> torch.nn.Module:
    config = AutoConfig.from_pretrained(embedded_folder("target"))
    config.num_hidden_layers, config.max_position_embeddings = layers, context
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


GOAL = 0.10
NODES, DEPTH, CONTEXT = 64, 8, 512  # where an axis is not what grows
BUDGETS = (8, 16, 32, 64, 128, 256, 512, 1024)
DEPTHS = (1, 2, 4, 8, 16, 32)
CONTEXTS = (128, 256, 512, 1024, 2048)
LONG_CONTEXTS = (128, 256, 512, 1024, 2048, 4096, 8192)  # random weights
LENGTHS = (32, 64, 128, 256, 512, 1024)
PHASES = ("draft", "prune", "mask", "verify", "select", "commit", "adapt")
RECORDS = {"summary": "record", "full": "record, full"}
WATCHED = {
    "mask": "mask building",
    "commit": "compaction",
    "record": "recording a summary",
    "record, full": "recording in full",
}
COLUMNS = (*PHASES, "iteration", *RECORDS.values())


@dataclass(frozen=True)
class ChainsDrafter(Drafter):
    """The draft's likeliest tokens after the root, each followed by the likeliest chain: `nodes` at `depth`."""

    nodes: int = setting(NODES, 1, 4096, label="Nodes")
    depth: int = setting(DEPTH, 1, 4096, label="Depth")

    def __post_init__(self):
        super().__post_init__()
        require(self.nodes % self.depth == 0, f"{self.nodes} nodes are no whole number of chains of {self.depth}.")

    def draft(self, state, source, root_token, draws) -> Draft:
        builder = TreeBuilder(source, root_token)
        frontier, width = builder.root_frontier(), self.nodes // self.depth
        for _ in range(min(self.depth, source.depth_limit)):
            tokens, probs = builder.expand(frontier, top=width)
            frontier = builder.add_best(frontier, np.full(len(frontier), width), tokens, probs, room=self.nodes)
            width = 1
        return builder.finish(self.draft_sampling, state, self.settings())


@dataclass(frozen=True)
class Point:
    """One size on an axis.

    Attributes:
        size: what grew.
        nodes: verified nodes per iteration, a median like all that follows.
        tokens: committed tokens per iteration.
        ms: milliseconds by column; the columns of recording are no part of `iteration`.
        shares: what is watched, as a share of the iteration it belongs to.
    """

    size: int
    nodes: float
    tokens: float
    ms: dict[str, float]
    shares: dict[str, float]


def chains(nodes: int = NODES, depth: int = DEPTH) -> Method:
    """Greedy decoding with such trees."""
    summary = "The likeliest tokens after the root, each followed by the likeliest chain."
    return Method("chains", "Chains", summary, "made to be measured", ChainsDrafter(nodes, depth))


def room(iterations: int, depth: int = DEPTH) -> int:
    """Tokens that so many iterations and one before them may commit, with no tree cut short."""
    return (iterations + 2) * (depth + 1)


def begin(pair: Pair, method: Method, prompt_ids: list[int], new_tokens: int) -> DecodeSession:
    """A session with its prompt read and one iteration done."""
    limits = Limits(new_tokens, ignore_end_of_text=True, record="summary")
    session = DecodeSession(pair, method, prompt_ids, limits=limits)
    session.step()
    return session


def measure(size: int, session: DecodeSession, iterations: int) -> Point:
    """Go on from here twice, recording summaries and in full, one iteration of each in turn; the first warms up."""
    forks = {record: session.fork(limits=replace(session.limits, record=record)) for record in RECORDS}
    ms, shares, counts = defaultdict(list), defaultdict(list), []
    for number in range(iterations + 1):
        for record, fork in forks.items():
            began = time.perf_counter()
            trace = fork.step()
            outside = time.perf_counter() - began - trace.times.total_s
            if number == 0:
                continue
            seconds = {phase: getattr(trace.times, f"{phase}_s") for phase in PHASES}
            seconds |= {"iteration": trace.times.total_s, RECORDS[record]: outside}
            counts.append((trace.verified, len(trace.committed_ids)))
            for column, value in seconds.items():
                ms[column].append(1000 * value)
                shares[column].append(value / trace.times.total_s)
    nodes, tokens = (float(statistics.median(column)) for column in zip(*counts, strict=True))
    return Point(
        size=size,
        nodes=nodes,
        tokens=tokens,
        ms={column: statistics.median(ms[column]) for column in COLUMNS},
        shares={column: statistics.median(shares[column]) for column in WATCHED},
    )


def stop_reason(sizes: Sequence[float], times: Sequence[float]) -> tuple[float, float] | None:
    """Slope of log time against log size by least squares and its standard error; None without three times above 0."""
    if len(sizes) < 3 or min(times) <= 0:
        return None
    x, y = np.log(sizes), np.log(times)
    x, y = x - x.mean(), y - y.mean()
    slope = float(x @ y / (x @ x))
    left = y - slope * x
    return slope, float(np.sqrt(left @ left / (len(x) - 2) / (x @ x)))


def long_prompt(pair: Pair, folder: Path | None, length: int) -> list[int]:
    """So many tokens of the prompts, one after another, over and over."""
    ids = [token for prompt in choose_prompts(folder, 1000) for token in pair.vocabulary.encode_prompt(prompt.text)]
    return (ids * (length // len(ids) + 1))[:length]


def along_contexts(pair: Pair, folder: Path | None, sizes: Sequence[int], iterations: int) -> list[Point]:
    """Prompts of every size; the last one may be shorter, so that what follows still fits."""
    spare = room(iterations)
    sizes = sorted({min(size, pair.context - spare) for size in sizes})
    prompt = long_prompt(pair, folder, sizes[-1])
    return [measure(size, begin(pair, chains(), prompt[:size], spare), iterations) for size in sizes]


def measure_axes(pair: Pair, args, iterations: int) -> dict[str, list[Point]]:
    """Every axis by name, the pair's own first, then long contexts on random weights."""

    def some(sizes: tuple[int, ...]) -> tuple[int, ...]:
        return (sizes[0], sizes[len(sizes) // 2], sizes[-1]) if args.quick else sizes

    prompt = long_prompt(pair, args.prompts, CONTEXT)
    axes = {
        "node budget": [
            measure(n, begin(pair, chains(nodes=n), prompt, room(iterations)), iterations) for n in some(BUDGETS)
        ],
        "depth": [
            measure(d, begin(pair, chains(depth=d), prompt, room(iterations, d)), iterations) for d in some(DEPTHS)
        ],
        "context": along_contexts(pair, args.prompts, some(CONTEXTS), iterations),
        "length of the output": [],
    }
    lengths = some(LENGTHS[:5] if args.quick else LENGTHS)
    session = begin(pair, chains(), prompt, max(lengths) + room(iterations))
    for size in lengths:  # one output, measured where it has so many tokens
        while session.new_tokens < size:
            session.step()
        axes["length of the output"].append(measure(size, session, iterations))
    with tempfile.TemporaryDirectory() as folder:
        wide = random_pair(Path(folder), max(LONG_CONTEXTS) + room(iterations), pair.target.device.type, args.dtype)
        axes["context, random weights"] = along_contexts(wide, args.prompts, some(LONG_CONTEXTS), iterations)
    return axes


def print_axis(name: str, points: list[Point]) -> dict:
    """The table of one axis; returns its figures."""
    exponents = {c: stop_reason([p.size for p in points], [p.ms[c] for p in points]) for c in COLUMNS}
    rows = [
        (f"{p.size:,}", f"{p.nodes:.0f}", f"{p.tokens:.0f}", *(f"{p.ms[c]:.2f}" for c in COLUMNS),
         *(f"{p.shares[c]:.1%}" for c in WATCHED)) for p in points
    ]  # fmt: skip
    grown = (f"{e[0]:.2f}±{e[1]:.2f}" if e else "-" for e in exponents.values())
    print()
    print_table(
        (name, "nodes", "tokens", *COLUMNS, *(f"{c} share" for c in WATCHED)),
        [*rows, ("exponent", "", "", *grown, *[""] * len(WATCHED))],
    )
    return {"points": [vars(p) for p in points], "exponents": exponents}


def verdicts(axes: dict[str, list[Point]]) -> list[str]:
    """Whether what is watched stays below the goal at every size, and where it comes nearest to it or goes beyond."""
    lines = []
    for column, what in WATCHED.items():
        share, where = max((p.shares[column], f"{name} {p.size:,}") for name, points in axes.items() for p in points)
        most = f"{what} at most {share:.1%} of the iteration ({where})"
        lines.append(goal_line(share < GOAL, f"{most}, goal below {GOAL:.0%}"))
    return lines


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    add_pair_arguments(parser)
    args = parser.parse_args()
    started = time.perf_counter()
    pair = pair_from(args)
    axes = measure_axes(pair, args, iterations=4 if args.quick else 12)
    setup = (f"{pair.info.name}, {pair.target.info.device}, {pair.target.info.dtype}, greedy; {NODES} nodes, depth "
             f"{DEPTH} and {CONTEXT} prompt tokens where nothing else is said; medians")  # fmt: skip
    print(f"{setup}, ms")
    figures = {name: print_axis(name, points) for name, points in axes.items()}
    goals = verdicts(axes)
    print("", *goals, f"{time.perf_counter() - started:.0f} s", sep="\n")
    save_figures(
        args, "scaling", {"setup": setup, "goals": goals, "axes": figures}, pair.target.device, by_processor=True
    )
    return 0


if __name__ == "__main__":
    run_main(main)
