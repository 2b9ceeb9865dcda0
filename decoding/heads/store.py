"""Trained draft heads on disk, as `trained_store` keeps them: `head.json` and `head.safetensors.xz` each."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoding.common.errors import DraftscopeError, require
from decoding.common.trained_store import Kind, check_models, count_of, number_of, same_model, text_of

if TYPE_CHECKING:
    from decoding.heads.network import HeadNetwork

SHIPPED = Path(__file__).parent / "trained"
EQUAL_TIME, SAME_WINDOWS = "equal_time.json", "same_windows.json"  # in `SHIPPED`: see `equal_time`, `same_windows`
HEADS = Kind("draft head", "draft_head", "head", "choose another draft")
VERSION = 1
LOSSES = {"talf": "TALF", "eagle": "EAGLE", "hass": "HASS"}
USUAL_WIDTH = 4  # of the trees that a target grows for TALF
MOST_FREQUENT = 2048  # tokens that a card lists
MOST_SIZE = 1 << 20  # of a hidden vector, an MLP or a vocabulary


@dataclass(frozen=True)
class HeadCard:
    """What is known of a stored head before its weights are read.

    Attributes:
        name: value of the setting `draft_head`.
        loss: key of `LOSSES`.
        created: date and time of the training, ISO 8601.
        pair: `pair_identity` of the pair it was trained for; only its target counts.
        config: settings of `HeadConfig` by name.
        figures: numbers of the training and of held-out text by name.
        shipped: whether it comes with the program.
        frequent: ids of the most frequent tokens of the text that it was trained on, the most frequent first.
        tokens: how many of these alone it drafts; 0: every token. Not stored: `draft_head` asks for it after the name.
    """

    name: str
    folder: Path
    loss: str
    created: str
    pair: Mapping[str, Any]
    config: Mapping[str, Any]
    figures: Mapping[str, float]
    shipped: bool = False
    frequent: tuple[int, ...] = ()
    tokens: int = 0

    @property
    def label(self) -> str:
        """What lists and records call it: `TALF head`; one's own also tells when it was trained."""
        return self._noun if self.shipped else f"{self._noun}, {self.created[:16].replace('T', ' ')}"

    @property
    def words(self) -> str:
        """Loss, pair and date: `TALF head for Embedded pair, 2026-11-22`."""
        return f"{self._noun} for {self.pair['name']}, {self.created[:10]}"

    @property
    def _noun(self) -> str:
        """`TALF head`, `TALF head over 1,000 tokens`."""
        return f"{self._kind} head" + (f" over {self.tokens:,} tokens" if self.tokens else "")

    @property
    def _kind(self) -> str:
        """The loss, with the width of the training trees where it is not the usual one: `TALF (top-2)`."""
        width = self.figures.get("top_k", USUAL_WIDTH)
        return LOSSES[self.loss] if width == USUAL_WIDTH else f"{LOSSES[self.loss]} (top-{width:.0f})"


def all_heads() -> list[HeadCard]:
    """Every stored head that can be read: those of the program, then the user's, the latest first."""

    def place(card: HeadCard) -> tuple[int, int, float]:
        """Those of the program by loss and by width of their training trees, the usual one first; then all others."""
        if not card.shipped:
            return 1, 0, 0.0
        width = card.figures.get("top_k", USUAL_WIDTH)
        return 0, list(LOSSES).index(card.loss), 0.0 if width == USUAL_WIDTH else width

    return sorted(HEADS.all(SHIPPED, read_card), key=place)


def find_head(name: str) -> HeadCard:
    """The stored head of a name, such as `talf`, or `talf@1000` for one that drafts the 1,000 most frequent tokens.

    Raises:
        SettingsError: there is none, or what is after the `@` is no number of its tokens.
        PairError: it is damaged.
    """
    stored, at, count = name.partition("@")
    card = HEADS.find(stored, SHIPPED, read_card)
    if not at:
        return card
    require(
        bool(card.frequent),
        f"The head {stored} was stored without its most frequent tokens: write {stored} alone, or train one of another "
        "name.",
    )
    require(
        count.isdecimal() and len(count) < 8 and 1 <= int(count) <= len(card.frequent),
        f"{name} must have a number of tokens from 1 to {len(card.frequent):,} behind the @, such as {stored}@1000.",
    )
    return replace(card, name=name, tokens=int(count))


