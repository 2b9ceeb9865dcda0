"""The data of the scope component: one iteration of a run with every linked view, or a tree alone.

frame = frame_data(iteration, scene_id="run-1:3")          # every linked view of one iteration
data = compact_data(iteration, scene_id="a:3", title="A")  # tree only, for side-by-side views

A page shows frames of many iterations as a film (`film_data`); what belongs to the run (`run_strip`, `run_text`) is
sent once.
"""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from decoding.common.formats import duration, plural
from decoding.trace.metrics import tokens_before_loop
from decoding.trace.records import IterationTrace, RunTrace
from decoding.trace.tree_mask import BLOCK, tree_mask
from viz.explain.iteration import history_changes
from viz.explain.known import Known, sampling_words
from viz.glossary import explain_term, verifier_title
from viz.scope.cards import cards, distributions
from viz.scope.panels import ORDER_WORDS, cache_strips, iteration_spans, row_orders
from viz.scope.phases import time_rows
from viz.scope.scene import Scene, build_scene, overview_data, plain, scene_to_json
from viz.scope.steps import search_steps
from viz.theme import MARKS, PHASE_COLORS
from viz.tokens import quote, read_along, readable, visible

TEXT_WINDOW = 240
PROMPT_TOKENS = 16  # enough to fill what `quote` shows of a prompt
# Panel headings and the glossary term in their tooltips.
HEADS = {
    "mask": "tree attention mask",
    "kv": "kv slot",
    "text": "provenance",
    "times": "time of this iteration",
    "strip": "iteration strip",
    "efficiency": "block efficiency",
    "totals": "loop",
    "draft": "draft probability",
    "drafted": "accepted",
    "bonus": "bonus token",
    "recovered": "recovered token",
    "fallback": "fallback token",
    "tests": "acceptance test",
    "residual": "residual",
}


def frame_data(iteration: IterationTrace, *, scene_id: str, title: str = "", unfolded: Collection[int] = ()) -> dict:
    """What the linked scope shows of one iteration, without the run around it."""
    iteration = readable(iteration)
    known = Known(iteration)
    scene = build_scene(iteration, scene_id=scene_id, title=title, unfolded=unfolded, known=known)
    return {
        "index": iteration.index,
        "scene": scene_to_json(scene),
        "legend": legend(scene),
        "cards": cards(iteration, scene, known),
        "distributions": distributions(iteration, scene, known),
        "mask": _mask(iteration),
        "kv": [plain(strip) for strip in cache_strips(iteration)],
        "position": iteration.prefix_length,
        # The draft's forwards are listed one by one.
        "times": [
            {
                "key": name,
                "words": words,
                "color": PHASE_COLORS["draft" if name == "tree" else name],
                "seconds": value,
                "shown": duration(value),
                "parts": list(iteration.times.draft_levels_s) if name == "draft" else [],
                "help": explain_term(words),
            }
            for name, words, value in time_rows(iteration)
        ],
        "search": search_steps(iteration),
        "recorded": bool(iteration.nodes),
        "overview": overview_data(iteration) if scene.hidden else None,
    }


def compact_data(
    iteration: IterationTrace,
    *,
    scene_id: str,
    title: str = "",
    phase: str | None = None,
    selected: int | None = None,
    marks: Mapping[int, str] | None = None,
    unfolded: Collection[int] = (),
) -> dict:
    """Data of a tree alone, which shows no cards.

    `marks` maps node ids to words such as `only in A`; marked nodes get a frame and a tag.
    """
    iteration = readable(iteration)
    scene = build_scene(iteration, scene_id=scene_id, title=title, selected=selected, unfolded=unfolded)
    return {
        "mode": "compact",
        "scene": scene_to_json(scene),
        "legend": legend(scene),
        "selected": selected,
        "phase": phase,
        "cards": {},
        "marks": {str(node_id): words for node_id, words in (marks or {}).items()},
        "recorded": bool(iteration.nodes),
    }


def legend(scene: Scene) -> list[dict]:
    """Label of each mark that any phase of a scene shows, in the order of `MARKS`."""
    there = {state for phase in scene.phases for state in phase.states}
    words = {"new": "new in this step", "drafted": "drafted"} | {state: mark.words for state, mark in MARKS.items()}
    shown = [state for state in words if state in there and state != "root"]
    return [{"state": state, "words": words[state], "help": explain_term(words[state])} for state in shown]


def _mask(iteration: IterationTrace) -> dict:
    """Rows of the pass in its own order, and the other orders in which the panel can show them."""
    if not iteration.nodes:
        stats = "The tree was not recorded."
        return {"order": [], "parents": [], "prefix": 0, "stats": stats, "short": "", "orders": []}
    mask = tree_mask(iteration)
    return {
        "order": list(mask.order),
        "parents": [iteration.nodes[i].parent_id for i in mask.order],
        "prefix": mask.prefix_columns,
        "stats": mask.stats(),
        "short": f"{mask.cells:,} of {len(mask.order) ** 2:,} tree cells allowed",
        "block": BLOCK,
        "orders": [
            {
                "name": order.name,
                "words": ORDER_WORDS[order.name],
                # The order of the pass is in `order` already.
                "rows": None if order.used else list(order.rows),
                "blocks": order.blocks.total,
                "help": order.caption(mask.prefix_columns),
            }
            for order in (row_orders(iteration, mask) if len(mask.order) > 1 else ())
        ],
    }


