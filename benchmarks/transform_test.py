"""Losslessness on the embedded pair, by the probability integral transform of the tokens that are emitted.

With tokens ordered by target / draft, u = mass of the tokens before the emitted one + V * its own mass, V uniform, is
uniform under the target's distribution after its context: so it is, independently, at every position of an output of
fixed length that follows the target. Blocks differ in length; where one ends the target itself would go on, whose u is
uniform by construction and is drawn as such. Position t therefore is the t-th token of the output, whether or not the
block reached it, which bottom-up verifiers need: they are lossless only over the whole output.
"""

import os
import time
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context

import numpy as np
import torch
from scipy.special import chdtrc
from torch import Tensor

from benchmarks.enumeration import begun
from benchmarks.offline_trees import MemoDistributions, MemoLogits, MemoSource
from decoding import drafters
from decoding.drafters.base import Drafter, ProbabilitySource
from decoding.engines.base import Visibility
from decoding.experiments.command import choose_prompts, print_table, save_figures
from decoding.methods.method import fitting
from decoding.models.pair import Model, Pair, embedded_pair, tree_forward
from decoding.sampling.draws import GeneratorDraws
from decoding.sampling.sampling import Sampling
from decoding.tree.draft import Draft
from decoding.verifiers import VERIFIERS
from decoding.verifiers.base import Verification, VerifiedTree

SAMPLINGS = {
    "T 0.6": Sampling(temperature=0.6),
    "T 1": Sampling(temperature=1.0),
    "T 1, top-p 0.9": Sampling(temperature=1.0, top_p=0.9),
}
# By the name they have in METHODS.
DRAFTERS: dict[str, Drafter] = {
    "autoregressive": drafters.NoDrafter(),
    "linear": drafters.LinearDrafter(length=4),
    "linear, sampled": drafters.LinearDrafter(length=4, sampled=True),
    "fixed_tree": drafters.FixedTreeDrafter(max_depth=2, branching=2, prune_probability=0.01, branch_first_level=True),
    "dynatree": drafters.DynaTreeDrafter(
        base_depth=1,
        max_depth=2,
        stop_probability=0.01,
        deep_probability=0.05,
        prune_probability=0.01,
        branch_first_level=True,
        history=False,
    ),
    "dyspec": drafters.DySpecDrafter(node_budget=8, max_depth=4),
    "dyspec_threshold": drafters.DySpecThresholdDrafter(threshold=0.5, node_budget=8, max_depth=3),
    "specinfer": drafters.SpecInferWidthsDrafter(widths="2,2,1"),
    "specinfer, top-k": drafters.SpecInferWidthsDrafter(widths="3,2", sampled=False),
    "sequoia": drafters.SequoiaDrafter(node_budget=8, max_depth=3, acceptance="0.5,0.3,0.1"),
    "opt_tree": drafters.OptTreeDrafter(node_budget=8, gain_threshold=0.0, max_depth=3),
    "eagle2": drafters.Eagle2Drafter(node_budget=8, beam_width=3, max_depth=3),
    "hardware_aware": drafters.HardwareAwareDrafter(
        node_budget=8, max_depth=4, verify_ms="1:3 9:4", level_ms="0.3", odds="1 1"
    ),
    "specexec": drafters.SpecExecDrafter(node_budget=8, batch=3, max_depth=4),
    "salf": drafters.SalfDrafter(node_budget=8, batch=3, gain_threshold=0.3, max_depth=4),
    "iid_paths": drafters.IIDPathsDrafter(paths=3, length=3),
    "delayed": drafters.DelayedDrafter(paths=3, trunk=1, branch=2),
    "prompt_lookup": drafters.PromptLookupDrafter(length=4),
    "suffix": drafters.SuffixDrafter(node_budget=8, max_depth=4, per_matched_token=4.0),
    "lookup_or_draft": drafters.LookupOrDraftDrafter(length=4),
    "token_recycling": drafters.TokenRecyclingDrafter(node_budget=12, max_depth=4),
}
MOST_TOKENS = 5  # no block of these trees is longer
QUICK = ("sequoia", "eagle2", "delayed")  # one for each distribution of a tree
# Refused pairs whose bias must be noticed, so that silence about the allowed ones means something.
REFUSED = (("sequoia", "specinfer"), ("eagle2", "naive_tree"))

