"""Experiments: what lies in the folder of one beside what every job has, where they are kept, and their runs again.

grid.json    what was asked for last
rows/        see `rows.py`

Nothing here needs torch but a run that is decoded again:

    session, prompt = begin_again(pair, row, limits)     # DecodeSession, Prompt
    kept_output(folder, row["key"])                      # the tokens of the first time
"""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from decoding.common.errors import ExperimentError
from decoding.common.files import user_folder, write_whole
from decoding.experiments.rows import FOLDER, GRID, PARTS, SCHEMA, SERIES, RowStore, read_part, with_settings
from decoding.jobs.job import LAUNCH, Job, JobWatcher, jobs_below

if TYPE_CHECKING:
    from decoding.common.prompts import Prompt
    from decoding.experiments.grid import Grid
    from decoding.models.pair import Pair
    from decoding.session.session import DecodeSession, Limits

HERE = Path(__file__).parent
GRIDS, RESULTS = HERE / "grids", HERE / "results"
SHIPPED = RESULTS / "experiments"
FOR_EVERYONE = "fixed_tree_sweep"  # depth, children and pruning of one method, greedy: a plain grid
MODULE = f"{__package__}.sweep"  # what runs one


def experiments_home() -> Path:
    """Where experiments go that name no other place: `DRAFTSCOPE_EXPERIMENTS`, else the user's cache folder."""
    return Path(os.environ.get("DRAFTSCOPE_EXPERIMENTS") or user_folder("experiments"))


def records_beside(file: Path) -> Path:
    """Where the records lie that belong to the `.json` of a benchmark."""
    return file.with_suffix(".csv.gz")


class Experiment(Job):
    """The folder of one experiment, made when something is to be kept in it."""

    NOUN, UNIT = "sweep", "runs"
    MARKS = (LAUNCH, GRID, FOLDER)
    ENDED = "Killed: resume runs what is missing."

    @cached_property
    def store(self) -> RowStore:
        """Its rows."""
        return RowStore(self.path)

    @property
    def shipped(self) -> bool:
        """Whether it came with the program."""
        return self.path.parent == SHIPPED

    def begin(self, grid: "Grid") -> None:
        """Make the folder ready for a grid; `JobError` if another process runs it, `DiskError` if it is full."""
        self.claim()
        write_whole(self.path / GRID, json.dumps(asdict(grid), indent=1).encode())

    def resume_command(self) -> tuple[str, ...] | None:
        """Words that run what its grid still lacks, or begin what never began."""
        if (self.path / GRID).exists():
            return ("-m", MODULE, "--out", str(self.path), "--resume")
        return super().resume_command()

    def delete(self) -> None:
        """Delete an experiment of the user's own with all its rows; see `Job`."""
        if self.shipped:
            raise ExperimentError(f"{self.path.name} is included with Draftscope and cannot be deleted.")
        super().delete()


def launch(grid: str | Path, *more: str, folder: Path | None = None) -> Experiment:
    """Run a grid, by its name in `decoding/experiments/grids` or its file, in a process of its own.

    `more` are arguments of the command, such as `"--count", "2"`; the folder is by default one of the grid's name below
    `experiments_home()`. Raises `JobError` where it is at work or no process can be started, `DiskError` without a
    folder.
    """
    file = Path(grid) if str(grid).endswith(".toml") else GRIDS / f"{grid}.toml"
    experiment = Experiment(folder or experiments_home() / file.stem)
    experiment.start(("-m", MODULE, str(file), "--out", str(experiment.path), *more))
    return experiment


def experiments() -> list[Experiment]:
    """All experiments: the user's own, the one begun last first, then those that came with the program.

    Of these the one that needs no paper to be understood is first, the rest by name.
    """
    shipped = sorted(jobs_below(SHIPPED, Experiment), key=lambda each: (each.path.name != FOR_EVERYONE, each.path.name))
    return [*jobs_below(experiments_home(), Experiment), *shipped]


def all_experiments() -> list[Path]:
    """Folders of all experiments with rows, the user's own first: of the same run theirs counts."""
    return [file.parent for home in (experiments_home(), SHIPPED) for file in sorted(home.glob(f"*/{FOLDER}"))]


def seconds_per_token(rows: pd.DataFrame) -> float | None:
    """What a token has cost so far in runs that are kept, a mean over them; None without any."""
    kept = rows[rows["failure"].isna() & (rows["new_tokens"] > 0)] if len(rows) else rows
    return float(kept["wall_s"].sum() / kept["new_tokens"].sum()) if len(kept) else None


# What charts and tables are made of: per-iteration lists and output tokens would fill the memory.
COLUMNS = [name for name in SCHEMA.names if name not in (*SERIES, "output_ids")]
ASKED = {"name", "methods", "prompts", "samplings", "new_tokens", "reference", "repeats"}


