"""What the screen says about each setting of a drafter: name, symbol, meaning, range. One line per setting.

A new drafter's settings get their lines here; a setting without one is shown by its name alone.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from decoding.node_orders import ORDER_NAMES
from decoding.trace import Setting


@dataclass(frozen=True)
class SettingInfo:
    """One setting as it stands beside its widget.

    Attributes:
        group: heading under which it is shown.
        label, symbol: words and the paper's sign, empty where it has none.
        meaning: one line.
        low, high, step: what the slider offers; numbers only.
        choices: what can be chosen; words only.
        choice_words: what a choice is called where it is not its own word.
        placeholder: what an empty text means.
    """

    group: str
    label: str
    symbol: str
    meaning: str
    low: float | None = None
    high: float | None = None
    step: float | None = None
    choices: tuple[str, ...] = ()
    choice_words: Mapping[str, str] = field(default_factory=dict)
    placeholder: str = ""

    def told(self, choice: str) -> str:
        """A choice as a person reads it."""
        return self.choice_words.get(choice, choice.replace("_", " "))

    @property
    def title(self) -> str:
        """Label and symbol together."""
        return f"{self.label} ({self.symbol})" if self.symbol else self.label


BREADTH, DEPTH, SIZE, HISTORY, ENGINE = "Breadth", "Depth", "Pruning and size", "History", "Engine"
SHAPE, SEARCH, VERIFICATION = "Shape", "Search", "Verification"
GROUPS = (VERIFICATION, SHAPE, SEARCH, BREADTH, DEPTH, SIZE, HISTORY, ENGINE)

SETTING_INFO: dict[str, SettingInfo] = {
    "length": SettingInfo(SHAPE, "Length", "", "Tokens in a row: K of a chain, L of each path.", 1, 32, 1),
    "sampled": SettingInfo(
        SHAPE, "Sampled", "", "Tokens are drawn from the draft's law; off: its most likely ones are taken."
    ),
    "paths": SettingInfo(SHAPE, "Paths", "K", "Independent paths.", 1, 16, 1),
    "trunk": SettingInfo(SHAPE, "Trunk", "L_1", "Tokens of the one path before it branches.", 0, 16, 1),
    "branch": SettingInfo(SHAPE, "Branches", "L_2", "Tokens of each path below the trunk.", 0, 16, 1),
    "selector": SettingInfo(
        SHAPE, "Selector", "", "A trained network chooses K, L_1 and L_2 anew at every root, from the text before it."
    ),
    "widths": SettingInfo(SHAPE, "Widths", "", "Children per node, level by level, with commas between."),
    "acceptance": SettingInfo(
        SHAPE,
        "Acceptance by rank",
        "P",
        "Chances that the 1st, 2nd, ... child is accepted; empty: measured with the loaded pair.",
        placeholder="measured with the loaded pair",
    ),
    "threshold": SettingInfo(
        SEARCH, "Threshold", "θ", "Siblings are drawn while one more has at least this value.", 0.001, 0.5, 0.001
    ),
    "batch": SettingInfo(SEARCH, "Batch", "B", "Nodes expanded per draft forward.", 1, 64, 1),
    "beam_width": SettingInfo(SEARCH, "Beam width", "k", "Nodes expanded per level, and children of each.", 1, 32, 1),
    "gain_threshold": SettingInfo(
        SEARCH, "Stop at a gain below", "th", "Drafting stops when it promises fewer accepted tokens.", 0.0, 0.95, 0.05
    ),
    "learn": SettingInfo(
        HISTORY, "Learn on the way", "", "Outcomes move the odds of acceptance; drafting rests where it does not pay."
    ),
    "verify_ms": SettingInfo(
        SEARCH,
        "Verification, ms",
        "",
        "An iteration without drafting, in ms by nodes with the root, such as 1:2.5 8:3.1.",
        placeholder="measured with the loaded pair",
    ),
    "level_ms": SettingInfo(
        SEARCH,
        "Draft level, ms",
        "",
        "A level in ms by its width, such as 1:0.3 32:0.5; one number for every width.",
        placeholder="measured with the loaded pair",
    ),
    "odds": SettingInfo(
        SEARCH,
        "Odds at the start",
        "",
        "How much likelier than the draft thinks first children and others are accepted, as factors of the odds.",
        placeholder="measured with the loaded pair",
    ),
    "top_up": SettingInfo(
        SEARCH, "Top up", "", "After an early stop the free places go to the best nodes that were scored already."
    ),
    "children": SettingInfo(SEARCH, "Children at most", "", "Children per node; 0 sets no limit.", 0, 64, 1),
    "decay": SettingInfo(SEARCH, "Decay", "", "Factor per level on the value nodes are ranked by.", 0.5, 1.0, 0.01),
    "truncation": SettingInfo(
        VERIFICATION, "Free tokens", "s", "Tokens between which linear programmes choose the odds.", 2, 64, 1
    ),
    "adaptive_breadth": SettingInfo(
        BREADTH, "Adaptive breadth", "", "Children follow the draft's confidence; off: every node gets B_mid."
    ),
    "branching": SettingInfo(BREADTH, "Children per node", "B", "Every node gets this many children.", 1, 8, 1),
    "branch_min": SettingInfo(BREADTH, "Children, sure", "B_min", "Where confidence is at least τ_h.", 1, 8, 1),
    "branch_mid": SettingInfo(BREADTH, "Children, in between", "B_mid", "Where confidence is between.", 1, 8, 1),
    "branch_max": SettingInfo(BREADTH, "Children, unsure", "B_max", "Where confidence is below τ_l.", 1, 8, 1),
    "confidence_high": SettingInfo(
        BREADTH, "High confidence", "τ_h", "From here on the draft is sure and B_min children do.", 0.05, 0.99, 0.01
    ),
    "confidence_low": SettingInfo(
        BREADTH,
        "Low confidence",
        "τ_l",
        "Below this the draft is unsure and B_max children are tried.",
        0.01,
        0.95,
        0.01,
    ),
    "branch_first_level": SettingInfo(
        BREADTH, "First level may branch", "", "Off: the tree starts with the draft's top token alone, as in the paper."
    ),
    "dynamic_depth": SettingInfo(
        DEPTH, "Dynamic depth", "", "Likely paths may pass D_0, unlikely ones end early; off: all end at D_0."
    ),
    "base_depth": SettingInfo(DEPTH, "Base depth", "D_0", "How deep any path may go; below D_max.", 1, 16, 1),
    "max_depth": SettingInfo(DEPTH, "Maximum depth", "D_max", "No path goes deeper.", 1, 32, 1),
    "stop_probability": SettingInfo(
        DEPTH, "Early stop", "ρ_stop", "Nodes with a smaller path probability are not expanded.", 0.0, 0.9, 0.01
    ),
    "deep_probability": SettingInfo(
        DEPTH, "Depth gate", "ρ_deep", "Path probability needed to go beyond D_0.", 0.0, 0.95, 0.01
    ),
    "prune_probability": SettingInfo(
        SIZE, "Pruning", "τ", "Nodes with a smaller path probability are removed before verification.", 0.0, 0.5, 0.01
    ),
    "node_budget": SettingInfo(SIZE, "Node budget", "N_max", "Nodes drafted per iteration at most.", 1, 1024, 1),
    "history": SettingInfo(
        HISTORY, "History adaptation", "", "Recent acceptance moves D_0, τ_h and ρ_deep between iterations."
    ),
    "history_window": SettingInfo(HISTORY, "Window", "W", "Iterations that the mean looks back on.", 1, 50, 1),
    "history_target": SettingInfo(HISTORY, "Aim", "", "Mean acceptance that is steered to.", 0.05, 0.95, 0.05),
    "history_dead_band": SettingInfo(HISTORY, "Dead band", "±", "Around the aim nothing moves.", 0.0, 0.5, 0.05),
    "history_minimum": SettingInfo(HISTORY, "Entries needed", "", "Fewer iterations move nothing.", 1, 50, 1),
    "history_depth_step": SettingInfo(HISTORY, "Step of D_0", "", "How far one adjustment moves D_0.", 0, 8, 1),
    "history_probability_step": SettingInfo(
        HISTORY, "Step of τ_h and ρ_deep", "", "How far one adjustment moves both.", 0.0, 0.5, 0.01
    ),
    "history_statistic": SettingInfo(
        HISTORY,
        "Statistic",
        "",
        "Accepted tokens over the tree's depth, or the paper's committed over drafted tokens.",
        choices=("accepted_over_depth", "committed_over_drafted"),
    ),
    "verifier": SettingInfo(VERIFICATION, "Verifier", "", "How drafted tokens are accepted."),
    "draft_head": SettingInfo(
        ENGINE, "Draft", "", "What drafts: the pair's draft model, or a head that was trained on the target's features."
    ),
    "cache_policy": SettingInfo(
        ENGINE,
        "KV cache",
        "",
        "compaction moves the accepted rows; rebuild drops the tree's rows and runs the committed tokens again.",
        choices=("compaction", "rebuild"),
    ),
    "node_order": SettingInfo(
        ENGINE,
        "Row order",
        "",
        "How the tree's nodes stand in the rows of a verification pass. Tokens are the same; the mask is not.",
        choices=tuple(ORDER_NAMES),
        choice_words=ORDER_NAMES,
    ),
}

# A switch that is off makes these settings idle; their widgets are disabled.
IDLE_WITHOUT: dict[str, tuple[str, ...]] = {
    "adaptive_breadth": ("branch_min", "branch_max", "confidence_high", "confidence_low"),
    "dynamic_depth": ("max_depth", "stop_probability", "deep_probability"),
    "history": (
        "history_window",
        "history_target",
        "history_dead_band",
        "history_minimum",
        "history_depth_step",
        "history_probability_step",
        "history_statistic",
    ),
}

# What is trained makes these settings idle where it is chosen.
IDLE_WITH: dict[str, tuple[str, ...]] = {"selector": ("paths", "trunk", "branch")}

# Settings by method whose default is a value of the papers, and those that only DynaTree's public code tells; the
# defaults of all others were chosen here.
PAPER_DEFAULTS: dict[str, tuple[str, ...]] = {
    "linear": ("length",),
    "fixed_tree": ("max_depth", "branching", "prune_probability", "node_budget", "branch_first_level"),
    "dynatree": (
        "base_depth",
        "max_depth",
        "branch_min",
        "branch_max",
        "confidence_high",
        "confidence_low",
        "branch_first_level",
        "adaptive_breadth",
        "dynamic_depth",
        "history",
    ),
    "dyspec": ("node_budget",),
    "dyspec_threshold": ("threshold",),
    "eagle2": ("node_budget", "beam_width", "max_depth"),
    "specexec": ("node_budget", "batch"),
    "salf": ("node_budget", "batch", "gain_threshold"),
}
CODE_DEFAULTS: dict[str, tuple[str, ...]] = {
    "dynatree": (
        "branch_mid",
        "stop_probability",
        "deep_probability",
        "prune_probability",
        "node_budget",
        "history_window",
        "history_target",
        "history_dead_band",
        "history_minimum",
        "history_depth_step",
        "history_probability_step",
    ),
}
# Settings of a call, whose widgets are not a method's.
CALL_LABELS = {"draft_temperature": "Draft temperature", "top_p": "Top-p", "max_new_tokens": "New tokens at most"}
GREEK = {"tau": "τ", "rho": "ρ"}
DEFAULT_WORDS = {
    "paper": "Default of the paper",
    "code": "Default of the paper's public code",
    "default": "Default",
}


def default_source(method_name: str, name: str) -> str:
    """Where the default of a method's setting comes from, a key of `DEFAULT_WORDS`."""
    if name in PAPER_DEFAULTS.get(method_name, ()):
        return "paper"
    return "code" if name in CODE_DEFAULTS.get(method_name, ()) else "default"


