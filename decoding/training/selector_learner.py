"""Labelled roots as a selector learns from them, and what it is trained for: modelled tokens per second."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decoding.common.errors import TrainingError, require
from decoding.common.prompts import load_prompts
from decoding.common.trained_store import rounded
from decoding.costs.calibration import Chooser
from decoding.drafters import DelayedDrafter
from decoding.methods.methods import METHODS
from decoding.models.pair import Pair, pair_identity
from decoding.sampling.sampling import Sampling
from decoding.selector.actions import ACTIONS, LatencyModel, TimeModel, same_chain
from decoding.selector.network import Features, Scaler, SelectorConfig, SelectorNetwork
from decoding.selector.store import StaticShape
from decoding.session.session import DecodeSession, Limits
from decoding.trace.records import RunTrace
from decoding.training.loop import Learner
from decoding.training.selector_roots import Roots

TOKENS, LONGEST = 16, 96
TRAINED_NOW = "the selector in training"
WARM_UP = 20  # steps
CLIP = 1.0  # largest norm of a gradient
SHARPNESS = 10.0  # logits of the policy that training begins with, per unit of the logarithm of an action's rate
LEAST = 0.02  # of the learning rate, at the end


def policy_rate(logits: Tensor, expected: Tensor, seconds: Tensor) -> Tensor:
    """Tokens per second of a policy at each root (Eq. 4): expected tokens over expected time, `[num_roots]`.

    All are by action, `[num_roots, len(ACTIONS)]`.
    """
    policy = logits.softmax(-1)
    return (policy * expected).sum(-1) / (policy * seconds).sum(-1)


def objective(rate: Tensor, base_rate: Tensor, penalty: float, worst: float) -> tuple[Tensor, Tensor, Tensor]:
    """The loss (Eq. 12), its mean -log ratio (Eq. 5), and its penalty before it is weighted.

    Args:
        rate, base_rate: tokens per second of the policy and of the static action, `[num_roots]`.
        penalty: weight of regressions (lambda).
        worst: share of the roots, those that lose most, whose squared losses are averaged (alpha).
    """
    ratio = rate / base_rate
    gain = -ratio.log().mean()
    lost = (1 - ratio).clamp(min=0).square()
    regressions = lost.topk(max(1, math.ceil(worst * len(lost)))).values.mean()
    return gain + penalty * regressions, gain, regressions


def shared_labels(expected: np.ndarray) -> np.ndarray:
    """Labels `[..., len(ACTIONS)]` in which actions that draft trees of the same distribution share their mean."""
    first = same_chain()
    counts = np.bincount(first, minlength=len(ACTIONS))
    which = np.zeros((len(ACTIONS), len(ACTIONS)))
    which[np.arange(len(ACTIONS)), first] = 1 / counts[first]
    return (expected @ which)[..., first]


def best_static(expected: np.ndarray, seconds: np.ndarray, sampling: Sampling) -> StaticShape:
    """The actions that are best where every root takes the same: in tokens per second, and in tokens per pass.

    Tokens and time are at the roots of one sampling, `[num_roots, len(ACTIONS)]`.
    """
    tokens, taken = expected.mean(0), seconds.mean(0)
    found = []
    for places in (range(len(ACTIONS)), [place for place, action in enumerate(ACTIONS) if not action.trunk]):
        found.append(ACTIONS[max(places, key=lambda place: tokens[place] / taken[place])])
        # Of actions that are as good the one that takes the least time.
        found.append(ACTIONS[max(places, key=lambda place: (round(float(tokens[place]), 9), -taken[place]))])
    return StaticShape(sampling.temperature, sampling.top_p, sampling.draft_temperature, *found)


@dataclass(frozen=True)
class Examples:
    """Roots under each of the samplings, one after another, ready for the network.

    Attributes:
        features: with a row per example; scalars as they are.
        expected: labels, `[num_examples, len(ACTIONS)]`.
        seconds, static_s: modelled time of each action where a selector chooses and where nothing does, the same shape.
        sampling: number of the sampling of each example.
    """

    features: Features
    expected: Tensor
    seconds: Tensor
    static_s: Tensor
    sampling: Tensor

    def __len__(self) -> int:
        return len(self.sampling)


def examples(
    roots: Roots, verifier: str, samplings: Sequence[Sampling], latency: LatencyModel, way: TimeModel
) -> Examples:  # fmt: skip
    """The examples of some roots for one verifier; `TrainingError` where none is labelled outside of a loop."""
    roots = roots.labelled(verifier)
    if not len(roots):
        raise TrainingError(f"No root outside loops is labelled for {verifier}: label more with --texts.")
    count = len(samplings)
    length = roots.length[:, None].repeat(count, 1)
    drawn = np.array([[each.temperature, each.top_p] for each in samplings])[None].repeat(len(roots), 0)
    passes = np.stack([latency.draft_pass_s(length), latency.target_pass_s(length)], -1)
    scalars = np.concatenate([roots.divergences, length[..., None], drawn, passes], -1).reshape(len(roots) * count, -1)
    target, previous, root = (torch.from_numpy(each).repeat_interleave(count, 0)
                              for each in (roots.target, roots.draft_previous, roots.draft_root))  # fmt: skip
    seconds, static_s = (
        torch.from_numpy(latency.action_s(roots.length, way, selecting)).repeat_interleave(count, 0).float()
        for selecting in (True, False)
    )
    labels = shared_labels(roots.expected[verifier].astype(np.float64)).reshape(-1, len(ACTIONS))
    return Examples(
        features=Features(target, previous, root, torch.from_numpy(scalars).float()),
        expected=torch.from_numpy(labels).float(),
        seconds=seconds,
        static_s=static_s,
        sampling=torch.arange(count).repeat(len(roots)),
    )


def drafting(
    pair: Pair, verifier: str, latency: LatencyModel, draft_temperature: float
) -> "Callable[[SelectorLearner, Mapping[str, Tensor]], RunTrace]":
    """What drafts the prompt with the weights that a learner gives it, under temperature 1."""
    texts = [prompt for prompt in load_prompts() if prompt.kind == load_prompts()[0].kind]
    prompt = pair.vocabulary.encode(texts[-1].text)[:LONGEST]  # held out where the sample prompts are trained on
    sampling = Sampling(temperature=1.0, draft_temperature=draft_temperature)
    identity = pair_identity(pair)

    def drafted(learner: "SelectorLearner", weights: Mapping[str, Tensor]) -> RunTrace:
        chooser = Chooser(learner.with_weights(weights), learner.scaler, latency, identity, verifier)
        method = METHODS["delayed"].with_settings(verifier=verifier)
        method = replace(method, drafter=DelayedDrafter(selector=TRAINED_NOW, chooser=chooser))
        limits = Limits(min(TOKENS, pair.context - len(prompt)), ignore_end_of_text=True, record="full")
        session = DecodeSession(pair, method, prompt, sampling, limits)
        for _ in session:
            pass
        return session.trace()

    return drafted


@dataclass(frozen=True)
class SelectorSettings:
    """How a selector is trained.

    Attributes:
        verifier: whose labels it learns.
        batch: examples of a step, each a root under one sampling.
        penalty, worst: lambda and alpha of Eq. 12.
        entropy: weight of the policy's entropy at the start, in the units of the loss; it falls to 0. Without it the
            policy settles on one action before it has seen that roots differ.
        dropout, state_dropout, weight_decay, learning_rate: of the network.
        look_every: steps between two looks at held-out roots; the weights that did best there are kept.
    """

    verifier: str
    batch: int = 256
    penalty: float = 1.0
    worst: float = 0.1
    entropy: float = 0.05
    dropout: float = 0.2
    state_dropout: float = 0.8
    weight_decay: float = 0.02
    learning_rate: float = 1e-3
    look_every: int = 25
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.batch >= 1, f"batch must be at least 1, not {self.batch}.")
        require(self.penalty >= 0, f"penalty must be 0 or more, not {self.penalty}.")
        require(self.entropy >= 0, f"entropy must be 0 or more, not {self.entropy}.")
        require(0 < self.worst <= 1, f"worst must be above 0 and at most 1, not {self.worst}.")
        for name in ("dropout", "state_dropout"):
            value = getattr(self, name)
            require(0 <= value < 1, f"{name} must be from 0 to below 1, not {value}.")


class SelectorLearner(Learner):
    """A selector under training.

    Args:
        samplings: that the examples are numbered by.
        drafted: drafts the held-out prompt with some weights, for `tree`; None: nothing is drafted.
    """

    network: SelectorNetwork

    def __init__(
        self,
        settings: SelectorSettings,
        trained: Examples,
        held_out: Examples,
        samplings: Sequence[Sampling],
        drafted: "Callable[[SelectorLearner, Mapping[str, Tensor]], RunTrace] | None" = None,
    ):
        self.settings, self.samplings, self.device = settings, tuple(samplings), torch.device("cpu")
        self._trained, self._held_out, self._drafted = trained, held_out, drafted
        self.scaler = Scaler.of(trained.features.scalars)
        sizes = trained.features.target.shape[1], trained.features.draft_root.shape[1]
        config = SelectorConfig(*sizes, dropout=settings.dropout, state_dropout=settings.state_dropout)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            self.network = SelectorNetwork(config)
        # The policy begins where every root is alike; found from a uniform one, that alone takes most of the steps.
        rates = trained.expected.mean(0) / trained.seconds.mean(0)
        with torch.no_grad():
            last = self.network.layers[-1]
            last.get_parameter("bias").copy_(SHARPNESS * (rates / rates.max()).log())
        self.optimiser = torch.optim.AdamW(
            self.network.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        self._best = -math.inf
        self._best_weights = self._weights()

    @cached_property
    def statics(self) -> tuple[StaticShape, ...]:
        """The best static actions of each sampling, on the roots trained on."""
        found, trained = [], self._trained
        for number, sampling in enumerate(self.samplings):
            mine = trained.sampling == number
            expected, seconds = (each[mine].double().numpy() for each in (trained.expected, trained.static_s))
            found.append(best_static(expected, seconds, sampling))
        return tuple(found)

    def step(self, number: int, share: float) -> Mapping[str, float]:
        """A batch, its loss (Eq. 12), and a step of AdamW."""
        settings = self.settings
        cosine = LEAST + (1 - LEAST) * (1 + math.cos(math.pi * share)) / 2
        for group in self.optimiser.param_groups:
            group["lr"] = settings.learning_rate * min(1.0, (number + 1) / WARM_UP) * cosine
        draws = np.random.default_rng([settings.seed, number])
        rows = torch.from_numpy(draws.integers(len(self._trained), size=settings.batch))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(draws.integers(2**63)))  # what dropout leaves out
            self.network.train()
            rate, base, spread = self._rates(self._trained, rows)
        loss, gain, regressions = objective(rate, base, settings.penalty, settings.worst)
        self.optimiser.zero_grad(set_to_none=True)
        (loss - settings.entropy * (1 - share) ** 2 * spread).backward()
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), CLIP)
        self.optimiser.step()
        if (number + 1) % settings.look_every == 0:
            self._look()
        return {"loss": float(loss.detach()), "gain_log": -float(gain.detach()),
                "regressions": float(regressions.detach()), "gradient_norm": float(norm)}  # fmt: skip

    def evaluate(self) -> Mapping[str, float]:
        """Held-out figures of the action with the most logit, beside the best static one."""
        figures = self.figures(self._held_out, self._weights())
        return {f"held_out_{name}": value for name, value in figures.items()}

    def tree(self) -> RunTrace | None:
        """The held-out prompt drafted with the weights as they are."""
        return None if self._drafted is None else self._drafted(self, self._weights())

    def state(self) -> Mapping[str, Any]:
        """See `Learner`."""
        return {**super().state(), "best": self._best, "best_weights": self._best_weights}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """See `Learner`."""
        super().load_state(state)
        self._best, self._best_weights = state["best"], dict(state["best_weights"])

    def finished_network(self) -> SelectorNetwork:
        """The network with the weights that did best on held-out roots, as it is read back after it was stored."""
        return self.with_weights(self._finished_weights()).requires_grad_(False)

    def finished_figures(self) -> dict[str, float]:
        """Held-out figures of these weights, which were chosen by them; and how many roots there were."""
        count = len(self.samplings)
        roots = {"roots": len(self._trained) // count, "held_out_roots": len(self._held_out) // count}
        found = self.figures(self._held_out, self._finished_weights())
        return roots | {f"held_out_{name}": value for name, value in found.items()}

    def with_weights(self, weights: Mapping[str, Tensor]) -> SelectorNetwork:
        """A network with some weights, ready to be asked."""
        network = SelectorNetwork(self.network.config)
        network.load_state_dict(dict(weights))
        return network.eval()

    def _finished_weights(self) -> dict[str, Tensor]:
        self._look()
        return rounded(self._best_weights)

    @torch.no_grad()
    def figures(self, on: Examples, weights: Mapping[str, Tensor]) -> dict[str, float]:
        """Tokens per pass and modelled rate of some weights and of the best static actions, means over samplings."""
        chosen = self.with_weights(weights)(self.scaler.scaled(on.features)).argmax(-1)
        rows: list[tuple[float, ...]] = []
        for number, static in enumerate(self.statics):
            mine = on.sampling == number
            fixed = torch.full((int(mine.sum()), 1), ACTIONS.index(static.action))
            ways = ((chosen[mine][:, None], on.seconds), (fixed, on.static_s))
            tokens = [on.expected[mine].gather(1, place) for place, _ in ways]
            rates = [float(each.sum() / seconds[mine].gather(1, place).sum())
                     for each, (place, seconds) in zip(tokens, ways, strict=True)]  # fmt: skip
            rows.append((*(float(each.mean()) for each in tokens), rates[0] / rates[1]))
        means = np.array(rows).mean(0).tolist()
        names = ("tokens_per_pass", "tokens_per_pass_static", "rate_over_static")
        return dict(zip(names, means, strict=True))

    def _rates(self, on: Examples, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens per second of the policy and of the static actions at some examples, and the policy's mean entropy."""
        expected = on.expected[rows]
        logits = self.network(self.scaler.scaled(Features(*(each[rows] for each in on.features))))
        rate = policy_rate(logits, expected, on.seconds[rows])
        fixed = torch.tensor([ACTIONS.index(static.action) for static in self.statics])[on.sampling[rows]][:, None]
        base = (expected.gather(1, fixed) / on.static_s[rows].gather(1, fixed))[:, 0]
        logs = logits.log_softmax(-1)
        return rate, base, -(logs.exp() * logs).sum(-1).mean()

    def _look(self) -> None:
        weights = self._weights()
        found = self.figures(self._held_out, weights)["rate_over_static"]
        if found > self._best:
            self._best, self._best_weights = found, weights

    def _weights(self) -> dict[str, Tensor]:
        return {name: weight.detach().clone() for name, weight in self.network.state_dict().items()}
