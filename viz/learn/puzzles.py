"""Two puzzles on recorded iterations: guess the accepted path, and find the setting that saves a token.

A guess is the node where the path should end; 0 means that nothing is accepted. A token is missing where the accepted
path ended above a leaf: the target chose a token that no child had. Why it was left out is read from the trace; whether
a setting would have kept it is decided only by re-drafting.
"""

from dataclasses import dataclass, replace
from typing import Any

from decoding.common.formats import number, plural
from decoding.trace.records import IterationTrace, RunTrace, Setting, node_paths
from viz.explain.iteration import why_final, why_verdict
from viz.glossary import setting_title
from viz.scope.data import compact_data
from viz.tokens import quote, visible

FEWEST_NODES, MOST_NODES, FEWEST_ACCEPTED = 5, 16, 2
QUESTION = (
    "Which path does the target accept? Its probabilities are hidden; the number at each token is the draft's. "
    "Pruned nodes were not given to the target."
)


def guessable(run: RunTrace) -> tuple[int, ...]:
    """Iterations of a run with a real choice that fit on the screen."""
    fit = []
    for each in run.iterations:
        whole = each.nodes and not each.in_loop and each.final_kind != "none"
        sized = FEWEST_NODES <= each.drafted <= MOST_NODES and len(each.accepted) >= FEWEST_ACCEPTED
        given = [node.parent_id for node in each.nodes if not node.pruned]
        if whole and sized and any(given.count(node) > 1 for node in (0, *each.accepted)):
            fit.append(each.index)
    return tuple(fit)


def hidden_data(iteration: IterationTrace, scene_id: str, guess: int | None) -> dict:
    """The tree as given to the target, with the guessed path framed and without any of the target's results."""
    said = ("reason", "target_probability", "target_argmax", "target_argmax_text", "target_argmax_probability")
    hidden: dict[str, Any] = dict.fromkeys((*said, "acceptance_probability"))
    nodes = (replace(n, verdict="not_verified" if n.node_id else "root", **hidden) for n in iteration.nodes)
    unknown = replace(iteration, nodes=tuple(nodes), steps=(), accepted=(), final_kind="none", history=None)
    marks = {} if guess is None else {node: "your guess" for node in iteration.path(guess)[1:]}
    data = compact_data(unknown, scene_id=scene_id, marks=marks, selected=guess)
    scene = data["scene"]
    states = ["root" if not node.node_id else "pruned" if node.pruned else "drafted" for node in iteration.nodes]
    shown = next(phase for phase in scene["phases"] if phase["key"].startswith("draft"))
    # One phase, so that no key leads to a later one; nodes are drawn by their last state.
    shown |= {"caption": QUESTION, "states": states}
    scene |= {"phases": [shown], "summary": QUESTION, "note": plural(iteration.drafted, "node")}
    for node, state in zip(scene["nodes"], states, strict=True):
        node |= {"state": state, "both": node["draft"]}
    legend = [{"state": state, "words": state} for state in ("drafted", "pruned") if state in states]
    return data | {"phase": shown["key"], "legend": legend}


def path_words(iteration: IterationTrace, node_id: int) -> str:
    """The tokens of a path as text; `nothing is accepted` for the root."""
    if node_id == 0:
        return "nothing is accepted"
    return " ".join(visible(iteration.nodes[node].text, 14) for node in iteration.path(node_id)[1:])


def judge(iteration: IterationTrace, guess: int) -> tuple[bool, str]:
    """Whether a guess ends where the accepted path ends, and why, from the trace."""
    guessed, accepted = iteration.path(guess)[1:], iteration.accepted
    agreed = sum(mine == theirs for mine, theirs in zip(guessed, accepted, strict=False))
    if guessed == accepted:
        kept = "Nothing was accepted" if not accepted else f"{plural(len(accepted), 'token')} accepted"
        return True, f"{kept}. {why_final(iteration)}"
    begun = f"The first {plural(agreed, 'token')} of your path {'was' if agreed == 1 else 'were'} accepted. "
    begun = begun if agreed else ""
    if agreed == len(guessed):
        following = accepted[agreed]
        said = f"{begun}The path goes on: {quote(iteration.nodes[following].text)} was accepted too. "
        return False, said + why_verdict(iteration, following)
    wrong = iteration.nodes[guessed[agreed]]
    words = {"rejected": "was rejected", "not_reached": "was never tested"}.get(wrong.verdict, "was not verified")
    return False, f"{begun}{quote(wrong.text)} {words}. {why_verdict(iteration, wrong.node_id)}"


