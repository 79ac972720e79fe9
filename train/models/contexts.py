"""Context parts: what mixes the cells of the feature map before the decoder reads them.

Here the two that need no map geometry; ``multidirectional.py`` has the MD-RNNs, ``self_attention.py`` attention.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hmerctl.train.models.parts import register


class Context(nn.Module):
    """Mixes the cells of a map.

    Attributes:
        fixed_size: empty, or the reason why the exported encoder graph serves one bucket only.
    """

    fixed_size: str = ""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x (batch, channels, rows, columns), zero in padding; mask (batch, 1, rows, columns), 1 valid and 0
        padding -> the same shape, zero in padding; valid cells do not depend on the padding."""
        raise NotImplementedError


@dataclass(frozen=True)
class NoContextConfig:
    """No options."""


@register("context", "none", NoContextConfig)
class NoContext(Context):
    """The feature map as it is."""

    def __init__(self, config: NoContextConfig, channels: int) -> None:
        super().__init__()

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x -> x."""
        return x


class ScanGRU(nn.Module):
    """A GRU over the cells in one order; on padding it keeps its state.

    The mask is one more input, which only the update gate hears, and hears loudly: z = sigma(... + 100) is 1 in
    float32 and float16, so ``h' = (1 - z) n + z h = h`` exactly. That keeps the scan a plain GRU, one fast kernel in
    PyTorch and one native GRU node in ONNX, for any number of cells. (Unrolled, the cells of a 64 x 128 raster at
    stride 16 would be some 800 nodes, those of a 256 x 1280 raster 30,000.)
    """

    HOLD = 100.0
    hold: Tensor

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        bound = hidden**-0.5
        self.weight_input = nn.Parameter(torch.empty(3 * hidden, inputs).uniform_(-bound, bound))
        self.weight_hidden = nn.Parameter(torch.empty(3 * hidden, hidden).uniform_(-bound, bound))
        self.bias_input = nn.Parameter(torch.empty(3 * hidden).uniform_(-bound, bound))
        self.bias_hidden = nn.Parameter(torch.empty(3 * hidden).uniform_(-bound, bound))
        hold = torch.zeros(3 * hidden, 1)
        hold[hidden : 2 * hidden] = self.HOLD
        self.register_buffer("hold", hold, persistent=False)

    def forward(self, sequence: Tensor) -> Tensor:
        """(cells, batch, inputs + 1), the last input 0 on valid cells and 1 on padding -> (cells, batch, hidden)."""
        weight = torch.cat([self.weight_input, self.hold.to(self.weight_input.dtype)], dim=1)
        if torch.compiler.is_exporting():
            return self._exported(sequence, weight)
        with torch.autocast(sequence.device.type, enabled=False):
            sequence = sequence.to(weight.dtype)
            start = sequence.new_zeros(1, sequence.shape[1], self.hidden)
            weights = [weight, self.weight_hidden, self.bias_input, self.bias_hidden]
            return torch.gru(sequence, start, weights, True, 1, 0.0, self.training, False, False)[0]

    def _exported(self, sequence: Tensor, weight: Tensor) -> Tensor:
        """The ONNX operator GRU, whose gates stand in the order z, r, n. (The exporter unrolls ``torch.gru`` of a
        dynamic length, or fails.)"""
        h = self.hidden

        def reorder(w: Tensor) -> Tensor:
            return torch.cat([w[h : 2 * h], w[:h], w[2 * h :]])

        inputs, recurrent = reorder(weight)[None], reorder(self.weight_hidden)[None]
        bias = torch.cat([reorder(self.bias_input), reorder(self.bias_hidden)])[None]
        states = torch.onnx.ops.symbolic(
            "GRU",
            (sequence, inputs, recurrent, bias),
            {"hidden_size": h, "linear_before_reset": 1},
            dtype=sequence.dtype,
            shape=(sequence.shape[0], 1, sequence.shape[1], h),
            version=14,
        )
        return states[:, 0]


@dataclass(frozen=True)
class BiGRUConfig:
    """Attributes:
    residual: add the cells' own features to what the scans say (the paper does not).
    """

    residual: bool = False


@register("context", "bigru", BiGRUConfig)
class BiGRU(Context):
    """Two GRUs over the flattened map, row by row, one from its start and one from its end (Zhou 2023, eq. 6):
    ``h_t = [forward h_t; backward h_t]``, each of half the channels.
    """

    def __init__(self, config: BiGRUConfig, channels: int) -> None:
        super().__init__()
        if channels % 2:
            raise ValueError(f"channels must be even, not {channels}")
        self.residual = config.residual
        self.ahead, self.back = ScanGRU(channels, channels // 2), ScanGRU(channels, channels // 2)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """See ``Context.forward``."""
        cells = torch.cat([x, (1.0 - mask).to(x.dtype)], dim=1).flatten(2).permute(2, 0, 1)
        both = torch.cat([self.ahead(cells), self.back(cells.flip(0)).flip(0)], dim=2)
        mixed = both.permute(1, 2, 0).unflatten(2, (x.shape[2], x.shape[3])) * mask
        return x + mixed if self.residual else mixed
