"""The puzzle "guess the accepted path": which iterations fit, what is shown before the answer, and what is said after.

A guess is the node at which the path is said to end; 0 says that nothing is accepted.
"""

from dataclasses import dataclass, replace

from decoding.trace import IterationTrace, NodeTrace, RunTrace
from viz.explain import quote, why_final, why_verdict
from viz.scope_data import compact_data
from viz.tokens import plural, visible

FEWEST_NODES, MOST_NODES, FEWEST_ACCEPTED = 5, 16, 2
QUESTION = (
    "Which path does the target accept? Its probabilities are hidden; beside each token stands the draft's own. "
    "Pruned nodes were not given to the target."
)


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of a guess.

    Attributes:
        right: whether it ends where the accepted path ends.
        agreed: tokens of the guess that were really accepted.
        words: why, from the trace.
    """

    right: bool
    agreed: int
    words: str


def guessable(run: RunTrace) -> tuple[int, ...]:
    """Iterations of a run that leave a real choice and fit on the screen."""
    return tuple(iteration.index for iteration in run.iterations if _fits(iteration))


def _fits(iteration: IterationTrace) -> bool:
    if not iteration.nodes or iteration.in_loop or iteration.final_kind == "none":
        return False
    if not FEWEST_NODES <= iteration.drafted <= MOST_NODES or len(iteration.accepted) < FEWEST_ACCEPTED:
        return False
    given = [node.parent_id for node in iteration.nodes if not node.pruned]
    return any(given.count(node) > 1 for node in (0, *iteration.accepted))


def hidden_data(iteration: IterationTrace, scene_id: str, guess: int | None) -> dict:
    """The tree as it was given to the target, the guessed path framed; nothing the target said is in it."""
    nodes = tuple(_unverified(node) for node in iteration.nodes)
    unknown = replace(iteration, nodes=nodes, steps=(), accepted=(), final_kind="none", history=None)
    marks = {} if guess is None else {node: "your guess" for node in iteration.path(guess)[1:]}
    data = compact_data(unknown, scene_id=scene_id, marks=marks, selected=guess)
    scene = data["scene"]
    states = ["root" if not node.node_id else "pruned" if node.pruned else "drafted" for node in iteration.nodes]
    shown = next(phase for phase in scene["phases"] if phase["key"].startswith("draft"))
    # One phase, so that no key leads to what came after it; nodes are drawn by their last state.
    shown |= {"caption": QUESTION, "states": states}
    scene |= {"phases": [shown], "summary": QUESTION, "note": plural(iteration.drafted, "node")}
    for node, state in zip(scene["nodes"], states, strict=True):
        node |= {"state": state, "both": node["draft"]}
    words = {"drafted": "drafted", "pruned": "pruned"}
    legend = [{"state": state, "words": words[state]} for state in words if state in states]
    return data | {"phase": shown["key"], "legend": legend}


def _unverified(node: NodeTrace) -> NodeTrace:
    return replace(
        node,
        verdict="not_verified" if node.node_id else "root",
        reason=None,
        target_probability=None,
        target_argmax=None,
        target_argmax_text=None,
        target_argmax_probability=None,
        acceptance_probability=None,
    )


def path_words(iteration: IterationTrace, node_id: int) -> str:
    """The tokens of a path as a person reads them; of the root, that nothing is accepted."""
    if node_id == 0:
        return "nothing is accepted"
    return " ".join(visible(iteration.nodes[node].text, 14) for node in iteration.path(node_id)[1:])


def judge(iteration: IterationTrace, guess: int) -> Judged:
    """Compare a guess with what the verifier did."""
    guessed, accepted = iteration.path(guess)[1:], iteration.accepted
    agreed = sum(mine == theirs for mine, theirs in zip(guessed, accepted, strict=False))
    if guessed == accepted:
        kept = "Nothing was accepted" if not accepted else f"{plural(len(accepted), 'token')} accepted"
        return Judged(True, agreed, f"{kept}. {why_final(iteration)}")
    begun = f"The first {plural(agreed, 'token')} of your path {'was' if agreed == 1 else 'were'} accepted. "
    begun = begun if agreed else ""
    if agreed == len(guessed):
        following = accepted[agreed]
        said = f"{begun}The path goes on: {quote(iteration.nodes[following].text)} was accepted, too. "
        return Judged(False, agreed, said + why_verdict(iteration, following))
    wrong = iteration.nodes[guessed[agreed]]
    words = {"rejected": "was rejected", "not_reached": "was never tested"}.get(wrong.verdict, "was not verified")
    return Judged(False, agreed, f"{begun}{quote(wrong.text)} {words}. {why_verdict(iteration, wrong.node_id)}")
