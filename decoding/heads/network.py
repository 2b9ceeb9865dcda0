"""The network of a draft head: one decoder layer that reads a token and the target's feature in front of it.

A head shares the token embedding and the output head of its target, which stay frozen and are no part of it. The
*feature* of a token is what the target's output head multiplies after that token: the last hidden state after the
final norm. The row of token x[i+1] reads the feature of its parent x[i]; what comes out stands for the feature of
x[i+1], and the target's output head makes of it the distribution of x[i+2] (Li et al. 2024, EAGLE).
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import skip_init

from decoding.common.errors import require

# Rows of keys and values of the queries' past, `[batch, num_heads, past, head_dim]` each; keys are rotated.
Past = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class HeadConfig:
    """The shape of a head; the same layer for every architecture of target.

    Attributes:
        hidden_size: of the target's embedding and features, which are also the head's.
        vocab_size: of the target's logits.
        num_heads: attention heads; `hidden_size / num_heads` must be even.
        mlp_size: inner size of the gated MLP.
        rope_theta: base of the rotary positions. norm_eps: what the norms add to the mean square.
    """

    hidden_size: int
    vocab_size: int
    num_heads: int
    mlp_size: int
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        for name in ("hidden_size", "vocab_size", "num_heads", "mlp_size"):
            value = getattr(self, name)
            require(isinstance(value, int) and value >= 1, f"{name} of a head is {value!r}: give a whole number >= 1.")
        require(
            self.hidden_size % (2 * self.num_heads) == 0,
            f"num_heads of a head is {self.num_heads}: it must split {self.hidden_size} into heads of an even size.",
        )
        for name in ("rope_theta", "norm_eps"):
            value = getattr(self, name)
            require(
                isinstance(value, (int, float)) and math.isfinite(value) and value > 0,
                f"{name} of a head is {value!r}: give a number above 0.",
            )

    @property
    def head_dim(self) -> int:
        """Size of one attention head."""
        return self.hidden_size // self.num_heads

    @staticmethod
    def of(hidden_size: int, vocab_size: int, mlp_size: int | None = None) -> "HeadConfig":
        """A shape that suits a target: attention heads of 64 to 128 where they fit, an MLP of twice the hidden size."""
        fits = [n for n in range(1, hidden_size // 2 + 1) if hidden_size % (2 * n) == 0]
        require(bool(fits), f"hidden_size of a head is {hidden_size}: give an even number.")
        num_heads = min(fits, key=lambda n: (abs(math.log2(hidden_size / n / 80)), n))
        return HeadConfig(hidden_size, vocab_size, num_heads, mlp_size or 2 * hidden_size)


class HeadNetwork(nn.Module):
    """A head's own weights: `fc` joins embedding and feature, one pre-norm decoder layer follows.

    The token's embedding is normed before it is joined, because models keep theirs at very different scales; the
    feature goes in as it is, for what comes out must be of the same kind. What of it passes through unchanged has a
    gain of its own per entry: as the diagonal of `fc` it would outweigh all else there, and few bits could not hold it.

    Args:
        generator: draws the first weights, on the CPU; None leaves them unset, to be loaded.
    """

    def __init__(self, config: HeadConfig, generator: torch.Generator | None = None):
        super().__init__()
        self.config = config
        size, mlp = config.hidden_size, config.mlp_size
        self.embedding_norm = nn.RMSNorm(size, eps=config.norm_eps)
        self.fc = _linear(2 * size, size)
        self.feature_gain = nn.Parameter(torch.empty(size))
        self.attention_norm = nn.RMSNorm(size, eps=config.norm_eps)
        self.qkv = _linear(size, 3 * size)
        self.attention_out = _linear(size, size)
        self.mlp_norm = nn.RMSNorm(size, eps=config.norm_eps)
        self.gate_up = _linear(size, 2 * mlp)
        self.down = _linear(mlp, size)
        if generator is None:
            return
        # The feature passes through at first, and the layer adds little to it.
        products = (self.qkv, self.gate_up, self.attention_out, self.down, self.fc)
        with torch.no_grad():
            for gain in (
                self.embedding_norm.weight,
                self.attention_norm.weight,
                self.mlp_norm.weight,
                self.feature_gain,
            ):
                gain.fill_(1.0)
            for product, scale in zip(products, (1.0, 1.0, 0.5, 0.5, 0.5), strict=True):
                drawn = torch.randn(product.weight.shape, generator=generator)
                product.weight.copy_(drawn * scale * product.weight.shape[1] ** -0.5)

    def forward(
        self, embedded: Tensor, features: Tensor, positions: Tensor, mask: Tensor, past: Past | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One pass over rows that may form a tree.

        Args:
            embedded: the target's embedding of each row's token, `[batch, queries, hidden_size]`.
            features: the feature of each row's parent, true or the head's own, `[batch, queries, hidden_size]`.
            positions: of each row's token in the text, int64 `[batch, queries]`; only differences count.
            mask: bool `[batch or 1, queries, past + queries]`, True where a row sees a row; every row sees itself.
            past: keys and values of rows in front of the queries.

        Returns:
            Predicted features of the rows' own tokens `[batch, queries, hidden_size]`, and the queries' own rotated
            keys and values, `[batch, num_heads, queries, head_dim]` each.
        """
        x = self.fc(torch.cat([self.embedding_norm(embedded), features], -1)) + self.feature_gain * features
        heads = self.qkv(self.attention_norm(x)).unflatten(-1, (3, self.config.num_heads, -1))
        queries, keys, values = (part.transpose(1, 2) for part in heads.unbind(2))
        cos, sin = (part.unsqueeze(1) for part in self.rotary(x, positions))
        queries, keys = _rotate(queries, cos, sin), _rotate(keys, cos, sin)
        all_keys, all_values = keys, values
        if past is not None:
            all_keys, all_values = torch.cat([past[0], keys], 2), torch.cat([past[1], values], 2)
        attended = functional.scaled_dot_product_attention(queries, all_keys, all_values, mask.unsqueeze(1))
        x = x + self.attention_out(attended.transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, -1)
        return x + self.down(functional.silu(gate) * up), keys, values

    def rotary(self, like: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines of positions `[batch, queries]`, each `[batch, queries, head_dim]`, in the dtype of `like`.

        Both halves of a head turn by the same angles, as in Llama and GPT-NeoX.
        """
        half = torch.arange(0, self.config.head_dim, 2, device=positions.device, dtype=torch.float32)
        speeds = self.config.rope_theta ** (-half / self.config.head_dim)
        angles = positions[..., None].float() * speeds
        angles = torch.cat([angles, angles], -1)
        return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def _linear(inputs: int, outputs: int) -> nn.Linear:
    """A product without bias whose weights are not drawn: drawing would take from PyTorch's hidden generator."""
    return skip_init(nn.Linear, inputs, outputs, bias=False)


def _rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = heads.chunk(2, -1)
    return heads * cos + torch.cat([-second, first], -1) * sin
