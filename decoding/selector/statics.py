"""The best actions that are the same at every root, with which a selector is compared. Torch-free."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from decoding.common.trained_store import count_of, number_of
from decoding.selector.actions import ACTIONS, DISTINCT, Action

SAMPLED = ("temperature", "top_p", "draft_temperature")
STATICS = ("action", "most_tokens", "root_action", "root_most_tokens")


@dataclass(frozen=True)
class StaticShape:
    """The best actions that are the same at every root, chosen on training roots.

    Attributes:
        temperature, top_p, draft_temperature: the sampling they are the best for.
        action: by modelled tokens per second. most_tokens: by tokens per pass.
        root_action, root_most_tokens: the same among trees that branch at the root, i.i.d. paths without a trunk.
        tokens: mean expected tokens of each distinct action, from which the best where passes cost something else is
            found; empty where they were not kept.
    """

    temperature: float
    top_p: float
    draft_temperature: float
    action: Action
    most_tokens: Action
    root_action: Action
    root_most_tokens: Action
    tokens: tuple[float, ...] = ()

    @staticmethod
    def of(sampled: tuple[float, float, float], tokens: np.ndarray, seconds: np.ndarray) -> "StaticShape":
        """The best of the distinct actions by their mean tokens and times, both `[len(DISTINCT)]`.

        Of actions with as many tokens it is the one that takes the least time.
        """
        found = []
        for places in (range(len(DISTINCT)), [place for place, action in enumerate(DISTINCT) if not action.trunk]):
            found.append(DISTINCT[max(places, key=lambda place: tokens[place] / seconds[place])])
            found.append(DISTINCT[max(places, key=lambda place: (round(float(tokens[place]), 3), -seconds[place]))])
        action, most_tokens, root_action, root_most_tokens = found
        temperature, top_p, draft_temperature = sampled
        return StaticShape(
            temperature, top_p, draft_temperature, action, most_tokens, root_action, root_most_tokens,
            tuple(np.round(tokens, 3).tolist()),
        )  # fmt: skip

    def here(self, seconds: np.ndarray) -> "StaticShape":
        """The same where the distinct actions take these times; as it is where tokens were not kept."""
        if not self.tokens:
            return self
        sampled = (self.temperature, self.top_p, self.draft_temperature)
        return StaticShape.of(sampled, np.array(self.tokens), seconds)

    def as_json(self) -> dict[str, Any]:
        """The record as JSON holds it."""
        own = {name: list(value) if name in STATICS else value for name, value in vars(self).items()}
        return own | {"tokens": " ".join(f"{tokens:g}" for tokens in self.tokens)}

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> "StaticShape":
        """The record that `as_json` wrote; a `ValueError`, `KeyError` or `TypeError` where it is damaged."""
        actions = [Action(*map(count_of, content[name])) for name in STATICS]
        if any(action not in ACTIONS for action in actions):
            raise ValueError
        tokens = tuple(float(number) for number in str(content.get("tokens", "")).split())
        if len(tokens) not in (0, len(DISTINCT)) or not all(1 <= number < np.inf for number in tokens):
            raise ValueError
        named: dict[str, Any] = {name: number_of(content[name]) for name in SAMPLED}
        named |= zip(STATICS, actions, strict=True)
        return StaticShape(**named, tokens=tokens)


def nearest(statics: Sequence[StaticShape], temperature: float, top_p: float, draft_temperature: float) -> StaticShape:
    """Of some samplings the nearest to another: by top-p, then temperature, then that of the draft."""
    apart = ((abs(s.top_p - top_p), abs(s.temperature - temperature), abs(s.draft_temperature - draft_temperature))
             for s in statics)  # fmt: skip
    return min(zip(apart, statics, strict=True), key=lambda pair: pair[0])[1]
