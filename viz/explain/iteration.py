"""Why an iteration went as it did: verdicts from the tests, the final token, what limited a run."""

from collections.abc import Mapping, Sequence
from typing import Any

from decoding.common.formats import chance, compared, duration, limit_and_drawn, listed, number, ordinal, plural
from decoding.trace.metrics import decoded
from decoding.trace.records import (
    PHASES,
    RESIDUAL_TOKENS,
    HistoryTrace,
    IterationTrace,
    NodeTrace,
    Reason,
    RunTrace,
    VerificationStep,
)
from viz.explain.expansion import stop_reason_text, why_no_draft, why_pruned
from viz.explain.known import (
    Known,
    certain_words,
    end_words,
    impossible_words,
    is_cut,
    is_sampled,
    limit_words,
    preferred,
    target_shown,
    target_top,
    would_have,
)
from viz.glossary import setting_title
from viz.theme import MARKS, PHASE_WORDS
from viz.tokens import quote, token_text

MOST_TOLD = 3
# Sentences for reason codes where the record has no numbers.
REASONS: dict[Reason | None, str] = {
    "favourite": "It is the target's most likely token here.",
    "test_passed": "Its test passed.",
    "drawn": "It was drawn here.",
    "kept_below": "A node below it passed its test, which accepts the whole path to that node.",
    "not_favourite": "The target's most likely token here is a different one.",
    "test_failed": "Its test failed.",
    "not_drawn": "Another token was drawn here.",
    "match_lost": "It lost its match against a sibling; only the winner is tested.",
    "ancestor_lost": "An ancestor was not accepted, so the verifier never got here.",
    "sibling_taken": "A sibling was accepted before it was tested.",
    "path_settled": "Not tested: another node had already passed its test, which settled the path.",
    "first_path_only": "Not tested: this verifier looks only at the first path drawn.",
    "text_ended": "The text ended, or reached its length limit, before this token.",
}


def why_verdict(iteration: IterationTrace, node_id: int, known: Known | None = None) -> str:
    """One to three sentences on why the verifier decided as it did about a node.

    Args:
        known: the `Known` of the iteration if there is one already; it serves every node.
    """
    node, known = iteration.nodes[node_id], known or Known(iteration)
    if node.verdict == "root":
        return "The last committed token, not drafted: this pass writes its KV slot and computes what follows it."
    if node.verdict == "not_verified":
        return why_pruned(iteration, node_id, known) or "It was drafted but not given to the target."
    if node_id in known.cut:
        return f"The verifier accepted it, but it was not committed: {end_words(iteration)} before it."
    forced = node_id in known.interventions
    said = _by_draws(known, node) if known.sampled else _without_draws(known, node)
    # For a forced verdict, the sentence on the intervention gives the target's real probability.
    if known.sampled and not forced:
        said = f"{said} {_preference(iteration, node)}".strip()
    tested = any(step.node_id in known.after_end for step in known.about.get(node_id, ()))
    said = known.interventions.words(node_id, said) if forced else said
    return f"After the end of the text, so without effect. {said}" if tested else said


def verdict_words(iteration: IterationTrace, node_id: int, known: Known | None = None) -> str:
    """The verdict on a node in a word or two; one accepted after the end of the text is "not committed"."""
    node, known = iteration.nodes[node_id], known or Known(iteration)
    if node_id in known.cut:
        return "not committed"
    if node_id and node.parent_id in known.after_end and not node.pruned:
        return "after the end of the text"
    if node_id in known.forced_out:
        return MARKS["forced_out"].words
    return MARKS["pruned" if node.pruned else node.verdict].words


def _by_code(node: NodeTrace) -> str:
    """The reason without numbers; only the verdict where the record has no reason."""
    return REASONS.get(node.reason, f"It was {node.verdict.replace('_', ' ')}.")


