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
from decoding.drafters import DelayedDrafter
from decoding.methods.methods import METHODS
from decoding.models.pair import Pair, pair_identity
from decoding.sampling.sampling import Sampling
from decoding.selector.actions import DISTINCT, PLACES, LatencyModel, StaticShape, TimeModel, nearest
from decoding.selector.chooser import DRAFTS, MOST_LOG, RULES, Chooser, NetworkOutputs, Rule, mean_logs
from decoding.selector.features import CONTEXT, DIVERGENCES, LATENCIES, SCALARS, Features, Scaler, scalars_of
from decoding.selector.network import SelectorConfig, SelectorNetwork
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


def deviance(logs: Tensor, expected: Tensor) -> Tensor:
    """How far accepted tokens `exp(logs)` are from labels of tokens per pass; least where they are the labels' mean.

    That of a Poisson count, up to what the labels alone decide; both are by action, `[num_roots, len(DISTINCT)]`.
    """
    return (logs.clamp(max=MOST_LOG).exp() - (expected - 1) * logs).mean()


@dataclass(frozen=True)
class Examples:
    """Labelled roots, each under one sampling, ready for the network.

    Attributes:
        features: with a row per example; scalars as they are.
        expected: labels, `[num_examples, len(DISTINCT)]`.
        parts: modelled seconds of each action by what sets them (`LatencyModel.parts`), `[num_examples, 4,
            len(DISTINCT)]`; under another count of time the first part is all.
        asking_s: what a selector adds to each, `[num_examples, len(DISTINCT)]`.
        sampling: number of the sampling of each example.
        roots: how many roots there are, each under several samplings.
    """

    features: Features
    expected: Tensor
    parts: Tensor
    asking_s: Tensor
    sampling: Tensor
    roots: int

    def __len__(self) -> int:
        return len(self.sampling)

    @property
    def static_s(self) -> Tensor:
        """Modelled time of each action where nothing is asked, `[num_examples, len(DISTINCT)]`."""
        return self.parts.sum(1)

    @property
    def seconds(self) -> Tensor:
        """The same where a selector is asked."""
        return self.static_s + self.asking_s


def examples(
    roots: Roots,
    verifier: str,
    samplings: Sequence[Sampling],
    latency: LatencyModel,
    way: TimeModel,
    names: Sequence[str] = SCALARS,
) -> Examples:
    """The examples of some roots for one verifier; `TrainingError` where none is labelled outside of a loop.

    Args:
        names: of the scalars.
    """
    roots = roots.labelled(verifier)
    if not len(roots):
        raise TrainingError(f"No root outside loops is labelled for {verifier}: label more with --texts.")
    under = [samplings[number] for number in roots.sampling]
    context = {name: np.array([getattr(each, name) for each in under])
               for name in ("temperature", "top_p", "draft_temperature")}  # fmt: skip
    scalars = scalars_of(names, roots.divergences.T, {**context, "length": roots.length}, latency)
    static_s, asking_s = (latency.action_s(roots.length, way, asking)[:, PLACES] for asking in (False, True))
    parts = np.zeros((4, *static_s.shape))
    parts[0] = static_s
    if way == "rows":
        parts = latency.parts(roots.length)[:, :, PLACES]
    return Examples(
        features=Features(
            *map(torch.from_numpy, (roots.target, roots.draft_previous, roots.draft_root, scalars.astype(np.float32)))
        ),
        expected=torch.from_numpy(roots.expected[verifier]).float(),
        parts=torch.from_numpy(parts.swapaxes(0, 1).astype(np.float32)),
        asking_s=torch.from_numpy((asking_s - static_s).astype(np.float32)),
        sampling=torch.from_numpy(roots.sampling),
        roots=len(set(zip(roots.text.tolist(), roots.length.tolist(), strict=True))),
    )


