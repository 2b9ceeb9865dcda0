"""How soon what a person does has to be answered, at which tree sizes, and the real trees of those sizes."""

from collections.abc import Iterator, Mapping

from decoding.methods.method import Method
from decoding.methods.methods import METHODS

SIZES = (64, 256, 1024)
# The settings that give a tree of any of these sizes, its node budget beside them.
FULL_TREE = {"max_depth": 6, "branching": 4, "prune_probability": 0.0, "branch_first_level": True}
# Milliseconds by what is done, and the sizes at which it has to be done within them.
GOALS_MS: dict[str, tuple[float, tuple[int, ...]]] = {
    "hover": (50.0, SIZES),
    "phase step": (50.0, SIZES),
    "iteration step": (50.0, SIZES),
    "slider": (350.0, (64,)),
    "replayed fork": (300.0, SIZES),
    "live fork": (500.0, (64,)),
}


def full_tree(nodes: int) -> Method:
    """A method that drafts and verifies trees of so many nodes."""
    return METHODS["fixed_tree"].with_settings(node_budget=nodes, **FULL_TREE)


def goal_ms(name: str) -> float | None:
    """The goal of a figure that is called `replayed fork, 64 nodes`, None where it has none."""
    what, _, nodes = name.removesuffix(" nodes").rpartition(", ")
    goal, sizes = GOALS_MS.get(what, (0.0, ()))
    return goal if nodes.isdigit() and int(nodes) in sizes else None


def goal_words(name: str) -> str:
    """The goal of a figure for a table."""
    goal = goal_ms(name)
    return "-" if goal is None else f"{goal:.0f}"


def verdicts(medians_ms: Mapping[str, float]) -> Iterator[str]:
    """One line per figure that has a goal: whether its median reaches it."""
    for name, median in medians_ms.items():
        goal = goal_ms(name)
        if goal is not None:
            reached = "reached" if median <= goal else "MISSED"
            yield f"goal {reached}: {name}, median {median:.1f} ms, goal {goal:.0f} ms"
