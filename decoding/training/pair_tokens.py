"""The tokenizer of a trained pair, and the tokens of a corpus on disk: batches are cut by seed and step alone."""

import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers.models.auto.tokenization_auto import AutoTokenizer

from decoding.common.errors import TrainingError
from decoding.common.files import write_whole
from decoding.training.text import END_OF_TEXT, Texts

VOCABULARY = 4096
END_ID = 0
SAMPLE_CHARACTERS = 3_000_000  # of each kind: more of one kind would take the merges of the others
STRETCH = 20_000  # characters in one piece of the sample
BALANCE = 0.5  # kinds are drawn in proportion to their tokens to this power: 1 as they come, 0 equally often
CONTEXT = 2560
TOKENIZER, SUMMARY = "tokenizer", "tokens.json"


def train_tokenizer(corpus: Texts, size: int) -> Tokenizer:
    """Learn `size` tokens from equally much text of every kind; `<|endoftext|>` has id 0."""

    def sample() -> Iterator[str]:
        """Equally much text of every kind, taken evenly from all of it."""
        for texts in corpus.trained.values():
            stretches = [text[start : start + STRETCH] for text in texts for start in range(0, len(text), STRETCH)]
            characters = sum(map(len, stretches))
            step = max(1.0, characters / SAMPLE_CHARACTERS)
            taken = [stretches[int(place * step)] for place in range(int(len(stretches) / step))]
            for _ in range(max(1, round(SAMPLE_CHARACTERS / characters))):
                yield from taken

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A", pair="$A $B", special_tokens=[])
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sample(), trainer)
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json` into a folder."""
    config = {
        "backend": "tokenizers",
        "bos_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": False,
        "eos_token": END_OF_TEXT,
        "model_max_length": CONTEXT,
        "pad_token": END_OF_TEXT,
        "tokenizer_class": "TokenizersBackend",
    }
    write_whole(folder / "tokenizer.json", tokenizer.to_str(pretty=True).encode())
    write_whole(folder / "tokenizer_config.json", (json.dumps(config, indent=2) + "\n").encode())


def keep_tokenizer(trained: Path, folder: Path) -> None:
    """Take the tokenizer of a trained network; `TrainingError` where it has none."""
    try:
        save_tokenizer(load_tokenizer(trained).backend_tokenizer, folder)
    except (OSError, ValueError):
        raise TrainingError(f"{trained} has no tokenizer: choose another --start-from.") from None


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer in a folder, as transformers loads it."""
    return AutoTokenizer.from_pretrained(folder)


@dataclass(frozen=True)
class TokenArrays:
    """The tokens of a corpus.

    Attributes:
        trained, held_out: uint16 `[tokens]` by kind.
        tokenizer: of transformers.
        identity: SHA-256 of tokens and tokenizer.
    """

    trained: Mapping[str, np.ndarray]
    held_out: Mapping[str, np.ndarray]
    tokenizer: Any
    identity: str

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of text, in alphabetical order."""
        return tuple(self.trained)

    def shares(self) -> dict[str, float]:
        """How much of a batch is of each kind."""
        weights = {kind: len(tokens) ** BALANCE for kind, tokens in self.trained.items()}
        total = sum(weights.values())
        return {kind: weight / total for kind, weight in weights.items()}

    def batch(self, seed: int, step: int, rows: int, window: int) -> np.ndarray:
        """Windows from random places, `[rows, window]` int64."""
        draws = np.random.default_rng([seed, step])
        shares = self.shares()
        kinds = draws.choice(len(shares), size=rows, p=list(shares.values()))
        found = []
        for tokens in (self.trained[self.kinds[kind]] for kind in kinds):
            start = int(draws.integers(0, max(1, len(tokens) - window + 1)))
            found.append(np.resize(tokens[start : start + window], window).astype(np.int64))
        return np.stack(found)

    def held_out_rows(self, kind: str, rows: int, window: int) -> np.ndarray:
        """Windows evenly spread over what is held out, at most `rows`, `[rows, window]` int64."""
        tokens = self.held_out[kind]
        count = max(1, min(rows, len(tokens) // window))
        starts = np.linspace(0, max(0, len(tokens) - window), count).astype(int)
        return np.stack([np.resize(tokens[start : start + window], window) for start in starts]).astype(np.int64)


def prepare(
    folder: Path, read: Callable[[], Texts], vocabulary: int = VOCABULARY, report: Callable[[str], None] = print
) -> TokenArrays:
    """The arrays in a folder, made from the corpus that `read` gives where they are not there yet.

    Raises:
        TrainingError: the arrays there are of another corpus, or damaged.
    """
    if not (folder / SUMMARY).exists():
        report("reading the corpus")
        corpus, note = read(), folder / "corpus.txt"
        if not note.exists():
            write_whole(note, corpus.identity.encode())
        elif note.read_text(encoding="utf-8") != corpus.identity:
            raise TrainingError(f"{folder} was started with a different text: choose another --out.")
        if not (folder / TOKENIZER / "tokenizer_config.json").exists():
            report("training the tokenizer")
            save_tokenizer(train_tokenizer(corpus, vocabulary), folder / TOKENIZER)
        tokenizer = Tokenizer.from_file(str(folder / TOKENIZER / "tokenizer.json"))
        for kind in corpus.trained:
            report(f"tokenizing {kind}")
            _write(folder / f"{kind}.trained.npy", tokenizer, corpus.trained[kind])
            _write(folder / f"{kind}.held_out.npy", tokenizer, corpus.held_out.get(kind, ()))
        write_whole(folder / SUMMARY, json.dumps({"kinds": list(corpus.trained), "corpus": corpus.identity}).encode())
    try:
        kinds = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))["kinds"]
        trained, held_out = ({kind: np.load(folder / f"{kind}.{part}.npy") for kind in kinds}
                             for part in ("trained", "held_out"))  # fmt: skip
        spelled = (folder / TOKENIZER / "tokenizer.json").read_bytes()
    except (OSError, ValueError, KeyError) as error:
        raise TrainingError(f"The tokens in {folder} are damaged ({error}): start again in another --out.") from None
    digest = hashlib.sha256(spelled)
    for array in (*trained.values(), *held_out.values()):
        digest.update(array.tobytes())
    return TokenArrays(trained, held_out, load_tokenizer(folder / TOKENIZER), digest.hexdigest())


def _write(file: Path, tokenizer: Tokenizer, texts: Sequence[str]) -> None:
    """Keep the tokens of documents with `<|endoftext|>` before, between and after them."""
    if file.exists():
        return
    pieces = [np.array([END_ID], np.uint16)]
    for encoded in tokenizer.encode_batch(list(texts), add_special_tokens=False):
        pieces.append(np.array([*encoded.ids, END_ID], np.uint16))
    buffer = io.BytesIO()
    np.save(buffer, np.concatenate(pieces))
    write_whole(file, buffer.getvalue())
