"""Facts about a whole iteration that its sentences need: where it was cut, which distribution tests used, what
was forced.

known = Known(iteration)        # computes each fact on first use
said = [why_verdict(iteration, node.node_id, known) for node in iteration.nodes]

The end-of-text token or the requested length may cut a path in the middle, as in autoregressive decoding. The
verifier still decided about the whole tree, so its record goes past the end.

Sentences show the target's distribution that the verifier tested against, after temperature and top-p. A record
without it, and greedy decoding, which needs none, have the target at temperature 1; the text then says so.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from math import inf, isclose
from typing import TypeVar

from decoding.common.formats import beside, listed, number
from decoding.trace.records import (
    TOP_TOKENS,
    IterationTrace,
    NodeTrace,
    SamplingTrace,
    VerificationStep,
    node_paths,
)
from viz.explain.draft_rule import Places
from viz.tokens import quote, token_text

Place = TypeVar("Place", bound=int | None)
Item = TypeVar("Item")


def is_cut(iteration: IterationTrace) -> bool:
    """Whether the text or its requested length ended before the verifier's path did."""
    return iteration.final_kind == "none" and bool(iteration.committed_ids)


def cut_nodes(iteration: IterationTrace) -> tuple[int, ...]:
    """Nodes that the verifier accepted after the end of the text, from the first one down."""
    if not is_cut(iteration) or not iteration.steps:
        return ()
    kept = set(iteration.accepted)
    return tuple(node for node in iteration.path(iteration.steps[-1].node_id)[1:] if node not in kept)


def end_words(iteration: IterationTrace) -> str:
    """Where the text ended."""
    return f"the text ended, or reached its length limit, with {quote(iteration.committed_texts[-1])}"


def would_have(iteration: IterationTrace) -> str:
    """What would have been committed after the end; empty where no test was recorded."""
    last = iteration.steps[-1] if iteration.steps else None
    if last is None or last.child_id is not None:
        return ""
    drafted = [iteration.nodes[node].text for node in cut_nodes(iteration)]
    final = token_text(iteration, last.token_id)
    path = f"{quote(''.join(drafted))} and " if drafted else ""
    return f"{path}the final token {quote(final)}"


AGREES = 1e-3  # relative: probabilities of models are float32, those of tests float64


def is_sampled(iteration: IterationTrace) -> bool:
    """Whether the verifier's decisions were random; at temperature 0 its draws are from certain tokens."""
    greedy = iteration.sampling is not None and iteration.sampling.temperature == 0
    return not greedy and any(step.drawn is not None for step in iteration.steps)


def target_shown(node: NodeTrace) -> float | None:
    """The target's probability of a node as the test used it, at temperature 1 where that is not recorded."""
    return node.target_probability if node.tested_probability is None else node.tested_probability


def target_top(iteration: IterationTrace, place: int) -> tuple[tuple[int, str, float], ...]:
    """The target's top tokens after a node, in the same distribution as `target_shown`."""
    return iteration.tested_top(place) or iteration.target_top(place)


def target_of(iteration: IterationTrace, place: int, token: int) -> tuple[int | None, float | None]:
    """Rank and probability of a token after a node in the same distribution, None where they are not recorded."""
    ranked = enumerate(target_top(iteration, place), start=1)
    return next(((rank, p) for rank, (known, _, p) in ranked if known == token), (None, None))


def preferred(iteration: IterationTrace, place: int) -> float | None:
    """Probability of the target's most likely token after a node in the same distribution."""
    tested = iteration.tested_top(place)
    return tested[0][2] if tested else iteration.nodes[place].target_argmax_probability


def distribution_text(iteration: IterationTrace) -> str:
    """Label of the target's distribution that is shown: `temperature 0.8, top-p 0.9`."""
    if iteration.tested_top_probs is None or iteration.sampling is None:
        return "temperature 1"
    return sampling_words(iteration.sampling)


def sampling_words(sampling: SamplingTrace) -> str:
    """Temperature and top-p of the target, `greedy` at temperature 0."""
    if sampling.temperature == 0:
        return "greedy"
    cut = f", top-p {sampling.top_p:g}" if sampling.top_p < 1 else ""
    return f"temperature {sampling.temperature:g}{cut}"


