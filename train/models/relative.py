"""Position `relative`: a learned bias on attention scores that depends on where a cell lies from where one looks.

Source: paper 2, section 4.2, way 2 ("relative position bias: a term in the attention score"). It says neither
which attention nor from where **(reading)**:

- in a self-attention context the query is a cell, so the offset is (key row - query row, key column - query column);
- in the decoder the query is a token, which has no place; it looks from where the step before it looked, the centre
  of that step's attention, which lies between cells, so the table is interpolated. The first step looks from (0, 0).

Every attention layer and head has a table of its own. Offsets beyond the reach share the outermost entry, so any size
of map has its bias.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from hmerctl.train.models.parts import register
from hmerctl.train.models.positions import Position, PositionConfig

Reach = tuple[int, int]
"""Rows and columns, in cells, up to which offsets are told apart."""


@runtime_checkable
class TakesRelativeBias(Protocol):
    """A context or decoder whose attention scores can carry a relative bias."""

    def add_relative_bias(self, reach: Reach) -> None:
        """Add the tables, zero at first (so a trained part keeps saying what it said)."""


@dataclass(frozen=True, kw_only=True)
class RelativeConfig(PositionConfig):
    """See ``Reach``."""

    reach_rows: int = 8
    reach_columns: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.reach_rows, self.reach_columns) < 1:
            raise ValueError(f"reach must be at least 1 cell, not {self.reach_rows} and {self.reach_columns}")


@register("position", "relative", RelativeConfig)
class RelativePosition(Position):
    """Leaves the features as they are; ``reach`` makes the attention of context and decoder carry a bias."""

    def __init__(self, config: RelativeConfig, channels: int) -> None:
        super().__init__(config)
        self.reach = (config.reach_rows, config.reach_columns)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x -> x."""
        return x


class RelativeBias(nn.Module):
    """The table of one attention layer, (heads, 2 * reach rows + 1, 2 * reach columns + 1), offset 0 in the middle.

    Args:
        longest: rows or columns of the largest map.
    """

    ramp: Tensor
    row_index: Tensor
    column_index: Tensor
    row_nodes: Tensor
    column_nodes: Tensor

    def __init__(self, heads: int, reach: Reach, longest: int = 256) -> None:
        super().__init__()
        self.reach = reach
        self.table = nn.Parameter(torch.zeros(heads, 2 * reach[0] + 1, 2 * reach[1] + 1))
        ramp = torch.arange(longest)
        offsets = ramp[None, :] - ramp[:, None]
        for name, value in (
            ("ramp", ramp.float()),
            ("row_index", (offsets.clamp(-reach[0], reach[0]) + reach[0]).int()),
            ("column_index", (offsets.clamp(-reach[1], reach[1]) + reach[1]).int()),
            ("row_nodes", torch.arange(-reach[0], reach[0] + 1).float()),
            ("column_nodes", torch.arange(-reach[1], reach[1] + 1).float()),
        ):
            self.register_buffer(name, value, persistent=False)

    def between_cells(self, rows: int, columns: int) -> Tensor:
        """Bias of every cell on every cell of a map: (heads, rows * columns queries, rows * columns keys)."""
        heads = self.table.shape[0]
        picked = self.table.index_select(1, self.row_index[:rows, :rows].flatten())
        picked = picked.index_select(2, self.column_index[:columns, :columns].flatten())
        grid = picked.view(heads, rows, rows, columns, columns).transpose(2, 3)
        return grid.reshape(heads, rows * columns, rows * columns)

    def in_window(self, window_rows: int, window_columns: int) -> Tensor:
        """Bias of the cells of a window, odd sides, around its middle: (heads, window_rows, window_columns)."""
        half_rows, half_columns = window_rows // 2, window_columns // 2
        row = self.row_index[half_rows, :window_rows]
        column = self.column_index[half_columns, :window_columns]
        return self.table.index_select(1, row).index_select(2, column)

    def around(self, centre: Tensor, rows: int, columns: int) -> Tensor:
        """Bias of all cells as seen from a point, linear between the entries of the table.

        Args:
            centre: (count, 2), row and column, in cells.

        Returns:
            (count, heads, rows * columns).
        """
        down = _hats(self.ramp[:rows] - centre[:, :1], self.row_nodes)
        across = _hats(self.ramp[:columns] - centre[:, 1:], self.column_nodes)
        return (down[:, None] @ self.table @ across[:, None].transpose(2, 3)).flatten(2)

    def centre(self, attention: Tensor, rows: int, columns: int) -> Tensor:
        """Mean place that attention (..., rows * columns), summing to 1, looks at: (..., 2), row and column."""
        grid = attention.unflatten(-1, (rows, columns))
        return torch.stack([grid.sum(-1) @ self.ramp[:rows], grid.sum(-2) @ self.ramp[:columns]], dim=-1)


def _hats(offsets: Tensor, nodes: Tensor) -> Tensor:
    """Weights of linear interpolation between ``nodes`` (ascending by 1), clamped to their range.

    offsets (count, cells) -> (count, cells, nodes).
    """
    inside = torch.minimum(torch.maximum(offsets, nodes[0]), nodes[-1])
    return (1.0 - (inside[..., None] - nodes).abs()).relu()
