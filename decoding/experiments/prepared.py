"""Rows as figures are made of: without loops and failures, with what follows from several columns."""

import pandas as pd

from decoding.experiments.columns import LOOP_FREE, MEASURED

OWN_BLOCK = ["pair", "machine", "block"]  # the same grid has the same blocks wherever it runs


def prepared(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows without loops and failures, with what is made of several columns: `speedup` and others."""
    if not len(rows):
        return rows.assign(speedup=[], forwards_per_pass=[], committed_over_drafted=[])
    kept = rows[rows["failure"].isna() & rows[f"{LOOP_FREE}throughput"].notna()].copy()
    for name in MEASURED:
        kept[name] = kept[LOOP_FREE + name]
    plain = kept[kept["reference"].astype(bool)].drop_duplicates(OWN_BLOCK).set_index(OWN_BLOCK)["throughput"]
    kept["speedup"] = kept["throughput"] / plain.reindex(pd.MultiIndex.from_frame(kept[OWN_BLOCK])).to_numpy()
    kept["forwards_per_pass"] = kept["draft_forwards"] / kept["iterations"]
    kept["committed_over_drafted"] = kept["new_tokens"] / kept["drafted"]  # the bonus token counts, as in DynaTree
    return kept
