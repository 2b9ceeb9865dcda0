"""Why a token is not in the draft tree: what stopped it, by the rule that drafted the tree and its recorded numbers.

    why_absent(iteration, parent, token_id)   # "The draft's 3rd choice here: confidence 0.96 ≥ 0.9 allows 1 child."

No model is run. Nothing here applies to a token that was drafted: `viz.explain.verdict` tells what became of it.
"""

from functools import cached_property

from decoding.trace.records import TOP_TOKENS, IterationTrace
from viz.explain.draft_rule import DraftRank, DraftRanks
from viz.explain.growth import breadth_words, growth_words, value_of
from viz.explain.known import Known
from viz.formats import apart, beside, chance, listed, number, ordinal, plural
from viz.tokens import quote


class Absences:
    """The reasons of one iteration; what several of them need is computed once."""

    def __init__(self, known: Known):
        self.iteration, self.rule = known.iteration, known.iteration.rule
        self._known, self._ranks = known, DraftRanks(known.iteration)
        self._children: dict[int, list[int]] = {}
        for node in self.iteration.nodes[1:]:
            self._children.setdefault(node.parent_id, []).append(node.node_id)

    def why(self, parent_id: int, token_id: int) -> str:
        """One or two sentences on why a token was not drafted after a node."""
        iteration, parent = self.iteration, self.iteration.nodes[parent_id]
        if not iteration.drafted:
            return self._nothing_drafted()
        if parent.growth != "expanded":
            where = "the last committed token" if parent_id == 0 else quote(parent.text)
            return f"Nothing was drafted after {where}: {growth_words(iteration, parent_id, self._known)}."
        draft = self._ranks.of(parent_id, token_id)
        if iteration.law != "deterministic":
            return self._not_drawn(parent_id, draft)
        if self.rule.value != "none":
            return self._no_place(parent_id, draft)
        return self._too_low(parent_id, draft)

    def children_of(self, parent_id: int) -> dict[int, int]:
        """Ids of the nodes drafted after a node by token, the pruned ones included."""
        return {self.iteration.nodes[child].token_id: child for child in self._children.get(parent_id, [])}

    def _nothing_drafted(self) -> str:
        if self.iteration.nodes[0].growth == "not_drafted":
            return "This method drafts nothing: the target writes every token itself."
        if self.iteration.nodes[0].growth == "unprofitable":
            return "Nothing was drafted here: drafting did not promise more tokens per second than decoding without it."
        return f"Nothing was drafted here: {growth_words(self.iteration, 0, self._known)}."

    def _too_low(self, parent_id: int, draft: DraftRank) -> str:
        """Rules that take the draft's best children of every node: the rank decides, then the budget."""
        width = self.iteration.nodes[parent_id].branching or 0
        if draft.rank is not None and draft.rank <= width:
            budget = value_of(self.iteration, "node_budget", " of {}")
            return f"{_choice(draft)}; it was one of {width}, but the node budget{budget} was used up before its turn."
        words = breadth_words(self.iteration, self.iteration.nodes[parent_id])
        return f"{_choice(draft)}; {words}.{self._pruned_anyway(parent_id, draft)}"

    def _pruned_anyway(self, parent_id: int, draft: DraftRank) -> str:
        """A second hurdle that the token would have met."""
        limit = self.iteration.settings.get("prune_probability")
        known = isinstance(limit, int | float) and draft.probability is not None
        if not known or self.rule.left_out != "improbable":
            return ""
        path = self.iteration.nodes[parent_id].path_probability * draft.probability
        if path >= limit:
            return ""
        return f" Its path probability {beside(path, limit)} is below prune_probability {limit:g} as well."

    def _no_place(self, parent_id: int, draft: DraftRank) -> str:
        """Rules that give places to the tokens of highest value."""
        places = self._known.places
        if (draft.rank or TOP_TOKENS + 1) > places.children:
            named = f" ({self.rule.children_setting})" if self.rule.children_setting else ""
            return f"{_choice(draft)}; only the first {places.children} children of a node are scored{named}."
        if draft.probability is None:
            full = self.iteration.verified >= places.budget
            if full or places.value(parent_id, TOP_TOKENS + 1, draft.floor) <= places.last:
                return f"{_choice(draft)}; every node that has a place is worth {number(places.last, 3)} at least."
            return f"{_choice(draft)}. {self._stopped_early}"
        value = places.value(parent_id, draft.rank, draft.probability)
        rank, exact = places.rank(value)
        what = "chance of acceptance" if places.by_chance else "path probability"
        what = "decayed path probability" if self.rule.decay < 1 else what
        at = f"{'' if exact else 'at best '}{ordinal(rank)} of all tokens scored"
        said = f"{_choice(draft)}; its {what} {number(value, 3)} is {at}"
        if places.by_chance:
            return f"{said}, and {plural(self.iteration.verified, 'node')} made the most tokens per second."
        if self.iteration.verified >= places.budget:
            return f"{said}, and the {places.budget} places went at {number(places.last, 3)} or more."
        return f"{said}. {self._stopped_early}"

    @cached_property
    def _stopped_early(self) -> str:
        """A search that ended before its places were full."""
        stopped = next((n for n in self.iteration.nodes if n.growth in ("low_gain", "low_promise")), None)
        if stopped is not None:
            words = growth_words(self.iteration, stopped.node_id, self._known)
            return f"{words[0].upper()}{words[1:]}."
        return f"The tree ended with {plural(self.iteration.verified, 'node')}."

    def _not_drawn(self, parent_id: int, draft: DraftRank) -> str:
        """Rules that draw: how likely the draws made here were to take the token, and why there were no more."""
        children = [self.iteration.nodes[child] for child in self._children.get(parent_id, [])]
        count = sum(child.multiplicity for child in children)
        made = plural(count, "draw") + (" was" if count == 1 else " were") + " made here"
        if draft.probability is None:
            return f"Not drawn: {made}, and it is not among the draft's {TOP_TOKENS} likeliest tokens{_floor(draft)}."
        if self.iteration.law != "without_replacement":
            reach = 1 - (1 - draft.probability) ** count
            if count == 1:
                return f"Not drawn: {made}, which takes it with probability {chance(reach)}."
            each = f"each takes it with probability {chance(draft.probability)}"
            return f"Not drawn: {made}; {each}, so at least one does with probability {chance(reach)}."
        said = f"Not drawn: {made}, {_chances(draft.probability, children)}."
        return f"{said} {self._no_more(parent_id, children)}".strip()

    def _no_more(self, parent_id: int, children: list) -> str:
        """Why the drawing without replacement ended at a node."""
        iteration, left = self.iteration, max(1.0 - sum(child.draft_probability for child in children), 0.0)
        worth = iteration.nodes[parent_id].path_probability * left
        breadth = iteration.nodes[parent_id].breadth
        if breadth == "outdrawn":
            more, least = apart(worth, self._known.places.least_draw)
            made = plural(iteration.drafted, "draw")
            return (
                f"One more here counts {more}, the path probability times what the draft has left; the {made} of this "
                f"tree counted {least} or more."
            )
        name = self.rule.threshold_setting
        threshold = iteration.settings.get(name)
        if breadth == "worth" and isinstance(threshold, int | float):
            return f"One more was worth {beside(worth, threshold)}, below {name} {threshold:.3g}."
        return {
            "budget": f"The node budget{value_of(iteration, 'node_budget', ' of {}')} ended the drawing.",
            "shape": f"The shape has {plural(len(children), 'child', 'children')} at this place.",
            "all_drawn": "Every token that the draft gives a probability was drawn.",
        }.get(breadth, "")


