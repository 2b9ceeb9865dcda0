"""The contract: what a run did, as plain records whose types say what a value may be.

A file is read by these types (`codec.py`), bounds included; what no type can say stands in `validation.py`. Reasons are
codes, which `viz` words.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, get_args

import numpy as np
from msgspec import Meta

# Why a node was expanded or not. It was not because it is on the deepest level (max_depth, length_limit); its path is
# too improbable (early_stop, depth_gate, below_threshold); the node budget was used up before its turn (budget); it is
# not among the best of its level (beam); the shape of the tree ends there (shape); no child could be among the best
# nodes (outranked); draws elsewhere were worth more (outdrawn); the last level added too little (low_gain); the next
# batch promises too little (low_promise); going on did not pay (unprofitable); the method drafts nothing (not_drafted);
# nothing followed these tokens, or not often enough, earlier in the text (no_match); the target has not yet read its
# token in this run (unread).
StopReason = Literal[
    "expanded", "max_depth", "early_stop", "depth_gate", "budget", "below_threshold", "length_limit", "not_drafted",
    "beam", "shape", "outranked", "outdrawn", "low_gain", "low_promise", "unprofitable", "no_match",
    "unread",
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

FORMAT_VERSION = 3
TOP_TOKENS = 20
RESIDUAL_TOKENS = 8

# What the verifier did with a node: it never looked at a node that was not reached or not verified.
Verdict = Literal["root", "accepted", "rejected", "not_reached", "not_verified"]
# What the last committed token is: drawn after a leaf of the verified tree, all tests passed (bonus); above one, in
# the place of a rejected token (recovered); the same where nothing drafted was accepted (fallback); or there is none.
FinalKind = Literal["bonus", "recovered", "fallback", "none"]
# How drafted tokens were chosen: not at all, the likeliest ones, one sampled path, independent draws, or draws each
# without those before it.
DraftSampling = Literal["none", "deterministic", "single_path", "iid", "without_replacement"]
StepKind = Literal["test", "match", "choice"]
Stopped = Literal["length", "end_of_text", "unfinished"]
InterventionKind = Literal["force_in", "force_out", "accept", "reject"]
Record = Literal["none", "summary", "full"]

STOP_REASONS: tuple[str, ...] = get_args(StopReason)
VERDICTS: tuple[str, ...] = get_args(Verdict)

# Bounds far above any run: below them every number, sum and axis that a figure makes of a file stays drawable.
ROUNDING = 1e-4  # probabilities are float32 sums
MAX_ITERATIONS, MAX_NODES, MAX_VERIFIED = 2**16, 2**14, 2**13
MAX_DEPTH, MAX_STEPS, MAX_INTERVENTIONS = 2**8, 2**15, 2**9
Count = Annotated[int, Meta(ge=0, le=2**48)]  # of tokens, rows, bytes; token ids too
Probability = Annotated[float, Meta(ge=0, le=1 + ROUNDING)]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
Name = Annotated[str, Meta(max_length=100)]
Text = Annotated[str, Meta(max_length=2**12)]  # longer than any token, name or sentence
Number = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | float | bool
Setting = Number | Text
NodePlace = Annotated[int, Meta(ge=0, le=MAX_NODES)]  # of a node among those of its iteration


@dataclass(frozen=True, slots=True)
class NodeTrace:
    """One node of the draft tree."""

    node_id: NodePlace  # index into `IterationTrace.nodes`; 0 is the root, whose `parent_id` is -1 and `depth` 0
    parent_id: Annotated[int, Meta(ge=-1, le=MAX_NODES)]
    depth: Annotated[int, Meta(ge=0, le=MAX_DEPTH)]
    token_id: Count
    text: Text  # of the token; bytes that are not a whole character read `<0xE2>`
    # How often the node was drawn (more than 1 only in i.i.d. trees)
    multiplicity: Annotated[int, Meta(ge=1, le=2**48)]
    draft_probability: Probability | None  # draft's probability of the token after its parent; None for the root
    path_probability: Probability  # product of `draft_probability` along the path; 1 for the root
    # Largest probability of the draft's distribution after this node, None if never computed
    confidence: Probability | None
    branching: Count | None  # number of children that the rule allowed, None if the node was not expanded
    stop_reason: StopReason
    pruned: bool  # drafted, but removed before verification
    # Target's probability (temperature 1) of the token after its parent, None if not verified
    target_probability: Probability | None
    # target_argmax, target_argmax_text, target_argmax_probability: what the target prefers after this node
    target_argmax: Count | None
    target_argmax_text: Text | None
    target_argmax_probability: Probability | None
    # Exact probability, over the verifier's draws, of being reached and accepted
    acceptance_probability: Probability | None
    verdict: Verdict
    flat_index: Count | None  # row in the verification pass, None if the node was not verified
    draft_level: Count | None  # which draft forward (0-based) processed this node, None if none did
    # Target's probability of the token in the distribution that the verifier used, after temperature and top-p, forced
    # verdicts left out; None under greedy decoding, where not verified, and in a record that does not tell
    tested_probability: Probability | None = None
    breadth: Breadth | None = None  # None if it was not expanded
    reason: Reason | None = None  # None in a record that does not tell


@dataclass(frozen=True, slots=True)
class VerificationStep:
    """One test of the verifier, in order. A node may be tested several times."""

    node_id: NodePlace  # the node at whose context the test takes place
    child_id: NodePlace | None  # the child tested, None where the final token is chosen
    token_id: Count
    acceptance_probability: Probability  # probability that the test passes
    drawn: Probability | None  # the uniform number it was compared with, None for a decision without a draw
    accepted: bool
    weight: float | None = None  # the running weight of block and traversal verification, else None
    # residual_ids, residual_probs: top tokens of what is left of the target's distribution after a rejection
    residual_ids: tuple[Count, ...] = ()
    residual_probs: tuple[Probability, ...] = ()
    # `test` of a child; `match` between two children before it (tournaments); `choice`: a token drawn from a
    # distribution, `acceptance_probability` being what that distribution gives it - a child's token or the final one
    kind: StepKind = "test"
    rival_id: NodePlace | None = None  # the child it was matched against, None but for a match

    @property
    def child(self) -> int:
        """The child tested or matched; raises `ValueError` where the final token was chosen."""
        if self.child_id is None:
            raise ValueError("this step chose the final token and tested no child")
        return self.child_id

    @property
    def rival(self) -> int:
        """The child it was matched against; raises `ValueError` but for a match."""
        if self.rival_id is None:
            raise ValueError("this step is no match")
        return self.rival_id


@dataclass(frozen=True, slots=True)
class DrawTrace:
    """One random decision: `accept` tested a probability, `choose` picked one of several weights."""

    kind: Literal["accept", "choose"]
    probability: Probability
    outcome: Count
    uniform: Probability | None


@dataclass(frozen=True, slots=True)
class KVTrace:
    """What one iteration did to one model's KV slots: a slot holds the keys and values of one token."""

    slots_before: Count  # held before the iteration; slot s is position s of the text
    slots_written: Count  # by the passes of this iteration
    # Node id of each written slot, in order; -1 for committed tokens that were still missing
    slot_nodes: tuple[Annotated[int, Meta(ge=-1, le=MAX_NODES)], ...]
    # For each written slot that is kept, the one it was read from; it is now slot `slots_before` + index
    moved_from: tuple[Count, ...]
    slots_freed: Count  # written ones that were dropped
    rebuilt: bool  # True if the kept slots were recomputed by a second forward instead of moved
    bytes_per_slot: Count  # of keys and values of one token over all layers
    bytes_moved: Count  # bytes copied by compaction


