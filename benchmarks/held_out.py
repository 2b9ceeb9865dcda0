"""How good a pair is on held-out text, by kind: losses, agreement of draft and target, calibration, loops.

Text is cut into pieces that both models read from their beginning, so that pairs with other tokenizers can be compared
on the same pieces: nats per byte do not depend on what a token is. Figures are ratios of sums over pieces, with 95%
intervals that take the pieces as independent.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from decoding.common.errors import TrainingError
from decoding.models.pair import Pair, match_vocabulary
from decoding.trace.metrics import tokens_before_loop

PIECE = 1500  # characters
LEAST = 150  # characters; shorter ends of a text are left out
SLACK = 300  # a piece may end this much earlier, where a line or a word ends
RANKS = 5
BINS = 10  # of the draft's probability, for its calibration error
ROWS_AT_ONCE = 512
Z95 = 1.96


@dataclass(frozen=True)
class Reading:
    """What both models made of one piece, token by token after its first.

    Attributes:
        text_bytes: of the tokens that are predicted.
        target_nats, draft_nats: cross-entropy `[tokens]`.
        overlap: sum of the smaller of both probabilities `[tokens]`.
        agrees: whether both have the same likeliest token `[tokens]`.
        draft_chances, target_chances: probabilities of the draft's `RANKS` likeliest tokens `[tokens, RANKS]`.
        hits: whether one of them is the target's likeliest `[tokens, RANKS]`.
    """

    text_bytes: int
    target_nats: np.ndarray
    draft_nats: np.ndarray
    overlap: np.ndarray
    agrees: np.ndarray
    draft_chances: np.ndarray
    target_chances: np.ndarray
    hits: np.ndarray


@dataclass(frozen=True)
class Figure:
    """A ratio with half the width of its 95% interval, which is None where there is one piece only."""

    value: float
    half: float | None

    def __str__(self):
        return f"{self.value:.3f}" if self.half is None else f"{self.value:.3f}±{self.half:.3f}"


@dataclass(frozen=True)
class Rank:
    """The draft's n-th likeliest token.

    Attributes:
        draft_chance, target_chance: mean probabilities that draft and target give it.
        hit_rate: how often it is the target's likeliest.
        calibration_error: mean distance of the draft's probability from the target's, over bins of the draft's.
        greedy_error: the same from the hit rate, which is what counts where the target decodes greedily.
    """

    rank: int
    draft_chance: float
    target_chance: float
    hit_rate: float
    calibration_error: float
    greedy_error: float


@dataclass(frozen=True)
class KindFigures:
    """All of one kind of text.

    Attributes:
        pieces, tokens, text_bytes: how much was read.
        nats_per_token, nats_per_byte: of the target. draft_nats_per_byte: of the draft.
        looping: share of greedy continuations that fall into a loop; looping_tokens: share of their tokens after it.
    """

    kind: str
    pieces: int
    tokens: int
    text_bytes: int
    nats_per_token: Figure
    nats_per_byte: Figure
    draft_nats_per_byte: Figure
    overlap: Figure
    agreement: Figure
    looping: Figure
    looping_tokens: Figure
    ranks: tuple[Rank, ...]


def pieces_of(texts: Sequence[str], count: int, size: int = PIECE) -> list[str]:
    """At most `count` pieces of about `size` characters, spread evenly over the texts.

    Raises:
        TrainingError: there is no text that long.
    """
    cut: list[str] = []
    for text in texts:
        start = 0
        while start + min(size // 3, LEAST) < len(text):
            end = start + size
            if end < len(text):
                found = (text.rfind(mark, end - SLACK, end) for mark in ("\n\n", "\n", " "))
                end = next((place for place in found if place > start), end)
            cut.append(text[start:end].strip("\n"))
            start = end
    if not cut:
        raise TrainingError(f"The held-out text is shorter than {LEAST} characters: give more text.")
    places = np.linspace(0, len(cut) - 1, min(count, len(cut))).astype(int)
    return [cut[place] for place in places]


@torch.inference_mode()
def read(pair: Pair, text: str) -> Reading:
    """Both models on one piece of text."""
    ids = pair.vocabulary.encode(text)[: pair.context]
    tokens = torch.tensor([ids], device=pair.target.device)
    target = pair.target.network(input_ids=tokens).logits[0, :-1]
    draft = pair.draft.network(input_ids=tokens.to(pair.draft.device)).logits[0, :-1].to(target.device)
    parts = [
        _rows(theirs.float(), match_vocabulary(mine.float(), theirs.shape[-1]), labels)
        for theirs, mine, labels in zip(
            target.split(ROWS_AT_ONCE), draft.split(ROWS_AT_ONCE), tokens[0, 1:].split(ROWS_AT_ONCE), strict=True
        )
    ]
    known = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return Reading(len(pair.vocabulary.decode(ids[1:]).encode()), **known)


def _rows(target: Tensor, draft: Tensor, labels: Tensor) -> dict[str, np.ndarray]:
    """Figures of some rows of logits `[tokens, vocab_size]`."""
    probs, guess = target.log_softmax(-1), draft.log_softmax(-1)
    chances, ranked = guess.exp().topk(min(RANKS, guess.shape[-1]), dim=-1)
    best = target.argmax(-1)
    found = {
        "target_nats": -probs.gather(-1, labels[:, None])[:, 0],
        "draft_nats": -guess.gather(-1, labels[:, None])[:, 0],
        "overlap": torch.minimum(probs, guess).exp().sum(-1),
        "agrees": ranked[:, 0] == best,
        "draft_chances": chances,
        "target_chances": probs.exp().gather(-1, ranked),
        "hits": ranked == best[:, None],
    }
    return {name: tensor.cpu().numpy().astype(np.float64) for name, tensor in found.items()}


@torch.inference_mode()
def continuations(pair: Pair, prompts: Sequence[str], prompt_tokens: int, new_tokens: int) -> list[list[int]]:
    """The target's greedy tokens after the first tokens of each prompt, up to the end of the text."""
    cut = [pair.vocabulary.encode(prompt)[:prompt_tokens] for prompt in prompts]
    rows = torch.tensor([ids for ids in cut if len(ids) == prompt_tokens], device=pair.target.device)
    if not len(rows):
        raise TrainingError(f"No held-out piece has {prompt_tokens} tokens: give longer text.")
    config = pair.generation_config(max_new_tokens=new_tokens)
    found = pair.target.network.generate(rows, attention_mask=torch.ones_like(rows), generation_config=config)
    stops = pair.vocabulary.stop_ids
    texts = found[:, prompt_tokens:].tolist()
    return [ids[: next((at for at, token in enumerate(ids) if token in stops), len(ids))] for ids in texts]


