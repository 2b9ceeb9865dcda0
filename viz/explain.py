"""Why, in a sentence: why a node got its verdict, why it was not expanded, why a run is not faster."""

from collections.abc import Mapping

from decoding.trace import PHASES, IterationTrace, NodeTrace, RunTrace, VerificationStep
from viz.theme import PHASE_WORDS
from viz.tokens import milliseconds, number, plural, visible

FINAL_WORDS = {
    "bonus": "The path ended at a leaf: the same target pass already holds what comes next, so this token is free.",
    "recovered": "The path ended above a leaf: the target's own token takes the place of the rejected ones.",
    "fallback": "Nothing drafted was accepted: the target's own token is committed, as plain decoding would.",
}


def quote(text: str) -> str:
    """A token in a sentence."""
    return f"‘{visible(text, 24)}’"


def why_verdict(iteration: IterationTrace, node_id: int) -> str:
    """One or two sentences on why the verifier decided as it did about a node."""
    node = iteration.nodes[node_id]
    if node.verdict == "root":
        return "The last committed token, not drafted: this pass writes its key/value row and reads what follows it."
    if node.verdict == "not_verified":
        return why_pruned(iteration, node_id) or node.reason or "It was drafted but not given to the target."
    if node.verdict == "not_reached":
        return _why_not_reached(iteration, node)
    tests = [step for step in iteration.steps if step.child_id == node_id]
    if not tests and node.reason and any(step.drawn is not None for step in iteration.steps):
        return f"{node.reason} {_preference(iteration, node)}"
    said = f"{_preference(iteration, node)} {_tests(tests)}".strip()
    if node.verdict == "rejected" and said and tests and all(step.drawn is None for step in iteration.steps):
        said += " Greedy decoding keeps only the favourite."
    return said or node.reason or f"It was {node.verdict}."


def _preference(iteration: IterationTrace, node: NodeTrace) -> str:
    """What the target gives this token, beside its favourite at the same place."""
    parent = iteration.nodes[node.parent_id]
    if parent.target_argmax is None or node.target_probability is None:
        return ""
    if parent.target_argmax == node.token_id:
        return f"The target prefers this token too, at {number(parent.target_argmax_probability)}."
    favourite = quote(parent.target_argmax_text or f"<{parent.target_argmax}>")
    best = number(parent.target_argmax_probability)
    return f"The target prefers {favourite} at {best}; this token has {number(node.target_probability)}."


def _tests(tests: list[VerificationStep]) -> str:
    """The tests of one node with what was drawn."""
    sentences = []
    for step in tests:
        if step.kind == "choice":
            sentences.append(f"Drawn here from what was left of the target's law, which gives it "
                             f"{number(step.acceptance_probability)}.")  # fmt: skip
            continue
        if step.kind == "match":
            kept = "won" if step.accepted else "lost"
            sentences.append(f"It {kept} its match against node {step.rival_id}, which it wins with probability "
                             f"{number(step.acceptance_probability)}.")  # fmt: skip
            continue
        outcome = "accepted" if step.accepted else "rejected"
        if step.drawn is None:
            if step.acceptance_probability in (0.0, 1.0):
                # Without a draw the preference sentence has said it all; greedy decoding keeps only the favourite.
                continue
            sentences.append(f"Test with probability {number(step.acceptance_probability)}: {outcome}.")
        else:
            sign = "<" if step.accepted else "≥"
            sentences.append(
                f"Accepted with probability {number(step.acceptance_probability)}; "
                f"drawn {number(step.drawn)} {sign} {number(step.acceptance_probability)}: {outcome}."
            )
    return " ".join(sentences)


def _why_not_reached(iteration: IterationTrace, node: NodeTrace) -> str:
    """The nearest ancestor where the walk went another way."""
    accepted = set(iteration.accepted)
    blocker = node
    while blocker.parent_id > 0 and blocker.parent_id not in accepted:
        blocker = iteration.nodes[blocker.parent_id]
    if blocker is not node:
        where = f"{quote(blocker.text)} (node {blocker.node_id})"
        return f"Its ancestor {where} was not accepted, so the verifier never came here."
    taken = next((n for n in iteration.nodes if n.parent_id == node.parent_id and n.node_id in accepted), None)
    if taken is not None:
        return f"Its sibling {quote(taken.text)} (node {taken.node_id}) was taken first, so it was not tested."
    return node.reason or "The verifier stopped before it came here."


def why_not_expanded(iteration: IterationTrace, node_id: int) -> str:
    """One sentence on why a node was expanded or not, with the numbers of the rule that decided."""
    node, settings = iteration.nodes[node_id], iteration.settings
    path = number(node.path_probability, 3)
    if node.growth == "expanded":
        sure = (
            f"draft confidence {number(node.confidence)}{_band(node, settings)} → "
            if node.confidence is not None
            else ""
        )
        return f"expanded: {sure}{plural(node.branching or 0, 'child', 'children')}"
    rules = {
        "max_depth": f"depth {node.depth} is the deepest level{_setting(settings, 'max_depth', ' (max_depth {})')}",
        "early_stop": _early_stop(settings, path),
        "depth_gate": (
            f"beyond base_depth{_setting(settings, 'base_depth', ' {}')} only paths of at least deep_probability"
            f"{_setting(settings, 'deep_probability', ' {}')} grow; this one has {path}"
        ),
        "budget": f"the node budget{_setting(settings, 'node_budget', ' of {}')} was used up by likelier nodes",
        "below_threshold": (
            f"path probability {path} is below the threshold{_setting(settings, _threshold(settings), ' {}')}"
        ),
        "length_limit": "the text's length limit is reached there",
        "not_drafted": "the draft model proposed nothing after it",
    }
    return f"not expanded: {rules[node.growth]}"


