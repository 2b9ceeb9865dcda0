"""A server's own draft length at its own batch: its gain by modelled costs, what its log says of them. Torch-free.

own = own_point(costs, acceptance, length=5, engine_s=0.00075)
own.gain, own.break_even, own.engine_flip_s
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from decoding.analysis.batch import Rates, chains
from decoding.analysis.model_shape import ModelShape
from decoding.analysis.roofline import MOST_BATCH
from decoding.common.cost_model import CostModel
from decoding.trace.engine_metrics import EngineMetrics

CLOSE = 0.25  # a logged rate of rounds that is so far from the modelled one agrees with it
NEAR = 0.01  # vocabularies whose sizes differ by more are of different tokenizers


@dataclass(frozen=True)
class OwnPoint:
    """K at a batch."""

    batch: int
    length: int
    tokens: float  # expected per round, the one of the target included
    # plain_s: a step of plain decoding. round_s: a round of speculation, `engine_s` of it the engine's own work.
    plain_s: float
    round_s: float
    engine_s: float

    @property
    def gain(self) -> float:
        """Tokens per second over those of plain decoding."""
        return self.tokens / self.break_even

    @property
    def break_even(self) -> float:
        """Tokens that a round has to commit to be as fast as plain decoding."""
        return self.round_s / self.plain_s

    @property
    def engine_flip_s(self) -> float:
        """What the engine may add to a round until speculation stops paying; below 0 it does not pay in any engine."""
        return self.tokens * self.plain_s - (self.round_s - self.engine_s)

    def with_engine(self, engine_s: float) -> float:
        """The gain where the engine adds so much to a round."""
        return self.tokens * self.plain_s / (self.round_s - self.engine_s + engine_s)


def own_point(costs: CostModel, acceptance: Rates, length: int, engine_s: float = 0.0) -> OwnPoint:
    """The chain of `length` tokens at the costs of a batch; `engine_s` is the part of a round that is the engine's."""
    shape = chains(acceptance, length)[-1]
    plain_s = costs.plain_iteration_s
    return OwnPoint(costs.batch, shape.nodes, shape.tokens, plain_s, shape.seconds(costs), engine_s)


@dataclass(frozen=True)
class LogCheck:
    """Rounds per second of a log, over all its sequences, beside those that are modelled."""

    # rounds: per second in the log. tokens: per second, as logged or as they follow from the rounds.
    rounds: float
    tokens: float
    modelled: tuple[float, float]  # rounds per second at the fewest and at the most sequences that are said to run
    sequences: int | None  # so many would make the logged rounds in the modelled time; None where no number does

    @property
    def agrees(self) -> bool:
        """Whether the logged rate lies within what is modelled, or close to it."""
        low, high = min(self.modelled), max(self.modelled)
        return low * (1 - CLOSE) <= self.rounds <= high * (1 + CLOSE)

    def engine_s(self, own: OwnPoint) -> float:
        """What the engine adds to a round if `own.batch` sequences run all the time and passes are as modelled."""
        return own.engine_s + own.batch / self.rounds - own.round_s


def log_check(
    metrics: EngineMetrics, first: OwnPoint, last: OwnPoint, of: Callable[[int], OwnPoint]
) -> LogCheck | None:
    """What the log's own throughput says of the model, given K at the fewest and the most sequences, and at any number
    `of` them; None where it has none.
    """
    mean = metrics.value("mean acceptance length")
    rounds = metrics.passes / metrics.seconds if metrics.passes and metrics.seconds else None
    if rounds is None and metrics.generated and mean:
        rounds = metrics.generated / mean
    if not rounds:
        return None
    tokens = metrics.generated or rounds * (mean or first.tokens)
    modelled = first.batch / first.round_s, last.batch / last.round_s
    sequences = bisect_left(range(MOST_BATCH), rounds, lo=1, key=lambda batch: batch / of(batch).round_s)
    return LogCheck(rounds, tokens, modelled, sequences if sequences < MOST_BATCH else None)


def other_vocabulary(target: ModelShape, draft: ModelShape | None) -> str:
    """A sentence where a draft model cannot have the target's tokenizer; empty for heads, lookups and equal sizes."""
    if draft is None or draft.layers == 1 or draft.vocabulary == target.vocabulary:
        return ""
    sizes = f"{draft.name} has {draft.vocabulary:,} tokens in its vocabulary and {target.name} {target.vocabulary:,}"
    if abs(draft.vocabulary - target.vocabulary) > NEAR * target.vocabulary:
        return f"{sizes}: a draft model needs the target's tokenizer, so this pair cannot run."
    return f"{sizes}: vLLM wants them equal, and “draftscope doctor” tells whether it is one tokenizer."
