"""Sentences for the record's codes: why a node was expanded or not, how wide, and why a token was left out."""

from collections.abc import Sequence

from decoding.common.formats import apart, beside, chance, listed, number, ordinal, plural
from decoding.trace.records import TOP_TOKENS, IterationTrace, NodeTrace
from viz.explain.draft_rule import value_words, winners
from viz.explain.known import DraftRank, Known
from viz.glossary import setting_title
from viz.tokens import quote

MOST_CHILDREN = 8


def why_not_expanded(iteration: IterationTrace, node_id: int, known: Known | None = None) -> str:
    """One sentence on why a node was expanded or not, with the numbers of the rule that decided.

    Args:
        known: the `Known` of the iteration if there is one already; it serves every node.
    """
    node = iteration.nodes[node_id]
    if node.stop_reason != "expanded":
        return f"not expanded: {stop_reason_text(iteration, node_id, known)}"
    draws = plural(node.branching or 0, "draw")
    count = plural(node.branching or 0, "child", "children")
    left = _room_words(known or Known(iteration), node_id)
    if node.breadth in ("confident", "between", "unsure") and node.confidence is not None:
        return f"expanded: draft confidence {confidence_words(iteration, node)} → {count}{left}"
    if node.breadth in ("first_level", "chain", "fixed", "level", "forced"):
        drawn = node.breadth == "level" and iteration.draft_sampling != "deterministic"
        return f"expanded: {breadth_words(iteration, node)} → {draws if drawn else count}{left}"
    return f"expanded: {breadth_words(iteration, node)}{left}"


def _room_words(known: Known, node_id: int) -> str:
    """What the node budget left of the children that a node was allowed; empty where it has them all."""
    iteration, made = known.iteration, len(known.children.get(node_id, ()))
    node, budget = iteration.nodes[node_id], iteration.settings.get("node_budget")
    full = isinstance(budget, int) and len(iteration.nodes) > budget  # the root is none of them
    if iteration.draft_sampling != "deterministic" or not full or made >= (node.branching or 0):
        return ""
    return f", but the node budget{value_of(iteration, 'node_budget', ' of {}')} left room for {made or 'none'}"


def children_words(known: Known, node_id: int) -> str:
    """The children of a node and why these: `‘ a’, ‘ b’: the draft's 2 likeliest tokens, likeliest first`, or empty."""
    iteration = known.iteration
    children = known.children.get(node_id, ())
    if not children or iteration.nodes[node_id].draft_level is None:
        return ""
    said = ", ".join(quote(child.text) for child in children[:MOST_CHILDREN])
    if len(children) > MOST_CHILDREN:
        said += f" and {len(children) - MOST_CHILDREN:,} more"
    likeliest = [token for token, _, _ in iteration.draft_top(node_id)[: len(children)]]
    if iteration.draft_sampling != "deterministic":
        return f"{said}: drawn from the draft, in this order"
    if likeliest != [child.token_id for child in children]:
        return said
    if len(children) == 1:
        return f"{said}: the draft's likeliest token"
    return f"{said}: the draft's {len(children)} likeliest tokens, likeliest first"


def why_drafted(known: Known, node_id: int) -> str:
    """Why a node is in the tree: the draft's rank of its token after the parent, and what gave it a place."""
    iteration, node = known.iteration, known.iteration.nodes[node_id]
    parent, draft = iteration.nodes[node.parent_id], known.draft_rank(node.parent_id, node.token_id)
    if parent.breadth == "forced" or node_id in known.interventions:
        return ""
    choice = "" if draft.rank is None else f"the draft's {ordinal(draft.rank)} choice after {quote(parent.text)}"
    if _recycled(parent):
        rank = 1 + iteration.children(parent.node_id).index(node_id)
        given = chance(node.draft_probability or 0.0)
        return f"the target's {ordinal(rank)} choice, at {given}, when it last read {quote(parent.text)}"
    if parent.draft_level is None:  # no model was asked
        if node.draft_probability == 1:
            return "the same tokens were followed by it earlier in the text"
        return f"it followed the same tokens in {chance(node.draft_probability or 0.0)} of their earlier occurrences"
    if iteration.draft_sampling != "deterministic":
        times = f" {node.multiplicity} times" if node.multiplicity > 1 else ""
        return f"drawn{times} from the draft's distribution{f', {choice}' if choice else ''}"
    if not choice:
        return ""
    if iteration.rule.value == "none":
        return f"{choice}; {breadth_words(iteration, parent)}"
    return f"{choice}, with the {value_words(iteration.rule)} {number(known.places.node_values[node_id], 3)}"


