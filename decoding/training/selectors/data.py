"""What selectors are trained on: roots along the target's own text, with features and exact labels, kept in shards.

    manifest.json                  the pair, the text and the plan that all of it is for
    trained-00012.npz              the roots of one text; a shard is there whole or not at all
    held_out-00003.npz             the same of text that nothing is trained on

Every text begins with some words of a corpus, or with a prompt, and the target writes it on under one of the samplings,
in turn. Below each root the same super-trees are labelled under all samplings: the draft's law is the same in them.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from decoding.common.errors import TrainingError, require
from decoding.common.files import disk_errors, write_whole
from decoding.sampling.sampling import Sampling
from decoding.selector.actions import ACTIONS
from decoding.training.selectors.labels import VERIFIER_NAMES

if TYPE_CHECKING:
    from decoding.models.pair import Pair
    from decoding.training.heads.windows import Texts

MANIFEST, VERSION = "manifest.json", 1
GROWS = ("texts", "held_out")  # a text is a function of its number alone, so there may be more of them later

Part = Literal["trained", "held_out"]
PARTS: tuple[Part, ...] = ("held_out", "trained")
Report = Callable[[int, int], None]  # texts that are done, texts in all

# The samplings of the paper, and greedy decoding; only the target's law is changed by them.
SAMPLINGS: tuple[Sampling, ...] = (
    *(Sampling(temperature) for temperature in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2)),
    *(Sampling(1.0, top_p) for top_p in (0.9, 0.99)),
)


@dataclass(frozen=True)
class RootPlan:
    """Which roots are labelled.

    Attributes:
        texts, held_out: texts to train on and to measure on.
        roots: of each text. spacing: tokens between two of them.
        trees: super-trees below each root, whose labels are averaged (s).
        khisti_trees, khisti_every: of these, how many Khisti is labelled on, and at one root in how many: each of its
            nodes takes linear programmes, which are half the work even so.
        samplings: that every root is labelled under; all with the same draft temperature.
        verifiers: that every root is labelled for.
    """

    texts: int = 100
    held_out: int = 16
    roots: int = 10
    spacing: int = 16
    trees: int = 4
    khisti_trees: int = 1
    khisti_every: int = 3
    samplings: tuple[Sampling, ...] = SAMPLINGS
    verifiers: tuple[str, ...] = VERIFIER_NAMES
    seed: int = 0

    def __post_init__(self) -> None:
        limits = {"texts": 10**6, "held_out": 10**5, "roots": 10**4, "spacing": 1024, "trees": 64, "khisti_trees": 64}
        for name, most in (limits | {"khisti_every": 1000}).items():
            require(1 <= getattr(self, name) <= most, f"{name} must be from 1 to {most}, not {getattr(self, name)}.")
        require(bool(self.samplings), "samplings is empty: give at least one, such as 1.0 or 1.0:0.9.")
        warmth = {sampling.draft_temperature for sampling in self.samplings}
        require(len(warmth) == 1, f"samplings must share one draft temperature, not {sorted(warmth)}.")

    @property
    def draft_temperature(self) -> float:
        """Of the law that all trees are drawn from."""
        return self.samplings[0].draft_temperature

    def to_json(self) -> dict[str, Any]:
        """All settings by name."""
        return {**asdict(self), "samplings": [[s.temperature, s.top_p, s.draft_temperature] for s in self.samplings],
                "verifiers": list(self.verifiers)}  # fmt: skip


@dataclass(frozen=True)
class Roots:
    """Labelled roots.

    Attributes:
        text: number of the text that each stands in, `[roots]`.
        length: tokens of its context, `[roots]`. in_loop: whether the text had begun to repeat itself there.
        target: feature of the target at the previous token, `[roots, target_size]`.
        draft_previous, draft_root: of the draft at the previous token and at the root, `[roots, draft_size]`.
        divergences: what `features.divergences` gives, `[roots, samplings, 6]`.
        expected: exact expected tokens by verifier, `[roots, samplings, len(ACTIONS)]`; nan where not labelled.
    """

    text: np.ndarray
    length: np.ndarray
    in_loop: np.ndarray
    target: np.ndarray
    draft_previous: np.ndarray
    draft_root: np.ndarray
    divergences: np.ndarray
    expected: Mapping[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.text)

    def labelled(self, verifier: str) -> "Roots":
        """The roots that are labelled for a verifier, outside of text that repeats itself."""
        there = ~self.in_loop & ~np.isnan(self.expected[verifier]).any((1, 2))
        own = {name: getattr(self, name)[there] for name in NUMBERS}
        return Roots(**own, expected={name: tokens[there] for name, tokens in self.expected.items()})

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything by name, as a shard holds it."""
        own = {name: getattr(self, name) for name in NUMBERS}
        return {**own, **{f"expected_{name}": tokens for name, tokens in self.expected.items()}}


