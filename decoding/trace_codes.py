"""The codes in which a record tells its reasons; `viz` words them."""

from typing import Literal, get_args

# Why a node was expanded or not. It was not because it is on the deepest level (max_depth, length_limit); its path is
# too improbable (early_stop, depth_gate, below_threshold); the node budget was used up before its turn (budget); it is
# not among the best of its level (beam); the shape of the tree ends there (shape); no child could be among the best
# nodes (outranked); draws elsewhere were worth more (outdrawn); the last level added too little (low_gain); the next
# batch promises too little (low_promise); going on did not pay (unprofitable); the method drafts nothing (not_drafted).
Growth = Literal[
    "expanded", "max_depth", "early_stop", "depth_gate", "budget", "below_threshold", "length_limit", "not_drafted",
    "beam", "shape", "outranked", "outdrawn", "low_gain", "low_promise", "unprofitable",
]  # fmt: skip
# Why an expanded node has as many children as it has: the first level takes one (first_level), a chain does (chain), a
# setting gives a number to every node (fixed) or every level (level); the draft's confidence is high (confident), in
# the middle (between) or low (unsure); as many won a place (ranked). Of draws: the others were worth more (outdrawn) or
# one more was worth too little (worth), the budget ended them (budget), the shape of the tree says so (shape), or no
# token is left (all_drawn). A person forced a node in below it (forced).
Breadth = Literal[
    "first_level", "chain", "fixed", "level", "confident", "between", "unsure", "ranked", "outdrawn", "worth", "budget",
    "shape", "all_drawn", "forced",
]  # fmt: skip
# Why drafted nodes are not verified: the path is too improbable, others have higher values, or it would not pay.
LeftOut = Literal["improbable", "outranked", "unprofitable"]
# Why a node has its verdict. Accepted: the target's favourite, a test that passed, drawn, or a node below it passed.
# Rejected: not the favourite, a test that failed, another token was drawn, a match that was lost. Not reached: an
# ancestor was not accepted, a sibling was before, the path was settled before, only the first path is looked at, the
# text ended. The last ones say what a person forced.
Reason = Literal[
    "root", "improbable", "outranked", "unprofitable", "favourite", "test_passed", "drawn", "kept_below",
    "not_favourite", "test_failed", "not_drawn", "match_lost", "ancestor_lost", "sibling_taken", "path_settled",
    "first_path_only", "text_ended", "forced_out", "below_forced_out", "forced_pass", "forced_fail",
    "sibling_forced_pass", "sibling_forced_fail",
]  # fmt: skip
# What tokens that compete for places are ranked by: nothing, path probability, chance of acceptance.
Value = Literal["none", "path", "chance"]

GROWTHS: tuple[str, ...] = get_args(Growth)