def drafting(
    pair: Pair, verifier: str, latency: LatencyModel
) -> "Callable[[SelectorLearner, Mapping[str, Tensor]], RunTrace]":
    """What drafts the prompt with the weights that a learner gives it, under temperature 1."""
    texts = [prompt for prompt in load_prompts() if prompt.kind == load_prompts()[0].kind]
    prompt = pair.vocabulary.encode(texts[-1].text)[:LONGEST]  # held out where the sample prompts are trained on
    sampling = Sampling(temperature=1.0)
    identity = pair_identity(pair)

    def drafted(learner: "SelectorLearner", weights: Mapping[str, Tensor]) -> RunTrace:
        network = NetworkOutputs(learner.with_weights(weights))
        rule = learner.settings.rule
        names, statics = names_of(rule), learner.statics
        chooser = Chooser(network, learner.scaler, latency, identity, verifier, names, rule, statics)
        method = METHODS["delayed"].with_settings(verifier=verifier)
        method = replace(method, drafter=DelayedDrafter(selector=TRAINED_NOW, chooser=chooser))
        limits = Limits(min(TOKENS, pair.context - len(prompt)), ignore_end_of_text=True, record="full")
        session = DecodeSession(pair, method, prompt, sampling, limits)
        list(session)
        return session.trace()

    return drafted


def names_of(rule: Rule) -> tuple[str, ...]:
    """The scalars that a network reads: where its outputs are tokens, what passes cost is left to the division."""
    return SCALARS if rule == "policy" else (*DIVERGENCES, *CONTEXT)


@dataclass(frozen=True)
class SelectorSettings:
    """How a selector is trained.

    Attributes:
        verifier: whose labels it learns.
        rule: `policy`: logits of actions, by the objective of Eq. 12; `tokens`: expected tokens of each, by their
            deviance, which are divided by its time.
        batch: examples of a step, each a root under one sampling.
        penalty, worst: lambda and alpha of Eq. 12.
        entropy: weight of the policy's entropy at the start, in the units of the loss; it falls to 0. Without it the
            policy settles on one action before it has seen that roots differ.
        scatter: of a policy, spread of the logarithms of random factors on drafting, on a target pass, on what rows add
            to it and on all beside passes: every example is on a machine of its own.
        width, hidden: of the network, see `SelectorConfig`.
        dropout, state_dropout, weight_decay, learning_rate: of the network.
        look_every: steps between two looks at held-out roots; the weights that did best there are kept.
    """

    verifier: str
    rule: Rule = "tokens"
    batch: int = 256
    penalty: float = 1.0
    worst: float = 0.1
    entropy: float = 0.05
    scatter: float = 1.0
    width: int = SelectorConfig.width
    hidden: tuple[int, int] = SelectorConfig.hidden
    dropout: float = 0.2
    state_dropout: float = 0.8
    weight_decay: float = 0.02
    learning_rate: float = 1e-3
    look_every: int = 25
    seed: int = 0

    def __post_init__(self) -> None:
        require(self.rule in RULES, f"rule must be one of {', '.join(RULES)}, not {self.rule!r}.")
        require(self.batch >= 1, f"batch must be at least 1, not {self.batch}.")
        require(self.penalty >= 0, f"penalty must be 0 or more, not {self.penalty}.")
        require(self.entropy >= 0, f"entropy must be 0 or more, not {self.entropy}.")
        require(0 <= self.scatter <= 3, f"scatter must be from 0 to 3, not {self.scatter}.")
        require(0 < self.worst <= 1, f"worst must be above 0 and at most 1, not {self.worst}.")
        for name in ("dropout", "state_dropout"):
            value = getattr(self, name)
            require(0 <= value < 1, f"{name} must be from 0 to below 1, not {value}.")


