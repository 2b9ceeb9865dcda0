"""Training a draft head: batches, AdamW with a cosine schedule, held-out curves, a tree drafted with it as it is."""

import argparse
import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from decoding.common.errors import require
from decoding.common.files import write_whole
from decoding.common.settings import from_arguments
from decoding.common.trained_store import rounded
from decoding.engines.base import OutputHead
from decoding.heads import store
from decoding.heads.network import HeadConfig, HeadNetwork
from decoding.models.pair import Pair, pair_identity
from decoding.models.presets import cpu_computes_bfloat16
from decoding.session.session import DecodeSession
from decoding.trace.records import Record, RunTrace
from decoding.training.command import minutes_of, noted, pair_of
from decoding.training.folder import EXAMPLE, Training
from decoding.training.head_comparison import COMPARED_NODES, head_session, mean_and_error, tokens_by_window
from decoding.training.head_data import HELD_OUT_WIDTH, Prepared, example_of, prepared_data
from decoding.training.head_losses import (
    LOGITS_AT_ONCE,
    LOSS_OF,
    Drafted,
    LossName,
    Project,
    Sides,
    Weights,
    labels_of,
    unroll,
)
from decoding.training.loop import Learner, PhasePlan, train
from decoding.training.text import WindowPlan, read_corpus, sample_texts

WINDOWS = 8  # held-out windows that a curve is measured on; more cost a CPU seconds
TREE_TOKENS = 12  # of the held-out prompt that is drafted again and again
WRITTEN_TOKENS, PROMPTS = 24, 4  # by which tokens per pass are measured
PHASE = "training the head"


def reduced(device: torch.device, dtype: torch.dtype) -> AbstractContextManager:
    """Compute in bfloat16 where the device is faster at it; beside a target in float16, its rival, in float32."""
    fast = device.type == "cuda" or (device.type == "cpu" and cpu_computes_bfloat16())
    return torch.autocast(device.type, torch.bfloat16) if fast and dtype != torch.float16 else nullcontext()


def closeness(project: Project, out: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Overlap, agreement (0 or 1) and cross-entropy of rows of features `[rows, hidden_size]`, `[rows]` each."""
    parts: list[Sequence[Tensor]] = []
    block = max(1, LOGITS_AT_ONCE // project(labels[:1]).shape[-1])
    for mine, theirs in zip(out.split(block), labels.split(block), strict=True):
        draft, distribution = project(mine).float(), torch.softmax(project(theirs).float(), -1)
        probs = torch.softmax(draft, -1)
        same = (draft.argmax(-1) == distribution.argmax(-1)).float()
        loss = -(distribution * torch.log_softmax(draft, -1)).sum(-1)
        parts.append((torch.minimum(probs, distribution).sum(-1), same, loss))
    overlap, same, loss = (torch.cat(part) for part in zip(*parts, strict=True))
    return overlap, same, loss


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
        require(self.loss in store.LOSSES, f"There is no loss {self.loss!r}: choose {', '.join(store.LOSSES)}.")
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
        held_out_trees: width of the target's trees in the held-out windows.
    """

    network: HeadNetwork

    def __init__(
        self, pair: Pair, network: HeadNetwork, prepared: Prepared, settings: HeadSettings, held_out_trees: int
    ):
        self.pair, self.prepared, self.settings, self.held_out_trees = pair, prepared, settings, held_out_trees
        self.device, self.sides = pair.target.device, target_sides(pair)
        self.network = network.to(self.device).float().train().requires_grad_(True)
        self.optimiser = torch.optim.AdamW(
            self.network.parameters(), settings.learning_rate, (0.9, 0.95), weight_decay=settings.weight_decay
        )

    def step(self, number: int, share: float) -> Mapping[str, float]:
        """One step of AdamW on the windows of its number."""
        settings = self.settings
        windows = batch_of(self.prepared.plan.windows, settings.batch, settings.seed, number)
        text = self.prepared.text("train", windows, self.device)
        rest: Weights | Drafted = settings.weights
        if settings.loss == "talf":
            rest = self.prepared.trees("train", windows, settings.top_k, self.device)
        with reduced(self.device, self.pair.target.dtype):
            parts = LOSS_OF[settings.loss](self.network, self.sides, text, rest)
        parts["loss"].backward()
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), settings.clip)
        for group in self.optimiser.param_groups:
            group["lr"] = settings.learning_rate * rate_factor(share, settings.warm_up)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return {name: float(value.detach()) for name, value in parts.items()} | {"gradient_norm": float(norm)}

    def evaluate(self) -> Mapping[str, float]:
        """Figures of held-out text by name.

        `held_out_overlap_D` at depth D from 1: the sum over tokens of the smaller of both probabilities, which is the
        chance that a drawn token is accepted; `held_out_agreement_D`: share of nodes after which both have the same
        likeliest token; `held_out_loss` at the roots in nats; `held_out_tokens_per_pass`: of SALF with its default
        settings, decoding greedily after held-out beginnings.
        """
        sums: dict[str, list[Tensor]] = {}
        prepared, passes, tokens = self.prepared, 0, 0
        for window in range(min(WINDOWS, prepared.plan.held_out)):
            text, trees = prepared.text("held_out", [window], self.device), None
            if prepared.plan.depth > 1:
                trees = prepared.trees("held_out", [window], self.held_out_trees, self.device)
            with torch.no_grad(), reduced(self.device, self.pair.target.dtype):
                found = unroll(self.network, self.sides.embed, text, trees)
                for depth, (out, label) in enumerate(zip(found, labels_of(text, trees), strict=True), 1):
                    parts = closeness(self.sides.project, out.flatten(0, -2), label.flatten(0, -2))
                    names = (f"overlap_{depth}", f"agreement_{depth}", *(("loss",) if depth == 1 else ()))
                    for name, part in zip(names, parts, strict=False):
                        sums.setdefault(f"held_out_{name}", []).append(part)
        figures = {name: float(torch.cat(parts).mean()) for name, parts in sorted(sums.items())}
        for number in range(min(PROMPTS, prepared.plan.held_out)):
            session = self._session(number, WRITTEN_TOKENS, "summary")
            passes += len(list(session))
            tokens += session.new_tokens
        return {**figures, "held_out_tokens_per_pass": tokens / passes}

    def compare(self) -> Mapping[str, float]:
        """What heads are ranked by: tokens per pass of optimal trees, with their error over the held-out windows."""
        values = [
            value for value in tokens_by_window(self.pair, self.network, self._windows()) if not math.isnan(value)
        ]
        name = f"held_out_tokens_at_{COMPARED_NODES}_nodes"
        return dict(zip((name, f"{name}_error"), mean_and_error(values), strict=True)) if values else {}

    def tree(self) -> RunTrace:
        """A held-out beginning, decoded with SALF and the head as it is."""
        session = self._session(0, TREE_TOKENS, "full")
        list(session)
        return session.trace()

    def _windows(self) -> Iterator[Tensor]:
        """Tokens of the held-out windows, one after another."""
        for number in range(self.prepared.plan.held_out):
            yield self.prepared.text("held_out", [number], torch.device("cpu")).tokens[0]

    def _session(self, window: int, tokens: int, record: Record) -> DecodeSession:
        text = self.prepared.text("held_out", [window], torch.device("cpu")).tokens[0]
        return head_session(self.pair, self.network, text, tokens, record)


