"""Rows of the papers' grids and records of their benchmarks, made by hand."""

import json

import pandas as pd

from decoding.experiments.experiment import GRIDS
from decoding.experiments.grid import read_grid
from decoding.experiments.rows import LOOP_FREE, MEASURED, SCHEMA
from decoding.models.embedded import embedded_weights
from decoding.papers import PAPER_RESULTS
from decoding.papers.judge import grid_name

BY_KEY = {paper_result.key: paper_result for paper_result in PAPER_RESULTS}
SPEEDS = {"autoregressive": 100.0, "linear": 150.0, "fixed_tree": 140.0, "dynatree": 180.0}
DYNATREE, FIXED, LINEAR = "DynaTree", "Fixed tree, D = 8, B = 3", "Linear, K = 8"


def row(line: str, prompt: str, speed: float, **more) -> dict:
    """A row of the main grid: 100 tokens, 4 per pass but for decoding without a draft."""
    tokens = 1.0 if line == "autoregressive" else 4.0
    figures = dict.fromkeys(MEASURED) | {
        "new_tokens": 100, "wall_s": 100 / speed, "prefill_s": 0.0, "throughput": speed, "tpot_s": 1 / speed,
        "ttft_s": 0.01, "iterations": int(100 / tokens), "tokens_per_iteration": tokens, "drafted": 200,
        "draft_forwards": 0 if tokens == 1 else 100, "draft_s": 0.0 if tokens == 1 else 0.25, "verify_s": 0.5,
    }  # fmt: skip
    return {
        **dict.fromkeys(SCHEMA.names), **figures, **{LOOP_FREE + name: value for name, value in figures.items()},
        "key": f"{line} {prompt} {more}", "experiment": read_grid(GRIDS / "dynatree_main.toml").name, "block": prompt,
        "reference": line == "autoregressive", "line": line, "method": line.split(":")[0], "engine": "packed",
        "settings": "{}", "prompt_set": "samples", "kind": "stories", "prompt": prompt, "pair": "Embedded pair",
        "machine": "a test", "started": "2030-01-02T00:00:00", "temperature": 0.0, "top_p": 1.0, "cut": 0,
        "asked_tokens": 1000, "prompt_tokens": 60, "draft_temperature": 1.0, "repeat": 0,
        "weights": embedded_weights(), **more,
    }  # fmt: skip


def rows(speeds=None, prompts=6, **more) -> pd.DataFrame:
    speeds = speeds or SPEEDS
    made = [
        row(line, f"p{n}", speed * (1 + 0.01 * n), **more) for n in range(prompts) for line, speed in speeds.items()
    ]
    return pd.DataFrame(made)


HARDWARE = {"processor": "A processor", "device": "cpu", "torch": "9.9"}
PROMPTS = ("a", "b", "c")


def frame(*rows: dict) -> pd.DataFrame:
    return pd.DataFrame(list(rows))


def of(key: str, line: str, prompt: str, speed: float = 100.0, **more) -> dict:
    """A row of a paper result's grid."""
    block = f"{prompt} {more.get('asked_tokens')} {more.get('cut')} {more.get('temperature')}"
    return row(line, prompt, speed, experiment=grid_name(BY_KEY[key].grid), block=block, **more)


def of_shape(verifier: str, prompt: str, paths: int, tokens: float, **more) -> dict:
    """A record of `benchmarks.verifier_grid`."""
    return {"line": f"iid_paths:verifier={verifier}", "method": "iid_paths", "sample": prompt, "temperature": 1.0,
            "top_p": 1.0, "settings.verifier": verifier, "settings.paths": paths, "settings.length": 2,
            "tokens_per_iteration": tokens, "throughput": 40.0 * tokens} | more  # fmt: skip


def store(folder, benchmark: str, records: list[dict], **more) -> None:
    content = {"benchmark": benchmark, "pair": "Embedded pair", "weights": embedded_weights(),
               "created": "2030-01-02T00:00:00Z", "hardware": HARDWARE}  # fmt: skip
    folder.mkdir(exist_ok=True)
    file = folder / f"{benchmark}-{more.pop('device', 'cpu')}.json"
    file.write_text(json.dumps(content | more))
    pd.DataFrame(records).to_csv(file.with_suffix(".csv.gz"), index=False)