@dataclass(frozen=True, slots=True)
class PhaseTimes:
    """Seconds of each phase of an iteration, measured; `total_s` is wall time of the step without recording.

    `draft_levels_s` holds the draft's forward passes one by one and is part of `draft_s`; `rebuild_s` is the second
    target pass of rollback + rebuild. `record_s` is what writing the trace itself cost, not part of `total_s`; what is
    written later, when it is read or for want of room, is not in it.
    """

    draft_s: Seconds
    prune_s: Seconds
    mask_s: Seconds
    verify_s: Seconds
    select_s: Seconds
    commit_s: Seconds
    rebuild_s: Seconds
    adapt_s: Seconds
    record_s: Seconds
    total_s: Seconds
    draft_levels_s: tuple[Seconds, ...] = ()


PHASES: tuple[str, ...] = ("draft", "prune", "mask", "verify", "select", "commit", "rebuild", "adapt")


@dataclass(frozen=True, slots=True)
class HistoryTrace:
    """History adaptation after an iteration: the window it looked at and what it changed."""

    statistic: Text  # name of the acceptance statistic, e.g. `accepted_over_depth`
    window: tuple[float, ...]  # its last values, oldest first, this iteration included
    mean: float  # mean of the window
    # target, dead_band: the mean is steered to `target` +- `dead_band`
    target: float
    dead_band: float
    # before, after: adapted settings in force in this iteration and in the next
    before: Mapping[Text, Number]
    after: Mapping[Text, Number]
    decision: Text  # `too_few`, `hold`, `bolder`, `more_careful` or `off`


