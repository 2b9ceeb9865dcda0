"""The phases in which the embedded pair is trained, each through `loop.train` into the folder of one training.

    training the target      on text, at a steady learning rate; its end is kept in `steady.pt`
    cooling the target       learning rates fall to 0, half of the steps on longer windows; kept in `cooled.pt`
    unlearning loops         the target's own repetitions are made unlikely
    distilling the draft     towards the target's distributions

A training that is given more minutes goes on from `steady.pt`: what comes after it is done again at the end. One that
starts from a trained pair may leave out the first phases.
"""

from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import transformers
from torch import nn
from transformers import GPTNeoXForCausalLM

from decoding.common.errors import TrainingError
from decoding.common.files import write_whole
from decoding.methods.methods import METHODS
from decoding.models.pair import load_pair, release
from decoding.models.presets import EMBEDDED, PairSettings, model_folder
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits
from decoding.trace.records import RunTrace
from decoding.training.folder import Training
from decoding.training.loop import Learner, PhasePlan, load_checkpoint, train
from decoding.training.pair_loops import LoopLearner, LoopSettings, go_back
from decoding.training.pair_networks import (
    DRAFT,
    TARGET,
    NetworkShape,
    begin_from,
    has_shape,
    load_network,
    new_network,
    save_network,
    shrink_embeddings,
)
from decoding.training.pair_phases import DraftLearner, DraftSettings, TargetLearner, TargetSettings
from decoding.training.pair_tokens import END_ID, TOKENIZER, TokenArrays

METHOD = "dynatree"
PROMPT_TOKENS, NEW_TOKENS = 48, 24


STEADY, COOLING = "training the target", "cooling the target"
LOOPS, DISTILLING = "unlearning loops", "distilling the draft"
SHARES = {STEADY: 0.42, COOLING: 0.15, LOOPS: 0.25, DISTILLING: 0.18}  # of the time or steps of the whole
PHASES = tuple(SHARES)
FIRST = {"training": STEADY, "cooling": COOLING, "loops": LOOPS, "draft": DISTILLING}  # by the word that asks for it
STEADY_CHECKPOINT, COOLED_CHECKPOINT = "steady.pt", "cooled.pt"
# What a phase that is done again begins from, by the word that asks for it.
AGAIN = {"cooling": STEADY_CHECKPOINT, "loops": COOLED_CHECKPOINT}
CHECKPOINT_S = 300.0  # of training between two checkpoints at most
DATA, OUT, NOW = "data", "out", "now"


@dataclass(frozen=True)
class Length:
    """How long all phases take together: minutes or steps; `pause_s` of training between two measurements."""

    minutes: float | None = None
    steps: int | None = None
    pause_s: float = 300.0

    def plan(self, phase: str, first: str = STEADY) -> PhasePlan:
        """The share of a phase where `first` is the first one."""
        share = SHARES[phase] / sum(SHARES[name] for name in PHASES[PHASES.index(first) :])
        every: dict[str, Any] = {"evaluate_every_s": self.pause_s, "tree_every_s": self.pause_s,
                 "checkpoint_every_s": min(self.pause_s, CHECKPOINT_S)}  # fmt: skip
        steps = None if self.steps is None else max(1, round(self.steps * share))
        return PhasePlan(steps, None if self.minutes is None else self.minutes * share, **every)


@dataclass(frozen=True)
class PairSetup:
    """What is trained and how.

    Attributes:
        start_from: folder with `target` and `draft` to begin from; None begins from random weights. A draft of another
            shape begins anew, with the target's embeddings.
        first: of the phases; those before it are left out.
        target_shape, draft_shape: of the networks.
        target, loops, draft: settings of the phases.
    """

    seed: int = 0
    device: str = "cpu"
    start_from: Path | None = None
    first: str = STEADY
    target_shape: NetworkShape = TARGET
    draft_shape: NetworkShape = DRAFT
    target: TargetSettings = field(default_factory=TargetSettings)
    loops: LoopSettings = field(default_factory=LoopSettings)
    draft: DraftSettings = field(default_factory=DraftSettings)


def trained_folder(pair: Path, role: str) -> Path:
    """The folder of a network to begin from; the pair of the program by its name."""
    return (model_folder(EMBEDDED, role) if str(pair) == EMBEDDED else None) or pair / role


def _weights(shape: NetworkShape) -> dict[str, int]:
    """What decides the sizes of a network's weights: not the longest text, whose positions are computed."""
    return {name: value for name, value in asdict(shape).items() if name != "context"}


