"""The phases in which the embedded pair is trained, each through `loop.train` into the folder of one training.

    training the target      on text, at a steady learning rate; its end is kept in `steady.pt`
    cooling the target       learning rates fall to 0, half of the steps on longer windows; kept in `cooled.pt`
    unlearning loops         the target's own repetitions are made unlikely
    distilling the draft     towards the target's distributions

A training that is given more minutes goes on from `steady.pt`: what comes behind it is done again at the end.
"""

from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import transformers
from transformers import GPTNeoXForCausalLM

from decoding.common.errors import TrainingError, require
from decoding.common.files import write_whole
from decoding.methods.methods import METHODS
from decoding.models.pair import load_pair, release
from decoding.models.presets import PairSettings
from decoding.sampling.sampling import Sampling
from decoding.session.session import DecodeSession, Limits
from decoding.trace.records import RunTrace
from decoding.training.folder import Training
from decoding.training.loop import Checkpoint, Learner, Plan, load_checkpoint, train
from decoding.training.pair_networks import (
    DRAFT,
    TARGET,
    NetworkShape,
    begin_from,
    load_network,
    new_network,
    save_network,
)
from decoding.training.pair_phases import (
    DraftLearner,
    DraftSettings,
    LoopLearner,
    LoopSettings,
    TargetLearner,
    TargetSettings,
    go_back,
)
from decoding.training.pair_tokens import END_ID, TOKENIZER, TokenArrays

METHOD = "dynatree"
PROMPT_TOKENS, NEW_TOKENS = 48, 24


def held_out_prompt(arrays: TokenArrays) -> list[int]:
    """The beginning of what is held out of the kind with the most text."""
    kind = max(arrays.kinds, key=lambda kind: len(arrays.trained[kind]))
    return [int(token) for token in arrays.held_out[kind][: PROMPT_TOKENS + 1] if token != END_ID][:PROMPT_TOKENS]


def drafted(
    target: GPTNeoXForCausalLM, draft: GPTNeoXForCausalLM, arrays: TokenArrays, tokenizer: Path, place: Path
) -> RunTrace:
    """A short greedy run of both networks as they are, which are stored below `place` for it.

    Raises:
        DiskError: the disk is full, or the place cannot be written.
    """
    transformers.logging.set_verbosity_error()
    for name, network in (("target", target), ("draft", draft)):
        save_network(network, tokenizer, place / name)
    pair = load_pair(PairSettings(target=str(place / "target"), draft=str(place / "draft"), device="cpu"))
    try:
        limits = Limits(NEW_TOKENS, ignore_end_of_text=True)
        session = DecodeSession(pair, METHODS[METHOD], held_out_prompt(arrays), Sampling(), limits)
        for _ in session:
            pass
        return session.trace()
    finally:
        release(pair)


STEADY, COOLING, LOOPS, DISTILLING = (
    "training the target",
    "cooling the target",
    "unlearning loops",
    "distilling the draft",
)
SHARES = {STEADY: 0.42, COOLING: 0.15, LOOPS: 0.25, DISTILLING: 0.18}  # of the time or steps of the whole
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

    def plan(self, phase: str) -> Plan:
        """The share of a phase."""
        every = {"evaluate_every_s": self.pause_s, "tree_every_s": self.pause_s,
                 "checkpoint_every_s": min(self.pause_s, CHECKPOINT_S)}  # fmt: skip
        if self.steps is not None:
            return Plan(steps=max(1, round(self.steps * SHARES[phase])), **every)
        require(self.minutes is not None, "Give either minutes or steps of training.")
        return Plan(minutes=self.minutes * SHARES[phase], **every)

    def behind_s(self, phase: str) -> float:
        """Seconds that the phases behind one are planned to take; 0 where they are planned by steps."""
        phases = list(SHARES)
        later = phases[phases.index(phase) + 1 :]
        return (self.minutes or 0.0) * 60 * sum(SHARES[name] for name in later)

    def exceeds(self, steady: Checkpoint) -> bool:
        """Whether the steady part is planned to go on behind its end as it was kept."""
        plan = self.plan(STEADY)
        return steady.step < plan.steps if plan.steps is not None else steady.trained_s < (plan.planned_s or 0.0)


@dataclass(frozen=True)
class PairSetup:
    """What is trained and how.

    Attributes:
        start_from: folder with `target` and `draft` to begin from; None begins from random weights.
        target_shape, draft_shape: of the networks.
        target, loops, draft: settings of the phases.
    """

    seed: int = 0
    device: str = "cpu"
    start_from: Path | None = None
    target_shape: NetworkShape = TARGET
    draft_shape: NetworkShape = DRAFT
    target: TargetSettings = field(default_factory=TargetSettings)
    loops: LoopSettings = field(default_factory=LoopSettings)
    draft: DraftSettings = field(default_factory=DraftSettings)