class SelectorLearner(Learner):
    """A selector under training.

    Args:
        trained, held_out, judged: examples to learn from, to choose weights by, and to judge those by.
        samplings: that the examples are numbered by.
        drafted: drafts the held-out prompt with some weights, for `tree`; None: nothing is drafted.
    """

    network: SelectorNetwork

    def __init__(
        self,
        settings: SelectorSettings,
        trained: Examples,
        held_out: Examples,
        judged: Examples,
        samplings: Sequence[Sampling],
        drafted: "Callable[[SelectorLearner, Mapping[str, Tensor]], RunTrace] | None" = None,
    ):
        self.settings, self.samplings, self.device = settings, tuple(samplings), torch.device("cpu")
        self._trained, self._held_out, self._judged, self._drafted = trained, held_out, judged, drafted
        self.scaler = Scaler.of(trained.features.scalars.double().numpy(), names_of(settings.rule))
        sizes = trained.features.target.shape[1], trained.features.draft_root.shape[1]
        config = SelectorConfig(
            *sizes, settings.width, settings.hidden, settings.dropout, settings.state_dropout,
            scalars=trained.features.scalars.shape[1],
        )  # fmt: skip
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            self.network = SelectorNetwork(config)
        # It begins where every root is alike; found from random weights, that alone takes most of the steps.
        tokens = trained.expected.mean(0)
        rates = tokens / trained.seconds.mean(0)
        policy = SHARPNESS * (rates / rates.max()).log()
        with torch.no_grad():
            last = self.network.layers[-1]
            last.get_parameter("weight").mul_(settings.rule == "policy")
            last.get_parameter("bias").copy_(policy if settings.rule == "policy" else torch.zeros_like(policy))
        self.optimiser = torch.optim.AdamW(
            self.network.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        self._best = -math.inf
        self._best_weights = self._weights()

    @cached_property
    def statics(self) -> tuple[StaticShape, ...]:
        """The best static actions of each sampling that some root has, on the roots trained on."""
        found, trained = [], self._trained
        for number, sampling in enumerate(self.samplings):
            mine = trained.sampling == number
            if mine.any():
                tokens, seconds = (each[mine].double().mean(0).numpy() for each in (trained.expected, trained.static_s))
                sampled = (sampling.temperature, sampling.top_p, sampling.draft_temperature)
                found.append(StaticShape.of(sampled, tokens, seconds))
        return tuple(found)

    @cached_property
    def _nearest_statics(self) -> list[StaticShape]:
        """Those of each sampling; of the nearest where it has none."""
        return [nearest(self.statics, s.temperature, s.top_p, s.draft_temperature) for s in self.samplings]

    @cached_property
    def _static_places(self) -> Tensor:
        """Number of the best static action of each sampling, `[len(samplings)]`."""
        return torch.tensor([DISTINCT.index(static.action) for static in self._nearest_statics])

    def step(self, number: int, share: float) -> Mapping[str, float]:
        """A batch, its loss, and a step of AdamW."""
        settings = self.settings
        cosine = LEAST + (1 - LEAST) * (1 + math.cos(math.pi * share)) / 2
        for group in self.optimiser.param_groups:
            group["lr"] = settings.learning_rate * min(1.0, (number + 1) / WARM_UP) * cosine
        draws = np.random.default_rng([settings.seed, number])
        rows = torch.from_numpy(draws.integers(len(self._trained), size=settings.batch))
        factors = torch.from_numpy(draws.normal(0, settings.scatter, (settings.batch, 4)).astype(np.float32)).exp()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(draws.integers(2**63)))  # what dropout leaves out
            self.network.train()
            outputs, rate, base, spread = self._rates(rows, factors)
        loss, gain, regressions = objective(rate, base, settings.penalty, settings.worst)
        loss = loss - settings.entropy * (1 - share) ** 2 * spread
        if settings.rule == "tokens":
            logs = outputs + self._mean_logs[self._trained.sampling[rows]]
            loss = deviance(logs, self._trained.expected[rows])
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), CLIP)
        self.optimiser.step()
        if (number + 1) % settings.look_every == 0:
            self._look()
        return {"loss": float(loss.detach()), "gain_log": -float(gain.detach()),
                "regressions": float(regressions.detach()), "gradient_norm": float(norm)}  # fmt: skip

    def evaluate(self) -> Mapping[str, float]:
        """Held-out figures of the action chosen, beside the best static one."""
        figures = self.figures(self._held_out, self._weights())
        return {f"held_out_{name}": value for name, value in figures.items()}

    def tree(self) -> RunTrace | None:
        """The held-out prompt drafted with the weights as they are."""
        return None if self._drafted is None else self._drafted(self, self._weights())

    def state(self) -> Mapping[str, Any]:
        return {**super().state(), "best": self._best, "best_weights": self._best_weights}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self._best, self._best_weights = state["best"], dict(state["best_weights"])

    def finished_network(self) -> SelectorNetwork:
        """The network with the weights that did best on held-out roots, as it is read back after it was stored."""
        return self.with_weights(self._finished_weights()).requires_grad_(False)

    def finished_figures(self) -> dict[str, float]:
        """Figures of these weights on held-out roots, by which they were chosen, and on judged ones, by which nothing
        was; and how many roots there were, and examples: a root under one sampling.
        """
        parts = {"": self._trained, "held_out_": self._held_out, "judged_": self._judged}
        found = {f"{name}roots": float(part.roots) for name, part in parts.items()}
        found |= {f"{name}examples": float(len(part)) for name, part in parts.items()}
        weights = self._finished_weights()
        for name in ("held_out_", "judged_"):
            found |= {f"{name}{key}": value for key, value in self.figures(parts[name], weights).items()}
        return found

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
        outputs = self.with_weights(weights)(self._scaled(on.features))
        chosen = self.policy(outputs, on.sampling, on.seconds).argmax(-1)
        rows: list[tuple[float, ...]] = []
        for number in on.sampling.unique().tolist():
            mine = on.sampling == number
            fixed = self._static_places[number].expand(int(mine.sum()), 1)
            ways = ((chosen[mine][:, None], on.seconds), (fixed, on.static_s))
            tokens = [on.expected[mine].gather(1, place) for place, _ in ways]
            rates = [float(each.sum() / seconds[mine].gather(1, place).sum())
                     for each, (place, seconds) in zip(tokens, ways, strict=True)]  # fmt: skip
            rows.append((*(float(each.mean()) for each in tokens), rates[0] / rates[1]))
        means = np.array(rows).mean(0).tolist()
        names = ("tokens_per_pass", "tokens_per_pass_static", "rate_over_static")
        return dict(zip(names, means, strict=True))

    def policy(self, outputs: Tensor, sampling: Tensor, seconds: Tensor) -> Tensor:
        """Logits of actions, `[num_roots, len(DISTINCT)]`: the outputs, or those of the modelled rates."""
        if self.settings.rule == "policy":
            return outputs
        tokens = 1 + torch.from_numpy(DRAFTS) * (outputs + self._mean_logs[sampling]).clamp(max=MOST_LOG).exp()
        return SHARPNESS * (tokens / seconds).log()

    def _scaled(self, features: Features, factors: Tensor | None = None) -> Features:
        """Standardised features, on a machine whose parts of the time are multiplied by factors `[num_roots, 4]`."""
        scalars = features.scalars.double()
        if factors is not None and self.settings.rule == "policy":
            draft_s, target_s, tree_s = scalars[:, -len(LATENCIES) :].exp().T
            moved = (factors[:, 0] * draft_s, factors[:, 1] * target_s,
                     factors[:, 1] * target_s + factors[:, 2] * (tree_s - target_s))  # fmt: skip
            scalars = torch.cat([scalars[:, : -len(LATENCIES)], torch.stack(moved, 1).log()], 1)
        return features._replace(scalars=torch.from_numpy(self.scaler.scaled(scalars.numpy())).float())

    def _rates(self, rows: Tensor, factors: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Outputs, tokens per second of the policy and of the static actions, and the policy's mean entropy.

        Each example of `rows` is on a machine on which its parts of the time are multiplied by its `factors`.
        """
        on = self._trained
        expected, static_s = on.expected[rows], (on.parts[rows] * factors[:, :, None]).sum(1)
        seconds = static_s + on.asking_s[rows] * factors[:, 3:]
        outputs = self.network(self._scaled(Features(*(each[rows] for each in on.features)), factors))
        logits = self.policy(outputs, on.sampling[rows], seconds)
        # Where costs differ so does the best static action: it is looked for among those of the sampling's roots.
        tokens = self._static_tokens[on.sampling[rows]]
        fixed = (tokens / static_s).argmax(1, keepdim=True)
        base = (expected.gather(1, fixed) / static_s.gather(1, fixed))[:, 0]
        logs = logits.log_softmax(-1)
        return outputs, policy_rate(logits, expected, seconds), base, -(logs.exp() * logs).sum(-1).mean()

    @cached_property
    def _static_tokens(self) -> Tensor:
        """Mean labels of each sampling on the roots trained on, `[len(samplings), len(DISTINCT)]`."""
        return torch.tensor([static.tokens for static in self._nearest_statics])

    @cached_property
    def _mean_logs(self) -> Tensor:
        """`chooser.mean_logs` of each sampling, `[len(samplings), len(DISTINCT)]`."""
        return torch.from_numpy(mean_logs(self._static_tokens.numpy())).float()

    def _look(self) -> None:
        weights, on = self._weights(), self._held_out
        if self.settings.rule == "policy":
            found = self.figures(on, weights)["rate_over_static"]
        else:
            with torch.no_grad():
                outputs = self.with_weights(weights)(self._scaled(on.features))
                found = -float(deviance(outputs + self._mean_logs[on.sampling], on.expected))
        if found > self._best:
            self._best, self._best_weights = found, weights

    def _weights(self) -> dict[str, Tensor]:
        return {name: weight.detach().clone() for name, weight in self.network.state_dict().items()}