@dataclass(frozen=True, slots=True)
class SamplingTrace:
    """Sampling of the call; temperature 0 is greedy decoding."""

    temperature: float = 0.0
    top_p: float = 1.0
    draft_temperature: float = 1.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class InterventionTrace:
    """A node that a person forced (see `trace.interventions`): its token ids from the root, the root left out."""

    kind: InterventionKind
    path: Annotated[tuple[Count, ...], Meta(min_length=1, max_length=MAX_DEPTH)]


@dataclass(frozen=True, slots=True)
class RuleTrace:
    """The drafter of an iteration, and what explanations need to know of its rule; a setting is given by its name."""

    drafter: Name = ""  # its name, empty where a record does not tell
    depth_setting: Name = ""  # what ends the tree downwards, empty where no single setting does
    first_depth: Annotated[int, Meta(ge=0, le=1)] = 1  # depth that this setting gives the first drafted token, 0 or 1
    threshold_setting: Name = ""  # what `below_threshold` and `worth` are about
    breadth_setting: Name = ""  # what gives a node its children where the breadth is `fixed` or `level`
    left_out: LeftOut | None = None  # why drafted nodes may be left out of verification; None: all are verified
    # What tokens that compete for places are ranked by: path probability times `decay` per level; chance of acceptance,
    # the product along the path of f q / (1 - q + f q), q the draft probability and f one of `factors`; or they do not
    # compete
    value: Value = "none"
    decay: Annotated[float, Meta(gt=0, le=1)] = 1.0
    # Of the odds of acceptance to those of the draft, for the first child of a node and for the others
    factors: tuple[Annotated[float, Meta(gt=0, le=1e6)], ...] = ()
    children: Count = 0  # of a node that compete at most, 0: as many as can be of use
    children_setting: Name = ""  # what limits them, empty where no setting does
    budget_setting: Name = "node_budget"  # what `budget` is about


Grid = Annotated[tuple[float, ...], Meta(min_length=324, max_length=324)]


@dataclass(frozen=True, slots=True)
class SelectorTrace:
    """What a selector of delayed trees saw at a root and what it chose by.

    A grid has a number for K from 1 to 4, L_1 from 0 to 8 and L_2 from 0 to 8, in this order, the last fastest.
    """

    rule: Literal["policy", "tokens"]  # whether the largest probability won, or the most expected tokens per second
    scalars: Mapping[Name, float]  # what it read beside hidden states; seconds of a pass of both models, of asking
    worth: Grid  # probability of each action, or its expected tokens
    seconds: Grid  # modelled time of an iteration with each action on the machine of the run
    chosen: Annotated[int, Meta(ge=0, lt=324)]  # place of the action taken
    static: Annotated[int, Meta(ge=0, lt=324)] | None  # the best action that is the same at every root, None: unknown


