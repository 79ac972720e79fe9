"""Position encodings with weights: learned table, hybrid, dynamic gate, position convolution, and their sum."""

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from hmerctl.train.models.parts import build, register
from hmerctl.train.models.positions import (
    Position,
    PositionConfig,
    SinusoidalPosition,
    TableConfig,
    add_axes,
    half_channels,
)


@register("position", "learned", TableConfig)
class LearnedPosition(Position):
    """Learned two-dimensional table (paper 2, section 3.3: small inputs): a trained vector for every row and one
    for every column, each in half of the channels **(reading: factored, for a full table of rows x columns sees
    most of its cells too rarely)**. Rows and columns that training never showed keep their random start.
    """

    def __init__(self, config: TableConfig, channels: int) -> None:
        super().__init__(config)
        half = half_channels(channels)
        self.rows = nn.Parameter(torch.randn(half, config.max_rows) * 0.1)
        self.columns = nn.Parameter(torch.randn(half, config.max_columns) * 0.1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """See ``Position.forward``."""
        return add_axes(x, self.rows, self.columns, mask, rows_first=True)


@register("position", "hybrid", TableConfig)
class HybridPosition(SinusoidalPosition):
    """Sinusoid plus a learned residual (paper 2, section 3.3: unique, relative, trained, any size).

    The residual starts at zero: rows and columns that training never showed fall back to the sinusoid.
    """

    def __init__(self, config: TableConfig, channels: int) -> None:
        super().__init__(config, channels)
        self.row_residual = nn.Parameter(torch.zeros(channels // 2, config.max_rows))
        self.column_residual = nn.Parameter(torch.zeros(channels // 2, config.max_columns))

    def tables(self) -> tuple[Tensor, Tensor]:
        """See ``AxisTables.tables``."""
        return self.rows + self.row_residual, self.columns + self.column_residual


@register("position", "dynamic", TableConfig)
class DynamicPosition(SinusoidalPosition):
    """Sinusoid weighted by the content of the cell (paper 2, section 5: "dynamic position encoding").

    ``x + sigmoid(W x + b) * P``, a gate per channel; b starts at 2, so that training begins near the plain table.
    """

    def __init__(self, config: TableConfig, channels: int) -> None:
        super().__init__(config, channels)
        self.gate = nn.Conv2d(channels, channels, 1)
        nn.init.normal_(self.gate.weight, std=0.02)
        nn.init.constant_(self.gate.bias, 2.0)  # type: ignore[arg-type]

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """See ``Position.forward``."""
        return x + self.gate(x).sigmoid() * self.table(x.shape[2], x.shape[3])[None] * mask


@dataclass(frozen=True, kw_only=True)
class ConvolutionConfig(PositionConfig):
    """Side of the depthwise kernel, in cells, odd: how far from the border a cell can tell where it is."""

    kernel: int = 7

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kernel < 3 or self.kernel % 2 == 0:
            raise ValueError(f"kernel must be odd and at least 3, not {self.kernel}")


@register("position", "convolution", ConvolutionConfig)
class ConvolutionPosition(Position):
    """Position-aware convolution (paper 2, section 4.2, way 3): ``x + depthwise(x)``.

    What tells places apart is the zero around the map, which is the same for any bucket because padding is zero
    on entry; away from the border the encoding is relative only.
    """

    def __init__(self, config: ConvolutionConfig, channels: int) -> None:
        super().__init__(config)
        self.depthwise = nn.Conv2d(channels, channels, config.kernel, padding=config.kernel // 2, groups=channels)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """See ``Position.forward``."""
        return x + self.depthwise(x) * mask


@dataclass(frozen=True, kw_only=True)
class SumConfig(PositionConfig):
    """Position encodings, each ``{"name": ..., option: value}``, applied one after the other."""

    parts: tuple[dict[str, Any], ...] = ({"name": "sinusoidal"}, {"name": "convolution"})


@register("position", "sum", SumConfig)
class SumPosition(Position):
    """Several encodings (paper 2, section 4.2: its best row joins absolute positions and a position convolution)."""

    def __init__(self, config: SumConfig, channels: int) -> None:
        super().__init__(config)
        self.parts = nn.ModuleList(build("position", part, channels=channels) for part in config.parts)
        self.reach = next((part.reach for part in cast("list[Position]", list(self.parts)) if part.reach), None)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """See ``Position.forward``."""
        for part in self.parts:
            x = part(x, mask)
        return x

    def in_views(self, x: Tensor, mask: Tensor, stretched: Tensor) -> Tensor:
        """See ``Position.in_views``."""
        for part in cast("list[Position]", list(self.parts)):
            x = part.in_views(x, mask, stretched)
        return x
