"""Trained networks on disk, a folder each: a card in JSON and weights in 6 bits. What draft heads and selectors share.

Those that come with the program lie in a folder of the program, a user's in `RUN/KIND/` below the folder of trainings.
One is named by its folder or by RUN, which is the value of a setting. Listing needs no torch.

Of weights in 6 bits each row of a matrix is whole numbers from -31 to 31 and one float16 scale: a matrix `w` becomes
`w`, int8 of its shape, and `w.scale`, float16 `[rows]`; vectors and numbers stay float32. They are kept as safetensors
in xz, which finds that two bits of eight are empty and that small numbers are the usual ones.
"""

import hashlib
import json
import lzma
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import msgspec
from msgspec import Meta, ValidationError

from decoding.common.errors import PairError, SettingsError, TrainingError
from decoding.common.files import training_home, write_whole

if TYPE_CHECKING:
    from torch import Tensor, nn

    N = TypeVar("N", bound=nn.Module)

NAME = re.compile(r"[\w.-]{1,100}")  # what an address and a line of contestants can hold
MOST_CARD_BYTES = 1 << 20
SPARE_BYTES = 1 << 20  # of a file of weights: its header
SCALE = ".scale"
LARGEST = 31
SCALE_STEPS = 64  # a scale of 6 bits times a number of 5 has the 11 bits of float16, whose products are the faster ones


class NetworkCard(Protocol):
    """What is known of a stored network before its weights are read."""

    @property
    def name(self) -> str: ...

    @property
    def created(self) -> str: ...

    @property
    def shipped(self) -> bool: ...


C = TypeVar("C", bound=NetworkCard)


# A text, a whole number and a finite number of a card; `ValidationError` where a value is none.
text_of = partial(msgspec.convert, type=Annotated[str, Meta(max_length=500)])
count_of = partial(msgspec.convert, type=int)
number_of = partial(msgspec.convert, type=Annotated[float, Meta(ge=-1e308, le=1e308)])


def check_models(pair: Mapping[str, Any], roles: Sequence[str]) -> None:
    """Raise `ValidationError` or `KeyError` where a card does not describe models as `pair_identity` does."""
    text_of(pair["name"])
    for model in (pair[role] for role in roles):
        text_of(model["name"]), text_of(model["weights"])
        [count_of(model[name]) for name in ("parameters", "layers", "vocab_size")]


