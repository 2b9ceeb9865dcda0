"""Whether the reasons in the record are true: random runs of every drafter, each node held against the papers' rules.

Draft and target are tables of random probabilities. Of every node it is checked whether and why it was expanded, how
wide and why, whether and why it was left out, its verdict and the reason for that, by `reason_rules` and by a walk
through the tests; and that what is said of it in words says no other thing. The chance of a test follows from the
distributions for `RECOMPUTED`; of other verifiers the chance in the record is believed. Exits 1 where a single one is
false.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.special import softmax

from benchmarks import reason_rules
from benchmarks.reason_rates import hardware_aware, learn
from benchmarks.reason_rules import Path, RuleCase
from decoding.common.errors import SettingsError, run_main
from decoding.drafters import DRAFTERS
from decoding.drafters.base import Drafter
from decoding.experiments.command import arguments, parse_amounts, print_table, save_figures
from decoding.methods.method import Method, fitting
from decoding.sampling.draws import GeneratorDraws
from decoding.sampling.sampling import Sampling, TargetDistributions
from decoding.session.recorder import IterationState, write_iteration
from decoding.trace.records import IterationTrace, KVTrace, PhaseTimes, VerificationStep, node_paths
from decoding.tree.draft import TokenTree, TreePaths
from decoding.verifiers import VERIFIERS
from decoding.verifiers.base import cut_path
from viz.explain.expansion import why_not_expanded
from viz.explain.iteration import why_final, why_verdict

RULES: dict[str, Callable[[RuleCase], Any]] = {
    "none": reason_rules.nothing,
    "linear": reason_rules.chain,
    "fixed_tree": reason_rules.fixed_tree,
    "dynatree": reason_rules.dynatree,
    "dyspec": reason_rules.dyspec,
    "dyspec_threshold": reason_rules.dyspec_threshold,
    "specinfer": reason_rules.widths,
    "sequoia": reason_rules.sequoia,
    "opt_tree": reason_rules.opt_tree,
    "eagle2": reason_rules.eagle2,
    "specexec": reason_rules.best_first,
    "salf": reason_rules.best_first,
    "hardware_aware": hardware_aware,
    "iid_paths": partial(reason_rules.independent, lambda s: [s["paths"], *[1] * (s["length"] - 1)][: s["length"]]),
    "prompt_lookup": reason_rules.prompt_lookup,
    "suffix": reason_rules.suffix,
    "lookup_or_draft": reason_rules.lookup_or_draft,
    "token_recycling": reason_rules.token_recycling,
    "delayed": partial(
        reason_rules.independent, lambda s: [1] * s["trunk"] + [s["paths"], *[1] * (s["branch"] - 1)][: s["branch"]]
    ),
}
ITERATIONS = 4  # of a run
FROM_NOTHING = 16  # of one whose drafter first has to learn tokens
NO_ROWS = KVTrace(0, 0, (), (), 0, False, 0, 0)
NO_TIMES = PhaseTimes(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
RECOMPUTED = ("naive", "naive_tree", "specinfer", "specinfer_wor")
CHANCE_ROUNDING = 1e-9
# What a check stumbles over where a record contradicts itself: it is false then.
CONTRADICTIONS = (AssertionError, LookupError, TypeError, ValueError)
BOTTOM_UP = ("block", "traversal", "traversal_wor")


class ReasonTables:
    """Random probabilities of a draft and of a target that is like it, by the last tokens of the text.

    Args:
        support: tokens that the draft gives a probability at least; None: it gives all of them one.
    """

    def __init__(self, seed: int, random: np.random.Generator, support: int | None):
        self.size = int(random.integers(17, 40))
        self._seed, self._support = seed, support
        self._sharp, self._apart = random.uniform(0.5, 5.0), random.uniform(0.05, 1.5)
        self._known: dict[tuple[int, ...], tuple[np.ndarray, np.ndarray]] = {}

    def distributions(self, text: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """What draft and target say after a text, each `[vocab_size]`."""
        end = text[-3:]
        if end not in self._known:
            random = np.random.default_rng([self._seed, len(end), *end])
            draft = self._sharp * random.normal(size=self.size)
            target = draft + self._apart * random.normal(size=self.size)
            if self._support is not None:
                kept = random.permutation(self.size)[: self._support]
                few = np.where(random.random(self.size) < random.uniform(0, 0.95), -np.inf, draft)
                few[kept] = draft[kept]
                draft = few
            self._known[end] = softmax(draft), softmax(target)
        return self._known[end]


class TableSource:
    """Answers a drafter from the tables."""

    def __init__(self, tables: ReasonTables, text: tuple[int, ...], depth_limit: int):
        self.depth_limit, self.prefix, self.forwards = depth_limit, text, 0
        self._tables, self._text, self._paths = tables, text, TreePaths()

    def expand(self, tree: TokenTree, nodes: np.ndarray) -> torch.Tensor:
        """Draft probabilities after nodes, `[len(nodes), vocab_size]` in float64."""
        self.forwards += 1
        distributions = [self._tables.distributions(self._text + path)[0] for path in self._paths.of(tree, nodes)]
        return torch.from_numpy(np.stack(distributions))


@dataclass
class FalseReason:
    """What came of the checks.

    Attributes:
        nodes, runs: by drafter.
        codes: how often each code was reported.
        wrong: what is false, in words.
    """

    nodes: Counter = field(default_factory=Counter)
    runs: Counter = field(default_factory=Counter)
    codes: Counter = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def random_drafter(name: str, random: np.random.Generator) -> Drafter:
    """A drafter with settings from all over their ranges, small enough for quick trees."""

    def whole(low: int, high: int) -> int:
        return int(random.integers(low, high + 1))

    def share(low: float = 0.0, high: float = 1.0) -> float:
        return round(float(random.uniform(low, high)), 4)

    def coin() -> bool:
        return bool(random.random() < 0.5)

    budget = whole(1, 48)
    search = {"node_budget": budget, "max_depth": whole(1, 6)}
    widths = sorted(whole(1, 4) for _ in range(3))
    low, high = sorted((share(0.01, 0.99), share(0.01, 0.99)))
    settings: dict[str, dict[str, Any]] = {
        "none": {},
        "linear": {"length": whole(1, 8), "sampled": coin()},
        "fixed_tree": search | {"branching": whole(1, 4), "prune_probability": share(0, 0.3) * coin()},
        "dynatree": search | {
            "max_depth": (deep := whole(2, 7)), "base_depth": whole(1, deep - 1), "branch_min": widths[0],
            "branch_mid": widths[1], "branch_max": widths[2], "confidence_high": high + 0.001, "confidence_low": low,
            "stop_probability": share(0, 0.1), "deep_probability": share(0.1, 0.6), "adaptive_breadth": coin(),
            "prune_probability": share(0, 0.1) * coin(), "dynamic_depth": coin(), "history": coin(),
            "history_confidence_low": coin(), "history_minimum": 1,
        },
        "dyspec": search,
        "dyspec_threshold": search | {"threshold": share(0.001, 0.2)},
        "specinfer": {"widths": ",".join(str(whole(1, 3)) for _ in range(whole(1, 4))), "sampled": coin()},
        "sequoia": {"node_budget": whole(1, 14), "max_depth": whole(1, 5), "acceptance": _rates(random)},
        "opt_tree": search | {"gain_threshold": share(0, 0.6) * coin()},
        "eagle2": search | {"beam_width": whole(1, 6)},
        "specexec": search | {"batch": whole(1, 8), "children": whole(0, 4), "decay": share(0.5, 1.0)},
        "salf": search | {"batch": whole(1, 8), "gain_threshold": share(0, 0.9), "top_up": coin()},
        "hardware_aware": search | {
            "learn": coin(), "verify_ms": f"1:{share(1, 2)} 8:{share(2, 4)} 32:{share(4, 9)}",
            "level_ms": f"1:{share(0, 0.4)} 16:{share(0.4, 0.9)}", "odds": f"{share(0.3, 3)} {share(0.3, 3)}",
        },
        "iid_paths": {"paths": whole(1, 4), "length": whole(0, 5)},
        "delayed": {"paths": whole(1, 4), "trunk": whole(0, 3), "branch": whole(0, 3)},
        "prompt_lookup": (lookup := {
            "longest": whole(1, 4), "shortest": whole(1, 3), "latest": coin(), "length": whole(1, 6),
        }),
        "suffix": search | {
            "max_depth": whole(1, 8), "per_matched_token": share(0.5, 8), "least_share": share(0, 0.6) * coin(),
        },
        "lookup_or_draft": lookup,
        "token_recycling": search | {"candidates": whole(1, 8)},
    }  # fmt: skip
    if name not in settings or name not in RULES:
        raise LookupError(f"{name} needs a rule in RULES and small settings in random_drafter (benchmarks/reasons.py).")
    if name in ("fixed_tree", "dynatree"):
        settings[name] |= {"branch_first_level": coin(), "verify_pruned": coin()}
    return DRAFTERS[name](**settings[name])


def recorded_run(
    drafter: Drafter, seed: int, random: np.random.Generator
) -> Iterator[tuple[IterationTrace, ReasonTables]]:
    """The iterations of a short run, with the text before each; it ends at a random length or an end of text."""
    greedy_ranks = drafter.draft_sampling == "deterministic" and drafter.rule(drafter.settings()).value == "none"
    # Of equally good shapes of Sequoia only a tree that has all children of its shape tells which one it is.
    least = len(drafter.settings()["acceptance"].split(",")) if "acceptance" in drafter.settings() else 1
    tables = ReasonTables(seed, random, least if not greedy_ranks and random.random() < 0.3 else None)
    sampling = Sampling(float(random.choice([0.0, 0.7, 1.0])), 1.0, 1.0, seed)
    verifier = VERIFIERS[str(random.choice(fitting(drafter.draft_sampling, sampling)))]()
    draws, state, text = GeneratorDraws(seed), drafter.start([1]), (1,)
    room, stop = int(random.integers(1, 30)), {0}
    for index in range(FROM_NOTHING if drafter.start([1]) == {} else ITERATIONS):
        source = TableSource(tables, text, room - 1)
        step = IterationState(index, len(text), False, 0.0)
        step.method, step.source = Method("", "", "", "", drafter, verifier), source
        step.draft = draft = drafter.draft(state, source, text[-1], draws)
        paths = TreePaths().of(draft.tree, draft.order)
        step.logits = torch.from_numpy(np.log(np.stack([tables.distributions(text + path)[1] for path in paths])))
        step.verification = verifier.verify(draft, TargetDistributions(step.logits, sampling), draws)
        path = cut_path(draft, step.verification, room, stop)
        step.committed, step.kept, step.final_kind = path
        step.kv_target, step.times = NO_ROWS, NO_TIMES
        state, step.history = drafter.observe(draft.state, step.outcome())
        trace = write_iteration(step, lambda token: f"t{token}", sampling, "full", full_rows=False)
        yield trace, text, lambda path, text=text: tables.distributions(text + path), verifier.name, room - 1
        text, room = (*text, *step.committed), room - len(step.committed)
        if room <= 0 or step.committed[-1] in stop:
            return


def check_run(name: str, seed: int, found: FalseReason) -> None:
    """Decode one random run of a drafter and check every node of it."""
    random = np.random.default_rng([seed, list(DRAFTERS).index(name)])
    while True:
        try:
            drafter = random_drafter(name, random)
            break
        except SettingsError:
            continue  # settings that contradict each other: others are drawn
    check_drafter(name, drafter, seed, random, found)


def check_drafter(
    name: str, drafter: Drafter, seed: int, random: np.random.Generator, found: FalseReason, learned: Any = None
) -> None:
    """Decode one run of a drafter and check every node of it; `learned` is what the rule knows at first."""
    found.runs[name] += 1
    for trace, text, distributions, verifier, limit in recorded_run(drafter, seed, random):
        settings = drafter.settings() | dict(trace.settings)
        # The odds in force are rounded in the record; they follow from those at the start.
        settings |= {"odds": drafter.settings()["odds"]} if "odds" in settings else {}
        where = f"{name}, seed {seed}, iteration {trace.index}"
        case = RuleCase(
            settings, limit, lambda path, distributions=distributions: distributions(path)[0], _drawn(trace), text,
            learned,
        )  # fmt: skip
        try:
            known = RULES[name](case)
            paths = node_paths(trace)
            wrong = [*_false_growth(trace, case), *_false_chances(trace, distributions, verifier),
                     *_false_verdicts(trace, distributions, verifier), *_false_words(trace)]  # fmt: skip
            if RULES[name] is hardware_aware:
                walked = trace.path(trace.steps[-1].node_id)
                learned = learn(known, case, {(), *(paths[node] for node in walked)})
            elif name == "token_recycling":
                learned = reason_rules.recycled(case, paths, lambda path, given=distributions: given(path)[1])
        except CONTRADICTIONS as error:
            found.wrong.append(f"{where}: the record contradicts the rule or itself ({type(error).__name__}: {error})")
            return
        found.wrong += [f"{where}: {each}" for each in wrong]
        found.nodes[name] += len(trace.nodes)
        for node in trace.nodes:
            found.codes.update(filter(None, (node.stop_reason, node.breadth, node.reason)))


def _false_growth(trace: IterationTrace, case: RuleCase) -> Iterator[str]:
    """What the record says about growing and leaving out, and the rule does not."""
    if trace.rule.drafter not in RULES:
        yield f"the drafter is called {trace.rule.drafter!r}"
    paths = node_paths(trace)
    if set(paths) != set(case.found):
        yield f"the tree has {len(paths)} nodes, by the rule {len(case.found)}"
        return
    for node, path in zip(trace.nodes, paths, strict=True):
        right = case.found[path]
        if node.stop_reason not in right.growths:
            yield f"node {node.node_id}: {node.stop_reason}, true is {' or '.join(sorted(right.growths)) or 'nothing'}"
        if (node.breadth, node.branching) != (right.breadth, right.branching):
            yield f"node {node.node_id}: {node.breadth} {node.branching}, true is {right.breadth} {right.branching}"
        left_out = node.reason if node.verdict == "not_verified" else None
        if left_out != right.left_out or node.pruned != (right.left_out is not None):
            yield f"node {node.node_id}: left out as {left_out}, true is {right.left_out}"


def _false_chances(trace: IterationTrace, distributions, verifier: str) -> Iterator[str]:
    """Tests whose chance to pass does not follow from both distributions, or whose outcome not from chance and number
    drawn.
    """
    paths, failed = node_paths(trace), {}
    for step in (step for step in trace.steps if step.kind == "test"):
        if step.accepted != _passes(step):
            yield f"node {step.child_id}: accepted is {step.accepted} with {step.drawn} drawn"
        if verifier not in RECOMPUTED:
            continue
        draft, target = distributions(paths[step.node_id])
        target = _at_temperature(target, trace.sampling)
        for token in failed.setdefault(step.node_id, []):
            left = np.clip(target - draft, 0, None)
            target = left / left.sum() if left.sum() > 0 else target
            if verifier == "specinfer_wor":
                draft = np.where(np.arange(len(draft)) == token, 0.0, draft)
                draft = draft / (draft.sum() or 1.0)
        drafted = draft[step.token_id]
        chance = min(1.0, target[step.token_id] / drafted) if drafted > 0 else 0.0
        if abs(chance - step.acceptance_probability) > CHANCE_ROUNDING:
            yield f"node {step.child_id} ({verifier}): passes by {step.acceptance_probability}, true is {chance}"
        if not step.accepted:
            failed[step.node_id].append(step.token_id)


def _false_verdicts(trace: IterationTrace, distributions, verifier: str) -> Iterator[str]:
    """Verdicts and reasons that do not follow from the target's probabilities and the numbers drawn."""
    verified = [trace.nodes[node] for node in trace.flatten_order]
    if verifier == "greedy":  # the target's favourite at each place decides, up to the end of the text
        paths, expected, walked = node_paths(trace), {0: ("root", "root")}, {0}
        for node in verified[1:]:
            if node.parent_id not in walked:
                expected[node.node_id] = "not_reached", "ancestor_lost"
            elif int(distributions(paths[node.node_id][:-1])[1].argmax()) != node.token_id:
                expected[node.node_id] = "rejected", "not_favourite"
            else:
                walked.add(node.node_id)
                expected[node.node_id] = _committed(trace, node.depth, "favourite")
    else:
        expected = _bottom_up(trace, verifier) if verifier in BOTTOM_UP else _top_down(trace, distributions, verifier)
    for node in verified:
        if (node.verdict, node.reason) != expected[node.node_id]:
            yield f"node {node.node_id} ({verifier}): {node.verdict} {node.reason}, true is {expected[node.node_id]}"


