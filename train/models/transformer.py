"""Decoder `transformer`: pre-norm Transformer with a key-value cache and optional attention refinement."""

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hmerctl.runtime.errors import ConfigError
from hmerctl.train.models.parts import MASKED, MAX_STEPS, Decoder, StateSpec, register
from hmerctl.train.models.positions import sinusoid
from hmerctl.train.models.relative import Reach, RelativeBias


@dataclass(frozen=True)
class TransformerConfig:
    """Sizes of the decoder.

    Attributes:
        layers, heads, width, inner: depth, attention heads, model width, width of the feed-forward layer.
        dropout: on embeddings and residual branches, not on attention probabilities.
        refinement: channels of the attention refinement in every layer but the first; 0 for none.
        refinement_rank: channels between the two one-dimensional convolutions that its kernel is made of; 0 for one
            whole kernel.
    """

    layers: int = 3
    heads: int = 6
    width: int = 192
    inner: int = 512
    dropout: float = 0.2
    refinement: int = 0
    refinement_rank: int = 0

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")


class Refinement(nn.Module):
    """Attention refinement (Zhao and Gao 2022, ARM): attention already spent lowers the scores of a cell.

    The running sums of past attention, the layer's own and that of the layer below, pass a 5x5 convolution, whole or
    as a column and a row of rank ``rank``: in a step the whole kernel costs more than all else on a large map. Its
    last weight starts at zero, so that it can be added to a trained decoder.
    """

    def __init__(self, heads: int, channels: int, rank: int) -> None:
        super().__init__()
        self.spread: nn.Module
        if rank:
            column = nn.Conv2d(2 * heads, rank, (5, 1), padding=(2, 0), bias=False)
            self.spread = nn.Sequential(column, nn.Conv2d(rank, channels, (1, 5), padding=(0, 2)))
        else:
            self.spread = nn.Conv2d(2 * heads, channels, 5, padding=2)
        self.to_heads = nn.Conv2d(channels, heads, 1, bias=False)
        nn.init.zeros_(self.to_heads.weight)

    def forward(self, spent: Tensor) -> Tensor:
        """Past attention (batch, 2 * heads, rows, columns) -> what to take off (batch, heads, rows, columns)."""
        return self.to_heads(F.relu(self.spread(spent)))