def _without_draws(known: Known, node: NodeTrace) -> str:
    """Greedy decoding: the target's most likely token decides."""
    if node.verdict == "not_reached":
        return _why_not_reached(known, node)
    parent = known.iteration.nodes[node.parent_id]
    if parent.target_argmax is None or node.target_probability is None:
        return _by_code(node)
    if parent.target_argmax == node.token_id:
        said = f"It is the target's most likely token too, at {number(parent.target_argmax_probability)}"
        return f"{said}{'' if node.verdict == 'accepted' else _but_rejected(known, node)}."
    favourite = quote(parent.target_argmax_text or f"<{parent.target_argmax}>")
    best, given = compared(parent.target_argmax_probability, node.target_probability)
    said = f"The target prefers {favourite} at {best}; this token has {given}."
    return f"{said} Greedy decoding accepts only the most likely token."


def _but_rejected(known: Known, node: NodeTrace) -> str:
    """Why a verifier other than the greedy one may reject the target's most likely token at temperature 0."""
    path = [known.iteration.nodes[each] for each in known.iteration.path(node.parent_id)[1:]]
    lost = next((above for above in path if above.verdict != "accepted"), None)
    if lost is not None:
        return f", but its ancestor {quote(lost.text)} (node {lost.node_id}) was not accepted"
    return ", but this verifier looks only at the first path drawn"


def _by_draws(known: Known, node: NodeTrace) -> str:
    """What the numbers drawn decided for a node."""
    tests = [step for step in known.about.get(node.node_id, ()) if step.kind == "test"]
    matches = _match_words(known, node)
    if tests:
        said = f"{matches} {_test_words(known, tests)}".strip()
        drawn_after_all = node.verdict == "accepted" and not tests[-1].accepted
        return f"{said} {_accepted_untested(known, node)}" if drawn_after_all else said
    if node.verdict == "accepted":
        return _accepted_untested(known, node)
    if matches:
        return matches
    if node.verdict == "not_reached":
        return _why_not_reached(known, node)
    # A node without a test of its own: another token was drawn at its position.
    choice = known.choice(node.parent_id)
    if choice is None:
        return _by_code(node)
    if choice.token_id == node.token_id:
        return (
            "The final token drawn here is this same token, but this verifier looks only at the first path drawn, so "
            "the path ends with it."
        )
    text, probs = (
        quote(token_text(known.iteration, choice.token_id)),
        _drawn_from(known, choice),
    )
    said = f"Not drawn: {text} was drawn from {probs}, at {chance(choice.acceptance_probability)}."
    untested = all(step.kind == "choice" for step in known.iteration.steps)
    return f"{said} This verifier tests no node: rejected means that another token was drawn." if untested else said


def _test_words(known: Known, tests: Sequence[VerificationStep]) -> str:
    """The tests of one node with the numbers drawn."""
    from_below = any(step.weight is not None for step in tests)
    outcomes = ("the path ends with it", "not accepted") if from_below else ("accepted", "rejected")
    outcome = outcomes[not tests[-1].accepted]
    if len(tests) == 1:
        about = known.iteration, tests[0], known.before(tests[0])
        limit, drawn = limit_and_drawn(tests[0].acceptance_probability, tests[0].drawn)
        if tests[0].acceptance_probability == 1:
            why, said = certain_words(*about), "Its whole path is accepted: its" if from_below else "Its"
            return f"{said} test passes with certainty{', because ' + why if why else ''}."
        if tests[0].acceptance_probability == 0:
            said = f"{'Not accepted' if from_below else 'Rejected'}: its test passes with probability 0."
            return f"{said} {impossible_words(*about)}".strip()
        kept, made_of = "Its path is accepted down to this node" if from_below else "Accepted", limit_words(*about)
        return f"{kept} if the draw is below {limit}{' = ' + made_of if made_of else ''}; it was {drawn}: {outcome}."
    limits, draws = zip(*(limit_and_drawn(step.acceptance_probability, step.drawn) for step in tests), strict=True)
    limits = limits[:1] if len(set(limits)) == 1 else limits
    return (
        f"Tested {len(tests)} times, once for each time it was drafted: accepted if the draw is below "
        f"{listed(limits)}; the draws were {listed(draws)}: {outcome}."
    )


