"""Trained selectors on disk: a folder each, with `selector.json` and 6-bit weights in `selector.safetensors`.

Those that come with the program lie in `decoding/selector/trained/NAME/`, a user's in `RUN/selector/` below the folder
of trainings. A selector is named by NAME or RUN, which is the value of the setting `selector`. Listing needs no torch.
"""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoding.errors import DraftscopeError, PairError, SettingsError
from decoding.selector.card import SelectorCard, card_as_json, card_from_json
from decoding.training.run_folder import training_home, write_whole

if TYPE_CHECKING:
    from decoding.selector.network import SelectorNetwork

SHIPPED = Path(__file__).parent / "trained"
CARD, WEIGHTS = "selector.json", "selector.safetensors"
NAME = re.compile(r"[\w.-]{1,100}")  # what an address and a line of contestants can hold
MOST_CARD_BYTES, MOST_WEIGHT_BYTES = 1 << 20, 1 << 26


def all_selectors() -> list[SelectorCard]:
    """Every stored selector that can be read: those of the program, then the user's, the latest first.

    A damaged one is left out; asking for it by name tells what is wrong with it.
    """
    found: dict[str, SelectorCard] = {}
    for name, folder in _folders():
        try:
            found.setdefault(name, read_card(folder, name))
        except PairError:
            continue
    latest = sorted(found.values(), key=lambda card: (card.created, card.name), reverse=True)
    return sorted(latest, key=lambda card: not card.shipped)


def selectors_for(identity: Mapping[str, Any], verifier: str | None = None) -> list[SelectorCard]:
    """Stored selectors that fit a pair, given by its `kept.pair_identity`, and a verifier."""
    return [card for card in all_selectors() if fits(card, identity) and verifier in (None, card.verifier)]


def find_selector(name: str) -> SelectorCard:
    """The stored selector of a name.

    Raises:
        SettingsError: there is none.
        PairError: it is damaged.
    """
    folder = next((folder for known, folder in _folders() if known == name), None)
    if folder is None:
        known = ", ".join(card.name for card in all_selectors())
        there = f"choose one of {known}, or leave it empty" if known else "leave it empty, or train one"
        raise SettingsError(f"selector is {str(name)[:100]!r}, and there is no such selector: {there}.")
    return read_card(folder, name)


def fits(card: SelectorCard, identity: Mapping[str, Any]) -> bool:
    """Whether a selector was trained for this pair; what its models are called does not matter."""
    for role in ("target", "draft"):
        mine, theirs = card.pair[role], identity[role]
        if any(mine[name] != theirs[name] for name in ("parameters", "layers", "vocab_size")):
            return False
        if mine["weights"] == theirs["weights"]:
            continue
        try:  # a model computed in fewer bits than it was trained with differs in its last digits
            if not math.isclose(float(mine["weights"]), float(theirs["weights"]), rel_tol=1e-3):
                return False
        except ValueError:  # a draft head's digest
            return False
    return True


def require_fit(card: SelectorCard, identity: Mapping[str, Any]) -> None:
    """Raise `PairError` where a selector was trained for another pair."""
    if not fits(card, identity):
        names = [
            f"{pair['name']} ({pair['target']['name']}, {pair['draft']['name']})" for pair in (card.pair, identity)
        ]
        other = "another pair of that name" if names[0] == names[1] else names[0]
        raise PairError(
            f"The selector {card.name} was trained for {other}, and {names[1]} drafts here: load its pair, or leave "
            "selector empty."
        )


def require_verifier(name: str, trained_for: str, verifier: str) -> None:
    """Raise `SettingsError` where a selector was trained for another verifier."""
    if trained_for != verifier:
        raise SettingsError(
            f"The selector {name} was trained for the verifier {trained_for}, not {verifier}: choose that verifier, or "
            "another selector."
        )


def save_selector(folder: Path, network: "SelectorNetwork", content: Mapping[str, Any]) -> None:
    """Store a selector; one that was there is replaced, each file whole.

    Args:
        folder: such as `RUN/selector`; made if need be.
        content: the fields of `SelectorCard` from `verifier` to `figures`, without `config`.

    Raises:
        TrainingError: the weights are no numbers, or the disk does not take them.
    """
    from decoding.packed_weights import packed_bytes
    from decoding.training.run_folder import disk_errors

    weights = packed_bytes(network.state_dict())
    text = json.dumps(card_as_json(vars(network.config), content), indent=1, allow_nan=False)
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / WEIGHTS, weights)
    write_whole(folder / CARD, text.encode())  # last: a selector is there once its card is


def read_card(folder: Path, name: str) -> SelectorCard:
    """What `selector.json` in a folder says.

    Raises:
        PairError: it is damaged.
    """
    try:
        with (folder / CARD).open("rb") as file:
            content = json.loads(file.read(MOST_CARD_BYTES))
        return card_from_json(content, name, folder, shipped=folder.parent == SHIPPED)
    except OSError as error:
        raise damaged(folder, f"{CARD}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        raise damaged(folder, f"{CARD} is no description of a selector") from None


def load_network(card: SelectorCard) -> "SelectorNetwork":
    """The trained network of a selector, float32 on the CPU, ready to be asked.

    Raises:
        PairError: its weights are damaged or are not those that its card tells of.
    """
    import torch

    from decoding.packed_weights import load_packed
    from decoding.selector.network import SelectorConfig, SelectorNetwork

    try:
        if (card.folder / WEIGHTS).stat().st_size > MOST_WEIGHT_BYTES:
            raise damaged(card.folder, f"{WEIGHTS} is too large")
        state = load_packed(card.folder / WEIGHTS)
        network = SelectorNetwork(SelectorConfig(**{**card.config, "hidden": tuple(card.config["hidden"])}))
        network.load_state_dict(state)
    except OSError as error:
        raise damaged(card.folder, f"{WEIGHTS}: {error.strerror}") from None
    except PairError:
        raise
    except DraftscopeError as error:
        raise PairError(str(error)) from None
    except (RuntimeError, TypeError, KeyError):
        raise damaged(card.folder, f"the weights are not those that {CARD} tells of") from None
    if not all(torch.isfinite(weight).all() for weight in state.values()):
        raise damaged(card.folder, f"{WEIGHTS} holds weights that are no numbers")
    return network.eval().requires_grad_(False)


def damaged(folder: Path, what: str) -> PairError:
    """The sentence about a selector that cannot be used."""
    return PairError(f"The selector in {folder} is damaged ({what}): train it again, or leave selector empty.")


def _folders() -> list[tuple[str, Path]]:
    """Name and folder of every stored selector, the program's first."""
    shipped = [(file.parent.name, file.parent) for file in sorted(SHIPPED.glob(f"*/{CARD}"))]
    own = [(file.parent.parent.name, file.parent) for file in sorted(training_home().glob(f"*/selector/{CARD}"))]
    return [(name, folder) for name, folder in (*shipped, *own) if NAME.fullmatch(name)]
