"""The exact law of what a drafter and a verifier emit together, over every draft and every draw, on small tables."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import torch

from benchmarks.table_source import TableSource, path_tokens
from decoding.drafters.base import Drafter
from decoding.sampling.draws import enumerate_draws
from decoding.sampling.sampling import Sampling, TargetRows
from decoding.tree.draft import Draft
from decoding.verifiers.base import VerifiedTree, Verifier

Path = tuple[int, ...]
Law = list[float]
SAMPLED = Sampling(temperature=1.0)


@dataclass(frozen=True)
class Tables:
    """A draft and a target as laws by path of drafted tokens; paths that are missing have the default."""

    name: str
    draft: Mapping[Path, Law]
    target: Mapping[Path, Law]
    draft_default: Law
    target_default: Law

    def target_law(self, path: Path) -> Law:
        """The target's law after a path."""
        return self.target.get(path, self.target_default)

    def target_rows(self, draft: Draft) -> TargetRows:
        """The target's laws after the verified nodes of a draft."""
        rows = [self.target_law(path_tokens(draft.tree, int(node))) for node in draft.order]
        return TargetRows(None, SAMPLED, probs=torch.tensor(rows, dtype=torch.float64))


def all_drafts(drafter: Drafter, tables: Tables) -> Iterator[tuple[Draft, float]]:
    """Every draft, equal ones once, with its probability."""
    seen: dict[tuple, list] = {}
    state = drafter.start([])

    def run(draws):
        return drafter.draft(state, TableSource(tables.draft, tables.draft_default), 0, draws)

    for draft, chance in enumerate_draws(run):
        drawn = () if draft.drawn is None else tuple(draft.drawn.tolist())
        tree = draft.tree
        key = (tuple(tree.tokens.tolist()), tuple(tree.parents.tolist()), drawn, tuple(draft.order.tolist()))
        seen.setdefault(key, [draft, 0.0])[1] += chance
    yield from ((draft, chance) for draft, chance in seen.values())


def block_law(verifier: Verifier, draft: Draft, tables: Tables) -> dict[Path, float]:
    """Law of the emitted block (accepted tokens and the final one) of one draft, over every draw of the verifier."""
    decision = verifier.decide(VerifiedTree(draft, tables.target_rows(draft)))
    law: dict[Path, float] = defaultdict(float)
    for verification, chance in enumerate_draws(decision.walk):
        accepted = tuple(decision.tree.tokens[node] for node in verification.accepted)
        law[(*accepted, verification.final_token)] += chance
    return law


def emitted_law(drafter: Drafter, verifier: Verifier, tables: Tables) -> dict[Path, float]:
    """Law of the emitted block over every draft and every draw."""
    law: dict[Path, float] = defaultdict(float)
    for draft, chance in all_drafts(drafter, tables):
        for block, share in block_law(verifier, draft, tables).items():
            law[block] += chance * share
    return law


def bias(law: Mapping[Path, float], tables: Tables) -> float:
    """Largest error of the joint law of the tokens, every block continued by the target to the same length."""
    length = max(map(len, law))
    continued: dict[Path, float] = defaultdict(float)
    vocabulary = range(len(tables.target_default))
    for block, chance in law.items():
        for rest in product(vocabulary, repeat=length - len(block)):
            continued[block + rest] += chance * _chance(tables, block + rest, since=len(block))
    sequences = product(vocabulary, repeat=length)
    return max(abs(continued[sequence] - _chance(tables, sequence)) for sequence in sequences)


def _chance(tables: Tables, sequence: Path, since: int = 0) -> float:
    """Probability that the target continues the first `since` tokens by the rest."""
    chance = 1.0
    for place in range(since, len(sequence)):
        chance *= tables.target_law(sequence[:place])[sequence[place]]
    return chance
