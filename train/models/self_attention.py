"""Context `self-attention`: pre-norm self-attention over the cells, whole map or a 2-D window around each cell.

Sources: Alastruey et al. 2022 (arXiv 2204.09028), eq. 1-3: the pre-norm block, and its layers with local windows.
There the tokens are a sequence; here they are cells, so a window has rows and columns **(reading)**.
"""

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hmerctl.train.models.contexts import Context
from hmerctl.train.models.parts import MASKED, register
from hmerctl.train.models.relative import Reach, RelativeBias

TILE = 8
"""Neighbouring cells of a row that share the keys they look at in local attention."""


@dataclass(frozen=True)
class SelfAttentionConfig:
    """Sizes of the context.

    Attributes:
        layers, heads: depth and attention heads; heads must divide the channels of the map.
        inner: width of the feed-forward layer.
        dropout: on the residual branches.
        windows: for each layer [rows, columns] of its window, odd, in cells, [0, columns] for all rows of the map, or
            [0, 0] for the whole map; empty: the whole map in all layers. Windows have no weights: the same checkpoint
            serves all.
    """

    layers: int = 2
    heads: int = 6
    inner: int = 384
    dropout: float = 0.1
    windows: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if self.windows and len(self.windows) != self.layers:
            raise ValueError(f"{len(self.windows)} windows for {self.layers} layers; give one [rows, columns] each")
        for window in self.windows:
            odd = len(window) == 2 and all(side > 0 and side % 2 for side in window if side != 0)
            if not odd or (window[0] != 0 and window[1] == 0):
                raise ValueError(
                    f"window {list(window)} must be two odd numbers of cells; rows may be 0 for all rows of the map, "
                    "and both may be 0 for the whole map"
                )


class SelfAttentionLayer(nn.Module):
    """``x + SA(LN(x))``, then ``x + FFN(LN(x))``."""

    def __init__(self, config: SelfAttentionConfig, channels: int, window: tuple[int, int]) -> None:
        super().__init__()
        if channels % config.heads:
            raise ValueError(f"{channels} channels are not a multiple of {config.heads} heads")
        self.heads = config.heads
        self.window = window_attention(*window) if any(window) else None
        self.norm, self.inner_norm = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.qkv, self.out = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.inner, self.outer = nn.Linear(channels, config.inner), nn.Linear(config.inner, channels)
        self.dropout = nn.Dropout(config.dropout)
        self.relative: RelativeBias | None = None

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x (batch, rows, columns, channels), mask (batch, rows, columns, 1) -> x, zero in padding."""
        x = x + self.dropout(self.out(self.attend(x, mask)))
        x = x + self.dropout(self.outer(self.dropout(F.relu(self.inner(self.inner_norm(x))))))
        return x * mask

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of the heads, each (batch, heads, rows, columns, head width)."""
        query, key, value = (
            part.unflatten(3, (self.heads, -1)).permute(0, 3, 1, 2, 4)
            for part in self.qkv(self.norm(x)).split(x.shape[3], dim=3)
        )
        return query, key, value

    def attend(self, x: Tensor, mask: Tensor) -> Tensor:
        """``A V`` of all heads side by side, (batch, rows, columns, channels), before ``W_O`` (eq. 1)."""
        query, key, value = self.project(x)
        bias = ((1.0 - mask) * MASKED).to(query.dtype)
        if self.window is not None:
            mixed = self.window(query, key, value, bias, self.relative)
        else:
            query, key, value = (part.flatten(2, 3) for part in (query, key, value))
            scores = query @ key.transpose(2, 3) * query.shape[3] ** -0.5 + bias.flatten(1)[:, None, None]
            if self.relative is not None:
                scores = scores + self.relative.between_cells(x.shape[1], x.shape[2]).to(scores.dtype)
            mixed = (scores.softmax(3) @ value).unflatten(2, x.shape[1:3])
        return mixed.permute(0, 2, 3, 1, 4).flatten(3)


