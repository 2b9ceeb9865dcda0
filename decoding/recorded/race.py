"""A recorded race that comes with the program: three methods on one prompt. Reading it needs no torch.

Written by `python -m decoding.record_race`.
"""

from functools import lru_cache
from pathlib import Path

from decoding.trace.archive import load_run
from decoding.trace.records import RunTrace

# File -> what took part, as `decoding.compare.contestants` reads it; the runs race in this order.
RACERS: dict[str, str] = {
    "race_autoregressive.dscope": "autoregressive",
    "race_linear.dscope": "linear:length=3",
    "race_hardware_aware.dscope": "hardware_aware",
}
PROMPT = "stories/lost_mitten"
NEW_TOKENS, REPEATS, WARMUP = 64, 9, 2
FOLDER = Path(__file__).parent


@lru_cache(maxsize=1)
def race_runs() -> tuple[RunTrace, ...]:
    """The recorded runs, the median of `REPEATS` calls each; empty unless all of them are there."""
    files = [FOLDER / name for name in RACERS]
    return tuple(load_run(file) for file in files) if all(file.is_file() for file in files) else ()