class PairTraining:
    """Trains a pair in the folder of a training, from wherever its checkpoint stands."""

    def __init__(self, folder: Training, arrays: TokenArrays, length: Length, setup: PairSetup):
        self.folder, self.arrays, self.length, self.setup = folder, arrays, length, setup
        self.belongs_to = {
            "tokens": arrays.identity,
            "target": _weights(setup.target_shape),
            "draft": _weights(setup.draft_shape),
            "seed": setup.seed,
        }

    def run(self, resume: bool = False, again: str = "") -> None:
        """Go through all phases that are left; the pair is then in `out`.

        Args:
            again: one of `AGAIN`: that phase and those after it are done anew.

        Raises:
            StoppedError: somebody asked to stop.
            TrainingError: the checkpoint is of another training, a loss is no number, or `again` was never reached.
        """
        if again:
            kept = self.folder.path / AGAIN[again]
            if not kept.exists():
                raise TrainingError(f"{self.folder.path} has not reached --again {again}: resume it without.")
            write_whole(self.folder.checkpoint, kept.read_bytes())
        left = PHASES[PHASES.index(self._phase(resume)) :]
        for phase in left[1:]:  # records of phases that are done again
            self.folder.cut_log(-1, phase)
        if LOOPS in left:
            network = self._new("target")
            begun = {name: weights.clone() for name, weights in network.state_dict().items()}
            if COOLING in left:
                self._train_target(network, STEADY in left, resume)
            kept = self.folder.path / COOLED_CHECKPOINT
            before = load_checkpoint(kept, self.belongs_to).state["network"] if kept.exists() else begun
            learner = LoopLearner(network, before, self.arrays, self.setup.loops, self.setup.seed)
            self._train(learner, LOOPS, resume)
            go_back(network, before, self.setup.loops.kept)
            self._save(network, OUT, "target")
        elif not (self.folder.path / OUT / "target").exists():
            self._save(self._new("target"), OUT, "target")
        # From the target as it is stored, in 16 bits: that is what the draft will draft for.
        target = load_network(self.folder.path / OUT / "target")
        nn.Module.to(target, self.setup.device)
        draft = self._new("draft", target)
        tree = partial(self._tree, target, draft)
        distilled = DraftLearner(target, draft, self.arrays, self.setup.draft, self.setup.seed, tree)
        self._train(distilled, DISTILLING, resume)
        self._save(draft, OUT, "draft")

    def _phase(self, resume: bool) -> str:
        """Where to go on; a longer training goes back to the end of its steady part."""
        if not resume or not self.folder.checkpoint.exists():
            return self.setup.first
        phase = load_checkpoint(self.folder.checkpoint, self.belongs_to).phase
        kept = self.folder.path / STEADY_CHECKPOINT
        if phase == STEADY or not kept.exists():
            return phase
        steady, plan = load_checkpoint(kept, self.belongs_to), self.length.plan(STEADY, self.setup.first)
        if steady.step >= plan.steps if plan.steps is not None else steady.trained_s >= (plan.planned_s or 0.0):
            return phase
        write_whole(self.folder.checkpoint, kept.read_bytes())
        return STEADY

    def _train_target(self, network: GPTNeoXForCausalLM, steady: bool, resume: bool) -> None:
        """Train a target until its rates have cooled down, from the beginning of its steady part or from after it."""
        tree = partial(self._tree, network, self._new("draft")) if self.setup.start_from is not None else lambda: None
        learner = TargetLearner(network, self.arrays, self.setup.target, self.setup.seed, tree)
        if steady:
            self._train(learner, STEADY, resume)
            write_whole(self.folder.path / STEADY_CHECKPOINT, self.folder.checkpoint.read_bytes())
        learner.cooling = True
        self._train(learner, COOLING, resume)
        write_whole(self.folder.path / COOLED_CHECKPOINT, self.folder.checkpoint.read_bytes())

    def _train(self, learner: Learner, phase: str, resume: bool) -> None:
        later = PHASES[PHASES.index(phase) + 1 :]
        train(
            learner,
            self.folder,
            self.length.plan(phase, self.setup.first),
            phase=phase,
            belongs_to=self.belongs_to,
            resume=resume,
            left_behind_s=sum(self.length.plan(name, self.setup.first).planned_s or 0.0 for name in later),
        )

    def _new(self, role: str, target: GPTNeoXForCausalLM | None = None) -> GPTNeoXForCausalLM:
        """A network as it begins; a draft without weights to begin from with the embeddings of a target."""
        shape = self.setup.target_shape if role == "target" else self.setup.draft_shape
        network = new_network(shape, len(self.arrays.tokenizer), self.setup.seed)
        start = None if self.setup.start_from is None else trained_folder(self.setup.start_from, role)
        if start is not None and (role == "target" or has_shape(start, shape)):
            begin_from(network, start, self.arrays.tokenizer)
        elif target is not None:
            shrink_embeddings(target, network)
        return nn.Module.to(network, self.setup.device)

    def _save(self, network: GPTNeoXForCausalLM, place: str, role: str) -> Path:
        """Store a network with the tokenizer below the folder; returns where."""
        folder = self.folder.path / place / role
        save_network(network, self.folder.path / DATA / TOKENIZER, folder)
        return folder

    def _tree(self, target: GPTNeoXForCausalLM, draft: GPTNeoXForCausalLM) -> RunTrace:
        """A short greedy run of both networks as they are after what is held out of the kind with the most text."""
        transformers.logging.set_verbosity_error()
        stored = [str(self._save(network, NOW, role)) for network, role in ((target, "target"), (draft, "draft"))]
        pair = load_pair(PairSettings(target=stored[0], draft=stored[1], device="cpu"))
        kind = max(self.arrays.kinds, key=lambda kind: len(self.arrays.trained[kind]))
        beginning = [int(token) for token in self.arrays.held_out[kind][: PROMPT_TOKENS + 1] if token != END_ID]
        try:
            limits = Limits(NEW_TOKENS, ignore_end_of_text=True)
            session = DecodeSession(pair, METHODS[METHOD], beginning[:PROMPT_TOKENS], Sampling(), limits)
            list(session)
            return session.trace()
        finally:
            release(pair)
