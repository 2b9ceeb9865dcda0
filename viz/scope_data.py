"""The whole data of the scope component: one iteration of a run with every linked view, or a tree alone.

data = scope_data(run, index, key="run-1")                 # the linked scope
data = compact_data(iteration, scene_id="a:3", title="A")  # tree only, for side-by-side views
marks_a, marks_b = diff_marks(iteration_a, iteration_b)    # {node_id: "only here"} to pass as `marks`
"""

from collections.abc import Collection, Mapping
from dataclasses import asdict

from decoding.trace import IterationTrace, RunTrace
from viz.cache_figure import cache_strips
from viz.cards import cards, laws
from viz.explain import iteration_summary, phase_seconds
from viz.mask_figure import mask_png, tree_mask
from viz.scene import Limits, Scene, build_scene, scene_to_json
from viz.text_strip import iteration_spans
from viz.theme import MARKS, PHASE_COLORS, PHASE_WORDS
from viz.tokens import milliseconds, plural, visible

STRIP_WINDOW = 160
TEXT_WINDOW = 240


def scope_data(
    run: RunTrace,
    index: int,
    *,
    key: str = "run",
    selected: int | None = None,
    phase: str | None = None,
    unfolded: Collection[int] = (),
    title: str = "",
    limits: Limits | None = None,
) -> dict:
    """Data of the linked scope for iteration `index` of a run; `selected` and `phase` only set where it starts."""
    iteration = run.iterations[index]
    scene = build_scene(
        iteration,
        scene_id=f"{key}:{index}",
        title=title or run.label,
        selected=selected,
        unfolded=unfolded,
        limits=limits,
    )
    return {
        "mode": "scope",
        "scene": scene_to_json(scene),
        "legend": legend(scene),
        "selected": selected,
        "phase": phase,
        "cards": cards(iteration, scene),
        "laws": laws(iteration, scene),
        "mask": _mask(iteration),
        "kv": [asdict(strip) for strip in cache_strips(iteration)],
        "text": _text(run, index),
        "times": _times(iteration),
        "strip": run_strip(run, index),
        "recorded": bool(iteration.nodes),
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
    limits: Limits | None = None,
) -> dict:
    """Data of a tree alone. `marks` maps node ids to words such as `only in A`; marked nodes get a frame and a tag."""
    scene = build_scene(iteration, scene_id=scene_id, title=title, selected=selected, unfolded=unfolded, limits=limits)
    return {
        "mode": "compact",
        "scene": scene_to_json(scene),
        "legend": legend(scene),
        "selected": selected,
        "phase": phase,
        "cards": cards(iteration, scene),
        "marks": {str(node_id): words for node_id, words in (marks or {}).items()},
        "recorded": bool(iteration.nodes),
    }


def diff_marks(
    first: IterationTrace, second: IterationTrace, names: tuple[str, str] = ("A", "B")
) -> tuple[dict[int, str], dict[int, str]]:
    """Nodes that only one of two trees has, by their path of tokens: marks for the first and for the second."""
    paths = [_token_paths(iteration) for iteration in (first, second)]
    marks = []
    for mine, other, name in ((paths[0], paths[1], names[0]), (paths[1], paths[0], names[1])):
        marks.append({node_id: f"only in {name}" for path, node_id in mine.items() if path not in other})
    return marks[0], marks[1]


def _token_paths(iteration: IterationTrace) -> dict[tuple, int]:
    """Node id by path, written as (path id of the parent, token) so that comparing costs no more than the tree."""
    paths: list[tuple] = [()]
    for node in iteration.nodes[1:]:
        paths.append((paths[node.parent_id], node.token_id))
    return {path: node_id for node_id, path in enumerate(paths) if node_id}


def legend(scene: Scene) -> list[dict]:
    """Words for each mark that any phase of a scene shows, in the order of the vocabulary."""
    there = {state for phase in scene.phases for state in phase.states}
    words = {"new": "new in this step", "drafted": "drafted"} | {state: mark.words for state, mark in MARKS.items()}
    return [{"state": state, "words": words[state]} for state in words if state in there and state != "root"]


def _mask(iteration: IterationTrace) -> dict:
    if not iteration.nodes:
        return {
            "png": None,
            "order": [],
            "parents": [],
            "prefix": 0,
            "stats": "The tree was not recorded.",
            "short": "",
        }
    mask = tree_mask(iteration)
    parents = [iteration.nodes[i].parent_id for i in mask.order]
    return {
        "png": mask_png(mask.allowed),
        "order": list(mask.order),
        "parents": parents,
        "prefix": mask.prefix_columns,
        "stats": mask.stats(),
        "short": f"{mask.cells:,} of {len(mask.order) ** 2:,} tree cells allowed",
    }


def _text(run: RunTrace, index: int) -> dict:
    """The text around the current iteration; only its neighbourhood is sent, `before` says how many tokens are not."""
    spans: list = []
    for place in range(index, -1, -1):
        spans = iteration_spans(run.iterations[place], place == index) + spans
        if len(spans) > TEXT_WINDOW:
            break
    committed = sum(len(i.committed_ids) for i in run.iterations[: index + 1])
    prompt = list(run.prompt_texts) if len(spans) == committed else []
    kept = prompt[-TEXT_WINDOW:]
    before = len(run.prompt_texts) - len(kept) + committed - len(spans)
    rows = [[visible(text), "prompt", None, None, text.endswith("\n")] for text in kept]
    rows += [[s.shown, s.provenance, s.node_id, s.iteration, s.text.endswith("\n")] for s in spans]
    return {"before": before, "spans": rows, "position": run.iterations[index].prefix_length}


def _times(iteration: IterationTrace) -> list[dict]:
    """Phases of the iteration with their measured times, the draft's forwards one by one."""
    seconds = phase_seconds((iteration,))
    return [
        {
            "key": name,
            "words": PHASE_WORDS[name],
            "color": PHASE_COLORS[name],
            "seconds": value,
            "shown": milliseconds(value),
            "parts": list(iteration.times.draft_levels_s) if name == "draft" else [],
        }
        for name, value in seconds.items()
        if value > 0
    ]


def run_strip(run: RunTrace, index: int) -> dict:
    """Columns of the run around an iteration and the numbers of the whole run."""
    count = len(run.iterations)
    first = max(0, min(index - STRIP_WINDOW // 2, count - STRIP_WINDOW))
    shown = run.iterations[first : first + STRIP_WINDOW]
    tokens = sum(len(i.committed_ids) for i in run.iterations)
    passes = sum(i.target_passes for i in run.iterations)
    loops = sum(i.in_loop for i in run.iterations)
    return {
        "first": first,
        "count": count,
        "current": index,
        "columns": [[len(i.accepted), i.final_kind, int(i.in_loop)] for i in shown],
        "position": f"iteration {index + 1} of {count} · {run.iterations[index].prefix_length:,} tokens before it",
        "efficiency": f"{tokens / max(count, 1):.2f} tokens / verification",
        "totals": f"{plural(tokens, 'token')}, {plural(passes, 'target pass', 'target passes')}"
        + (f", {loops} in a loop" if loops else ""),
        "summary": iteration_summary(run.iterations[index]),
    }
