"""The table of all verifiers on one tree, as a small component; choosing a row chooses the verifier looked at."""

from typing import TYPE_CHECKING

import streamlit as st

from pages.ui.verify.state import Looked, own_walk, text_reader
from viz.components import component_script, component_style
from viz.formats import plural
from viz.tokens import visible

if TYPE_CHECKING:
    from decoding.replay.replay import Replayed

TABLE_HEIGHT = 330
OWN = "own"
"""The row of what was done when the tree was verified first; the others are named by their verifier."""
_component = st.components.v2.component(
    "draftscope_verifiers", js=component_script("verify/table.js"), css=component_style("verify/table.css")
)


def walks(looked: Looked, told: tuple["Replayed", ...]) -> dict[str, "Replayed"]:
    """The rows by name: what the tree's own verifier did then, and every verifier with the seed."""
    own = own_walk(looked)
    return ({} if own is None else {OWN: own}) | {replayed.verifier.name: replayed for replayed in told}


def chosen_row(looked: Looked, rows: dict[str, "Replayed"]) -> str:
    """The row chosen in the table; where its verifier refuses, what was done then, or the first that fits."""
    fitting = [name for name, replayed in rows.items() if replayed.refusal is None]
    wanted = (st.session_state.get("verify_verifier"), OWN, looked.verifier)
    return next((name for name in wanted if name in fitting), fitting[0])


def verifier_table(looked: Looked, rows: dict[str, "Replayed"], rolled: dict | None, chosen: str, seeds: int) -> None:
    """Draw the table; what is chosen stands in the session before the page is drawn again."""

    def choose() -> None:
        state = st.session_state.get("verify_table")
        st.session_state["verify_verifier"] = state["selected"]

    data = table_data(looked, rows, rolled, chosen, seeds)
    _component(key="verify_table", data=data, height=TABLE_HEIGHT, on_selected_change=choose)


def table_data(looked: Looked, rows: dict[str, "Replayed"], rolled: dict | None, chosen: str, seeds: int) -> dict:
    """What the component draws: plain texts and numbers."""
    from decoding.analysis.luck import token_law

    fitting = {name: replayed for name, replayed in rows.items() if replayed.refusal is None}
    laws = {name: token_law(looked.iteration, each.acceptance_probability) for name, each in fitting.items()}
    most = max(replayed.expected_tokens for replayed in fitting.values())
    best = max((each.expected_tokens for name, each in fitting.items() if name != OWN), default=most)
    longest = looked.iteration.tree_depth + 1
    made = [_row(looked, name, replayed, laws.get(name), rolled, seeds, best) for name, replayed in rows.items()]
    return {
        "heads": heads(longest, seeds),
        "rows": made,
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
            "title": "What one walk commits",
            "said": "first recorded, then by seed",
            "about": "Accepted tokens, then the final one, and the last accepted node. The first row is what happened "
            "when the tree was verified; the others draw anew from the seed above, whose numbers are others than those "
            "of the run: there the tree had drawn from them before",
        },
        {
            "title": f"Tokens, 1 to {longest}",
            "key": [f"{seeds:,} seeds", "exact"],
            "about": f"Share of the seeds 0 to {seeds - 1} that commit so many tokens (replayed), and the exact "
            "probability of it",
        },
    ]


def _row(
    looked: Looked, key: str, replayed: "Replayed", law: dict | None, rolled: dict | None, seeds: int, best: float
) -> dict:
    verifier, own = replayed.verifier, key == OWN
    row = {
        "name": key,
        "label": verifier.label,
        "about": f"{verifier.summary} {verifier.paper}.",
        "own": own_words(looked) if own else "",
        "refusal": replayed.refusal,
    }
    if replayed.refusal is not None:
        return row
    outcome, longest = replayed.outcome, looked.iteration.tree_depth + 1
    # The spread is drawn under the sampling on screen, the recorded walk under its own.
    counts = None if rolled is None or own else rolled[verifier.name]
    final = visible(text_reader(looked)(outcome.final_token), 14) if outcome.final_kind != "none" else ""
    stop = f"node {outcome.stop_node}" if outcome.stop_node else "the root"
    then = f"then {final} ({outcome.final_kind})" if final else "where the text ended"
    return row | {
        "tokens": outcome.tokens,
        "expected": replayed.expected_tokens,
        "best": not own and replayed.expected_tokens > best - 5e-3,
        "path": [visible(looked.iteration.nodes[node].text, 14) for node in outcome.accepted],
        "final": final,
        "kind": outcome.final_kind,
        "stop": stop.removeprefix("the "),
        "walk": f"{plural(len(outcome.accepted), 'node')} accepted down to {stop}, {then}",
        "exact": [law.get(tokens, 0.0) for tokens in range(1, longest + 1)],
        "rolled": counts and [counts.get(tokens, 0) / seeds for tokens in range(1, longest + 1)],
    }


def own_words(looked: Looked) -> str:
    """What the row of the recorded walk is."""
    return "what it did here" if looked.drafted_here else "what the run did"
