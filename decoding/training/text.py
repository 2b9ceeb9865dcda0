"""The text that is trained on: files in a folder, kinds, what is held out, and windows that are cut from it.

    stories.txt.gz               kind `stories`: trained on, its last 2% held out
    fiction.valid.txt.gz         kind `fiction`: held out whole

The kind is a file's name up to the first dot. A line `<|endoftext|>` parts the documents of a file.
A head drafts after text that its target has written, so part of its windows are the target's own continuations.
"""

import gzip
import hashlib
import json
import re
import sysconfig
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from decoding.common.errors import TrainingError, require
from decoding.common.prompts import load_prompts
from decoding.engines.base import Visibility
from decoding.engines.kv_cache import KVCache
from decoding.models.pair import Model, Pair

END_OF_TEXT = "<|endoftext|>"
HELD_OUT = 0.02
SLACK = 0.01  # the held-out part may begin this much earlier, where a document or a paragraph begins
MIN_CHARACTERS = 2_000  # of a file; less leaves nothing to measure on
MIN_TRAINED = 50_000  # characters of the whole corpus: a vocabulary of 4,096 tokens cannot be found in less
SUFFIXES = (".txt", ".txt.gz")
PYTHON = "python"
CHARACTERS_PER_TOKEN = 8  # a guess on the safe side: what is cut off has only cost time
TOGETHER = 16  # windows that the target continues in the same passes
# Of the standard library: tables of characters, tests, bundled programs and generated text are no source to learn from.
NO_SOURCE = {"test", "tests", "idlelib", "site-packages", "dist-packages", "turtledemo", "ensurepip", "encodings",
             "lib2to3", "pydoc_data", "__pycache__", "_bundled"}  # fmt: skip


@dataclass(frozen=True)
class Texts:
    """Text that is trained on.

    Attributes:
        trained, held_out: documents by kind of text, kinds in alphabetical order.
        identity: tells it from other text.
        prompts: whether every document only begins a window, which the target continues.
    """

    trained: Mapping[str, tuple[str, ...]]
    held_out: Mapping[str, tuple[str, ...]]
    identity: str = ""
    prompts: bool = False


def read_corpus(folder: Path, *, python_source: bool = False) -> Texts:
    """Read every `.txt` and `.txt.gz` of a folder, and the standard library of this Python where that is asked for.

    Raises:
        TrainingError: no such folder, no text file in it, or a file that is empty, damaged, too short or no UTF-8 text.
    """
    if not folder.is_dir():
        raise TrainingError(f"There is no folder {folder}: give a folder of .txt or .txt.gz files.")
    files = sorted(file for file in folder.iterdir() if file.name.endswith(SUFFIXES) and file.is_file())
    if not files:
        raise TrainingError(f"{folder} has no .txt or .txt.gz file: put the training text in it.")
    parts = []  # kind of a file, documents to train on, documents held out
    for file in files:
        kind, *words = file.name.split(".")
        whole = documents(read_text(file))
        parts.append((kind, *(((), tuple(whole)) if "valid" in words else _held_apart(whole))))
    if python_source:
        parts.append((PYTHON, *_held_apart(python_documents())))
    size = sum(len(text) for _, trained, _ in parts for text in trained)
    if size < MIN_TRAINED:
        raise TrainingError(
            f"{folder} has {size:,} characters to train on: give at least {MIN_TRAINED:,}, or add --python-source."
        )
    found: tuple[dict[str, tuple[str, ...]], ...] = ({}, {})
    digest = hashlib.sha256()  # over kinds, documents and what is held out
    for kind, trained, held_out in parts:
        for by_kind, texts in zip(found, (trained, held_out), strict=True):
            if texts:
                by_kind[kind] = (*by_kind.get(kind, ()), *texts)
        for word in (kind, "trained", *trained, "held out", *held_out):
            digest.update(word.encode() + b"\0")
    train_texts, held_out_texts = (dict(sorted(by_kind.items())) for by_kind in found)
    for kind in held_out_texts.keys() - train_texts.keys():
        raise TrainingError(f"All text of kind {kind} is held out: add {kind}.txt to {folder} or remove that kind.")
    return Texts(train_texts, held_out_texts, digest.hexdigest())


def sample_texts() -> Texts:
    """The sample prompts, the last one of each kind held out."""
    by_kind: dict[str, list[str]] = {}
    for prompt in load_prompts():
        by_kind.setdefault(prompt.kind, []).append(prompt.text)
    digest = hashlib.sha256(json.dumps(by_kind, sort_keys=True).encode()).hexdigest()
    trained = {kind: tuple(texts[:-1]) for kind, texts in by_kind.items() if len(texts) > 1}
    return Texts(trained, {kind: tuple(by_kind[kind][-1:]) for kind in trained}, digest, prompts=True)


def read_text(file: Path) -> str:
    """The text of a file, with `\\n` at the end of its lines; `TrainingError` where there is no good text in it."""
    try:
        data = gzip.decompress(file.read_bytes()) if file.name.endswith(".gz") else file.read_bytes()
        text = data.decode("utf-8-sig")
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise TrainingError(f"{file.name} is a damaged gzip file: copy it again or remove it.") from None
    except UnicodeDecodeError:
        raise TrainingError(f"{file.name} is not UTF-8 text: save it as UTF-8 or remove it from the folder.") from None
    except OSError as error:
        raise TrainingError(f"{file.name} cannot be read ({error.strerror}): remove it from the folder.") from None
    if "\0" in text:
        raise TrainingError(f"{file.name} is binary, and training needs text: remove it from the folder.")
    if not text.strip():
        raise TrainingError(f"{file.name} is empty: put text in it or remove it from the folder.")
    if len(text) < MIN_CHARACTERS:
        raise TrainingError(
            f"{file.name} has {len(text)} characters: give at least {MIN_CHARACTERS:,} or remove it from the folder."
        )
    return text.replace("\r\n", "\n").replace("\r", "\n")


