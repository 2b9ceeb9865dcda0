"""Runs the layer of a draft head after the rows of its cache, with packed weights where the target has them too."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from decoding.common.errors import PairError
from decoding.engines.attention import RotaryTable, attend
from decoding.engines.base import OutputHead, Visibility
from decoding.engines.kv_cache import FeatureRows, KVCache
from decoding.engines.packed import PackedLinear, can_pack, linear, linear_of
from decoding.engines.packed_cpu import MOST_TABLE_BYTES, MergedAttention
from decoding.heads.network import HeadNetwork
from decoding.heads.store import HEADS, copies_of, find_head, load_network, require_fit
from decoding.models.loading import fetch_weight
from decoding.models.pair import Model, Pair, pair_identity
from decoding.trace.records import ModelInfo


class HeadEngine:
    """One head on the device of its target, with a copy of its trained weights.

    Args:
        embedding: the target's own, token ids to vectors.
        positions: most positions that a text can have.
    """

    name = "packed"

    def __init__(self, network: HeadNetwork, embedding: Any, positions: int, device: torch.device, dtype: torch.dtype):
        self.device, self.dtype = device, dtype
        network = deepcopy(network).to(device, dtype).eval()  # the one given may still be in training
        self._embedding, self._heads, self._eps = embedding, network.config.num_heads, network.config.norm_eps
        norms = (network.embedding_norm, network.attention_norm, network.mlp_norm)
        self._norms = [norm.weight.detach() for norm in norms]
        self._feature_gain = network.feature_gain.detach()
        products = (network.fc, network.qkv, network.attention_out, network.gate_up, network.down)
        self._fc, self._qkv, self._out, self._gate_up, self._down = (linear(product) for product in products)
        self._rotary = RotaryTable(network.rotary, torch.zeros(1, dtype=dtype, device=device), positions)
        self._scale = network.config.head_dim**-0.5

    def new_cache(self, capacity: int) -> KVCache:
        """An empty cache with room for `capacity` rows; row r belongs to the token at position r + 1."""
        return KVCache(1, capacity)

    def run(
        self, cache: KVCache, token_ids: np.ndarray, positions: np.ndarray, seen: Visibility, features: Tensor
    ) -> Tensor:
        """One pass over tokens of a tree or of a text; their rows are appended to the cache.

        Args:
            seen: who sees whom, `[num_queries, cache.length + num_queries]`.
            features: of each token's parent, true or predicted, `[num_queries, hidden_size]`.

        Returns:
            Predicted features of the tokens, `[num_queries, hidden_size]`.
        """
        count = len(token_ids)
        cache.reserve(count)
        ids, places = (torch.from_numpy(np.asarray(part, dtype=np.int64)) for part in (token_ids, positions))
        ids, places = ids.to(self.device, non_blocking=True), places.to(self.device, non_blocking=True)
        mask = self._mask(seen)
        embedded, features = self._embedding(ids).to(self.device), features.to(self.device)
        x = self._fc(torch.cat([self._norm(embedded, 0), features], -1)) + self._feature_gain * features
        parts = self._qkv(self._norm(x, 1)).view(count, 3, self._heads, -1)
        self._rotary.rotate(parts[:, :2], self._rotary.at(places))
        keys, values = cache.write(parts[:, 1:].permute(1, 2, 0, 3)[:, None], 0)
        x = x + self._out(attend(parts[:, 0], keys, values, mask, self._scale).reshape(count, -1))
        gate, up = self._gate_up(self._norm(x, 2)).chunk(2, -1)
        cache.advance(count)
        return x + self._down(functional.silu(gate) * up)

    def _mask(self, seen: Any) -> Any:
        """What `attend` takes; a mask that attends itself, as of a batch, is taken as it is."""
        if hasattr(seen, "attend"):
            return seen
        return None if seen.sees_all else torch.from_numpy(seen.dense())[None, None].to(self.device, non_blocking=True)

    def _norm(self, x: Tensor, which: int) -> Tensor:
        weight = self._norms[which]
        return functional.rms_norm(x, weight.shape, weight, self._eps)


class MergedHeadEngine(HeadEngine):
    """The same in float32 on a CPU, in fewer calls: the token's part of `fc` is looked up, gains are in the weights."""

    def __init__(self, network: HeadNetwork, embedding: Any, positions: int, device: torch.device, dtype: torch.dtype):
        self.device, self.dtype, self._eps = device, dtype, network.config.norm_eps
        size, heads = network.config.hidden_size, network.config.num_heads
        rotary = RotaryTable(network.rotary, torch.zeros(1), positions, adjacent=True)
        order = np.arange(3 * size).reshape(3, heads, -1).transpose(1, 0, 2)
        self._attention = MergedAttention(order, rotary, network.config.head_dim**-0.5)
        self._turns = rotary.turns()[:, None, None]
        with torch.inference_mode():
            weights = {name: weight.detach().to(device, dtype) for name, weight in network.state_dict().items()}
            of_token, of_feature = weights["fc.weight"].split(size, 1)
            normed = self._normed(embedding.weight.detach()) * weights["embedding_norm.weight"]
            self._lookup = normed @ of_token.T
            self._joined = PackedLinear(of_feature + torch.diag(weights["feature_gain"]), None)
            qkv = weights["qkv.weight"] * weights["attention_norm.weight"]
            self._qkv = PackedLinear(qkv[self._attention.columns], None)
            self._gate_up = PackedLinear(weights["gate_up.weight"] * weights["mlp_norm.weight"], None)
            self._attended = PackedLinear(weights["attention_out.weight"], None)
            self._grown = PackedLinear(weights["down.weight"], None)

    @staticmethod
    def fits(embedding: Any, device: torch.device, dtype: torch.dtype) -> bool:
        """Whether this engine runs there, and its table is no larger than what a model's may be."""
        weight = embedding.weight
        packs = dtype == weight.dtype == torch.float32 and weight.device == device and can_pack(device, dtype)
        return packs and weight.nbytes <= MOST_TABLE_BYTES

    def run(
        self, cache: KVCache, token_ids: np.ndarray, positions: np.ndarray, seen: Visibility, features: Tensor
    ) -> Tensor:
        cache.reserve(len(token_ids))
        mask = self._mask(seen)
        x = self._lookup.index_select(0, torch.from_numpy(np.asarray(token_ids, dtype=np.int64)))
        x = self._joined.add_to(x, features)
        made = self._qkv(self._normed(x))
        x = self._attended.add_to(x, self._attention.attend(made, self._turns[positions], mask, cache, 0))
        gate, up = self._gate_up(self._normed(x)).chunk(2, -1)
        cache.advance(len(token_ids))
        return self._grown.add_to(x, functional.silu(gate) * up)

    def _normed(self, x: Tensor) -> Tensor:
        """The norm without its gain."""
        rows = x.numpy()
        scale = 1 / np.sqrt(np.einsum("ij,ij->i", rows, rows) / rows.shape[1] + self._eps)
        return torch.from_numpy(rows * scale[:, None].astype(np.float32))


