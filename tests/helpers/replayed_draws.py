"""Draws that repeat recorded decisions."""

from torch import Tensor

from decoding.trace.records import DrawTrace


class ReplayDraws:
    """Repeats recorded decisions in order; raises `ValueError` when asked for other ones."""

    def __init__(self, record: tuple[DrawTrace, ...]):
        self._left = iter(record)
        self.last_uniform: float | None = None

    def accept(self, probability: float) -> bool:
        return bool(self._next("accept").outcome)

    def choose(self, weights: Tensor) -> int:
        return self._next("choose").outcome

    def choose_each(self, weights: Tensor) -> list[int]:
        return [self.choose(row) for row in weights]

    def _next(self, kind: str) -> DrawTrace:
        draw = next(self._left, None)
        if draw is None or draw.kind != kind:
            raise ValueError(
                f"the recorded draws do not match: {kind} was requested, recorded is {draw.kind if draw else 'none'}"
            )
        self.last_uniform = draw.uniform
        return draw