def prepare_head(args: argparse.Namespace, words: list[str], training: Training) -> Callable[[], None]:
    """All that comes before the first step, as `words` ask for; gives what trains and stores the head."""
    # A norm in bfloat16 with its weights in float32 takes a slower kernel; it is a small part of a step.
    warnings.filterwarnings("ignore", message="Mismatch dtype between input and weight")
    weights = Weights(args.regression, args.classification, args.distillation, args.distilled_tokens)
    settings = HeadSettings(args.loss, args.top_k, args.batch, args.learning_rate, seed=args.seed, weights=weights)
    plan = PhasePlan(args.steps, minutes_of(args, "head"))
    windows = from_arguments(WindowPlan, args)
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
        training.begin(noted("head", f"{store.LOSSES[args.loss]} head{wide}", words, vars(args), pair))
    prepared = prepared_data(training, pair, texts, windows, top_k, args.prepared)
    write_whole(training.path / EXAMPLE, json.dumps(example_of(prepared, pair, top_k)).encode())
    learner = HeadLearner(pair, network, prepared, settings, HELD_OUT_WIDTH)
    belongs_to = {
        "loss": args.loss,
        "top_k": top_k or 0,
        "batch": args.batch,
        "learning_rate": args.learning_rate,
        "seed": args.seed,
        "begun_from": begun_from,
        "head": json.dumps(vars(network.config)),
        "data": json.dumps({**prepared.belongs_to, "windows": windows.windows}),
        **({} if weights == Weights() else {"weights": json.dumps(vars(weights))}),
    }

    def work() -> None:
        status = train(learner, training, plan, phase=PHASE, belongs_to=belongs_to, resume=args.resume)
        network.load_state_dict(rounded(network.state_dict()))  # measured as it will be read back
        figures = {"steps": status.done, "trained_s": status.trained_s, **learner.evaluate(), **learner.compare()}
        figures |= {} if top_k is None else {"top_k": top_k}
        place = training.path / store.HEADS.folder
        created, frequent = training.settings().created, prepared.frequent(store.MOST_FREQUENT)
        store.save_head(place, network, args.loss, pair_identity(pair), created, figures, frequent)
        print(f"{place}: {store.LOSSES[args.loss]} head, {status.done} steps; draft_head={training.path.name}")

    return work


def first_network(args: argparse.Namespace, pair: Pair) -> tuple[HeadNetwork, str]:
    """The head as it begins, fresh or trained before, and what tells it from others."""
    if args.start_from is None:
        hidden = pair.target.info.hidden_size
        config = HeadConfig.of(hidden, pair.logits_size, args.mlp_size or max(1, hidden * 8 // 5))
        return HeadNetwork(config, torch.Generator().manual_seed(args.seed)), ""
    folder = Path(args.start_from)
    if (folder / store.HEADS.card).exists():
        card = store.read_card(folder, folder.name)
    else:
        card = store.find_head(str(args.start_from))
    store.require_fit(card, pair_identity(pair))
    return store.load_network(card), store.HEADS.digest(card.folder)