NUMBERS = ("text", "length", "in_loop", "target", "draft_previous", "draft_root", "divergences")


@dataclass
class RootData:
    """A folder of labelled roots.

    Attributes:
        belongs_to: the pair, the text and the plan that everything in it is for.
    """

    folder: Path
    plan: RootPlan
    belongs_to: Mapping[str, Any]
    _known: dict[Path, Roots] = field(default_factory=dict)

    def count(self, part: Part) -> int:
        """Texts of a part."""
        return self.plan.texts if part == "trained" else self.plan.held_out

    def shard(self, part: Part, number: int) -> Path:
        """Where the roots of a text are kept; it may not be there yet."""
        return self.folder / f"{part}-{number:05d}.npz"

    def read(self, part: Part) -> Roots:
        """All roots of a part.

        Raises:
            TrainingError: a shard is missing or damaged, or no text was long enough for a root.
        """
        found = [self._read(self.shard(part, number)) for number in range(self.count(part))]
        found = [roots for roots in found if len(roots)]
        if not found:
            raise TrainingError(f"No text in {self.folder} is long enough for a root: give longer prompts or a corpus.")
        expected = {name: np.concatenate([each.expected[name] for each in found]) for name in self.plan.verifiers}
        return Roots(**{name: np.concatenate([getattr(r, name) for r in found]) for name in NUMBERS}, expected=expected)

    def _read(self, file: Path) -> Roots:
        if file not in self._known:
            try:
                with np.load(file, allow_pickle=False) as arrays:
                    expected = {name: arrays[f"expected_{name}"] for name in self.plan.verifiers}
                    roots = Roots(**{name: arrays[name] for name in NUMBERS}, expected=expected)
            except FileNotFoundError:
                raise TrainingError(f"{file} is missing: resume, so that it is made again.") from None
            except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
                raise TrainingError(f"{file} is damaged ({error}): delete it and resume.") from None
            shape = (len(roots), len(self.plan.samplings), len(ACTIONS))
            if any(tokens.shape != shape for tokens in expected.values()):
                raise TrainingError(f"{file} is damaged (labels of another shape): delete it and resume.")
            self._known[file] = roots
        return self._known[file]


def open_data(folder: Path, pair: "Pair", plan: RootPlan, text_identity: str) -> RootData:
    """The labelled roots in a folder, which is begun where there is none.

    Args:
        text_identity: tells the text from others.

    Raises:
        TrainingError: what is there belongs to another pair, text or plan, or the folder cannot be written.
    """
    belongs_to = _belongs_to(pair, plan, text_identity)
    file = folder / MANIFEST
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        there = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if any(folder.iterdir()):
            raise TrainingError(f"{folder} holds other files: name an empty folder with --data.") from None
        write_whole(file, json.dumps(belongs_to, indent=1).encode())
        return RootData(folder, plan, belongs_to)
    except (OSError, ValueError) as error:
        raise TrainingError(f"{file} cannot be read ({error}): name another folder with --data.") from None
    other = next((name for name in belongs_to if name not in GROWS and there.get(name) != belongs_to[name]), None)
    if other is not None:
        raise TrainingError(
            f"{folder} holds roots of another {other} ({there.get(other)} instead of {belongs_to[other]}): name "
            "another folder with --data."
        )
    return RootData(folder, plan, belongs_to)


def data_folder(home: Path, pair: "Pair", plan: RootPlan, text_identity: str) -> Path:
    """The folder below `home` for a pair, a text and a plan; the number of texts does not matter."""
    what = json.dumps({**_belongs_to(pair, plan, text_identity), **dict.fromkeys(GROWS)}, sort_keys=True)
    return home / hashlib.sha256(what.encode()).hexdigest()[:12]


def _belongs_to(pair: "Pair", plan: RootPlan, text_identity: str) -> dict[str, Any]:
    from decoding.models.pair import pair_identity

    return {"version": VERSION, "pair": pair_identity(pair), "text": text_identity, **plan.to_json()}


def make_roots(
    data: RootData, pair: "Pair", texts: "Texts", report: Report, stopped: Callable[[], bool] = lambda: False,
    share: tuple[int, int] = (0, 1),
) -> bool:  # fmt: skip
    """Make the shards that are missing; False if somebody stopped it.

    Args:
        share: which of how many processes this is, each of which makes its own shards.

    Raises:
        TrainingError: the text is too short, or the disk is full.
    """
    from decoding.training.selectors.roots import roots_of

    shards: Sequence[tuple[Part, int]] = [(part, number) for part in PARTS for number in range(data.count(part))]
    for done, (part, number) in enumerate(shards):
        if stopped():
            return False
        file = data.shard(part, number)
        if number % share[1] == share[0] and not file.exists():
            report(done, len(shards))
            write_whole(file, _npz(roots_of(pair, texts, data.plan, part, number).arrays()))
    return True


def _npz(arrays: Mapping[str, np.ndarray]) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()
