"""Trained draft heads on disk: a folder each, with `head.json` and 6-bit weights in `head.safetensors`.

Those that come with the program lie in `decoding/heads/trained/NAME/`, a user's in `RUN/head/` below the folder of
trainings. A head is named by NAME or RUN, which is the value of the setting `draft_head`. Listing needs no torch.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoding.errors import DraftscopeError, PairError, SettingsError
from decoding.training.run_folder import training_home, write_whole

if TYPE_CHECKING:
    from decoding.heads.network import HeadNetwork

SHIPPED = Path(__file__).parent / "trained"
CARD, WEIGHTS = "head.json", "head.safetensors"
VERSION = 1
USUAL_WIDTH = 4  # of the trees that a target grows for TALF
LOSSES = {"talf": "TALF", "eagle": "EAGLE", "hass": "HASS"}
NAME = re.compile(r"[\w.-]{1,100}")  # what an address and a line of contestants can hold
# A file of 6-bit weights has less than a byte per weight, its scales and a header.
SPARE_BYTES = 1 << 20
MOST_SIZE = 1 << 20  # of a hidden vector, an MLP or a vocabulary


@dataclass(frozen=True)
class HeadCard:
    """What is known of a stored head before its weights are read.

    Attributes:
        name: value of the setting `draft_head`.
        loss: key of `LOSSES`.
        created: date and time of the training, ISO 8601.
        pair: `kept.pair_identity` of the pair it was trained for; only its target counts.
        config: settings of `HeadConfig` by name.
        figures: numbers of the training and of held-out text by name.
        shipped: whether it comes with the program.
    """

    name: str
    folder: Path
    loss: str
    created: str
    pair: Mapping[str, Any]
    config: Mapping[str, int | float]
    figures: Mapping[str, float]
    shipped: bool = False

    @property
    def label(self) -> str:
        """What lists and records call it: `TALF head`; one's own also tells when it was trained."""
        words = f"{self._kind} head"
        return words if self.shipped else f"{words}, {self.created[:16].replace('T', ' ')}"

    @property
    def words(self) -> str:
        """Loss, pair and date: `TALF head for Embedded pair, 2026-11-22`."""
        return f"{self._kind} head for {self.pair['name']}, {self.created[:10]}"

    @property
    def _kind(self) -> str:
        """The loss, with the width of the training trees where it is not the usual one: `TALF (top-2)`."""
        width = self.figures.get("top_k", USUAL_WIDTH)
        return LOSSES[self.loss] if width == USUAL_WIDTH else f"{LOSSES[self.loss]} (top-{width:.0f})"

    def stamp(self) -> int:
        """Changes when the weights do."""
        try:
            return (self.folder / WEIGHTS).stat().st_mtime_ns
        except OSError as error:
            raise _damaged(self.folder, f"{WEIGHTS}: {error.strerror}") from None


def all_heads() -> list[HeadCard]:
    """Every stored head that can be read: those of the program, then the user's, the latest first.

    A damaged one is left out; asking for it by name tells what is wrong with it.
    """
    found: dict[str, HeadCard] = {}
    for name, folder in _folders():
        try:
            found.setdefault(name, read_card(folder, name))
        except PairError:
            continue
    return sorted(found.values(), key=lambda card: (not card.shipped, _backwards(card.created), card.name))


def heads_for(identity: Mapping[str, Any]) -> list[HeadCard]:
    """Stored heads that fit a pair, given by its `kept.pair_identity`."""
    return [card for card in all_heads() if fits(card, identity)]


def find_head(name: str) -> HeadCard:
    """The stored head of a name.

    Raises:
        SettingsError: there is none.
        PairError: it is damaged.
    """
    folder = next((folder for known, folder in _folders() if known == name), None)
    if folder is None:
        known = ", ".join(card.name for card in all_heads())
        there = f"choose one of {known}, or leave it empty" if known else "leave it empty, or train one"
        raise SettingsError(f"draft_head is {str(name)[:100]!r}, and there is no such head: {there}.")
    return read_card(folder, name)


def head_label(name: str) -> str:
    """What lists call a head; its name where it is not here or damaged."""
    try:
        return find_head(name).label
    except DraftscopeError:
        return name


def fits(card: HeadCard, identity: Mapping[str, Any]) -> bool:
    """Whether a head was trained for the target of this pair; its draft does not matter."""
    mine, theirs = card.pair["target"], identity["target"]
    same = all(mine[name] == theirs[name] for name in ("parameters", "layers", "vocab_size"))
    # A target computed in fewer bits than it was trained with differs in its last digits.
    return same and math.isclose(float(mine["weights"]), float(theirs["weights"]), rel_tol=1e-3)


