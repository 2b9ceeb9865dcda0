"""Windows of text to train a draft head on: cut from a corpus or begun by prompts, and continued by the target.

A head drafts behind text that its target has written, so part of the windows are the target's own continuations.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from decoding.common.errors import TrainingError, require
from decoding.engines.base import Visibility
from decoding.engines.kv_cache import KVCache
from decoding.models.pair import Model, Pair

CHARACTERS_PER_TOKEN = 8  # a guess on the safe side: what is cut off has only cost time
TOGETHER = 16  # windows that the target continues in the same passes


@dataclass(frozen=True)
class WindowPlan:
    """Which windows are prepared.

    Attributes:
        windows, held_out: number of windows to train on and to measure on.
        roots: tokens of a window below which trees are grown.
        depth: forwards of the head that are trained: the root's and those of `depth - 1` levels of drafted tokens.
        continued: share of the windows that the target continues from their first quarter on.
        temperature: at which it does.
    """

    windows: int = 1024
    held_out: int = 32
    roots: int = 256
    depth: int = 3
    continued: float = 0.5
    temperature: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least, most in (("windows", 1, 10**7), ("held_out", 1, 10**5), ("roots", 8, 32_768), ("depth", 1, 8)):
            value = getattr(self, name)
            require(least <= value <= most, f"{name} must be from {least} to {most}, not {value}.")
        require(0 <= self.continued <= 1, f"continued must be from 0 to 1, not {self.continued}.")
        require(self.temperature > 0, f"temperature must be above 0, not {self.temperature}.")

    @property
    def size(self) -> int:
        """Tokens of a window: one in front of the first root, and labels behind the last one."""
        return self.roots + self.depth

    def to_json(self) -> dict[str, Any]:
        """All settings by name."""
        return asdict(self)


@dataclass(frozen=True)
class Texts:
    """What windows are cut from.

    Attributes:
        trained, held_out: documents by kind of text.
        prompts: whether every document only begins a window, which the target continues.
    """

    trained: dict[str, tuple[str, ...]]
    held_out: dict[str, tuple[str, ...]]
    prompts: bool = False


def windows_of(
    pair: Pair, texts: Texts, plan: WindowPlan, numbers: Sequence[int], *, held_out: bool = False
) -> np.ndarray:
    """Some windows, a function of plan and numbers alone, int64 `[len(numbers), plan.size]`.

    Raises:
        TrainingError: the text is too short for a window, or nothing of it is held out.
    """
    kinds = texts.held_out if held_out else texts.trained
    if not kinds:
        raise TrainingError("Nothing of the text is held out to measure on: give more text.")
    beginnings = [_beginning(pair, texts, plan, kinds, number, held_out) for number in numbers]
    draws = [np.random.default_rng([plan.seed, int(held_out), number, 1]) for number in numbers]
    for first in range(0, len(numbers), TOGETHER):
        group = slice(first, first + TOGETHER)
        continue_texts(pair.target, beginnings[group], plan.size, plan.temperature, draws[group])
    return np.array(beginnings, dtype=np.int64)


def _beginning(pair: Pair, texts: Texts, plan: WindowPlan, kinds, number: int, held_out: bool) -> list[int]:
    """The tokens of a window that come from the text: all of them, or those that the target continues."""
    draws = np.random.default_rng([plan.seed, int(held_out), number, 0])
    names = sorted(kinds)
    kind = names[number % len(names)]
    if texts.prompts:
        document = kinds[kind][number // len(names) % len(kinds[kind])]
        return pair.vocabulary.encode(document)[: plan.size]
    continued = draws.random() < plan.continued
    return _cut(pair, kinds[kind], plan.size, draws, kind)[: plan.size // 4 if continued else None]


def _cut(pair: Pair, documents: Sequence[str], size: int, draws: np.random.Generator, kind: str) -> list[int]:
    """Tokens from a random place on, which is moved to the beginning of a line or a word near by."""
    ends = np.cumsum([len(text) for text in documents])
    place = int(draws.integers(max(1, ends[-1] - size * CHARACTERS_PER_TOKEN // 2)))
    number = int(np.searchsorted(ends, place, side="right"))
    inside = place - int(ends[number] - len(documents[number]))
    text = documents[number]
    inside = _beginning_near(text, inside)
    tokens = pair.vocabulary.encode(text[inside : inside + size * CHARACTERS_PER_TOKEN])
    tokenizer = pair.vocabulary.tokenizer
    between = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    while len(tokens) < size:
        number += 1
        if number >= len(documents) + len(ends):
            raise TrainingError(f"The text of kind {kind} is too short for windows of {size} tokens: give more of it.")
        following = documents[number % len(documents)][: size * CHARACTERS_PER_TOKEN]
        tokens = [*tokens, *between, *tokenizer(following, add_special_tokens=False)["input_ids"]]
    return tokens[:size]


def _beginning_near(text: str, place: int) -> int:
    """The beginning of the line, else of the word, that follows within 200 characters; the place itself if none."""
    if place == 0:
        return 0
    found = (text.find(mark, place, place + 200) for mark in ("\n", " "))
    return next((at + 1 for at in found if 0 <= at < len(text) - 1), place)


@torch.inference_mode()
def continue_texts(
    model: Model, texts: list[list[int]], size: int, temperature: float, draws: Sequence[np.random.Generator]
) -> None:
    """Let a model write on texts until each holds `size` tokens; all are written in the same passes.

    They share one cache: each text sees its own rows alone.

    Args:
        draws: what each text takes its numbers from.
    """
    open_texts = [number for number, tokens in enumerate(texts) if len(tokens) < size]
    if not open_texts:
        return
    cache: KVCache = model.engine.new_cache(len(open_texts) * size)
    owner: list[int] = []
    for number in open_texts:
        count = len(texts[number]) - 1
        among = np.concatenate([np.zeros((count, len(owner)), bool), np.tri(count, dtype=bool)], 1)
        if count:
            ids = np.array(texts[number][:-1])
            model.engine.run(cache, ids, np.arange(count), model.engine.mask(Visibility(0, among)), 1)
        owner += [number] * count
    while open_texts:
        owner += open_texts
        among = np.array(owner)[None, :] == np.array(open_texts)[:, None]
        ids = np.array([texts[number][-1] for number in open_texts])
        positions = np.array([len(texts[number]) - 1 for number in open_texts])
        logits = model.engine.run(cache, ids, positions, model.engine.mask(Visibility(0, among)), 0)
        laws = torch.softmax(logits.double() / temperature, -1).cumsum(-1).cpu().numpy()
        for number, law in zip(open_texts, laws, strict=True):
            drawn = np.searchsorted(law, draws[number].random() * law[-1], side="right")
            texts[number].append(int(min(drawn, len(law) - 1)))
        open_texts = [number for number in open_texts if len(texts[number]) < size]
