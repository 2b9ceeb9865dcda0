"""Records that benchmarks save for a paper result, as `judge` reads them. Torch-free.

Such a benchmark writes `pair` into its `.json` and its records into a `.csv.gz` next to it: each names its entry in
`line` and the sample in `sample`, has a value on the axis where there is one, and one number per figure. `protocol` in
the `.json` says how they were measured, by the `part` of the records, which is empty where they have none: fields of
`Protocol` that the records do not hold themselves. They are in `decoding/experiments/results`; results measured from
the app are in the user's own folder.
"""

import json
import zlib
from pathlib import Path

import pandas as pd

from decoding.common.cost_model import CostModel
from decoding.common.errors import ExperimentError
from decoding.experiments.experiment import RESULTS, experiments_home, records_beside
from decoding.papers.paper_result import OF_RECORDS


def own_records(benchmark: str) -> Path:
    """Folder for figures that the user measured from the app."""
    return experiments_home() / "records" / benchmark


def record_files(benchmark: str) -> list[Path]:
    """All files that a benchmark has saved: those included with Draftscope and the user's own."""
    return [file for folder in (RESULTS, own_records(benchmark)) for file in sorted(folder.glob(f"{benchmark}-*.json"))]


def stored_records(benchmark: str) -> pd.DataFrame:
    """The records that a benchmark has saved, the newest for every pair and machine; an empty frame without any.

    Raises `ExperimentError` where a file is damaged.
    """
    found: dict[tuple[str, str], pd.DataFrame] = {}
    for frame in filter(len, map(_read, record_files(benchmark))):
        first = frame.iloc[0]
        place = first["pair"], first["machine"]
        if place not in found or found[place].iloc[0]["started"] <= first["started"]:
            found[place] = frame
    return pd.concat(found.values(), ignore_index=True) if found else pd.DataFrame()


def pass_costs(machine: str) -> dict[str, CostModel]:
    """What passes over one sequence cost on a machine, by pair, the newest that `benchmarks.batch` has saved."""
    found: dict[str, tuple[str, CostModel]] = {}
    for file in record_files("batch"):
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            costs = CostModel.from_json(content["costs"][0])
            known = found.get(content["pair"], ("", costs))
            if costs.machine == machine and costs.batch == 1 and known[0] <= costs.measured:
                found[content["pair"]] = costs.measured, costs
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
            continue  # older or damaged: times are shown as they were measured
    return {pair: costs for pair, (_, costs) in found.items()}


def took(benchmark: str) -> tuple[float, str] | None:
    """Seconds that the newest run of a benchmark took, and on what hardware; None where no run recorded it."""
    found = []
    for file in record_files(benchmark):
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            hardware = content["hardware"]
            found.append((content["created"], float(content["took_s"]), hardware.get("gpu") or hardware["processor"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # older or damaged: `stored_records` reports it
    return max(found)[1:] if found else None


def _read(file: Path) -> pd.DataFrame:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        if not records_beside(file).exists():  # of a version that saved none
            return pd.DataFrame()
        hardware = content["hardware"]
        names = (hardware.get("gpu") or hardware["processor"], hardware["device"], f"torch {hardware['torch']}")
        texts = {"line": str, "sample": str}
        frame = pd.read_csv(records_beside(file), dtype=texts).rename(columns={"sample": "prompt"})
        protocol, parts = content.get("protocol", {}), frame.get("part", pd.Series("", frame.index))
        for name in sorted({name for of_part in protocol.values() for name in of_part}):
            frame[OF_RECORDS + name] = parts.map({part: said.get(name) for part, said in protocol.items()})
        unsaid = {"prompt_set": content["benchmark"], "kind": ""}
        return frame.assign(
            **{name: value for name, value in unsaid.items() if name not in frame}, pair=content["pair"],
            machine=", ".join(names), started=content["created"], prompt=frame["prompt"], line=frame["line"],
            weights=content.get("weights"),
        )  # fmt: skip
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError) as error:
        said = f"{type(error).__name__}: {error}"
        raise ExperimentError(f"{file} is damaged ({said}): delete it and run its benchmark with --save.") from None
