"""Trained selectors on disk, as `trained_store` keeps them: `selector.json` and `selector.safetensors.xz` each."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoding.common.errors import PairError, SettingsError
from decoding.common.trained_store import Kind
from decoding.selector.card import SelectorCard, card_as_json, card_from_json

if TYPE_CHECKING:
    from decoding.selector.network import SelectorNetwork

SHIPPED = Path(__file__).parent / "trained"
SELECTORS = Kind("selector", "selector", "selector", "leave selector empty")


def all_selectors() -> list[SelectorCard]:
    """Every stored selector that can be read: those of the program, then the user's, the latest first."""
    return SELECTORS.all(SHIPPED, read_card)


def selectors_for(identity: Mapping[str, Any], verifier: str | None = None) -> list[SelectorCard]:
    """Stored selectors that fit a pair, given by its `pair_identity`, and a verifier."""
    return [card for card in all_selectors() if fits(card, identity) and verifier in (None, card.verifier)]


def find_selector(name: str) -> SelectorCard:
    """The stored selector of a name.

    Raises:
        SettingsError: there is none.
        PairError: it is damaged.
    """
    return SELECTORS.find(name, SHIPPED, read_card)


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
        TrainingError: the weights are no numbers.
        DiskError: the disk does not take them.
    """
    SELECTORS.save(folder, network.state_dict(), card_as_json(vars(network.config), content))


def read_card(folder: Path, name: str) -> SelectorCard:
    """What `selector.json` in a folder says.

    Raises:
        PairError: it is damaged.
    """
    return SELECTORS.read(folder, lambda content: card_from_json(content, name, folder, folder.parent == SHIPPED))


def load_network(card: SelectorCard) -> "SelectorNetwork":
    """The trained network of a selector, float32 on the CPU, ready to be asked.

    Raises:
        PairError: its weights are damaged or are not those that its card tells of.
    """
    from decoding.selector.network import SelectorConfig, SelectorNetwork

    config = {**card.config, "hidden": tuple(card.config["hidden"])}
    return SELECTORS.load(card.folder, lambda: SelectorNetwork(SelectorConfig(**config))).eval().requires_grad_(False)
