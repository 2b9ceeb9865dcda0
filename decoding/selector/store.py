"""Trained selectors on disk, as `trained_store` keeps them: `selector.json` and `selector.safetensors.xz` each.

What the card says is known before weights are read, without torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decoding.common.errors import SettingsError
from decoding.common.trained_store import Kind, check_models, count_of, number_of, same_model, text_of
from decoding.selector.actions import ACTIONS, DISTINCT, LatencyModel, StaticShape, TimeModel, nearest
from decoding.selector.chooser import RULES, Chooser, NetworkOutputs, Rule
from decoding.selector.features import SCALARS, SCALARS_1, Scaler

if TYPE_CHECKING:
    from decoding.selector.network import SelectorNetwork


VERSION = 3
MOST_SIZE = 1 << 20  # of a hidden vector
# Of a network, which cards of version 1 leave unsaid.
FIRST_SIZES = {"scalars": len(SCALARS_1), "outputs": len(ACTIONS)}


@dataclass(frozen=True)
class SelectorCard:
    """What is known of a stored selector before its weights are read.

    Attributes:
        name: value of the setting `selector`.
        verifier: whose expected tokens it was trained on.
        created: date and time of the training, ISO 8601.
        pair: `pair_identity` of the pair it was trained for.
        config: settings of `SelectorConfig` by name.
        mean, spread: of each scalar, as `features.Scaler` takes them.
        statics: the samplings it has seen, with the best static action under each.
        latency: `LatencyModel.as_json` of the machine it was trained for.
        way: how that was counted, one of `actions.TIME_MODELS`.
        scalars: what it reads beside hidden states, names of `features.SCALARS`.
        rule: how an action is chosen by its outputs, one of `chooser.RULES`.
        figures: numbers of the training and of held-out roots by name; `roots` are places in a text, `examples` count
            each once for every sampling that it is labelled under.
        data: what tells the labelled roots from others, with the identity of the `text`; empty before version 3.
        settings: of `SelectorSettings` by name; empty before version 3.
        shipped: whether it comes with the program.
    """

    name: str
    folder: Path
    verifier: str
    created: str
    pair: Mapping[str, Any]
    config: Mapping[str, Any]
    mean: tuple[float, ...]
    spread: tuple[float, ...]
    statics: tuple[StaticShape, ...]
    latency: Mapping[str, Any]
    way: str
    figures: Mapping[str, float]
    scalars: tuple[str, ...] = SCALARS_1
    rule: Rule = "policy"
    data: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    shipped: bool = False

    @property
    def words(self) -> str:
        """Verifier, pair and date: `Selector for specinfer, Embedded pair, 2026-11-22`."""
        return f"Selector for {self.verifier}, {self.pair['name']}, {self.created[:10]}"

    def static(self, temperature: float, top_p: float, draft_temperature: float = 1.0) -> StaticShape:
        """The best static action at the sampling seen that is nearest to this one."""
        return nearest(self.statics, temperature, top_p, draft_temperature)

    def chooser(self, network: NetworkOutputs, latency: LatencyModel, identity: Mapping[str, Any]) -> Chooser:
        """What chooses with its weights where passes of the pair of an identity cost so much."""
        way: TimeModel = "paper" if self.way == "paper" else "rows"
        scaler = Scaler(self.mean, self.spread)
        return Chooser(network, scaler, latency, identity, self.verifier, self.scalars, self.rule, self.statics, way)


SHIPPED = Path(__file__).parent / "trained"
SELECTORS = Kind("selector", "selector", "selector", "leave selector empty")


def all_selectors() -> list[SelectorCard]:
    """Every stored selector that can be read: those of the program, then the user's, the latest first."""
    return SELECTORS.all(SHIPPED, read_card)


def find_selector(name: str) -> SelectorCard:
    """The stored selector of a name; `SettingsError` where there is none, `PairError` where it is damaged."""
    return SELECTORS.find(name, SHIPPED, read_card)


def fits(card: SelectorCard, identity: Mapping[str, Any]) -> bool:
    """Whether a selector was trained for this pair, or for one whose target this one holds copies of.

    What its models are called does not matter.
    """
    target = identity["target"].get("widened_from", identity["target"])
    same = any(same_model(card.pair["target"], model) for model in (identity["target"], target))
    return same and same_model(card.pair["draft"], identity["draft"])