@dataclass(eq=False)
class Head:
    """A draft head on its target.

    Attributes:
        name: value of the setting `draft_head`.
        info: what the record says of it.
        target: whose features it reads, and whose embedding and output head it shares.
        engine: runs its layer.
        digest: of its weights, which tells heads of one shape apart.
        tokens: ids that it can draft, `[num_tokens]`, all others having draft probability 0; None: all.
        product: features to raw logits of these alone, in the place of the target's whole output head.
    """

    name: str
    info: ModelInfo
    target: Model
    engine: HeadEngine
    digest: str
    tokens: Tensor | None = None
    product: Callable[[Tensor], Tensor] | None = None

    @property
    def device(self) -> torch.device:
        """Where its passes run."""
        return self.engine.device

    def logits(self, features: Tensor) -> Tensor:
        """Raw logits `[num_rows, vocab_size]` that the target's output head makes of features."""
        if self.product is None:
            return self.target.engine.project(features).to(self.device)
        made = self.product(features)
        if self.tokens is None:
            return made
        logits = made.new_full((len(made), self.info.vocab_size), -torch.inf)
        return logits.index_copy_(1, self.tokens, made)

    def fill(self, cache: KVCache, features: FeatureRows, tokens: list[int]) -> None:
        """Run the tokens of a text that the cache lacks, all but the last one, with the true features before them."""
        if cache.length < len(tokens) - 2:
            self.read(cache, features, tokens[:-1])

    def read(self, cache: KVCache, features: FeatureRows, tokens: list[int]) -> Tensor:
        """Run the tokens of a text that the cache lacks, at least one; returns their predicted features.

        Args:
            features: true ones of every token but the last, or more.
        """
        start, end = cache.length, len(tokens) - 1
        seen = Visibility(start, np.tri(end - start, dtype=bool))
        ids, positions = np.array(tokens[start + 1 :]), np.arange(start + 1, end + 1)
        return self.engine.run(cache, ids, positions, seen, features.between(start, end)[:, : self.info.hidden_size])