FEWEST_TOKENS, MOST_PROMPT_TOKENS = 8, 512


def verifiers_for(drafter: str, sampling: Sampling) -> list[str]:
    """Verifiers that a drafter is tested with: all that are allowed, and those whose bias is to be noticed."""
    fit = fitting(DRAFTERS[drafter].draft_sampling, sampling)
    return [*fit, *(verifier for name, verifier in REFUSED if name == drafter)]


@torch.inference_mode()
def telling_prefix(pair: Pair, text: str) -> list[int]:
    """Tokens of a text up to where a method has most to get wrong, at least `FEWEST_TOKENS` if there are so many.

    Where both models agree nothing is rejected, and where they have nothing in common everything is; where the draft
    is flat, nearly every draw is a new token and the ways to draw and to test hardly differ. With d the total variation
    between the two distributions, the prefix has the largest d (1 - d) sum draft^2.
    """
    tokens = pair.vocabulary.encode(text)[:MOST_PROMPT_TOKENS]
    target, draft = _distributions(pair.target, tokens), _distributions(pair.draft, tokens)
    distance = (target - draft).abs().sum(-1) / 2
    score = distance * (1 - distance) * draft.square().sum(-1)
    first = min(FEWEST_TOKENS, len(tokens)) - 1
    return tokens[: first + int(score[first:].argmax()) + 1]


def _distributions(model: Model, tokens: list[int]) -> Tensor:
    """Distribution after every token, `[len(tokens), vocab_size]`."""
    count = len(tokens)
    cache, mask = model.engine.new_cache(count), Visibility.causal(0, count)
    return torch.softmax(tree_forward(model, cache, tokens, np.arange(count), mask), -1)


BINS = 64
GOAL = 1e-4  # for the smallest p-value after Bonferroni's correction

Key = tuple[str, str, str]  # drafter, verifier, sampling
Span = tuple[float, float]  # mass before a token in the order of target / draft, and its own


@dataclass(frozen=True)
class Task:
    """Outputs to sample after one prompt, for each of some drafters."""

    number: int
    text: str
    drafters: tuple[str, ...]
    outputs: int


class Places:
    """Where emitted tokens lie in the target's distributions after the nodes of one tree, tokens ordered by target /
    draft.
    """

    def __init__(self, tree: VerifiedTree, draft: Draft, source: ProbabilitySource):
        self._tree, self._draft, self._source = tree, draft, source
        self._ratios: dict[int, Tensor] = {}
        self._known: dict[tuple[int, int], Span] = {}

    def block(self, verification: Verification) -> list[Span]:
        """Spans of the accepted tokens and the final one."""
        nodes = (0, *verification.accepted)
        tokens = (*(self._tree.tokens[node] for node in verification.accepted), verification.final_token)
        return [self._span(node, token) for node, token in zip(nodes, tokens, strict=True)]

    def _span(self, node: int, token: int) -> Span:
        if node not in self._ratios:  # the drafter has not asked about leaves
            draft_distribution = self._source.expand(self._draft.tree, np.array([node]))[0]
            self._ratios[node] = self._tree.target_distribution(node) / draft_distribution.double()
        if (node, token) not in self._known:
            self._known[node, token] = span(self._tree.target_distribution(node), self._ratios[node], token)
        return self._known[node, token]


def span(target: Tensor, ratio: Tensor, token: int) -> Span:
    """Mass of the tokens before one, and its own; tokens of the same ratio count as one token.

    Args:
        target, ratio: the target's distribution and what tokens are ordered by, `[vocab_size]`.
    """
    return float(target[ratio < ratio[token]].sum()), float(target[ratio == ratio[token]].sum())


