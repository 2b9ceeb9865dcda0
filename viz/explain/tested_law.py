"""Which of the target's laws a view shows: the one that the verifier tested against, else the one at temperature 1.

A sampled run tests against the target's law after temperature and top-p. A record that was written without it, and
greedy decoding, which needs no law, have the target at temperature 1; then the words say so.
"""

from dataclasses import dataclass
from math import isclose

from decoding.trace.records import IterationTrace, NodeTrace, SamplingTrace, VerificationStep
from viz.formats import beside
from viz.tokens import quote

AGREES = 1e-3  # relative: probabilities of models are float32, those of tests float64


def is_sampled(iteration: IterationTrace) -> bool:
    """Whether chance had a say in the verifier's decisions."""
    return any(step.drawn is not None for step in iteration.steps)


def target_shown(node: NodeTrace) -> float | None:
    """The target's probability of a node as the test used it, at temperature 1 where that is not known."""
    return node.target_probability if node.tested_probability is None else node.tested_probability


def target_top(iteration: IterationTrace, place: int) -> tuple[tuple[int, str, float], ...]:
    """Top of the target's law after a node in the same law as `target_shown`."""
    return iteration.tested_top(place) or iteration.target_top(place)


def preferred(iteration: IterationTrace, place: int) -> float | None:
    """Probability of the target's favourite after a node in the same law."""
    tested = iteration.tested_top(place)
    return tested[0][2] if tested else iteration.nodes[place].target_argmax_probability


def law_words(iteration: IterationTrace) -> str:
    """The target's law that is shown, in the words of a label: `temperature 0.8, top-p 0.9`."""
    sampling = iteration.sampling
    if iteration.tested_top_probs is None or sampling is None:
        return "temperature 1"
    return sampling_words(sampling)


def sampling_words(sampling: SamplingTrace) -> str:
    """Temperature and top-p of the target, `greedy` at temperature 0."""
    if sampling.temperature == 0:
        return "greedy"
    cut = f", top-p {sampling.top_p:g}" if sampling.top_p < 1 else ""
    return f"temperature {sampling.temperature:g}{cut}"


def law_head(iteration: IterationTrace) -> tuple[str, str]:
    """Head of a column of the target's probabilities, and a sentence on which law they are of."""
    if not is_sampled(iteration):
        told = "What the target gives a token here, at temperature 1. Greedy decoding takes the largest."
        return "target", told
    words = law_words(iteration)
    short = words.replace("temperature", "T").replace(", top-p", " · p")
    if iteration.tested_top_probs is None:
        told = (
            "What the target gives a token here at temperature 1. The run tested at its own temperature, and this "
            "record does not have the target there."
        )
        return f"target · {short}", told
    told = f"What the target gives a token here at {words}: the law that the verifier tested with"
    return f"target · {short}", f"{told}{', verdicts forced by hand aside' if iteration.forced else ''}."


@dataclass(frozen=True, slots=True)
class Rejections:
    """Failed tests at a place: how many, the last of them, and what the draft gave the tokens rejected."""

    count: int = 0
    last: VerificationStep | None = None
    drafted: float = 0.0


def rejections(iteration: IterationTrace) -> dict[int, Rejections]:
    """What had been rejected at its place before each step, by the step's `id`: equal tests may come twice."""
    before: dict[int, Rejections] = {}
    at_place: dict[int, Rejections] = {}
    gone: set[int | None] = set()
    for step in iteration.steps:
        so_far = before.setdefault(id(step), at_place.get(step.node_id, Rejections()))
        if step.kind == "test" and not step.accepted:
            given = 0.0 if step.child_id in gone else iteration.nodes[step.child_id].draft_probability or 0.0
            gone.add(step.child_id)
            at_place[step.node_id] = Rejections(so_far.count + 1, step, so_far.drafted + given)
    return before


def limit_words(iteration: IterationTrace, step: VerificationStep, before: Rejections) -> str:
    """Where a test's probability comes from, ` = target 0.291 / draft 0.606`; empty where the record does not tell.

    Both multi-round verifiers take target / draft at a place's first test. After a rejection SpecInfer takes what is
    left of the target / draft, and without replacement the rejected tokens leave the draft's law too.
    """
    parts = _parts(iteration, step, before)
    if parts is None:
        return ""
    target, left, draft, rest = parts
    return f"{'what is left of the target' if left else 'target'} {_small(target)} / draft{rest} {_small(draft)}"


def certain_words(iteration: IterationTrace, step: VerificationStep, before: Rejections) -> str:
    """Why a test cannot fail, empty where the record does not tell."""
    parts = _parts(iteration, step, before)
    if parts is None:
        return ""
    target, left, draft, rest = parts
    gives = "what is left of the target gives it" if left else "the target gives it"
    return f"{gives} {_small(target)}, no less than the draft{rest} with {_small(draft)}"


def impossible_words(iteration: IterationTrace, step: VerificationStep, before: Rejections) -> str:
    """Why a test cannot pass, empty where the record does not tell."""
    node = iteration.nodes[step.child_id]
    if node.tested_probability == 0:
        return f"At {law_words(iteration)} the target gives it nothing."
    if step.weight is not None or before.last is None or step.token_id in before.last.residual_ids:
        return ""
    after = quote(iteration.nodes[before.last.child_id].text)
    if before.count > 1:
        return f"After {before.count} rejections here nothing of the target's probability is left for it."
    said = f"After {after} was rejected nothing of the target's probability is left for it"
    target, draft = node.tested_probability, node.draft_probability
    if target is None or draft is None or target > draft:
        return said + "."
    return f"{said}: the draft's {_small(draft)}, no less than the target's {_small(target)}, is taken off."


def _parts(
    iteration: IterationTrace, step: VerificationStep, before: Rejections
) -> tuple[float, bool, float, str] | None:
    """Numerator, whether it is a residual, denominator and words on it, if they give the recorded probability."""
    node, passes = iteration.nodes[step.child_id], step.acceptance_probability
    draft, last = node.draft_probability, before.last
    if step.weight is not None or not draft:
        return None
    if last is None:
        target = node.tested_probability
        return (target, False, draft, "") if target is not None and _gives(target, draft, passes) else None
    left = dict(zip(last.residual_ids, last.residual_probs, strict=True)).get(step.token_id)
    if left is None:
        return None
    rest = 1 - before.drafted
    if _gives(left, draft, passes):
        return left, True, draft, ""
    if rest > 0 and _gives(left, draft / rest, passes):
        return left, True, draft / rest, " without the rejected"
    return None


def _gives(target: float, draft: float, passes: float) -> bool:
    """Whether a quotient is the probability of the test that was made."""
    return isclose(min(1.0, target / draft), passes, rel_tol=AGREES, abs_tol=1e-6)


def _small(value: float) -> str:
    """A probability with three digits that count, so that a reader's own division comes out."""
    return beside(value, 1.0) if value >= 0.1 else f"{value:.3g}" if value >= 1e-4 else f"{value:.1e}"