def why_absent(iteration: IterationTrace, parent_id: int, token_id: int) -> str:
    """Why a token was not drafted after a node; `Absences` where many are asked about."""
    return Absences(Known(iteration)).why(parent_id, token_id)


def _choice(draft: DraftRank) -> str:
    """The draft's opinion of the token, as the beginning of a sentence."""
    if draft.rank is None:
        return f"Not among the draft's {TOP_TOKENS} likeliest tokens here{_floor(draft)}"
    probability = "" if draft.probability is None else f" at {number(draft.probability, 3)}"
    return f"The draft's {ordinal(draft.rank)} choice here{probability}"


def _floor(draft: DraftRank) -> str:
    """What the recorded tokens have at least."""
    return f" (each at least {number(draft.floor, 3)})" if draft.floor >= 5e-4 else ""


def _chances(probability: float, children: list) -> str:
    """What each draw without replacement gave the token, given those before it."""
    chances, left = [], 1.0
    for child in children:
        chances.append(min(probability / left, 1.0) if left > 0 else 1.0)
        left -= child.draft_probability
    if len(chances) == 1:
        return f"which takes it with probability {chance(chances[0])}"
    if len(chances) <= 3:
        return f"which could take it with probability {listed([chance(each) for each in chances])} in turn"
    return f"which could take it with probability {chance(chances[0])} at first and {chance(chances[-1])} at last"
