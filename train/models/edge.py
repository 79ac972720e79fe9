"""Encoder `edge`: a small residual network of plain 3x3 convolutions, stride 8, batch norm (folds at export)."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from hmerctl.train.models.parts import CellMask, Encoder, register


@dataclass(frozen=True)
class EdgeConfig:
    """Sizes of the edge encoder.

    Attributes:
        stem: channels at stride 2.
        middle: channels at stride 4, in ``middle_blocks`` residual blocks.
        top: channels at stride 8, in ``top_blocks`` residual blocks.
        channels: channels of the feature map.
    """

    stem: int = 32
    middle: int = 64
    middle_blocks: int = 2
    top: int = 160
    top_blocks: int = 5
    channels: int = 192


class ConvNorm(nn.Module):
    """Convolution and batch norm, zero again on padding, so that padding stays neutral."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, inputs, h, w) -> (batch, outputs, h / stride, w / stride), before activation and mask."""
        return self.norm(self.conv(x))


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut (He et al. 2016)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = ConvNorm(channels, channels, 3)
        self.second = ConvNorm(channels, channels, 3)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x (batch, channels, h, w), zero outside mask (batch, 1, h, w) -> the same."""
        inner = F.relu(self.first(x)) * mask
        return F.relu(x + self.second(inner)) * mask


@register("encoder", "edge", EdgeConfig)
class EdgeEncoder(Encoder):
    """conv 5x5/2, conv 3x3/2, residual blocks, conv 3x3/2, residual blocks, 1x1."""

    def __init__(self, config: EdgeConfig) -> None:
        super().__init__()
        self.stride, self.channels = 8, config.channels
        self.stem = ConvNorm(1, config.stem, 5, 2)
        self.to_middle = ConvNorm(config.stem, config.middle, 3, 2)
        self.middle = nn.ModuleList(ResidualBlock(config.middle) for _ in range(config.middle_blocks))
        self.to_top = ConvNorm(config.middle, config.top, 3, 2)
        self.top = nn.ModuleList(ResidualBlock(config.top) for _ in range(config.top_blocks))
        self.project = nn.Conv2d(config.top, config.channels, 1)
        self.mask2, self.mask4, self.mask8 = CellMask(2), CellMask(4), CellMask(8)

    def forward(self, raster: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
        """See ``Encoder.forward``."""
        height, width = raster.shape[2], raster.shape[3]
        x = F.relu(self.stem(raster)) * self.mask2(size, height // 2, width // 2)
        mask = self.mask4(size, height // 4, width // 4)
        x = F.relu(self.to_middle(x)) * mask
        for block in self.middle:
            x = block(x, mask)
        mask = self.mask8(size, height // 8, width // 8)
        x = F.relu(self.to_top(x)) * mask
        for block in self.top:
            x = block(x, mask)
        return self.project(x) * mask, mask
