"""A method: a drafter, a verifier and a cache policy, and which combinations are allowed."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from decoding.common.errors import SettingsError, require
from decoding.common.settings import VERIFICATION, SettingInfo, check_settings, setting, settings_of
from decoding.drafters.base import Drafter, Measured
from decoding.heads.head import with_draft
from decoding.heads.store import head_label
from decoding.sampling.sampling import Sampling
from decoding.trace.records import DraftSampling, Setting
from decoding.trace.tree_mask import ORDER_NAMES, NodeOrder
from decoding.verifiers import VERIFIERS, GreedyVerifier, NSSVerifier, Verifier

CachePolicy = Literal["compaction", "rebuild"]
CACHE_POLICIES: tuple[CachePolicy, ...] = ("compaction", "rebuild")


@dataclass(frozen=True)
class Method:
    """A decoding method.

    Attributes:
        name: key of the method it is or is derived from.
        summary: one sentence on what it does.
        cache_policy: `compaction` moves the accepted KV slots; `rebuild` drops all and re-runs the committed tokens.
        draft_head: name of the trained head that drafts (see `decoding.heads.store`); empty: the pair's draft model.
        node_order: of the nodes in a verification pass, one of `NODE_ORDERS`; tokens are the same in all.
    """

    name: str
    label: str
    summary: str
    paper: str
    drafter: Drafter
    verifier: Verifier = setting(
        GreedyVerifier(), group=VERIFICATION, label="Verifier", help="How drafted tokens are accepted."
    )
    cache_policy: CachePolicy = setting(
        "compaction", label="KV cache", choices={policy: policy for policy in CACHE_POLICIES},
        help="compaction moves the accepted KV slots; rebuild drops the tree's slots and re-runs the committed tokens.",
    )  # fmt: skip
    draft_head: str = setting(
        "", label="Draft",
        help="The pair's draft model, or a head trained on the target's features.",
    )  # fmt: skip
    node_order: NodeOrder = setting(
        "breadth", label="Node order", choices=ORDER_NAMES,
        help="Order of the tree's nodes in a verification pass. It changes the mask, not the tokens.",
    )  # fmt: skip

    def __post_init__(self):
        check_settings(self)
        require(
            not self.draft_head or self.drafter.uses_draft_model,
            f"The method {self.name} asks no draft, so draft_head must be empty, not {self.draft_head!r}.",
        )

    @property
    def infos(self) -> dict[str, SettingInfo]:
        """What is declared of every setting, by name."""
        return {**settings_of(type(self.drafter)), **settings_of(type(self.verifier)), **settings_of(Method)}

    def carried(self, state: Any, before: "Method", prompt_ids: list[int]) -> Any:
        """What the drafter has learned under another method, as far as it holds for this one; else where it starts."""
        alike = type(self.drafter) is type(before.drafter) and self.draft_head == before.draft_head
        if state is None or not alike:
            return self.drafter.start(prompt_ids)
        return self.drafter.carried(state, before.drafter, prompt_ids)

    def settings(self) -> dict[str, Setting]:
        """Every setting by name; `optional` ones, `draft_head` and `node_order` only where they are not as usual."""
        own = {"verifier": self.verifier.name, **self.verifier.settings(), "cache_policy": self.cache_policy}
        usual = {"draft_head": "", "node_order": "breadth"}
        return self.drafter.settings() | own | {n: v for n in usual if (v := getattr(self, n)) != usual[n]}

    def all_settings(self) -> dict[str, Setting]:
        """Every setting by name, those included that `settings` leaves out where they are as usual."""
        left_out: dict[str, Setting] = {name: self.infos[name].default for name in self.drafter.optional}
        left_out |= {"draft_head": ""} if self.drafter.uses_draft_model else {}
        left_out |= {"node_order": "breadth"} if self.drafter.drafts else {}
        return self.settings() | {name: value for name, value in left_out.items() if name not in self.settings()}

    def drafting(self, pair: Any) -> Any:
        """A pair (`decoding.models.pair.Pair`) with the draft that this method uses: its draft model, or a head.

        Raises:
            SettingsError, PairError: there is no head of that name; it is damaged or was trained for another target.
        """
        if not self.draft_head and pair.head is None:
            return pair
        return with_draft(pair, self.draft_head)

    def prepared(self, measured: Measured) -> "Method":
        """The same method with what its drafter has to know of a pair filled in; of `drafting(pair)`, not another."""
        return replace(self, drafter=self.drafter.prepared(measured))

    def with_settings(self, **changes: Any) -> "Method":
        """The same method with some settings changed."""
        changes = dict(changes)
        verifier, policy = changes.pop("verifier", None), changes.pop("cache_policy", self.cache_policy)
        head, order = changes.pop("draft_head", self.draft_head), changes.pop("node_order", self.node_order)
        require(
            verifier is None or verifier in VERIFIERS, f"unknown verifier {verifier!r}: choose {', '.join(VERIFIERS)}."
        )
        chosen = self.verifier if verifier in (None, self.verifier.name) else VERIFIERS[verifier]()
        of_verifier = {name: changes.pop(name) for name in chosen.settings() if name in changes}
        known = self.drafter.settings()
        for name in changes:
            require(
                name in known or name in self.drafter.optional,
                f"{self.label} has no setting {name!r}; it has {', '.join(known) or 'none of its own'}.",
            )
        label = self.label
        if head != self.draft_head and isinstance(head, str):  # `SALF` becomes `SALF + TALF head`
            bare = label.removesuffix(f" + {head_label(self.draft_head)}") if self.draft_head else label
            label = f"{bare} + {head_label(head)}" if head else bare
        return replace(
            self,
            label=label,
            drafter=self.drafter.with_settings(**changes),
            verifier=chosen.with_settings(**of_verifier),
            cache_policy=policy,
            draft_head=head,
            node_order=order,
        )

    def check(self, sampling: Sampling) -> None:
        """Raise `SettingsError` if the verifier would bias the output of this drafter's trees."""
        refusal = self.verifier.refusal(self.drafter.draft_sampling, sampling)
        if refusal:
            raise SettingsError(
                f"{refusal} Verifiers that fit: {', '.join(fitting(self.drafter.draft_sampling, sampling))}."
            )
        self.drafter.check_verifier(self.verifier.name)


def fitted(method: Method, sampling: Sampling) -> Method:
    """The method, with NSS in the place of a verifier that would bias its output: NSS fits every tree."""
    refused = method.verifier.refusal(method.drafter.draft_sampling, sampling) is not None
    return replace(method, verifier=NSSVerifier()) if refused else method


def fitting(draft_sampling: DraftSampling, sampling: Sampling) -> list[str]:
    """Names of the verifiers that keep the target's distribution on trees of this kind."""
    return [name for name, kind in VERIFIERS.items() if kind().refusal(draft_sampling, sampling) is None]