def run_text(run: RunTrace, first: int, last: int) -> dict:
    """The text around iterations `first` to `last`, with `TEXT_WINDOW` tokens before the first.

    `spans` are (visible text, provenance, node of its iteration or None, iteration or None, ends a line); `before` says
    how many tokens come before the first span.
    """
    spans: list = []
    enough = TEXT_WINDOW + sum(len(i.committed_ids) for i in run.iterations[first : last + 1])
    for place in range(last, -1, -1):
        spans = iteration_spans(run.iterations[place], current=True) + spans
        if len(spans) > enough:
            break
    committed = sum(len(i.committed_ids) for i in run.iterations[: last + 1])
    prompt = list(run.prompt_texts) if len(spans) == committed else []
    kept = prompt[-TEXT_WINDOW:]
    before = len(run.prompt_texts) - len(kept) + committed - len(spans)
    shown = map(visible, read_along([*kept, *(span.text for span in spans)]))
    rows = [[next(shown), "prompt", None, None, text.endswith("\n")] for text in kept]
    rows += [[next(shown), s.provenance, s.node_id, s.iteration, s.text.endswith("\n")] for s in spans]
    return {"before": before, "spans": rows}


def run_words(run: RunTrace) -> tuple[str, str]:
    """Sampling and prompt of the run shown, short and in full."""
    sampling = run.sampling
    words = ["greedy decoding" if sampling.temperature == 0 else sampling_words(sampling)]
    if sampling.draft_temperature != 1:
        words.append(f"draft temperature {sampling.draft_temperature:g}")
    if sampling.temperature > 0 or sampling.draft_temperature != 1:
        words.append(f"seed {sampling.seed}")
    verifier = run.settings.get("verifier")
    if verifier and verifier != "greedy":
        words.append(f"verifier {verifier_title(str(verifier))}")
    prompt = "".join(run.prompt_texts[:PROMPT_TOKENS]).strip()
    short = ", ".join(words).replace("temperature", "T")
    return f"{short} · {quote(prompt)}", f"The run shown: {run.label}, {', '.join(words)}, prompt {quote(prompt)}"


def run_strip(run: RunTrace) -> dict:
    """A column per iteration (accepted, kind of final token, in a loop, what history changed); the run's totals.

    In a loop are the iterations that Compare leaves out: from the one on that completes the first repeated sequence.
    """
    count, free = len(run.iterations), tokens_before_loop(run.output_ids)
    ends = list(accumulate(len(i.committed_ids) for i in run.iterations))
    tokens = ends[-1] if ends else 0
    passes = sum(i.target_passes for i in run.iterations)
    looping = [i.in_loop or end > free for i, end in zip(run.iterations, ends, strict=True)]
    loops = sum(i.target_passes for i, inside in zip(run.iterations, looping, strict=True) if inside)
    return {
        "columns": [
            [len(i.accepted), i.final_kind, int(inside), history_changes(i.history)]
            for i, inside in zip(run.iterations, looping, strict=True)
        ],
        "about": run_words(run),
        "efficiency": f"block efficiency {tokens / max(count, 1):.2f}",
        "totals": f"{plural(tokens, 'token')}, {plural(passes, 'target pass', 'target passes')}"
        + (f"; in a loop: {plural(tokens - free, 'token')}, {plural(loops, 'pass', 'passes')}" if loops else "")
        + (" · ▾ settings adapted" if any(history_changes(each.history) for each in run.iterations) else ""),
    }


# Most drawn nodes in a film: 40 iterations of 64 nodes, or 9 of 1,024, of which a scene draws about 300.
FILM_NODES = 2920
DRAWN_NODES = 300
FRAME_NODES = 8
FEWEST = 2


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One iteration as the browser gets it: JSON text of `frame_data`, and a digest of it.

    Attributes:
        iteration: the record it was built from; another record needs another frame.
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
    # Names once, then one list of values per node: half the bytes, as fast to read.
    data["scene"]["nodes"] = {"names": list(nodes[0]), "rows": [list(node.values()) for node in nodes]}
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return Frame(iteration, tuple(unfolded), text, _digest(text))


def window_around(nodes: Sequence[int], index: int) -> range:
    """Iterations around `index` that draw `FILM_NODES` at most, but at least `FEWEST` to either side.

    Args:
        nodes: nodes of each iteration of the run.
    """
    weights = [min(count, DRAWN_NODES) + FRAME_NODES for count in nodes]
    first = last = index
    spent = weights[index]
    while first > 0 or last < len(nodes) - 1:
        # Alternate sides; when one side reaches its end, the other gets the rest.
        forward = first == 0 or (last < len(nodes) - 1 and last - index <= index - first)
        place = last + 1 if forward else first - 1
        spent += weights[place]
        if spent > FILM_NODES and abs(place - index) > FEWEST:
            break
        first, last = min(first, place), max(last, place)
    return range(first, last + 1)


def near_edge(window: range, index: int, count: int) -> bool:
    """Whether an iteration is outside the window, or so near an edge that the next step may leave it."""
    margin = min(max(1, len(window) // 4), 8)
    before, after = index - window.start, window.stop - 1 - index
    near = (window.start > 0 and before < margin) or (window.stop < count and after < margin)
    return near or index not in window


def film_data(run: RunTrace, key: str, window: range, frames: Sequence[Frame], ask: dict) -> dict:
    """Data of the linked scope with a film; `frames` are those of `window`, `ask` is the place to show."""
    terms = {panel: explain_term(term) for panel, term in HEADS.items()}
    shared = {"text": run_text(run, window.start, window.stop - 1), "strip": run_strip(run), "terms": terms}
    # Shared data is one more text with its own version.
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


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
