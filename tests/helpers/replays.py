"""What replays of a file come to, as plain data, so that a Python with torch and one without can be compared.

python -m tests.helpers.replays run.dscope ...     # prints it as JSON
"""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.enumeration import Tables, all_drafts
from decoding.analysis.luck import rerolled
from decoding.analysis.smallest_change import change_search, smallest_changes
from decoding.common.errors import DraftscopeError
from decoding.common.optional_torch import Tensor, torch
from decoding.drafters import IIDPathsDrafter, SequoiaDrafter
from decoding.methods.method import fitted
from decoding.methods.methods import METHODS
from decoding.replay.forks import Change, fork
from decoding.replay.replay import replay, replayed_iteration
from decoding.replay.run_theory import run_theory
from decoding.replay.steps import node_steps
from decoding.replay.stored_state import method_of, sampling_of
from decoding.sampling.draws import GeneratorDraws, enumerate_draws
from decoding.sampling.sampling import Sampling
from decoding.sources.table import path_tokens
from decoding.trace.archive import load_run
from decoding.trace.edits import Edits
from decoding.trace.records import IterationTrace, RunTrace, node_paths
from decoding.tree.token_tree import TokenTree
from decoding.verifiers import VERIFIERS
from decoding.verifiers.theory import entropy
from decoding.verifiers.verified_tree import VerifiedTree

LAWS = Tables("small", {(): [0.6, 0.3, 0.1]}, {(): [0.2, 0.3, 0.5]}, [0.1, 0.4, 0.5], [0.5, 0.25, 0.25])
REPLAYED, FORKED, REROLLS = (0, 1, 2), 1, 200
# What is measured with a loaded pair otherwise.
MEASURED = {"sequoia": {"acceptance": "0.6,0.2,0.1"}, "hardware_aware": {"verify_ms": "1:1 64:2", "level_ms": "0.2"}}
MEASURED["hardware_aware"]["odds"] = "1.5 1"


def told(path: Path) -> dict[str, Any]:
    """Everything that can be replayed of a file, by what it is."""
    run = load_run(path)
    sampling = sampling_of(run)
    theory = run_theory(run.iterations[:2], sampling)
    found = {"theory": [asdict(theory.depths[0].l1), {name: asdict(mean) for name, mean in theory.expected.items()}]}
    for index in REPLAYED:
        found |= _verified_again(run.iterations[index], sampling)
        found[f"re-rolled {index}"] = sorted(rerolled(run, index, REROLLS).items())
    return found | _forks(run, sampling) | {"changes": _or_error(lambda: _changes(run))}


def enumerated() -> dict[str, list[float]]:
    """Every verifier on every tree of two drafters: exact expectation, and that of all draws taken one by one."""
    found: dict[str, list[float]] = {}
    for drafter in (IIDPathsDrafter(2, 2), SequoiaDrafter(4, max_depth=2, acceptance="0.5,0.3")):
        for draft, chance in all_drafts(drafter, LAWS):
            target = LAWS.target_rows(draft)
            for name, kind in VERIFIERS.items():
                fits = kind().refusal(draft.law, Sampling(0.0 if kind.greedy_only else 1.0)) is None
                decision = kind().decide(VerifiedTree(draft, target))
                if fits:
                    walks = enumerate_draws(decision.walk)
                    counted = sum(share * (len(walk.accepted) + 1) for walk, share in walks)
                    row = [chance, decision.expected_tokens, counted, entropy(decision.tree.target_law(0))]
                    found.setdefault(f"{name} {draft.law}", []).extend(row)
    return found


class RandomLaws:
    """A draft whose law after every path is random, and the same each time."""

    depth_limit = 6

    def expand(self, tree: TokenTree, nodes: np.ndarray) -> Tensor:
        paths = [path_tokens(tree, node) for node in nodes.tolist()]
        rows = [np.random.default_rng([len(path), *path]).normal(0, 3, 512) for path in paths]
        return torch.softmax(torch.from_numpy(np.stack(rows).astype(np.float32)), -1)


def drafted() -> dict[str, list]:
    """The tree that every method drafts from the same random laws."""
    found = {}
    for name, method in METHODS.items():
        drafter = method.drafter.with_settings(**MEASURED.get(name, {}))
        tree = (made := drafter.draft(drafter.start([]), RandomLaws(), 0, GeneratorDraws(1))).tree
        columns = [tree.tokens, tree.parents, tree.draft_probs, tree.multiplicity, made.order]
        found[name] = [column.tolist() for column in columns]
    return found


def _verified_again(iteration: IterationTrace, sampling: Sampling) -> dict[str, Any]:
    found = {}
    for each in replay(iteration, sampling, rerolls=REROLLS):
        if each.refusal is None:
            place = f"{each.verifier.name} {iteration.index}"
            rolled = [sorted(each.tokens.items()), sorted(each.stops.items())]
            kept = list(each.acceptance_probability.values())
            found[place] = [each.expected_tokens, kept, asdict(each.outcome), rolled]
            found[f"{place} as a record"] = [asdict(n) for n in replayed_iteration(iteration, each, str).nodes]
            steps = node_steps(iteration, sampling, each, 0, str)
            found[f"{place} at the root"] = asdict(steps) if steps else None
    return found


def _forks(run: RunTrace, sampling: Sampling) -> dict[str, Any]:
    """Every kind of change to one iteration; what stored rows cannot answer is told in its words."""
    path = node_paths(run.iterations[FORKED])[1]
    changes = {
        "nothing": Change(),
        "seed": Change(sampling=replace(sampling, seed=sampling.seed + 1)),
        "temperature": Change(sampling=replace(sampling, temperature=1.0, top_p=0.9)),
        **{kind: Change(edits=Edits(**{kind: (path,)})) for kind in ("accept", "reject", "force_out")},
        **{name: Change(fitted(method, sampling)) for name, method in METHODS.items()},
    }
    return {f"fork: {name}": _or_error(lambda change=change: _forked(run, change)) for name, change in changes.items()}


def _forked(run: RunTrace, change: Change) -> dict[str, Any]:
    parted = fork(run, None, FORKED, change, live=False)
    iteration = asdict(replace(parted.trace.iterations[-1], draft_logits=None, target_logits=None))
    arrays = {name: value for name, value in iteration.items() if isinstance(value, np.ndarray)}
    plain = {name: np.nan_to_num(value).tolist() for name, value in arrays.items()}
    return iteration | plain | {"words": parted.words, "times": None, "texts": sorted(iteration["texts"].items())}


def _changes(run: RunTrace) -> list[Any]:
    iteration = run.iterations[FORKED]
    method = method_of(run).drafter
    unverified = [node.node_id for node in iteration.nodes if node.flat_index is None]
    paths = node_paths(iteration)
    path = paths[unverified[0]] if unverified else (*paths[1][:-1], 5)
    found = smallest_changes(change_search(run, FORKED), path)
    return [*map(asdict, found.changes), found.without, found.unknown, found.trees, type(method).__name__]


def _or_error(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except DraftscopeError as error:
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    said = {"enumerated": enumerated(), "drafted": drafted(), "torch": "torch" in sys.modules}
    json.dump(said | {path: told(Path(path)) for path in sys.argv[1:]}, sys.stdout)
