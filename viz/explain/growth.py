"""Why the drafter went on below a node or did not, how wide, and why it left a node out: the record's codes, told."""

from decoding.trace.records import IterationTrace, NodeTrace
from viz.explain.known import Known
from viz.formats import beside, number, ordinal, plural

# What ended the drawing below a node; the others tell how many children a node gets.
DRAWN = ("outdrawn", "worth", "budget", "shape", "all_drawn")


def why_not_expanded(iteration: IterationTrace, node_id: int, known: Known | None = None) -> str:
    """One sentence on why a node was expanded or not, with the numbers of the rule that decided.

    Args:
        known: of the iteration, where it is at hand: it serves every node.
    """
    node = iteration.nodes[node_id]
    if node.growth != "expanded":
        return f"not expanded: {growth_words(iteration, node_id, known)}"
    draws = plural(node.branching or 0, "draw")
    count = plural(node.branching or 0, "child", "children")
    if node.breadth in ("confident", "between", "unsure") and node.confidence is not None:
        return f"expanded: draft confidence {confidence_words(iteration, node)} → {count}"
    if node.breadth in ("first_level", "chain", "fixed", "level", "forced"):
        drawn = node.breadth == "level" and iteration.law != "deterministic"
        return f"expanded: {breadth_words(iteration, node)} → {draws if drawn else count}"
    return f"expanded: {draws if node.breadth in DRAWN else count}"


def breadth_words(iteration: IterationTrace, node: NodeTrace) -> str:
    """What decided how many children an expanded node gets, as a part of a sentence."""
    count, setting = plural(node.branching or 0, "child", "children"), iteration.rule.breadth_setting
    if node.breadth in ("confident", "between", "unsure") and node.confidence is not None:
        return f"confidence {confidence_words(iteration, node)} allows {count}"
    if node.breadth == "first_level":
        return "the first level takes the draft's first choice alone (branch_first_level is off)"
    if node.breadth == "chain":
        drawn = iteration.law != "deterministic"
        return "a chain draws one token from the draft's law" if drawn else "a chain takes the first choice only"
    if node.breadth == "level":
        return f"{f'the {setting} give' if setting else 'the rule gives'} {_on_a_level(iteration, node)}"
    if node.breadth == "fixed":
        named = f" ({setting})" if setting else ""
        return f"every node gets the draft's best {count}{named}"
    if node.breadth == "forced":
        return "a person forced a node in below it"
    return f"{count} {'was' if node.branching == 1 else 'were'} drafted here"