def _early_stop(settings: Mapping, path: str) -> str:
    """What ended the drafting here: a path that is too improbable, or a whole round that promised too little."""
    if "level_ms" in settings:
        return "going on below it did not promise more tokens per second at this machine's costs"
    if "gain_threshold" not in settings:
        return f"path probability {path} < stop_probability{_setting(settings, 'stop_probability', ' {}')}"
    limit = _setting(settings, "gain_threshold", " {}")
    return f"drafting stopped: the next round promised less than gain_threshold{limit}"


def _threshold(settings: Mapping) -> str:
    """Name of the setting behind `below_threshold`; drafters call it differently."""
    return next((name for name in ("threshold", "path_threshold", "prune_probability") if name in settings), "")


def _setting(settings: Mapping, name: str, template: str) -> str:
    return template.format(f"{settings[name]:g}") if isinstance(settings.get(name), int | float) else ""


def _band(node: NodeTrace, settings: Mapping) -> str:
    """Where a confidence lies between the two thresholds of adaptive branching."""
    high, low = settings.get("confidence_high"), settings.get("confidence_low")
    if not isinstance(high, int | float) or not isinstance(low, int | float):
        return ""
    if node.confidence >= high:
        return f" ≥ {high:g}"
    return f" < {low:g}" if node.confidence < low else f" in {low:g}…{high:g}"


def why_pruned(iteration: IterationTrace, node_id: int) -> str:
    """One sentence on why a node was removed before verification, empty if it was not."""
    node = iteration.nodes[node_id]
    if not node.pruned:
        return ""
    if "level_ms" in iteration.settings:
        return "Removed before verification: without it more tokens per second were to be expected."
    limit = _setting(iteration.settings, "prune_probability", " {}")
    if not limit:
        budget = _setting(iteration.settings, "node_budget", "{} ")
        return f"Removed before verification: it is not among the {budget}nodes of highest value."
    if node.path_probability >= iteration.settings["prune_probability"]:
        return node.reason or "Removed before verification together with an ancestor."
    path = number(node.path_probability, 3)
    return f"Removed before verification: path probability {path} < prune_probability{limit}."


def why_final(iteration: IterationTrace) -> str:
    """One sentence on what the final token is and where it came from."""
    if iteration.final_kind == "none":
        return "The path was cut by the end of the text or the length limit: no final token."
    if not iteration.drafted:
        return "Nothing was drafted: this is the target's own token, one per pass."
    return FINAL_WORDS[iteration.final_kind]


def iteration_summary(iteration: IterationTrace) -> str:
    """One sentence that says what an iteration did, also its label for a screen reader."""
    tokens = "".join(iteration.committed_texts)
    text = iteration.final_text
    final = "no final token" if text is None else f"{iteration.final_kind} token {quote(text)}"
    return (
        f"Iteration {iteration.index + 1}: {plural(iteration.drafted, 'node')} drafted, {iteration.verified} verified, "
        f"{len(iteration.accepted)} accepted, {final}; {plural(len(iteration.committed_ids), 'token')} committed: "
        f"{quote(tokens)}."
    )


def phase_seconds(iterations: tuple[IterationTrace, ...]) -> dict[str, float]:
    """Seconds by phase over some iterations; what no phase claims is `other`."""
    seconds = {name: sum(getattr(i.times, f"{name}_s") for i in iterations) for name in PHASES}
    total = sum(i.times.total_s for i in iterations)
    seconds["other"] = max(0.0, total - sum(seconds.values()))
    return seconds


def why_not_faster(run: RunTrace, baseline: RunTrace | None = None) -> str:
    """What limits a run, from its measured phases; against a measured baseline where one is given."""
    count = len(run.iterations)
    if not count:
        return "No iteration has been run yet."
    seconds = phase_seconds(run.iterations)
    total = sum(seconds.values()) or 1e-12
    tokens = sum(len(i.committed_ids) for i in run.iterations) / count
    accepted = sum(len(i.accepted) for i in run.iterations) / count
    passes = sum(i.target_passes for i in run.iterations)
    pass_s = (seconds["verify"] + seconds["rebuild"]) / max(passes, 1)
    largest = max(seconds, key=seconds.get)
    if not tokens:
        return "No token was committed."
    token_s = total / count / tokens
    said = (
        f"{PHASE_WORDS[largest].capitalize()} takes {seconds[largest] / total:.0%} of each iteration "
        f"({milliseconds(seconds[largest] / count)} of {milliseconds(total / count)}) and {accepted:.1f} drafted "
        f"tokens are accepted: with {milliseconds(pass_s)} per target pass, a committed token costs "
        f"{milliseconds(token_s)}."
    )
    if seconds["rebuild"] > 0.05 * total:
        said += f" The second target pass of rollback + rebuild takes {seconds['rebuild'] / total:.0%}."
    return said if baseline is None or not baseline.iterations else f"{said} {_against(run, baseline, token_s)}"


def _against(run: RunTrace, baseline: RunTrace, token_s: float) -> str:
    """The comparison with a measured baseline, and how many tokens an iteration would need to break even."""
    plain_total = sum(i.times.total_s for i in baseline.iterations)
    plain_tokens = sum(len(i.committed_ids) for i in baseline.iterations) or 1
    plain_s = plain_total / plain_tokens
    iteration_s = sum(i.times.total_s for i in run.iterations) / len(run.iterations)
    return (
        f"{baseline.label} takes {milliseconds(plain_s)} per token, so this run has {plain_s / token_s:.2f}x its "
        f"speed; an iteration has to commit {iteration_s / plain_s:.1f} tokens to break even."
    )
