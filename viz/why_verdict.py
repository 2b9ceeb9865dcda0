"""Why the verifier decided as it did about a node, in words and numbers of its tests."""

from decoding.trace import IterationTrace, NodeTrace, VerificationStep
from viz.cut_short import cut_nodes, end_words, is_after_end
from viz.tested_law import certain_words, impossible_words, is_sampled, limit_words, preferred, target_shown
from viz.tokens import number
from viz.why_growth import why_pruned
from viz.words import chance, limit_and_drawn, listed, ordinal, quote

MOST_TOLD = 3


def why_verdict(iteration: IterationTrace, node_id: int) -> str:
    """One to three sentences on why the verifier decided as it did about a node."""
    node = iteration.nodes[node_id]
    if node.verdict == "root":
        return "The last committed token, not drafted: this pass writes its key/value row and reads what follows it."
    if node_id in iteration.forced_out:
        return node.reason
    if node.verdict == "not_verified":
        return why_pruned(iteration, node_id) or node.reason or "It was drafted but not given to the target."
    if node.node_id in cut_nodes(iteration):
        return f"The verifier accepted it, but it was not committed: {end_words(iteration)} before it."
    if node_id in iteration.forced_verdicts:
        return _after_end(iteration, node) + node.reason
    if not is_sampled(iteration):
        return _after_end(iteration, node) + _without_draws(iteration, node)
    told = _told_by_draws(iteration, node)
    said = f"{told} {_preference(iteration, node)}".strip() or node.reason or f"It was {node.verdict}."
    return _after_end(iteration, node) + said


def _after_end(iteration: IterationTrace, node: NodeTrace) -> str:
    """What to say first of a node that was tested although the text had ended."""
    tested = any(s.child_id == node.node_id and is_after_end(iteration, s) for s in iteration.steps)
    return "After the end of the text and so without effect: " if tested else ""


def _without_draws(iteration: IterationTrace, node: NodeTrace) -> str:
    """Greedy decoding: the target's favourite decides."""
    if node.verdict == "not_reached":
        return _why_not_reached(iteration, node)
    parent = iteration.nodes[node.parent_id]
    if parent.target_argmax is None or node.target_probability is None:
        return node.reason or f"It was {node.verdict}."
    if parent.target_argmax == node.token_id:
        return f"The target prefers this token too, at {number(parent.target_argmax_probability)}."
    favourite = quote(parent.target_argmax_text or f"<{parent.target_argmax}>")
    return (
        f"The target prefers {favourite} at {number(parent.target_argmax_probability)}; this token has "
        f"{number(node.target_probability)}. Greedy decoding keeps only the favourite."
    )


def _told_by_draws(iteration: IterationTrace, node: NodeTrace) -> str:
    """What the numbers drawn came to for a node."""
    tests = [s for s in iteration.steps if s.kind == "test" and s.child_id == node.node_id]
    matches = _match_words(iteration, node)
    if tests:
        said = f"{matches} {_test_words(iteration, node, tests)}".strip()
        drawn_after_all = node.verdict == "accepted" and not tests[-1].accepted
        return f"{said} {_accepted_untested(iteration, node)}" if drawn_after_all else said
    if node.verdict == "accepted":
        return _accepted_untested(iteration, node)
    if matches:
        return matches
    if node.verdict == "not_reached":
        return _why_not_reached(iteration, node)
    return _rejected_untested(iteration, node)


