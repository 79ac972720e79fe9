"""Position encodings that are fixed tables, computed once in float64 and constants in every graph.

The trained members of the family stand in ``learned_positions.py``, the relative bias in ``relative.py``.
Coordinates are cells of the feature map, from 0; x counts columns, y counts rows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hmerctl.train.models.parts import register


def sinusoid(positions: Tensor, channels: int, model_channels: int, scale: float = 1.0) -> Tensor:
    """Sine and cosine of scaled positions (Zhou 2023, eq. 1-3).

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


def rotation(distance: float, channels: int, model_channels: int, scale: float = 1.0) -> Tensor:
    """The matrix R of ``P(p + b) = R(scale * b) P(p)`` (Zhou 2023, eq. 4): why relative places can be learned.

    Args:
        distance: b, in cells.

    Returns:
        float64 (channels / 2, 2, 2), one rotation ``[[cos, sin], [-sin, cos]]`` for each pair of channels.
    """
    # With positions = [distance], the pairs of the encoding itself are sin and cos of the angles.
    place = torch.tensor([distance], dtype=torch.float64)
    sin, cos = sinusoid(place, channels, model_channels, scale).view(-1, 2).unbind(1)
    return torch.stack([torch.stack([cos, sin], 1), torch.stack([-sin, cos], 1)], 1)


def timing_signal(shape: Sequence[int], channels: int, min_scale: float = 1.0, max_scale: float = 1e4) -> Tensor:
    """Sinusoids of every axis with log-spaced timescales (paper 2, section 4.1; ``add_timing_signal_nd``).

    Axis a takes ``2 * timescales`` channels: sine, then cosine, of ``p * min_scale * (min_scale / max_scale) **
    (i / (timescales - 1))``, with ``timescales = channels // (2 * rank)``. Channels left over stay zero.

    Args:
        shape: cells along each axis; any rank.
        channels: channels of the signal, at least ``4 * rank`` (two timescales an axis).

    Returns:
        float64 (channels, *shape).

    Raises:
        ValueError: too few channels for the rank.
    """
    rank = len(shape)
    timescales = channels // (2 * rank)
    if timescales < 2:
        raise ValueError(f"a timing signal of rank {rank} needs at least {4 * rank} channels, not {channels}")
    step = math.log(max_scale / min_scale) / (timescales - 1)
    inverse = min_scale * torch.exp(torch.arange(timescales, dtype=torch.float64) * -step)
    signal = torch.zeros(channels, *shape, dtype=torch.float64)
    for axis, length in enumerate(shape):
        angle = inverse[:, None] * torch.arange(length, dtype=torch.float64)
        waves = torch.cat([angle.sin(), angle.cos()])
        view = [2 * timescales] + [length if a == axis else 1 for a in range(rank)]
        signal[2 * timescales * axis : 2 * timescales * (axis + 1)] = waves.view(view)
    return signal


@dataclass(frozen=True, kw_only=True)
class PositionConfig:
    """What every position encoding can be told.

    Attributes:
        on: "features": the context, the keys and the values see the encoding (Zhou 2023); "keys": only the keys
            of the decoder's attention do, after the context (paper 2, section 2.2: ``key = key + pos_emb``).
    """

    on: str = "features"

    def __post_init__(self) -> None:
        if self.on not in ("features", "keys"):
            raise ValueError(f'on = {self.on!r}; choose "features" or "keys"')

    def cover(self, rows: int, columns: int) -> None:
        """Raise ValueError where the encoding cannot tell all cells of a map of this size their place."""


