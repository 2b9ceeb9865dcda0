"""How long a fork of a run takes: replayed from stored rows, and live with the models, by the size of its tree.

Every fork makes one whole iteration, its record included: what a person waits for on the What if page before anything
is drawn. Replayed and live forks of the same iterations take turns.
"""

import numpy as np
import torch

from benchmarks.answer_times import SIZES, full_tree, goal_words, verdicts
from decoding.common.errors import run_main
from decoding.experiments.command import arguments, choose_prompts, print_table, save_figures
from decoding.models.pair import Pair, embedded_pair
from decoding.replay.forks import Change, fork
from decoding.session.session import DecodeSession, Limits
from decoding.trace.edits import Edits
from decoding.trace.metrics import spread
from decoding.trace.records import node_paths

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
        change = Change(edits=Edits(reject=(node_paths(iteration)[1],)))
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