def _test_words(iteration: IterationTrace, node: NodeTrace, tests: list[VerificationStep]) -> str:
    """The tests of one node with the numbers drawn."""
    from_below = any(step.weight is not None for step in tests)
    kept = "Its path is kept down to here" if from_below else "Accepted"
    outcome = _outcome(tests[-1], from_below)
    if len(tests) == 1:
        if tests[0].acceptance_probability == 1:
            why = certain_words(iteration, tests[0])
            said = "Kept with its whole path" if from_below else "Accepted"
            return f"{said}: its test passes with certainty{', as ' + why if why else ''}."
        if tests[0].acceptance_probability == 0:
            said = f"{'Not kept' if from_below else 'Rejected'}: its test passes with probability 0."
            return f"{said} {impossible_words(iteration, tests[0])}".strip()
        limit, drawn = limit_and_drawn(tests[0].acceptance_probability, tests[0].drawn)
        made_of = limit_words(iteration, tests[0])
        return f"{kept} if the draw is below {limit}{' = ' + made_of if made_of else ''}; it was {drawn}: {outcome}."
    limits, drawn = zip(*(limit_and_drawn(step.acceptance_probability, step.drawn) for step in tests), strict=True)
    limits = limits[:1] if len(set(limits)) == 1 else limits
    return (
        f"Tested {len(tests)} times, once for each time it was drafted: accepted if the draw is below "
        f"{listed(limits)}; the draws were {listed(drawn)}: {outcome}."
    )


def _outcome(step: VerificationStep, from_below: bool) -> str:
    if not from_below:
        return "accepted" if step.accepted else "rejected"
    return "the path ends with it" if step.accepted else "not kept"


def _match_words(iteration: IterationTrace, node: NodeTrace) -> str:
    """The matches of a tournament that a node won, and the one it lost."""
    won, lost = [], None
    for step in iteration.steps:
        if step.kind != "match" or node.node_id not in (step.child_id, step.rival_id) or step.child_id == step.rival_id:
            continue
        challenged = step.child_id == node.node_id
        odds = step.acceptance_probability if challenged else 1 - step.acceptance_probability
        other = iteration.nodes[step.rival_id if challenged else step.child_id]
        if step.accepted == challenged:
            won.append((other, odds))
        else:
            lost = other, odds
    if lost is not None:
        other, odds = lost
        return (
            f"It lost the tournament to {quote(other.text)} (node {other.node_id}), against which it wins with "
            f"probability {chance(odds)}; only the winner is tested."
        )
    if not won:
        return ""
    others = listed([quote(other.text) for other, _ in won[:MOST_TOLD]])
    more = f" and {len(won) - MOST_TOLD} more" if len(won) > MOST_TOLD else ""
    odds = listed(list(dict.fromkeys(chance(each) for _, each in won[:MOST_TOLD])))
    return f"It won the tournament against {others}{more} (probability {odds})."


def _accepted_untested(iteration: IterationTrace, node: NodeTrace) -> str:
    """A token drawn from a law, or a node above one that passed."""
    choice = next((s for s in iteration.steps if s.kind == "choice" and s.child_id == node.node_id), None)
    if choice is not None:
        given = chance(choice.acceptance_probability)
        return f"Drawn from {_law_words(iteration, node.parent_id)}, which gave it {given}."
    passed = next((s for s in iteration.steps if s.kind == "test" and s.accepted), None)
    if passed is None:
        return node.reason
    below = iteration.nodes[passed.child_id]
    return f"{quote(below.text)} (node {below.node_id}) below it passed its test, and that keeps the whole path to it."


def _rejected_untested(iteration: IterationTrace, node: NodeTrace) -> str:
    """A node that had no test of its own: something else was drawn at its place."""
    choice = next((s for s in iteration.steps if s.kind == "choice" and s.node_id == node.parent_id), None)
    if choice is None:
        return node.reason
    text = quote(iteration.texts.get(choice.token_id, f"<{choice.token_id}>"))
    if choice.token_id == node.token_id:
        return (
            "The final token drawn here is this very token, but this verifier looks only at the first path that was "
            "drawn, so the path ends with it."
        )
    law = _law_words(iteration, node.parent_id)
    return f"Not drawn: {text} was, from {law}, which gave it {chance(choice.acceptance_probability)}."


