"""How far a call may decode, how much it records, and whether its prompt fits."""

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from decoding.common.errors import PromptError, require
from decoding.models.pair import Pair
from decoding.trace.records import Record

Rows = Literal["top", "open", "full"]


@dataclass(frozen=True)
class Limits:
    """How far to decode and how much to record.

    Attributes:
        max_new_tokens: tokens after the prompt at most.
        ignore_end_of_text: decode on past the stop tokens.
        record: `full` keeps the tree of every iteration, `summary` only counts and times, `none` keeps nothing.
        rows: `top` keeps the top 20 of each law, `open` also the raw logits of the latest iteration, `full` of all.
        row_bytes: memory that raw logits may take; those of the oldest iterations go first. None sets no limit.
    """

    max_new_tokens: int = 128
    ignore_end_of_text: bool = False
    record: Record = "full"
    rows: Rows = "top"
    row_bytes: int | None = None

    def __post_init__(self):
        for name, least in (("max_new_tokens", 1), ("row_bytes", 0)):
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool) and value >= least
            unlimited = name == "row_bytes" and value is None
            require(whole or unlimited, f"{name} must be a whole number, at least {least}, not {value!r}.")
        for name, choices in (("record", get_args(Record)), ("rows", get_args(Rows))):
            value = getattr(self, name)
            require(value in choices, f"{name} must be one of {', '.join(choices)}, not {value!r}.")


def check_prompt(pair: Pair, prompt_ids: Sequence[int], max_new_tokens: int) -> list[int]:
    """The token ids of a prompt, checked.

    Raises:
        PromptError: they are no ids of this pair, or with what is to follow they do not fit its context.
    """
    prompt_ids = _token_ids(prompt_ids, pair.logits_size)
    if not prompt_ids:
        raise PromptError("The prompt is empty: type some text or pick a sample prompt.")
    if len(prompt_ids) >= pair.context:
        raise PromptError(
            f"The prompt has {len(prompt_ids)} tokens and the context of this pair {pair.context}: shorten the prompt."
        )
    if len(prompt_ids) + max_new_tokens > pair.context:
        raise PromptError(
            f"{len(prompt_ids)} prompt tokens and {max_new_tokens} new ones exceed the context of {pair.context}: "
            f"ask for at most {pair.context - len(prompt_ids)} new tokens."
        )
    return prompt_ids


def _token_ids(given: Iterable[Any], size: int) -> list[int]:
    """Whole numbers below `size` as plain ints; arrays and tensors of them are taken too."""
    rule = f"prompt_ids must be token ids, whole numbers from 0 to {size - 1:,}"
    ids: list[int] = []
    try:
        for token in given:
            ids.append(operator.index(token))
    except TypeError:
        raise PromptError(f"{rule}, one after another; what stands at place {len(ids)} is none.") from None
    wrong = next((place for place, token in enumerate(ids) if not 0 <= token < size), None)
    if wrong is not None:
        raise PromptError(f"{rule}; at place {wrong} stands {ids[wrong]:,}.")
    return ids