def _match_words(known: Known, node: NodeTrace) -> str:
    """The tournament matches that a node won, and the one it lost."""
    won, lost = [], None
    for step in known.matches.get(node.node_id, ()):
        challenged = step.child_id == node.node_id
        odds = step.acceptance_probability if challenged else 1 - step.acceptance_probability
        other = known.iteration.nodes[step.rival if challenged else step.child]
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
    chances = listed(list(dict.fromkeys(chance(each) for _, each in won[:MOST_TOLD])))
    return f"It won the tournament against {others}{more} (probability {chances})."


def _accepted_untested(known: Known, node: NodeTrace) -> str:
    """A token drawn from a distribution, or a node above one that passed."""
    choice = known.choice(node.parent_id)
    if choice is not None and choice.child_id == node.node_id:
        given = chance(choice.acceptance_probability)
        return f"Drawn from {_drawn_from(known, choice)}, at {given}."
    if known.passed is None:
        return _by_code(node)
    below = known.iteration.nodes[known.passed.child]
    return f"{quote(below.text)} (node {below.node_id}) below it passed its test, which accepts the whole path."


def _drawn_from(known: Known, choice: VerificationStep) -> str:
    """The distribution that a token is drawn from, after the tests that failed there."""
    failed = known.before(choice)
    if failed.last is None:
        return "the target's distribution"
    if failed.count == 1:
        text = quote(known.iteration.nodes[failed.last.child].text)
        return f"the residual of the target's distribution after {text} was rejected"
    return f"the residual of the target's distribution after {failed.count} rejections"


def _preference(iteration: IterationTrace, node: NodeTrace) -> str:
    """The target's probability of this token and of its most likely token there, in the distribution tested against."""
    parent = iteration.nodes[node.parent_id]
    if node.verdict == "not_reached" or parent.target_argmax is None or node.target_probability is None:
        return ""
    best, given = compared(preferred(iteration, parent.node_id), target_shown(node))
    # The test used another distribution, which an older record does not have.
    where = "" if iteration.tested_top_probs is not None else " at temperature 1"
    if parent.target_argmax == node.token_id:
        return f"It is the target's most likely token here, at {best}{where}."
    favourite = quote(parent.target_argmax_text or f"<{parent.target_argmax}>")
    return f"The target gives {quote(node.text)} {given} and its most likely token, {favourite}, {best}{where}."


def _why_not_reached(known: Known, node: NodeTrace) -> str:
    """Why the verifier did not get to a node: mostly the nearest ancestor where it took another path."""
    nodes, blocker = known.iteration.nodes, node
    # If a verifier tests nodes before their ancestors, an untested node need not lie below a failed one.
    if node.reason == "path_settled" and known.passed is not None:
        kept = nodes[known.passed.child]
        return (
            f"Not tested: {quote(kept.text)} (node {kept.node_id}) had already passed its test, which settled the path."
        )
    if node.reason in ("path_settled", "first_path_only"):
        return _by_code(node)
    while blocker.parent_id > 0 and blocker.parent_id not in known.iteration.accepted:
        blocker = nodes[blocker.parent_id]
    where = f"{quote(blocker.text)} (node {blocker.node_id})"
    if known.iteration.final_kind == "none" and blocker.node_id in known.walked:
        if blocker is node:
            return "The text ended, or reached its length limit, before this token, so it was not committed."
        return f"The text ended, or reached its length limit, before its ancestor {where}."
    if blocker is not node:
        return f"Its ancestor {where} was not accepted, so the verifier never got here."
    if node.parent_id in known.taken:
        taken = nodes[known.taken[node.parent_id]]
        return f"Its sibling {quote(taken.text)} (node {taken.node_id}) was accepted first, so it was not tested."
    return _by_code(node)