@dataclass(frozen=True, slots=True, eq=False)
class IterationTrace:
    """One iteration: one verification pass of the target and everything around it."""

    index: Count
    prefix_length: Count  # committed tokens before it, the root (last of them) included
    settings: Mapping[Text, Setting]  # the drafter's settings in force; history adaptation moves them
    # The draft tree with its root; empty unless recorded in full
    nodes: Annotated[tuple[NodeTrace, ...], Meta(max_length=MAX_NODES)]
    # Node ids in the order of the verification pass, `[num_verified + 1]`, root first
    flatten_order: Annotated[tuple[NodePlace, ...], Meta(max_length=MAX_VERIFIED + 1)]
    # The verifier's tests in order; empty unless recorded in full
    steps: Annotated[tuple[VerificationStep, ...], Meta(max_length=MAX_STEPS)]
    # Ids of accepted nodes from the root down, the root left out; after an early end (`none`) only the nodes whose
    # tokens were committed
    accepted: tuple[NodePlace, ...]
    # committed_ids, committed_texts: tokens committed, accepted ones first, then the final token if any
    committed_ids: tuple[Count, ...]
    committed_texts: tuple[Text, ...]
    final_kind: FinalKind  # what the last committed token is; `none` when the path was cut by end of text or length
    draws: tuple[DrawTrace, ...]
    # kv_target, kv_draft: row movement of both caches; `kv_draft` is None without a draft model
    kv_target: KVTrace
    kv_draft: KVTrace | None
    # Seconds per phase; all 0 where the iteration was replayed from stored rows, so that none was measured
    times: PhaseTimes
    # started_s, ended_s: wall-clock offsets from the start of the call
    started_s: Seconds
    ended_s: Seconds
    # drafted, verified: nodes drafted and nodes given to the target, roots not counted
    drafted: Annotated[int, Meta(ge=0, le=MAX_NODES)]
    verified: Annotated[int, Meta(ge=0, le=MAX_VERIFIED)]
    tree_depth: Annotated[int, Meta(ge=0, le=MAX_DEPTH)]  # of the verified tree
    draft_forwards: Count
    target_passes: Count
    in_loop: bool  # the last 16 output tokens had been seen before when the iteration began
    history: HistoryTrace | None = None
    texts: Mapping[Count, Text] = field(default_factory=dict)  # text of every token id that occurs in this record
    # How the tree's tokens were chosen; decides which verifiers keep the target's distribution on it
    draft_sampling: DraftSampling = "deterministic"
    # Node ids in the order in which they were drawn, one entry per draw; empty where every node was drawn once, in the
    # order of ids
    drawn: tuple[NodePlace, ...] = ()
    # draft_top_ids, draft_top_probs: `[num_nodes, 20]`, top of the distribution the draft drew from after each node, -1
    # / nan where it was not computed; None unless recorded in full
    draft_top_ids: np.ndarray | None = None
    draft_top_probs: np.ndarray | None = None
    # target_top_ids, target_top_probs: the same for the target, at temperature 1
    target_top_ids: np.ndarray | None = None
    target_top_probs: np.ndarray | None = None
    # draft_logits, target_logits: `[num_nodes, vocab_size]` raw float32 logits (nan rows where not computed), only with
    # `rows="full"`
    draft_logits: np.ndarray | None = None
    target_logits: np.ndarray | None = None
    interventions: Annotated[
        tuple[InterventionTrace, ...], Meta(max_length=MAX_INTERVENTIONS)
    ] = ()  # what a person changed by hand in it
    # One sentence on why the text from here on no longer follows the target's distribution, empty where it does
    bias: Annotated[str, Meta(max_length=1000)] = ""
    # `[num_nodes, 20]`, what the distribution that the verifier used, after temperature and top-p and without forced
    # verdicts, gives `target_top_ids`; None under greedy decoding and in a record that does not tell
    tested_top_probs: np.ndarray | None = None
    # Sampling of this iteration, which in a fork may differ from the run's; None where it was not noted
    sampling: SamplingTrace | None = None
    rule: RuleTrace = RuleTrace()  # the drafter that made the tree, which in a fork may differ from the run's
    selector: SelectorTrace | None = None  # what a selector chose the tree's shape by; only in a full record

    @property
    def timed(self) -> bool:
        """Whether its times were measured; those of a replayed iteration were not."""
        return self.times.total_s > 0

    @property
    def logits_bytes(self) -> int:
        """Bytes of the raw logits that it holds."""
        return sum(rows.nbytes for rows in (self.draft_logits, self.target_logits) if rows is not None)

    @property
    def phase_s(self) -> dict[str, float]:
        """Seconds by phase (`PHASES`), 0 for a phase that it did not have; together they may be less than its time.

        Without a draft there is one row and nothing to draft, prune, flatten or adapt: the code that finds this out
        takes microseconds, which belong to no phase.
        """
        seconds = {phase: getattr(self.times, f"{phase}_s") for phase in PHASES}
        idle: tuple[str, ...] = () if self.drafted or self.draft_forwards else ("draft", "prune", "mask")
        if idle and self.history is None:
            idle += ("adapt",)
        return seconds | dict.fromkeys(idle, 0.0)

    @property
    def tree_was_drafted(self) -> bool:
        """Whether a drafter was at work: it may have asked the draft and then left the tree empty."""
        return bool(self.drafted or self.draft_forwards)

    @property
    def final_text(self) -> str | None:
        """Text of the final token, None when the iteration has none."""
        return None if self.final_kind == "none" else self.committed_texts[-1]

    @property
    def forced_verdicts(self) -> frozenset[int]:
        """Ids of the nodes that were tested against a distribution in which a person had forced a verdict."""
        changed = {each.path[:-1] for each in self.interventions if each.kind == "reject"}
        for each in self.interventions:
            if each.kind == "accept":
                changed.update(each.path[:depth] for depth in range(len(each.path)))
        paths = zip(self.nodes, node_paths(self), strict=True)
        tested = ("accepted", "rejected")
        return frozenset(n.node_id for n, path in paths if path and path[:-1] in changed and n.verdict in tested)

    @property
    def forced_in(self) -> frozenset[int]:
        """Ids of the nodes that a person had verified though the drafter had not chosen them."""
        put_in = {each.path for each in self.interventions if each.kind == "force_in"}
        return frozenset(node for node, path in enumerate(node_paths(self)) if path in put_in)

    @property
    def forced_out(self) -> frozenset[int]:
        """Ids of the nodes that a person took out of the tree before verification, those below them included."""
        out, gone = {each.path for each in self.interventions if each.kind == "force_out"}, set()
        for node, path in zip(self.nodes, node_paths(self), strict=True):
            if path in out or node.parent_id in gone:
                gone.add(node.node_id)
        return frozenset(gone)

    @property
    def draft_head(self) -> str:
        """Name of the head that drafted here, empty where the pair's draft model did."""
        return str(self.settings.get("draft_head", ""))

    def children(self, node_id: int) -> tuple[int, ...]:
        """Ids of the children of a node in draft order."""
        return tuple(node.node_id for node in self.nodes if node.parent_id == node_id)

    def path(self, node_id: int) -> tuple[int, ...]:
        """Ids from the root down to a node, both included."""
        path = [node_id]
        while self.nodes[path[-1]].parent_id >= 0:
            path.append(self.nodes[path[-1]].parent_id)
        return tuple(reversed(path))

    def draft_top(self, node_id: int) -> tuple[tuple[int, str, float], ...]:
        """Top of the draft's distribution after a node as (token id, text, probability), empty if not computed."""
        return self._top(self.draft_top_ids, self.draft_top_probs, node_id)

    def target_top(self, node_id: int) -> tuple[tuple[int, str, float], ...]:
        """Top of the target's distribution after a node as (token id, text, probability), empty if not computed."""
        return self._top(self.target_top_ids, self.target_top_probs, node_id)

    def tested_top(self, node_id: int) -> tuple[tuple[int, str, float], ...]:
        """The same in the distribution that the verifier used, after temperature and top-p; empty if not recorded."""
        return self._top(self.target_top_ids, self.tested_top_probs, node_id)

    def draft_rank(self, node_id: int, token_id: int) -> int | None:
        """Rank of a token in the draft's distribution after a node, 1 for its favourite; None where not recorded."""
        top = [known for known, _, _ in self.draft_top(node_id)]
        if token_id in top:
            return 1 + top.index(token_id)
        if not top or self.draft_logits is None:
            return None
        row = self.draft_logits[node_id]
        return 1 + int((row > row[token_id]).sum())

    def _top(self, ids: np.ndarray | None, probs: np.ndarray | None, node: int) -> tuple[tuple[int, str, float], ...]:
        if ids is None or probs is None:
            return ()
        pairs = zip(ids[node].tolist(), probs[node].tolist(), strict=True)
        return tuple((i, self.texts.get(i, f"<{i}>"), p) for i, p in pairs if i >= 0)