class LocalAttention(nn.Module):
    """Attention of every cell to the cells in a window around it.

    TILE neighbouring cells of a row share one product with the keys that any of them sees: strips of
    ``TILE + columns - 1`` cells. What one of them must not see is masked, so the work is linear in the columns of the
    map and (TILE + columns - 1) / columns of the bare window. Only pad, slice, concat and matmul: no gather, no
    scatter. (One product per offset wastes nothing, but is rows * columns small steps: 2 to 12 times slower here.)

    Args:
        columns: of the window, odd.
    """

    seen: Tensor

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.columns = columns
        self.strip = TILE + columns - 1
        offset = torch.arange(self.strip)[None] - torch.arange(TILE)[:, None]
        inside = (offset >= 0) & (offset < columns)
        self.register_buffer("seen", torch.where(inside, 0.0, MASKED), persistent=False)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor, relative: RelativeBias | None
    ) -> Tensor:
        """Attend.

        Args:
            query, key, value: (batch, heads, rows, columns, head width).
            bias: (batch, rows, columns, 1), 0 on valid cells and MASKED on padding.
            relative: bias by offset, or None.

        Returns:
            (batch, heads, rows, columns, head width).
        """
        raise NotImplementedError

    def tiles(self, cells: Tensor) -> Tensor:
        """(n, rows, columns, width) -> (n, rows, tiles, TILE, width), zero beyond the last column."""
        columns = cells.shape[2]
        tiles = (columns + TILE - 1) // TILE
        return F.pad(cells, (0, 0, 0, tiles * TILE - columns)).unflatten(2, (tiles, TILE))

    def strips(self, cells: Tensor, fill: float, above: int = 0) -> Tensor:
        """The cells that each tile sees in its own row: (n, rows, columns, width) -> (n, above + rows + above,
        tiles, strip, width), ``fill`` outside of the map."""
        columns = cells.shape[2]
        tiles = (columns + TILE - 1) // TILE
        pieces = (self.strip + TILE - 1) // TILE
        left = self.columns // 2
        right = (tiles + pieces - 1) * TILE - columns - left
        cells = F.pad(cells, (0, 0, left, right, above, above), value=fill)
        cells = cells.unflatten(2, (tiles + pieces - 1, TILE))
        return torch.cat([cells[:, :, i : i + tiles] for i in range(pieces)], dim=3)[:, :, :, : self.strip]


class RowsAndColumns(LocalAttention):
    """A window of ``rows`` x ``columns`` cells, both odd: the work is linear in the cells of the map."""

    offset: Tensor

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__(columns)
        self.rows = rows
        offset = torch.arange(self.strip)[None] - torch.arange(TILE)[:, None]
        self.register_buffer("offset", offset.clamp(0, columns - 1).flatten().int(), persistent=False)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor, relative: RelativeBias | None
    ) -> Tensor:
        """See ``LocalAttention.forward``."""
        batch, heads, rows, columns, width = query.shape
        query = self.tiles(query.flatten(0, 1)).flatten(1, 2)
        keys, values = self._around(key.flatten(0, 1), 0.0), self._around(value.flatten(0, 1), 0.0)
        scores = (query @ keys.transpose(2, 3)).unflatten(0, (batch, heads)) * width**-0.5
        hidden = self._around(bias, MASKED).transpose(2, 3)[:, None]
        scores = scores + hidden + self._pattern(relative).to(query.dtype)
        mixed = scores.softmax(4).flatten(0, 1) @ values
        mixed = mixed.unflatten(1, (rows, -1)).flatten(2, 3)[:, :, :columns]
        return mixed.unflatten(0, (batch, heads))

    def _around(self, cells: Tensor, fill: float) -> Tensor:
        """What each tile sees: (n, rows, columns, width) -> (n, rows * tiles, window rows * strip, width)."""
        rows = cells.shape[1]
        strips = self.strips(cells, fill, self.rows // 2)
        return torch.cat([strips[:, i : i + rows] for i in range(self.rows)], dim=3).flatten(1, 2)

    def _pattern(self, relative: RelativeBias | None) -> Tensor:
        """Which cells of the strips each cell of a tile sees, and their relative bias: (heads or 1, 1, TILE, window
        rows * strip)."""
        seen = self.seen.repeat(1, self.rows)
        if relative is None:
            return seen[None, None]
        table = relative.in_window(self.rows, self.columns)
        placed = table.index_select(2, self.offset).unflatten(2, (TILE, self.strip))
        return (placed.transpose(1, 2).flatten(2) + seen)[:, None]


class AllRows(LocalAttention):
    """All rows of the map in the ``columns`` around a cell: for maps that are low and long, where rows matter as far
    as they reach. All rows of a tile's columns share one product."""

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor, relative: RelativeBias | None
    ) -> Tensor:
        """See ``LocalAttention.forward``."""
        batch, heads, rows, columns, width = query.shape
        query = self.tiles(query.flatten(0, 1)).transpose(1, 2).flatten(2, 3)
        keys, values = self._all(key.flatten(0, 1), 0.0), self._all(value.flatten(0, 1), 0.0)
        scores = (query @ keys.transpose(2, 3)).unflatten(0, (batch, heads)) * width**-0.5
        hidden = self._all(bias, MASKED).transpose(2, 3)[:, None]
        scores = scores + hidden + self._pattern(relative, rows).to(query.dtype)
        mixed = scores.softmax(4).flatten(0, 1) @ values
        mixed = mixed.unflatten(2, (rows, TILE)).transpose(1, 2).flatten(2, 3)[:, :, :columns]
        return mixed.unflatten(0, (batch, heads))

    def _all(self, cells: Tensor, fill: float) -> Tensor:
        """What each tile sees: (n, rows, columns, width) -> (n, tiles, rows * strip, width)."""
        return self.strips(cells, fill).transpose(1, 2).flatten(2, 3)

    def _pattern(self, relative: RelativeBias | None, rows: int) -> Tensor:
        """See ``RowsAndColumns._pattern``: (heads or 1, 1, rows * TILE, rows * strip)."""
        seen = self.seen[None, :, None].expand(rows, TILE, rows, self.strip).reshape(rows * TILE, rows * self.strip)
        if relative is None:
            return seen[None, None]
        # A tile is a part of its own strip, from half a window on.
        strip, first = self.strip, self.columns // 2
        between = relative.between_cells(rows, strip).unflatten(1, (rows, strip))
        return (between[:, :, first : first + TILE].flatten(1, 2) + seen)[:, None]