def require_fit(card: HeadCard, identity: Mapping[str, Any]) -> None:
    """Raise `PairError` where a head was trained for another target."""
    if not fits(card, identity):
        target, other = card.pair["target"]["name"], identity["target"]["name"]
        another = "another target of that name" if target == other else target
        raise PairError(
            f"The draft head {card.name} was trained for {another}, and {other} is loaded: load its pair, or choose "
            "another draft."
        )


def save_head(
    folder: Path,
    network: "HeadNetwork",
    loss: str,
    pair: Mapping[str, Any],
    created: str,
    figures: Mapping[str, float],
) -> None:
    """Store a head; a head that was there is replaced, each file whole.

    Args:
        folder: such as `RUN/head`; made if need be.
        pair: `kept.pair_identity` of the pair it was trained for.

    Raises:
        TrainingError: the weights are no numbers, or the disk does not take them.
    """
    from decoding.packed_weights import packed_bytes
    from decoding.training.run_folder import disk_errors

    weights = packed_bytes(network.state_dict())
    card = {
        "version": VERSION,
        "loss": loss,
        "created": created,
        "pair": dict(pair),
        "config": network.config.to_json(),
        "figures": dict(figures),
    }
    text = json.dumps(card, indent=1, allow_nan=False)
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / WEIGHTS, weights)
    write_whole(folder / CARD, text.encode())  # last: a head is there once its card is


def read_card(folder: Path, name: str) -> HeadCard:
    """What `head.json` in a folder says.

    Raises:
        PairError: it is damaged.
    """
    try:
        content = json.loads((folder / CARD).read_bytes()[:SPARE_BYTES])
        card = HeadCard(
            name=name,
            folder=folder,
            loss=content["loss"],
            created=_text(content["created"]),
            pair=content["pair"],
            config=content["config"],
            figures={_text(key): float(value) for key, value in content["figures"].items()},
            shipped=folder.parent == SHIPPED,
        )
        _check(card, content["version"])
    except OSError as error:
        raise _damaged(folder, f"{CARD}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        raise _damaged(folder, f"{CARD} is no description of a head") from None
    return card


def load_network(card: HeadCard) -> "HeadNetwork":
    """The trained network of a head, float32 on the CPU.

    Raises:
        PairError: its weights are damaged or are not those that its card tells of.
    """
    import torch

    from decoding.heads.network import HeadConfig, HeadNetwork
    from decoding.packed_weights import load_packed

    try:
        config = HeadConfig(**card.config)
        size = (card.folder / WEIGHTS).stat().st_size
        if size > config.parameters + SPARE_BYTES:
            raise _damaged(card.folder, f"{WEIGHTS} holds {size:,} bytes for {config.parameters:,} weights")
        state = load_packed(card.folder / WEIGHTS)
        network = HeadNetwork(config)
        network.load_state_dict(state)
    except OSError as error:
        raise _damaged(card.folder, f"{WEIGHTS}: {error.strerror}") from None
    except PairError:
        raise
    except DraftscopeError as error:
        raise PairError(str(error)) from None
    except (RuntimeError, TypeError):
        raise _damaged(card.folder, f"the weights are not those that {CARD} tells of") from None
    if not all(torch.isfinite(weight).all() for weight in state.values()):
        raise _damaged(card.folder, f"{WEIGHTS} holds weights that are no numbers")
    return network


def weights_digest(card: HeadCard) -> str:
    """A short digest of a head's weights, which tells it from others of its shape."""
    return sha256((card.folder / WEIGHTS).read_bytes()).hexdigest()[:12]


def _folders() -> list[tuple[str, Path]]:
    """Name and folder of every stored head, the program's first."""
    shipped = [(file.parent.name, file.parent) for file in sorted(SHIPPED.glob(f"*/{CARD}"))]
    own = [(file.parent.parent.name, file.parent) for file in sorted(training_home().glob(f"*/head/{CARD}"))]
    return [(name, folder) for name, folder in (*shipped, *own) if NAME.fullmatch(name)]


def _check(card: HeadCard, version: Any) -> None:
    """Raise `ValueError` or `KeyError` where a card cannot be that of a head."""
    target = card.pair["target"]
    _text(card.pair["name"]), _text(target["name"])
    counts = [target[name] for name in ("parameters", "layers", "vocab_size")]
    if version != VERSION or card.loss not in LOSSES or not all(type(count) is int for count in counts):
        raise ValueError
    sizes = [value for name, value in card.config.items() if name not in ("rope_theta", "norm_eps")]
    if not all(type(size) is int and 0 < size <= MOST_SIZE for size in sizes):
        raise ValueError
    float(target["weights"])


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 500:
        raise ValueError
    return value


def _backwards(text: str) -> tuple[int, ...]:
    """Sorts texts from last to first."""
    return tuple(-ord(sign) for sign in text)


def _damaged(folder: Path, what: str) -> PairError:
    return PairError(f"The draft head in {folder} is damaged ({what}): train it again, or choose another draft.")