def _committed(trace: IterationTrace, depth: int, reason: str) -> tuple[str, str]:
    """The verdict on a node of the verifier's path: accepted as far as the text goes."""
    kept = len(trace.committed_ids) - (trace.final_kind != "none")
    return ("accepted", reason) if depth <= kept else ("not_reached", "text_ended")


def _top_down(trace: IterationTrace, distributions, verifier: str) -> Mapping[int, tuple[str, str]]:
    """Walk down by the numbers drawn: tests that pass, or a token drawn that a child has."""
    paths, expected, at = node_paths(trace), {0: ("root", "root")}, 0
    failed, beaten, chosen, path = set(), set(), {}, [0]
    for step in trace.steps:
        if step.node_id != at:
            raise AssertionError(f"a decision at node {step.node_id} while the walk is at {at}")
        if step.kind == "match":
            beaten |= {step.rival_id if _passes(step) else step.child_id} if step.rival_id != step.child_id else set()
        elif step.kind == "test" and _passes(step):
            at = step.child_id
            path.append(at)
            expected[at] = _committed(trace, trace.nodes[at].depth, "test_passed")
        elif step.kind == "test":
            failed.add(step.child_id)
        else:
            chosen[at] = step.token_id
            if verifier == "nss":
                sums = _at_temperature(distributions(paths[at])[1], trace.sampling).cumsum()
                uniform = step.drawn if trace.sampling.temperature else 0.5  # any number draws what is certain
                if step.token_id != int(np.searchsorted(sums, uniform * sums[-1], side="right")):
                    raise AssertionError(f"token {step.token_id} was not drawn by {step.drawn}")
            if step.child_id is not None:
                at = step.child_id
                path.append(at)
                expected[at] = _committed(trace, trace.nodes[at].depth, "drawn")
    for node in (trace.nodes[place] for place in trace.flatten_order[1:]):
        if node.node_id in path:
            continue
        if node.node_id in failed:
            why = "rejected", "test_failed"
        elif node.parent_id not in path:
            why = "not_reached", "ancestor_lost"
        elif node.parent_id not in chosen:
            why = "not_reached", "match_lost" if node.node_id in beaten else "sibling_taken"
        elif node.node_id in beaten:
            why = "rejected", "match_lost"
        else:
            why = "rejected", "first_path_only" if chosen[node.parent_id] == node.token_id else "not_drawn"
        expected[node.node_id] = why
    return expected