def same_model(mine: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two models of `pair_identity` are the same, whatever they are called."""
    if any(mine[name] != other[name] for name in ("parameters", "layers", "vocab_size")):
        return False
    try:  # a model computed in fewer bits than it was trained with differs in its last digits
        return mine["weights"] == other["weights"] or math.isclose(
            float(mine["weights"]), float(other["weights"]), rel_tol=1e-3
        )
    except ValueError:  # a draft head's digest
        return False


@dataclass(frozen=True)
class Kind:
    """A kind of trained network."""

    noun: str  # what sentences call it
    setting: str  # of a method, names one
    folder: str  # that it has below a run; also begins the names of its files
    otherwise: str  # what to do without it
    ending: str = "safetensors.xz"  # of the file of its weights
    made: str = "train"  # how one comes about
    made_for: str = "trained for"  # between it and its target or pair

    @property
    def card(self) -> str:
        """Name of the file that describes one."""
        return f"{self.folder}.json"

    @property
    def weights(self) -> str:
        """Name of the file of its weights."""
        return f"{self.folder}.{self.ending}"

    def stored(self, shipped: Path) -> list[tuple[str, Path]]:
        """Name and folder of every one, first those of the program, which lie in `shipped`."""
        mine = sorted(training_home().glob(f"*/{self.folder}/{self.card}"))
        found = [(file.parent.name, file.parent) for file in sorted(shipped.glob(f"*/{self.card}"))]
        found += [(file.parent.parent.name, file.parent) for file in mine]
        return [(name, folder) for name, folder in found if NAME.fullmatch(name)]

    def all(self, shipped: Path, read_card: Callable[[Path, str], C]) -> list[C]:
        """Every one that can be read: those of the program, then the user's, the latest first.

        A damaged one is left out; asking for it by name tells what is wrong with it.
        """
        found: dict[str, C] = {}
        for name, folder in self.stored(shipped):
            try:
                found.setdefault(name, read_card(folder, name))
            except PairError:
                continue
        by_name = sorted(found.values(), key=lambda card: card.name)
        latest = sorted(by_name, key=lambda card: card.created, reverse=True)
        return sorted(latest, key=lambda card: not card.shipped)

    def find(self, name: str, shipped: Path, read_card: Callable[[Path, str], C]) -> C:
        """The one of a name; raises `SettingsError` where there is none; `PairError` where it is damaged."""
        folder = next((folder for known, folder in self.stored(shipped) if known == name), None)
        if folder is not None:
            return read_card(folder, name)
        known = ", ".join(card.name for card in self.all(shipped, read_card))
        there = f"choose one of {known}, or leave it empty" if known else f"leave it empty, or {self.made} one"
        raise SettingsError(f"There is no {self.noun} {str(name)[:100]!r} for {self.setting}: {there}.")

    def read(self, folder: Path, made_of: Callable[[Mapping[str, Any]], Any]) -> Any:
        """The card of a folder, made of what its file holds; raises `PairError` where it is damaged."""
        try:
            with (folder / self.card).open("rb") as file:
                return made_of(json.loads(file.read(MOST_CARD_BYTES)))
        except OSError as error:
            raise self.damaged(folder, f"{self.card}: {error.strerror}") from None
        except (ValidationError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
            raise self.damaged(folder, f"{self.card} does not describe a {self.noun}") from None

    def save(self, folder: Path, state: "Mapping[str, Tensor]", card: Mapping[str, Any]) -> None:
        """Store one; one that was there is replaced, each file whole.

        Raises `TrainingError` where the weights are no numbers; `DiskError` where the disk does not take them.
        """
        weights, text = packed_bytes(state), json.dumps(card, indent=1, allow_nan=False)
        write_whole(folder / self.weights, weights)
        write_whole(folder / self.card, text.encode())  # last: it is there once its card is

    def load(self, folder: Path, build: "Callable[[], N]") -> "N":
        """The network of a folder with its trained weights, float32 on the CPU.

        Raises `PairError` where they are damaged or not those of such a network.
        """
        import torch

        try:
            with torch.device("meta"):
                network = build()
            most = 4 * sum(w.numel() for w in network.parameters()) + SPARE_BYTES
            size = (folder / self.weights).stat().st_size
            if size > most:
                raise self.damaged(folder, f"{self.weights} has {size:,} bytes, and its network needs at most {most:,}")
            state = load_packed(folder / self.weights, most)
            network.load_state_dict(state, assign=True)
        except OSError as error:
            raise self.damaged(folder, f"{self.weights}: {error.strerror}") from None
        except (RuntimeError, TypeError, KeyError):
            raise self.damaged(folder, f"the weights do not match {self.card}") from None
        if not all(torch.isfinite(weight).all() for weight in state.values()):
            raise self.damaged(folder, f"{self.weights} contains weights that are not numbers")
        return network

    def stamp(self, folder: Path) -> int:
        """Changes when the weights do."""
        try:
            return (folder / self.weights).stat().st_mtime_ns
        except OSError as error:
            raise self.damaged(folder, f"{self.weights}: {error.strerror}") from None

    def digest(self, folder: Path) -> str:
        """Tells its weights from all others, on every machine; raises `PairError` where they cannot be read."""
        try:
            return hashlib.sha256((folder / self.weights).read_bytes()).hexdigest()[:12]
        except OSError as error:
            raise self.damaged(folder, f"{self.weights}: {error.strerror}") from None

    def unfit(self, name: str, own: str, loaded: str, what: str = "target") -> PairError:
        """The sentence about one that is for another target, or another `what`, than the one that is loaded."""
        other = f"another {what} with that name" if own == loaded else own
        return PairError(
            f"The {self.noun} {name} was {self.made_for} {other}, and {loaded} is loaded: load its pair, or "
            f"{self.otherwise}."
        )

    def damaged(self, folder: Path, what: str) -> PairError:
        """The sentence about one that cannot be used."""
        return PairError(f"The {self.noun} in {folder} is damaged ({what}): {self.made} it again, or {self.otherwise}.")


def pack(state: "Mapping[str, Tensor]") -> "dict[str, Tensor]":
    """A state dict of floating-point tensors in 6 bits; 0 stays 0, and float16 holds every matrix that comes of it.

    Raises `TrainingError` where a weight is no finite number, or too large for float16.
    """
    import torch

    packed: dict[str, Tensor] = {}
    for name, weight in state.items():
        weight = weight.detach().float().cpu()
        if not torch.isfinite(weight).all() or weight.abs().max() > torch.finfo(torch.float16).max:
            raise TrainingError(f"The weights {name} are nan or too large: train again with a lower --learning-rate.")
        if weight.dim() < 2:
            packed[name] = weight.contiguous()
            continue
        rows = weight.flatten(1)
        mantissa, exponent = torch.frexp(rows.abs().amax(1) / LARGEST)
        scale = torch.ldexp((mantissa * SCALE_STEPS).round() / SCALE_STEPS, exponent).half()
        # A row too small for float16 becomes 0: dividing by its scale would not.
        steps = torch.where(scale > 0, scale.float(), torch.inf)
        whole = (rows / steps[:, None]).round().clamp(-LARGEST, LARGEST)
        packed[name], packed[name + SCALE] = whole.to(torch.int8).view(weight.shape), scale
    return packed


def unpack(packed: "Mapping[str, Tensor]") -> "dict[str, Tensor]":
    """The state dict in float32, as `pack` was given it but for rounding.

    Raises `PairError` where a matrix has no scale for each of its rows.
    """
    import torch

    matrices = {name for name in packed if packed[name].dim() > 1}
    state: dict[str, Tensor] = {}
    for name, weight in packed.items():
        if name in matrices:
            scale = packed.get(name + SCALE)
            if scale is None or weight.dtype != torch.int8 or scale.shape != weight.shape[:1]:
                raise PairError(f"The weights {name} have no scale for each row: download the file again.")
            state[name] = (weight.flatten(1) * scale.float()[:, None]).view(weight.shape)
        elif name.removesuffix(SCALE) not in matrices:
            state[name] = weight.float()
    return state


def rounded(state: "Mapping[str, Tensor]") -> "dict[str, Tensor]":
    """A state dict as it will be read back after it was packed: what is shipped is what should be measured."""
    return unpack(pack(state))


def packed_bytes(state: "Mapping[str, Tensor]") -> bytes:
    """The content of a file of packed weights; the same weights give the same bytes."""
    from safetensors.torch import save

    return lzma.compress(save(pack(state)))


def load_packed(file: Path, most_bytes: int) -> "dict[str, Tensor]":
    """The state dict in a file that `packed_bytes` made, float32 on the CPU; nothing in the file is run.

    Raises `OSError` where the file cannot be read; `PairError` where it is damaged or takes more than `most_bytes`.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    content, unpacking = file.read_bytes(), lzma.LZMADecompressor()
    try:
        whole = unpacking.decompress(content, most_bytes)
        if not unpacking.eof:
            raise lzma.LZMAError("it ends too early" if unpacking.needs_input else "it is too large")
        return unpack(load(whole))
    except (lzma.LZMAError, SafetensorError) as error:
        raise PairError(f"{file} is damaged ({error}): download it again or train again.") from None
