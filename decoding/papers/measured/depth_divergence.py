"""How target and draft diverge with depth, and what each verifier accepts there (delayed expansion, Figure 1).

At roots along text that the target writes, paths are drawn from the draft; after each of their nodes both distributions
are known in full, so their L1 distance and the acceptance of every solver at 1 to 4 draws (Algorithms 6 to 10) are
exact. Only texts, roots and paths are sampled. Khisti's acceptance is a lower bound.
"""

import argparse
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

import pandas as pd
import torch

from decoding.common.errors import run_main
from decoding.experiments.command import (
    add_counting_argument,
    add_job_argument,
    arguments,
    as_job,
    encoded_texts,
    in_both_ways,
    in_steps,
    pair_from,
    parse_amounts,
    print_table,
    save_records,
)
from decoding.experiments.estimates import estimate, recorded
from decoding.methods.method import Method, fitted
from decoding.methods.methods import METHODS
from decoding.models.pair import Pair
from decoding.models.presets import add_pair_arguments
from decoding.papers.paper_result import between, sampling_words
from decoding.sampling.sampling import Sampling, TargetDistributions
from decoding.session.session import DecodeSession, Limits
from decoding.trace.metrics import COUNTINGS
from decoding.tree.draft import Draft
from decoding.verifiers import VERIFIERS
from decoding.verifiers.base import VerifiedTree
from decoding.verifiers.theory import SOLVERS, acceptance_rate, l1_distance

# The paper says nothing of the draft's temperature; here it is the target's.
SAMPLINGS = tuple(Sampling(each, draft_temperature=each) for each in (0.2, 0.4, 0.6, 0.8, 1.0, 1.2)) + tuple(
    Sampling(1.0, top_p) for top_p in (0.9, 0.99)
)
DEPTHS, DRAWS, SPACING = 8, (1, 2, 3, 4), 16
DISTANCE_LINE = "laws"  # the line of figures without a solver
Figures = dict[tuple[str, int], dict[str, float]]  # by line and depth
MOST_DEPTH = 32  # of a tree below a root


@dataclass(frozen=True)
class Tree:
    """A drafted tree with the target's distributions on it."""

    draft: Draft
    target: TargetDistributions
    draft_forwards: int

    @property
    def nodes(self) -> int:
        """Verified nodes, the root not counted."""
        return len(self.draft.order) - 1

    def expected(self, verifiers: tuple[str, ...]) -> dict[str, float]:
        """Exact expected tokens under each verifier."""
        tree = VerifiedTree(self.draft, self.target)
        return {name: VERIFIERS[name]().decide(tree).expected_tokens for name in verifiers}


@dataclass
class Root:
    """A place in the target's text from which trees are drafted."""

    session: DecodeSession

    @property
    def in_loop(self) -> bool:
        """Whether the text repeats itself at this root."""
        return self.session.in_loop

    def tree(self, method: Method) -> Tree:
        """The method's tree at this root, with the target's distributions computed once for all verifiers."""
        session = self.session
        limits = replace(session.limits, max_new_tokens=session.new_tokens + MOST_DEPTH + 1)
        draft, target = session.fork(fitted(method, session.sampling), limits, session.sampling).peek()
        distributions = torch.stack([target.probs(row) for row in range(len(target))])
        return Tree(draft, TargetDistributions(None, session.sampling, probs=distributions), len(draft.rows))


def roots(pair: Pair, prompt_ids: list[int], sampling: Sampling, positions: tuple[int, ...]) -> list[Root]:
    """Sessions at some positions of one text that the target writes."""
    plain = fitted(METHODS["linear"].with_settings(length=1), sampling)
    limits = Limits(positions[-1] + 3, ignore_end_of_text=True, record="none")
    session = DecodeSession(pair, plain, prompt_ids, sampling, limits)
    found: list[Root] = []
    while not session.finished and len(found) < len(positions):
        if session.new_tokens >= positions[len(found)]:
            found.append(Root(session.fork(sampling=replace(sampling, seed=len(found)))))
        session.step()
    return found


def figures_along(root: Root, paths: int, solvers: Sequence[str]) -> Figures:
    """Means over some paths below a root, by depth: the distance of the two distributions, and what solvers accept.

    A node that several paths share counts once for each.
    """
    found = root.tree(METHODS["iid_paths"].with_settings(paths=paths, length=DEPTHS))
    tree, depths = VerifiedTree(found.draft, found.target), found.draft.tree.depths
    # Every path begins at the root; a node drawn m times is m times in `drawn`. After a leaf nothing was drawn.
    drawn = [] if found.draft.drawn is None else found.draft.drawn.tolist()
    nodes = [node for node in [0] * paths + drawn if depths[node] < DEPTHS]
    figures = {node: _at(tree, node, solvers) for node in set(nodes)}
    return {
        (line, depth): _means([figures[node][line] for node in nodes if depths[node] == depth])
        for depth in range(max(int(depths[node]) for node in nodes) + 1)
        for line in (DISTANCE_LINE, *solvers)
    }


