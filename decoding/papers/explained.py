"""Tables, figures and algorithms of the papers that measure nothing, and the pages that show the thing itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from decoding.papers import delayed, dynatree, dynatree_pruned, dyspec, salf


@dataclass(frozen=True)
class Explained:
    """An explanation of a paper."""

    # key, paper, title: as of a `PaperResult`. words: what it explains, and what the page shows of it.
    key: str
    paper: str
    title: str
    words: str
    # page: its name in the menu. query: parameters of its address.
    page: str
    query: Mapping[str, str] = field(default_factory=dict)


ITERATION = "Step through shows every stage of a real iteration: the tree, its mask, the verified path, the KV cache."
SEARCH = "Step through draws the tree of any method level by level, with the path probability of every node"
HOME = {"recorded": "home"}

EXPLAINED = (
    Explained(
        "dynatree/figure-1", dynatree.PAPER, "Figure 1: three ways to decode",
        "Token by token, a drafted chain, a drafted tree. Race replays real runs of all three side by side.", "Race",
    ),
    Explained("dynatree/figure-2", dynatree.PAPER, "Figure 2: one iteration", ITERATION, "Step through", HOME),
    Explained("pruned/figure-1", dynatree_pruned.PAPER, "Figure 1: one iteration", ITERATION, "Step through", HOME),
    Explained(
        "dyspec/figure-1", dyspec.PAPER, "Figure 1: fixed and dynamic trees",
        "What if drafts trees of two methods after the same prefix and shows where they part.", "What if",
    ),
    Explained(
        "dyspec/figure-3", dyspec.PAPER, "Figure 3: a partly built tree",
        "The next node is the likeliest of those that may follow. " + SEARCH + " in the order in which it was added.",
        "Step through", {"method": "DySpec greedy", "temperature": "0.6"},
    ),
    Explained(
        "dyspec/figures-6-7", dyspec.PAPER, "Figures 6 and 7: the mask in creation and in depth-first order",
        "Step through draws the mask of any tree under every order of its nodes, with the blocks that are not empty.",
        "Step through", {"method": "DySpec greedy", "temperature": "0.6"},
    ),
    Explained(
        "dyspec/figure-8", dyspec.PAPER, "Figure 8: masks of random trees",
        "The paper's text does not speak of it apart from Table 5, whose numbers and ours are under that name.",
        "Papers", {"exhibit": "dyspec/table-5"},
    ),
    Explained(
        "delayed/table-1", delayed.PAPER, "Table 1: verifiers on one path and on several",
        "Verifiers has every one of them decide on the same tree, with exact expectations.", "Verifiers",
    ),
    Explained(
        "salf/figure-1", salf.PAPER, "Figure 1: how draft heads are trained",
        "EAGLE, HASS and TALF, each on the sequence or tree that it is trained on. Train draws all three below one "
        "root and trains heads with them.",
        "Train",
    ),
    Explained(
        "salf/figure-3", salf.PAPER, "Figure 3: EAGLE-2 expands a tree", SEARCH + ".", "Step through",
        {"method": "EAGLE-2 beam"},
    ),
    Explained(
        "salf/figure-4", salf.PAPER, "Figure 4: EAGLE-2 and optimal search",
        "EAGLE-2 grows from the deepest level, optimal search anywhere: What if drafts both trees after one prefix.",
        "What if",
    ),
)  # fmt: skip
