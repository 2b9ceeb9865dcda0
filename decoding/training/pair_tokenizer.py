"""The tokenizer of a trained pair: byte-level BPE, stored as transformers stores it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from decoding.common.files import disk_errors, write_whole
from decoding.training.corpus import END_OF_TEXT, Corpus

VOCABULARY = 4096
END_ID = 0
SAMPLE_CHARACTERS = 3_000_000  # of each kind: more of one kind would take the merges of the others
STRETCH = 20_000  # characters in one piece of the sample


def train_tokenizer(corpus: Corpus, size: int = VOCABULARY) -> Tokenizer:
    """Learn `size` tokens from equally much text of every kind; `<|endoftext|>` has id 0."""
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
    tokenizer.train_from_iterator(_sample(corpus), trainer)
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path, context: int) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json` into a folder.

    Raises:
        TrainingError: the disk is full, or the place cannot be written.
    """
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    config = {
        "backend": "tokenizers",
        "bos_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": False,
        "eos_token": END_OF_TEXT,
        "model_max_length": context,
        "pad_token": END_OF_TEXT,
        "tokenizer_class": "TokenizersBackend",
    }
    write_whole(folder / "tokenizer.json", tokenizer.to_str(pretty=True).encode())
    write_whole(folder / "tokenizer_config.json", (json.dumps(config, indent=2) + "\n").encode())


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer in a folder, as transformers loads it."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def _sample(corpus: Corpus) -> Iterator[str]:
    """Equally much text of every kind, taken evenly from all of it."""
    for kind in corpus.kinds:
        stretches = [
            text[start : start + STRETCH] for text in corpus.trained(kind) for start in range(0, len(text), STRETCH)
        ]
        size = sum(map(len, stretches))
        step = max(1.0, size / SAMPLE_CHARACTERS)
        taken = [stretches[int(place * step)] for place in range(int(len(stretches) / step))]
        for _ in range(max(1, round(SAMPLE_CHARACTERS / size))):
            yield from taken