MOST_CHILDREN = 8


@dataclass(frozen=True, slots=True)
class Missing:
    """A token that the target chose and the tree did not have.

    Attributes:
        iteration: index in the run. parent: the node after which it is missing. token_id, text: the token.
        settings: names of the two settings offered, the most important first.
        answer: values that keep the token in the tree by the rules of the drafter.
        words: why it was missing, from the trace.
    """

    iteration: int
    parent: int
    token_id: int
    text: str
    settings: tuple[str, ...]
    answer: dict[str, Setting]
    words: str


def missing_tokens(run: RunTrace) -> tuple[Missing, ...]:
    """Every such token of a DynaTree run that two settings can keep in the tree."""
    found = (_missing(iteration) for iteration in run.iterations)
    return tuple(missing for missing in found if missing is not None)


def has_token(iteration: IterationTrace, missing: Missing, base: IterationTrace) -> int | None:
    """The verified node with that token at that position in a re-drafted tree, None if there is none."""
    wanted = (*node_paths(base)[missing.parent], missing.token_id)
    nodes = zip(iteration.nodes, node_paths(iteration), strict=True)
    return next((node.node_id for node, path in nodes if path == wanted and not node.pruned), None)


def _missing(iteration: IterationTrace) -> Missing | None:
    settings = iteration.settings
    if not iteration.nodes or iteration.in_loop or iteration.final_kind not in ("recovered", "fallback"):
        return None
    parent = iteration.nodes[iteration.accepted[-1] if iteration.accepted else 0]
    token = iteration.committed_ids[-1]
    order = [token_id for token_id, _, _ in iteration.draft_top(parent.node_id)]
    if iteration.rule.drafter != "dynatree" or token not in order:
        return None
    if parent.breadth not in ("confident", "between", "unsure") or parent.confidence is None:
        return None
    rank, probability = order.index(token) + 1, iteration.draft_top(parent.node_id)[order.index(token)][2]
    breadth = _breadth(parent.confidence, rank, settings)
    if breadth is None:
        return None
    knob, value, rule = breadth
    path, limit = parent.path_probability * probability, float(settings["prune_probability"])
    answer: dict[str, Setting] = {} if rank <= (parent.branching or 0) else {knob: value}
    reasons = [] if not answer else [rule]
    if path < limit and iteration.rule.left_out:
        answer["prune_probability"] = int(path * 100) / 100
        reasons.append(
            f"its path probability {number(path, 3)} is below {setting_title('prune_probability')} {limit:g}"
        )
    # A second setting that is plausible but has no effect.
    decoy = "base_depth" if "prune_probability" in answer else "prune_probability"
    offered = tuple(answer) if len(answer) == 2 else (*answer, decoy)
    text = iteration.final_text or ""
    words = (
        f"After {quote(parent.text)} the draft gives {quote(text)} {number(probability)}, its choice no. {rank}: "
        f"{', and '.join(reasons)}."
    )
    return Missing(iteration.index, parent.node_id, token, text, offered, answer, words) if answer else None


def _breadth(confidence: float, rank: int, settings) -> tuple[str, Setting, str] | None:
    """The setting of the node's band that gives it `rank` children, the value, and the rule in words."""
    high, low = float(settings["confidence_high"]), float(settings["confidence_low"])
    sure = f"at a confidence of {number(confidence)}"
    if confidence >= high:
        value = int(confidence * 100 + 1) / 100
        rule = f"{sure} (at least {high:g}) {_only(settings['branch_min'])}"
        return ("confidence_high", value, rule) if rank <= settings["branch_mid"] and value < 1 else None
    if confidence >= low:
        rule = f"{sure} ({low:g} to {high:g}) {_only(settings['branch_mid'])}"
        return ("branch_mid", rank, rule) if rank <= settings["branch_max"] else None
    rule = f"{sure} (below {low:g}) {_only(settings['branch_max'])}"
    return ("branch_max", rank, rule) if rank <= MOST_CHILDREN else None


def _only(children: Setting) -> str:
    return f"only {plural(int(children), 'child', 'children')} {'is' if children == 1 else 'are'} drafted"
