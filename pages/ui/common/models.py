"""The one pair in memory, shared by all browser sessions: the old one is released before a new one is loaded."""

import os
import sys
import threading
from importlib import import_module
from typing import TYPE_CHECKING

import streamlit as st

from decoding.common.errors import DraftscopeError
from decoding.common.formats import byte_size, parameters, plural
from decoding.common.interruption import check_wanted, in_one_piece
from decoding.models.presets import PairSettings, choose_device
from decoding.trace.records import PairInfo, RunTrace

if TYPE_CHECKING:
    from decoding.common.cost_model import CostModel
    from decoding.models.pair import Pair
    from pages.ui.common.scheduler import ModelTask


LIBRARIES = (
    "decoding.session.session",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
)


class ModelManager:
    """Loads and releases pairs under a lock.

    Attributes:
        settings: of the loaded pair, or of the pair to load on first use.
        generation: counts the pairs loaded; a run whose pair is gone can be read, not continued.
        costs: measured times of passes of the pair in memory, None without a pair.
        head_costs: the same with a draft head in place of its draft model, by name, once measured.
        batch_costs: costs by batch size, by name of the draft head ("" without one), where they are measured.
        identity: distinguishes it from other pairs, None without a pair.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._pair: Pair | None = None
        self.settings = first_pair()
        self.generation = 0
        self.costs: CostModel | None = None
        self.head_costs: dict[str, CostModel] = {}
        self.batch_costs: dict[str, dict[int, CostModel]] = {}
        self.identity: dict[str, object] | None = None

    @property
    def loaded(self) -> bool:
        """Whether a pair is in memory."""
        return self._pair is not None

    @property
    def info(self) -> PairInfo | None:
        """The loaded pair, None before the first one; never waits and never loads."""
        pair = self._pair
        return pair.info if pair is not None else None

    def pair(self) -> "Pair":
        """The pair in memory; the first call loads the embedded pair (seconds: call it in the worker)."""
        with self._lock, in_one_piece():
            if self._pair is None:
                self._load(self.settings)
            return self._pair

    def load(self, settings: PairSettings) -> "Pair":
        """Release the pair in memory and load another.

        Everything that needs no weights is checked before the old pair is released. If loading fails after that, the
        embedded pair is loaded.

        Raises:
            DraftscopeError: why the pair cannot be loaded, in one sentence.
        """
        with self._lock, in_one_piece():
            if not settings.embedded:
                from decoding.models.loading import find_model

                choose_device(settings.device)
                for role in ("target", "draft"):
                    find_model(getattr(settings, role), role, settings.widen)
            self._release()
            try:
                return self._load(settings)
            except DraftscopeError as error:
                self._load(PairSettings())
                raise type(error)(f"{error} The embedded pair is loaded instead.") from error

    def measure_costs(self, head: str = "") -> "CostModel":
        """Measure the passes of the pair in memory again; without a pair, load it, which measures if necessary.

        A second or two: call it in the worker.

        Args:
            head: of a draft head that replaces the draft model; measured again where it is known already.

        Raises:
            DraftscopeError: there is no such head, or it does not fit.
        """
        from decoding.costs.measuring import cost_model
        from decoding.heads.head import with_draft
        from decoding.session.session import unrecorded

        with self._lock, in_one_piece():
            if head:
                again = head in self.head_costs
                self.head_costs[head] = cost_model(with_draft(self.pair(), head), unrecorded, again=again)
                return self.head_costs[head]
            if self._pair is None:
                self.pair()
            else:
                self.costs = cost_model(self._pair, unrecorded, again=True)
            return self.costs

    def measure_batches(self, head: str, again: bool, job: "ModelTask") -> "dict[int, CostModel]":
        """Costs of the pair in memory by batch size, measured (half a minute) unless kept or `again`; in the worker.

        Raises:
            DraftscopeError: its engine runs no batches; there is no such head.
        """
        from decoding.costs.batches import BATCHES, batch_costs
        from decoding.heads.head import with_draft
        from decoding.session.session import unrecorded

        def report(batch: int) -> None:
            job.report(BATCHES.index(batch), len(BATCHES), f"passes over {plural(batch, 'sequence')}")

        with self._lock, in_one_piece():
            self.batch_costs[head] = batch_costs(with_draft(self.pair(), head), unrecorded, again, report)
            return self.batch_costs[head]

    def mend_costs(self) -> None:
        """Check the costs that runs gave cause to doubt and take those that were measured again; in the worker."""
        with self._lock, in_one_piece():
            if self._pair is None:
                return
            from decoding.costs.measuring import COSTS, machine_words, settle_doubts
            from decoding.session.session import unrecorded

            for pair, costs in settle_doubts(unrecorded):
                if pair.head is not None and pair.target.engine is self._pair.target.engine:
                    self.head_costs[pair.head.name] = costs
            self.costs = COSTS.known(self._pair, machine_words(self._pair)) or self.costs

    def costs_of(self, trace: RunTrace) -> "CostModel | None":
        """The costs of the pair in memory with the draft head of a run; None where they are not measured."""
        return self.head_costs.get(trace.draft_head) if trace.draft_head else self.costs

    def memory_words(self) -> str:
        """Used and free memory of the GPU, empty without a loaded CUDA pair."""
        pair = self._pair
        if pair is None or "torch" not in sys.modules or pair.target.device.type != "cuda":
            return ""
        import torch

        free, total = torch.cuda.mem_get_info(pair.target.device)
        return f" · GPU {byte_size(total - free)} used, {byte_size(free)} free"

    def _load(self, settings: PairSettings) -> "Pair":
        # Takes many seconds on a busy machine; in its own thread, as an import cannot be cancelled.
        thread = threading.Thread(target=lambda: [import_module(name) for name in LIBRARIES], daemon=True)
        thread.start()
        while thread.is_alive():
            check_wanted()
            thread.join(0.1)
        from decoding.costs.batches import known_batch_costs
        from decoding.models.pair import pair_identity
        from decoding.session.session import open_pair

        pair, self.costs = open_pair(settings)
        self._pair, self.identity = pair, pair_identity(pair)
        known = known_batch_costs(pair)
        self.settings, self.head_costs, self.batch_costs = settings, {}, {"": known} if known else {}
        self.generation += 1
        return self._pair

    def _release(self) -> None:
        if self._pair is None:
            return
        from decoding.models.pair import release

        old, self._pair, self.costs, self.identity = self._pair, None, None, None
        release(old)


def first_pair() -> PairSettings:
    """The pair to load on first use: the embedded one, or the one the environment names.

    DRAFTSCOPE_TARGET and DRAFTSCOPE_DRAFT are folders or Hugging Face ids, DRAFTSCOPE_DTYPE the precision.
    """
    names = {"target": "DRAFTSCOPE_TARGET", "draft": "DRAFTSCOPE_DRAFT", "dtype": "DRAFTSCOPE_DTYPE"}
    return PairSettings(**{field: os.environ[name] for field, name in names.items() if os.environ.get(name)})


@st.cache_resource(show_spinner=False)
def manager() -> ModelManager:
    """The model manager of this server."""
    return ModelManager()


def loaded_pair(job: "ModelTask") -> "Pair":
    """The pair in memory, loaded where there is none; call it in the worker."""
    models = manager()
    job.report(0, 0, "" if models.loaded else "loading the models, a few seconds")
    return models.pair()


def describe_pair(info: PairInfo) -> str:
    """A pair in one line: name, sizes, device, dtype."""
    target, draft = info.target, info.draft
    sizes = f"{parameters(target.parameters)} + {parameters(draft.parameters)}"
    dtype = target.dtype if target.dtype == draft.dtype else f"{target.dtype} + {draft.dtype}"
    return f"{info.name} · {sizes} · {target.device} · {dtype}"


def engine_words(info: PairInfo) -> str:
    """Which engine runs each model, and why it was chosen."""
    return " ".join(
        f"Engine of the {role}: {each.engine}, {each.engine_reason}."
        for role, each in (("target", info.target), ("draft", info.draft))
    )