def _bottom_up(trace: IterationTrace, verifier: str) -> Mapping[int, tuple[str, str]]:
    """The first test that passes settles the path down to its node; what is not tested has no verdict of its own.

    Block verification tests no node off the first path, whether a test passes or not.
    """
    expected, failed, end = {0: ("root", "root")}, set(), 0
    for step in (step for step in trace.steps if step.kind == "test"):
        if _passes(step):
            end = step.child_id
            break
        failed.add(step.child_id)
    path, final = trace.path(end), trace.steps[-1].token_id
    for node in (trace.nodes[place] for place in trace.flatten_order[1:]):
        if node.node_id in path:
            reason = "test_passed" if node.node_id == end else "kept_below"
            expected[node.node_id] = _committed(trace, node.depth, reason)
        elif node.node_id in failed:
            expected[node.node_id] = "rejected", "test_failed"
        elif node.parent_id == end:
            expected[node.node_id] = "rejected", "first_path_only" if node.token_id == final else "not_drawn"
        else:
            settled = end and verifier != "block"
            expected[node.node_id] = "not_reached", "path_settled" if settled else "first_path_only"
    return expected


def _passes(step: VerificationStep) -> bool:
    """Whether a test or a match is won: by the number drawn, and without one where it is certain."""
    return (step.drawn if step.drawn is not None else 0.5) < step.acceptance_probability


