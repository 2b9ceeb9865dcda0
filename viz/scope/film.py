"""A film for the linked scope: iterations around the one looked at, so that the browser steps without asking.

    frame = make_frame(iteration, run_key, index, title)      # once per iteration; the page keeps it
    window = window_around([len(i.nodes) for i in run.iterations], index)
    data = film_data(run, key, window, frames, ask)           # the component's data

A frame is text already: sending a film again costs Python no more than copying it, and the browser reads a frame only
when it is looked at. Versions are digests of the text, so that neither side has to compare what did not change.
"""

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from decoding.trace.records import IterationTrace, RunTrace
from viz.scope.data import frame_data, panel_terms, run_strip, run_text

# Drawn nodes that a film holds at most: 40 iterations of 64 nodes, or 9 of 1,024, of which a scene draws about 300.
FILM_NODES = 2920
DRAWN_NODES = 300
FRAME_NODES = 8
FEWEST = 2


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One iteration as the browser gets it: JSON text of `data.frame_data`, and a digest of it.

    Attributes:
        iteration: the record that it was made from; another one makes another frame.
        unfolded: nodes whose folded children it shows.
    """

    iteration: IterationTrace
    unfolded: tuple[int, ...]
    text: str
    version: str


def make_frame(
    iteration: IterationTrace, key: str, index: int, title: str = "", unfolded: Collection[int] = ()
) -> Frame:
    """The frame of iteration `index` of the run with this key."""
    data = frame_data(iteration, scene_id=f"{key}:{index}", title=title, unfolded=unfolded)
    nodes = data["scene"]["nodes"]
    # Names once and values in rows: half the bytes, and the browser reads it as fast.
    data["scene"]["nodes"] = {"names": list(nodes[0]), "rows": [list(node.values()) for node in nodes]}
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return Frame(iteration, tuple(unfolded), text, _digest(text))


def window_around(nodes: Sequence[int], index: int, budget: int = FILM_NODES) -> range:
    """Iterations around `index` whose drawn nodes fit the budget, at least `FEWEST` to either side.

    Args:
        nodes: nodes of each iteration of the run.
    """
    first = last = index
    spent = _weight(nodes[index])
    while first > 0 or last < len(nodes) - 1:
        # Alternately to both sides; where one side is at its end the other gets the rest.
        forward = first == 0 or (last < len(nodes) - 1 and last - index <= index - first)
        place = last + 1 if forward else first - 1
        spent += _weight(nodes[place])
        if spent > budget and abs(place - index) > FEWEST:
            break
        first, last = min(first, place), max(last, place)
    return range(first, last + 1)


def near_edge(window: range, index: int, count: int) -> bool:
    """Whether an iteration lies outside the window or so near to an edge that the next step may leave it."""
    if index not in window:
        return True
    margin = min(max(1, len(window) // 4), 8)
    return (window.start > 0 and index - window.start < margin) or (
        window.stop < count and window.stop - 1 - index < margin
    )


def film_data(run: RunTrace, key: str, window: range, frames: Sequence[Frame], ask: dict) -> dict:
    """Data of the linked scope with a film; `frames` are those of `window`, `ask` says where it is to go."""
    shared = {"text": run_text(run, window.start, window.stop - 1), "strip": run_strip(run), "terms": panel_terms()}
    # What all frames share is one more piece of text with a version of its own.
    text = json.dumps(shared, separators=(",", ":"), ensure_ascii=False)
    versions = [frame.version for frame in frames]
    return {
        "mode": "scope",
        "version": _digest(" ".join([key, str(window.start), _digest(text), *versions, json.dumps(ask)])),
        "ask": ask,
        "film": {
            "key": key,
            "first": window.start,
            "count": len(run.iterations),
            "frames": [frame.text for frame in frames],
            "versions": versions,
            "shared": text,
            "shared_version": _digest(text),
        },
    }


def _weight(nodes: int) -> int:
    return min(nodes, DRAWN_NODES) + FRAME_NODES


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
