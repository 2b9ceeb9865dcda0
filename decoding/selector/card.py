"""What is known of a stored selector before its weights are read: its card, `selector.json`. Torch-free."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decoding.selector.actions import ACTIONS, SCALARS, Action

VERSION = 1
SAMPLED = ("temperature", "top_p", "draft_temperature")
STATICS = ("action", "most_tokens", "root_action", "root_most_tokens")
MOST_SIZE = 1 << 20  # of a hidden vector


@dataclass(frozen=True)
class Static:
    """The best actions that are the same at every root, chosen on training roots.

    Attributes:
        temperature, top_p, draft_temperature: the sampling they are the best for.
        action: by modelled tokens per second. most_tokens: by tokens per pass.
        root_action, root_most_tokens: the same among trees that branch at the root, i.i.d. paths without a trunk.
    """

    temperature: float
    top_p: float
    draft_temperature: float
    action: Action
    most_tokens: Action
    root_action: Action
    root_most_tokens: Action

    def as_json(self) -> dict[str, Any]:
        """The record as JSON holds it."""
        return {
            **{name: getattr(self, name) for name in SAMPLED},
            **{name: list(getattr(self, name)) for name in STATICS},
        }

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> "Static":
        """The record that `as_json` wrote.

        Raises:
            ValueError, KeyError, TypeError: it is damaged.
        """
        actions = [Action(*map(_whole, content[name])) for name in STATICS]
        if any(action not in ACTIONS for action in actions):
            raise ValueError
        return Static(*(_number(content[name]) for name in SAMPLED), *actions)


@dataclass(frozen=True)
class SelectorCard:
    """What is known of a stored selector before its weights are read.

    Attributes:
        name: value of the setting `selector`.
        verifier: whose expected tokens it was trained on.
        created: date and time of the training, ISO 8601.
        pair: `pair_identity` of the pair it was trained for.
        config: settings of `SelectorConfig` by name.
        mean, spread: of each scalar, as `network.Scaler` takes them.
        statics: the samplings it has seen, with the best static action under each.
        latency: `LatencyModel.as_json` of the machine it was trained for.
        way: how that was counted, one of `latency.WAYS`.
        figures: numbers of the training and of held-out roots by name.
        shipped: whether it comes with the program.
    """

    name: str
    folder: Path
    verifier: str
    created: str
    pair: Mapping[str, Any]
    config: Mapping[str, Any]
    mean: tuple[float, ...]
    spread: tuple[float, ...]
    statics: tuple[Static, ...]
    latency: Mapping[str, Any]
    way: str
    figures: Mapping[str, float]
    shipped: bool = False

    @property
    def words(self) -> str:
        """Verifier, pair and date: `Selector for specinfer, Embedded pair, 2026-11-22`."""
        return f"Selector for {self.verifier}, {self.pair['name']}, {self.created[:10]}"

    def static(self, temperature: float, top_p: float) -> Static:
        """The best static action at the sampling seen that is nearest to this one."""
        return min(self.statics, key=lambda s: (abs(s.top_p - top_p), abs(s.temperature - temperature)))


def card_from_json(content: Mapping[str, Any], name: str, folder: Path, shipped: bool) -> SelectorCard:
    """The card that `card_as_json` wrote.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: it is damaged.
    """
    if content["version"] != VERSION or content["actions"] != len(ACTIONS):
        raise ValueError
    card = SelectorCard(
        name=name,
        folder=folder,
        verifier=_text(content["verifier"]),
        created=_text(content["created"]),
        pair=content["pair"],
        config=content["config"],
        mean=_numbers(content["mean"]),
        spread=_numbers(content["spread"]),
        statics=tuple(Static.from_json(entry) for entry in content["statics"]),
        latency=content["latency"],
        way=_text(content["way"]),
        figures={_text(key): _number(value) for key, value in content["figures"].items()},
        shipped=shipped,
    )
    _check(card)
    return card


def card_as_json(config: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """What `selector.json` holds.

    Args:
        config: settings of the network.
        content: fields of `SelectorCard` from `verifier` to `figures`, without `config`.
    """
    statics = [static.as_json() for static in content["statics"]]
    shape = {**config, "hidden": list(config["hidden"])}
    return {"version": VERSION, "actions": len(ACTIONS), **content, "statics": statics, "config": shape}


def _check(card: SelectorCard) -> None:
    """Raise `ValueError` or `KeyError` where a card cannot be that of a selector."""
    _text(card.pair["name"])
    for role in ("target", "draft"):
        model = card.pair[role]
        _text(model["name"]), _text(model["weights"])
        [_whole(model[name]) for name in ("parameters", "layers", "vocab_size")]
    sizes = (*(card.config[name] for name in ("target_size", "draft_size", "width")), *card.config["hidden"])
    if not all(0 < _whole(size) <= MOST_SIZE for size in sizes) or len(card.config["hidden"]) != 2:
        raise ValueError
    if len(card.mean) != len(SCALARS) or len(card.spread) != len(SCALARS) or min(card.spread) <= 0 or not card.statics:
        raise ValueError


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 500:
        raise ValueError
    return value


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise ValueError
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError
    return float(value)


def _numbers(values: Sequence[Any]) -> tuple[float, ...]:
    return tuple(map(_number, values))
