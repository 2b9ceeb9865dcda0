"""Prompts by kind of text: the ones that come with the program, or a folder of one's own."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from decoding.common.errors import PromptError
from decoding.common.files import ROOT

SAMPLE_PROMPTS = ROOT / "sample_prompts"
KINDS = (
    "stories", "encyclopedia", "fiction", "mathematics", "olympiad", "code", "dialogue", "translation", "editing",
)  # fmt: skip
# Those that the embedded pair was trained on; on others its output says little about methods.
EMBEDDED_KINDS = ("stories", "encyclopedia", "fiction", "mathematics")
MAX_FILE_BYTES = 2**20
MAX_FILES = 1000


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt."""

    kind: str  # what sort of text it starts, e.g. `stories`; the subfolder it lies in
    name: str  # its file's name without `.txt`, unique within its kind
    text: str  # the prompt, without white space around it

    @property
    def title(self) -> str:
        """What it is called: `stories/dragon`."""
        return f"{self.kind}/{self.name}"

    @property
    def hash(self) -> str:
        """Tells it from every other text, for rows that name what they were measured on."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:12]


def load_prompts(folder: Path | None = None) -> tuple[Prompt, ...]:
    """Every `.txt` file of a folder as a prompt; its subfolder is its kind, or the folder itself without one.

    Raises `PromptError` where there is no such folder, no prompt in it, or what `read_prompt` refuses.
    """
    root = SAMPLE_PROMPTS if folder is None else Path(os.path.expanduser(folder)).resolve()
    if not root.is_dir():
        raise PromptError(f"There is no folder {root}: choose a folder with .txt files, one prompt in each.")
    try:
        found = [path for path in sorted(root.rglob("*.txt")) if path.is_file()]
    except OSError as error:
        raise PromptError(f"{root} could not be read ({error.strerror}): choose another folder.") from None
    visible = [path for path in found if not any(part.startswith(".") for part in path.relative_to(root).parts)]
    if not visible:
        raise PromptError(f"{root} has no .txt file: put one prompt in each file; subfolders are kinds of text.")
    if len(visible) > MAX_FILES:
        raise PromptError(f"{root} has {len(visible)} .txt files: choose a folder with at most {MAX_FILES}.")
    prompts = [_read(root, path) for path in visible]
    place = {kind: number for number, kind in enumerate(KINDS)}
    return tuple(sorted(prompts, key=lambda p: (place.get(p.kind, len(KINDS)), p.kind, p.name)))


def in_turn(prompts: Sequence[Prompt], kinds: Sequence[str] = ()) -> list[Prompt]:
    """One kind of text after another in turn, of some kinds or of all."""
    queues: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        if not kinds or prompt.kind in kinds:
            queues.setdefault(prompt.kind, []).append(prompt)
    return [prompt for each in zip_longest(*queues.values()) for prompt in each if prompt is not None]


def calibration_prompts() -> list[Prompt]:
    """The last third of the sample prompts of every kind, at least one of each.

    What drafters have to know of a pair is measured on these; comparisons take the first ones of each kind.
    """
    by_kind: dict[str, list[Prompt]] = {}
    for prompt in load_prompts():
        by_kind.setdefault(prompt.kind, []).append(prompt)
    return [prompt for prompts in by_kind.values() for prompt in prompts[-max(1, len(prompts) // 3) :]]


def read_prompt(path: Path, name: Path, instead: str) -> str:
    """The text of a file, without white space around it.

    Raises `PromptError` where it is no UTF-8 text, empty, too large or unreadable: `name` is what it is called there,
    `instead` what can be done without it.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise PromptError(f"{name} is larger than {MAX_FILE_BYTES // 2**20} MiB: shorten the prompt.")
        text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n").strip()
    except UnicodeDecodeError:
        raise PromptError(f"{name} is not UTF-8 text: save it as UTF-8 or {instead}.") from None
    except OSError as error:
        raise PromptError(f"{name} could not be read ({error.strerror}): {instead}.") from None
    if not text or "\0" in text:
        raise PromptError(f"{name} is empty: write a prompt in it or {instead}.")
    return text


def _read(root: Path, path: Path) -> Prompt:
    inside = path.relative_to(root)
    text = read_prompt(path, inside, "take it out of the folder")
    kind, rest = (inside.parts[0], inside.parts[1:]) if len(inside.parts) > 1 else (root.name, inside.parts)
    return Prompt(kind, "/".join(rest).removesuffix(".txt"), text)
