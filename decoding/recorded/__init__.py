"""Real runs that come with the program: what Home and Learn show, and Step through until something is decoded.

Written by `python -m decoding.record_home`, `decoding.record_presets` and `decoding.record_race`; reading them needs no
torch.

    recorded_runs()                  # {"tree_helps": Path(...), ...}: every file, in the order of RECORDINGS
    recorded_run("tree_helps")       # its RunTrace
    rivals("tree_helps")             # {"chain": RunTrace, "plain": RunTrace}: runs on the same prompt, taken in turn
"""

from functools import lru_cache
from pathlib import Path

from decoding.trace.archive import load_run
from decoding.trace.records import IterationTrace, RunTrace

FOLDER = Path(__file__).parent
PROMPT = "stories/frog_and_boat"
CHAIN, PLAIN = "chain", "plain"

# Every recording and the runs that were taken in turn with it on the same prompt.
RECORDINGS: dict[str, tuple[str, ...]] = {
    "home": (),
    "tree_helps": (CHAIN, PLAIN),
    "tree_loses": (CHAIN, PLAIN),
    "sibling_rescue": (),
    "history": (),
    "sampled": (),
    "lost_draft": (CHAIN,),
    "lost_verify": (CHAIN,),
    "lost_rebuild": (CHAIN,),
}
# File -> what took part in the recorded race, as `decoding.compare.contestants` reads it, in the order of the lanes.
RACERS: dict[str, str] = {
    "race_autoregressive.dscope": "autoregressive",
    "race_linear.dscope": "linear:length=3",
    "race_hardware_aware.dscope": "hardware_aware",
}
RACE_PROMPT = "stories/lost_mitten"
RACE_TOKENS, RACE_REPEATS, RACE_WARMUP = 64, 9, 2


def recording_file(name: str, rival: str = "") -> Path:
    """Where a recording lies, or the run of a rival on its prompt."""
    return FOLDER / f"{name}{'_' if rival else ''}{rival}.dscope"


def recorded_runs() -> dict[str, Path]:
    """Every recorded file by name, rivals (`tree_helps_chain`) behind the run that they belong to."""
    files = [recording_file(name, rival) for name, others in RECORDINGS.items() for rival in ("", *others)]
    return {file.stem: file for file in files}


@lru_cache(maxsize=32)
def recorded_run(name: str) -> RunTrace:
    """A recorded run by the name of its file."""
    return load_run(recorded_runs()[name])


def rivals(name: str) -> dict[str, RunTrace]:
    """The runs that were taken in turn with a recording, by `chain` and `plain`."""
    return {rival: recorded_run(recording_file(name, rival).stem) for rival in RECORDINGS[name]}


def home_run() -> RunTrace:
    """The run that Home shows."""
    return recorded_run("home")


@lru_cache(maxsize=1)
def race_runs() -> tuple[RunTrace, ...]:
    """The runs of the recorded race, each the median of its repeats."""
    return tuple(load_run(FOLDER / name) for name in RACERS)


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