def require_fit(card: SelectorCard, identity: Mapping[str, Any]) -> None:
    """Raise `PairError` where a selector was trained for another pair."""
    if not fits(card, identity):
        own, loaded = (f"{p['name']} ({p['target']['name']}, {p['draft']['name']})" for p in (card.pair, identity))
        raise SELECTORS.unfit(card.name, own, loaded, "pair")


def require_verifier(name: str, trained_for: str, verifier: str) -> None:
    """Raise `SettingsError` where a selector was trained for another verifier."""
    if trained_for != verifier:
        raise SettingsError(
            f"The selector {name} was trained for the verifier {trained_for}, not {verifier}: choose that verifier, or "
            "another selector."
        )


def save_selector(folder: Path, network: "SelectorNetwork", content: Mapping[str, Any]) -> None:
    """Store a selector in a folder such as `RUN/selector`, as `Kind.save` does.

    Args:
        content: the fields of `SelectorCard` from `verifier` to `settings`, without `config`.
    """
    shape = vars(network.config)
    card = {
        "version": VERSION,
        "actions": network.config.outputs,
        **content,
        "statics": [static.as_json() for static in content["statics"]],
        "config": {**shape, "hidden": list(shape["hidden"])},
    }
    SELECTORS.save(folder, network.state_dict(), card)


def read_card(folder: Path, name: str) -> SelectorCard:
    """What `selector.json` in a folder says; `PairError` where it is damaged."""

    def card_of(content: Mapping[str, Any]) -> SelectorCard:
        check_models(content["pair"], ("target", "draft"))
        first = content["version"] == 1
        shape = {**(FIRST_SIZES if first else {}), **content["config"]}
        sizes = (
            *(shape[name] for name in ("target_size", "draft_size", "width", "scalars", "outputs")),
            *shape["hidden"],
        )
        whole = all(0 < count_of(size) <= MOST_SIZE for size in sizes) and len(shape["hidden"]) == 2
        scalars = SCALARS_1 if first else tuple(map(text_of, content["scalars"]))
        known = set(scalars) <= {*SCALARS, *SCALARS_1} and shape["scalars"] == len(scalars) == len(set(scalars))
        rule = "policy" if first else content["rule"]
        outputs = (len(ACTIONS), len(DISTINCT)) if rule == "policy" else (len(DISTINCT),)
        if content["version"] not in (1, 2, VERSION) or rule not in RULES or shape["outputs"] not in outputs:
            raise ValueError
        mean, spread = (tuple(map(number_of, content[each])) for each in ("mean", "spread"))
        statics = tuple(StaticShape.from_json(entry) for entry in content["statics"])
        if rule == "tokens" and not all(static.tokens for static in statics):
            raise ValueError
        if not (whole and known and statics) or not len(mean) == len(spread) == len(scalars) or min(spread) <= 0:
            raise ValueError
        figures = {text_of(key): number_of(value) for key, value in content["figures"].items()}
        data: dict[str, Any] = {}
        settings: dict[str, Any] = {}
        if content["version"] < VERSION:  # what these call roots are examples
            figures = {key.replace("roots", "examples"): value for key, value in figures.items()}
        else:
            data, settings = dict(content["data"]), dict(content["settings"])
            text_of(data["text"])
        return SelectorCard(
            name=name,
            folder=folder,
            verifier=text_of(content["verifier"]),
            created=text_of(content["created"]),
            pair=content["pair"],
            config=shape,
            mean=mean,
            spread=spread,
            statics=statics,
            latency=content["latency"],
            way=text_of(content["way"]),
            figures=figures,
            scalars=scalars,
            rule=rule,
            data=data,
            settings=settings,
            shipped=folder.parent == SHIPPED,
        )

    return SELECTORS.read(folder, card_of)


def load_network(card: SelectorCard) -> "SelectorNetwork":
    """The trained network of a selector, as `Kind.load` gives it."""
    from decoding.selector.network import SelectorConfig, SelectorNetwork

    config = {**card.config, "hidden": tuple(card.config["hidden"])}
    return SELECTORS.load(card.folder, lambda: SelectorNetwork(SelectorConfig(**config))).eval().requires_grad_(False)
