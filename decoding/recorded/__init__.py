"""Real runs that come with the program: what its pages show until something is decoded.

Written by `python -m decoding.recorded`; reading them, and computing what they were chosen for, needs no torch.

    recorded_runs()                  # {"tree_helps": Path(...), ...}: every file, in the order of RECORDINGS
    recorded_run("tree_helps")       # its RunTrace
    rivals("tree_helps")             # {"chain": RunTrace, "plain": RunTrace}: runs on the same prompt, taken in turn
    recorded_comparison()            # every call of the comparison that Compare opens with; it brings torch
"""

import io
import json
import zipfile
from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from decoding.trace.metrics import Timeline
from decoding.trace.records import RunTrace
from decoding.trace.run_file import load_run

if TYPE_CHECKING:
    from decoding.compare.comparison import Comparison

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
    "full_logits": (),
    "lost_draft": (CHAIN,),
    "lost_verify": (CHAIN,),
    "lost_rebuild": (CHAIN,),
}
# What took part in the recorded race, as `decoding.compare.contestants` reads it, in the order of the lanes.
RACERS = {"autoregressive": "autoregressive", "linear": "linear:length=3", "hardware_aware": "hardware_aware"}
RACE_PROMPT = "stories/lost_mitten"
RACE_TOKENS, RACE_REPEATS, RACE_WARMUP = 64, 9, 2
RACE_SPEEDS = FOLDER / "race_speeds.json"  # tokens per second of every repeat, by racer
# The recorded comparison, which is on `PROMPT`: a zip of one entry per call, its run or the times of its tokens.
COMPARED = ("autoregressive", "hf_generate", "linear", "fixed_tree", "DynaTree, first level may branch")
COMPARED_TOKENS, COMPARED_REPEATS, COMPARED_WARMUP = 96, 3, 1
COMPARISON = FOLDER / "comparison.zip"
IN_FULL = "trees"  # in place of the repeat in the name of a call of the comparison that was not timed


def recording_file(name: str, rival: str = "") -> Path:
    """Where a recording lies, or the run of a rival on its prompt."""
    return FOLDER / f"{name}{'_' if rival else ''}{rival}.dscope"


def recorded_runs() -> dict[str, Path]:
    """Every recorded file by name, rivals (`tree_helps_chain`) after the run that they belong to."""
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


def logits_run() -> RunTrace:
    """The run with the logits of both models, which Verifiers and What if open with."""
    return recorded_run("full_logits")


@lru_cache(maxsize=1)
def race_runs() -> tuple[RunTrace, ...]:
    """The runs of the recorded race, each the median of its repeats."""
    return tuple(load_run(recording_file("race", name)) for name in RACERS)


def race_speeds() -> tuple[tuple[float, ...], ...]:
    """Tokens per second of every repeat of the recorded race, by lane."""
    speeds = json.loads(RACE_SPEEDS.read_text())
    return tuple(tuple(speeds[name]) for name in RACERS)


@lru_cache(maxsize=1)
def recorded_comparison() -> "Comparison":
    """The recorded comparison with every call as it was measured."""
    from decoding.compare.comparison import Comparison, result_of, result_of_times
    from decoding.compare.contestants import parse_contestant

    results = []
    with zipfile.ZipFile(COMPARISON) as archive:
        for name in archive.namelist():
            contestant, repeat, kind = name.split(".")
            if repeat == IN_FULL:
                continue
            if kind == "dscope":
                result = result_of(load_run(io.BytesIO(archive.read(name))))
            else:
                output_ids, seconds, tokens, peak_memory_bytes = json.loads(archive.read(name))
                timeline = Timeline(tuple(seconds), tuple(tokens))
                result = result_of_times(tuple(output_ids), timeline, peak_memory_bytes)
            results.append(replace(result, contestant=int(contestant), repeat=int(repeat)))
    contestants = tuple(parse_contestant(text) for text in COMPARED)
    return Comparison(contestants, (PROMPT,), tuple(results), differences=(), reference=0)


def recorded_trees() -> dict[int, RunTrace]:
    """The call of each method that drafts once more, not timed, recorded in full, by contestant."""
    found = {}
    with zipfile.ZipFile(COMPARISON) as archive:
        for name in archive.namelist():
            contestant, repeat, _ = name.split(".")
            if repeat == IN_FULL:
                found[int(contestant)] = load_run(io.BytesIO(archive.read(name)))
    return found


