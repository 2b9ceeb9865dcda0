"""Which results are compared: those of one pair, machine and text, and in them the rows of a paper's entry.

A paper result reads runs, or passes and phases of those runs as rows of their own: see `VIEWS`. Each row has the name
of an entry in `line`, the prompt, where it was measured, and figures.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from decoding.common.cost_model import CostModel
from decoding.experiments.estimates import PREFIX, PROMPT
from decoding.models.embedded import EMBEDDED_NAME, embedded_weights
from decoding.papers.paper_result import Entry, PaperResult
from decoding.trace.records import PHASES

WIDE = ", target 4× as wide"  # after the name of a pair: of its passes the target's take most of the time


class Source(NamedTuple):
    """Results that may be compared; `elsewhere` names others of the same grid that may not be mixed with them."""

    rows: pd.DataFrame
    elsewhere: tuple[str, ...] = ()


def pair_names(rows: pd.DataFrame, pairs: pd.Series | None = None) -> pd.Series:
    """The pair of every result, or `pairs`; the embedded pair is another one with other weights than it comes with."""
    pairs = rows["pair"] if pairs is None else pairs
    if "weights" not in rows:
        return pairs
    earlier = pairs.str.startswith(EMBEDDED_NAME) & rows["weights"].ne(embedded_weights())
    return pairs.where(~earlier, pairs + ", earlier weights")


def family_of(rows: pd.DataFrame) -> pd.Series:
    """Pair and machine of every result, where a pair and its widened one are one."""
    return pair_names(rows, rows["pair"].str.removesuffix(WIDE)) + " on " + rows["machine"]


def separated(rows: pd.DataFrame) -> list[Source]:
    """Results by pair, machine and set of prompts, those with the newest row first; one without rows if there are none.

    Of a prompt whose text was replaced, the newest text counts, by its hash; rows of a version that stored none are of
    a text of their own.
    """
    if not len(rows):
        return [Source(rows)]
    families = family_of(rows)
    newest = rows.groupby([families, rows["prompt_set"]])["started"].max().sort_values(ascending=False).index.tolist()
    found = []
    for family, texts in newest:
        kept, older = _newest_texts(rows[(families == family) & (rows["prompt_set"] == texts)])
        others = sorted({each for each, _ in newest if each != family})
        sets = [f"texts of {other}" for each, other in newest if each == family and other != texts]
        found.append(Source(kept, (*others, *sets, *([f"other texts of {', '.join(older)}"] if older else []))))
    return found


def _newest_texts(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The rows of the newest text of every prompt, and the names of prompts that have rows of other texts."""
    if "text_hash" not in rows:
        return rows, []
    rows = rows.reset_index(drop=True)
    hashes, prompts = rows["text_hash"].fillna(""), rows.groupby(PROMPT, dropna=False).ngroup()
    newest = hashes[rows["started"].sort_values(kind="stable").index].groupby(prompts).transform("last")
    same = hashes.eq(newest)
    others = rows.loc[~same, ["kind", "prompt"]].drop_duplicates()
    return rows[same], [f"{kind} {prompt}" for kind, prompt in others.itertuples(index=False)]


def rows_of(way: Entry, rows: pd.DataFrame, paper_result: PaperResult) -> np.ndarray:
    """Numbers of the rows of the same contestant; at a temperature, a lossless verifier may have replaced greedy.

    `rows` are counted ones with the columns `unfitted`, the line without such a verifier, and `sample`.
    """
    found = _alike(way, rows, paper_result)
    if not (way.best and len(found)):
        return found
    column, groups = paper_result.figures[0].column, _conditions(paper_result)
    narrow = rows[list({*groups, *way.best, "sample", column})].iloc[found]
    values, samples = narrow[column].to_numpy(float), narrow["sample"].to_numpy()
    ways, place = (
        narrow.groupby(list(by), dropna=dropna).ngroup().to_numpy()
        for by, dropna in ((way.best, True), (groups, False))
    )
    best = np.zeros(len(found), bool)
    for each in np.unique(place):
        there = place == each
        best[there] = _best(values[there], ways[there], samples[there])
    return found[best]