def _on_a_level(iteration: IterationTrace, node: NodeTrace) -> str:
    """What every node of a level gets: children, or draws, which may choose the same token."""
    if iteration.law == "deterministic":
        return f"{plural(node.branching or 0, 'child', 'children')} to a node of this level"
    # A node that was drawn several times has as many draws below it for each of them.
    each = plural((node.branching or 0) // node.multiplicity, "draw")
    if node.multiplicity == 1:
        return f"{each} to a node of this level"
    return f"{each} to each draw of a node of this level, and this one was drawn {node.multiplicity} times"


def growth_words(iteration: IterationTrace, node_id: int, known: Known | None = None) -> str:
    """Why nothing was drafted below a node, as the end of a sentence."""
    node, settings = iteration.nodes[node_id], iteration.settings
    names = ("stop_probability", "deep_probability", iteration.rule.threshold_setting)
    limits = [settings[name] for name in names if isinstance(settings.get(name), int | float)]
    path = beside(node.path_probability, *limits)
    if node.growth == "early_stop":
        return f"path probability {path} < stop_probability{value_of(iteration, 'stop_probability', ' {}')}"
    if node.growth == "depth_gate":
        return (
            f"beyond base_depth{value_of(iteration, 'base_depth', ' {}')} only paths of at least deep_probability"
            f"{value_of(iteration, 'deep_probability', ' {}')} grow; this one has {path}"
        )
    if node.growth == "below_threshold":
        name = iteration.rule.threshold_setting or "the threshold"
        return f"path probability {path} is below {name}{value_of(iteration, name, ' {}')}"
    if node.growth == "max_depth":
        return _deepest(iteration, node)
    if node.growth in ("beam", "outranked", "outdrawn"):
        return _not_among_the_best(node, known or Known(iteration))
    gain = f"gain_threshold{value_of(iteration, 'gain_threshold', ' {}')}"
    return {
        "budget": f"the node budget{value_of(iteration, 'node_budget', ' of {}')} was used up before its turn",
        "length_limit": "the text's length limit is reached there",
        "not_drafted": "the draft model proposed nothing after it",
        "expanded": "it was expanded",
        "shape": "the shape of the tree has no children at this place",
        "low_gain": f"drafting stopped, as the last level added no more than {gain}",
        "low_promise": f"drafting stopped, as the next batch promised less than {gain}",
        "unprofitable": "going on below it did not promise more tokens per second at this machine's costs",
    }[node.growth]


def why_pruned(iteration: IterationTrace, node_id: int, known: Known | None = None) -> str:
    """One sentence on why a node was removed before verification, empty if it was not."""
    node, settings = iteration.nodes[node_id], iteration.settings
    if not node.pruned:
        return ""
    if node.reason in ("forced_out", "below_forced_out"):
        who = "Forced" if node.reason == "forced_out" else "A node above it was forced"
        return f"{who} out of the tree before verification."
    if node.reason == "unprofitable":
        return "Removed before verification: without it more tokens per second were to be expected."
    limit = settings.get("prune_probability")
    if node.reason == "improbable" and isinstance(limit, int | float):
        path = beside(node.path_probability, limit)
        return f"Removed before verification: path probability {path} < prune_probability {limit:g}."
    said = "Removed before verification"
    if node.reason == "outranked" and iteration.verified:
        places = (known or Known(iteration)).places
        said += (
            f": it is not among the {value_of(iteration, 'node_budget', '{} ')}nodes of highest value; it has "
            f"{number(places.node_values[node_id], 3)}, the last of them {number(places.last, 3)}"
        )
    return f"{said}."


def confidence_words(iteration: IterationTrace, node: NodeTrace) -> str:
    """A confidence, and where it lies between the two thresholds of adaptive branching."""
    high, low = (iteration.settings.get(name) for name in ("confidence_high", "confidence_low"))
    if not isinstance(high, int | float) or not isinstance(low, int | float):
        return number(node.confidence)
    said = beside(node.confidence, high, low, digits=2)
    return {"confident": f"{said} ≥ {high:g}", "unsure": f"{said} < {low:g}"}.get(
        node.breadth, f"{said} in {low:g}…{high:g}"
    )


def value_of(iteration: IterationTrace, name: str, template: str) -> str:
    """The value of a setting in a sentence, empty without it; one that history moves is told as in force here."""
    value = iteration.settings.get(name)
    if not isinstance(value, int | float):
        return ""
    moved = iteration.history is not None and name in iteration.history.before
    return template.format(f"{value:.6g}") + (" in force here" if moved and template == " {}" else "")


def _deepest(iteration: IterationTrace, node: NodeTrace) -> str:
    """The depth limit, in the rule's own way of counting."""
    name = iteration.rule.depth_setting
    if not value_of(iteration, name, " {}"):
        return f"depth {node.depth} is the deepest level"
    counted = ", counted from 0" if iteration.rule.first_depth == 0 else ""
    return f"depth {node.depth} is the deepest level ({name}{value_of(iteration, name, ' {}')}{counted})"


def _not_among_the_best(node: NodeTrace, known: Known) -> str:
    """How nodes, or draws, of a higher value kept a node from growing."""
    iteration, places = known.iteration, known.places
    own = number(places.node_values[node.node_id], 3)
    if node.growth == "outdrawn":
        made = plural(iteration.drafted, "draw")
        return (
            f"its path probability {number(node.path_probability, 3)} is what a first draw below it counts for, and "
            f"the {made} of this tree counted {number(places.least_draw, 3)} or more"
        )
    if node.growth == "outranked":
        last = number(places.last, 3)
        return f"no child is worth more than the node ({own}), and the last of {places.budget} places has {last}"
    beam = f"the beam expands the {places.children:,} best of a level"
    place = places.rank_on_level(node.node_id)
    # The record has the likeliest children of a node: of a wide beam it cannot tell the place, nor between equals.
    return f"{beam}, and it is {f'the {ordinal(place)}' if place > places.children else 'none of them'}"