class PairTraining:
    """Trains a pair in the folder of a training, from wherever its checkpoint stands."""

    def __init__(self, folder: Training, arrays: TokenArrays, length: Length, setup: PairSetup):
        self.folder, self.arrays, self.length, self.setup = folder, arrays, length, setup
        self.belongs_to = {
            "tokens": arrays.identity,
            "target": asdict(setup.target_shape),
            "draft": asdict(setup.draft_shape),
            "seed": setup.seed,
        }

    def run(self, resume: bool = False, again: str = "") -> None:
        """Go through all phases that are left; the pair is then in `out`.

        Args:
            again: one of `AGAIN`: that phase and those behind it are done anew.

        Raises:
            StoppedError: somebody asked to stop.
            TrainingError: the checkpoint is of another training, or a loss is no number; or the phase that is to be
                done again was never reached.
            DiskError: the disk is full.
        """
        if again:
            kept = self.folder.path / AGAIN[again]
            if not kept.exists():
                raise TrainingError(f"{self.folder.path} has not come as far as --again {again}: resume it without.")
            write_whole(self.folder.checkpoint, kept.read_bytes())
        phases = list(SHARES)
        left = phases[phases.index(self._phase(resume)) :]
        for phase in left[1:]:  # records of phases that are done again
            self.folder.cut_log(-1, phase)
        target = self._target(left, resume) if STEADY in left or COOLING in left else None
        if LOOPS in left:
            self._unlearn_loops(target, resume)
        self._distil(resume)

    def _phase(self, resume: bool) -> str:
        """Where to go on; a longer training goes back to the end of its steady part."""
        if not resume or not self.folder.checkpoint.exists():
            return STEADY
        phase = load_checkpoint(self.folder.checkpoint, self.belongs_to).phase
        kept = self.folder.path / STEADY_CHECKPOINT
        if phase != STEADY and kept.exists() and self.length.exceeds(load_checkpoint(kept, self.belongs_to)):
            write_whole(self.folder.checkpoint, kept.read_bytes())
            return STEADY
        return phase

    def _target(self, left: list[str], resume: bool) -> GPTNeoXForCausalLM:
        network = self._new("target")
        tree = partial(self._tree, network, self._new("draft")) if self.setup.start_from is not None else lambda: None
        learner = TargetLearner(network, self.arrays, self.setup.target, self.setup.seed, tree)
        if STEADY in left:
            self._train(learner, STEADY, resume)
            write_whole(self.folder.path / STEADY_CHECKPOINT, self.folder.checkpoint.read_bytes())
        learner.cooling = True
        self._train(learner, COOLING, resume)
        write_whole(self.folder.path / COOLED_CHECKPOINT, self.folder.checkpoint.read_bytes())
        return network

    def _unlearn_loops(self, network: GPTNeoXForCausalLM | None, resume: bool) -> None:
        learner = LoopLearner(network or self._new("target"), self.arrays, self.setup.loops, self.setup.seed)
        self._train(learner, LOOPS, resume)
        before = load_checkpoint(self.folder.path / COOLED_CHECKPOINT, self.belongs_to).state["network"]
        go_back(learner.network, before, self.setup.loops.kept)
        self._save(learner.network, "target")

    def _distil(self, resume: bool) -> None:
        # From the target as it is stored, in 16 bits: that is what the draft will draft for.
        target = load_network(self.folder.path / OUT / "target").to(self.setup.device)
        draft = self._new("draft")
        tree = partial(self._tree, target, draft)
        learner = DraftLearner(target, draft, self.arrays, self.setup.draft, self.setup.seed, tree)
        self._train(learner, DISTILLING, resume)
        self._save(draft, "draft")

    def _train(self, learner: Learner, phase: str, resume: bool) -> None:
        train(
            learner,
            self.folder,
            self.length.plan(phase),
            phase=phase,
            belongs_to=self.belongs_to,
            resume=resume,
            left_behind_s=self.length.behind_s(phase),
        )

    def _new(self, role: str) -> GPTNeoXForCausalLM:
        """A network as it begins."""
        shape = self.setup.target_shape if role == "target" else self.setup.draft_shape
        network = new_network(shape, len(self.arrays.tokenizer), self.setup.seed)
        if self.setup.start_from is not None:
            begin_from(network, self.setup.start_from / role, self.arrays.tokenizer)
        return network.to(self.setup.device)

    @property
    def _tokenizer(self) -> Path:
        return self.folder.path / DATA / TOKENIZER

    def _save(self, network: GPTNeoXForCausalLM, role: str) -> None:
        save_network(network, self._tokenizer, self.folder.path / OUT / role)

    def _tree(self, target: GPTNeoXForCausalLM, draft: GPTNeoXForCausalLM) -> RunTrace:
        return drafted(target, draft, self.arrays, self._tokenizer, self.folder.path / NOW)