def best_settings(way: Entry, rows: pd.DataFrame, paper_result: PaperResult) -> dict[object, str]:
    """By value of the axis, in words, which settings of an entry have the highest mean over all prompts.

    `rows` are as `rows_of` takes them. Where samplings differ in the best, those of most of them are named, with how
    many that are.
    """
    column, groups, found = paper_result.figures[0].column, _conditions(paper_result), _alike(way, rows, paper_result)
    if not len(found):  # the columns of its settings may be missing
        return {}
    means = rows.iloc[found].groupby([*groups, *way.best], dropna=False)[column].mean().dropna()
    if means.empty:
        return {}
    best = means[means.groupby(level=groups, dropna=False).idxmax()].reset_index()
    best["words"] = [settings_words(way.best, each) for each in best[list(way.best)].itertuples(index=False)]
    words: dict[object, str] = {}
    for value, those in best.groupby(paper_result.by) if paper_result.by else [(None, best)]:
        counts = those["words"].value_counts()
        most = f" at {counts.iloc[0]} of {len(those)} samplings" if len(counts) > 1 else ""
        words[value] = counts.index[0] + most
    return words


SYMBOLS = {"max_depth": "D", "branching": "B", "prune_probability": "tau", "paths": "K", "length": "L"}


def settings_words(columns: Sequence[str], values: Iterable[float]) -> str:
    """Settings as the papers write them: `D = 8, B = 3, tau = 0.03`."""
    names = [SYMBOLS[column.removeprefix(PREFIX)] for column in columns]
    return ", ".join(f"{name} = {value:g}" for name, value in zip(names, values, strict=True))


def _conditions(paper_result: PaperResult) -> list[str]:
    """Columns of which every combination has a best of its own."""
    return ["temperature", "top_p", *([paper_result.by] if paper_result.by else [])]


def _alike(way: Entry, rows: pd.DataFrame, paper_result: PaperResult) -> np.ndarray:
    """Numbers of the rows of an entry, of all its settings where the best counts."""
    alike = wanted(rows, paper_result.only)
    if not alike.any():
        return np.flatnonzero(alike)
    if not (way.best or way.where):
        return np.flatnonzero(alike & (rows["unfitted"] == way.line).to_numpy())
    name, _, verifier = way.line.partition(":verifier=")
    settings = {"settings.verifier": verifier} if verifier else {}
    return np.flatnonzero(alike & wanted(rows, {"method": name, **settings, **way.where}))


def wanted(rows: pd.DataFrame, values: Mapping[str, object], known: bool = False) -> np.ndarray:
    """Which rows have these values, `[num_rows]`; none where a column is missing, unless only `known` ones count."""
    alike = np.ones(len(rows), bool)
    for column, value in values.items():
        if column in rows or not known:
            alike &= (rows[column] == value).to_numpy(bool) if column in rows else False
    return alike


def _best(values: np.ndarray, way: np.ndarray, prompt: np.ndarray) -> np.ndarray:
    """Which rows count, `[num_rows]`: for every prompt, the settings with the highest mean on the other prompts.

    Chosen on the prompts it is then measured on, the best of many would look better than it is.

    Args:
        values, way, prompt: of each row the figure, and the numbers of its settings and of its prompt.
    """
    known = ~np.isnan(values)
    if not known.any():
        return known
    sums, counts = np.zeros((prompt.max() + 1, way.max() + 1)), np.zeros((prompt.max() + 1, way.max() + 1))
    np.add.at(sums, (prompt[known], way[known]), values[known])
    np.add.at(counts, (prompt[known], way[known]), 1)
    if (counts.sum(1) > 0).sum() > 1:
        sums, counts = sums.sum(0) - sums, counts.sum(0) - counts
    means = np.divide(sums, counts, out=np.full_like(sums, -np.inf), where=counts > 0)
    return known & (means.argmax(1)[prompt] == way)


STEP = 16  # tokens of text that are one place on the axis of `passes`
OWN = ("line", "label", "prompt_set", "kind", "prompt", "pair", "machine", "started", "temperature", "top_p",
       "new_tokens")  # fmt: skip
# Names that `phases` puts in `line` for the parts of an iteration, with the columns that each sums.
PARTS: dict[str, tuple[str, ...]] = {
    "target": ("verify_s", "rebuild_s"),
    "draft": ("draft_passes_s",),
    "construction": ("construction_s", "prune_s"),
    "mask": ("mask_s",),
    "verification": ("select_s",),
    "cache": ("commit_s", "adapt_s"),
}


def runs(rows: pd.DataFrame) -> pd.DataFrame:
    """The results with columns that only paper results need: `sampling` as text, `drafted_per_pass`, `filled`.

    A prompt that is not `filled` is shorter than the requested length and must not count for it.
    """
    return with_sampling(rows).assign(
        drafted_per_pass=rows["drafted"] / rows["iterations"],
        filled=rows["prompt_tokens"] == rows["cut"],
    )


