"""A trained selector as it is asked in every iteration: a few products in numpy, which begins sooner than PyTorch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from decoding.selector.actions import (
    ACTIONS,
    DISTINCT,
    DISTINCT_OF,
    PLACES,
    Action,
    LatencyModel,
    StaticShape,
    TimeModel,
    nearest,
)
from decoding.selector.features import Features, Past, Scaler, features_of
from decoding.trace.records import SelectorTrace

if TYPE_CHECKING:
    from decoding.selector.network import SelectorNetwork

# What a network's outputs are, and how an action is chosen by them: logits, the largest is taken (Eq. 4); or how far
# expected accepted tokens are, in logarithms, from their mean under the sampling: tokens are divided by the time.
Rule = Literal["policy", "tokens"]
RULES: tuple[Rule, ...] = ("policy", "tokens")
HALF, ONE, HALF_ROOT = np.float32(0.5), np.float32(1.0), np.float32(0.5**0.5)
EPSILON = 1e-5  # of a layer norm, as PyTorch has it
STRETCH = 32  # tokens of text over which the times of passes hardly change
MOST_LOG = 4.0  # of accepted tokens: no tree is deeper than e^4
LEAST_MEAN = 1e-3  # of accepted tokens, where none is accepted in the mean


class NetworkOutputs:
    """The network of Eq. 10 with its weights as arrays.

    A target that holds copies of the features the network was trained on is read in its first copy.
    """

    def __init__(self, network: "SelectorNetwork"):
        state = {name: weight.numpy(force=True) for name, weight in network.state_dict().items()}
        self._projections = [(state[f"projections.{n}.weight"], state[f"projections.{n}.bias"]) for n in range(3)]
        gain, shift = (np.concatenate([state[f"norms.{n}.{part}"] for n in range(3)]) for part in ("weight", "bias"))
        layers = [(state[f"layers.{n}.weight"].copy(), state[f"layers.{n}.bias"].copy()) for n in (0, 3, 6)]
        # Gain and shift of the layer norms stand in the weights that read their outputs: fewer calls while decoding.
        weight, bias = layers[0]
        bias += weight[:, : gain.size] @ shift
        weight[:, : gain.size] *= gain
        self._layers = layers
        self._mean = np.full((gain.size // 3, 1), 3 / gain.size, np.float32)
        from scipy.special import erf  # takes a while to load, and few need it

        self._erf = erf

    def __call__(self, features: Features) -> np.ndarray:
        """Outputs at one root, whose scalars are standardised, float32 `[outputs]`."""
        read = np.empty((3, len(self._mean)), np.float32)
        for row, (weight, bias), state in zip(read, self._projections, features[:3], strict=True):
            np.dot(weight, state[: weight.shape[1]], out=row)
            row += bias
        read -= read @ self._mean
        read /= np.sqrt(np.square(read) @ self._mean + EPSILON)
        x = np.concatenate((read.ravel(), features.scalars), dtype=np.float32)
        for weight, bias in self._layers[:-1]:
            x = weight @ x
            x += bias
            x *= HALF * (ONE + self._erf(x * HALF_ROOT))
        weight, bias = self._layers[-1]
        return weight @ x + bias


@dataclass(frozen=True)
class ChosenAction:
    """What a selector chose at a root, and what it chose by.

    Attributes:
        action: the one taken.
        past: the iterations that it was asked with.
        scalars: what it read of that beside hidden states, in the order of the chooser's names.
        outputs: of the network, by action.
    """

    chooser: "Chooser"
    action: Action
    past: Past
    scalars: np.ndarray
    outputs: np.ndarray

    def trace(self) -> SelectorTrace:
        """The record of it: grids `[paths, trunk, branch]` as `ACTIONS`, flattened."""
        chooser, length, every = self.chooser, self.past.length, np.arange(len(ACTIONS))
        seconds, unasked = chooser.seconds(length), chooser.seconds(length, selecting=False)
        static = chooser.static(self.past)
        places = DISTINCT_OF if len(self.outputs) == len(DISTINCT) else every
        if chooser.rule == "tokens":
            worth = chooser.tokens(self.outputs, self.past)
        else:
            weights = np.exp(self.outputs - self.outputs.max())
            worth = weights / weights.sum()
        read = dict(zip(chooser.scalars, self.scalars.tolist(), strict=True))
        read["draft_s"] = float(chooser.latency.draft_pass_s(length))
        read["target_s"] = float(chooser.latency.target_pass_s(length))
        read["asking_s"] = float(seconds[-1] - unasked[-1])
        return SelectorTrace(
            rule=chooser.rule,
            scalars={name: round(value, 6) for name, value in read.items()},
            worth=tuple(np.round(worth[places], 6).tolist()),
            seconds=tuple(np.round(seconds[DISTINCT_OF], 7).tolist()),
            chosen=ACTIONS.index(self.action),
            static=None if static is None else ACTIONS.index(static),
        )


@dataclass(frozen=True, eq=False)
class Chooser:
    """A network, what its scalars are scaled by, what passes cost here, the pair's identity, and the verifier.

    Attributes:
        scalars: names of those that it reads.
        rule: how an action is chosen by its outputs.
        statics: the best static actions of the samplings it was trained on.
        way: how the time of an action is counted.
    """

    network: NetworkOutputs
    scaler: Scaler
    latency: LatencyModel
    pair: Mapping[str, Any]
    verifier: str
    scalars: tuple[str, ...]
    rule: Rule
    statics: tuple[StaticShape, ...] = ()
    way: TimeModel = "rows"
    _known: dict[tuple[int, bool], np.ndarray] = field(default_factory=dict, repr=False)  # seconds by stretch of text
    _means: dict[tuple, np.ndarray] = field(default_factory=dict, repr=False)  # `mean_logs` by sampling

    def choose(self, past: Past) -> ChosenAction:
        """The action with the largest logit, or with the most expected tokens per second here."""
        features = features_of(past, self.scalars, self.latency)
        outputs = self.network(features._replace(scalars=self.scaler.scaled(features.scalars)))
        if self.rule == "tokens":
            place = int((self.tokens(outputs, past) / self.seconds(past.length)).argmax())
        else:
            place = int(outputs.argmax())
        action = (DISTINCT if len(outputs) == len(DISTINCT) else ACTIONS)[place]
        return ChosenAction(self, action, past, features.scalars, outputs)

    def tokens(self, outputs: np.ndarray, past: Past) -> np.ndarray:
        """Expected tokens of each distinct action, `[len(DISTINCT)]`."""
        sampled = (past.temperature, past.top_p, past.draft_temperature)
        if sampled not in self._means:
            self._means[sampled] = mean_logs(np.array(nearest(self.statics, *sampled).tokens))
        return expected_tokens(outputs + self._means[sampled])

    def seconds(self, length: int, selecting: bool = True) -> np.ndarray:
        """Seconds of an iteration with each distinct action, `[len(DISTINCT)]`.

        They are those of the middle of the stretch of text that the length is in.

        Args:
            selecting: a selector is asked in it.
        """
        stretch = length // STRETCH
        if (stretch, selecting) not in self._known:
            lengths = np.array([(stretch + 0.5) * STRETCH])
            self._known[stretch, selecting] = self.latency.action_s(lengths, self.way, selecting)[0][PLACES]
        return self._known[stretch, selecting]

    def static(self, past: Past) -> Action | None:
        """The best static action here, which asks no selector, under this sampling; None where none is known."""
        if not self.statics:
            return None
        known = nearest(self.statics, past.temperature, past.top_p, past.draft_temperature)
        return known.here(self.seconds(past.length, selecting=False)).action


DRAFTS = np.array([action.nodes > 0 for action in DISTINCT])


def mean_logs(tokens: np.ndarray) -> np.ndarray:
    """Logarithms of mean accepted tokens, of tokens per pass of the same shape."""
    return np.log(np.maximum(tokens - 1, LEAST_MEAN))


def expected_tokens(logs: np.ndarray) -> np.ndarray:
    """Tokens per pass `[..., len(DISTINCT)]` of logarithms of accepted tokens; one where nothing is drafted."""
    return 1 + DRAFTS * np.exp(np.minimum(logs, MOST_LOG))