def why_in_tree(iteration: IterationTrace, node_id: int) -> str:
    """One sentence on why a node was drafted: what gave its token a place, and the rule that gave its parent children.

    Empty for the root, nodes forced in by hand and where no rank is recorded.
    """
    drafted = why_drafted(Known(iteration), node_id) if node_id else ""
    if not drafted:
        return ""
    rule = breadth_words(iteration, iteration.nodes[iteration.nodes[node_id].parent_id])
    return f"Drafted: {drafted}." if rule in drafted else f"Drafted: {drafted}; {rule}."


def breadth_words(iteration: IterationTrace, node: NodeTrace) -> str:
    """What decided how many children an expanded node gets, as a part of a sentence."""
    count, setting = plural(node.branching or 0, "child", "children"), iteration.rule.breadth_setting
    if node.breadth in ("confident", "between", "unsure") and node.confidence is not None:
        return f"confidence {confidence_words(iteration, node)} allows {count}"
    if node.breadth == "first_level":
        return f"the first level takes only the draft's first choice (“{setting_title('branch_first_level')}” is off)"
    if node.breadth == "chain" and node.draft_level is None:
        return "the chain copies what followed these tokens earlier in the text"
    if node.breadth == "chain":
        drawn = iteration.draft_sampling != "deterministic"
        return "a chain samples one token from the draft" if drawn else "a chain takes only the first choice"
    if node.breadth == "level":
        # A node that was drawn several times has as many draws below it for each of them.
        each, times = plural((node.branching or 0) // node.multiplicity, "draw"), node.multiplicity
        given = f"{each} to each draw of a node on this level, and this node was drawn {times} times"
        if times == 1 or iteration.draft_sampling == "deterministic":
            given = f"{count if iteration.draft_sampling == 'deterministic' else each} to a node on this level"
        return f"{f'the setting “{setting_title(setting)}” gives' if setting else 'the rule gives'} {given}"
    if node.breadth == "fixed":
        return f"every node gets the draft's best {count}{_named(setting)}"
    if node.breadth == "forced":
        return "a node below it was forced in by hand"
    if node.breadth == "ranked":
        return _places_words(iteration, node)
    if node.breadth == "shape":
        best = "" if _recycled(node) else f", the best for “{setting_title('acceptance')}”,"
        return f"the fixed shape of the tree{best} has {count} here"
    least = iteration.rule.threshold_setting
    why = {
        "outdrawn": ", until draws elsewhere in the tree had higher values",
        "worth": f", until one more had a value below {setting_at(iteration, least) if least else 'the threshold'}",
        "budget": f", until the node budget{value_of(iteration, 'node_budget', ' of {}')} was used up",
        "all_drawn": ": no other token has a draft probability above 0",
    }.get(node.breadth or "")
    if why:
        return f"{plural(node.branching or 0, 'draw')} here{why}"
    return f"{count} {'was' if node.branching == 1 else 'were'} drafted here"


def _places_words(iteration: IterationTrace, node: NodeTrace) -> str:
    """How many children of a node are scored and how many of them won a place, with the settings that say so."""
    rule, won = iteration.rule, node.branching or 0
    who, has = plural(won, "child", "children") + " here", "has" if won == 1 else "have"
    if rule.children:
        who = f"{rule.children:,} children of a node are scored{_named(rule.children_setting)}; {won:,} of them"
    return f"{who} {has} a place among {winners(iteration)}"


def _named(setting: str) -> str:
    """A setting in brackets behind what it decides; empty where there is none."""
    return f" (“{setting_title(setting)}”)" if setting else ""


def stop_reason_text(iteration: IterationTrace, node_id: int, known: Known | None = None) -> str:
    """Why nothing was drafted below a node, to end a sentence with."""
    node, settings = iteration.nodes[node_id], iteration.settings
    names = ("stop_probability", "deep_probability", iteration.rule.threshold_setting)
    limits = [limit for name in names if isinstance(limit := settings.get(name), int | float)]
    path = beside(node.path_probability, *limits)
    if node.stop_reason == "early_stop":
        return f"path probability {path} < {setting_at(iteration, 'stop_probability')}"
    if node.stop_reason == "depth_gate":
        return (
            f"beyond {setting_at(iteration, 'base_depth')} only paths with at least "
            f"{setting_at(iteration, 'deep_probability')} are extended; this one has {path}"
        )
    if node.stop_reason == "below_threshold":
        name = iteration.rule.threshold_setting
        return f"path probability {path} is below {setting_at(iteration, name) if name else 'the threshold'}"
    if node.stop_reason == "max_depth":
        # The rule's own counting of levels.
        name, counted = iteration.rule.depth_setting, ", counted from 0" if iteration.rule.first_depth == 0 else ""
        limit = f" ({setting_at(iteration, name)}{counted})" if value_of(iteration, name, "{}") else ""
        return f"depth {node.depth} is the deepest level{limit}"
    if node.stop_reason in ("beam", "outranked", "outdrawn"):
        return _not_among_the_best(node, known or Known(iteration))
    gain = setting_at(iteration, "gain_threshold")
    budget, least = iteration.rule.budget_setting, iteration.rule.threshold_setting
    spent = f"the node budget{value_of(iteration, 'node_budget', ' of {}')} was used up before its turn"
    often = f" often enough ({setting_at(iteration, least)})" if least else ""
    return {
        "budget": spent if budget == "node_budget" else f"{setting_at(iteration, budget)} allows no more nodes here",
        "no_match": f"nothing followed these tokens{often} earlier in the text",
        "unread": f"the target had not yet read {quote(node.text)} in this run, so nothing was known to follow it",
        "length_limit": "“Maximum new tokens” ends the text there",
        "not_drafted": "the draft model proposed nothing after it",
        "expanded": "it was expanded",
        "shape": "the shape of the tree has no children at this place",
        "low_gain": f"drafting stopped because the last level added no more than {gain}",
        "low_promise": f"drafting stopped because the next batch was expected to add less than {gain}",
        "unprofitable": "expanding it was not expected to raise tokens per second at this machine's costs",
    }[node.stop_reason]


def why_no_draft(iteration: IterationTrace) -> str:
    """Why there is no draft tree, to end a sentence with; empty for a method that never drafts."""
    known = iteration.nodes and iteration.nodes[0].stop_reason not in ("expanded", "not_drafted")
    return stop_reason_text(iteration, 0) if known else ""


def why_pruned(iteration: IterationTrace, node_id: int, known: Known | None = None) -> str:
    """One sentence on why a node was removed before verification, empty if it was not."""
    node, settings = iteration.nodes[node_id], iteration.settings
    if not node.pruned:
        return ""
    if node.reason in ("forced_out", "below_forced_out"):
        who = "Forced" if node.reason == "forced_out" else "A node above it was forced"
        return f"{who} out of the tree before verification."
    if node.reason == "unprofitable":
        return "Removed before verification: the drafter expected more tokens per second without it."
    limit = settings.get("prune_probability")
    if node.reason == "improbable" and isinstance(limit, int | float):
        path = beside(node.path_probability, limit)
        return f"Removed before verification: path probability {path} < {setting_at(iteration, 'prune_probability')}."
    said = "Removed before verification"
    if node.reason == "outranked" and iteration.verified:
        places = (known or Known(iteration)).places
        said += (
            f": it is not among {winners(iteration)}: it has "
            f"{number(places.node_values[node_id], 3)}, the lowest of them {number(places.last, 3)}"
        )
    return f"{said}."


def confidence_words(iteration: IterationTrace, node: NodeTrace) -> str:
    """A confidence, and where it lies between the two thresholds of adaptive branching."""
    high, low = (iteration.settings.get(name) for name in ("confidence_high", "confidence_low"))
    if node.confidence is None or not isinstance(high, int | float) or not isinstance(low, int | float):
        return number(node.confidence)
    said = beside(node.confidence, high, low, digits=2)
    return {"confident": f"{said} ≥ τ_h {high:g}", "unsure": f"{said} < τ_l {low:g}"}.get(
        node.breadth or "", f"{said} between τ_l {low:g} and τ_h {high:g}"
    )


def setting_at(iteration: IterationTrace, name: str) -> str:
    """A setting with its value in an iteration: `Pruning (τ) 0.05`."""
    return setting_title(name) + value_of(iteration, name, " {}")


def value_of(iteration: IterationTrace, name: str, template: str) -> str:
    """The value of a setting in a sentence, empty if there is none; one that history adaptation moves says so."""
    value = iteration.settings.get(name)
    if not isinstance(value, int | float):
        return ""
    moved = iteration.history is not None and name in iteration.history.before
    return template.format(f"{value:.6g}") + (" in this iteration" if moved and template == " {}" else "")


def _not_among_the_best(node: NodeTrace, known: Known) -> str:
    """Which nodes, or draws, of higher value took the place of a node's children."""
    iteration, places = known.iteration, known.places
    own = number(places.node_values[node.node_id], 3)
    if node.stop_reason == "outdrawn":
        made = plural(iteration.drafted, "draw")
        return (
            "the next draw goes where path probability times the draft probability not yet drawn is highest: here that "
            f"is {number(node.path_probability, 3)}, below {number(places.least_draw, 3)}, the least of the "
            f"{made} made"
        )
    if node.stop_reason == "outranked":
        last = number(places.last, 3)
        return f"no child is worth more than the node ({own}), and the last of {places.budget} places went at {last}"
    beam = f"the beam expands the {places.children:,} best nodes of a level{_named(iteration.rule.children_setting)}"
    place = places.rank_on_level(node.node_id)
    # The record has only the likeliest children of a node: it cannot rank a wide beam, nor break ties.
    return f"{beam}, and it is {f'the {ordinal(place)}' if place > places.children else 'none of them'}"


def why_absent(iteration: IterationTrace, parent_id: int, token_id: int, known: Known | None = None) -> str:
    """One or two sentences on why a token was not drafted after a node.

    Args:
        known: the `Known` of the iteration if there is one already; it serves every token.
    """
    parent, known = iteration.nodes[parent_id], known or Known(iteration)
    if not iteration.drafted:
        words = stop_reason_text(iteration, 0, known)
        return {
            "not_drafted": "This method drafts nothing: the target writes every token itself.",
            "unprofitable": "Nothing was drafted here: drafting was not expected to be faster than decoding without "
            "it.",
        }.get(iteration.nodes[0].stop_reason, f"Nothing was drafted here: {words}.")
    if parent.stop_reason != "expanded":
        where = "the last committed token" if parent_id == 0 else quote(parent.text)
        return f"Nothing was drafted after {where}: {stop_reason_text(iteration, parent_id, known)}."
    if _recycled(parent):
        width, read = parent.branching or 0, f"when it last read {quote(parent.text)}"
        first = "the target's first choice" if width == 1 else f"among the target's first {width} choices"
        return f"Not {first} {read}; the tree has no more places here."
    if parent.draft_level is None and parent.breadth != "forced":  # no model was asked
        return "It did not follow these tokens earlier in the text, or less often than what was drafted."
    draft = known.draft_rank(parent_id, token_id)
    if iteration.draft_sampling != "deterministic":
        return _not_drawn(known, parent, draft)
    return _no_place(known, parent_id, draft) if iteration.rule.value != "none" else _too_low(iteration, parent, draft)


def _too_low(iteration: IterationTrace, parent: NodeTrace, draft: DraftRank) -> str:
    """Rules that take the draft's best children of every node: the rank decides, then the budget."""
    width = parent.branching or 0
    if draft.rank is not None and draft.rank <= width:
        budget = value_of(iteration, "node_budget", " of {}")
        return f"{_choice(draft)}; it was one of {width}, but the node budget{budget} was used up before its turn."
    limit = iteration.settings.get("prune_probability")
    said = f"{_choice(draft)}; {breadth_words(iteration, parent)}."
    if iteration.rule.left_out == "improbable" and isinstance(limit, int | float) and draft.probability is not None:
        path = parent.path_probability * draft.probability
        if path < limit:
            named = setting_at(iteration, "prune_probability")
            said += f" Its path probability {beside(path, limit)} is also below {named}."
    return said


def _no_place(known: Known, parent_id: int, draft: DraftRank) -> str:
    """Rules that give places to the tokens of highest value."""
    places, rule, verified = known.places, known.iteration.rule, known.iteration.verified
    own = draft.rank or TOP_TOKENS + 1
    if own > places.children:
        named = _named(rule.children_setting)
        return f"{_choice(draft)}; only the first {places.children} children of a node are scored{named}."
    if draft.probability is None:
        if verified >= places.budget or places.value(parent_id, TOP_TOKENS + 1, draft.floor) <= places.last:
            return f"{_choice(draft)}; every node in the tree has a value of at least {number(places.last, 3)}."
        return f"{_choice(draft)}. {_stopped_early(known)}"
    value = places.value(parent_id, own, draft.probability)
    rank, exact = places.rank(value)
    at = f"{'' if exact else 'at best '}{ordinal(rank)} of all scored tokens"
    said = f"{_choice(draft)}; its {value_words(rule)} {number(value, 3)} is {at}"
    if places.by_chance:
        return f"{said}, and {plural(verified, 'node')} gave the most expected tokens per second."
    if verified >= places.budget:
        return f"{said}, and the {places.budget} places went at {number(places.last, 3)} or more."
    return f"{said}. {_stopped_early(known)}"


def _stopped_early(known: Known) -> str:
    """A search that ended before its places were full."""
    iteration, stopped = known.iteration, known.stopped_early
    if stopped is None:
        return f"The tree ended with {plural(iteration.verified, 'node')}."
    words = stop_reason_text(iteration, stopped.node_id, known)
    return f"{words[0].upper()}{words[1:]}."


def _not_drawn(known: Known, parent: NodeTrace, draft: DraftRank) -> str:
    """Rules that sample: how likely the draws at this node were to hit the token, and why there were no more."""
    children = known.children.get(parent.node_id, ())
    count = sum(child.multiplicity for child in children)
    failed = f"Not drawn in {plural(count, 'draw')} here"
    if draft.probability is None:
        return f"{failed}: not among the draft's {TOP_TOKENS} likeliest tokens{_floor(draft)}."
    if known.iteration.draft_sampling != "without_replacement":
        reach = 1 - (1 - draft.probability) ** count
        if count == 1:
            return f"{failed}, which takes it with probability {chance(reach)}."
        each = f"each takes it with probability {chance(draft.probability)}"
        return f"{failed}: {each}, so at least one does with probability {chance(reach)}."
    return f"{failed}: {_chances(draft.probability, children)}. {_no_more(known, parent, children)}".strip()


def _no_more(known: Known, parent: NodeTrace, children: Sequence[NodeTrace]) -> str:
    """Why sampling without replacement ended at a node."""
    iteration, left = known.iteration, max(1.0 - sum(child.draft_probability or 0.0 for child in children), 0.0)
    worth = parent.path_probability * left
    if parent.breadth == "outdrawn":
        more, least = apart(worth, known.places.least_draw)
        return (
            f"One more draw here has the value {more}, path probability times the draft's undrawn probability; the "
            f"{plural(iteration.drafted, 'draw')} of this tree had {least} or more."
        )
    name = iteration.rule.threshold_setting
    threshold = iteration.settings.get(name)
    if parent.breadth == "worth" and isinstance(threshold, int | float):
        return f"One more draw had the value {beside(worth, threshold)}, below {setting_title(name)} {threshold:.3g}."
    return {
        "budget": f"The node budget{value_of(iteration, 'node_budget', ' of {}')} was used up.",
        "shape": f"T{breadth_words(iteration, parent)[1:]}.",
        "all_drawn": "Every token with a nonzero draft probability was drawn.",
    }.get(parent.breadth or "", "")


def _recycled(parent: NodeTrace) -> bool:
    """Whether children were what the target itself had said after the token before: no model was asked for them."""
    return parent.draft_level is None and parent.breadth == "shape"


def _choice(draft: DraftRank) -> str:
    """The draft's rank of the token, to begin a sentence with."""
    if draft.rank is None:
        return f"Not among the draft's {TOP_TOKENS} likeliest tokens here{_floor(draft)}"
    probability = "" if draft.probability is None else f" at {number(draft.probability, 3)}"
    return f"The draft's {ordinal(draft.rank)} choice here{probability}"


def _floor(draft: DraftRank) -> str:
    return f" (each at least {number(draft.floor, 3)})" if draft.floor >= 5e-4 else ""


def _chances(probability: float, children: Sequence[NodeTrace]) -> str:
    """The token's probability in each draw without replacement, given those before it."""
    chances, left = [], 1.0
    for child in children:
        chances.append(min(probability / left, 1.0) if left > 0 else 1.0)
        left -= child.draft_probability or 0.0
    if len(chances) == 1:
        return f"its probability was {chance(chances[0])}"
    if len(chances) <= 3:
        return f"its probability was {listed([chance(each) for each in chances])} in turn"
    return f"its probability was {chance(chances[0])} in the first and {chance(chances[-1])} in the last"