def _means(figures: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: mean(each[name] for each in figures) for name in figures[0]}


def _at(tree: VerifiedTree, node: int, solvers: Sequence[str]) -> dict[str, dict[str, float]]:
    """The figures after one node, by line."""
    target, draft = tree.target_distribution(node), tree.draft_distribution(node)
    accepted = {
        name: {f"accepted_of_{draws}": acceptance_rate(name, target, draft, draws) for draws in DRAWS}
        for name in solvers
    }
    return {DISTANCE_LINE: {"l1_distance": l1_distance(target, draft)}, **accepted}


def records_of(
    pair: Pair,
    text: Mapping[str, str],
    ids: list[int],
    count: int,
    paths: int,
    samplings: Sequence[Sampling],
    solvers: Sequence[str],
) -> list[dict[str, Any]]:
    """The records of one prompt: means over its roots under all samplings."""
    positions = tuple(8 + SPACING * place for place in range(count))
    found: dict[tuple[str, int], list[dict[str, float]]] = defaultdict(list)
    outside: dict[tuple[str, int], list[bool]] = defaultdict(list)
    for sampling in samplings:
        for root in roots(pair, ids, sampling, positions):
            for key, figures in figures_along(root, paths, solvers).items():
                found[key].append(figures)
                outside[key].append(not root.in_loop)
    return [
        {"line": line, **text, "depth": depth, **in_both_ways(figures, outside[line, depth], _counted_means)}
        for (line, depth), figures in found.items()
    ]


def _counted_means(figures: Sequence[dict[str, float]]) -> dict[str, float]:
    return {"counted": len(figures), **_means(figures)}


def protocol(
    prompts: Sequence[tuple[Any, list[int]]], count: int, paths: int, samplings: Sequence[Sampling]
) -> dict[str, dict[str, str]]:
    """How the records are measured, see `decoding.papers.stored`."""
    return {"": {
        "prompt_tokens": between(len(ids) for _, ids in prompts),
        "new_tokens": f"{SPACING * (count - 1) + 8:,}",
        "sampling": sampling_words((each.temperature, each.top_p, each.draft_temperature) for each in samplings),
        "repeats": f"{count} roots after each, {SPACING} tokens apart, {paths} paths of {DEPTHS} at each",
    }}  # fmt: skip


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    add_pair_arguments(parser)
    add_job_argument(parser)
    add_counting_argument(parser, "whole")
    args = parse_amounts(parser, count=(24, 2, "prompts"), roots=(3, 1, "roots per prompt and sampling"))
    return as_job(args, measure)


def measure(args: argparse.Namespace) -> None:
    """Measure, print and keep what the arguments ask for."""
    started = time.perf_counter()
    pair = pair_from(args)
    prompts = encoded_texts(pair, args.prompts, args.count)
    paths = 1 if args.quick else 2
    samplings = SAMPLINGS[4:5] if args.quick else SAMPLINGS
    solvers = [name for name in SOLVERS if not (args.quick and name == "khisti")]
    records = []
    for text, ids in in_steps(args, prompts, len(prompts)):
        records += records_of(pair, text, ids, args.roots, paths, samplings, solvers)
    print(f"{pair.info.name}, {pair.target.info.device}, {len(prompts)} prompts x {args.roots} roots x {paths} paths, "
          f"{len(samplings)} samplings, the draft as warm as the target; acceptance at {DRAWS[-1]} draws; exact on "
          f"every path, means over prompts, {COUNTINGS[args.counted]}\n")  # fmt: skip
    columns = [(DISTANCE_LINE, "l1_distance"), *((name, f"accepted_of_{DRAWS[-1]}") for name in solvers)]
    rows, shown = [], recorded(pd.DataFrame(records), args.counted)
    for depth, here in shown.groupby("depth") if len(shown) else ():
        rows.append((depth, *(estimate(here.loc[here["line"] == line, name]) for line, name in columns)))
    print_table(("depth", "L1 distance", *solvers), rows)
    said = protocol(prompts, args.roots, paths, samplings)
    save_records(args, "depth_divergence", pair, records, started, protocol=said)


if __name__ == "__main__":
    run_main(main)