def python_documents() -> list[str]:
    """The source files of the standard library, each a document."""
    root = Path(sysconfig.get_paths()["stdlib"])
    texts = []
    for file in sorted(root.rglob("*.py")):
        inside = file.relative_to(root)
        if NO_SOURCE.isdisjoint(inside.parts) and not inside.name.startswith("_sysconfigdata"):
            text = file.read_text(encoding="utf-8", errors="replace")
            if "\ufffd" not in text and text.strip():
                texts.append(text)
    if not texts:
        raise TrainingError(f"{root} has no Python source: omit --python-source.")
    return texts


def documents(text: str) -> list[str]:
    """The documents of a text, without the lines that part them."""
    parts = re.split(f"^{re.escape(END_OF_TEXT)}$", text, flags=re.MULTILINE)
    return [part.strip("\n") for part in parts if part.strip()]


def _held_apart(whole: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Documents to train on, and the last of them, or of their text, to hold out."""
    size = sum(map(len, whole))
    left = round(size * (1 - HELD_OUT))
    trained: list[str] = []
    for number, text in enumerate(whole):
        if len(text) <= left:
            trained.append(text)
            left -= len(text)
            continue
        # At a paragraph, else at a line, else at a space, else where it falls.
        earliest = max(1, left - round(size * SLACK))
        places = (text.rfind(mark, earliest, left) for mark in ("\n\n", "\n", " "))
        cut = 0 if left <= size * SLACK else next((place for place in places if place > 0), left)
        pieces = [text[:cut].rstrip("\n")] if cut else []
        return (*trained, *pieces), (text[cut:].strip("\n"), *whole[number + 1 :])
    return tuple(trained), ()


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
        """Tokens of a window: one in front of the first root, and labels after the last one."""
        return self.roots + self.depth


def windows_of(
    pair: Pair, texts: Texts, plan: WindowPlan, numbers: Sequence[int], *, held_out: bool = False
) -> np.ndarray:
    """Some windows, a function of plan and numbers alone, int64 `[len(numbers), plan.size]`.

    Raises:
        TrainingError: the text is too short for a window, or nothing of it is held out.
    """
    kinds = texts.held_out if held_out else texts.trained
    if not kinds:
        raise TrainingError("No text is held out for evaluation: give more text.")
    beginnings = []  # the tokens that come from the text: all of a window, or those that the target continues
    for number in numbers:
        names = sorted(kinds)
        kind, turn = names[number % len(names)], number // len(names)
        if texts.prompts:
            beginnings.append(pair.vocabulary.encode(kinds[kind][turn % len(kinds[kind])])[: plan.size])
            continue
        choices = np.random.default_rng([plan.seed, int(held_out), number, 0])
        continued = choices.random() < plan.continued
        tokens = _tokens_from(pair, kinds[kind], plan.size, choices, kind)
        beginnings.append(tokens[: plan.size // 4 if continued else None])
    draws = [np.random.default_rng([plan.seed, int(held_out), number, 1]) for number in numbers]
    for first in range(0, len(numbers), TOGETHER):
        group = slice(first, first + TOGETHER)
        continue_texts(pair.target, beginnings[group], plan.size, plan.temperature, draws[group])
    return np.array(beginnings, dtype=np.int64)


def _tokens_from(pair: Pair, documents: Sequence[str], size: int, draws: np.random.Generator, kind: str) -> list[int]:
    """Tokens from a random place on, moved to the beginning of the line, else of the word, that follows near by."""
    ends = np.cumsum([len(text) for text in documents])
    place = int(draws.integers(max(1, ends[-1] - size * CHARACTERS_PER_TOKEN // 2)))
    number = int(np.searchsorted(ends, place, side="right"))
    inside = place - int(ends[number] - len(documents[number]))
    text = documents[number]
    if inside:
        found = (text.find(mark, inside, inside + 200) for mark in ("\n", " "))
        inside = next((at + 1 for at in found if 0 <= at < len(text) - 1), inside)
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


@torch.inference_mode()
def continue_texts(
    model: Model, texts: list[list[int]], size: int, temperature: float, draws: Sequence[np.random.Generator]
) -> None:
    """Let a model write on texts until each holds `size` tokens, drawn by `draws` of its own.

    All are written in the same passes, after one cache: each text sees its own rows alone.
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
        distributions = torch.softmax(logits.double() / temperature, -1).cumsum(-1).cpu().numpy()
        for number, probs in zip(open_texts, distributions, strict=True):
            drawn = np.searchsorted(probs, draws[number].random() * probs[-1], side="right")
            texts[number].append(int(min(drawn, len(probs) - 1)))
        open_texts = [number for number in open_texts if len(texts[number]) < size]


def run_text(model: Model, cache: KVCache, tokens: np.ndarray) -> tuple[Tensor, Tensor]:
    """Logits `[size, vocab_size]` and features `[size, hidden_size]` after every token of a text; fills the cache."""
    mask = model.engine.mask(Visibility.causal(0, len(tokens)))
    return model.engine.run_with_features(cache, tokens, np.arange(len(tokens)), mask, 0)
