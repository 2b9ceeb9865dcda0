"""Losslessness on the embedded pair, by the probability integral transform of the tokens that are emitted.

With tokens ordered by target / draft, u = mass of the tokens before the emitted one + V * its own mass, V uniform, is
uniform under the target's law after its context: so it is, independently, at every position of an output of fixed
length that follows the target. Blocks differ in length; where one ends the target itself would go on, whose u is
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

import numpy as np
import torch
from scipy.special import chdtrc
from torch import Tensor

from benchmarks.common import choose_prompts, print_table, write_json
from benchmarks.memo_rows import KeptLaws, MemoRows, MemoSource
from decoding.drafters import (
    DelayedDrafter,
    DynaTreeDrafter,
    DySpecDrafter,
    DySpecThresholdDrafter,
    Eagle2Drafter,
    FixedTreeDrafter,
    IIDPathsDrafter,
    LinearDrafter,
    NoDrafter,
    OptTreeDrafter,
    SalfDrafter,
    SequoiaDrafter,
    SpecExecDrafter,
    SpecInferWidthsDrafter,
)
from decoding.drafters.base import Draft, Drafter
from decoding.methods import fitting
from decoding.pair import Pair, embedded_pair
from decoding.sampling import GeneratorDraws, Sampling
from decoding.verifiers import VERIFIERS
from decoding.verifiers.base import Verification
from decoding.verifiers.verified_tree import VerifiedTree

BINS, POSITIONS = 64, 5
GOAL = 1e-4  # of p-values after Bonferroni's correction
SAMPLINGS = {
    "T 0.6": Sampling(temperature=0.6),
    "T 1": Sampling(temperature=1.0),
    "T 1, top-p 0.9": Sampling(temperature=1.0, top_p=0.9),
}
DRAFTERS: dict[str, Drafter] = {
    "autoregressive": NoDrafter(),
    "linear": LinearDrafter(length=4),
    "linear, sampled": LinearDrafter(length=4, sampled=True),
    "fixed_tree": FixedTreeDrafter(max_depth=2, branching=2, prune_probability=0.01, branch_first_level=True),
    "dynatree": DynaTreeDrafter(
        base_depth=1,
        max_depth=2,
        stop_probability=0.01,
        deep_probability=0.05,
        prune_probability=0.01,
        branch_first_level=True,
        history=False,
    ),
    "dyspec": DySpecDrafter(node_budget=8, max_depth=4),
    "dyspec_threshold": DySpecThresholdDrafter(threshold=0.5, node_budget=8, max_depth=3),
    "specinfer": SpecInferWidthsDrafter(widths="2,2,1"),
    "specinfer, top-k": SpecInferWidthsDrafter(widths="3,2", sampled=False),
    "sequoia": SequoiaDrafter(node_budget=8, max_depth=3, acceptance="0.5,0.2,0.1"),
    "opt_tree": OptTreeDrafter(node_budget=8, gain_threshold=0.0, max_depth=3),
    "eagle2": Eagle2Drafter(node_budget=8, beam_width=3, max_depth=3),
    "specexec": SpecExecDrafter(node_budget=8, batch=3, max_depth=4),
    "salf": SalfDrafter(node_budget=8, batch=3, gain_threshold=0.3, max_depth=4),
    "iid_paths": IIDPathsDrafter(paths=3, length=3),
    "delayed": DelayedDrafter(paths=3, trunk=1, branch=2),
}
REFUSED = (("sequoia", "specinfer"), ("dyspec", "traversal"), ("eagle2", "naive_tree"))  # bias to be noticed
QUICK = ("linear, sampled", "sequoia", "eagle2", "delayed")

Key = tuple[str, str, str]  # drafter, verifier, sampling
Span = tuple[float, float]  # mass before a token in the order of target / draft, and its own


@dataclass(frozen=True)
class Task:
    """Samples to draw behind one prompt, for each of some drafters."""

    number: int
    text: str
    drafters: tuple[str, ...]
    samples: int


class Places:
    """Where emitted tokens lie in the target's laws after the nodes of one tree, tokens ordered by target / draft."""

    def __init__(self, tree: VerifiedTree, draft: Draft, draft_rows: MemoRows):
        self._tree, self._draft, self._rows = tree, draft, draft_rows
        self._ratios: dict[int, Tensor] = {}
        self._known: dict[tuple[int, int], Span] = {}

    def block(self, verification: Verification) -> list[Span]:
        """Spans of the accepted tokens and the final one."""
        nodes = (0, *verification.accepted)
        tokens = (*(self._tree.tokens[node] for node in verification.accepted), verification.final_token)
        return [self._span(node, token) for node, token in zip(nodes, tokens, strict=True)]

    def _span(self, node: int, token: int) -> Span:
        if node not in self._ratios:  # a leaf's row has not been asked for by the drafter
            draft_law = torch.softmax(self._rows.of(self._draft.tree, [node])[0].double(), -1)
            self._ratios[node] = self._tree.target_law(node) / draft_law
        if (node, token) not in self._known:
            self._known[node, token] = span(self._tree.target_law(node), self._ratios[node], token)
        return self._known[node, token]


def span(target: Tensor, ratio: Tensor, token: int) -> Span:
    """Mass of the tokens before one, and its own; tokens of the same ratio count as one token.

    Args:
        target, ratio: the target's law and what tokens are ordered by, `[vocab_size]`.
    """
    return float(target[ratio < ratio[token]].sum()), float(target[ratio == ratio[token]].sum())


