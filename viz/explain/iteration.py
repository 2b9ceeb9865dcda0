"""Why, in a sentence: what an iteration ended with and did, why a run is not faster; and, from their own modules, why a
node got its verdict, why it was expanded or not, why a token was not drafted.
"""

from decoding.trace.records import PHASES, IterationTrace, NodeTrace, RunTrace
from viz.explain.growth import why_absent, why_not_expanded, why_pruned
from viz.explain.known import end_words, is_cut, is_sampled, would_have
from viz.explain.verdict import why_verdict
from viz.formats import duration, plural
from viz.theme import PHASE_WORDS
from viz.tokens import quote

__all__ = [
    "iteration_summary",
    "lost_node",
    "phase_seconds",
    "quote",
    "why_absent",
    "why_final",
    "why_not_expanded",
    "why_not_faster",
    "why_pruned",
    "why_verdict",
]

FREE = "the same target pass already holds what comes next, so this token is free."
LEAF = "The path ended at a leaf of the verified tree"
FINAL_WORDS = {
    "bonus": f"The path ended at a leaf: {FREE}",
    "recovered": "The path ended above a leaf: the target's own token takes the place of the rejected ones.",
    "fallback": "Nothing drafted was accepted: the target's own token is committed, as plain decoding would.",
}


def why_final(iteration: IterationTrace) -> str:
    """One sentence on what the final token is and where it came from."""
    if iteration.final_kind == "none":
        return _why_cut(iteration)
    if not iteration.drafted:
        return "Nothing was drafted: this is the target's own token, one per pass."
    last = iteration.accepted[-1] if iteration.accepted else 0
    lost = lost_node(iteration)
    if lost is not None:
        return _why_lost(iteration, lost)
    if iteration.final_kind == "bonus" and any(node.parent_id == last and node.pruned for node in iteration.nodes):
        return f"{LEAF} (what was drafted below it had been pruned): {FREE}"
    return FINAL_WORDS[iteration.final_kind]


def lost_node(iteration: IterationTrace) -> NodeTrace | None:
    """The node that had the final token at its place and was removed before verification, None if there is none."""
    if iteration.final_kind == "none":
        return None
    last, token = iteration.accepted[-1] if iteration.accepted else 0, iteration.committed_ids[-1]
    return next((n for n in iteration.nodes if n.parent_id == last and n.pruned and n.token_id == token), None)


def _why_lost(iteration: IterationTrace, node: NodeTrace) -> str:
    """The final token had been drafted and was not verified: one that could have been accepted, with another behind."""
    began = {"bonus": LEAF, "recovered": "The path ended above a leaf"}.get(
        iteration.final_kind, "Nothing drafted was accepted"
    )
    would = "could" if is_sampled(iteration) else "would"
    return (
        f"{began}, but this very token had been drafted there (node {node.node_id}) and was removed before "
        f"verification: a loss, as verified it {would} have been accepted, and the same pass would hold the token "
        "behind it as well."
    )


def _why_cut(iteration: IterationTrace) -> str:
    """Where the text ended, and what the verifier would have committed after it."""
    if not is_cut(iteration):
        return "No final token: nothing was committed."
    lost, said = would_have(iteration), end_words(iteration)
    said = f"{said[0].upper()}{said[1:]}: no final token."
    return f"{said} Cut off: {lost}." if lost else said


def iteration_summary(iteration: IterationTrace) -> str:
    """One sentence that says what an iteration did, also its label for a screen reader."""
    tokens = "".join(iteration.committed_texts)
    text = iteration.final_text
    final = f"{iteration.final_kind} token {quote(text)}" if text is not None else "no final token"
    final += f" as {end_words(iteration)}" if is_cut(iteration) else ""
    return (
        f"Iteration {iteration.index + 1}: {plural(iteration.drafted, 'node')} drafted, {iteration.verified} verified, "
        f"{len(iteration.accepted)} accepted, {final}; {plural(len(iteration.committed_ids), 'token')} committed: "
        f"{quote(tokens)}."
    )


def phase_seconds(iterations: tuple[IterationTrace, ...]) -> dict[str, float]:
    """Seconds by phase over some iterations; what no phase claims is `other`."""
    seconds = {name: sum(i.phase_s[name] for i in iterations) for name in PHASES}
    total = sum(i.times.total_s for i in iterations)
    seconds["other"] = max(0.0, total - sum(seconds.values()))
    return seconds


def why_not_faster(run: RunTrace, baseline: RunTrace | None = None) -> str:
    """What limits a run, from its measured phases; against a measured baseline where one is given."""
    count = len(run.iterations)
    if not count:
        return "No iteration has been run yet."
    if not run.timed:
        return "An iteration of this run was replayed from stored rows: its times were not measured."
    seconds = phase_seconds(run.iterations)
    total = sum(seconds.values())
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
        f"({duration(seconds[largest] / count)} of {duration(total / count)}) and {accepted:.1f} drafted "
        f"tokens are accepted: with {duration(pass_s)} per target pass, a committed token costs "
        f"{duration(token_s)}."
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
        f"{baseline.label} takes {duration(plain_s)} per token, so this run has {plain_s / token_s:.2f}x its "
        f"speed; an iteration has to commit {iteration_s / plain_s:.1f} tokens to break even."
    )
