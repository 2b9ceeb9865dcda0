"""The tree under the chosen verifier, and its selected node."""

import html
from typing import TYPE_CHECKING

import streamlit as st

from decoding.analysis.luck import token_distribution
from decoding.common.formats import listed, number, plural
from pages.ui.common.charts import chart, is_dark
from pages.ui.common.errors import escape_markdown
from pages.ui.common.state import kept, selected_node
from pages.ui.scope.component import lone_tree
from pages.ui.verify.state import Looked, own_walk, text_reader
from pages.ui.widgets.controls import proof_link
from viz.components import component_script, component_style
from viz.explain.known import sampling_words, target_head
from viz.scope.phases import FINAL_ID
from viz.tables import Cell, html_table
from viz.tokens import quote, visible
from viz.verify import ROW_PX, DistributionPanel, distributions_figure, kept_tree_data

if TYPE_CHECKING:
    from decoding.replay.replay import Refused, Replayed
    from decoding.replay.theory import DistributionStage, EntryStep, NodeSteps
    from decoding.sampling.sampling import Sampling
    from decoding.verifiers import Verifier


TREE_HEIGHT = 330


def draw_tree(looked: Looked, replayed: "Replayed", walker: str, recorded: bool) -> None:
    """The tree with every node's exact probability; a click selects the node whose tests are shown.

    `walker` names the draws; `recorded` means that the path is the recorded one.
    """
    from decoding.replay.replay import replayed_iteration

    iteration = looked.iteration if recorded else replayed_iteration(looked.iteration, replayed, text_reader(looked))
    final = iteration.final_text
    said = f"{walker}: {plural(len(iteration.accepted), 'node')} accepted, "
    said += "where the text ended" if final is None else f"then {visible(final, 14)} ({iteration.final_kind})"
    lone_tree(
        iteration,
        "verify_tree",
        TREE_HEIGHT,
        looked.scene,
        make=kept_tree_data,
        title=f"{replayed.verifier.label} · {said}",
        walker="the recorded path" if recorded else walker,
        selected=node_in_view(looked),
        on_select=lambda node: choose(looked, node),
    )


def choose(looked: Looked, node: int) -> None:
    """Select a node; a leaf is tested at its parent, where its tests are shown."""
    st.session_state["verify_node"] = looked.key, 0 if node == FINAL_ID else node


def node_in_view(looked: Looked) -> int:
    """The node selected last in this tree; initially that of Step through, else the root, or at the end of a trunk the
    node with most entries.

    A final token is seen at the node where the path ended: there its rivals were rejected.
    """
    key, node = st.session_state.get("verify_node", (None, 0))
    if key == looked.key:
        return node
    nodes, chosen = looked.iteration.nodes, None if looked.drafted_here else selected_node()
    kind = looked.iteration.final_kind
    ended = kind == "recovered" or (kind == "fallback" and not looked.drafted_here)
    if chosen == FINAL_ID or (chosen is None and ended):
        return looked.iteration.accepted[-1] if looked.iteration.accepted else 0
    if chosen is not None and 0 <= chosen < len(nodes):
        # A token that was not accepted is asked about for its own test, which is made at its parent.
        missed = nodes[chosen].verdict in ("rejected", "not_reached")
        return nodes[chosen].parent_id if missed else chosen
    drawn = looked.iteration.drawn or range(1, len(nodes))
    parents = [nodes[child].parent_id for child in drawn if nodes[child].flat_index is not None]
    return 0 if parents.count(0) > 1 else max(sorted(set(parents)), key=parents.count, default=0)


def tested_at(looked: Looked, node: int) -> int:
    """The node itself if it has verified children, else the nearest node above that has: a leaf is tested there."""
    nodes = looked.iteration.nodes
    parents = {each.parent_id for each in nodes if each.flat_index is not None}
    while node > 0 and node not in parents:
        node = nodes[node].parent_id
    return node


def fallback_words(looked: Looked, selected: int, shown: int) -> str:
    """Why another node than the selected one is shown; empty where it is that one."""
    if selected == shown:
        return ""
    nodes = looked.iteration.nodes
    where = "the root" if not shown else f"{quote(nodes[shown].text)} (node {shown})"
    said = f"{quote(nodes[selected].text)} (node {selected})"
    if nodes[selected].flat_index is None:
        return f"{said} was removed before verification, so no verifier tests it. Shown is {where} above it."
    bears = "has no verified children" if looked.iteration.children(selected) else "is a leaf"
    return f"{said} {bears}: nothing is chosen after it. Shown is its parent, {where}, where it was tested."


TABLE_HEIGHT = 330
FEWEST_FOLDED = 3
OWN = "own"
"""The table row of the original verification; the others are named by their verifier."""
_component = st.components.v2.component(
    "draftscope_verifiers", js=component_script("verify/table.js"), css=component_style("verify/table.css")
)


