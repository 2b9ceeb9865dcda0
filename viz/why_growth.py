"""Why the drafter went on below a node or did not, and why it left a node out: by the rule that drafted the tree."""

from collections.abc import Mapping

from decoding.trace import IterationTrace, NodeTrace
from viz.draft_rule import RANKED, Places, rule_of
from viz.tokens import number, plural
from viz.words import beside, ordinal

# Depths of these rules are their papers': the first drafted token has depth 0.
FROM_ZERO = ("fixed_tree", "dynatree")


def why_not_expanded(iteration: IterationTrace, node_id: int, places: Places | None = None) -> str:
    """One sentence on why a node was expanded or not, with the numbers of the rule that decided.

    Args:
        places: of the iteration, where they are at hand: computed once, they serve every node.
    """
    node = iteration.nodes[node_id]
    if node.growth != "expanded":
        return f"not expanded: {growth_words(iteration, node_id, places)}"
    sure = ""
    if node.confidence is not None:
        sure = f"draft confidence {confidence_words(iteration, node)} → "
    return f"expanded: {sure}{plural(node.branching or 0, 'child', 'children')}"


def growth_words(iteration: IterationTrace, node_id: int, places: Places | None = None) -> str:
    """Why nothing was drafted below a node, as the end of a sentence."""
    node, settings = iteration.nodes[node_id], iteration.settings
    names = ("stop_probability", "deep_probability", "prune_probability", "threshold")
    limits = [settings[name] for name in names if isinstance(settings.get(name), int | float)]
    path = beside(node.path_probability, *limits)
    if node.growth == "max_depth":
        return _deepest(iteration, node)
    if node.growth == "early_stop":
        return _early_stop(settings, path)
    if node.growth == "depth_gate":
        return (
            f"beyond base_depth{value_of(iteration, 'base_depth', ' {}')} only paths of at least deep_probability"
            f"{value_of(iteration, 'deep_probability', ' {}')} grow; this one has {path}"
        )
    if node.growth == "budget":
        return _budget(iteration, node, places or Places(iteration))
    if node.growth == "below_threshold":
        return f"path probability {path} is below {_threshold(settings)}"
    return {
        "length_limit": "the text's length limit is reached there",
        "not_drafted": "the draft model proposed nothing after it",
        "expanded": "it was expanded",
    }[node.growth]


def why_pruned(iteration: IterationTrace, node_id: int) -> str:
    """One sentence on why a node was removed before verification, empty if it was not."""
    node, settings = iteration.nodes[node_id], iteration.settings
    if not node.pruned:
        return ""
    limit = settings.get("prune_probability")
    if isinstance(limit, int | float) and limit:
        if node.path_probability >= limit:
            return node.reason or "Removed before verification together with an ancestor."
        path = beside(node.path_probability, limit)
        return f"Removed before verification: path probability {path} < prune_probability {limit:g}."
    if rule_of(settings) == "hardware_aware":
        return "Removed before verification: without it more tokens per second were to be expected."
    budget = value_of(iteration, "node_budget", "{} ")
    said = f"Removed before verification: it is not among the {budget}nodes of highest value"
    if rule_of(settings) in RANKED and iteration.verified:
        places = Places(iteration)
        said += f"; it has {number(places.node_values[node_id], 3)}, the last of them {number(places.last, 3)}"
    return f"{said}."


def confidence_words(iteration: IterationTrace, node: NodeTrace) -> str:
    """A confidence, and where it lies between the two thresholds of adaptive branching."""
    high, low = (iteration.settings.get(name) for name in ("confidence_high", "confidence_low"))
    if not isinstance(high, int | float) or not isinstance(low, int | float):
        return number(node.confidence)
    said = beside(node.confidence, high, low, digits=2)
    if node.confidence >= high:
        return f"{said} ≥ {high:g}"
    return f"{said} < {low:g}" if node.confidence < low else f"{said} in {low:g}…{high:g}"


def value_of(iteration: IterationTrace, name: str, template: str) -> str:
    """The value of a setting in a sentence, empty without it; one that history moves is told as in force here."""
    value = iteration.settings.get(name)
    if not isinstance(value, int | float):
        return ""
    moved = iteration.history is not None and name in iteration.history.before
    return template.format(f"{value:g}") + (" in force here" if moved and template == " {}" else "")


def _deepest(iteration: IterationTrace, node: NodeTrace) -> str:
    """The depth limit, in the rule's own way of counting."""
    settings = iteration.settings
    if rule_of(settings) == "linear":
        return f"the chain has its length{value_of(iteration, 'length', ' {}')}"
    name = "base_depth" if settings.get("dynamic_depth") is False else "max_depth"
    if not isinstance(settings.get(name), int | float):
        return f"depth {node.depth} is the deepest level"
    counted = ", counted from 0" if rule_of(settings) in FROM_ZERO else ""
    return f"depth {node.depth} is the deepest level ({name}{value_of(iteration, name, ' {}')}{counted})"


def _early_stop(settings: Mapping, path: str) -> str:
    """What ended the drafting here: a path that is too improbable, or a whole round that promised too little."""
    if rule_of(settings) == "hardware_aware":
        return "going on below it did not promise more tokens per second at this machine's costs"
    if "gain_threshold" not in settings:
        limit = settings.get("stop_probability")
        return f"path probability {path} < stop_probability{f' {limit:g}' if isinstance(limit, int | float) else ''}"
    limit = f"gain_threshold {settings['gain_threshold']:g}"
    if rule_of(settings) == "opt_tree":
        return f"drafting stopped, as the last level added no more than {limit}"
    return f"drafting stopped, as the next batch promised less than {limit}"


def _budget(iteration: IterationTrace, node: NodeTrace, places: Places) -> str:
    """How the budget kept a node from growing; each rule spends it in its own way."""
    rule, settings = rule_of(iteration.settings), iteration.settings
    budget = value_of(iteration, "node_budget", " of {}")
    if rule == "eagle2":
        place = ordinal(places.rank_on_level(node.node_id))
        return f"it is {place} on its level and the beam expands the {settings['beam_width']:g} best"
    if rule in ("specexec", "salf", "opt_tree"):
        if iteration.verified >= places.budget:
            own, last = number(places.node_values[node.node_id], 3), number(places.last, 3)
            return f"no child is worth more than the node ({own}), and the last of {places.budget} places has {last}"
        return f"the node budget{budget} left no room below it"
    if rule == "sequoia":
        return "the shape that is best for these acceptance rates has no children at this place"
    if rule == "dyspec":
        worth, least = number(node.path_probability, 3), number(places.least_draw, 3)
        made = plural(iteration.drafted, "draw")
        return (
            f"its path probability {worth} is what a first draw below it counts for, and the {made} of this tree "
            f"counted {least} or more"
        )
    return f"the node budget{budget} was used up before its turn"


def _threshold(settings: Mapping) -> str:
    """The setting behind `below_threshold` and its value; drafters call it differently."""
    name = next((name for name in ("threshold", "prune_probability") if name in settings), None)
    return "the threshold" if name is None else f"{name} {settings[name]:.3g}"
