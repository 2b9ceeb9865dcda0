"""How far a call may decode, how much it records, and whether its prompt fits."""

from dataclasses import dataclass
from typing import Literal

from decoding.errors import PromptError, require
from decoding.pair import Pair
from decoding.trace import Record

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
        require(self.max_new_tokens >= 1, f"max_new_tokens must be at least 1, not {self.max_new_tokens}.")


def check_prompt(pair: Pair, prompt_ids: list[int], max_new_tokens: int) -> None:
    """Raise `PromptError` unless the prompt and what is to follow fit the pair's context."""
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