def head_label(name: str) -> str:
    """What lists call a head; its name where it is not here or damaged."""
    try:
        return find_head(name).label
    except DraftscopeError:
        return name


def fits(card: HeadCard, identity: Mapping[str, Any]) -> bool:
    """Whether a head was trained for the target of this pair, or for what it holds copies of; any draft will do."""
    return same_model(card.pair["target"], identity["target"]) or copies_of(card, identity) > 1


def copies_of(card: HeadCard, identity: Mapping[str, Any]) -> int:
    """How many times the target of this pair holds the features of the one that a head was trained for."""
    narrow = identity["target"].get("widened_from")
    return narrow["copies"] if narrow is not None and same_model(card.pair["target"], narrow) else 1


def require_fit(card: HeadCard, identity: Mapping[str, Any]) -> None:
    """Raise `PairError` where a head was trained for another target."""
    if not fits(card, identity):
        raise HEADS.unfit(card.name, card.pair["target"]["name"], identity["target"]["name"])


def save_head(
    folder: Path,
    network: "HeadNetwork",
    loss: str,
    pair: Mapping[str, Any],
    created: str,
    figures: Mapping[str, float],
    frequent: Sequence[int] = (),
) -> None:
    """Store a head, for the target of a `pair_identity`, in a folder such as `RUN/head`, as `Kind.save` does."""
    card = {
        "version": VERSION,
        "loss": loss,
        "created": created,
        "pair": dict(pair),
        "config": vars(network.config),
        "figures": dict(figures),
        "frequent": " ".join(map(str, frequent)),  # one line instead of thousands
    }
    HEADS.save(folder, network.state_dict(), card)


def equal_time(target: Mapping[str, Any], shipped: Path = SHIPPED) -> dict[str, Any] | None:
    """What heads reach that trained for equal times, as `head_suite` stored it; None where it did not for this target.

    `minutes` each, `created` (a day), `hardware`, and by name in `heads` the figures of each, and of the `base` that
    they go on from. `target` is that of a card's `pair`.
    """
    found = _kept(shipped / EQUAL_TIME)
    return found if found.get("target_weights") == target["weights"] else None


def same_windows(cards: Iterable[HeadCard], shipped: Path = SHIPPED) -> dict[str, Any] | None:
    """What heads reach on the same held-out windows, as `head_suite` stored it; None where a head was not among them.

    `asked_windows`, `created` (a day), and by name in `heads` what `head_comparison.compared` found and when it was
    `trained`.
    """
    found = _kept(shipped / SAME_WINDOWS)
    known = {name: figures["trained"] for name, figures in found.get("heads", {}).items()}
    return found if all(known.get(card.name) == card.created for card in cards) else None


def _kept(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def read_card(folder: Path, name: str) -> HeadCard:
    """What `head.json` in a folder says; `PairError` where it is damaged."""

    def card_of(content: Mapping[str, Any]) -> HeadCard:
        check_models(content["pair"], ("target",))
        if content["version"] != VERSION or content["loss"] not in LOSSES:
            raise ValueError
        sizes = [value for key, value in content["config"].items() if key not in ("rope_theta", "norm_eps")]
        if not all(0 < count_of(size) <= MOST_SIZE for size in sizes):
            raise ValueError
        return HeadCard(
            name=name,
            folder=folder,
            loss=content["loss"],
            created=text_of(content["created"]),
            pair=content["pair"],
            config=content["config"],
            figures={text_of(key): number_of(value) for key, value in content["figures"].items()},
            shipped=folder.parent == SHIPPED,
            frequent=_ids(content.get("frequent", ""), content["config"]["vocab_size"]),
        )

    return HEADS.read(folder, card_of)


def _ids(text: str, vocab_size: int) -> tuple[int, ...]:
    """Token ids of a card, none twice; `ValueError` where they are not."""
    ids = tuple(int(number) for number in text.split())
    if len(set(ids)) != len(ids) or not all(0 <= number < vocab_size for number in ids):
        raise ValueError
    return ids


def load_network(card: HeadCard) -> "HeadNetwork":
    """The trained network of a head, as `Kind.load` gives it."""
    from decoding.heads.network import HeadConfig, HeadNetwork

    return HEADS.load(card.folder, lambda: HeadNetwork(HeadConfig(**card.config)))
