"""Why a token is not in the draft tree: what stopped it, by the rule that drafted the tree and its recorded numbers.

    why_absent(iteration, parent, token_id)   # "The draft's 3rd choice here: confidence 0.96 ≥ 0.9 allows 1 child."

No model is run. Nothing here applies to a token that was drafted: `viz.why_verdict` tells what became of it.
"""

from decoding.trace import TOP_TOKENS, IterationTrace
from viz.draft_rule import RANKED, DraftRank, DraftRanks, Places, rule_of
from viz.tokens import number, plural
from viz.why_growth import confidence_words, growth_words, value_of
from viz.words import apart, beside, chance, listed, ordinal, quote


class Absences:
    """The reasons of one iteration; what several of them need is computed once."""

    def __init__(self, iteration: IterationTrace):
        self.iteration, self.rule = iteration, rule_of(iteration.settings)
        self._places, self._ranks = Places(iteration), DraftRanks(iteration)
        self._children: dict[int, list[int]] = {}
        for node in iteration.nodes[1:]:
            self._children.setdefault(node.parent_id, []).append(node.node_id)

    def why(self, parent_id: int, token_id: int) -> str:
        """One or two sentences on why a token was not drafted after a node."""
        iteration, parent = self.iteration, self.iteration.nodes[parent_id]
        if not iteration.drafted:
            return self._nothing_drafted()
        if parent.growth != "expanded":
            where = "the last committed token" if parent_id == 0 else quote(parent.text)
            return f"Nothing was drafted after {where}: {growth_words(iteration, parent_id, self._places)}."
        draft = self._ranks.of(parent_id, token_id)
        if iteration.law != "deterministic":
            return self._not_drawn(parent_id, draft)
        if self.rule in RANKED:
            return self._no_place(parent_id, draft)
        return self._too_low(parent_id, draft)

    def children_of(self, parent_id: int) -> dict[int, int]:
        """Ids of the nodes drafted after a node by token, the pruned ones included."""
        return {self.iteration.nodes[child].token_id: child for child in self._children.get(parent_id, [])}

    def _nothing_drafted(self) -> str:
        if self.rule == "none":
            return "This method drafts nothing: the target writes every token itself."
        if self.rule == "hardware_aware":
            return "Nothing was drafted here: drafting did not promise more tokens per second than decoding without it."
        return f"Nothing was drafted here: {growth_words(self.iteration, 0, self._places)}."

    def _too_low(self, parent_id: int, draft: DraftRank) -> str:
        """Rules that take the draft's best children of every node: the rank decides, then the budget."""
        width = self.iteration.nodes[parent_id].branching or 0
        if draft.rank is not None and draft.rank <= width:
            budget = value_of(self.iteration, "node_budget", " of {}")
            return f"{_choice(draft)}; it was one of {width}, but the node budget{budget} was used up before its turn."
        return f"{_choice(draft)}; {self._width_words(parent_id, width)}.{self._pruned_anyway(parent_id, draft)}"

    def _width_words(self, parent_id: int, width: int) -> str:
        """How many children the rule took here, and what decided it."""
        settings, node = self.iteration.settings, self.iteration.nodes[parent_id]
        count = plural(width, "child", "children")
        if self.rule == "linear":
            return "a chain takes the first choice only"
        if self.rule == "widths":
            return f"the widths give {count} at this level"
        if parent_id == 0 and settings.get("branch_first_level") is False:
            return "the first level takes the draft's first choice alone (branch_first_level is off)"
        if self.rule == "dynatree" and settings.get("adaptive_breadth") is False:
            return f"every node gets branch_mid{value_of(self.iteration, 'branch_mid', ' {}')} children"
        if self.rule == "dynatree" and node.confidence is not None:
            return f"confidence {confidence_words(self.iteration, node)} allows {count}"
        if self.rule == "fixed_tree":
            return f"every node gets the draft's best {count}"
        return f"{count} {'was' if width == 1 else 'were'} drafted here"

    def _pruned_anyway(self, parent_id: int, draft: DraftRank) -> str:
        """A second hurdle that the token would have met."""
        limit = self.iteration.settings.get("prune_probability")
        if not isinstance(limit, int | float) or draft.probability is None:
            return ""
        path = self.iteration.nodes[parent_id].path_probability * draft.probability
        if path >= limit:
            return ""
        return f" Its path probability {beside(path, limit)} is below prune_probability {limit:g} as well."

    def _no_place(self, parent_id: int, draft: DraftRank) -> str:
        """Rules that give places to the tokens of highest value."""
        places = self._places
        if (draft.rank or TOP_TOKENS + 1) > places.children:
            setting = {"eagle2": " (beam_width)", "specexec": " (children)"}.get(self.rule, "")
            return f"{_choice(draft)}; only the first {places.children} children of a node are scored{setting}."
        if draft.probability is None:
            full = self.iteration.verified >= places.budget
            if full or places.value(parent_id, TOP_TOKENS + 1, draft.floor) <= places.last:
                return f"{_choice(draft)}; every node that has a place is worth {number(places.last, 3)} at least."
            return f"{_choice(draft)}. {self._stopped_early()}"
        value = places.value(parent_id, draft.rank, draft.probability)
        rank, exact = places.rank(value)
        what = "chance of acceptance" if self.rule == "hardware_aware" else "path probability"
        what = "decayed path probability" if places.decay < 1 else what
        at = f"{'' if exact else 'at best '}{ordinal(rank)} of all tokens scored"
        said = f"{_choice(draft)}; its {what} {number(value, 3)} is {at}"
        if self.rule == "hardware_aware":
            return f"{said}, and {plural(self.iteration.verified, 'node')} made the most tokens per second."
        if self.iteration.verified >= places.budget:
            return f"{said}, and the {places.budget} places went at {number(places.last, 3)} or more."
        return f"{said}. {self._stopped_early()}"

    def _stopped_early(self) -> str:
        """A search that ended before its places were full."""
        limit = self.iteration.settings.get("gain_threshold")
        if self.rule == "salf" and isinstance(limit, int | float):
            return f"The search stopped before its turn: the next batch promised less than gain_threshold {limit:g}."
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
        if self.rule == "dyspec":
            more, least = apart(worth, self._places.least_draw)
            made = plural(iteration.drafted, "draw")
            return (
                f"One more here counts {more}, the path probability times what the draft has left; the {made} of this "
                f"tree counted {least} or more."
            )
        threshold = iteration.settings.get("threshold")
        if self.rule == "dyspec_threshold" and isinstance(threshold, int | float):
            if worth < threshold:
                return f"One more was worth {number(worth, 3)}, below threshold {threshold:.3g}."
            return f"The node budget{value_of(iteration, 'node_budget', ' of {}')} ended the drawing."
        if self.rule == "sequoia":
            return f"The shape has {plural(len(children), 'child', 'children')} at this place."
        return ""


def why_absent(iteration: IterationTrace, parent_id: int, token_id: int) -> str:
    """Why a token was not drafted after a node; `Absences` where many are asked about."""
    return Absences(iteration).why(parent_id, token_id)


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
