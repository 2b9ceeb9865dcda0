"""Results that may be compared: of one pair on one machine, and of one text for every prompt."""

from typing import NamedTuple

import pandas as pd

from decoding.experiments.estimates import PROMPT

WIDE = ", target 4× as wide"  # behind the name of a pair: of its passes the target's take most of the time


class Source(NamedTuple):
    """Results that may be compared; `elsewhere` names others of the same grid that may not be mixed with them."""

    rows: pd.DataFrame
    elsewhere: tuple[str, ...] = ()


def family_of(rows: pd.DataFrame) -> pd.Series:
    """Pair and machine of every result, where a pair and its widened one are one."""
    return rows["pair"].str.removesuffix(WIDE) + " on " + rows["machine"]


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