def as_labelled(sentence: str) -> str:
    """A sentence of the engine with settings named as their widgets name them: `“Children, sure (B_min)”`."""

    def label(found: re.Match) -> str:
        name, opening = found.groups()
        if name in CALL_LABELS:
            return f"“{CALL_LABELS[name]}”{opening}"
        info = SETTING_INFO[name]
        # What follows in brackets is the symbol, or the value with it.
        return f"“{info.label}”{opening}" if opening else f"“{info.title}”"

    names = "|".join(name for name in (*SETTING_INFO, *CALL_LABELS) if "_" in name)
    shown = re.sub(rf"\b({names})\b( \(|)", label, sentence)
    return re.sub(r"\b(tau|rho)(?=_|\b)", lambda found: GREEK[found[1]], shown)


def info_of(name: str, value: Setting) -> SettingInfo:
    """What to say about a setting; a generic entry for one that has no line."""
    if name in SETTING_INFO:
        return SETTING_INFO[name]
    label = name.replace("_", " ").capitalize()
    if isinstance(value, bool | str):
        return SettingInfo(ENGINE, label, "", "", choices=(value,) if isinstance(value, str) else ())
    if isinstance(value, int):
        return SettingInfo(ENGINE, label, "", "", 0, max(16, 4 * value), 1)
    return SettingInfo(ENGINE, label, "", "", 0.0, max(1.0, 2 * value), 0.01)
