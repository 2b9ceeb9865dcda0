"""The card of a node: its verdict and why, both distributions at its position, and the tests there."""

from decoding.common.formats import chance, listed, number, plural
from decoding.trace.records import IterationTrace
from viz.explain.draft_rule import gates_met
from viz.explain.expansion import children_words, why_absent, why_drafted, why_not_expanded
from viz.explain.iteration import residuals, verdict_words, why_final, why_verdict
from viz.explain.known import Known, distribution_title, preferred, target_of, target_shown, target_top
from viz.glossary import explain_term
from viz.scope.phases import FINAL_ID, final_state
from viz.scope.scene import Scene
from viz.tokens import token_text, visible

TOP_ROWS = 10
MOST_RESIDUALS, MOST_TOKENS = 3, 4


def cards(iteration: IterationTrace, scene: Scene, known: Known | None = None) -> dict[str, dict]:
    """The card of each drawn node, by id."""
    known = known or Known(iteration)
    by_node: dict[str, dict] = {}
    for drawn in scene.nodes:
        if drawn.folded:
            by_node[str(drawn.node_id)] = {
                "token": drawn.label, "kind": "folded", "state": "fold", "why": drawn.title + ". Click to open.",
                "probs": None, "token_id": None, "facts": [],
            }  # fmt: skip
        elif drawn.node_id == FINAL_ID:
            by_node[str(FINAL_ID)] = _final_card(known, drawn.parent_id)
        elif iteration.nodes:
            by_node[str(drawn.node_id)] = _node_card(known, drawn.node_id)
    return by_node


def _final_card(known: Known, parent_id: int) -> dict:
    iteration, token = known.iteration, known.iteration.committed_ids[-1]
    chosen = next((s for s in iteration.steps if s.child_id is None), None)
    _, value = target_of(iteration, parent_id, token)
    facts = [] if value is None else [["target's probability", number(value, 4)]]
    if chosen is not None and chosen.drawn is not None and known.sampled:
        facts.append(["probability when drawn", number(chosen.acceptance_probability)])
    children = known.children.get(parent_id, ())
    verified = {node.token_id for node in children if node.flat_index is not None}
    if children and all(node.token_id != token for node in children):
        facts.append(["not drafted", why_absent(iteration, parent_id, token, known)])
    return {
        "token": visible(iteration.final_text or ""),
        "kind": f"after node {parent_id} · {iteration.final_kind}",
        "state": iteration.final_kind,
        "why": why_final(iteration),
        "asks": iteration.tree_was_drafted and token not in verified,
        "probs": parent_id,
        "token_id": token,
        "facts": facts,
        "residuals": _residuals(known, parent_id, token),
    }


def _node_card(known: Known, node_id: int) -> dict:
    iteration, node = known.iteration, known.iteration.nodes[node_id]
    facts = []
    if node_id:
        if drafted := why_drafted(known, node_id):
            facts.append(["drafted", drafted])
        facts.append(["path probability", number(node.path_probability, 4)])
    # Greedy decoding has no randomness: 0 and 1 would only repeat the verdict.
    if node.acceptance_probability not in (None, 0.0, 1.0):
        facts.append(["reached and accepted (exact)", chance(node.acceptance_probability)])
    if node.multiplicity > 1:
        facts.append(["times drawn", str(node.multiplicity)])
    if children := children_words(known, node_id):
        facts.append(["children", children])
    if node.flat_index is not None and iteration.verified:
        seen = listed([str(each) for each in iteration.path(node_id)[:-1]] + ["itself"])
        facts.append(["attends to", f"{plural(iteration.prefix_length - 1, 'prefix token')}, {seen}"])
    if node.target_argmax_text is not None:
        best = f"{visible(node.target_argmax_text, 12)} {number(preferred(iteration, node_id))}"
        facts.append(["target's next token", best])
    if "<0x" in node.text:
        facts.append(["byte", explain_term("byte")])
    facts.append(["expansion", why_not_expanded(iteration, node_id, known)])
    return {
        "token": visible(node.text),
        "kind": f"node {node_id} · depth {node.depth} · {verdict_words(iteration, node_id, known)}",
        "state": final_state(known, node),
        "why": why_verdict(iteration, node_id, known),
        "asks": iteration.tree_was_drafted and node_id > 0 and node.flat_index is None,
        # The root shows the distribution after it: its own was decided in the iteration before.
        "probs": node.parent_id if node_id else 0,
        "token_id": node.token_id if node_id else None,
        "facts": facts,
        # They say what the fact on expansion says, and more.
        "gates": [[gate.outcome, gate.name, gate.words] for gate in gates_met(iteration, node_id)],
        "residuals": _residuals(known, node.parent_id, node.token_id) if node_id else [],
    }