def walks(looked: Looked, results: tuple["Replayed | Refused", ...]) -> dict[str, "Replayed | Refused"]:
    """The table rows by name: the original verification, and every verifier with the seed."""
    own = own_walk(looked)
    return ({} if own is None else {OWN: own}) | {replayed.verifier.name: replayed for replayed in results}


def chosen_row(looked: Looked, rows: dict[str, "Replayed | Refused"]) -> str:
    """The selected table row; if its verifier refuses, the original verification, or the first that fits."""
    fitting = [name for name, replayed in rows.items() if replayed.refusal is None]
    wanted = (st.session_state.get("verify_verifier"), OWN, looked.verifier)
    return next((name for name in wanted if name in fitting), fitting[0])


def verifier_table(
    looked: Looked, rows: dict[str, "Replayed | Refused"], rolled: dict | None, chosen: str, seeds: int
) -> None:
    """Draw the table; the selection is in the session before the page is redrawn."""

    def choose() -> None:
        st.session_state["verify_verifier"] = st.session_state.get("verify_table")["selected"]

    data = table_data(looked, rows, rolled, chosen, seeds)
    _component(key="verify_table", data=data, height=TABLE_HEIGHT, on_selected_change=choose)


def table_data(
    looked: Looked, rows: dict[str, "Replayed | Refused"], rolled: dict | None, chosen: str, seeds: int
) -> dict:
    """Data of the component: plain texts and numbers."""
    fitting = {name: replayed for name, replayed in rows.items() if replayed.refusal is None}
    distributions = {
        name: token_distribution(looked.iteration, each.acceptance_probability, looked.stops)
        for name, each in fitting.items()
    }
    most = max(replayed.expected_tokens for replayed in fitting.values())
    longest = looked.iteration.tree_depth + 1
    made = [
        _row(looked, name, replayed, distributions.get(name), rolled, seeds, most) for name, replayed in rows.items()
    ]
    return {
        "heads": heads(longest, seeds), "rows": made, "most": most, "longest": longest, "selected": chosen,
        "refused": refused_words(looked, len(made) - len(fitting)),
    }  # fmt: skip


def most_words(looked: Looked, rows: dict[str, "Replayed | Refused"]) -> str:
    """Which verifiers accept more in expectation on this tree than the one that verified it, in Markdown."""
    fitting = {name: each for name, each in rows.items() if name != OWN and each.refusal is None}
    order = sorted(fitting.values(), key=lambda each: -each.expected_tokens)
    own = fitting.get(looked.verifier)
    if not order or len(order) == 1:
        return ""

    def named(each: "Replayed") -> str:
        return f"{each.verifier.label} {number(each.expected_tokens)}"

    def rounded(each: "Replayed") -> float:  # what reads the same, here and in the table, is the same
        return float(number(each.expected_tokens))

    if own is None:
        return f"**Most expected tokens on this tree: {listed([named(each) for each in order[:2]])}.**"
    own_words = f"on this tree than {own.verifier.label}, which verified it"
    own_tokens = number(own.expected_tokens)
    more = [named(each) for each in order if rounded(each) > rounded(own)]
    if more:
        said = f"**More expected tokens {own_words} ({own_tokens}): {listed(more)}.**"
    else:
        said = f"**No other verifier has more expected tokens {own_words}: {own_tokens}**"
        alike = [each.verifier.label for each in order if each is not own and rounded(each) == rounded(own)]
        after = next((each for each in order if rounded(each) < rounded(own)), None)
        if alike:
            said += f"; as many: {listed(alike)}" if after else "; all others have as many"
        said += f"; next is {named(after)}." if after else "."
    if looked.iteration.draft_sampling not in ("deterministic", "none"):
        said += " It is one drawn tree: “Over the run” below averages."
    return said


def refused_words(looked: Looked, count: int) -> str:
    """Why verifiers do not fit the tree, once for all where several do not; empty where each says so itself."""
    from decoding.verifiers.base import SAMPLING_TEXT

    if count < FEWEST_FOLDED:
        return ""
    trees = SAMPLING_TEXT[looked.iteration.draft_sampling]
    return f"{count} verifiers do not fit {trees} at this temperature: they would bias the output"


def heads(longest: int, seeds: int) -> list[dict]:
    """Title, kind of number and meaning per column; the last one has a key instead of a kind."""
    return [
        {"title": "Verifier", "said": "all on the same tree", "about": "Grey ones would bias the output of this tree"},
        {
            "title": "Expected tokens",
            "said": "exact · bold: most",
            "about": "Mean number of tokens that one pass over this tree commits, over all draws of the verifier, the "
            "final token included; none counts after the end of the text, the length limit is ignored. A sampled tree "
            "is this one drawn tree, not a mean over trees",
        },
        {
            "title": "What one pass commits",
            "said": "row 1 as recorded, others drawn anew",
            "about": "Accepted tokens, then the final one, and the last accepted node. The first row is the original "
            "verification; the others draw from the seed above. The same seed gives other numbers than in the run, "
            "where sampling the tree had used some of them",
        },
        {
            "title": f"Tokens, 1 to {longest}",
            "key": [f"{seeds:,} seeds", "exact"],
            "about": f"Share of the seeds 0 to {seeds - 1} that commit this many tokens (replayed), and its exact "
            "probability",
        },
    ]