def _false_words(trace: IterationTrace) -> Iterator[str]:
    """Sentences that say another thing than the codes, and a token called free that was drafted and left out."""
    for node in trace.nodes:
        said = why_not_expanded(trace, node.node_id)
        if said.startswith("expanded") != (node.stop_reason == "expanded") or "None" in said:
            yield f"node {node.node_id}: {said}"
        first = "the first level takes" in said
        if first != (node.breadth == "first_level") or ("confidence" in said) != (
            node.breadth in ("confident", "between", "unsure")
        ):
            yield f"node {node.node_id}: words of another breadth than {node.breadth}: {said}"
        if "None" in (said := why_verdict(trace, node.node_id)) or not said:
            yield f"node {node.node_id}: {said}"
    last = trace.accepted[-1] if trace.accepted else 0
    below = {node.token_id for node in trace.nodes if node.parent_id == last and node.pruned}
    said, lost = why_final(trace), trace.final_kind != "none" and trace.committed_ids[-1] in below
    if lost != ("a loss" in said) or (lost and "free" in said):
        yield f"final token: {said}"


def _drawn(trace: IterationTrace) -> dict[Path, list[int]]:
    """Tokens by the path of their parent in the order in which they were drawn."""
    paths, children = node_paths(trace), {}
    for node in trace.drawn or range(1, len(trace.nodes)):
        children.setdefault(paths[node][:-1], []).append(paths[node][-1])
    return children


