"""What else must not change: keys of all grids, verdicts on papers, what addresses restore, names in files."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any
from urllib.parse import parse_qs

from decoding.common.settings import settings_of
from decoding.costs.measuring import calibration_file
from decoding.experiments.experiment import GRIDS, SHIPPED
from decoding.experiments.grid import read_grid
from decoding.experiments.plan import LONG, SAMPLES, blocks, prompts_of
from decoding.experiments.rows import FOLDER as ROWS
from decoding.experiments.rows import all_rows
from decoding.methods.methods import METHODS, PRESETS
from decoding.models.pair import embedded_pair, pair_identity
from decoding.papers import PAPER_RESULTS
from decoding.papers.judge import claim_words, judge
from decoding.recorded import FOLDER
from decoding.trace.metrics import COUNTINGS
from pages.ui.app.links import View, decode, encode

# Kinds of files in the cache, by the ending of their names.
CACHE_KINDS = ("", "odds", "costs", "latency")
STRANGE = (
    "method=No+such+method", "length=4", "method=Linear+chain&length=0", "method=Linear+chain&length=four", "seed=-1",
    "temperature=1e9", "temperature=0.7&top_p=0.9&seed=3", "recorded=home&iteration=7&node=3", "recorded=nothing",
    "prompt=Frog+and+boat", "text=Hello+%3Cb%3E&iteration=2", "node=final", "iteration=0",
    "method=DynaTree&base_depth=9",
    "verifier=nss&method=DySpec+greedy&temperature=0.6", "chat=on", "max_new_tokens=99999999", "pair=Some+pair",
    "chat=1&text=Why%3F&max_new_tokens=64", "draft_temperature=0.5&temperature=0.6&top_p=nan",
)  # fmt: skip


def grids() -> dict[str, Any]:
    """Of every grid on texts that come with the program: how many runs it comes to, and a digest of their keys."""
    pair = embedded_pair()
    identity, found = pair_identity(pair), {}
    for file in sorted(GRIDS.glob("*.toml")):
        grid = read_grid(file)
        if grid.prompts.set in (SAMPLES, LONG):
            keys = [run.key for block in blocks(grid, pair, identity, prompts_of(grid.prompts)) for run in block.runs]
            found[file.stem] = {"runs": len(keys), "keys": hashlib.sha256("\n".join(keys).encode()).hexdigest()}
    return found


def verdicts() -> dict[str, Any]:
    """What the rows that come with the program say of every claim of the papers, in both ways of counting."""
    rows = all_rows(sorted(file.parent for file in SHIPPED.glob(f"*/{ROWS}")))
    rows = rows.drop_duplicates(["experiment", "pair", "machine", "key"])
    found = {}
    for paper_result in PAPER_RESULTS:
        both = (judge(paper_result, rows, way).judged for way in COUNTINGS)
        found[paper_result.key] = [[claim_words(one), one.verdict, two.verdict] for one, two in zip(*both, strict=True)]
    return found


def addresses(known: Iterable[str] = ()) -> dict[str, Any]:
    """What addresses restore, strange ones and those known from before among them."""
    recorded = sorted(file.stem for file in FOLDER.glob("*.dscope"))
    queries = dict.fromkeys([*known, *(encode(view).query for view in _views()), *STRANGE])
    found = {}
    for query in queries:
        view, said = decode(parse_qs(query), recorded)
        found[query] = {"view": asdict(view), "said": said}
    return found


def _views() -> Iterator[View]:
    for name, method in METHODS.items():
        declared = settings_of(type(method.drafter))
        offered = {key: info.offered for key, info in declared.items() if info.offered}
        yield View(method=name, settings={key: type(declared[key].default)(low) for key, (low, _) in offered.items()})
        yield View(method=name, sampling={"temperature": 0.7, "seed": 5}, iteration=3, node=1)


def names() -> dict[str, Any]:
    """Names of files in the cache, labels of methods, engines and configurations, as files of before hold them."""
    pair = embedded_pair()
    return {
        "cache": [calibration_file(pair, kind).name for kind in CACHE_KINDS],
        "methods": {name: [method.label, sorted(method.settings())] for name, method in METHODS.items()},
        "engines": [pair.info.target.engine, pair.with_engine("library").info.target.engine],
        "configurations": sorted(PRESETS),
    }
