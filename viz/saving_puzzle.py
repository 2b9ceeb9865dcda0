"""The puzzle "find the setting that saves this token": tokens that a DynaTree missed, and settings that let them in.

The final token of an iteration is missing where the accepted path ended above a leaf: the target wanted a token that no
child had. What kept it out is read from the trace; whether a setting saves it is only decided by drafting again.
"""

from dataclasses import dataclass

from decoding.trace import IterationTrace, RunTrace, Setting, node_paths
from viz.explain import quote
from viz.tokens import number, plural

MOST_CHILDREN = 8


@dataclass(frozen=True, slots=True)
class Missing:
    """A token that the target wanted and the tree did not have.

    Attributes:
        iteration: index in the run. parent: the node after which it is missing. token_id, text: the token.
        settings: names of the two settings offered, the one that matters most first.
        answer: values of them that let the token in, by the rules of the drafter.
        words: why it was not there, from the trace.
    """

    iteration: int
    parent: int
    token_id: int
    text: str
    settings: tuple[str, ...]
    answer: dict[str, Setting]
    words: str


def missing_tokens(run: RunTrace) -> tuple[Missing, ...]:
    """Every such token of a DynaTree run that two settings can save."""
    found = (_missing(iteration) for iteration in run.iterations)
    return tuple(missing for missing in found if missing is not None)


def has_token(iteration: IterationTrace, missing: Missing, base: IterationTrace) -> int | None:
    """The verified node that has the token at its place in a tree drafted again, None if there is none."""
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
    if path < limit:
        answer["prune_probability"] = int(path * 100) / 100
        reasons.append(f"the path to it has {number(path, 3)}, and paths below {limit:g} are pruned")
    offered = tuple(answer) if len(answer) == 2 else (*answer, _decoy(answer))
    text = iteration.final_text or ""
    words = (
        f"After {quote(parent.text)} the draft gives {quote(text)} {number(probability)}, its choice number {rank}: "
        f"{'; and '.join(reasons)}."
    )
    return Missing(iteration.index, parent.node_id, token, text, offered, answer, words) if answer else None


def _breadth(confidence: float, rank: int, settings) -> tuple[str, Setting, str] | None:
    """The setting of the node's band that gives it `rank` children, the value, and the rule in words."""
    high, low = float(settings["confidence_high"]), float(settings["confidence_low"])
    sure = f"with a confidence of {number(confidence)}"
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
    return f"only {plural(int(children), 'child', 'children')} {'is' if children == 1 else 'are'} tried"


def _decoy(answer: dict[str, Setting]) -> str:
    """A setting that is plausible and does not matter here."""
    return "base_depth" if "prune_probability" in answer else "prune_probability"