def separate(kernel: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """The column and the row whose composition is nearest to a kernel (least squares, by singular values).

    Args:
        kernel: (outputs, inputs, height, width).

    Returns:
        (rank, inputs, height, 1) and (outputs, rank, 1, width); exact from a rank of min(inputs * height,
        outputs * width) on, beyond which channels are zero.
    """
    outputs, inputs, height, width = kernel.shape
    matrix = kernel.permute(1, 2, 0, 3).reshape(inputs * height, outputs * width)
    left, values, right = torch.linalg.svd(matrix.double(), full_matrices=False)
    column, row = matrix.new_zeros(inputs * height, rank), matrix.new_zeros(rank, outputs * width)
    kept = min(rank, len(values))
    column[:, :kept] = left[:, :kept] * values[:kept].sqrt()
    row[:kept] = values[:kept].sqrt()[:, None] * right[:kept]
    return (
        column.reshape(inputs, height, rank).permute(2, 0, 1)[..., None].contiguous(),
        row.reshape(rank, outputs, width).transpose(0, 1)[:, :, None].contiguous(),
    )


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention, feed-forward; layer norm before each."""

    def __init__(self, config: TransformerConfig, channels: int, refine: bool) -> None:
        super().__init__()
        width = config.width
        self.heads = config.heads
        self.self_norm, self.cross_norm, self.inner_norm = (
            nn.LayerNorm(width),
            nn.LayerNorm(width),
            nn.LayerNorm(width),
        )
        self.self_qkv = nn.Linear(width, 3 * width)
        self.self_out = nn.Linear(width, width)
        self.cross_query = nn.Linear(width, width)
        self.cross_key = nn.Linear(channels, width)
        self.cross_value = nn.Linear(channels, width)
        self.cross_out = nn.Linear(width, width)
        self.inner = nn.Linear(width, config.inner)
        self.outer = nn.Linear(config.inner, width)
        self.dropout = nn.Dropout(config.dropout)
        self.refinement = Refinement(config.heads, config.refinement, config.refinement_rank) if refine else None
        self.scale = (width // config.heads) ** -0.5

    def split(self, x: Tensor) -> Tensor:
        """(batch, time, width) -> (batch, heads, time, head width)."""
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)

    def feed_forward(self, x: Tensor) -> Tensor:
        return x + self.dropout(self.outer(self.dropout(F.relu(self.inner(self.inner_norm(x))))))


@register("decoder", "transformer", TransformerConfig)
class TransformerDecoder(Decoder):
    """Transformer decoder whose cross-attention keys and values leave the encoder graph once per picture."""

    positions: Tensor
    time: Tensor

    def __init__(self, config: TransformerConfig, channels: int, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(vocabulary, config.width)
        nn.init.normal_(self.embed.weight, std=config.width**-0.5)
        self.key_norm, self.value_norm = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.layers = nn.ModuleList(
            DecoderLayer(config, channels, refine=bool(config.refinement) and i > 0) for i in range(config.layers)
        )
        self.final_norm = nn.LayerNorm(config.width)
        self.output = nn.Linear(config.width, vocabulary)
        self.dropout = nn.Dropout(config.dropout)
        table = sinusoid(torch.arange(MAX_STEPS), config.width, config.width).float()
        self.register_buffer("positions", table, persistent=False)
        self.register_buffer("time", torch.arange(MAX_STEPS, dtype=torch.int32), persistent=False)
        self.relative: nn.ModuleList | None = None

    def add_relative_bias(self, reach: Reach) -> None:
        """Let every layer but the first see cells from where the first layer looked the step before.

        Raises:
            ConfigError: a decoder of one layer.
        """
        if self.config.layers < 2:
            raise ConfigError('[model.position] name = "relative" needs a transformer decoder of at least 2 layers')
        self.relative = nn.ModuleList(RelativeBias(self.config.heads, reach) for _ in range(self.config.layers - 1))

    def adapted(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """See ``Decoder.adapted``: whole kernels of refinement become the nearest of this decoder's rank."""
        if not self.config.refinement_rank:
            return weights
        adapted = {}
        for name, value in weights.items():
            stem, _, kind = name.rpartition(".")
            if not stem.endswith("refinement.spread"):
                adapted[name] = value
            elif kind == "bias":
                adapted[f"{stem}.1.bias"] = value
            else:
                adapted[f"{stem}.0.weight"], adapted[f"{stem}.1.weight"] = separate(
                    value, self.config.refinement_rank
                )
        return adapted

    @property
    def blocks(self) -> list[DecoderLayer]:
        """The layers, lowest first."""
        return cast("list[DecoderLayer]", list(self.layers))

    def state_spec(self) -> tuple[StateSpec, ...]:
        """Per layer the self-attention cache; with refinement the attention spent so far; with a relative bias the
        centre of the last step's attention (row and column, cells)."""
        c = self.config
        cache: tuple[int | str, ...] = ("beam", c.heads, "time", c.width // c.heads)
        specs = [
            StateSpec(f"self_{kind}_{i}", cache, "append") for i in range(c.layers) for kind in ("keys", "values")
        ]
        if c.refinement:
            spent: tuple[int | str, ...] = ("beam", 2 * c.heads, "rows", "columns")
            specs += [StateSpec(f"spent_{i}", spent, "replace") for i in range(1, c.layers)]
        if self.relative is not None:
            specs.append(StateSpec("centre", ("beam", 2), "replace"))
        return tuple(specs)

    def memory(self, features: Tensor, positioned: Tensor, mask: Tensor) -> dict[str, Tensor]:
        """Per layer ``keys_i`` (batch, heads, head width, cells) and ``values_i`` (batch, heads, cells, head width);
        ``memory_mask`` float32 (batch, 1, rows, columns): 0 on valid cells, MASKED on padding."""
        keyed = self.key_norm(positioned.flatten(2).transpose(1, 2))
        valued = self.value_norm(features.flatten(2).transpose(1, 2))
        memory = {}
        for i, layer in enumerate(self.blocks):
            memory[f"keys_{i}"] = layer.split(layer.cross_key(keyed)).transpose(2, 3)
            memory[f"values_{i}"] = layer.split(layer.cross_value(valued))
        memory["memory_mask"] = (1.0 - mask.float()) * MASKED
        return memory

    def forward(self, memory: dict[str, Tensor], tokens: Tensor) -> Tensor:
        """See ``Decoder.forward``."""
        time = tokens.shape[1]
        x = self.dropout(self.embed(tokens) * self.config.width**0.5 + self.positions[:time])
        below: Tensor | None = None
        looked: Tensor | None = None
        for i, layer in enumerate(self.blocks):
            query, key, value = layer.self_qkv(layer.self_norm(x)).chunk(3, dim=2)
            query, key, value = layer.split(query), layer.split(key), layer.split(value)
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + layer.dropout(layer.self_out(mixed.transpose(1, 2).flatten(2)))
            query = layer.split(layer.cross_query(layer.cross_norm(x)))
            keys, values, mask = memory[f"keys_{i}"], memory[f"values_{i}"], memory["memory_mask"]
            if self.config.refinement or self.relative is not None:
                bias = None if looked is None else self._seen_from(i, looked, mask)
                mixed, below = self._explicit_attention(layer, query, keys, values, mask, bias, below)
                if self.relative is not None and i == 0:
                    centre = self.relative[0].centre(below.mean(1), *mask.shape[2:])  # type: ignore[operator]
                    looked = F.pad(centre[:, :-1], (0, 0, 1, 0))
            else:
                bias = mask.flatten(2)[:, None].to(query.dtype)
                mixed = F.scaled_dot_product_attention(query, keys.transpose(2, 3), values, attn_mask=bias)
            x = x + layer.dropout(layer.cross_out(mixed.transpose(1, 2).flatten(2)))
            x = layer.feed_forward(x)
        return self.output(self.final_norm(x))

    def _seen_from(self, i: int, centre: Tensor, mask: Tensor) -> Tensor:
        """Relative bias of layer i >= 1 as seen from centre (batch, time, 2): (batch, heads, time, cells)."""
        assert self.relative is not None
        bias = self.relative[i - 1].around(centre.flatten(0, 1), *mask.shape[2:])  # type: ignore[operator]
        return bias.unflatten(0, centre.shape[:2]).transpose(1, 2)

    @staticmethod
    def _explicit_attention(
        layer: DecoderLayer,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor,
        bias: Tensor | None,
        below: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Cross-attention of all steps at once, with bias on the scores and refinement where the layer has them.

        ``below`` is the attention of the layer below (batch, heads, time, cells). Returns the mixed values and
        this layer's attention.
        """
        batch, heads, time, _ = query.shape
        scores = (query @ keys).float() * layer.scale + mask.flatten(2)[:, None]
        if bias is not None:
            scores = scores + bias
        attention = scores.softmax(3)
        if layer.refinement is not None:
            assert below is not None
            both = torch.cat([attention, below], dim=1)
            spent = both.cumsum(2) - both
            maps = spent.transpose(1, 2).reshape(batch * time, 2 * heads, *mask.shape[2:])
            taken = layer.refinement(maps).float().reshape(batch, time, heads, -1).transpose(1, 2)
            attention = (scores - taken).softmax(3)
        return attention.to(values.dtype) @ values, attention

    def step(
        self, memory: dict[str, Tensor], token: Tensor, position: Tensor, state: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        """See ``Decoder.step``. Attention is the last layer's, averaged over heads."""
        c = self.config
        pictures = memory["memory_mask"].shape[0]
        mask = memory["memory_mask"].flatten(2)[:, None]
        x = self.embed(token) * c.width**0.5 + F.embedding(position, self.positions)
        following: dict[str, Tensor] = {}
        attention = below = torch.empty(0)
        unwritten = (self.time[: state["self_keys_0"].shape[2]] >= position).float() * MASKED
        unwritten = torch.cat([unwritten, unwritten.new_zeros(1)])  # a token sees itself, behind the cache
        for i, layer in enumerate(self.blocks):
            projected = layer.self_qkv(layer.self_norm(x)).reshape(-1, 3 * c.heads, 1, c.width // c.heads)
            query, key, value = projected.chunk(3, 1)
            following[f"self_keys_{i}"], following[f"self_values_{i}"] = key[:, :, 0], value[:, :, 0]
            keys = torch.cat([state[f"self_keys_{i}"], key], dim=2)
            values = torch.cat([state[f"self_values_{i}"], value], dim=2)
            weights = (query @ keys.transpose(2, 3) * layer.scale + unwritten).softmax(3)
            x = x + layer.self_out((weights @ values).flatten(1))
            # Beams of one picture are the rows of one product, so that its keys and values are read once:
            # (pictures, heads, beams of a picture, head width) @ (pictures, heads, head width, cells).
            query = layer.cross_query(layer.cross_norm(x)).reshape(pictures, -1, c.heads, c.width // c.heads)
            scores = query.transpose(1, 2) @ memory[f"keys_{i}"] * layer.scale + mask
            if self.relative is not None and i > 0:
                centre = state["centre"].reshape(pictures, -1, 2)
                scores = scores + self._seen_from(i, centre, memory["memory_mask"])
            attention = scores.softmax(3)
            if self.relative is not None and i == 0:
                looked = self.relative[0].centre(attention.mean(1), *memory["memory_mask"].shape[2:])  # type: ignore[operator]
                following["centre"] = looked.flatten(0, 1)
            if layer.refinement is not None:
                spent = state[f"spent_{i}"]
                both = torch.cat([attention, below], dim=1).transpose(1, 2)
                following[f"spent_{i}"] = spent + both.reshape(spent.shape)
                taken = layer.refinement(spent).reshape(pictures, -1, c.heads, mask.shape[3]).transpose(1, 2)
                attention = (scores - taken).softmax(3)
            below = attention
            mixed = (attention @ memory[f"values_{i}"]).transpose(1, 2)
            x = x + layer.cross_out(mixed.reshape(-1, c.width))
            x = layer.feed_forward(x)
        log_probs = self.output(self.final_norm(x)).log_softmax(1)
        return log_probs, following, attention.mean(1).flatten(0, 1)
