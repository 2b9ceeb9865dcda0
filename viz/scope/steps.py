"""Drafting step by step, inside its phases: each pop of DySpec's heap, each round of SALF.

A step has a sentence, figures and short lists; the phases (`viz.scope.phases`) say which steps are theirs, and with
which step a node appears.
"""

from decoding.common.formats import apart, number, ordinal, plural
from decoding.trace.records import IterationTrace
from decoding.trace.searches import NextDraw, Pop, SearchRound, heap_pops, salf_rounds
from viz.explain.expansion import setting_at
from viz.glossary import explain_term
from viz.tokens import quote, token_text

DIGITS = 3
COLUMNS = 14  # of a token in a list
ROWS = 12  # of a list
HEAP_HELP = (
    "DySpec, Algorithm 1: the token y splits the value v of its draw, v₀ = v · R(y) and v₁ = v − v₀, with R what "
    "is left of the draft's distribution there, scaled to 1. So v is the parent's path probability times the part of "
    "its distribution not yet drawn. Values never rise from pop to pop. In the tree a ring marks where the pop draws."
)
ROUNDS_HELP = (
    "SALF & TALF, Algorithm 2: D is the part of the batch above ε, the lowest of the N best, and S = Σ pr over D is "
    "held against the threshold th. Theorem 1: S never rises from round to round, so no later round reaches th either; "
    "the children of D together cannot have more than S. In the tree a ring marks the nodes of D."
)
HEAP_FIGURES = (
    ("v", "Value of the draw popped: how likely the draft expects it to be reached and accepted."),
    ("v₀ = v·R below", "v · R(y): the value of the first draw below the new node; – on the deepest level."),
    ("v₁ = v−v₀ beside", "v − v₀: the value of the next draw at the same place; – where every token is drawn."),
    ("undrawn", "Draft probability at the parent that no draw has taken yet."),
    ("draft forwards", "Draft forwards up to this pop: the first draw below a node needs one."),
)
ROUNDS_FIGURES = (
    ("S", "Sum of the path probabilities of D: the most that the children of this round can add."),
    ("S before", "S of the round before, which S never exceeds (Theorem 1)."),
    ("th", "The gain threshold: below it drafting stops."),
    ("places", "Places taken of the N that the tree has."),
    ("ε of the N best", "Lowest path probability among the N best; 0 while places are free."),
)


def search_steps(iteration: IterationTrace) -> dict | None:
    """The steps of the search as plain data for the component; None for a drafter whose search is not stepped.

    `figures` are (name, help); each step has `said`, `values` of the figures, `asked`, the nodes drawn below or
    expanded, and `lists` of (title, rows, how many more), a row being (text, value, node or None). Titles and texts of
    lists are places in `texts`: a draw waits for many pops.
    """
    if pops := heap_pops(iteration):
        words = ("Heap", explain_term("heap"), HEAP_HELP, HEAP_FIGURES)
        steps = [_pop(iteration, place, pop, len(pops)) for place, pop in enumerate(pops, start=1)]
    elif rounds := salf_rounds(iteration):
        here = f" Here B = {iteration.settings['batch']} and N = {iteration.settings['node_budget']}."
        words = ("Rounds", explain_term("round") + here, ROUNDS_HELP, ROUNDS_FIGURES)
        steps = [_round(iteration, place, each) for place, each in enumerate(rounds, start=1)]
    else:
        return None
    title, about, formulas, figures = words
    texts: dict[str, int] = {}
    for step in steps:
        step["lists"] = [
            [
                texts.setdefault(head, len(texts)),
                [[texts.setdefault(text, len(texts)), round(value, 5), node] for text, value, node in rows],
                more,
            ]
            for head, rows, more in step["lists"]
        ]
    named = {"title": title, "about": about, "help": formulas, "figures": figures}
    return named | {"texts": list(texts), "steps": steps}


