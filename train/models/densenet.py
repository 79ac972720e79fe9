"""Encoder `densenet`: densely connected convolutions, stride 16 (Zhou 2023, section 2; Huang et al. 2017)."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hmerctl.train.models.parts import CellMask, Encoder, register


@dataclass(frozen=True)
class DenseNetConfig:
    """Sizes of the encoder; the defaults are the paper's.

    Attributes:
        blocks: layers of the three dense blocks (n1, n2, n3).
        growth: channels that each layer adds (k).
        stem: channels of the first convolution.
        bottleneck: channels between the 1x1 and the 3x3 convolution of a layer, in units of ``growth``.
        dropout: on what each layer adds.
    """

    blocks: tuple[int, ...] = (6, 12, 24)
    growth: int = 32
    stem: int = 64
    bottleneck: int = 4
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if len(self.blocks) != 3 or min(self.blocks) < 1:
            raise ValueError(f"blocks must be three numbers of layers, not {self.blocks}")


class DenseLayer(nn.Module):
    """BN, ReLU, 1x1 to ``bottleneck``, BN, ReLU, 3x3 to ``growth``; appended to what came in."""

    def __init__(self, inputs: int, config: DenseNetConfig) -> None:
        super().__init__()
        inner = config.bottleneck * config.growth
        self.first_norm, self.first = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, inner, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(inner)
        self.second = nn.Conv2d(inner, config.growth, 3, padding=1, bias=False)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x (batch, inputs, h, w), anything in padding; mask (batch, 1, h, w) -> (batch, inputs + growth, h, w).

        Only the 3x3 convolution looks at neighbours: masking its input keeps valid cells free of padding.
        """
        inner = self.first(F.relu(self.first_norm(x)))
        inner = F.relu(self.second_norm(inner)) * mask
        return torch.cat([x, self.dropout(self.second(inner))], dim=1)


class DenseBlock(nn.Module):
    """Layers that each read all before them: channels c -> c + layers * growth."""

    def __init__(self, inputs: int, layers: int, config: DenseNetConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DenseLayer(inputs + i * config.growth, config) for i in range(layers))
        self.channels = inputs + layers * config.growth

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """See ``DenseLayer.forward``."""
        for layer in self.layers:
            x = layer(x, mask)
        return x


class Transition(nn.Module):
    """BN, ReLU, 1x1 that halves the channels, zero in padding."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(inputs)
        self.conv = nn.Conv2d(inputs, inputs // 2, 1, bias=False)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x (batch, inputs, h, w), mask (batch, 1, h, w) -> (batch, inputs / 2, h, w)."""
        return self.conv(F.relu(self.norm(x))) * mask


@register("encoder", "densenet", DenseNetConfig)
class DenseNetEncoder(Encoder):
    """conv 7x7/2, max pool 2x2, three dense blocks each with a transition that halves the channels.

    The first two transitions also average 2x2 cells, the third only compresses: 64 -> 128 -> 256 -> 512 channels at
    strides 4, 8, 16 and 16 with the paper's sizes **(reading: the paper's 14 x 14 map of a 224 x 224 picture)**.

    Padding is neutral: every convolution and pool that looks at neighbours finds zero in the padding.
    """

    def __init__(self, config: DenseNetConfig) -> None:
        super().__init__()
        self.stride = 16
        self.stem = nn.Conv2d(1, config.stem, 7, 2, padding=3, bias=False)
        self.stem_norm = nn.BatchNorm2d(config.stem)
        channels = config.stem
        self.blocks, self.transitions = nn.ModuleList(), nn.ModuleList()
        for layers in config.blocks:
            block = DenseBlock(channels, layers, config)
            self.blocks.append(block)
            self.transitions.append(Transition(block.channels))
            channels = block.channels // 2
        self.channels = channels
        self.mask2, self.mask4, self.mask8, self.mask16 = CellMask(2), CellMask(4), CellMask(8), CellMask(16)

    def forward(self, raster: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
        """See ``Encoder.forward``."""
        height, width = raster.shape[2], raster.shape[3]
        x = F.relu(self.stem_norm(self.stem(raster))) * self.mask2(size, height // 2, width // 2)
        x = F.max_pool2d(x, 2, 2)
        masks = (
            self.mask4(size, height // 4, width // 4),
            self.mask8(size, height // 8, width // 8),
            self.mask16(size, height // 16, width // 16),
        )
        for i, (block, transition) in enumerate(zip(self.blocks, self.transitions, strict=True)):
            x = transition(block(x, masks[i]), masks[i])
            if i < 2:
                x = F.avg_pool2d(x, 2, 2)
        return x, masks[2]