def node_paths(iteration: IterationTrace) -> list[tuple[int, ...]]:
    """Tokens from the first drafted one down to each node, by id; the root's path is empty."""
    paths: list[tuple[int, ...]] = []
    for node in iteration.nodes:
        paths.append((*paths[node.parent_id], node.token_id) if node.node_id else ())
    return paths


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """One model of a pair as it was loaded."""

    name: Text
    architecture: Text
    parameters: Count
    layers: Count
    hidden_size: Count
    vocab_size: Count
    context: Count
    device: Text
    dtype: Text
    attention: Text
    weight_bytes: Count
    # engine, engine_reason: what runs it (see `decoding.engines`), and why, in words; empty where not noted
    engine: Text = "transformers"
    engine_reason: Text = ""


@dataclass(frozen=True, slots=True)
class PairInfo:
    """A draft/target pair as it was loaded."""

    name: Text
    target: ModelInfo
    draft: ModelInfo
    context: Count


@dataclass(frozen=True, slots=True)
class Totals:
    """What the whole call took."""

    new_tokens: Count  # committed tokens, the prompt left out
    # Both prefills, before the first iteration; without a draft the first pass, which reads the prompt
    prefill_s: Seconds
    ttft_s: Seconds  # from the call to the first committed tokens, prefill included
    wall_s: Seconds  # wall time of the call, prefill included, writing of traces left out
    stopped: Stopped  # `length`, `end_of_text` or `unfinished`
    peak_memory_bytes: Count | None  # peak memory of the device (CUDA), or of caches and weights (other devices)