def _pop(iteration: IterationTrace, place: int, pop: Pop, count: int) -> dict:
    draw, node = pop.draw, iteration.nodes[pop.node]
    ran = f", with draft forward {pop.forwards}" if pop.asked else ""
    said = (
        f"Pop {place} of {count}: the {_draw_words(iteration, draw)} has the highest value, "
        f"{number(draw.value, DIGITS)}; it draws {quote(node.text)}{ran}."
    )
    figures = [number(value, DIGITS) for value in (draw.value, pop.below, pop.beside, pop.left)]
    waiting = [[_draw_words(iteration, each, short=True), each.value, each.parent] for each in pop.waiting]
    rest = [[_token(iteration, token), share, None] for token, share in pop.rest]
    return {
        "said": said,
        "values": [*figures, str(pop.forwards)],
        "asked": [draw.parent],
        "lists": [
            ["waiting draws, best first", waiting, pop.held - len(waiting)],
            [f"R: left of the draft after {_name(iteration, draw.parent)}, scaled to 1", rest, 0],
        ],
    }


def _draw_words(iteration: IterationTrace, draw: NextDraw, short: bool = False) -> str:
    if short:
        return f"{ordinal(draw.rank)} below {_name(iteration, draw.parent)}"
    where = quote(iteration.nodes[draw.parent].text) if draw.parent else "the root"
    return f"{ordinal(draw.rank)} draw below {where}"


def _round(iteration: IterationTrace, place: int, each: SearchRound) -> dict:
    threshold = float(iteration.settings.get("gain_threshold") or 0.0)
    budget = int(iteration.settings["node_budget"])
    bound = "–" if each.bound is None else number(each.bound, DIGITS)
    figures = [number(each.gain, DIGITS), bound, f"{threshold:g}", f"{each.places} of {budget}"]
    moved = [[f"+ {_token(iteration, one.token)}", one.value, one.node] for one in each.entered]
    moved += [[f"− {_token(iteration, one.token)}", one.value, one.node] for one in each.lost]
    nodes = [iteration.nodes[node] for node in each.batch]
    batch = [[_name(iteration, node.node_id), node.path_probability, node.node_id] for node in nodes]
    waiting = [[_token(iteration, one.token), one.value, one.node] for one in each.waiting]
    lists: list[tuple[str, list[list]]] = [
        (f"batch D, {'expanded' if each.expanded else 'not expanded'}", batch),
        ("enter (+), leave (−) the N best", moved),
    ]
    if each.expanded:
        lists.append(("waiting, best first", waiting))
    return {
        "said": _round_words(iteration, place, each, threshold),
        "values": [*figures, number(each.least, DIGITS) if each.least else "0"],
        "asked": list(each.batch),
        "lists": [[title, rows[:ROWS], max(len(rows) - ROWS, 0)] for title, rows in lists],
    }


def _round_words(iteration: IterationTrace, place: int, each: SearchRound, threshold: float) -> str:
    count = plural(len(each.batch), "node")
    gain, limit = apart(each.gain, threshold)
    if each.bound is None:
        return f"Round {place}: draft forward {place} scores the children of the root, whose path probability is 1."
    if each.expanded:
        return (
            f"Round {place}: the {count} of D sum to S = {gain}, not below th = {limit}, so draft forward {place} "
            "scores their children."
        )
    topped = " Free places go to the best that wait." if each.batch and iteration.settings.get("top_up") else ""
    if not each.batch:
        return f"The end: no waiting node can have a child among the {iteration.settings['node_budget']} best."
    return (
        f"The end: the next {count} sum to S = {gain}, below {setting_at(iteration, 'gain_threshold')}, and no later "
        f"round can have more: drafting stops after {plural(place - 1, 'forward')}.{topped}"
    )


def _name(iteration: IterationTrace, node: int) -> str:
    return quote(iteration.nodes[node].text, COLUMNS) if node else "the root"


def _token(iteration: IterationTrace, token: int) -> str:
    return quote(token_text(iteration, token), COLUMNS)