def target_head(words: str) -> str:
    """Heading of the target's probabilities at a temperature and top-p: `target · T 0.8 · p 0.9`."""
    return f"target · {words.replace('temperature', 'T').replace(', top-p', ' · p')}"


def distribution_title(iteration: IterationTrace) -> tuple[str, str]:
    """Heading for a column of target probabilities, and a sentence on which distribution they come from."""
    if not is_sampled(iteration):
        meaning = "The target's probability of a token here, at temperature 1. Greedy decoding takes the highest."
        return "target", meaning
    words = distribution_text(iteration)
    short = target_head(words)
    if iteration.tested_top_probs is None:
        meaning = (
            "The target's probability of a token here, at temperature 1. The run tested at its own temperature, for "
            "which this record has no probabilities."
        )
        return short, meaning
    meaning = f"The target's probability of a token here, at {words}: the distribution the verifier tested against"
    return short, f"{meaning}{', except for forced verdicts' if iteration.interventions else ''}."


@dataclass(frozen=True, slots=True)
class Rejections:
    """Failed tests at a position: how many, the last, and the draft probability of the rejected tokens."""

    count: int = 0
    last: VerificationStep | None = None
    drafted: float = 0.0


def limit_words(iteration: IterationTrace, step: VerificationStep, before: Rejections) -> str:
    """How a test's probability is computed, ` = target 0.291 / draft 0.606`; empty where the record does not say.

    Both multi-round verifiers take target / draft at a position's first test. After a rejection SpecInfer takes the
    residual / draft, and without replacement the rejected tokens leave the draft's distribution too.
    """
    target, left, draft, rest = _parts(iteration, step, before)
    whose = "residual" if left else "target"
    return f"{whose} {_small(target)} / draft{rest} {_small(draft)}" if draft else ""


def certain_words(iteration: IterationTrace, step: VerificationStep, before: Rejections) -> str:
    """Why a test cannot fail, empty where the record does not say."""
    target, left, draft, rest = _parts(iteration, step, before)
    gives = "the residual gives it" if left else "the target gives it"
    return f"{gives} {_small(target)}, no less than the draft{rest} at {_small(draft)}" if draft else ""


def impossible_words(iteration: IterationTrace, step: VerificationStep, before: Rejections) -> str:
    """Why a test cannot pass, empty where the record does not say."""
    node = iteration.nodes[step.child]
    if node.tested_probability == 0:
        return f"At {distribution_text(iteration)} the target gives it probability 0."
    if step.weight is not None or before.last is None or step.token_id in before.last.residual_ids:
        return ""
    after = quote(iteration.nodes[before.last.child].text)
    if before.count > 1:
        return f"After {before.count} rejections here, the residual gives it 0."
    said = f"After {after} was rejected, the residual gives it 0"
    target, draft = node.tested_probability, node.draft_probability
    if target is None or draft is None or target > draft:
        return said + "."
    return f"{said}: the draft's {_small(draft)}, no less than the target's {_small(target)}, is subtracted."


def _parts(iteration: IterationTrace, step: VerificationStep, before: Rejections) -> tuple[float, bool, float, str]:
    """Numerator, whether it is a residual, denominator, text on it; zeros if none gives the recorded probability."""
    node, last, rest = iteration.nodes[step.child], before.last, 1 - before.drafted
    draft, given = node.draft_probability, node.tested_probability
    if last is not None:
        given = dict(zip(last.residual_ids, last.residual_probs, strict=True)).get(step.token_id)
    if given is not None and step.weight is None and draft:
        for share, words in ((1.0, ""), (rest, " without the rejected")):
            passes = min(1.0, given / (draft / share)) if share > 0 else inf
            if isclose(passes, step.acceptance_probability, rel_tol=AGREES, abs_tol=1e-6):
                return given, last is not None, draft / share, words
    return 0.0, False, 0.0, ""


def _small(value: float) -> str:
    """A probability with three significant digits, so that a reader can check the division."""
    return beside(value, 1.0) if value >= 0.1 else f"{value:.3g}" if value >= 1e-4 else f"{value:.1e}"


