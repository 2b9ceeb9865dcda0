"""A kept run made again, iteration by iteration: decoding is deterministic, so its text must be the same.

session, prompt = begin_again(pair, row)             # DecodeSession, Prompt
kept_output(folder, row["key"])                      # the tokens of the first time
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoding.common.errors import ExperimentError
from decoding.experiments.rows import FOLDER, read_part

if TYPE_CHECKING:
    from decoding.common.prompts import Prompt
    from decoding.models.pair import Pair
    from decoding.session.session import DecodeSession, Limits


def prompt_of(row: Mapping[str, Any]) -> "Prompt":
    """The prompt of a kept run, whole.

    Raises:
        ExperimentError, PromptError: the set it is from cannot be had here, or no longer holds it.
    """
    from decoding.experiments.grid import PromptChoice
    from decoding.experiments.prompt_sets import DATA_SETS, prompts_of

    chosen = str(row["prompt_set"])
    count = int(row["prompt"]) + 1 if chosen in DATA_SETS else None
    for prompt in prompts_of(PromptChoice(chosen, count)):
        if (prompt.kind, prompt.name) == (row["kind"], row["prompt"]):
            return prompt
    raise ExperimentError(
        f"The prompt {row['kind']}/{row['prompt']} is no longer in {chosen}: put it back to decode this run again."
    )


def begin_again(pair: "Pair", row: Mapping[str, Any], limits: "Limits") -> "tuple[DecodeSession, Prompt]":
    """A session that decodes what a row was measured on, and the prompt it stands on, whole.

    Args:
        row: identity columns of `rows.SCHEMA`.

    Raises:
        ExperimentError: it was another pair's, an outside loop's, or its prompt is another text now.
        DraftscopeError: its prompt or something trained that it used cannot be had here.
    """
    from decoding.compare.contestants import parse_contestant
    from decoding.sampling.sampling import Sampling
    from decoding.session.session import DecodeSession

    if pair.info.name != row["pair"]:
        raise ExperimentError(
            f"This run was decoded by {row['pair']}, and {pair.info.name} is in memory: load that pair first."
        )
    contestant = parse_contestant(row["line"])
    if contestant.method is None:
        raise ExperimentError(f"{row['label']} is an outside loop without trees: there is nothing to step through.")
    prompt = prompt_of(row)
    vocabulary = pair.vocabulary
    ids = vocabulary.encode_chat(prompt.text) if vocabulary.chat else vocabulary.encode(prompt.text)
    ids = ids[: int(row["cut"])] if row["cut"] else ids
    if len(ids) != row["prompt_tokens"]:
        raise ExperimentError(
            f"The prompt {prompt.kind}/{prompt.name} has {len(ids)} tokens here and had {row['prompt_tokens']} in the "
            "sweep: it is another text or goes through another template."
        )
    sampling = Sampling(row["temperature"], row["top_p"], row["draft_temperature"], int(row["seed"]))
    running = pair.with_engine(contestant.engine) if contestant.engine else pair
    return DecodeSession(running, contestant.method, list(ids), sampling, limits), prompt


def kept_output(folder: Path, key: str) -> tuple[int, ...]:
    """The tokens that a run wrote when it was measured; empty where they are not kept.

    Raises:
        ExperimentError: a file of rows is damaged or of another version.
    """
    for file in sorted((folder / FOLDER).glob("part-*.parquet")):
        table = read_part(file, ["key", "output_ids"])
        for place, known in enumerate(table.column("key").to_pylist()):
            if known == key:
                return tuple(table.column("output_ids")[place].as_py() or ())
    return ()


def same_text(first: Sequence[int], again: Sequence[int]) -> str:
    """Whether a run wrote the same again, in a few words."""
    shared = next((n for n, (one, other) in enumerate(zip(first, again, strict=False)) if one != other), None)
    if not first:
        return "the tokens of the first time are not kept"
    if shared is not None:
        return f"another text than in the sweep from token {shared + 1} on"
    if len(again) < len(first):
        return f"the same {len(again)} tokens as in the sweep so far"
    return f"the same {len(first)} tokens as in the sweep"