def with_sampling(rows: pd.DataFrame) -> pd.DataFrame:
    """The results with a column `sampling` that has temperature and top-p as text."""
    each = zip(rows["temperature"], rows["top_p"], strict=True)
    return rows.assign(sampling=[f"T = {t:g}" if top_p == 1 else f"top-p = {top_p:g}" for t, top_p in each])


def passes(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over the passes of each run that begin within the same `STEP` tokens of its text.

    `position` is where those tokens begin, `tree_nodes` and `accepted_nodes` are per pass. By position in the text, not
    by pass number: only texts that are hard to predict have many passes.
    """
    parts = []
    for _, row in rows.iterrows():
        drafted, accepted, reached = (row[name] for name in ("drafted_nodes", "accepted_lengths", "committed_tokens"))
        if drafted is None or accepted is None or not len(drafted):
            continue
        reached = np.asarray(reached)
        count = int((reached <= row["new_tokens"]).sum())
        starts = np.concatenate([[0], reached[:-1]])[:count] // STEP * STEP
        found = pd.DataFrame({"position": starts, "tree_nodes": drafted[:count], "accepted_nodes": accepted[:count]})
        parts.append(found.groupby("position", as_index=False).mean().assign(**{name: row[name] for name in OWN}))
    return pd.concat(parts, ignore_index=True) if parts else rows[:0].assign(position=[])


def phases(rows: pd.DataFrame) -> pd.DataFrame:
    """A row per part of an iteration, named in `line`, with its `time_share`: of the seconds of all parts.

    `part_ms`, nodes and forwards are per pass.
    Where draft passes were not timed one by one, neither they nor tree construction are reported.
    """
    if not len(rows):
        return rows.assign(time_share=[])
    rows = rows[rows["drafted"].notna()].copy()
    rows["label"] = rows["label"].str.partition(" · ")[0]  # without changed settings
    rows["construction_s"] = rows["draft_s"] - rows["draft_passes_s"]
    rows["drafted_per_pass"] = rows["drafted"] / rows["iterations"]
    total = rows[[f"{phase}_s" for phase in PHASES]].sum(axis=1)
    own, parts = rows[[*OWN, "drafted_per_pass", "forwards_per_pass"]], []
    for name, columns in PARTS.items():
        seconds = rows[list(columns)].sum(axis=1, skipna=False)
        parts.append(own.assign(line=name, time_share=seconds / total, part_ms=1000 * seconds / rows["iterations"]))
    return pd.concat(parts, ignore_index=True)


VIEWS: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {"runs": runs, "passes": passes, "phases": phases}


def modelled(rows: pd.DataFrame, own: CostModel, other: CostModel) -> pd.DataFrame:
    """Counted results as if every pass of the target took what one of its size takes with another target.

    `own` and `other` are measured costs of the pair of these rows, and of one whose target writes the same. All else is
    as it was measured, and prefill longer by the difference of both targets. A run's passes are taken to be of their
    mean size. Loops outside this library and other engines are left out: their passes were not measured.
    """

    def seconds(sizes: pd.Series) -> np.ndarray:
        return other.target.seconds(sizes.to_numpy())

    rows = rows[~rows["line"].str.partition(":")[0].str.contains("@|^hf_")].copy()
    plain = rows["drafted"].isna()  # its first pass reads the prompt: it is the prefill
    passes = rows["iterations"] - plain
    verify = seconds(1 + (rows["verified"] / rows["iterations"]).fillna(0.0)) * passes
    rebuild = seconds(rows["tokens_per_iteration"]) * (rows["target_passes"] - rows["iterations"]).clip(lower=0)
    prefill = seconds(rows["prompt_tokens"]) - own.target.seconds(rows["prompt_tokens"].to_numpy())
    more = verify + rebuild - rows["verify_s"] - rows["rebuild_s"]
    first = np.where(plain, 0.0, more / passes.clip(lower=1))
    after_first = rows["new_tokens"] - rows["tokens_per_iteration"]
    wall = rows["wall_s"] + more + prefill
    tpot = rows["tpot_s"] + (more - first) / after_first.where(after_first > 0)
    return rows.assign(
        wall_s=wall,
        ttft_s=rows["ttft_s"] + first + prefill,
        prefill_s=rows["prefill_s"] + prefill,
        tpot_s=tpot,
        throughput=rows["new_tokens"] / wall,
        decode_throughput=np.where(plain, 1 / tpot, rows["new_tokens"] / (wall - rows["prefill_s"] - prefill)),
        verify_s=verify,
        rebuild_s=rebuild,
    )
