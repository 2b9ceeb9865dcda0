"""The runs of a grid in their order: all methods on one prompt, one after another, then the next prompt.

Whatever slows the machine for a while slows all methods of a block alike, and each block has its own reference. Prompts
are the samples, long texts, a folder, or a data set of the Hugging Face hub: one Parquet file of one split.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from math import ceil
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
from huggingface_hub import hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, LocalEntryNotFoundError

from decoding.common.errors import ExperimentError, PromptError
from decoding.common.prompts import Prompt, in_turn, load_prompts
from decoding.common.settings import former_engine
from decoding.compare.contestants import Contestant
from decoding.experiments.grid import Grid, PromptSet, contestants
from decoding.heads.store import HEADS, find_head
from decoding.models.pair import Pair
from decoding.sampling.sampling import Sampling
from decoding.selector.store import SELECTORS, find_selector
from decoding.session.session import check_prompt

SAMPLES, LONG = "samples", "long"  # LONG: of more than 1,000 tokens of the embedded pair each, written for this project
LONG_TEXTS = Path(__file__).parent / "texts"
CONVERTED = "refs/convert/parquet"  # where the hub keeps every data set as Parquet
MOST_CHARACTERS = 200_000  # of a prompt; a book is cut, and then to `max_tokens`
FEWEST_CHARACTERS = 200  # headings and empty lines of WikiText are no prompts


@dataclass(frozen=True)
class DataSet:
    """A data set of the hub."""

    # repository: `owner/name`. config, split: the part of it.
    repository: str
    config: str
    split: str
    column: str  # that holds the text; of a list its first entry
    fewest: int = 1  # characters that a text needs to be a prompt


DATA_SETS: dict[str, DataSet] = {
    "wikitext-2": DataSet("Salesforce/wikitext", "wikitext-2-raw-v1", "test", "text", FEWEST_CHARACTERS),
    "pg-19": DataSet("deepmind/pg19", "default", "test", "text"),
    "gsm8k": DataSet("openai/gsm8k", "main", "test", "question"),
    "humaneval": DataSet("openai/openai_humaneval", "openai_humaneval", "test", "prompt"),
    "mt-bench": DataSet("HuggingFaceH4/mt_bench_prompts", "default", "train", "prompt"),
    "cnn-dailymail": DataSet("abisee/cnn_dailymail", "3.0.0", "test", "article"),
    "c4": DataSet("allenai/c4", "en", "train", "text"),
    "openwebtext": DataSet("Skylion007/openwebtext", "plain_text", "train", "text"),
}


def prompts_of(choice: PromptSet) -> list[Prompt]:
    """The prompts of a choice, one kind of text after another in turn.

    Raises `ExperimentError` where the data set cannot be had here or nothing is left of the choice; `PromptError` for a
    folder without prompts.
    """
    if choice.set in DATA_SETS:
        source = DATA_SETS[choice.set]
        try:
            file = _parquet_of(source)
        except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
            raise ExperimentError(
                f"The data set {choice.set} ({source.repository}) is not on this machine and cannot be downloaded "
                f"({type(error).__name__}): connect to the network, or choose {SAMPLES}, {LONG} or a folder."
            ) from None
        prompts = read_texts(Path(file), choice.set, choice.count)  # `count` of them are enough in any number of parts
    elif choice.set == SAMPLES:
        prompts = list(load_prompts())
    elif choice.set == LONG:
        prompts = list(load_prompts(LONG_TEXTS))
    elif Path(choice.set).expanduser().is_dir():
        prompts = list(load_prompts(Path(choice.set)))
    else:
        raise ExperimentError(
            f"There is no set of prompts {choice.set!r}: choose {SAMPLES}, {LONG}, a folder of .txt files, or one of "
            f"{', '.join(DATA_SETS)}."
        )
    parts = [part_of(prompt, number, choice.parts) for number in range(choice.parts) for prompt in prompts]
    chosen = in_turn(parts, choice.kinds)[: choice.count]
    if not chosen:
        kinds = ", ".join(dict.fromkeys(prompt.kind for prompt in prompts))
        raise ExperimentError(f"No prompt of {choice.set} is of kind {', '.join(choice.kinds)}: choose {kinds}.")
    return chosen


def part_of(prompt: Prompt, number: int, parts: int) -> Prompt:
    """One of some parts of a text with equally many words, give or take one, the first having the number 0.

    Raises `ExperimentError` where there are more parts than words.
    """
    if parts == 1:
        return prompt
    begins = [match.start() for match in re.finditer(r"\S+", prompt.text)]
    if len(begins) < parts:
        raise ExperimentError(f"{prompt.title} has {len(begins)} words, too few for {parts} parts: choose fewer parts.")
    start, end = (len(begins) * each // parts for each in (number, number + 1))
    text = prompt.text[begins[start] : begins[end] if end < len(begins) else None].strip()
    return Prompt(prompt.kind, f"{prompt.name}, part {number + 1}", text)


def _parquet_of(source: DataSet) -> str:
    """The first file of a data set, of which the hub has converted only a part where it is large."""
    where: dict[str, Any] = {"repo_type": "dataset", "revision": CONVERTED}
    places = [f"{source.config}/{part}{source.split}/0000.parquet" for part in ("", "partial-")]
    for place in places:
        if isinstance(file := try_to_load_from_cache(source.repository, place, **where), str):
            return file
    try:
        return hf_hub_download(source.repository, places[0], **where)
    except LocalEntryNotFoundError:  # no network: one more try would take as long
        raise
    except EntryNotFoundError:
        return hf_hub_download(source.repository, places[1], **where)


def read_texts(file: Path, name: str, count: int | None) -> list[Prompt]:
    """The first `count` texts of a Parquet file as prompts of the kind `name`; `PromptError` without column or text."""
    source = DATA_SETS[name]
    found: list[Prompt] = []
    try:
        with pyarrow.parquet.ParquetFile(file) as table:
            for batch in table.iter_batches(256, columns=[source.column]):
                for value in batch.column(0).to_pylist():
                    text = (value[0] if isinstance(value, list) else value or "")[:MOST_CHARACTERS].strip()
                    if len(text) >= source.fewest:
                        found.append(Prompt(name, f"{len(found):05d}", text))
                    if count is not None and len(found) == count:
                        return found
    except (pyarrow.ArrowException, OSError, IndexError) as error:
        raise PromptError(f"{file.name} of {name} cannot be read ({error}): delete it and download it again.") from None
    if not found:
        raise PromptError(f"{name} has no text in its column {source.column}: choose another set of prompts.")
    return found


MOST_TOGETHER = 48  # contestants of a block: more of them, and the reference is measured too long before


@dataclass(frozen=True)
class Conditions:
    """What all runs of a block have in common."""

    # prompt_set, prompt: where the prompt is from, and the prompt
    prompt_set: str
    prompt: Prompt
    ids: tuple[int, ...]  # its tokens, cut to the length that is asked for
    cut: int  # tokens that longer prompts are cut to, 0 where they stay whole
    new_tokens: int
    sampling: Sampling
    repeat: int
    ignore_end_of_text: bool

    @cached_property
    def digest(self) -> str:
        """Tells it from other conditions."""
        plain = {name: value for name, value in asdict(self).items() if name not in ("prompt", "ids")}
        tokens = hashlib.sha256(",".join(map(str, self.ids)).encode()).hexdigest()
        return _digest({**plain, "prompt": self.prompt.title, "tokens": tokens})


@dataclass(frozen=True)
class PlannedRun:
    """One call that is to be measured."""

    key: str  # the same for the same run of the same pair, wherever and whenever it is made
    contestant: Contestant
    reference: bool  # whether others are compared with it


@dataclass(frozen=True)
class Block:
    """Runs under the same conditions, which are made one after another on one device."""

    name: str  # the same for the same part of the same conditions
    conditions: Conditions
    runs: tuple[PlannedRun, ...]  # the reference first, if there is one


def run_key(pair: Mapping[str, Any], conditions: Conditions, contestant: Contestant) -> str:
    """The key of a run of a pair with some `pair_identity`.

    With a selector or a draft head of one's own its weights count, since one of the same name may be trained anew or
    go on training; `SettingsError` or `PairError` where it is not there, or damaged.
    """
    method = contestant.method
    settings = {} if method is None else dict(sorted(method.settings().items()))
    if selector := settings.get("selector"):
        settings["selector_weights"] = SELECTORS.digest(find_selector(str(selector)).folder)
    if name := settings.get("draft_head"):
        head = find_head(str(name))
        if not head.shipped:
            settings["head_weights"] = HEADS.digest(head.folder)
    engine = contestant.engine and former_engine(contestant.engine)  # so that keys stay what they were
    return _digest([pair, conditions.digest, contestant.name, settings, engine])


def blocks(grid: Grid, pair: Pair, identity: Mapping[str, Any], prompts: Sequence[Prompt]) -> Iterator[Block]:
    """Everything that a grid comes to, block by block; repeats go round the whole grid.

    Raises `PromptError` where a prompt does not fit the context with what is to follow it, and what `run_key` raises.
    """
    encoded = [pair.vocabulary.encode_prompt(prompt.text) for prompt in prompts]
    everyone = {sampling: contestants(grid, sampling)[0] for sampling in grid.samplings}
    for repeat in range(grid.repeats):
        for prompt, ids in zip(prompts, encoded, strict=True):
            for cut in grid.prompts.max_tokens:
                for new_tokens in grid.new_tokens:
                    kept = tuple(ids[:cut] if cut else ids)
                    try:
                        check_prompt(pair, list(kept), new_tokens)
                    except PromptError as error:
                        raise PromptError(f"{prompt.title}: {error}") from None
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
        runs = [
            PlannedRun(run_key(identity, conditions, each), each, False)
            for each in others[start : start + MOST_TOGETHER]
        ]
        if grid.reference:
            key = _digest([name, run_key(identity, conditions, everyone[0])])
            runs.insert(0, PlannedRun(key, everyone[0], True))
        yield Block(name, conditions, tuple(runs))


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:24]


@dataclass(frozen=True)
class GridSize:
    """What a grid comes to."""

    settings: int  # ways to decode, by sampling where there are several, the reference left out
    prompts: int | None  # how many; None where only the data set knows
    runs: int | None  # calls that are measured, references included; None with `prompts`
    tokens: int | None  # that they generate; None with `prompts`
    left_out: tuple[str, ...]  # combinations that contradict themselves, each in a sentence


def grid_size(grid: Grid) -> GridSize:
    """What a grid comes to; a data set is not fetched for it.

    Raises `ExperimentError` or `PromptError` for a prompt, a method or a setting that is not there.
    """
    choice = grid.prompts
    prompts = choice.count if choice.set in DATA_SETS else len(prompts_of(choice))
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
