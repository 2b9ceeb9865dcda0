"""A real run that comes with the program: what Home shows, and Step through until something is decoded.

Written by `python -m decoding.record_home`; reading it needs no torch.
"""

from functools import lru_cache
from pathlib import Path

from decoding.trace import IterationTrace, RunTrace
from decoding.trace_file import load_run

HOME_FILE = Path(__file__).parent / "home.dscope"
PROMPT = "stories/frog_and_boat"


@lru_cache(maxsize=1)
def home_run() -> RunTrace:
    """The recorded run."""
    return load_run(HOME_FILE)


def telling_iteration(run: RunTrace) -> int:
    """Index of the iteration that shows most at a glance: several accepted nodes, a rejected one, a recovered token."""
    return max(range(len(run.iterations)), key=lambda index: (_telling(run.iterations[index]), -index))


def _telling(iteration: IterationTrace) -> float:
    verdicts = [node.verdict for node in iteration.nodes]
    accepted, rejected = len(iteration.accepted), verdicts.count("rejected")
    score = 2.0 * min(accepted, 4) + (3.0 if iteration.final_kind == "recovered" else 0.0)
    # A word that was rejected where another was accepted tells more than a lone chain; a crowd tells nothing.
    branches = len({node.parent_id for node in iteration.nodes}) - iteration.tree_depth
    score += 2.0 * min(rejected, 2) + min(max(branches, 0), 5) + (2.0 if 8 <= iteration.drafted <= 18 else 0.0)
    return score - 5.0 * iteration.in_loop
