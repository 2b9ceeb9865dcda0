"""What was possible in hindsight: the best tree of this size along the text that followed. Torch-free; no model is run.

The text that followed an iteration is what the run committed from there on. A tree of n nodes in the draft's own order
takes a child only together with all likelier ones beside it; how many it takes may differ from place to place. Along
the text it needs as many children at each depth as the draft ranks the next token there, so it goes as deep as those
ranks sum to at most n, and no tree of that kind commits more of the text. The ceiling is a chain of the text itself.

Under greedy decoding the text is what any tree leads to. When tokens are drawn, another tree may lead to another text:
then this says how far a tree could have covered the text of this run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from decoding.trace.records import TOP_TOKENS, RunTrace


@dataclass(frozen=True)
class LaterToken:
    """One token of the text that followed."""

    token_id: int
    text: str
    rank: int | None  # of the token in the draft's distribution there, 1 for its favourite; None where not recorded
    exact: bool  # False where the rank is known to be at least that
    probability: float | None  # what the draft gave it, None where that is not recorded
    seen_in: int | None  # index of the iteration whose record tells, None without one
    drafted: bool  # the iteration looked at has a verified node for it


@dataclass(frozen=True)
class Hindsight:
    """An iteration against the best tree of its size."""

    nodes: int  # verified nodes of the iteration, the root left out
    committed: int  # tokens that it committed
    followed: tuple[LaterToken, ...]  # the tokens from its root on, at most one more than it has nodes
    best: int  # tokens that the best tree in the draft's own order commits; a tree of drawn tokens may have done better
    complete: bool  # False if a rank on the way is unknown: then it is at least that many
    ceiling: int  # tokens that a chain of the text commits
    ends: bool  # the run has no more text: both may be larger if it went on


@dataclass(frozen=True)
class SeenRank:
    """The draft's rank and probability of the token that followed at one place of the text; `by_head` if a head's."""

    rank: int | None
    exact: bool
    probability: float | None
    seen_in: int
    by_head: bool = False


def hindsight(run: RunTrace, index: int, known: Mapping[int, Sequence[SeenRank]] | None = None) -> Hindsight | None:
    """The best tree in hindsight of one iteration; None where its tree was not recorded or nothing was verified.

    Those who ask about many iterations give `ranks_along(run)` as `known`.
    """
    iteration = run.iterations[index]
    if not iteration.nodes or not iteration.verified:
        return None
    known = ranks_along(run) if known is None else known
    begins = iteration.prefix_length - len(run.prompt_ids)
    ahead = run.output_ids[begins:]
    texts = [text for each in run.iterations for text in each.committed_texts][begins:]
    verified = [node for node in iteration.nodes[1:] if node.flat_index is not None]
    children: dict[tuple[int | None, int], int] = {(each.parent_id, each.token_id): each.node_id for each in verified}
    followed: list[LaterToken] = []
    node: int | None = 0
    for depth, token in enumerate(ahead[: iteration.verified + 1]):
        said, own = known.get(iteration.prefix_length + depth, ()), iteration.index
        usable = [each for each in said if each.seen_in == own or not (each.by_head or iteration.draft_head)]
        seen = min(usable, key=lambda each: (not each.exact, each.seen_in != own), default=None)
        node = children.get((node, token))  # along the text, as far as it was verified
        rank, exact, p = (seen.rank, seen.exact, seen.probability) if seen else (None, False, None)
        where = seen.seen_in if seen else None
        followed.append(LaterToken(token, texts[depth], rank, exact, p, where, node is not None))
    depth, complete = _reach(followed, iteration.verified)
    return Hindsight(
        nodes=iteration.verified,
        committed=len(iteration.committed_ids),
        followed=tuple(followed),
        best=min(depth + 1, len(ahead)),
        complete=complete,
        ceiling=min(iteration.verified + 1, len(ahead)),
        ends=len(ahead) <= iteration.verified,
    )


def ranks_along(run: RunTrace) -> dict[int, tuple[SeenRank, ...]]:
    """What the records tell of the draft's rank of each token of the text, by its position.

    A draft model's distribution depends on the text before it alone, so any iteration tells that has expanded a node
    along the text; of a draft head's, which also depends on where its tree began, only the iteration itself.
    """
    output, prompt = run.output_ids, len(run.prompt_ids)
    found: dict[int, list[SeenRank]] = {}
    for iteration in run.iterations:
        children = {(node.parent_id, node.token_id): node.node_id for node in iteration.nodes[1:]}
        node: int | None = 0
        position = iteration.prefix_length
        while node is not None and iteration.nodes and position - prompt < len(output):
            token = output[position - prompt]
            top, rank = iteration.draft_top(node), iteration.draft_rank(node, token)
            if rank is not None or len(top) >= TOP_TOKENS:
                seen = rank or TOP_TOKENS + 1, rank is not None, {known: p for known, _, p in top}.get(token)
                known = SeenRank(*seen, iteration.index, bool(iteration.draft_head))
                found.setdefault(position, []).append(known)
            node, position = children.get((node, token)), position + 1
    return {position: tuple(ranks) for position, ranks in found.items()}


def _reach(followed: Sequence[LaterToken], nodes: int) -> tuple[int, bool]:
    """How deep so many nodes reach along the text, and whether every rank needed for the answer is known."""
    spent = 0
    for depth, token in enumerate(followed):
        if token.rank is None:
            return depth, spent >= nodes
        spent += token.rank
        if spent > nodes:
            return depth, True
        if not token.exact:
            return depth, False
    return len(followed), True