class Position(nn.Module):
    """A position encoding of the feature map.

    Attributes:
        on: see ``PositionConfig.on``.
        cover: see ``PositionConfig.cover``.
        reach: rows and columns of the bias it asks of attention scores (see ``relative.py``); None for none.
    """

    reach: tuple[int, int] | None = None

    def __init__(self, config: PositionConfig) -> None:
        super().__init__()
        self.on, self.cover = config.on, config.cover

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x (batch, channels, rows, columns), zero in padding; mask (batch, 1, rows, columns), 1 valid and 0
        padding -> x with its place, of the same shape, zero in padding."""
        raise NotImplementedError

    def in_views(self, x: Tensor, mask: Tensor, stretched: Tensor) -> Tensor:
        """``forward`` in training with stepwise views: bool (batch,) says which pictures were drawn stretched."""
        return self(x, mask)


@register("position", "none", PositionConfig)
class NoPosition(Position):
    """No encoding: what the convolutions' padding lets the model guess (the base line of the family)."""

    def __init__(self, config: PositionConfig, channels: int) -> None:
        super().__init__(config)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x -> x."""
        return x


@dataclass(frozen=True, kw_only=True)
class TableConfig(PositionConfig):
    """The largest map that the table covers, in cells; the table is cut to the map, so any smaller one fits."""

    max_rows: int = 64
    max_columns: int = 256

    def cover(self, rows: int, columns: int) -> None:
        """See ``PositionConfig.cover``."""
        for what, most, needed in (("rows", self.max_rows, rows), ("columns", self.max_columns, columns)):
            if most < needed:
                raise ValueError(f"max_{what} = {most} is too few, the largest raster has {needed} {what} of cells")


class AxisTables(Position):
    """Two tables, one for rows and one for columns, each in half of the channels."""

    rows: Tensor
    columns: Tensor
    rows_first = False

    def _set_tables(self, rows: Tensor, columns: Tensor) -> None:
        """rows float64 (max_rows, channels / 2), columns float64 (max_columns, channels / 2)."""
        self.register_buffer("rows", rows.T.float().contiguous(), persistent=False)
        self.register_buffer("columns", columns.T.float().contiguous(), persistent=False)

    def tables(self) -> tuple[Tensor, Tensor]:
        """Rows (channels / 2, max_rows) and columns (channels / 2, max_columns)."""
        return self.rows, self.columns

    def table(self, height: int, width: int) -> Tensor:
        """The encoding of a map: float32 (channels, height, width)."""
        return join_axes(*self.tables(), height, width, self.rows_first)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """See ``Position.forward``."""
        return add_axes(x, *self.tables(), mask, self.rows_first)


def join_axes(rows: Tensor, columns: Tensor, height: int, width: int, rows_first: bool) -> Tensor:
    """(half, max_rows) and (half, max_columns) -> (2 * half, height, width): each axis in half of the channels."""
    half = rows.shape[0]
    down = rows[:, :height, None].expand(half, height, width)
    across = columns[:, None, :width].expand(half, height, width)
    return torch.cat([down, across] if rows_first else [across, down])


def add_axes(x: Tensor, rows: Tensor, columns: Tensor, mask: Tensor, rows_first: bool) -> Tensor:
    """``x + join_axes(...) * mask``, bit for bit, without the joined table: a graph of a fixed size would hold it as
    a constant as large as the map, once for every bucket."""
    down, across = rows[:, : x.shape[2], None], columns[:, None, : x.shape[3]]
    upper, lower = x.chunk(2, dim=1)
    first, second = (down, across) if rows_first else (across, down)
    return torch.cat([upper + first * mask, lower + second * mask], dim=1)


def half_channels(channels: int) -> int:
    """Channels of one axis. Raises ValueError unless they hold whole pairs of sine and cosine."""
    if channels % 4:
        raise ValueError(f"channels must be a multiple of 4, not {channels}")
    return channels // 2


@dataclass(frozen=True, kw_only=True)
class MultiScaleConfig(TableConfig):
    """Scales of the two axes (the paper's m and n).

    Attributes:
        x_scale, y_scale: m and n, at least 1; 1 and 1 are the plain coordinates that the paper compares with.
        stepwise: in training each sample is seen, by the toss of a coin, stretched in x only or in y only;
            inference always uses both scales.
    """

    x_scale: float = 3.0
    y_scale: float = 2.0
    stepwise: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.x_scale < 1 or self.y_scale < 1:
            raise ValueError(f"scales must be at least 1, not {self.x_scale} and {self.y_scale}")


@register("position", "multi-scale", MultiScaleConfig)
class MultiScalePosition(AxisTables):
    """Two-dimensional sinusoid, a scale per axis (Zhou 2023, eq. 2-3): x in the first half of channels, y in the
    second. The scaled table of a picture is the plain table of the picture stretched by the scales.
    """

    plain_rows: Tensor
    plain_columns: Tensor

    def __init__(self, config: MultiScaleConfig, channels: int) -> None:
        super().__init__(config)
        half = half_channels(channels)
        down, across = torch.arange(config.max_rows), torch.arange(config.max_columns)
        self._set_tables(
            sinusoid(down, half, channels, config.y_scale), sinusoid(across, half, channels, config.x_scale)
        )
        self.stepwise = config.stepwise
        self.register_buffer("plain_rows", sinusoid(down, half, channels).T.float(), persistent=False)
        self.register_buffer("plain_columns", sinusoid(across, half, channels).T.float(), persistent=False)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """See ``Position.forward``."""
        if not (self.stepwise and self.training):
            return super().forward(x, mask)
        height, width = x.shape[2], x.shape[3]
        wide = join_axes(self.plain_rows, self.columns, height, width, self.rows_first)
        tall = join_axes(self.rows, self.plain_columns, height, width, self.rows_first)
        coin = torch.rand(len(x), 1, 1, 1, device=x.device) < 0.5
        return x + torch.where(coin, wide, tall) * mask

    def in_views(self, x: Tensor, mask: Tensor, stretched: Tensor) -> Tensor:
        """A plain picture gets both scales, as in inference, a stretched one the plain table: its cells count the
        coordinates m x or n y of equations 2 and 3 already **(reading)**, and scaled again they would be m m x. So a
        symbol has the same place along x in the plain picture as in the one stretched in x, and so for y.
        """
        height, width = x.shape[2], x.shape[3]
        plain = join_axes(self.plain_rows, self.plain_columns, height, width, self.rows_first)
        return x + torch.where(stretched[:, None, None, None], plain, self.table(height, width)) * mask


@register("position", "sinusoidal", TableConfig)
class SinusoidalPosition(AxisTables):
    """Fixed two-dimensional sinusoid (paper 2, section 3.2): rows in the first half of the channels, columns in the
    second, each with the frequencies of a model of ``channels / 2`` channels (``position_encoding(pos, dim // 2)``).
    """

    rows_first = True

    def __init__(self, config: TableConfig, channels: int) -> None:
        super().__init__(config)
        half = half_channels(channels)
        self._set_tables(
            sinusoid(torch.arange(config.max_rows), half, half),
            sinusoid(torch.arange(config.max_columns), half, half),
        )


@dataclass(frozen=True, kw_only=True)
class TimingConfig(TableConfig):
    """Range of the timescales: wavelengths go from ``2 pi / min_scale`` to about ``2 pi * max_scale`` cells."""

    min_scale: float = 1.0
    max_scale: float = 1e4


@register("position", "timing", TimingConfig)
class TimingPosition(Position):
    """Timing signal of rank 2 (paper 2, section 4.1); see ``timing_signal`` for any rank."""

    signal: Tensor

    def __init__(self, config: TimingConfig, channels: int) -> None:
        super().__init__(config)
        shape = (config.max_rows, config.max_columns)
        table = timing_signal(shape, channels, config.min_scale, config.max_scale)
        self.register_buffer("signal", table.float(), persistent=False)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """See ``Position.forward``."""
        return x + self.signal[None, :, : x.shape[2], : x.shape[3]] * mask