def _residuals(known: Known, place: int, token: int) -> list[dict]:
    """Residuals of the target's distribution at a position: the first, that which left nothing of a token, the last."""
    rejections = residuals(known.iteration, place, MOST_TOKENS, known, token)
    gone = next((number_of for number_of, each in enumerate(rejections) if each["own"] == "0"), 0)
    few, made = len(rejections) <= MOST_RESIDUALS, []
    for each in rejections if few else [rejections[place] for place in sorted({0, gone, len(rejections) - 1})]:
        rows = [[visible(text, 16), round(p, 5)] for text, p in each["rows"]]
        if each["own"] == "0":
            rows.append([visible(token_text(known.iteration, token), 16), 0.0])
        made.append({"after": each["after"], "rows": rows})
    if len(made) < len(rejections):
        more = f"{len(rejections) - len(made)} more rejections here: Why, below, lists all {len(rejections)}"
        made.append({"after": more, "rows": []})
    return made


def distributions(iteration: IterationTrace, scene: Scene, known: Known | None = None) -> dict[str, dict]:
    """Both distributions after each node that has drawn children: the likeliest tokens of either, children always
    included.

    A drafted token names its node; any other says why it was not drafted.
    """
    if not iteration.nodes:
        return {}
    known = known or Known(iteration)
    asked: dict[int, list] = {0: []}
    for drawn in scene.nodes:
        if drawn.parent_id >= 0 and not drawn.folded:
            asked.setdefault(drawn.parent_id, []).append(drawn.node_id)
    return {str(parent): _distribution(known, parent, children) for parent, children in asked.items()}


def _distribution(known: Known, parent: int, children: list[int]) -> dict:
    iteration = known.iteration
    draft = {token: (text, p) for token, text, p in iteration.draft_top(parent)}
    target = {token: (text, p) for token, text, p in target_top(iteration, parent)}
    rows = {token: text for side in (draft, target) for token, (text, _) in side.items()}
    drafted: dict[int, tuple] = {}
    for child in children:
        if child >= 0:
            node = iteration.nodes[child]
            rows[node.token_id] = node.text
            drafted[node.token_id] = (node.draft_probability, target_shown(node))

    def pair(token: int) -> list[float | None]:
        own = drafted.get(token, (None, None))
        return [side[token][1] if token in side else mine for side, mine in zip((draft, target), own, strict=True)]

    final = iteration.committed_ids[-1] if FINAL_ID in children else None
    if final is not None:
        rows[final] = iteration.final_text or ""
    chosen = {step.token_id for step in known.decisions.get(parent, ()) if step.kind == "choice"}
    rows = {token: token_text(iteration, token) for token in chosen} | rows
    must = chosen if final is None else {*chosen, final}
    order = sorted(rows, key=lambda token: (-max(value or 0.0 for value in pair(token)), token))
    shown = [token for place, token in enumerate(order) if place < TOP_ROWS or token in drafted or token in must]
    here = {node.token_id: node.node_id for node in known.children.get(parent, ())}

    def row(token: int) -> dict:
        of_draft, of_target = (None if p is None or p != p else round(p, 5) for p in pair(token))
        node, absent = here.get(token), ""
        if node is None:
            node, absent = FINAL_ID if token == final else None, why_absent(iteration, parent, token, known)
        elif node not in children:
            node, absent = None, f"Drafted: node {node} is inside a fold."
        text = visible(rows[token], 16)
        return {
            "token_id": token, "text": text, "draft": of_draft, "target": of_target, "node": node, "absent": absent,
            "drawn": token in must,
        }  # fmt: skip

    head, meaning = distribution_title(iteration)
    return {
        "after": visible(iteration.nodes[parent].text, 14),
        "target_head": head,
        "target_help": meaning,
        "has_draft": bool(draft),
        "has_target": bool(target),
        # Upper bound of an unrecorded number: the last of the recorded top tokens.
        "draft_floor": round(min((p for _, p in draft.values()), default=0.0), 5),
        "target_floor": round(min((p for _, p in target.values()), default=0.0), 5),
        "tests": _tests(known, parent),
        "rows": [row(token) for token in shown],
    }


def _tests(known: Known, parent: int) -> list[dict]:
    """The verifier's tests at one position, in order."""
    iteration, late, made = known.iteration, parent in known.after_end, []
    for step in known.decisions.get(parent, ()):
        drawn = f", drawn {number(step.drawn)}" if known.sampled and step.drawn is not None else ""
        chosen = step.child_id is None
        words = f"{number(step.acceptance_probability)}{drawn}"
        state: str = iteration.final_kind if chosen else "accepted" if step.accepted else "rejected"
        words = f"{iteration.final_kind}, chosen" if chosen else f"p {words}"
        if step.kind == "choice" and not chosen and not known.sampled:
            words = "the target's argmax"
        if late:
            # The test still has its outcome, but none of it became text.
            state = "rejected" if state == "rejected" else "not_reached"
            words = "after the end of text" if chosen else f"{words}, after the end of text"
        made.append(
            {
                "node": None if late and chosen else FINAL_ID if chosen else step.child_id,
                "token": visible(token_text(iteration, step.token_id), 16),
                "state": state,
                "words": words,
            }
        )
    return made