MOST_NAMED = 8


class KnownInterventions:
    """The interventions of an iteration by the nodes they affect; forced paths as far as the tree has them."""

    def __init__(self, iteration: IterationTrace):
        self._iteration = iteration
        self._put_in: set[int] = set()
        # By parent: the only token the verifier sees target probability for, and the tokens removed.
        self._only: dict[int, int] = {}
        self._removed: dict[int, list[int]] = {}
        nodes = {path: node for node, path in enumerate(node_paths(iteration))} if iteration.interventions else {}
        for each in iteration.interventions:
            for depth, token in enumerate(each.path):
                place = nodes.get(tuple(each.path[:depth]))
                if place is not None and each.kind == "accept":
                    self._only.setdefault(place, token)
                elif place is not None and each.kind == "reject" and depth == len(each.path) - 1:
                    self._removed.setdefault(place, []).append(token)
            if each.kind == "force_in" and tuple(each.path) in nodes:
                self._put_in.add(nodes[tuple(each.path)])

    def __contains__(self, node_id: int) -> bool:
        """Whether a node was put into the tree, or it or a sibling was force-accepted or force-rejected."""
        parent = self._iteration.nodes[node_id].parent_id
        return node_id in self._put_in or parent in self._only or parent in self._removed

    def words(self, node_id: int, usual: str) -> str:
        """Why a forced, verified node has its verdict; `usual` is the sentence without interventions."""
        said = self._verdict_words(self._iteration.nodes[node_id], usual)
        return f"Forced into the tree: {_lower(said)}" if node_id in self._put_in else said

    def _verdict_words(self, node: NodeTrace, usual: str) -> str:
        gives = number(target_shown(node))
        only, removed = self._only.get(node.parent_id), self._removed.get(node.parent_id, ())
        if node.token_id in removed or node.token_id == only:
            end, word, share = ("fail", "rejected", 0) if node.token_id in removed else ("pass", "accepted", 1)
            forced = f"Force-{word}: the verifier saw a target probability of {share} for this token, not {gives}"
            return f"{forced}." if node.reason == f"forced_{end}" else f"{forced}; {_lower(usual)}"
        if node.verdict not in ("accepted", "rejected"):
            return usual
        if only is not None:
            return f"A sibling was force-accepted: the verifier saw 0 for this token, not {gives}."
        if not removed:
            return usual
        shown = [quote(token_text(self._iteration, token)) for token in removed[:MOST_NAMED]]
        names = listed([*shown, f"{len(removed) - MOST_NAMED:,} more"] if len(removed) > MOST_NAMED else shown)
        if is_sampled(self._iteration):
            return f"With {names} force-rejected: {_lower(usual)}"
        likeliest = "the target's most likely remaining token"
        likeliest = likeliest if node.verdict == "accepted" else "not the most likely remaining token"
        return f"With {names} force-rejected, this was {likeliest}, at {gives}."


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


@dataclass(frozen=True, slots=True)
class DraftRank:
    """The draft's rank and probability of a token after a node.

    Attributes:
        rank: 1 for its likeliest token; None where it is not recorded.
        probability: None where it is not recorded.
        floor: the lowest probability recorded there; an unrecorded token is not above it.
    """

    rank: int | None
    probability: float | None
    floor: float


