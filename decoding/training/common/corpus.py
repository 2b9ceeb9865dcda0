"""The text that a pair is trained on: files in a folder, kinds, and what is held out of training.

    stories.txt.gz               kind `stories`: trained on, its last 2% held out
    fiction.valid.txt.gz         kind `fiction`: held out whole

The kind is a file's name up to the first dot. A line `<|endoftext|>` parts the documents of a file.
"""

import gzip
import hashlib
import re
import sysconfig
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from decoding.common.errors import TrainingError

END_OF_TEXT = "<|endoftext|>"
HELD_OUT = 0.02
SLACK = 0.01  # the held-out part may begin this much earlier, where a document or a paragraph begins
MIN_CHARACTERS = 2_000  # of a file; less leaves nothing to measure on
MIN_TRAINED = 50_000  # characters of the whole corpus: a vocabulary of 4,096 tokens cannot be found in less
SUFFIXES = (".txt", ".txt.gz")
PYTHON = "python"
# Of the standard library: tables of characters, tests, bundled programs and generated text are no source to learn from.
NO_SOURCE = {"test", "tests", "idlelib", "site-packages", "dist-packages", "turtledemo", "ensurepip", "encodings",
             "lib2to3", "pydoc_data", "__pycache__", "_bundled"}  # fmt: skip


@dataclass(frozen=True)
class Part:
    """The documents of one file.

    Attributes:
        kind: what sort of text it is.
        name: of the file, for messages.
        trained, held_out: documents, in their order; either may be empty.
    """

    kind: str
    name: str
    trained: tuple[str, ...]
    held_out: tuple[str, ...]


@dataclass(frozen=True)
class Corpus:
    """All text of a training."""

    parts: tuple[Part, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of text, in alphabetical order."""
        return tuple(sorted({part.kind for part in self.parts}))

    def trained(self, kind: str) -> list[str]:
        """Documents of a kind to train on."""
        return [text for part in self.parts if part.kind == kind for text in part.trained]

    def held_out(self, kind: str) -> list[str]:
        """Documents of a kind that nothing is trained on."""
        return [text for part in self.parts if part.kind == kind for text in part.held_out]

    def identity(self) -> str:
        """SHA-256 over kinds, documents and what is held out."""
        digest = hashlib.sha256()
        for part in self.parts:
            for word in (part.kind, "trained", *part.trained, "held out", *part.held_out):
                digest.update(word.encode() + b"\0")
        return digest.hexdigest()


def read_corpus(folder: Path, *, python_source: bool = False) -> Corpus:
    """Read every `.txt` and `.txt.gz` of a folder.

    Args:
        python_source: add the standard library of the Python that runs as a kind `python`.

    Raises:
        TrainingError: no such folder, no text file in it, or a file that is empty, damaged, too short or no UTF-8 text.
    """
    if not folder.is_dir():
        raise TrainingError(f"There is no folder {folder}: give a folder of .txt or .txt.gz files.")
    files = sorted(file for file in folder.iterdir() if file.name.endswith(SUFFIXES) and file.is_file())
    if not files:
        raise TrainingError(f"{folder} holds no .txt or .txt.gz file: put the text to train on into it.")
    parts = [_part(file.name, read_text(file)) for file in files]
    if python_source:
        parts.append(_held_apart(PYTHON, "the standard library", python_documents()))
    corpus = Corpus(tuple(parts))
    trained = sum(len(text) for part in parts for text in part.trained)
    if trained < MIN_TRAINED:
        raise TrainingError(
            f"{folder} holds {trained:,} characters to train on: give at least {MIN_TRAINED:,}, or add --python-source."
        )
    empty = next((kind for kind in corpus.kinds if not corpus.trained(kind)), None)
    if empty is not None:
        raise TrainingError(f"All text of kind {empty} is held out: add {empty}.txt to {folder} or take it away.")
    return corpus


def read_text(file: Path) -> str:
    """The text of a file, with `\\n` at the end of its lines.

    Raises:
        TrainingError: it is empty, damaged, too short, unreadable or no UTF-8 text.
    """
    try:
        data = gzip.decompress(file.read_bytes()) if file.name.endswith(".gz") else file.read_bytes()
        text = data.decode("utf-8-sig")
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise TrainingError(f"{file.name} is no whole gzip file: copy it again or take it out of the folder.") from None
    except UnicodeDecodeError:
        raise TrainingError(f"{file.name} is not UTF-8 text: save it as UTF-8 or take it out of the folder.") from None
    except OSError as error:
        raise TrainingError(f"{file.name} cannot be read ({error.strerror}): take it out of the folder.") from None
    if "\0" in text:
        raise TrainingError(f"{file.name} is binary: only text can be trained on; take it out of the folder.")
    if not text.strip():
        raise TrainingError(f"{file.name} is empty: put text into it or take it out of the folder.")
    if len(text) < MIN_CHARACTERS:
        raise TrainingError(
            f"{file.name} holds {len(text)} characters: give at least {MIN_CHARACTERS:,} or take it out of the folder."
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
        raise TrainingError(f"{root} holds no Python source: leave --python-source away.")
    return texts


def documents(text: str) -> list[str]:
    """The documents of a text, without the lines that part them."""
    parts = re.split(f"^{re.escape(END_OF_TEXT)}$", text, flags=re.MULTILINE)
    return [part.strip("\n") for part in parts if part.strip()]


def _part(name: str, text: str) -> Part:
    kind, *words = name.split(".")
    if "valid" in words:
        return Part(kind, name, (), tuple(documents(text)))
    return _held_apart(kind, name, documents(text))


def _held_apart(kind: str, name: str, whole: Sequence[str]) -> Part:
    """Documents with the last of them, or of their text, held out."""
    size = sum(map(len, whole))
    left = round(size * (1 - HELD_OUT))
    trained: list[str] = []
    for number, text in enumerate(whole):
        if len(text) <= left:
            trained.append(text)
            left -= len(text)
            continue
        cut = 0 if left <= size * SLACK else _cut(text, left, max(1, left - round(size * SLACK)))
        pieces = [text[:cut].rstrip("\n")] if cut else []
        return Part(kind, name, (*trained, *pieces), (text[cut:].strip("\n"), *whole[number + 1 :]))
    return Part(kind, name, tuple(trained), ())


def _cut(text: str, latest: int, earliest: int) -> int:
    """Where to part a document: at a paragraph, else at a line, else at a space, else where it falls."""
    found: Iterable[int] = (text.rfind(mark, earliest, latest) for mark in ("\n\n", "\n", " "))
    return next((place for place in found if place > 0), latest)
