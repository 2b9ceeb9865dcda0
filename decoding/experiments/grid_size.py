"""How much a grid comes to before it is run."""

from dataclasses import dataclass
from math import ceil

from decoding.experiments.grid import Grid, PromptChoice, contestants
from decoding.experiments.plan import MOST_TOGETHER
from decoding.experiments.prompt_sets import DATA_SETS, prompts_of


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
