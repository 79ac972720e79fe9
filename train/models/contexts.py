"""Context parts: what mixes the cells of the feature map before the decoder reads them."""

from dataclasses import dataclass

from torch import Tensor, nn

from hmerctl.train.models.parts import register


@dataclass(frozen=True)
class NoContextConfig:
    """No options."""


@register("context", "none", NoContextConfig)
class NoContext(nn.Module):
    """The feature map as it is."""

    def __init__(self, config: NoContextConfig, channels: int) -> None:
        super().__init__()

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x (batch, channels, rows, columns) -> x."""
        return x