@dataclass(frozen=True, slots=True, eq=False)
class RunTrace:
    """One whole call: what was asked, on what, and every iteration."""

    format_version: int
    created: Text
    method: Text  # key in `METHODS`, e.g. `dynatree`
    label: Text  # what to call it on screen, settings that differ from the defaults included
    settings: Mapping[Text, Setting]  # every setting of the method, drafter, verifier and cache policy by name
    pair: PairInfo
    sampling: SamplingTrace
    max_new_tokens: Count
    prompt_ids: tuple[Count, ...]
    prompt_texts: tuple[Text, ...]
    hardware: Mapping[Text, Text]  # processor, GPU, cores, memory; versions of the libraries
    iterations: Annotated[tuple[IterationTrace, ...], Meta(max_length=MAX_ITERATIONS)]
    totals: Totals
    # Index of the first iteration made by this method and sampling; earlier ones of a fork are its parent's, which may
    # have had others
    own_from: Count = 0
    stop_ids: tuple[Count, ...] = ()  # tokens that end its text; none where they were ignored, and in older records

    @property
    def timed(self) -> bool:
        """Whether every iteration was measured; where one was replayed, there is no rate."""
        return all(iteration.timed for iteration in self.iterations)

    @property
    def bias(self) -> str:
        """Why the text no longer follows the target's distribution, empty while it does."""
        return next((iteration.bias for iteration in self.iterations if iteration.bias), "")

    @property
    def draft_head(self) -> str:
        """Name of the head that drafts, empty where the pair's draft model does."""
        return str(self.settings.get("draft_head", ""))

    def texts_before(self, index: int) -> list[str]:
        """Texts of the tokens before an iteration, the prompt's first."""
        return [*self.prompt_texts, *(text for each in self.iterations[:index] for text in each.committed_texts)]

    @property
    def output_ids(self) -> tuple[int, ...]:
        """Committed tokens after the prompt, `[new_tokens]`."""
        return tuple(token for iteration in self.iterations for token in iteration.committed_ids)

    @property
    def ending_ids(self) -> tuple[int, ...]:
        """Tokens that end the text, as far as a record tells: an older one names only that which ended it."""
        return self.stop_ids or (self.output_ids[-1:] if self.totals.stopped == "end_of_text" else ())

    def without_logits(self) -> "RunTrace":
        """The same run without the raw logits of both models."""
        iterations = (replace(each, draft_logits=None, target_logits=None) for each in self.iterations)
        return replace(self, iterations=tuple(iterations))
