"""The runs of a grid in their order: all methods on one prompt, one after another, then the next prompt.

Whatever slows the machine for a while slows all methods of a block alike, and each block has its own reference.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from math import ceil
from typing import Any

from decoding.common.errors import PromptError
from decoding.common.prompts import Prompt
from decoding.compare.comparison import Contestant
from decoding.experiments.grid import Grid, PromptChoice, contestants
from decoding.experiments.prompt_sets import DATA_SETS, prompts_of
from decoding.models.pair import Pair
from decoding.sampling.sampling import Sampling
from decoding.session.session import check_prompt

MOST_TOGETHER = 48  # contestants of a block: more of them, and the reference is measured too long before


@dataclass(frozen=True)
class Conditions:
    """What all runs of a block have in common.

    Attributes:
        prompt_set, prompt: where the prompt is from, and the prompt.
        ids: its tokens, cut to the length that is asked for.
        cut: tokens that longer prompts are cut to, 0 where they stay whole.
    """

    prompt_set: str
    prompt: Prompt
    ids: tuple[int, ...]
    cut: int
    new_tokens: int
    sampling: Sampling
    repeat: int
    ignore_end_of_text: bool

    @cached_property
    def digest(self) -> str:
        """Tells it from other conditions."""
        plain = {name: value for name, value in asdict(self).items() if name not in ("prompt", "ids")}
        tokens = hashlib.sha256(",".join(map(str, self.ids)).encode()).hexdigest()
        return _digest({**plain, "prompt": f"{self.prompt.kind}/{self.prompt.name}", "tokens": tokens})


@dataclass(frozen=True)
class Run:
    """One call that is to be measured.

    Attributes:
        key: the same for the same run of the same pair, wherever and whenever it is made.
        reference: whether others are compared with it.
    """

    key: str
    contestant: Contestant
    reference: bool


@dataclass(frozen=True)
class Block:
    """Runs under the same conditions, which are made one after another on one device.

    Attributes:
        name: the same for the same part of the same conditions.
        runs: the reference first, if there is one.
    """

    name: str
    conditions: Conditions
    runs: tuple[Run, ...]


def run_key(pair: Mapping[str, Any], conditions: Conditions, contestant: Contestant) -> str:
    """The key of a run.

    Args:
        pair: `pair_identity`.
    """
    method = contestant.method
    settings = {} if method is None else dict(sorted(method.settings().items()))
    name = contestant.baseline or method.name
    return _digest([pair, conditions.digest, name, settings, contestant.engine])


def blocks(grid: Grid, pair: Pair, identity: Mapping[str, Any], prompts: Sequence[Prompt]) -> Iterator[Block]:
    """Everything that a grid comes to, block by block; repeats go round the whole grid.

    Raises:
        PromptError: a prompt does not fit the context with what is to follow it.
    """
    encoded = [pair.vocabulary.encode_chat(p.text) if pair.vocabulary.chat else pair.vocabulary.encode(p.text)
               for p in prompts]  # fmt: skip
    everyone = {sampling: contestants(grid, sampling)[0] for sampling in grid.samplings}
    for repeat in range(grid.repeats):
        for prompt, ids in zip(prompts, encoded, strict=True):
            for cut in grid.prompts.max_tokens:
                for new_tokens in grid.new_tokens:
                    kept = tuple(ids[:cut] if cut else ids)
                    try:
                        check_prompt(pair, list(kept), new_tokens)
                    except PromptError as error:
                        raise PromptError(f"{prompt.kind}/{prompt.name}: {error}") from None
                    for sampling, all_of_them in everyone.items():
                        conditions = Conditions(
                            grid.prompts.set, prompt, kept, cut, new_tokens, sampling, repeat, grid.ignore_end_of_text
                        )
                        yield from _parts(grid, identity, conditions, all_of_them)


def _parts(
    grid: Grid, identity: Mapping[str, Any], conditions: Conditions, everyone: Sequence[Contestant]
) -> Iterator[Block]:
    """Blocks of at most `MOST_TOGETHER` runs, each with a reference of its own."""
    first = 1 if grid.reference else 0
    others = everyone[first:]
    for part, start in enumerate(range(0, max(1, len(others)), MOST_TOGETHER)):
        name = _digest([conditions.digest, part])
        runs = [Run(run_key(identity, conditions, each), each, False) for each in others[start : start + MOST_TOGETHER]]
        if grid.reference:
            key = _digest([name, run_key(identity, conditions, everyone[0])])
            runs.insert(0, Run(key, everyone[0], True))
        yield Block(name, conditions, tuple(runs))


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:24]


@dataclass(frozen=True)
class GridSize:
    """What a grid comes to.

    Attributes:
        settings: ways to decode, by sampling where there are several, the reference left out.
        prompts: how many; None where only the data set knows.
        runs: calls that are measured, references included; None with `prompts`.
        tokens: that they generate; None with `prompts`.
        left_out: combinations that contradict themselves, each in a sentence.
    """

    settings: int
    prompts: int | None
    runs: int | None
    tokens: int | None
    left_out: tuple[str, ...]


def grid_size(grid: Grid) -> GridSize:
    """What a grid comes to; a data set is not fetched for it.

    Raises:
        ExperimentError, PromptError: a prompt, a method or a setting that is not there.
    """
    prompts = count_prompts(grid.prompts)
    settings = runs = 0
    left_out: list[str] = []
    for sampling in grid.samplings:
        found, said = contestants(grid, sampling)
        left_out += said
        others = len(found) - bool(grid.reference)
        settings += others
        references = max(1, ceil(others / MOST_TOGETHER)) if grid.reference else 0
        runs += others + references
    runs *= len(grid.prompts.max_tokens) * grid.repeats
    calls = None if prompts is None else runs * prompts * len(grid.new_tokens)
    tokens = None if prompts is None else runs * prompts * sum(grid.new_tokens)
    return GridSize(settings, prompts, calls, tokens, tuple(dict.fromkeys(left_out)))


def count_prompts(choice: PromptChoice) -> int | None:
    """How many prompts a choice has; of a data set as many as were asked for, None for all of it.

    Raises:
        ExperimentError, PromptError: there is no such set or folder, or nothing is left of it.
    """
    if choice.set in DATA_SETS:
        return choice.count
    return len(prompts_of(choice))
