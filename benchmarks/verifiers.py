"""Milliseconds per iteration of every verifier at 64 nodes, for small and large vocabularies, beside a target pass.

Trees are drawn from random distributions about as peaked as a language model's, with some 2.5 nats of entropy. The
target pass is that of a model of the embedded target's shape with the vocabulary in question and random weights: its
time does not depend on them.
"""

import math
import statistics
import time
from itertools import product

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from decoding.common.errors import run_main
from decoding.drafters import IIDPathsDrafter, SequoiaDrafter
from decoding.drafters.base import Drafter
from decoding.experiments.command import arguments, print_table, save_figures
from decoding.models.embedded import embedded_folder
from decoding.sampling.draws import GeneratorDraws
from decoding.sampling.sampling import Sampling, TargetDistributions
from decoding.tree.draft import Draft, TokenTree
from decoding.verifiers import VERIFIERS, Verifier
from decoding.verifiers.khisti import rounds_so_far

VOCABULARIES = (4096, 50304, 152064)
NODES, PREFIX = 64, 200
SAMPLED, NUCLEUS = Sampling(temperature=1.0), Sampling(temperature=1.0, top_p=0.9)
IID = IIDPathsDrafter(paths=8, length=8)
WITHOUT_REPLACEMENT = SequoiaDrafter(NODES, max_depth=8, acceptance="0.6,0.15,0.08,0.05,0.03,0.02,0.01,0.01")
ENTROPY, AGREEMENT = 2.5, 0.85  # nats, roughly; how much of the logits draft and target share


class RandomSource:
    """Random distributions after every node, remembered with the logits that they share with the target's."""

    def __init__(self, vocabulary: int, seed: int):
        self.depth_limit = 100
        self.shared: dict[int, torch.Tensor] = {}
        self._vocabulary, self._generator = vocabulary, torch.Generator().manual_seed(seed)
        # Normal logits of this spread leave about ENTROPY of the vocabulary's log.
        self._spread = math.sqrt(2 * (math.log(vocabulary) - ENTROPY))

    def logits(self, node: int) -> torch.Tensor:
        """Logits of one of the two models after a node: partly shared, partly its own."""
        if node not in self.shared:
            self.shared[node] = self._noise()
        return self._spread * (AGREEMENT * self.shared[node] + (1 - AGREEMENT**2) ** 0.5 * self._noise())

    def expand(self, tree: TokenTree, nodes: np.ndarray) -> torch.Tensor:
        """Draft distributions, `[len(nodes), vocab_size]`."""
        return torch.softmax(torch.stack([self.logits(int(node)) for node in nodes]), -1)

    def _noise(self) -> torch.Tensor:
        return torch.randn(self._vocabulary, generator=self._generator)


def duration(verifier: Verifier, trees, sampling: Sampling, repeats: int) -> tuple[float, float]:
    """Median time of a whole verification, distributions included, and of the exact probabilities of all nodes
    besides.
    """
    walks, exact = [], []
    for repeat in range(repeats):
        draft, logits = trees[repeat % len(trees)]
        rounds_so_far.cache_clear()
        started = time.perf_counter()
        verification = verifier.verify(draft, TargetDistributions(logits, sampling), GeneratorDraws(repeat))
        walked = time.perf_counter()
        verification.acceptance_probability  # noqa: B018 - computed when it is asked for
        walks.append(walked - started)
        exact.append(time.perf_counter() - walked)
    return 1000 * statistics.median(walks), 1000 * statistics.median(exact)


@torch.inference_mode()
def target_pass_ms(vocabulary: int, repeats: int) -> float:
    """Median time of a pass of 64 tokens behind a prefix."""
    config = AutoConfig.from_pretrained(embedded_folder("target"))
    config.vocab_size = vocabulary
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    prefix = model(input_ids=torch.zeros(1, PREFIX, dtype=torch.long), use_cache=True).past_key_values
    times = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        model(input_ids=torch.zeros(1, NODES + 1, dtype=torch.long), past_key_values=prefix, use_cache=True)
        times.append(time.perf_counter() - started)
        prefix.crop(-(NODES + 1))
    return 1000 * statistics.median(times[1:])


def main() -> int:
    args = arguments(__doc__.splitlines()[0]).parse_args()
    started = time.perf_counter()
    torch.manual_seed(0)
    repeats, figures, rows = (3 if args.quick else 15), {}, {name: [] for name in VERIFIERS}
    for vocabulary in VOCABULARIES:
        trees: dict[Drafter, list[tuple[Draft, torch.Tensor]]] = {IID: [], WITHOUT_REPLACEMENT: []}
        for (drafter, made), seed in product(trees.items(), range(1 if args.quick else 3)):
            source = RandomSource(vocabulary, seed)
            draft = drafter.draft(None, source, 0, GeneratorDraws(seed))
            made.append((draft, torch.stack([source.logits(int(node)) for node in draft.order])))
        figures[f"target pass, {vocabulary}"] = target_pass_ms(vocabulary, repeats)
        for name, kind in VERIFIERS.items():
            drafter = IID if "iid" in kind.lossless_for else WITHOUT_REPLACEMENT
            drafter = WITHOUT_REPLACEMENT if name.endswith("_wor") else drafter
            for sampling in (SAMPLED, NUCLEUS):
                used = Sampling() if kind.greedy_only else sampling
                walk, exact = duration(kind(), trees[drafter], used, repeats)
                figures[f"{name}, {vocabulary}, top-p {sampling.top_p:g}"] = {"walk_ms": walk, "exact_ms": exact}
                rows[name].append(f"{walk:.2f}")
                if sampling is SAMPLED:
                    rows[name].append(f"{exact:.1f}")
    print(f"ms per iteration at {NODES} nodes: a walk at top-p 1, the exact probabilities of all nodes besides (only "
          "computed when looked at), a walk at top-p 0.9\n")  # fmt: skip
    header = [f"{v:,}: {what}" for v in VOCABULARIES for what in ("walk", "exact", "top-p 0.9")]
    target = [cell for v in VOCABULARIES for cell in (f"{figures[f'target pass, {v}']:.1f}", "", "")]
    print_table(("verifier", *header), [("target pass", *target), *((name, *cells) for name, cells in rows.items())])
    print(f"{time.perf_counter() - started:.0f} s")
    save_figures(args, "verifiers", figures, torch.device("cpu"))
    return 0


if __name__ == "__main__":
    run_main(main)
