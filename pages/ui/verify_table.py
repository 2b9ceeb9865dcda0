"""The table of all verifiers on one tree, as a small component; choosing a row chooses the verifier looked at."""

from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from pages.ui.verify_state import Looked, text_reader
from viz.tokens import plural, visible

if TYPE_CHECKING:
    from decoding.replay import Replayed

TABLE_HEIGHT = 330
_FOLDER = Path(__file__).resolve().parents[2] / "viz" / "verify"
_component = st.components.v2.component(
    "draftscope_verifiers",
    js=(_FOLDER / "table.js").read_text(encoding="utf-8"),
    css=(_FOLDER / "table.css").read_text(encoding="utf-8"),
)


def chosen_verifier(looked: Looked, told: tuple["Replayed", ...]) -> "Replayed":
    """The verifier chosen in the table; where it refuses, the one that the tree was verified with, or the first."""
    wanted = (st.session_state.get("verify_verifier"), looked.verifier)
    fitting = {replayed.verifier.name: replayed for replayed in told if replayed.refusal is None}
    return next((fitting[name] for name in wanted if name in fitting), next(iter(fitting.values())))


def verifier_table(looked: Looked, told: tuple["Replayed", ...], rolled: dict | None, chosen: str, seeds: int) -> None:
    """Draw the table; what is chosen stands in the session before the page is drawn again."""

    def choose() -> None:
        state = st.session_state.get("verify_table")
        st.session_state["verify_verifier"] = state["selected"]

    data = table_data(looked, told, rolled, chosen, seeds)
    _component(key="verify_table", data=data, height=TABLE_HEIGHT, on_selected_change=choose)


def table_data(looked: Looked, told: tuple["Replayed", ...], rolled: dict | None, chosen: str, seeds: int) -> dict:
    """What the component draws: plain texts and numbers."""
    from decoding.luck import token_law

    laws = {
        replayed.verifier.name: token_law(looked.iteration, replayed.acceptance_probability)
        for replayed in told
        if replayed.refusal is None
    }
    most = max(replayed.expected_tokens for replayed in told if replayed.refusal is None)
    longest = looked.iteration.tree_depth + 1
    rows = [_row(looked, replayed, laws.get(replayed.verifier.name), rolled, seeds, most) for replayed in told]
    return {
        "heads": heads(longest, seeds),
        "rows": rows,
        "most": most,
        "longest": longest,
        "selected": chosen,
    }


def heads(longest: int, seeds: int) -> list[dict]:
    """Title, what kind of number it is, and its meaning, per column; the last one has a key instead."""
    return [
        {"title": "Verifier", "said": "all on the same tree", "about": "Grey ones would bias the output of this tree"},
        {
            "title": "Expected tokens",
            "said": "exact, this tree",
            "about": "Tokens that one pass over this tree commits on average over all draws of the verifier, the final "
            "token included; an end of the text or of the requested length is not counted in",
        },
        {
            "title": "What this seed commits",
            "said": "replayed, and where it stops",
            "about": "One walk with the draws of the seed above: accepted tokens, then the final one, and the last "
            "accepted node",
        },
        {
            "title": f"Tokens, 1 to {longest}",
            "key": [f"{seeds:,} seeds", "exact"],
            "about": f"Share of the seeds 0 to {seeds - 1} that commit so many tokens (replayed), and the exact "
            "probability of it",
        },
    ]


def _row(looked: Looked, replayed: "Replayed", law: dict | None, rolled: dict | None, seeds: int, most: float) -> dict:
    verifier = replayed.verifier
    row = {
        "name": verifier.name,
        "label": verifier.label,
        "about": f"{verifier.summary} {verifier.paper}.",
        "own": verifier.name == looked.verifier,
        "refusal": replayed.refusal,
    }
    if replayed.refusal is not None:
        return row
    outcome, longest = replayed.outcome, looked.iteration.tree_depth + 1
    counts = None if rolled is None else rolled[verifier.name]
    final = visible(text_reader(looked)(outcome.final_token), 14)
    stop = f"node {outcome.stop_node}" if outcome.stop_node else "the root"
    return row | {
        "expected": replayed.expected_tokens,
        "best": replayed.expected_tokens > most - 5e-3,
        "path": [visible(looked.iteration.nodes[node].text, 14) for node in outcome.accepted],
        "final": final,
        "kind": outcome.final_kind,
        "stop": stop.removeprefix("the "),
        "walk": f"{plural(len(outcome.accepted), 'node')} accepted down to {stop}, then {final} ({outcome.final_kind})",
        "exact": [law.get(tokens, 0.0) for tokens in range(1, longest + 1)],
        "rolled": counts and [counts.get(tokens, 0) / seeds for tokens in range(1, longest + 1)],
    }
