"""How long a fork of a run takes: replayed from stored rows, and live with the models, by the size of its tree.

Every fork makes one whole iteration, its record included: what a person waits for on the What if page before anything
is drawn. Replayed and live forks of the same iterations take turns. How soon what a person does has to be
answered stands here too, with the trees of those sizes. Whole texts count: what is asked is time by tree size.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import torch

from decoding.common.errors import run_main
from decoding.experiments.command import arguments, choose_prompts, goal_line, print_table, save_figures
from decoding.methods.method import Method
from decoding.methods.methods import METHODS
from decoding.models.pair import Pair, embedded_pair
from decoding.replay.forks import ForkChange, fork
from decoding.session.session import DecodeSession, Limits
from decoding.trace.interventions import Interventions
from decoding.trace.metrics import spread
from decoding.trace.records import node_paths

SIZES = (64, 256, 1024)
# The settings that give a tree of any of these sizes, its node budget beside them.
FULL_TREE = {"max_depth": 6, "branching": 4, "prune_probability": 0.0, "branch_first_level": True}
# Milliseconds by what is done, and the sizes at which it has to be done within them.
GOALS_MS: dict[str, tuple[float, tuple[int, ...]]] = {
    "hover": (50.0, SIZES),
    "phase step": (50.0, SIZES),
    "iteration step": (50.0, SIZES),
    "slider": (350.0, (64,)),
    "replayed fork": (300.0, SIZES),
    "live fork": (500.0, (64,)),
}


def full_tree(nodes: int) -> Method:
    """A method that drafts and verifies trees of so many nodes."""
    return METHODS["fixed_tree"].with_settings(node_budget=nodes, **FULL_TREE)


def goal_ms(name: str) -> float | None:
    """The goal of a figure that is called `replayed fork, 64 nodes`, None where it has none."""
    what, _, nodes = name.removesuffix(" nodes").rpartition(", ")
    goal, sizes = GOALS_MS.get(what, (0.0, ()))
    return goal if nodes.isdigit() and int(nodes) in sizes else None


def goal_words(name: str) -> str:
    """The goal of a figure for a table."""
    goal = goal_ms(name)
    return "-" if goal is None else f"{goal:.0f}"


def verdicts(medians_ms: Mapping[str, float]) -> Iterator[str]:
    """One line per figure that has a goal: whether its median reaches it."""
    for name, median in medians_ms.items():
        goal = goal_ms(name)
        if goal is not None:
            yield goal_line(median <= goal, f"{name}, median {median:.1f} ms, goal {goal:.0f} ms")


KINDS = ("replayed", "live")
WARMUP = 2


def decoded(pair: Pair, nodes: int, prompt: str, iterations: int) -> DecodeSession:
    """A run whose trees have `nodes` nodes, with all its rows."""
    limits = Limits(max_new_tokens=200, rows="full")
    session = DecodeSession(pair, full_tree(nodes), pair.vocabulary.encode(prompt), limits=limits)
    while not session.finished and len(session.iterations) < iterations:
        session.step()
    return session


def measure(session: DecodeSession, repeats: int) -> dict[str, list[float]]:
    """Milliseconds of forks that force a child of the root to fail, one kind after the other."""
    run, made_ms = session.trace(), {kind: [] for kind in KINDS}
    for repeat in range(-WARMUP, repeats):
        iteration = run.iterations[repeat % len(run.iterations)]
        change = ForkChange(interventions=Interventions(reject=(node_paths(iteration)[1],)))
        for kind in KINDS:
            forked = fork(run, session, iteration.index, change, live=kind == "live")
            assert forked.kind == kind, forked.kind
            if repeat >= 0:
                made_ms[kind].append(1000 * forked.made_s)
    return made_ms


def main() -> int:
    args = arguments(__doc__.splitlines()[0]).parse_args()
    sizes, repeats = ((64, 1024), 8) if args.quick else (SIZES, 40)
    pair, prompt = embedded_pair(), choose_prompts(args.prompts, 1)[0].text
    measured: dict[str, list[float]] = {}
    for nodes in sizes:
        for kind, values in measure(decoded(pair, nodes, prompt, iterations=8), repeats).items():
            measured[f"{kind} fork, {nodes} nodes"] = values
    figures = {
        name: {"median_ms": spread(values).median, "p95_ms": float(np.percentile(values, 95)), "count": len(values)}
        for name, values in measured.items()
    }
    print_table(
        ("fork", "median ms", "95th percentile ms", "goal ms"),
        [(name, f"{f['median_ms']:.1f}", f"{f['p95_ms']:.1f}", goal_words(name)) for name, f in figures.items()],
    )
    print("\n".join(verdicts({name: f["median_ms"] for name, f in figures.items()})))
    save_figures(args, "forks", {"figures": figures}, torch.device("cpu"))
    return 0


if __name__ == "__main__":
    run_main(main)
