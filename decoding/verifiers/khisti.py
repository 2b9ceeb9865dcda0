"""Khisti: a tournament whose distribution is importance-weighted by linear programmes, then one test (Algorithms 5, 10,
15).

Round j matches the current winner, whose distribution is r, against the j-th draw from q. Between two of the
`truncation` first tokens (sorted by target - r * draft) any outcome is allowed and a linear programme chooses the odds
that maximise sum min(target, r'); otherwise the token that is sorted first wins. The winner follows r' exactly, so
testing it against the target is lossless for every truncation and every optimum.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from decoding.common.settings import VERIFICATION, setting
from decoding.verifiers.base import IID_TREES
from decoding.verifiers.top_down import Solver, TestDistributions, TopDownVerifier, positive_part


@dataclass(frozen=True)
class Round:
    """One round of the tournament."""

    rank: np.ndarray  # place of every token in the order, `[vocab_size]`; the first `len(keeps)` are free
    keeps: np.ndarray  # probability that the current winner stays, `[free, free]`, by rank of winner and challenger
    probs: np.ndarray  # distribution of the winner after the round, `[vocab_size]`

    def stays(self, current: int, challenger: int) -> float:
        """Probability that `current` is kept against `challenger`."""
        mine, other = self.rank[current], self.rank[challenger]
        if current == challenger:
            return 1.0
        if max(mine, other) < len(self.keeps):
            return float(self.keeps[mine, other])
        return float(mine < other)


def play_round(target: np.ndarray, winner: np.ndarray, draft: np.ndarray, truncation: int) -> Round:
    """Odds and outcome of one round between `winner` and a draw from `draft`, all `[vocab_size]`."""
    order = np.argsort(winner * draft - target, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    r, q, p = winner[order], draft[order], target[order]
    free = min(truncation, len(order))
    behind_q, behind_r = q.sum() - np.cumsum(q), r.sum() - np.cumsum(r)
    probs = r * (q + behind_q) + q * behind_r
    # What the first tokens win from one another is taken out of the distribution and shared by the programme.
    probs[:free] = r[:free] * (q[:free] + behind_q[free - 1]) + q[:free] * behind_r[free - 1]
    first, second = np.triu_indices(free, 1)
    at_stake = r[first] * q[second] + r[second] * q[first]
    won = _most_overlap(p[:free], probs[:free], first, second, at_stake)
    keeps = np.ones((free, free))
    share = np.divide(won, at_stake, out=np.zeros_like(won), where=at_stake > 0)
    keeps[first, second], keeps[second, first] = share, 1 - share
    np.add.at(probs, first, share * at_stake)
    np.add.at(probs, second, (1 - share) * at_stake)
    after = np.empty_like(probs)
    after[order] = np.maximum(probs, 0.0)
    return Round(rank, keeps, after / after.sum())


def _most_overlap(target, fixed, first, second, at_stake) -> np.ndarray:
    """What the first token of each pair wins of its mass so that sum min(target, distribution) is largest; HiGHS."""
    # Imported where it is needed: it takes a third of a second, and only this verifier needs it.
    from scipy.optimize import linprog
    from scipy.sparse import coo_array, eye_array, hstack

    pairs, free = len(first), len(target)
    if not pairs:
        return np.zeros(0)
    columns = np.arange(pairs)
    # z_t - (what t wins) <= fixed_t, where the second token of a pair wins at_stake - x.
    wins = coo_array((np.ones(pairs), (first, columns)), shape=(free, pairs))
    losses = coo_array((np.ones(pairs), (second, columns)), shape=(free, pairs))
    limit = fixed + np.bincount(second, weights=at_stake, minlength=free)
    solved = linprog(
        c=np.concatenate([np.zeros(pairs), -np.ones(free)]),
        A_ub=hstack([losses - wins, eye_array(free)], format="csr"),
        b_ub=limit,
        bounds=np.stack([np.zeros(pairs + free), np.concatenate([at_stake, np.maximum(target, 0.0)])], axis=1),
        method="highs",
    )
    # Any split is lossless: where the solver gives up on rounding noise, halves do.
    return np.clip(solved.x[:pairs], 0.0, at_stake) if solved.status == 0 else at_stake / 2


def winner_rounds(target: Tensor, draft: Tensor, draws: int, truncation: int) -> list[Round]:
    """The rounds of a tournament between `draws` independent draws."""
    p, q = target.cpu().double().numpy(), draft.cpu().double().numpy()
    rounds = rounds_so_far(p.tobytes(), q.tobytes(), truncation)
    while len(rounds) < draws - 1:
        rounds.append(play_round(p, rounds[-1].probs if rounds else q, q, truncation))
    return rounds[: draws - 1]


@lru_cache(maxsize=32)
def rounds_so_far(target: bytes, draft: bytes, truncation: int) -> list[Round]:
    """Rounds between two distributions that have been played: more draws only add to them, and programmes are dear."""
    return []


class KhistiSolver(Solver):
    """Plays the tournament between the entries, then tests its winner against the winner's distribution."""

    def __init__(self, target, draft, tokens, truncation: int):
        super().__init__(target, draft, tokens)
        self.rounds = winner_rounds(target, draft, len(tokens), truncation)
        self.winner_distribution = torch.from_numpy(self.rounds[-1].probs).to(draft) if self.rounds else draft
        self._left = positive_part(target - self.winner_distribution, target)

    def order(self, draws, matches) -> Iterator[int]:
        current = 0
        for rival, played in enumerate(self.rounds, start=1):
            if self.tokens[rival] == self.tokens[current]:
                continue
            stays = played.stays(self.tokens[current], self.tokens[rival])
            certain = stays in (0.0, 1.0)
            kept = stays == 1.0 if certain else draws.accept(stays)
            matches.append((current, rival, stays, None if certain else draws.last_uniform, kept))
            current = current if kept else rival
        yield current

    def drafted_distribution(self, rejected: int) -> Tensor:
        return self.winner_distribution

    def residual(self, rejected: int) -> Tensor:
        return self._left if rejected else self.target

    def test_distributions(self) -> Iterator[TestDistributions]:
        """Only the winner is tested, against the distribution that winners have."""
        yield TestDistributions(0, tuple(range(len(self.tokens))), self.target, self.winner_distribution)
        yield TestDistributions(1, (), self.residual(1), None)

    def winner_chances(self) -> dict[int, float]:
        winner = {self.tokens[0]: 1.0}
        for played, rival in zip(self.rounds, self.tokens[1:], strict=True):
            after = dict.fromkeys((*winner, rival), 0.0)
            for current, chance in winner.items():
                stays = played.stays(current, rival)
                after[current] += chance * stays
                after[rival] += chance * (1 - stays)
            winner = after
        return winner

    def branching(self) -> dict[int, float]:
        picked, left = dict.fromkeys(self.tokens, 0.0), 0.0
        for token, chance in self.winner_chances().items():
            passes = self.acceptance(0, self.tokens.index(token))
            picked[token] += chance * passes
            left += chance * (1 - passes)
        return self.add_residual(picked, self.residual(1), left) if left > 0 else picked


@dataclass(frozen=True)
class KhistiVerifier(TopDownVerifier):
    """Near-optimal transport for independent draws; costs one linear programme per draw but the first at each node.

    A programme has s^2 / 2 variables, s being the `truncation`.
    """

    truncation: int = setting(
        8, 2, 64, step=1, group=VERIFICATION, label="Free tokens", symbol="s",
        help="Tokens between which a linear program sets the probabilities.",
    )  # fmt: skip

    name = "khisti"
    label = "Khisti"
    summary = "Runs a tournament between the children with probabilities from linear programs, then tests the winner."
    how = "runs a tournament between the entries and tests its winner against the distribution that winners have."
    paper = "Khisti et al. 2025"
    lossless_for = IID_TREES
    solver = KhistiSolver

    def acceptance_rate(self, target: Tensor, draft: Tensor, draws: int) -> float:
        """Probability that the token picked is among `draws` independent draws from the draft (Algorithm 10).

        A lower bound: what the residual adds by chance is left out.
        """
        rounds = winner_rounds(target, draft, draws, self.truncation)
        probs = torch.from_numpy(rounds[-1].probs).to(draft) if rounds else draft
        return float(target.minimum(probs).sum())
