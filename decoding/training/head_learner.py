"""Training a draft head: batches, AdamW with a cosine schedule, held-out curves, a tree drafted with it as it is."""

import argparse
import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from decoding.common.errors import require
from decoding.common.trained_store import rounded
from decoding.engines.base import OutputHead
from decoding.heads.head import make_head
from decoding.heads.network import HeadConfig, HeadNetwork
from decoding.heads.store import (
    HEADS,
    LOSSES,
    find_head,
    load_network,
    read_card,
    require_fit,
    save_head,
    weights_digest,
)
from decoding.methods.method import Method
from decoding.methods.methods import METHODS
from decoding.models.pair import Model, Pair, pair_identity
from decoding.models.presets import cpu_computes_bfloat16
from decoding.session.session import DecodeSession, Limits
from decoding.trace.records import RunTrace
from decoding.training.command import minutes_of, noted, pair_of
from decoding.training.folder import Training
from decoding.training.head_data import HELD_OUT_WIDTH, Prepared, prepared_data
from decoding.training.head_losses import (
    LOGITS_AT_ONCE,
    LossName,
    Project,
    Sides,
    Weights,
    eagle_loss,
    hass_loss,
    root_labels,
    talf_loss,
    unroll,
)
from decoding.training.loop import Learner, Plan, train
from decoding.training.text import WindowPlan, read_corpus, sample_texts

WINDOWS = 8  # held-out windows that a curve is measured on; more cost a CPU seconds


def reduced(device: torch.device, dtype: torch.dtype) -> AbstractContextManager:
    """Compute in bfloat16 where the device is faster at it; beside weights in float16, its rival, in float32.

    Args:
        dtype: of the target.
    """
    if dtype == torch.float16:
        return nullcontext()
    if device.type == "cuda" or (device.type == "cpu" and cpu_computes_bfloat16()):
        return torch.autocast(device.type, torch.bfloat16)
    return nullcontext()


@torch.no_grad()
def held_out_figures(
    head: HeadNetwork, sides: Sides, prepared: Prepared, top_k: int, model: Model, windows: int = WINDOWS
) -> dict[str, float]:
    """`held_out_overlap_D` and `held_out_agreement_D` at depth D from 1, and `held_out_loss` at the roots in nats.

    Overlap is the sum over tokens of the smaller of the two probabilities, which is the chance that a drawn token is
    accepted; agreement is the share of nodes after which both have the same likeliest token. Means over the nodes.

    Args:
        model: the target. top_k: width of its trees in the held-out windows.
    """
    sums: dict[str, list[Tensor]] = {}
    device = model.device
    for window in range(min(windows, prepared.plan.held_out)):
        text = prepared.text("held_out", [window], device)
        trees = prepared.trees("held_out", [window], top_k, device) if prepared.plan.depth > 1 else None
        with reduced(device, model.dtype):
            found = unroll(head, sides.embed, text, trees)
            labels = [root_labels(text), *(trees.labels.unbind(1) if trees is not None else ())]
            for depth, (out, label) in enumerate(zip(found, labels, strict=True), 1):
                overlap, agreement, loss = closeness(sides.project, out.flatten(0, -2), label.flatten(0, -2))
                sums.setdefault(f"held_out_overlap_{depth}", []).append(overlap)
                sums.setdefault(f"held_out_agreement_{depth}", []).append(agreement)
                if depth == 1:
                    sums.setdefault("held_out_loss", []).append(loss)
    return {name: float(torch.cat(parts).mean()) for name, parts in sorted(sums.items())}


