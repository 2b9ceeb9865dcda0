"""Makes runs with one pair on one device, and warms every method up before its first one."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from decoding.common.interruption import CancelledError
from decoding.compare.comparison import Contestant, Result, measured_call, warm_call
from decoding.experiments.circumstances import circumstances
from decoding.experiments.plan import Block, Run
from decoding.experiments.row_of import row_of
from decoding.models.pair import Pair
from decoding.session.limits import Limits

WARM_UP_TOKENS = 8


class Worker:
    """A pair, and which ways to decode have been warmed up with it.

    Args:
        experiment: name of the grid, which stands in every row.
    """

    def __init__(self, pair: Pair, experiment: str):
        self._pair, self._common = pair, {"experiment": experiment, **circumstances(pair)}
        self._warm: set[tuple[str, str | None]] = set()

    def rows(self, block: Block, missing: Sequence[Run], stopped: Callable[[], bool]) -> Iterator[dict[str, Any]]:
        """The rows of some runs of a block, one after another.

        Raises:
            CancelledError: somebody asked to stop; the run that was at work is not told.
        """
        conditions = block.conditions
        limits = Limits(conditions.new_tokens, conditions.ignore_end_of_text, record="summary")
        for run in missing:
            if stopped():
                raise CancelledError
            started = time.time()
            result = self._call(run.contestant, block, limits, stopped)
            yield self._common | row_of(block, run, result, started)

    def _call(self, contestant: Contestant, block: Block, limits: Limits, stopped: Callable[[], bool]) -> Result:
        conditions = block.conditions
        pair = self._pair.with_engine(contestant.engine) if contestant.engine else self._pair
        ids, sampling = list(conditions.ids), conditions.sampling
        kind = (contestant.baseline or contestant.method.name, contestant.engine)
        if kind not in self._warm:
            short = replace(limits, max_new_tokens=min(WARM_UP_TOKENS, limits.max_new_tokens))
            measured_call(pair, contestant, ids, short, sampling, stopped)
            self._warm.add(kind)
        return warm_call(pair, partial(measured_call, pair, contestant, ids, limits, sampling, stopped))
