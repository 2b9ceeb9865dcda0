"""Where the prompts of an experiment come from: the samples, a folder of texts, or a data set of the Hugging Face hub.

A data set is read from the Parquet files that the hub keeps of it, one file of one split.
"""

from dataclasses import dataclass
from pathlib import Path

from decoding.common.errors import ExperimentError, PromptError
from decoding.common.prompts import Prompt, load_prompts
from decoding.experiments.grid import PromptChoice

SAMPLES = "samples"
CONVERTED = "refs/convert/parquet"  # where the hub keeps every data set as Parquet
MOST_CHARACTERS = 200_000  # of a prompt; a book is cut, and then to `max_tokens`
FEWEST_CHARACTERS = 200  # headings and empty lines of WikiText are no prompts


@dataclass(frozen=True)
class DataSet:
    """A data set of the hub.

    Attributes:
        repository: `owner/name`. config, split: the part of it.
        column: that holds the text; of a list its first entry.
        fewest: characters that a text needs to be a prompt.
    """

    repository: str
    config: str
    split: str
    column: str
    fewest: int = 1


DATA_SETS: dict[str, DataSet] = {
    "wikitext-2": DataSet("Salesforce/wikitext", "wikitext-2-raw-v1", "test", "text", FEWEST_CHARACTERS),
    "pg-19": DataSet("deepmind/pg19", "default", "test", "text"),
    "gsm8k": DataSet("openai/gsm8k", "main", "test", "question"),
    "humaneval": DataSet("openai/openai_humaneval", "openai_humaneval", "test", "prompt"),
    "mt-bench": DataSet("HuggingFaceH4/mt_bench_prompts", "default", "train", "prompt"),
    "cnn-dailymail": DataSet("abisee/cnn_dailymail", "3.0.0", "test", "article"),
}


def prompts_of(choice: PromptChoice) -> list[Prompt]:
    """The prompts of a choice, one kind of text after another in turn.

    Raises:
        ExperimentError: the data set cannot be had here, or nothing is left of the choice.
        PromptError: the folder holds no prompts.
    """
    if choice.set in DATA_SETS:
        prompts = _from_hub(choice.set, choice.count)
    elif choice.set == SAMPLES:
        prompts = list(load_prompts())
    elif Path(choice.set).expanduser().is_dir():
        prompts = list(load_prompts(Path(choice.set)))
    else:
        raise ExperimentError(
            f"There is no set of prompts {choice.set!r}: choose {SAMPLES}, a folder of .txt files, or one of "
            f"{', '.join(DATA_SETS)}."
        )
    queues: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        if not choice.kinds or prompt.kind in choice.kinds:
            queues.setdefault(prompt.kind, []).append(prompt)
    if not queues:
        kinds = ", ".join(dict.fromkeys(prompt.kind for prompt in prompts))
        raise ExperimentError(f"No prompt of {choice.set} is of kind {', '.join(choice.kinds)}: choose {kinds}.")
    most = choice.count or len(prompts)
    chosen: list[Prompt] = []
    for place in range(max(len(queue) for queue in queues.values())):
        chosen += [queue[place] for queue in queues.values() if place < len(queue)]
    return chosen[:most]


def _from_hub(name: str, count: int | None) -> list[Prompt]:
    """The first texts of a data set, from the hub or from where it was kept."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    source = DATA_SETS[name]
    try:
        file = hf_hub_download(
            source.repository,
            f"{source.config}/{source.split}/0000.parquet",
            repo_type="dataset",
            revision=CONVERTED,
        )
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise ExperimentError(
            f"The data set {name} ({source.repository}) is not kept on this machine and cannot be fetched "
            f"({type(error).__name__}): connect to the network, or choose {SAMPLES} or a folder."
        ) from None
    return read_texts(Path(file), name, count)


def read_texts(file: Path, name: str, count: int | None) -> list[Prompt]:
    """The first `count` texts of a Parquet file as prompts of the kind `name`.

    Raises:
        PromptError: the file has no such column or no text.
    """
    import pyarrow
    import pyarrow.parquet

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
        raise PromptError(f"{file.name} of {name} cannot be read ({error}): delete it and fetch it again.") from None
    if not found:
        raise PromptError(f"{name} holds no text in its column {source.column}: choose another set of prompts.")
    return found