def closeness(project: Project, out: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Overlap, agreement (0 or 1) and cross-entropy of rows of features `[rows, hidden_size]`, `[rows]` each."""
    parts: list[Sequence[Tensor]] = []
    block = max(1, LOGITS_AT_ONCE // project(labels[:1]).shape[-1])
    for mine, theirs in zip(out.split(block), labels.split(block), strict=True):
        draft, law = project(mine).float(), torch.softmax(project(theirs).float(), -1)
        probs = torch.softmax(draft, -1)
        same = (draft.argmax(-1) == law.argmax(-1)).float()
        loss = -(law * torch.log_softmax(draft, -1)).sum(-1)
        parts.append((torch.minimum(probs, law).sum(-1), same, loss))
    return tuple(torch.cat(part) for part in zip(*parts, strict=True))


TRAINED_NOW = "the head in training"
TREE_TOKENS = 12  # of the held-out prompt that is drafted again and again
PROMPT_TOKENS, WRITTEN_TOKENS, PROMPTS = 48, 24, 4  # by which tokens per pass are measured


@dataclass(frozen=True)
class HeadSettings:
    """How a head is trained.

    Attributes:
        loss: one of `heads.store.LOSSES`.
        top_k: width of the target's trees; only TALF trains on them.
        batch: windows of a step.
        learning_rate: its peak; it rises over the first `warm_up` share of the steps and falls along a cosine to 0.
        clip: largest norm of a gradient.
        weights: of the parts of EAGLE's and HASS's losses.
    """

    loss: LossName = "talf"
    top_k: int = 4
    batch: int = 4
    learning_rate: float = 3e-4
    warm_up: float = 0.05
    weight_decay: float = 0.01
    clip: float = 1.0
    seed: int = 0
    weights: Weights = field(default_factory=Weights)

    def __post_init__(self) -> None:
        require(self.loss in LOSSES, f"There is no loss {self.loss!r}: choose {', '.join(LOSSES)}.")
        require(1 <= self.top_k <= 64, f"top_k must be from 1 to 64, not {self.top_k}.")
        require(1 <= self.batch <= 4096, f"batch must be from 1 to 4096 windows, not {self.batch}.")
        require(0 < self.learning_rate <= 1, f"learning_rate must be above 0 and at most 1, not {self.learning_rate}.")


def batch_of(windows: int, batch: int, seed: int, number: int) -> list[int]:
    """The windows of a step: a new order of all of them in every epoch, a function of seed and number alone."""
    places = range(number * batch, (number + 1) * batch)
    orders: dict[int, np.ndarray] = {}
    for epoch in {place // windows for place in places}:
        orders[epoch] = np.random.default_rng([seed, epoch]).permutation(windows)
    return [int(orders[place // windows][place % windows]) for place in places]


def rate_factor(share: float, warm_up: float) -> float:
    """Factor of the learning rate after a share of the steps: a rise to 1, then a cosine to 0."""
    if share < warm_up:
        return max(share, 1e-3) / warm_up
    return 0.5 * (1 + math.cos(math.pi * (share - warm_up) / (1 - warm_up)))


def target_sides(pair: Pair) -> Sides:
    """The target's embedding and output head as functions; both stay frozen."""
    network = pair.target.network
    embedding, output_head = network.get_input_embeddings(), OutputHead(network, pair.target.info.name)
    return Sides(lambda ids: embedding(ids).float(), lambda features: output_head(features.to(network.dtype)))


class HeadLearner(Learner):
    """One head.

    Args:
        network: the head as it begins; it is trained in place.
        held_out_trees: width of the target's trees in the held-out windows, on which all losses are measured.
    """

    def __init__(
        self, pair: Pair, network: HeadNetwork, prepared: Prepared, settings: HeadSettings, held_out_trees: int
    ):
        self.pair, self.prepared, self.settings = pair, prepared, settings
        self.device = pair.target.device
        self.network = network.to(self.device).float().train().requires_grad_(True)
        self.sides = target_sides(pair)
        self.held_out_trees = held_out_trees
        self.optimiser = torch.optim.AdamW(
            self.network.parameters(),
            lr=settings.learning_rate,
            betas=(0.9, 0.95),
            weight_decay=settings.weight_decay,
        )

    def step(self, number: int, share: float) -> Mapping[str, float]:
        """One step of AdamW on the windows of its number."""
        settings = self.settings
        windows = batch_of(self.prepared.plan.windows, settings.batch, settings.seed, number)
        parts = self._losses(windows)
        parts["loss"].backward()
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), settings.clip)
        for group in self.optimiser.param_groups:
            group["lr"] = settings.learning_rate * rate_factor(share, settings.warm_up)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return {name: float(value.detach()) for name, value in parts.items()} | {"gradient_norm": float(norm)}

    def evaluate(self) -> Mapping[str, float]:
        """Overlap of the two laws and greedy agreement by depth, and tokens per pass of SALF, all on held-out text."""
        figures = held_out_figures(self.network, self.sides, self.prepared, self.held_out_trees, self.pair.target)
        return {**figures, "held_out_tokens_per_pass": self.tokens_per_pass()}

    def tokens_per_pass(self) -> float:
        """Tokens per verification of SALF with its default settings, decoding greedily behind held-out beginnings."""
        passes = tokens = 0
        for number in range(min(PROMPTS, self.prepared.plan.held_out)):
            session = self._session(number, WRITTEN_TOKENS, "summary")
            passes += len(list(session))
            tokens += session.new_tokens
        return tokens / passes

    def tree(self) -> RunTrace:
        """A held-out beginning, decoded with SALF and the head as it is."""
        session = self._session(0, TREE_TOKENS, "full")
        for _ in session:
            pass
        return session.trace()

    def _losses(self, windows: list[int]) -> dict[str, torch.Tensor]:
        """The loss of some windows and its parts, computed in bfloat16 where the device is faster at it."""
        settings, text = self.settings, self.prepared.text("train", windows, self.device)
        if settings.loss == "talf":
            trees = self.prepared.trees("train", windows, settings.top_k, self.device)
            with reduced(self.device, self.pair.target.dtype):
                return talf_loss(self.network, self.sides, text, trees)
        loss = {"eagle": eagle_loss, "hass": hass_loss}[settings.loss]
        with reduced(self.device, self.pair.target.dtype):
            return loss(self.network, self.sides, text, settings.weights)

    def _session(self, window: int, tokens: int, record: str) -> DecodeSession:
        text = self.prepared.text("held_out", [window], torch.device("cpu")).tokens[0]
        prompt = text[: min(PROMPT_TOKENS, len(text) // 2)].tolist()
        limits = Limits(tokens, ignore_end_of_text=True, record=record)
        return DecodeSession(drafting_with(self.pair, self.network), DRAFTED_BY, prompt, limits=limits)


DRAFTED_BY: Method = METHODS["salf"].with_settings(draft_head=TRAINED_NOW)


def drafting_with(pair: Pair, network: HeadNetwork) -> Pair:
    """The pair that drafts with a copy of a head's weights as they are, under the name `TRAINED_NOW`."""
    return pair.with_head(make_head(pair.target, network, TRAINED_NOW, TRAINED_NOW))


PHASE = "training the head"


def prepare_head(args: argparse.Namespace, words: list[str], training: Training) -> Callable[[], None]:
    """All that comes before the first step; gives what trains and stores the head.

    Args:
        args: of the command, made of `words`.
    """
    # A norm in bfloat16 with its weights in float32 takes a slower kernel; it is a small part of a step.
    warnings.filterwarnings("ignore", message="Mismatch dtype between input and weight")
    settings = HeadSettings(args.loss, args.top_k, args.batch, args.learning_rate, seed=args.seed)
    plan = Plan(args.steps, minutes_of(args, "head"))
    windows = WindowPlan(**{each.name: getattr(args, each.name) for each in fields(WindowPlan)})
    texts = read_corpus(args.corpus) if args.corpus is not None else sample_texts()
    pair = pair_of(args)
    require(
        windows.size <= pair.context,
        f"Windows of {windows.size} tokens do not fit the context of {pair.context}: lower --roots or --depth.",
    )
    network, begun_from = first_network(args, pair)
    target_sides(pair)  # a target without features is refused before anything is begun
    top_k = args.top_k if args.loss == "talf" else None
    if not args.resume:
        wide = "" if top_k is None else f" (top-{top_k})"
        training.begin(noted("head", f"{LOSSES[args.loss]} head{wide}", words, vars(args), pair))
    prepared = prepared_data(training, pair, texts, windows, top_k, args.prepared)
    learner = HeadLearner(pair, network, prepared, settings, HELD_OUT_WIDTH)
    belongs_to = {
        "loss": args.loss,
        "top_k": top_k or 0,
        "batch": args.batch,
        "learning_rate": args.learning_rate,
        "seed": args.seed,
        "begun_from": begun_from,
        "head": json.dumps(network.config.to_json()),
        "data": json.dumps({**prepared.belongs_to, "windows": windows.windows}),
    }

    def work() -> None:
        status = train(learner, training, plan, phase=PHASE, belongs_to=belongs_to, resume=args.resume)
        network.load_state_dict(rounded(network.state_dict()))  # measured as it will be read back
        figures = {"steps": status.done, "trained_s": status.trained_s, **learner.evaluate()}
        figures |= {} if top_k is None else {"top_k": top_k}
        place = training.path / HEADS.folder
        save_head(place, network, args.loss, pair_identity(pair), training.settings().created, figures)
        print(f"{place}: {LOSSES[args.loss]} head, {status.done} steps; draft_head={training.path.name}")

    return work


def first_network(args: argparse.Namespace, pair: Pair) -> tuple[HeadNetwork, str]:
    """The head as it begins, fresh or trained before, and what tells it from others.

    Raises:
        SettingsError: there is no head of that name.
        PairError: it is damaged, or of another target.
    """
    if args.start_from is None:
        hidden = pair.target.info.hidden_size
        config = HeadConfig.of(hidden, pair.logits_size, args.mlp_size or max(1, hidden * 8 // 5))
        return HeadNetwork(config, torch.Generator().manual_seed(args.seed)), ""
    folder = Path(args.start_from)
    card = read_card(folder, folder.name) if (folder / HEADS.card).exists() else find_head(str(args.start_from))
    require_fit(card, pair_identity(pair))
    return load_network(card), weights_digest(card)