def transform(spans: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """The transform of every token, `[num_outputs, MOST_TOKENS]`, uniform if the outputs follow the target.

    Args:
        spans: `[num_outputs, MOST_TOKENS, 2]`, nan where a block had ended: there the target goes on.
    """
    uniforms = generator.random(spans.shape[:2])
    return np.where(np.isnan(spans[..., 0]), uniforms, spans[..., 0] + uniforms * spans[..., 1])


def p_values(spans: np.ndarray, generator: np.random.Generator) -> list[float]:
    """Chi-square p-value of each position that some block reached; 0 where the target cannot emit some token."""
    bins = np.minimum((transform(spans, generator) * BINS).astype(np.int64), BINS - 1)
    expected = len(spans) / BINS
    found = []
    for position in np.flatnonzero(~np.isnan(spans[..., 0]).all(0)):
        counts = np.bincount(bins[:, position], minlength=BINS)
        impossible = (spans[:, position, 1] == 0).any()
        found.append(0.0 if impossible else float(chdtrc(BINS - 1, ((counts - expected) ** 2).sum() / expected)))
    return found


_pair = lru_cache(embedded_pair)


@torch.inference_mode()
def sample(task: Task) -> tuple[dict[Key, np.ndarray], int]:
    """Sample the outputs of a task: spans by combination, and the number of distinct contexts after them.

    Each tree is given to every verifier under every sampling. Outputs of one combination are independent; different
    combinations are not, which Bonferroni's correction does not ask for.
    """
    pair = _pair()
    prompt = telling_prefix(pair, task.text)
    draft_rows, target_rows = MemoLogits(pair.draft, prompt), MemoLogits(pair.target, prompt)
    source, found = MemoSource(draft_rows), defaultdict(lambda: np.full((task.outputs, MOST_TOKENS, 2), np.nan))
    for name in task.drafters:
        drafter = DRAFTERS[name]
        draws = GeneratorDraws(len(DRAFTERS) * task.number + list(DRAFTERS).index(name))
        state = begun(
            drafter, source, prompt[-1],
            lambda draft: torch.softmax(target_rows.of(draft.tree, draft.order).float(), -1),
        )  # fmt: skip
        for output in range(task.outputs):
            draft = drafter.draft(state, source, prompt[-1], draws)
            logits = target_rows.of(draft.tree, draft.order)
            for label, sampling in SAMPLINGS.items():
                tree = VerifiedTree(draft, MemoDistributions(logits, sampling))
                places = Places(tree, draft, source)
                for verifier in verifiers_for(name, sampling):
                    block = places.block(VERIFIERS[verifier]().decide(tree).walk(draws))
                    found[name, verifier, label][output, : len(block)] = block
            draws.record.clear()
    return dict(found), draft_rows.computed + target_rows.computed


def gather(results: Iterable[tuple[dict[Key, np.ndarray], int]]) -> tuple[dict[Key, np.ndarray], int]:
    """The outputs of all prompts together, `[num_outputs, MOST_TOKENS, 2]` by combination, and the contexts."""
    parts, contexts = defaultdict(list), 0
    for found, computed in results:
        contexts += computed
        for key, spans in found.items():
            parts[key].append(spans)
    return {key: np.concatenate(some) for key, some in parts.items()}, contexts


def judge(outputs: dict[Key, np.ndarray], seed: int = 0) -> tuple[list[dict], list[str]]:
    """Figures of every combination, and what is wrong with them."""
    generator, figures = np.random.default_rng(seed), []
    for (drafter, verifier, label), spans in outputs.items():
        reached = (~np.isnan(spans[..., 0])).mean(0)
        figures.append(
            {
                "drafter": drafter,
                "verifier": verifier,
                "sampling": label,
                "allowed": (drafter, verifier) not in REFUSED,
                "outputs": len(spans),
                "reached": reached[reached > 0].tolist(),
                "p_values": p_values(spans, generator),
            }
        )
    tests, problems = sum(len(f["p_values"]) for f in figures), []
    for f in figures:
        corrected = f["corrected"] = min(1.0, tests * min(f["p_values"]))
        if f["allowed"] and not corrected >= GOAL:
            problems.append(f"{where(f)} is allowed and does not follow the target, corrected p {corrected:.1e}")
        if not f["allowed"] and not corrected < GOAL:
            problems.append(f"{where(f)} is refused and was not noticed, corrected p {corrected:.1e}")
    return figures, problems


def where(f: dict) -> str:
    """A combination and the position of its smallest p-value."""
    position = int(np.argmin(f["p_values"])) + 1
    return f"{f['drafter']} with {f['verifier']}, {f['sampling']}, position {position}"


def print_figures(figures: list[dict]) -> None:
    """A row per drafter, a column per verifier: the smallest p-value, not corrected; refused pairs in brackets."""
    cells: dict[str, dict[str, str]] = defaultdict(lambda: dict.fromkeys(VERIFIERS, ""))
    smallest: dict[tuple[str, str], float] = {}
    for f in figures:
        pair = f["drafter"], f["verifier"]
        smallest[pair] = min(smallest.get(pair, 1.0), *f["p_values"])
    for (drafter, verifier), value in smallest.items():
        refused = (drafter, verifier) in REFUSED
        cells[drafter][verifier] = f"[{value:.0e}]" if refused else f"{value:.0e}"
    shown = [verifier for verifier in VERIFIERS if any(row[verifier] for row in cells.values())]
    print_table(("drafter", *shown), [(name, *(row[v] for v in shown)) for name, row in cells.items()])


def tasks_for(args) -> list[Task]:
    """The work, one task per prompt."""
    names, prompts = (QUICK, 4) if args.quick else (tuple(DRAFTERS), 32)
    texts = [prompt.text for prompt in choose_prompts(args.prompts, prompts)]
    outputs = -(-prompts * 256 // len(texts))
    return [Task(number, text, names, outputs) for number, text in enumerate(texts)]


def test_embedded(args) -> int:
    """Test every allowed combination on the embedded pair; returns the exit code.

    Args:
        args: `quick`, `json`, `save` and `prompts` as `decoding.experiments.command.arguments` gives them.
    """
    started = time.perf_counter()
    tasks = tasks_for(args)
    print(f"{len(tasks)} prompts, {tasks[0].outputs} outputs behind each for every combination\n", flush=True)
    with ProcessPoolExecutor(
        os.cpu_count(), get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)
    ) as workers:
        outputs, contexts = gather(workers.map(sample, tasks))
    figures, problems = judge(outputs)
    totals = {
        "prompts": len(tasks),
        "contexts": contexts,
        "outputs": sum(task.outputs for task in tasks),
        "tests": sum(len(f["p_values"]) for f in figures),
        "bins": BINS,
    }
    print("smallest p-value over positions and samplings, not corrected; in brackets: refused\n")
    print_figures(figures)
    allowed = [f for f in figures if f["allowed"]]
    worst = min(allowed, key=lambda f: min(f["p_values"]))
    print(f"\n{totals['contexts']:,} distinct contexts of both models together")
    print(f"{totals['tests']} tests of {totals['outputs']:,} outputs each in {BINS} bins; p-values below are corrected")
    print(f"allowed: {len(allowed)} combinations, goal at least {GOAL:.0e}, smallest {worst['corrected']:.2g}")
    print(f"         {where(worst)}")
    for f in figures:
        if not f["allowed"]:
            print(f"refused: goal below {GOAL:.0e}, {f['corrected']:.0e}: {where(f)}")
    for problem in problems:
        print(f"FAILED: {problem}")
    print("FAILED" if problems else "every goal reached", f"in {time.perf_counter() - started:.0f} s")
    record = {**totals, "problems": problems, "combinations": figures}
    save_figures(args, "losslessness_embedded", record, torch.device("cpu"))
    return 1 if problems else 0