def _row(
    looked: Looked, key: str, replayed: "Replayed", probs: dict | None, rolled: dict | None, seeds: int, most: float
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
    # The spread uses the sampling on screen, the recorded path its own.
    counts = None if rolled is None or own else rolled[verifier.name]
    final = visible(text_reader(looked)(outcome.final_token), 14) if outcome.final_kind != "none" else ""
    stop = f"node {outcome.stop_node}" if outcome.stop_node else "the root"
    then = f"then {final} ({outcome.final_kind})" if final else "where the text ended"
    return row | {
        "tokens": outcome.tokens,
        "expected": replayed.expected_tokens,
        "best": number(replayed.expected_tokens) == number(most),
        "path": [visible(looked.iteration.nodes[node].text, 14) for node in outcome.accepted],
        "final": final,
        "kind": outcome.final_kind,
        "stop": stop.removeprefix("the "),
        "walk": f"{plural(len(outcome.accepted), 'node')} accepted down to {stop}, {then}",
        "exact": [probs.get(tokens, 0.0) for tokens in range(1, longest + 1)],
        "rolled": counts and [counts.get(tokens, 0) / seeds for tokens in range(1, longest + 1)],
    }


def own_words(looked: Looked) -> str:
    """Name of the table row with the recorded path."""
    return "as drafted on this page" if looked.drafted_here else "as in the run"


DISTRIBUTIONS_HEIGHT = 290
EVEN_OUT = "over all trees that the draft may draw here, the next token has exactly the target's distribution"
COLUMNS = ("", "entry", "draft", "target", "passes", "taken")
MEANINGS = (
    "Place in the order in which the entries were drawn",
    "A child drawn twice has two entries",
    "Probability of the token in the draft's distribution after this node",
    "Probability of the token in the target's distribution that the verifier tests against, after this node",
    "Exact probability that its test passes after all earlier tests failed; – where it is never tested",
    "Exact probability that the path continues through it, given that it reaches this node",
    "The number drawn against it and the outcome",
)


def draw_steps(looked: Looked, sampling: "Sampling", replayed: "Replayed", selected: int, walker: str) -> None:
    """Text and table on the left, distributions on the right; `walker` names the draws."""
    from decoding.replay.theory import SHOWN_TOKENS, node_steps

    node = tested_at(looked, selected)
    name = replayed.verifier.name
    key = ("steps", looked.key, sampling, name, node, walker)
    steps: NodeSteps | None = kept(
        key, lambda: node_steps(looked.iteration, sampling, replayed, node, text_reader(looked))
    )
    target = target_head("temperature 0" if sampling.greedy else sampling_words(sampling))
    left, right = st.columns([1, 1.9], gap="medium")
    with left:
        if steps is None:
            st.caption("Nothing was verified below the root, so there is nothing to test.")
            return
        if said := fallback_words(looked, selected, node):
            st.caption(escape_markdown(said))
        st.html(words_html(looked, replayed, steps) + table_html(steps, walker, target))
        proof_link()
    with right:
        panels = [panel_of(stage, steps, name) for stage in steps.stages]
        tested_against = {"spectr": "ρ × draft", "khisti": "distribution of the winner"}.get(name, "draft")
        figure = distributions_figure(steps.texts, panels, tested_against, is_dark(), target)
        chart(figure, key="verify_laws", height=DISTRIBUTIONS_HEIGHT + ROW_PX * max(len(steps.texts) - SHOWN_TOKENS, 0))


def words_html(looked: Looked, replayed: "Replayed", steps: "NodeSteps") -> str:
    """The place and what the verifier does there; the token is data and is escaped."""
    node = looked.iteration.nodes[steps.node]
    where = f"At {quote(node.text)}, {'the root' if not steps.node else f'node {steps.node}, depth {node.depth}'}"
    reached = f"on the path with probability {number(steps.reached, 3)} (exact)" if steps.node else "always on the path"
    entries = plural(len(steps.entries), "entry", "entries").replace(" ", "\u00a0")  # no word alone on a line
    said = f"{replayed.verifier.label} {how(replayed.verifier, len(steps.entries))}"
    if steps.factor is not None:
        said += f" The factor ρ is {steps.factor:.2f} at this node."
    if steps.hidden_stages:
        first = len(steps.stages)
        last = first + steps.hidden_stages - 1
        said += f" The figure leaves out {f'test {first}' if first == last else f'tests {first} to {last}'}."
    if steps.ends is not None and steps.node:
        said += f" If all of them fail, the path ends at this node with probability {number(steps.ends)}."
    if steps.rate is not None:  # only independent draws have a rate
        count = plural(len(steps.entries), "independent draw")
        least = "at least " if steps.rate_is_bound else ""
        said += (
            f" Before the draws are known, it accepts one of {count} with probability {least}{number(steps.rate, 3)}; "
            f"the best possible is {number(steps.best_rate, 3)}."
        )
    if steps.off_target is not None:
        said += " " + _proof_words(looked, steps.off_target)
    elif looked.iteration.draft_sampling not in ("deterministic", "none"):
        said += f" Lossless: {EVEN_OUT}; “taken” is for this one tree."
    return (
        f'<div class="vs-words"><b>{html.escape(where)}</b> <span class="quiet">· {reached} · {entries}</span><br>'
        f"{html.escape(said)}</div>"
    )


def _proof_words(looked: Looked, off_target: float) -> str:
    """How the token after a node, given this tree, compares with the target's distribution."""
    given = "Given this tree, the exact probabilities of the next token differ from the target's by at most "
    given += f"{off_target:.1g}"
    if looked.iteration.draft_sampling in ("deterministic", "none"):
        return f"{given}: lossless at this node."
    return (
        f"Lossless: {EVEN_OUT}. Given only this one of them, its exact probabilities differ from the target's by up to "
        f"{off_target:.1g}; the other trees even that out."
    )


def how(verifier: "Verifier", entries: int) -> str:
    """What a verifier does at a node."""
    from decoding.verifiers.specinfer import RANDOM_ORDER_ENTRIES

    if verifier.name == "specinfer" and entries > RANDOM_ORDER_ENTRIES:
        return f"tests more than {RANDOM_ORDER_ENTRIES} entries in draw order, which is equally lossless."
    return verifier.how or verifier.summary


def table_html(steps: "NodeSteps", walker: str, target: str) -> str:
    """The entries in draw order, and the numbers that `walker` drew against them.

    `target` names the target's distribution that they are tested against.
    """
    columns = zip((*(target if name == "target" else name for name in COLUMNS), walker), MEANINGS, strict=True)
    heads, rows = [Cell(name, about=meaning) for name, meaning in columns], []
    for place, entry in enumerate(steps.entries, start=1):
        passes = "–" if entry.passes is None else number(entry.passes)
        if entry.wins is not None:
            passes += f" if it wins ({number(entry.wins)})"
        numbers = number(entry.draft), number(entry.target), passes, number(entry.taken)
        rows.append((str(place), visible(entry.text, 14), *numbers, _seed_words(entry)))
    results = [entry.result for entry in steps.entries]
    return html_table(heads, rows, "vs-table", label="Tests in order", row_kinds=results)


def _seed_words(entry: "EntryStep") -> str:
    if not entry.result:
        return "–"
    if entry.result in ("picked", "below") or entry.drawn is None:
        words = {"passed": "✓ passed", "failed": "✗ failed", "picked": "✓ drawn", "below": "✓ a node below passed"}
        return words[entry.result]
    sign, mark = ("<", "✓") if entry.result == "passed" else ("≥", "✗")
    # As many digits as tell the two apart, and a small threshold from 0.
    written = [(f"{entry.drawn:.{digits}f}", number(entry.tested_at, digits)) for digits in (2, 3, 4)]
    drawn, at = next((each for each in written if each[0] != each[1] and "<" not in each[1]), written[-1])
    return f"{mark} {drawn} {sign} {at}"


def panel_of(stage: "DistributionStage", steps: "NodeSteps", name: str) -> DistributionPanel:
    """A stage with its title and pass probability."""
    rows = [steps.rows[place] for place in stage.tested]
    target = (*stage.target, stage.target_rest)
    draft = None if stage.draft is None else (*stage.draft, stage.draft_rest)
    if len(stage.tested) == 1:
        entry = steps.entries[stage.tested[0]]
        title, subtitle = f"{stage.rejected + 1}. {visible(entry.text, 10)}", f"passes {number(entry.passes)}"
    elif stage.tested:
        title = "The winner" if name == "khisti" else f"All {len(stage.tested)} tests"
        subtitle = "against its distribution" if name == "khisti" else "one after the other"
    elif draft is not None:
        title, subtitle = "Never tested", "distributions after this node"
    elif stage.rejected:
        title, subtitle = "Final token", f"after {plural(stage.rejected, 'rejection')}"
    else:
        title, subtitle = "Argmax" if name == "greedy" else "Sampled token", "of the target's distribution"
    return DistributionPanel(title, subtitle, target, draft, tuple(rows))
