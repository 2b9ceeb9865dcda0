"""What an iteration commits: the accepted path and the final token, cut at end of text or length."""

from collections.abc import Container
from dataclasses import dataclass

from decoding.draft import Draft
from decoding.trace import FinalKind
from decoding.verifiers.base import Verification


@dataclass(frozen=True)
class Cut:
    """What is left of an accepted path.

    Attributes:
        committed: tokens in order, the final one last if it is among them.
        kept: accepted nodes whose tokens are committed.
        final_kind: what the last token is, `none` where the path was cut.
    """

    committed: tuple[int, ...]
    kept: tuple[int, ...]
    final_kind: FinalKind


def cut_path(draft: Draft, verification: Verification, room: int, stops: Container[int]) -> Cut:
    """Cut an accepted path at the first stop token and after `room` tokens."""
    tokens = [int(token) for token in draft.tree.tokens[list(verification.accepted)]] + [verification.final_token]
    length = min(len(tokens), room)
    ends = next((place + 1 for place, token in enumerate(tokens[:length]) if token in stops), None)
    length = length if ends is None else ends
    kind: FinalKind = "none" if length < len(tokens) else verification.final_kind
    return Cut(tuple(tokens[:length]), verification.accepted[:length], kind)