def make_head(
    target: Model,
    network: HeadNetwork,
    name: str,
    label: str,
    digest: str = "",
    tokens: np.ndarray | None = None,
    copies: int = 1,
    engine: HeadEngine | None = None,
) -> Head:
    """A head made of weights at hand, stored or not; `PairError` where they do not fit the target.

    Args:
        tokens: ids that it is to draft; None: all.
        copies: how many times a widened target holds the features that the head was trained on, side by side: it reads
            the first copy, and stays as small as the pair's draft model does.
        engine: one with the same weights and copies; None: it is made.
    """
    config, info = network.config, target.info
    embedding = target.network.get_input_embeddings()
    sizes = (info.hidden_size, info.vocab_size, embedding.weight.shape[1])
    if sizes != (copies * config.hidden_size, config.vocab_size, copies * config.hidden_size):
        raise PairError(
            f"Head {name} was trained for hidden vectors of {config.hidden_size} and {config.vocab_size} tokens, and "
            f"{info.name} has {info.hidden_size} and {info.vocab_size}: choose a head of this target."
        )
    with torch.inference_mode():  # a target without features is refused here, not in the middle of a text
        target.engine.project(torch.zeros(1, info.hidden_size, dtype=target.dtype, device=target.device))
    parameters = sum(weight.numel() for weight in network.parameters())
    if engine is None:
        if copies > 1:
            copy = embedding.weight[:, : config.hidden_size].detach().contiguous()
            embedding = torch.nn.Embedding.from_pretrained(copy)
        kind = MergedHeadEngine if MergedHeadEngine.fits(embedding, target.device, target.dtype) else HeadEngine
        engine = kind(network, embedding, target.positions, target.device, target.dtype)
    shown = ModelInfo(
        name=label,
        architecture="DraftHead",
        parameters=parameters,
        layers=1,
        hidden_size=config.hidden_size,
        vocab_size=config.vocab_size,
        context=info.context,
        device=str(target.device),
        dtype=info.dtype,
        attention="sdpa",
        weight_bytes=parameters * target.dtype.itemsize,
        engine=engine.name,
    )
    ids = None if tokens is None else torch.from_numpy(np.sort(tokens)).to(target.device)
    product = None if ids is None and copies == 1 else _product_of(target, ids, copies)
    return Head(name, shown, target, engine, digest, ids, product)


def _product_of(target: Model, ids: Tensor | None, copies: int) -> Callable[[Tensor], Tensor]:
    """One copy of the features to raw logits of some tokens, with what of the target's output head is theirs."""
    output_head = OutputHead(target.network, target.info.name)
    rows: Any = slice(None) if ids is None else ids
    weight = fetch_weight(output_head.module).detach().to(target.device)[rows]
    weight = weight.unflatten(1, (copies, -1)).sum(1)  # the copies of an input share its weight
    bias = getattr(output_head.module, "bias", None)
    made = linear_of(weight, None if bias is None else bias.detach().to(target.device)[rows])
    return lambda features: output_head.behind(made(features))


def with_draft(pair: Pair, name: str) -> Pair:
    """The pair that drafts with a stored head, or with its draft model where the name is empty; weights are shared.

    Raises:
        SettingsError: there is no head of that name.
        PairError: it is damaged or belongs to another target, or the target has no features.
    """
    if not name:
        return pair.with_head(None)
    if pair.head is not None and pair.head.name == name:
        return pair
    card, known = find_head(name), pair.target.heads
    stamp = (card.folder, HEADS.stamp(card.folder), card.tokens)
    if stamp not in known:
        identity = pair_identity(pair.with_head(None))
        require_fit(card, identity)
        tokens = np.array(card.frequent[: card.tokens]) if card.tokens else None
        named = (card.name, card.label, HEADS.digest(card.folder))
        engine = next((head.engine for each, head in known.items() if each[:2] == stamp[:2]), None)
        made = make_head(pair.target, load_network(card), *named, tokens, copies_of(card, identity), engine)
        for other in [each for each in known if each[0] == card.folder and each[1] != stamp[1]]:
            del known[other]  # trained again since
        known[stamp] = made
    return pair.with_head(replace(known[stamp], target=pair.target))
