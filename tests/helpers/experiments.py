"""An experiment on disk that no process made: its rows, what was asked for, where it stands."""

import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path

from decoding.experiments.grid import grid_from
from decoding.experiments.rows import GRID, LOOP_FREE, MEASURED, SCHEMA, RowStore
from decoding.jobs.job import STATUS, Status

PROMPTS = ("frog_and_boat", "lost_mitten", "other", "one_more")


def made_row(line: str, prompt: str, speed: float, settings: dict | None = None, **more) -> dict:
    """A row of 32 tokens, 4 per pass but for decoding without a draft; `speed` in tokens per second."""
    plain = line == "autoregressive"
    tokens = 1.0 if plain else 4.0
    figures = dict.fromkeys(MEASURED) | {
        "new_tokens": 32, "wall_s": 32 / speed, "prefill_s": 0.0, "throughput": speed, "tpot_s": 1 / speed,
        "ttft_s": 0.01, "iterations": int(32 / tokens), "tokens_per_iteration": tokens,
        "drafted": None if plain else 64,
        "acceptance_drafted": None if plain else 0.4, "draft_forwards": 0 if plain else 24,
    }  # fmt: skip
    return {
        **dict.fromkeys(SCHEMA.names), **figures, **{LOOP_FREE + name: value for name, value in figures.items()},
        "key": f"{line} {prompt} {more}", "experiment": "made", "block": f"{prompt} {more.get('temperature', 0.0)}",
        "reference": plain, "line": line, "label": line, "method": line.partition(":")[0], "engine": "packed",
        "settings": json.dumps(settings or {}), "prompt_set": "samples", "kind": "stories", "prompt": prompt,
        "pair": "Embedded pair", "machine": "a test", "started": "2030-01-02T00:00:00", "cut": 0, "prompt_tokens": 9,
        "asked_tokens": 32, "temperature": 0.0, "top_p": 1.0, "draft_temperature": 1.0, "seed": 0, "repeat": 0,
        "output_ids": list(range(32)), "loop_free_tokens": 32, **more,
    }  # fmt: skip


def made_rows(depths: Iterable[int] = (3, 4), widths: Iterable[int] = (2, 3), prompts: int = 4, **more) -> list[dict]:
    """A swept fixed tree: deeper and wider is faster, later prompts are a little faster than earlier ones."""
    rows = []
    for number, prompt in enumerate(PROMPTS[:prompts]):
        rows.append(made_row("autoregressive", prompt, 100.0, label="Autoregressive", **more))
        for depth in depths:
            for width in widths:
                speed = 100.0 + 40 * (depth - 3) + 10 * width + number
                line = f"fixed_tree:max_depth={depth},branching={width}"
                settings = {"max_depth": depth, "branching": width, "node_budget": 256}
                rows.append(made_row(line, prompt, speed, settings, label=f"D {depth} B {width}", **more))
    return rows


def made_experiment(
    home: Path, name: str, rows: list[dict] | None = None, status: Status | None = None, **content
) -> Path:
    """An experiment with rows and a status; `content` is of its grid."""
    folder, found = home / name, made_rows() if rows is None else rows
    RowStore(folder).append(found)
    folder.mkdir(parents=True, exist_ok=True)
    vary = {"max_depth": [3, 4], "branching": [2, 3]}
    plain = {"name": f"Made {name}", "methods": [{"method": "fixed_tree", "vary": vary}], "new_tokens": [32]}
    (folder / GRID).write_text(json.dumps(asdict(grid_from(plain | content, name))), encoding="utf-8")
    said = Status("finished", done=len(found), total=len(found)) if status is None else status
    # Written long after anything was launched, by a process that is gone.
    (folder / STATUS).write_text(json.dumps(asdict(replace(said, written=4e9))), encoding="utf-8")
    return folder