def _law_words(iteration: IterationTrace, place: int) -> str:
    """The law that a token is drawn from at a node, after the tests that failed there."""
    failed = [s for s in iteration.steps if s.kind == "test" and s.node_id == place and not s.accepted]
    if not failed:
        return "the target's law"
    if len(failed) == 1:
        return f"what the rejection of {quote(iteration.nodes[failed[0].child_id].text)} left of the target's law"
    return f"what {len(failed)} rejections left of the target's law"


def _preference(iteration: IterationTrace, node: NodeTrace) -> str:
    """What the target thinks of this token, beside its favourite at the same place, in the law that was tested with."""
    parent = iteration.nodes[node.parent_id]
    if node.verdict == "not_reached" or parent.target_argmax is None or node.target_probability is None:
        return ""
    best, given = number(preferred(iteration, parent.node_id)), number(target_shown(node))
    # The test was made with another law, which an older record does not have.
    where = "" if iteration.tested_top_probs is not None else " at temperature 1"
    if parent.target_argmax == node.token_id:
        return f"It is the target's favourite here, at {best}{where}."
    favourite = quote(parent.target_argmax_text or f"<{parent.target_argmax}>")
    return f"The target gives it {given}, its favourite {favourite} {best}{where}."


def _why_not_reached(iteration: IterationTrace, node: NodeTrace) -> str:
    """The nearest ancestor where the walk went another way."""
    accepted = set(iteration.accepted)
    blocker = node
    while blocker.parent_id > 0 and blocker.parent_id not in accepted:
        blocker = iteration.nodes[blocker.parent_id]
    where = f"{quote(blocker.text)} (node {blocker.node_id})"
    if iteration.final_kind == "none" and _walked_over(iteration, blocker):
        if blocker is node:
            return "The text or its requested length ended before this token, so it was not committed."
        return f"The text or its requested length ended before its ancestor {where}."
    if any(step.weight is not None for step in iteration.steps):
        return _left_untested(iteration)
    if blocker is not node:
        return f"Its ancestor {where} was not accepted, so the verifier never came here."
    taken = next((n for n in iteration.nodes if n.parent_id == node.parent_id and n.node_id in accepted), None)
    if taken is not None:
        return f"Its sibling {quote(taken.text)} (node {taken.node_id}) was taken first, so it was not tested."
    return node.reason or "The verifier stopped before it came here."


def _left_untested(iteration: IterationTrace) -> str:
    """Bottom-up verifiers test a node before its ancestors: what they leave out is not below a node that failed."""
    passed = next((s for s in iteration.steps if s.kind == "test" and s.accepted), None)
    if passed is None:
        return "Not tested: this verifier looks only at the first path that was drawn, and none of it was kept."
    kept = iteration.nodes[passed.child_id]
    return f"Not tested: {quote(kept.text)} (node {kept.node_id}) passed its test before, and that settled the path."


def _walked_over(iteration: IterationTrace, node: NodeTrace) -> bool:
    """Whether the verifier accepted a node although its token was not committed."""
    last = iteration.steps[-1] if iteration.steps else None
    return last is not None and node.node_id in iteration.path(last.node_id)


def residuals(iteration: IterationTrace, place: int, most: int = 5) -> list[dict]:
    """What is left of the target's law at a node after each rejection there, as the verifier's record has it."""
    told, count = [], 0
    for step in iteration.steps:
        if step.node_id != place or step.kind != "test" or step.accepted:
            continue
        count += 1
        if step.residual_ids:
            pairs = list(zip(step.residual_ids, step.residual_probs, strict=True))[:most]
            text = quote(iteration.nodes[step.child_id].text)
            told.append({
                "after": f"left of the target's law after {text} was rejected"
                + (f" ({ordinal(count)} rejection)" if count > 1 else ""),
                "rows": [[iteration.texts.get(i, f"<{i}>"), p] for i, p in pairs if p > 0],
            })  # fmt: skip
    return told