def residuals(
    iteration: IterationTrace, place: int, most: int = 5, known: Known | None = None, token: int | None = None
) -> list[dict]:
    """The residuals of the target's distribution at a node, one per rejection there; empty where none is recorded.

    With a `token`, `own` is what each leaves of it. A rejection that changed nothing repeats what was left before it.
    """
    known = known or Known(iteration)
    steps = [s for s in known.decisions.get(place, ()) if s.kind == "test"]
    if not known.sampled or not any(step.residual_ids for step in steps):
        return []
    left = {i: p for i, _, p in target_top(iteration, place)}
    found: list[dict[str, Any]] = []
    whole = gone = refused = False
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        if step.accepted:
            continue
        if step.residual_ids:
            left = dict(zip(step.residual_ids, step.residual_probs, strict=True))
            whole = len(left) < RESIDUAL_TOKENS
        text = quote(iteration.nodes[step.child].text)
        after = f"residual of the target's distribution after {text} was rejected"
        after += f" ({ordinal(len(found) + 1)} rejection)" if found else ""
        rows = [[token_text(iteration, i), p] for i, p in list(left.items())[:most] if p > 0]
        found.append({"after": after, "rows": rows})
        if token is not None:
            # What a rejection took whole no later one gives back.
            gone = gone or bool(following and following.token_id == token and following.acceptance_probability == 0)
            # From the top down a token is rejected only if more than it has is subtracted, which leaves it 0; SpecTr
            # subtracts after its last test. From the leaves up an inner node is rejected for what is below it.
            refused = refused or (step.token_id == token and step.weight is None)
            gone = gone or (refused and bool(step.residual_ids))
            found[-1]["own"] = _left_of(left, token, whole or gone)
            gone = gone or found[-1]["own"] == "0"
    return found


def _left_of(left: Mapping[int, float], token: int, whole: bool) -> str:
    """What a residual leaves of a token; `whole` where a token that is not recorded has 0."""
    if left.get(token):
        return number(left[token], 4)
    if whole or token in left:
        return "0"
    return f"<{number(min(left.values()), 4).removeprefix('<')}" if left else "–"


FREE = "the same target pass already computed what comes next, so this token is free."
LEAF = "The path ended at a leaf of the verified tree"
FINAL_WORDS = {
    "bonus": f"{LEAF}: {FREE}",
    "recovered": "The path ended above a leaf, where nothing drafted was accepted.",
    "fallback": "Nothing drafted was accepted, so this iteration commits one token, as in plain decoding.",
}


def why_final(iteration: IterationTrace) -> str:
    """One sentence on what the final token is and where it came from."""
    kind, last, lost = iteration.final_kind, iteration.accepted[-1] if iteration.accepted else 0, lost_node(iteration)
    if kind == "none":
        if not is_cut(iteration):
            return "No final token: nothing was committed."
        after, ended = would_have(iteration), end_words(iteration)
        said = f"{ended[0].upper()}{ended[1:]}."
        return f"{said} What the verifier chose after it is discarded: {after}." if after else said
    if not iteration.drafted:
        why = why_no_draft(iteration)
        return f"Nothing was drafted{why and f', as {why}'}: this is the target's own token, one per pass."
    drawn = _final_drawn(iteration)
    if lost is not None:
        began = {"bonus": LEAF, "recovered": "The path ended above a leaf"}.get(kind, "Nothing drafted was accepted")
        return (
            f"{began}, but this same token had been drafted there (node {lost.node_id}) and was removed before "
            f"verification: a loss, as it {'could' if is_sampled(iteration) else 'would'} have been accepted, and "
            f"the same pass would have computed the token after it too.{drawn}"
        )
    if not iteration.verified:
        return f"Every drafted node was removed before verification: one token, as in plain decoding.{drawn}"
    if kind == "bonus" and any(node.parent_id == last and node.pruned for node in iteration.nodes):
        return f"{LEAF} (what was drafted below it had been pruned): {FREE}{drawn}"
    if kind == "bonus" and iteration.nodes and iteration.nodes[last].stop_reason != "expanded":
        why = stop_reason_text(iteration, last)
        return f"{LEAF}, below which nothing was drafted: {why}. {FREE[0].upper()}{FREE[1:]}{drawn}"
    return f"{FINAL_WORDS[kind]}{drawn}"


def _final_drawn(iteration: IterationTrace) -> str:
    """The distribution that the final token came from, in a sentence; empty where its choice was not recorded."""
    choice = next((step for step in reversed(iteration.steps) if step.child_id is None), None)
    if choice is None:
        return ""
    text = quote(iteration.final_text or "")
    if not is_sampled(iteration):
        if iteration.interventions or iteration.final_kind == "bonus" or lost_node(iteration) is not None:
            return ""  # forced verdicts change what is likeliest; the others say enough
        return f" {text} is the target's most likely token here."
    return (
        f" {text} was drawn from {_drawn_from(Known(iteration), choice)}, at {chance(choice.acceptance_probability)}."
    )