def window_attention(rows: int, columns: int) -> LocalAttention:
    """Attention in a window; 0 rows for all of the map."""
    return RowsAndColumns(rows, columns) if rows else AllRows(columns)


@register("context", "self-attention", SelfAttentionConfig)
class SelfAttention(Context):
    """Layers of self-attention and feed-forward over the cells of the map."""

    def __init__(self, config: SelfAttentionConfig, channels: int) -> None:
        super().__init__()
        windows = config.windows or ((0, 0),) * config.layers
        self.layers = nn.ModuleList(
            SelfAttentionLayer(config, channels, (rows, columns)) for rows, columns in windows
        )

    def add_relative_bias(self, reach: Reach) -> None:
        """A table of relative biases for every layer and head."""
        for layer in cast("list[SelfAttentionLayer]", list(self.layers)):
            layer.relative = RelativeBias(layer.heads, reach)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """See ``Context.forward``."""
        x, mask = x.permute(0, 2, 3, 1), mask.permute(0, 2, 3, 1)
        for layer in self.layers:
            x = layer(x, mask)
        return x.permute(0, 3, 1, 2)


@torch.no_grad()
def contributions(layer: SelfAttentionLayer, x: Tensor, mask: Tensor) -> Tensor:
    """How much of each output cell comes from each input cell (Alastruey et al. 2022, eq. 3-5, after Kobayashi et al.
    2021): ``C_ij = ||F_i(x_j)||`` with ``F_i(x_j) = sum_h A^h_ij LN(x_j) W_V^h W_O^h``, plus ``x_i`` where i = j.

    Rows are divided by their sum. The norms come from the Gram matrix of the heads, so no vector per pair is formed.

    Args:
        layer: attends to the whole map.
        x: what enters the layer (batch, rows, columns, channels).
        mask: (batch, rows, columns, 1), 1 valid and 0 padding.

    Returns:
        float (batch, cells, cells), rows i, summing to 1 over valid cells; zero for padded j.
    """
    query, key, value = (part.flatten(2, 3) for part in layer.project(x))
    scores = query @ key.transpose(2, 3) * query.shape[3] ** -0.5 + ((1.0 - mask) * MASKED).flatten(1)[:, None, None]
    if layer.relative is not None:
        scores = scores + layer.relative.between_cells(x.shape[1], x.shape[2])
    attention = scores.softmax(3)
    per_head = layer.out.weight.unflatten(1, (layer.heads, -1)).permute(1, 2, 0)
    moved = torch.einsum("bhjd,hdc->bjhc", value, per_head)
    gram = moved @ moved.transpose(2, 3)
    own = x.flatten(1, 2)
    squared = torch.einsum("bhij,bjhg,bgij->bij", attention, gram, attention)
    with_own = 2 * torch.einsum("bhii,bihc,bic->bi", attention, moved, own) + own.square().sum(2)
    norms = (squared + torch.diag_embed(with_own)).clamp(min=0).sqrt() * mask.flatten(1)[:, None]
    return norms / norms.sum(2, keepdim=True)
