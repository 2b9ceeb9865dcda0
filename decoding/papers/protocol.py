"""How something was measured, in a paper or here, and where the two differ, each difference with a word on it."""

import re
from dataclasses import dataclass, fields
from hashlib import sha256
from typing import NamedTuple

import pandas as pd

EMBEDDED = "Embedded pair"
SMALL = "a small pair that runs on any machine: its orders and proportions are compared, not its heights"
OWN_SETS = {"samples", "long"}  # written for this project
# Data sets that `--prompts` takes where a network is there: `experiments.plan.DATA_SETS`, which needs torch
BY_NAME = ("wikitext-2", "pg-19", "gsm8k", "humaneval", "mt-bench", "cnn-dailymail", "c4", "openwebtext")
DIFFERS = {
    "pair": "another pair than the paper's",
    "hardware": "times are compared as ratios on one machine",
    "prompts": "other texts than the paper's, or others of the same set",
    "prompt_tokens": "where lengths differ, prefill has another share of the time, and the draft another context",
    "new_tokens": "other lengths, or not all of the paper's",
    "sampling": "other samplings than the paper's",
    "repeats": "our intervals are over prompts",
}


@dataclass(frozen=True)
class Protocol:
    """How something was measured; what a paper leaves open is empty.

    Attributes:
        pair, hardware: what ran, and on what. prompts: which texts. prompt_tokens, new_tokens: lengths.
        sampling: temperatures. repeats: what figures are means over. note: what else must be known.
    """

    pair: str = ""
    hardware: str = ""
    prompts: str = ""
    prompt_tokens: str = ""
    new_tokens: str = ""
    sampling: str = ""
    repeats: str = ""
    note: str = ""

    def __str__(self) -> str:
        parts = [
            " on ".join(filter(None, (self.pair, self.hardware))),
            self.prompts,
            self.prompt_tokens and f"prompts of {self.prompt_tokens} tokens",
            self.new_tokens and f"{self.new_tokens} new tokens",
            self.sampling,
            self.repeats,
        ]
        return "; ".join(filter(None, [", ".join(filter(None, parts)), self.note]))


class Aspect(NamedTuple):
    """One line of two protocols: what the paper did, what we did, and a word where the two differ."""

    name: str
    paper: str
    here: str
    said: str


def compared(paper: Protocol, here: Protocol) -> list[Aspect]:
    """Both protocols side by side."""
    found = []
    for name in (each.name for each in fields(Protocol) if each.name != "note"):
        theirs, ours = getattr(paper, name), getattr(here, name)
        if theirs or ours:
            said = "" if theirs == ours else _said(name, paper, here)
            found.append(Aspect(name.replace("_", " "), theirs or "–", ours or "–", said))
    return found


def _said(name: str, paper: Protocol, here: Protocol) -> str:
    """A word on an aspect in which two protocols differ, true of both."""
    if not getattr(paper, name):
        return "not given by the paper"
    if not getattr(here, name):
        return "not in our records"
    embedded, sets = here.pair.startswith(EMBEDDED), here.prompts.partition(" of ")[2].partition(" (")[0]
    if name == "pair" and embedded:
        return SMALL
    named = [each for each in BY_NAME if _letters(each) in _letters(paper.prompts)]
    if name == "prompts" and named and OWN_SETS & set(sets.split(", ")):
        return f"texts of the paper, where a network is there: --prompts {' or '.join(named)}"
    return DIFFERS[name]


def _letters(text: str) -> str:
    return re.sub(r"\W", "", text).lower()


def protocol_here(rows: pd.DataFrame) -> Protocol:
    """How results were measured; of records that are no runs only where.

    Args:
        rows: results, at least one.
    """
    where = Protocol(pair=_listed(rows["pair"]), hardware=_listed(rows["machine"]))
    if "asked_tokens" not in rows:
        return where
    sets, kinds = _listed(rows["prompt_set"]), _listed(rows["kind"])
    count = len(rows[["prompt_set", "kind", "prompt"]].drop_duplicates())
    samplings = (
        rows[["temperature", "top_p", "draft_temperature"]].drop_duplicates().sort_values(["temperature", "top_p"])
    )
    words = [
        ("greedy" if temperature == 0 else f"T = {temperature:g}")
        + (f", top-p {top_p:g}" if temperature and top_p < 1 else "")
        + (f", draft T = {draft:g}" if draft != 1 else "")
        for temperature, top_p, draft in samplings.itertuples(index=False)
    ]
    cuts, (low, high) = rows["cut"], (rows["prompt_tokens"].min(), rows["prompt_tokens"].max())
    cut = f", cut to {_listed(cuts[cuts > 0])}" if (rows["prompt_tokens"] == cuts).any() else ""
    repeats = rows["repeat"].nunique()
    each = f"{repeats} runs of each" if repeats > 1 else "one run of each"
    hashes = sorted(rows["text_hash"].dropna().unique()) if "text_hash" in rows else []
    texts = f", hash {sha256(' '.join(hashes).encode()).hexdigest()[:8]}" if len(hashes) == count else ""
    return Protocol(
        where.pair, where.hardware,
        f"{count} of {sets} ({kinds}{texts})",
        (f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}") + cut,
        _listed(rows["asked_tokens"]), "; ".join(words), each,
    )  # fmt: skip


def _listed(values: pd.Series) -> str:
    """The distinct values in order; numbers with commas."""
    return ", ".join(value if isinstance(value, str) else f"{value:,.0f}" for value in sorted(values.unique()))
