"""What a person forced on a node of an iteration, as sentences around why it was accepted or rejected."""

from decoding.trace.records import IterationTrace, NodeTrace
from viz.explain.tested_law import is_sampled, target_shown
from viz.formats import listed, number
from viz.tokens import quote

MOST_NAMED = 8


class Forced:
    """What a person forced in an iteration, by the nodes that it is about."""

    def __init__(self, iteration: IterationTrace):
        self._iteration = iteration
        self._put_in: set[int] = set()
        # By parent: the only token that the verifier was told the target gives there, and those it takes away.
        self._only: dict[int, int] = {}
        self._removed: dict[int, list[int]] = {}
        if iteration.forced:
            self._read()

    def __contains__(self, node_id: int) -> bool:
        """Whether a node was put into the tree, or it or a sibling forced to pass or to fail."""
        parent = self._iteration.nodes[node_id].parent_id
        return node_id in self._put_in or parent in self._only or parent in self._removed

    def words(self, node_id: int, usual: str) -> str:
        """Why a forced node has its verdict; `usual` is what would be said had nobody interfered."""
        node = self._iteration.nodes[node_id]
        said = self._verdict_words(node, usual)
        put_in = node_id in self._put_in and node.verdict != "not_verified"
        return f"Forced into the tree: {_lower(said)}" if put_in else said

    def _read(self) -> None:
        """Follow every forced path down the tree, as far as it goes there."""
        children = {(node.parent_id, node.token_id): node.node_id for node in self._iteration.nodes[1:]}
        for each in self._iteration.forced:
            place: int | None = 0
            for depth, token in enumerate(each.path, start=1):
                if each.kind == "accept":
                    self._only.setdefault(place, token)
                elif each.kind == "reject" and depth == len(each.path):
                    self._removed.setdefault(place, []).append(token)
                place = children.get((place, token))
                if place is None:
                    break
            else:
                if each.kind == "force_in":
                    self._put_in.add(place)

    def _verdict_words(self, node: NodeTrace, usual: str) -> str:
        gives = number(target_shown(node))
        only, removed = self._only.get(node.parent_id), self._removed.get(node.parent_id, ())
        if node.verdict == "not_verified":
            return usual
        if node.token_id in removed:
            told = f"Forced to fail: the verifier was told that the target gives this token 0, not {gives}"
            return f"{told}." if node.reason == "forced_fail" else f"{told}; {_lower(usual)}"
        if node.token_id == only:
            told = f"Forced to pass: the verifier was told that the target gives this token 1, not {gives}"
            return f"{told}." if node.reason == "forced_pass" else f"{told}; {_lower(usual)}"
        if node.verdict not in ("accepted", "rejected"):
            return usual
        if only is not None:
            return f"A sibling was forced to pass: the verifier was told that this token has 0, not {gives}."
        if not removed:
            return usual
        names = [quote(self._iteration.texts.get(token, f"<{token}>")) for token in removed[:MOST_NAMED]]
        names = listed([*names, f"{len(removed) - MOST_NAMED:,} more"] if len(removed) > MOST_NAMED else names)
        if is_sampled(self._iteration):
            return f"With {names} forced to fail: {_lower(usual)}"
        likeliest = "the target's most likely token left"
        likeliest = likeliest if node.verdict == "accepted" else "not the likeliest token left"
        return f"With {names} forced to fail this was {likeliest}, at {gives}."


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
