"""The papers' methods by name: a drafter, a verifier and a cache policy with their defaults."""

from dataclasses import dataclass, field, replace
from typing import Literal

from decoding.drafters import DynaTreeDrafter, FixedTreeDrafter, LinearDrafter, NoDrafter
from decoding.drafters.base import Drafter
from decoding.errors import SettingsError, require
from decoding.sampling import Sampling
from decoding.trace import Setting
from decoding.verifiers import VERIFIERS
from decoding.verifiers.base import Verifier
from decoding.verifiers.greedy import GreedyVerifier

CachePolicy = Literal["compaction", "rebuild"]
CACHE_POLICIES: tuple[CachePolicy, ...] = ("compaction", "rebuild")


@dataclass(frozen=True)
class Method:
    """A way to decode.

    Attributes:
        name: key of the method it is or was made from.
        label: what the screen calls it.
        summary: one sentence on what it does.
        paper: where it comes from.
        cache_policy: `compaction` moves the accepted rows; `rebuild` drops all and runs the committed tokens again.
    """

    name: str
    label: str
    summary: str
    paper: str
    drafter: Drafter
    verifier: Verifier = field(default_factory=GreedyVerifier)
    cache_policy: CachePolicy = "compaction"

    def __post_init__(self):
        require(
            self.cache_policy in CACHE_POLICIES,
            f"cache_policy must be one of {', '.join(CACHE_POLICIES)}, not {self.cache_policy!r}.",
        )

    def settings(self) -> dict[str, Setting]:
        """Every setting of drafter, verifier and cache by name."""
        verifier = next(name for name, kind in VERIFIERS.items() if type(self.verifier) is kind)
        return self.drafter.settings() | {"verifier": verifier, "cache_policy": self.cache_policy}

    def with_settings(self, **changes: Setting) -> "Method":
        """The same method with some settings changed."""
        changes = dict(changes)
        verifier, policy = changes.pop("verifier", None), changes.pop("cache_policy", self.cache_policy)
        require(
            verifier is None or verifier in VERIFIERS, f"unknown verifier {verifier!r}: choose {', '.join(VERIFIERS)}."
        )
        known = self.drafter.settings()
        for name in changes:
            require(
                name in known, f"{self.label} has no setting {name!r}; it has {', '.join(known) or 'none of its own'}."
            )
        return replace(
            self,
            drafter=self.drafter.with_settings(**changes),
            verifier=VERIFIERS[verifier]() if verifier else self.verifier,
            cache_policy=policy,
        )

    def check(self, sampling: Sampling) -> None:
        """Raise `SettingsError` if the verifier would bias the output of this drafter's trees."""
        refusal = self.verifier.refusal(self.drafter.law, sampling)
        if refusal:
            fitting = [name for name, kind in VERIFIERS.items() if kind().refusal(self.drafter.law, sampling) is None]
            advice = f" Verifiers that fit: {', '.join(fitting)}." if fitting else ""
            raise SettingsError(refusal + advice)


METHODS: dict[str, Method] = {
    "autoregressive": Method(
        name="autoregressive",
        label="Autoregressive",
        summary="The target alone, one token per pass: the baseline of every comparison.",
        paper="baseline",
        drafter=NoDrafter(),
    ),
    "linear": Method(
        name="linear",
        label="Linear chain",
        summary="The draft proposes one chain of K tokens; the longest prefix that agrees is kept.",
        paper="Leviathan et al. 2023; baseline of both DynaTree papers",
        drafter=LinearDrafter(),
    ),
    "fixed_tree": Method(
        name="fixed_tree",
        label="Fixed tree",
        summary="Every node gets B children down to depth D; improbable paths are pruned before verification.",
        paper="DynaTree, earlier version (adaptive pruning); baseline of the later one",
        drafter=FixedTreeDrafter(),
    ),
    "dynatree": Method(
        name="dynatree",
        label="DynaTree",
        summary="Breadth follows the draft's confidence, depth its path probability, thresholds the recent past.",
        paper="DynaTree: confidence-aware adaptive tree speculative decoding",
        drafter=DynaTreeDrafter(),
    ),
}

_PRESETS: dict[str, Method] = {
    "linear K=8 (WikiText-2)": METHODS["linear"],
    "linear K=5 (PG-19)": METHODS["linear"].with_settings(length=5),
    "linear K=6 (earlier version)": METHODS["linear"].with_settings(length=6),
    "linear K=7 (earlier version)": METHODS["linear"].with_settings(length=7),
    "fixed tree D8 B3 (main table)": METHODS["fixed_tree"],
    "fixed tree D8 B3 tau 0.03 (best of the sweep)": METHODS["fixed_tree"].with_settings(prune_probability=0.03),
    "fixed tree D5 B2 (ablation)": METHODS["fixed_tree"].with_settings(max_depth=5, branching=2),
    "fixed tree D6 B2 tau 0.05 (earlier version)": METHODS["fixed_tree"].with_settings(
        max_depth=6, branching=2, prune_probability=0.05
    ),
    "fixed tree D7 B2 tau 0.05 (earlier version)": METHODS["fixed_tree"].with_settings(
        max_depth=7, branching=2, prune_probability=0.05
    ),
    "DynaTree breadth only (ablation)": METHODS["dynatree"].with_settings(dynamic_depth=False, history=False),
    "DynaTree breadth + depth (ablation)": METHODS["dynatree"].with_settings(history=False),
    "DynaTree (main table)": METHODS["dynatree"],
    "DynaTree, first level may branch": METHODS["dynatree"].with_settings(branch_first_level=True),
    "DynaTree as published, rollback + rebuild": METHODS["dynatree"].with_settings(
        cache_policy="rebuild", history_statistic="committed_over_drafted"
    ),
}

PRESETS: dict[str, Method] = {name: replace(method, label=name) for name, method in _PRESETS.items()}