def _at_temperature(probs: np.ndarray, sampling: Sampling) -> np.ndarray:
    """What a distribution is at the temperature of a sampling."""
    if sampling.temperature == 0:
        return (np.arange(len(probs)) == probs.argmax()).astype(float)
    return softmax(np.log(probs) / sampling.temperature)


def _rates(random: np.random.Generator) -> str:
    left = random.dirichlet(np.ones(int(random.integers(2, 5))))[:-1]
    return ",".join(f"{rate:.4f}" for rate in left)


def check(runs: int, seed: int = 0) -> FalseReason:
    """That many runs of every drafter."""
    found = FalseReason()
    for name in DRAFTERS:
        for number in range(runs):
            check_run(name, seed + number, found)
    return found


def main() -> int:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    args = parse_amounts(parser, runs=(200, 20, "of every drafter"))
    started = time.perf_counter()
    found = check(args.runs, args.seed)
    false = Counter(each.partition(",")[0] for each in found.wrong)
    print_table(
        ("drafter", "runs", "nodes", "false"),
        [(name, found.runs[name], f"{found.nodes[name]:,}", false[name]) for name in DRAFTERS],
    )
    print("\n" + ", ".join(f"{code} {count:,}" for code, count in found.codes.most_common()))
    for each in found.wrong[:20]:
        print(each)
    nodes = found.nodes.total()
    took = f"{time.perf_counter() - started:.0f} s"
    print(f"\n{nodes:,} nodes, {len(DRAFTERS)} drafters, {len(found.wrong):,} false ({took})")
    figures = {"nodes": nodes, "drafters": len(DRAFTERS), "false": len(found.wrong), "by_drafter": dict(found.nodes)}
    save_figures(args, "reasons", figures | {"codes": dict(found.codes)}, torch.device("cpu"))
    return 1 if found.wrong else 0


if __name__ == "__main__":
    run_main(main)