def lost_node(iteration: IterationTrace) -> NodeTrace | None:
    """The node drafted for the final token's position with that token but removed before verification, else None."""
    if iteration.final_kind == "none":
        return None
    last, token = iteration.accepted[-1] if iteration.accepted else 0, iteration.committed_ids[-1]
    return next((n for n in iteration.nodes if n.parent_id == last and n.pruned and n.token_id == token), None)


def iteration_summary(iteration: IterationTrace) -> str:
    """One sentence on what an iteration did, also its label for a screen reader."""
    tokens = "".join(iteration.committed_texts)
    text = iteration.final_text
    final = f"{iteration.final_kind} token {quote(text)}" if text is not None else "no final token"
    final += f" as {end_words(iteration)}" if is_cut(iteration) else ""
    return (
        f"Iteration {iteration.index + 1}: {plural(iteration.drafted, 'node')} drafted, {iteration.verified} verified, "
        f"{len(iteration.accepted)} accepted, {final}; {plural(len(iteration.committed_ids), 'token')} committed: "
        f"{quote(tokens)}."
    )


def history_changes(history: HistoryTrace | None) -> str:
    """What history adaptation changed after an iteration, `Base depth (D_0) 5 → 6`; empty where it changed nothing."""
    moved = (
        {} if history is None else {name: (history.before.get(name), value) for name, value in history.after.items()}
    )
    return ", ".join(
        f"{setting_title(name)} {before:g} → {after:g}"
        for name, (before, after) in moved.items()
        if isinstance(before, int | float) and isinstance(after, int | float) and before != after
    )


def phase_seconds(iterations: Sequence[IterationTrace]) -> dict[str, float]:
    """Seconds by phase over some iterations; time outside all phases is `other`."""
    seconds = {name: sum(i.phase_s[name] for i in iterations) for name in PHASES}
    total = sum(i.times.total_s for i in iterations)
    seconds["other"] = max(0.0, total - sum(seconds.values()))
    return seconds


def why_not_faster(run: RunTrace, baseline: RunTrace | None = None) -> str:
    """What limits a run after its prompt was read, from its measured phases; against a measured baseline if given."""
    iterations = decoded(run.iterations)
    count = len(iterations)
    if not count:
        return "Only the prompt has been read yet." if run.iterations else "No iteration has been run yet."
    if not run.timed:
        return "An iteration of this run was replayed from recorded logits: its times were not measured."
    seconds = phase_seconds(iterations)
    total = sum(seconds.values())
    tokens = sum(len(i.committed_ids) for i in iterations) / count
    accepted = sum(len(i.accepted) for i in iterations) / count
    passes = sum(i.target_passes for i in iterations)
    pass_s = (seconds["verify"] + seconds["rebuild"]) / max(passes, 1)
    largest = max(seconds, key=lambda phase: seconds[phase])
    if not tokens:
        return "No token was committed."
    token_s = total / count / tokens
    said = (
        f"{PHASE_WORDS[largest].capitalize()} takes {seconds[largest] / total:.0%} of an iteration "
        f"({duration(seconds[largest] / count)} of {duration(total / count)}, a target pass {duration(pass_s)}). It "
        f"commits {tokens:.2f} tokens, {accepted:.2f} of them drafted: {duration(token_s)} per token."
    )
    if seconds["rebuild"] > 0.05 * total:
        said += f" The second target pass of rollback + rebuild takes {seconds['rebuild'] / total:.0%}."
    if baseline is not None and (plain := decoded(baseline.iterations)):
        plain_s = sum(i.times.total_s for i in plain) / (sum(len(i.committed_ids) for i in plain) or 1)
        iteration_s = sum(i.times.total_s for i in iterations) / count
        said += (
            f" {baseline.label} takes {duration(plain_s)} per token, so this run is {plain_s / token_s:.2f}x as "
            f"fast; an iteration has to commit {iteration_s / plain_s:.1f} tokens to break even."
        )
    return said