@dataclass(frozen=True)
class Known:
    """One iteration and facts derived from its whole tree or all its tests."""

    iteration: IterationTrace

    @cached_property
    def stopped_early(self) -> NodeTrace | None:
        """The first node at which a search ended before its places were full; None where it did not."""
        ends = (node for node in self.iteration.nodes if node.stop_reason in ("low_gain", "low_promise"))
        return next(ends, None)

    @cached_property
    def places(self) -> Places:
        """The competition for places in its tree."""
        return Places(self.iteration)

    @cached_property
    def children(self) -> Mapping[int, Sequence[NodeTrace]]:
        """The children of each node that has any, the pruned ones included."""
        return _grouped((node.parent_id, node) for node in self.iteration.nodes[1:])

    @cached_property
    def _draft_top(self) -> Callable[[int], Sequence[tuple[int, str, float]]]:
        return cache(self.iteration.draft_top)

    def draft_rank(self, parent: int, token: int) -> DraftRank:
        """A token after a node, from the draft's recorded top tokens or, for the rank, its raw logits."""
        top = self._draft_top(parent)
        floor = top[-1][2] if len(top) == TOP_TOKENS else 0.0
        for rank, (known, _, probability) in enumerate(top, start=1):
            if known == token:
                return DraftRank(rank, probability, floor)
        return DraftRank(self.iteration.draft_rank(parent, token), None, floor)

    @cached_property
    def sampled(self) -> bool:
        """Whether the verifier's decisions were random."""
        return is_sampled(self.iteration)

    @cached_property
    def interventions(self) -> KnownInterventions:
        """The interventions."""
        return KnownInterventions(self.iteration)

    @cached_property
    def forced_out(self) -> frozenset[int]:
        """Nodes forced out before verification, including those below them."""
        return self.iteration.forced_out

    @cached_property
    def cut(self) -> frozenset[int]:
        """Nodes that the verifier accepted after the end of the text."""
        return frozenset(cut_nodes(self.iteration))

    @cached_property
    def after_end(self) -> frozenset[int]:
        """Nodes decided on after the end of the text: where the text ended, and what was cut off."""
        ended_at = self.iteration.accepted[-1] if self.iteration.accepted else 0
        return frozenset((ended_at, *self.cut)) if is_cut(self.iteration) else frozenset()

    @cached_property
    def taken(self) -> Mapping[int, int]:
        """The accepted node below each node of the accepted path."""
        return {self.iteration.nodes[node].parent_id: node for node in self.iteration.accepted}

    @cached_property
    def walked(self) -> frozenset[int]:
        """Nodes from the root down to the verifier's last decision."""
        steps = self.iteration.steps
        return frozenset(self.iteration.path(steps[-1].node_id)) if steps else frozenset()

    @cached_property
    def decisions(self) -> Mapping[int, Sequence[VerificationStep]]:
        """Tests, matches and choices by the node below which they were made."""
        return _grouped((step.node_id, step) for step in self.iteration.steps)

    @cached_property
    def about(self) -> Mapping[int | None, Sequence[VerificationStep]]:
        """Tests, matches and choices by the child they concern."""
        return _grouped((step.child_id, step) for step in self.iteration.steps)

    @cached_property
    def matches(self) -> Mapping[int, Sequence[VerificationStep]]:
        """Matches between two nodes by either of them."""
        matches = [s for s in self.iteration.steps if s.kind == "match" and s.child_id != s.rival_id]
        return _grouped((node, step) for step in matches for node in (step.child, step.rival))

    def choice(self, node_id: int) -> VerificationStep | None:
        """The first choice made below a node."""
        return next((step for step in self.decisions.get(node_id, ()) if step.kind == "choice"), None)

    @cached_property
    def passed(self) -> VerificationStep | None:
        """The first test that passed."""
        tests = (step for step in self.iteration.steps if step.kind == "test" and step.child_id is not None)
        return next((step for step in tests if step.accepted), None)

    def before(self, step: VerificationStep) -> Rejections:
        """What had been rejected at the position of a test before it."""
        return self._rejections[id(step)]

    @cached_property
    def _rejections(self) -> Mapping[int, Rejections]:
        """By the step's `id`: equal tests may occur twice."""
        before: dict[int, Rejections] = {}
        at_place: dict[int, Rejections] = {}
        gone: set[int] = set()
        for step in self.iteration.steps:
            so_far = before.setdefault(id(step), at_place.get(step.node_id, Rejections()))
            if step.kind == "test" and not step.accepted:
                given = 0.0 if step.child in gone else self.iteration.nodes[step.child].draft_probability or 0.0
                gone.add(step.child)
                at_place[step.node_id] = Rejections(so_far.count + 1, step, so_far.drafted + given)
        return before


def _grouped(pairs: Iterable[tuple[Place, Item]]) -> dict[Place, list[Item]]:
    """Steps or children in their order by node."""
    found = defaultdict[Place, list[Item]](list)
    for node, item in pairs:
        found[node].append(item)
    return dict(found)
