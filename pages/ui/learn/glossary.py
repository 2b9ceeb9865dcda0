"""Every term of the glossary, and the figures of the proof of losslessness.

Terms are the words of the screen, and what each verifier and method says of itself.
"""

import json
from collections.abc import Sequence

import streamlit as st

from decoding.common.files import ROOT
from pages.ui import PAGES
from pages.ui.common.charts import STYLE
from pages.ui.common.errors import torch_there
from viz.glossary import GROUPS, verifier_title
from viz.scope.outline import Table, table_html

ENUMERATED = ROOT / "decoding/experiments/results/losslessness-cpu.json"


def registries() -> tuple[str, ...]:
    """Names of the groups that are read from the registries; none without torch, which these need."""
    return ("Verifiers", "Methods") if torch_there() else ()


def all_terms() -> dict[str, dict[str, str]]:
    """Terms with their sentences by group, those of the registries last."""
    if not registries():
        return GROUPS
    with st.spinner("Getting ready, a few seconds"):  # torch; only the first page of a server's life waits for it
        from decoding.methods.methods import METHODS
        from decoding.verifiers import VERIFIERS
    summaries = (
        {kind.label: kind.summary for kind in VERIFIERS.values()},
        {m.label: m.summary for m in METHODS.values()},
    )
    return GROUPS | dict(zip(registries(), summaries, strict=True))


def draw_proof() -> None:
    """The stored figures of the enumeration, where to try it, and the command that repeats it."""
    stored = json.loads(ENUMERATED.read_text(encoding="utf-8"))
    st.markdown(proof_words(stored["pairs"]))
    with st.container(horizontal=True, gap="medium"):
        st.page_link(PAGES["Verifiers"], label="Try it at a node of a real tree", icon=":material/fact_check:")
        st.page_link(PAGES["Compare"], label="See whether greedy output is identical", icon=":material/balance:")
    with st.expander("Every pair"):
        st.html(STYLE)
        st.html(table_html(pairs_table(stored["pairs"])))
    st.caption(f"Enumerated on {stored['created'][:10]} by `{stored['command']}`, which prints this table.")


def proof_words(pairs: Sequence[dict]) -> str:
    """How many pairs were enumerated, and the largest bias of those that are offered and of those that are not."""
    offered, others = ([pair["bias"] for pair in pairs if pair["allowed"] is allowed] for allowed in (True, False))
    exact = sum(bias <= 1e-9 for bias in others)
    unproven = (
        f" {exact} of them show no bias here but are not offered either: no proof says that their verifiers stay "
        "lossless on such trees of other models."
        if exact
        else ""
    )
    return (
        f"**{len(offered)} pairs of drafter and verifier are offered for sampling: the largest bias of any text's "
        f"probability is {max(offered):.1g}.** {len(others)} pairs are not: the largest bias among them is "
        f"{max(others):.2g}.{unproven}"
    )


def pairs_table(pairs: Sequence[dict]) -> Table:
    """The largest bias of every pair, a row per drafter; in brackets where the pair is not offered for sampling."""
    labels = {}  # none without torch, which the methods need
    if torch_there():
        from decoding.methods.methods import METHODS

        labels = {name: method.label for name, method in METHODS.items()}
    verifiers = list(dict.fromkeys(pair["verifier"] for pair in pairs))
    shown = {
        (p["drafter"], p["verifier"]): _bias(p["bias"]) if p["allowed"] else f"[{_bias(p['bias'])}]" for p in pairs
    }
    rows = []
    for drafter in dict.fromkeys(pair["drafter"] for pair in pairs):
        method, *how = drafter.split(", ")  # what follows a comma says how it draws
        label = ", ".join([labels.get(method, method.replace("_", " ")), *how])
        rows.append((label, *(shown[drafter, verifier] for verifier in verifiers)))
    return Table(
        "Largest bias at a temperature above 0; in brackets: not offered there",
        ("drafter", *map(verifier_title, verifiers)),
        tuple(rows),
        "Greedy takes the target's most likely token, so it is offered at temperature 0 alone, on every tree.",
    )


def _bias(value: float) -> str:
    """A bias as the sentence above has it: two digits, as a power of ten only where it is rounding."""
    return f"{value:.2g}" if value > 1e-3 else f"{value:.0e}"