def telling_iteration(run: RunTrace) -> int:
    """Index of the iteration that shows most at a glance: several accepted nodes, a rejected one, a recovered token.

    The last one tells least: its text ends there, and what was chosen after that is discarded.
    """

    def telling(index: int) -> tuple[float, int]:
        iteration = run.iterations[index]
        verdicts = [node.verdict for node in iteration.nodes]
        accepted, rejected = len(iteration.accepted), verdicts.count("rejected")
        score = 2.0 * min(accepted, 4) + (3.0 if iteration.final_kind == "recovered" else 0.0)
        # A word that was rejected where another was accepted tells more than a lone chain; a crowd tells nothing.
        branches = len({node.parent_id for node in iteration.nodes}) - iteration.tree_depth
        score += 2.0 * min(rejected, 2) + min(max(branches, 0), 5) + (2.0 if 8 <= iteration.drafted <= 18 else 0.0)
        return score - 5.0 * iteration.in_loop, -index

    return max(range(max(len(run.iterations) - 1, 1)), key=telling)


PUNCTUATION = (".", ",", "!", "?", " a", " I")


@dataclass(frozen=True, slots=True)
class Rescue:
    """A place where the draft's first choice was rejected and a sibling of it accepted."""

    iteration: int  # index of the iteration
    # rejected, accepted: node ids of the first choice and of the sibling
    rejected: int
    accepted: int
    below: int  # accepted nodes below the sibling
    residual: bool  # whether a test that could have passed rejected the first choice and left a recorded residual


def speed(run: RunTrace) -> float:
    """Tokens per second of wall time, prefill included."""
    return run.totals.new_tokens / run.totals.wall_s


def tokens_per_pass(run: RunTrace) -> float:
    """Committed tokens per verification pass (block efficiency)."""
    return run.totals.new_tokens / len(run.iterations)


def loops(run: RunTrace) -> bool:
    """Whether any iteration begins inside a repeated n-gram."""
    return any(iteration.in_loop for iteration in run.iterations)


def rescues(run: RunTrace) -> tuple[Rescue, ...]:
    """Every rescue of a run, in order."""
    found = []
    for iteration in run.iterations:
        for place, node_id in enumerate(iteration.accepted if iteration.nodes else ()):
            children = [iteration.nodes[child] for child in iteration.children(iteration.nodes[node_id].parent_id)]
            first = max(children, key=lambda node: (node.draft_probability or 0.0, -node.node_id))
            if first.node_id == node_id or first.verdict != "rejected":
                continue
            tests = [step for step in iteration.steps if step.child_id == first.node_id and not step.accepted]
            left = any(step.residual_ids and step.acceptance_probability > 0 for step in tests)
            below = len(iteration.accepted) - place - 1
            found.append(Rescue(iteration.index, first.node_id, node_id, below, left))
    return tuple(found)


def best_rescue(run: RunTrace, residual: bool = False) -> Rescue | None:
    """The rescue to show: one with words where there is one, then most accepted below it, then the earliest."""
    found = [rescue for rescue in rescues(run) if rescue.residual or not residual]
    return max(found, key=lambda rescue: (in_words(run, rescue), rescue.below, -rescue.iteration), default=None)


def in_words(run: RunTrace, rescue: Rescue) -> bool:
    """Whether both siblings are words and what follows them is words and ordinary punctuation."""
    iteration = run.iterations[rescue.iteration]
    siblings = [iteration.nodes[rescue.rejected].text, iteration.nodes[rescue.accepted].text]
    following = [*iteration.committed_texts, iteration.nodes[0].text]
    words = {text for text in (*siblings, *following) if len(text.strip()) > 1 and text.strip().isalpha()}
    return words.issuperset(siblings) and words.union(PUNCTUATION).issuperset(following)


def threshold_moves(run: RunTrace) -> Counter:
    """How often history adaptation really moved a setting, by decision (`bolder`, `more_careful`)."""
    moved = (each.history for each in run.iterations if each.history is not None)
    return Counter(history.decision for history in moved if dict(history.before) != dict(history.after))