def transform(spans: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """The transform of every token, `[num_outputs, POSITIONS]`, uniform if the outputs follow the target.

    Args:
        spans: `[num_outputs, POSITIONS, 2]`, nan where a block had ended: there the target goes on.
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


def verifiers_for(name: str, sampling: Sampling) -> list[str]:
    """Verifiers that a drafter is tested with: all that are allowed, and those that are to be noticed."""
    refused = [verifier for drafter, verifier in REFUSED if drafter == name]
    return [*fitting(DRAFTERS[name].law, sampling), *refused]


@lru_cache
def _pair() -> Pair:
    torch.set_num_threads(1)
    return embedded_pair()


@torch.inference_mode()
def sample(task: Task) -> tuple[dict[Key, np.ndarray], int]:
    """Draw the samples of a task: spans by combination, and the number of distinct contexts behind them.

    Each tree is given to every verifier under every sampling. Outputs of one combination are independent; different
    combinations are not, which Bonferroni's correction does not ask for.
    """
    pair = _pair()
    prompt = pair.vocabulary.encode(task.text)
    draft_rows, target_rows = MemoRows(pair.draft, prompt), MemoRows(pair.target, prompt)
    source, found = MemoSource(draft_rows), {}
    for name in task.drafters:
        drafter = DRAFTERS[name]
        state, draws = drafter.start(prompt), GeneratorDraws(len(DRAFTERS) * task.number + list(DRAFTERS).index(name))
        for output in range(task.samples):
            draft = drafter.draft(state, source, prompt[-1], draws)
            logits = target_rows.of(draft.tree, draft.order)
            for label, sampling in SAMPLINGS.items():
                tree = VerifiedTree(draft, KeptLaws(logits, sampling))
                places = Places(tree, draft, draft_rows)
                for verifier in verifiers_for(name, sampling):
                    block = places.block(VERIFIERS[verifier]().decide(tree).walk(draws))
                    empty = np.full((task.samples, POSITIONS, 2), np.nan)
                    found.setdefault((name, verifier, label), empty)[output, : len(block)] = block
            draws.record.clear()
    return found, draft_rows.computed + target_rows.computed


def gather(results: Iterable[tuple[dict[Key, np.ndarray], int]]) -> tuple[dict[Key, np.ndarray], int]:
    """The outputs of all prompts together, `[num_outputs, POSITIONS, 2]` by combination, and the contexts."""
    parts, contexts = defaultdict(list), 0
    for number, (found, computed) in enumerate(results, start=1):
        print(f"prompt {number}", end="\r", flush=True)
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
            problems.append(f"{_where(f)} is allowed and does not follow the target, corrected p {corrected:.1e}")
        if not f["allowed"] and not corrected < GOAL:
            problems.append(f"{_where(f)} is refused and was not noticed, corrected p {corrected:.1e}")
    return figures, problems


def _where(f: dict) -> str:
    position = int(np.argmin(f["p_values"])) + 1
    return f"{f['drafter']} with {f['verifier']}, {f['sampling']}, position {position}"


def print_figures(figures: list[dict]) -> None:
    """A row per drafter, a column per verifier: the smallest p-value, corrected; refused pairs in brackets."""
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


def test_embedded(args) -> int:
    """Test every allowed combination on the embedded pair; returns the exit code.

    Args:
        args: `quick`, `json` and `prompts` as `benchmarks.common.arguments` gives them.
    """
    started = time.perf_counter()
    names, prompts, samples = (QUICK, 4, 256) if args.quick else (tuple(DRAFTERS), 32, 256)
    texts = [prompt.text for prompt in choose_prompts(args.prompts, prompts)]
    tasks = [Task(number, text, names, samples) for number, text in enumerate(texts)]
    with ProcessPoolExecutor(os.cpu_count()) as workers:
        outputs, contexts = gather(workers.map(sample, tasks))
    figures, problems = judge(outputs)
    print("smallest p-value over positions and samplings, not corrected; in brackets: refused\n")
    print_figures(figures)
    tests = sum(len(f["p_values"]) for f in figures)
    allowed = [f for f in figures if f["allowed"]]
    worst = min(allowed, key=lambda f: min(f["p_values"]))
    print(f"\n{len(tasks)} prompts, {contexts:,} distinct contexts, {len(tasks) * samples:,} outputs per combination")
    print(f"{tests} tests of {BINS} bins, p-values corrected for all of them; goal at least {GOAL:.0e}")
    print(f"allowed: {len(allowed)} combinations, smallest {worst['corrected']:.2g}: {_where(worst)}")
    for f in figures:
        if not f["allowed"]:
            print(f"refused: {f['corrected']:.1e}, goal below {GOAL:.0e}: {_where(f)}")
    for problem in problems:
        print(f"FAILED: {problem}")
    print("FAILED" if problems else "every goal reached", f"in {time.perf_counter() - started:.0f} s")
    totals = {"prompts": len(tasks), "contexts": contexts, "tests": tests, "bins": BINS, "problems": problems}
    write_json(args.json, "losslessness_embedded", {**totals, "combinations": figures}, torch.device("cpu"))
    return 1 if problems else 0
