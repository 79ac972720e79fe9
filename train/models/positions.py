"""Position encodings of the feature map: tables computed once in float64, constants in every graph."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hmerctl.train.models.parts import register


def sinusoid(positions: Tensor, channels: int, model_channels: int, scale: float = 1.0) -> Tensor:
    """Sine and cosine of scaled positions (Zhou 2023, eq. 1-4).

    ``P(p, 2i) = sin(scale * p * exp(2i * (-ln 10000) / model_channels))``, ``P(p, 2i+1) = cos(same)``.

    Args:
        positions: float64 (count,), in cells.
        channels: even number of channels to fill.
        model_channels: d_m of the formula.

    Returns:
        float64 (count, channels).
    """
    frequency = torch.exp(torch.arange(0, channels, 2, dtype=torch.float64) * (-math.log(10000.0) / model_channels))
    angle = scale * positions.double()[:, None] * frequency
    return torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1)


@dataclass(frozen=True)
class MultiScaleConfig:
    """Scales of the two axes (the paper's m and n) and the largest map, in cells."""

    x_scale: float = 3.0
    y_scale: float = 2.0
    max_rows: int = 64
    max_columns: int = 256


@register("position", "multi-scale", MultiScaleConfig)
class MultiScalePosition(nn.Module):
    """Two-dimensional sinusoid, a scale per axis (Zhou 2023): x in the first half of channels, y in the second."""

    columns: Tensor
    rows: Tensor

    def __init__(self, config: MultiScaleConfig, channels: int) -> None:
        super().__init__()
        half = channels // 2
        if half % 2:
            raise ValueError(f"channels must be a multiple of 4, not {channels}")
        columns = sinusoid(torch.arange(config.max_columns), half, channels, config.x_scale)
        rows = sinusoid(torch.arange(config.max_rows), half, channels, config.y_scale)
        self.register_buffer("columns", columns.T.float().contiguous(), persistent=False)
        self.register_buffer("rows", rows.T.float().contiguous(), persistent=False)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x (batch, channels, rows, columns), mask (batch, 1, rows, columns) -> x with the table added."""
        height, width = x.shape[2], x.shape[3]
        half = self.columns.shape[0]
        columns = self.columns[:, None, :width].expand(half, height, width)
        rows = self.rows[:, :height, None].expand(half, height, width)
        return x + torch.cat([columns, rows])[None] * mask