def kind_figures(kind: str, readings: Sequence[Reading], greedy: Sequence[Sequence[int]]) -> KindFigures:
    """What the readings and greedy continuations of one kind come to."""
    tokens = np.array([len(reading.target_nats) for reading in readings])
    size = np.array([reading.text_bytes for reading in readings])
    sums = {
        name: np.array([getattr(reading, name).sum() for reading in readings])
        for name in ("target_nats", "draft_nats", "overlap", "agrees")
    }
    inside = np.array([len(ids) - tokens_before_loop(tuple(ids)) for ids in greedy])
    lengths = np.array([max(1, len(ids)) for ids in greedy])
    return KindFigures(
        kind=kind,
        pieces=len(readings),
        tokens=int(tokens.sum()),
        text_bytes=int(size.sum()),
        nats_per_token=ratio(sums["target_nats"], tokens),
        nats_per_byte=ratio(sums["target_nats"], size),
        draft_nats_per_byte=ratio(sums["draft_nats"], size),
        overlap=ratio(sums["overlap"], tokens),
        agreement=ratio(sums["agrees"], tokens),
        looping=proportion(inside > 0),
        looping_tokens=ratio(inside, lengths),
        ranks=calibration(readings),
    )


def calibration(readings: Sequence[Reading]) -> tuple[Rank, ...]:
    """The draft's likeliest tokens by rank: what it gives them and what becomes of them."""
    draft, target, hits = (
        np.concatenate([getattr(reading, name) for reading in readings])
        for name in ("draft_chances", "target_chances", "hits")
    )
    return tuple(
        Rank(
            rank + 1,
            float(draft[:, rank].mean()),
            float(target[:, rank].mean()),
            float(hits[:, rank].mean()),
            calibration_error(draft[:, rank], target[:, rank]),
            calibration_error(draft[:, rank], hits[:, rank]),
        )
        for rank in range(draft.shape[1])
    )


def calibration_error(chances: np.ndarray, truth: np.ndarray, bins: int = BINS) -> float:
    """Expected calibration error (Guo et al. 2017): over bins of equal width, weighted by how many fall into each.

    Args:
        chances: predicted. truth: what happened, 0 or 1, or the chance that it does.
    """
    place = np.minimum((chances * bins).astype(int), bins - 1)
    gaps = np.bincount(place, weights=truth - chances, minlength=bins)
    return float(np.abs(gaps).sum() / len(chances))


def ratio(parts: np.ndarray, sizes: np.ndarray) -> Figure:
    """Sum of parts over sum of sizes; the interval takes (part, size) as drawn independently."""
    value, off = _residuals(parts, sizes)
    return Figure(value, _half(off))


def proportion(hits: np.ndarray) -> Figure:
    """Share of hits; its interval (Agresti and Coull) stays open where all or none are hits."""
    count = len(hits) + 4
    middle = (hits.sum() + 2) / count
    return Figure(float(hits.mean()), Z95 * float(np.sqrt(middle * (1 - middle) / count)))


def difference(parts: np.ndarray, sizes: np.ndarray, other_parts: np.ndarray, other_sizes: np.ndarray) -> Figure:
    """One ratio less another over the same pieces in the same order."""
    mine, off = _residuals(parts, sizes)
    theirs, other_off = _residuals(other_parts, other_sizes)
    return Figure(mine - theirs, _half(off - other_off))


def _residuals(parts: np.ndarray, sizes: np.ndarray) -> tuple[float, np.ndarray]:
    value = float(np.sum(parts) / np.sum(sizes))
    return value, (parts - value * sizes) / np.sum(sizes)


def _half(residuals: np.ndarray) -> float | None:
    """Half the interval of a sum of independent residuals."""
    count = len(residuals)
    return float(Z95 * np.sqrt(count / (count - 1) * np.sum(residuals**2))) if count > 1 else None