class ExperimentWatcher(JobWatcher):
    """An experiment as one reader sees it; of its rows only what has come is read.

    Attributes:
        asked: the grid that it ran last as plain data; empty before its process has planned it.
        troubles: sentences on files of rows that cannot be read; the rows of all others count.
    """

    job: Experiment

    def __init__(self, job: Experiment):
        super().__init__(job, job.shipped)
        self.asked: dict[str, Any] = {}
        self.troubles: tuple[str, ...] = ()
        self._tables: dict[tuple[Path, int], pa.Table | str] = {}
        self._frame: pd.DataFrame | None = None

    @property
    def key(self) -> str:
        """What an address calls it."""
        return f"results/{self.folder.name}" if self.shipped else self.folder.name

    @property
    def name(self) -> str:
        """What lists call it: the name of its grid."""
        return str(self.asked.get("name") or self.folder.name.replace("_", " "))

    @property
    def resumable(self) -> bool:
        """Whether a process could run what its grid lacks."""
        begun = bool(self.asked) or self.launched is not None
        return begun and not self.shipped and not self.stand.running and self.stand.state != "finished"

    def look(self) -> bool:
        """See where it stands, and for what."""
        try:
            content = json.loads((self.folder / GRID).read_text(encoding="utf-8"))
        except (OSError, ValueError):  # none yet, or damaged: resuming it says so
            content = {}
        known = isinstance(content, dict) and content.keys() >= ASKED  # else another version wrote it
        self.asked = content if known else {}
        return super().look()

    def rows(self) -> pd.DataFrame:
        """All rows so far, each run once; the same object for as long as none has come."""
        there = set()
        for file in (self.folder / FOLDER).glob(PARTS):
            with suppress(OSError):  # another process has just put it into a larger one
                there.add((file, file.stat().st_mtime_ns))
        if self._frame is not None and there == set(self._tables):
            return self._frame
        tables = {key: self._tables.get(key) or _read(key[0]) for key in sorted(there)}
        self._tables = {key: table for key, table in tables.items() if table is not None}
        self.troubles = tuple(said for said in self._tables.values() if isinstance(said, str))
        whole = [table for table in self._tables.values() if not isinstance(table, str)]
        if whole:
            self._frame = with_settings(pa.concat_tables(whole).to_pandas().drop_duplicates("key"))
        else:
            self._frame = pa.schema([SCHEMA.field(name) for name in COLUMNS]).empty_table().to_pandas()
        return self._frame


def _read(file: Path) -> pa.Table | str | None:
    """A file of rows; a sentence where it cannot be read; None where another process has just put it into a larger."""
    try:
        return read_part(file, COLUMNS)
    except ExperimentError as error:
        return str(error) if file.exists() else None


def prompt_of(row: Mapping[str, Any]) -> "Prompt":
    """The prompt of a kept run, whole.

    Raises `ExperimentError` or `PromptError` where its set cannot be had here, or no longer holds it.
    """
    from decoding.experiments.grid import PromptSet
    from decoding.experiments.plan import DATA_SETS, prompts_of

    chosen = str(row["prompt_set"])
    count = int(row["prompt"]) + 1 if chosen in DATA_SETS else None
    for prompt in prompts_of(PromptSet(chosen, count)):
        if (prompt.kind, prompt.name) == (row["kind"], row["prompt"]):
            return prompt
    raise ExperimentError(
        f"The prompt {row['kind']}/{row['prompt']} is no longer in {chosen}: put it back to re-run this result."
    )


def begin_again(pair: "Pair", row: Mapping[str, Any], limits: "Limits") -> "tuple[DecodeSession, Prompt]":
    """A session that decodes what a row was measured on, and the prompt it stands on, whole.

    `row` has the identity columns of `rows.SCHEMA`. Raises `ExperimentError` where it was another pair's, an outside
    loop's, or its prompt is another text now; `DraftscopeError` where its prompt or something trained that it used
    cannot be had.
    """
    from decoding.compare.contestants import parse_contestant
    from decoding.sampling.sampling import Sampling
    from decoding.session.session import DecodeSession

    if pair.info.name != row["pair"]:
        raise ExperimentError(
            f"This run was decoded with {row['pair']}, and {pair.info.name} is loaded: load that pair first."
        )
    contestant = parse_contestant(row["line"])
    if contestant.method is None:
        raise ExperimentError(f"{row['label']} is an external baseline without trees: nothing can be stepped through.")
    prompt = prompt_of(row)
    ids = pair.vocabulary.encode_prompt(prompt.text)[: int(row["cut"]) or None]
    if len(ids) != row["prompt_tokens"]:
        raise ExperimentError(
            f"The prompt {prompt.title} has {len(ids)} tokens now and had {row['prompt_tokens']} in the "
            "sweep: its text or its chat template has changed."
        )
    sampling = Sampling(row["temperature"], row["top_p"], row["draft_temperature"], int(row["seed"]))
    running = pair.with_engine(contestant.engine) if contestant.engine else pair
    return DecodeSession(running, contestant.method, list(ids), sampling, limits), prompt


def kept_output(folder: Path, key: str) -> tuple[int, ...]:
    """The tokens that a run wrote when it was measured, empty where they are not kept; raises as `read_part`."""
    for file in sorted((folder / FOLDER).glob(PARTS)):
        table = read_part(file, ["key", "output_ids"])
        for place, known in enumerate(table.column("key").to_pylist()):
            if known == key:
                return tuple(table.column("output_ids")[place].as_py() or ())
    return ()


def same_text(first: Sequence[int], again: Sequence[int]) -> str:
    """Whether a run wrote the same again, in a few words."""
    shared = next((n for n, (one, other) in enumerate(zip(first, again, strict=False)) if one != other), None)
    if not first:
        return "the tokens of the sweep were not saved"
    if shared is not None:
        return f"differs from the sweep from token {shared + 1} on"
    if len(again) < len(first):
        return f"the same {len(again)} tokens as in the sweep so far"
    return f"the same {len(first)} tokens as in the sweep"
