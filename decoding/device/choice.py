"""Whether an iteration can run on the device, and as what."""

from typing import Any

from decoding.common.settings import STATIC_HOST
from decoding.device.drafters import device_rule
from decoding.device.drafting import Asked
from decoding.device.iteration import DeviceIteration
from decoding.device.next import NextToken
from decoding.device.tree import PENDING, places_for
from decoding.drafters import NoDrafter
from decoding.engines.kv_cache import KVCache
from decoding.engines.static import StaticEngine
from decoding.engines.static_cache import LARGEST
from decoding.methods.method import Method
from decoding.models.pair import Model, Pair
from decoding.verifiers import GreedyVerifier


def choose_iteration(
    pair: Pair,
    method: Method,
    state: Any,
    tokens: list[int],
    caches: tuple[KVCache, KVCache | None],
    depth_limit: int,
    draft_temperature: float,
    record: bool,
) -> DeviceIteration | NextToken | None:
    """Drafting, verification and compaction on the device; None where the reference path has to do it.

    Args:
        state: of the drafter.
        tokens: the committed tokens.
        caches: of target and draft, None without a draft.
        depth_limit: no node may be deeper.
        record: whether laws and logits are wanted.
    """
    target, draft = caches
    usual = (method.cache_policy, method.node_order) == ("compaction", "breadth")
    if not usual or not isinstance(method.verifier, GreedyVerifier):
        return None
    if not _ready(pair.target, target) or target.length != len(tokens) - 1:
        return None
    if isinstance(method.drafter, NoDrafter):
        return NextToken(pair.target.engine, target, tokens[-1], record)
    # A draft that is behind by a whole text catches up in one eager pass.
    if draft is None or not _ready(pair.draft, draft) or len(tokens) - draft.length > PENDING:
        return None
    rule = device_rule(method.drafter, state, depth_limit) if depth_limit > 0 else None
    if rule is None or places_for(rule.nodes) > LARGEST or rule.top > pair.logits_size:
        return None
    if pair.target.device != pair.draft.device:
        return None
    asked = Asked(pair.logits_size, draft_temperature, record)
    engines = (pair.target.engine, pair.draft.engine)
    return DeviceIteration(engines, caches, method.drafter, state, rule, tokens, asked)


def _ready(model: Model, cache: KVCache) -> bool:
    """Whether a model runs whole iterations in static shapes and its cache has blocks: an eager pass makes them."""
    if not isinstance(model.engine, StaticEngine) or model.engine.name == STATIC_HOST:
        return False
    # Trees on the device hold probabilities in float64, which an Apple GPU does not have.
    return model.device.type != "mps" and cache.length > 0 and all(cache.blocks.placed)
