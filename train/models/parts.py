"""What the parts of a recogniser promise each other, and the registries that presets choose from.

Every part is built from a frozen dataclass (its configuration, saved with the weights) and has two duties:
it trains on batches, and its forward is made only of operations that every export target takes.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from hmerctl.runtime.errors import ConfigError
from hmerctl.runtime.state import StateSpec

MASKED = -1e4
"""Added to attention scores of padding. Never -inf or finfo.min: fp16 targets turn those into NaN."""

MAX_STEPS = 208
"""Rows in a decoder cache: the longest label (204 tokens) with sos and eos, rounded up to 16."""


class Encoder(nn.Module):
    """Raster to feature map.

    Attributes:
        stride: raster pixels per cell, both axes; bucket sides are multiples of it.
        channels: channels of the feature map.
    """

    stride: int
    channels: int

    def forward(self, raster: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
        """Encode.

        Args:
            raster: float32 (batch, 1, height, width), ink 1 on 0, padded with 0 to a bucket.
            size: int32 (batch, 2), height and width of the raster without padding, pixels.

        Returns:
            features float (batch, channels, rows, columns), zero in the padding; mask float
            (batch, 1, rows, columns), 1 on cells that touch the raster, 0 on padding. The features of valid
            cells do not depend on the padding.
        """
        raise NotImplementedError


class Decoder(nn.Module):
    """Feature map to tokens, one at a time; the same weights in a parallel form for training."""

    def state_spec(self) -> tuple[StateSpec, ...]:
        """The tensors a step carries."""
        raise NotImplementedError

    def adapted(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """Another recogniser's weights in this decoder's form, where a form can be made from the other."""
        return weights

    def memory(self, features: Tensor, positioned: Tensor, mask: Tensor) -> dict[str, Tensor]:
        """What a step needs of the picture, computed once (cross-attention keys and values).

        Args:
            features: (batch, channels, rows, columns), the values of attention.
            positioned: the same with position encoding, the keys of attention.
            mask: (batch, 1, rows, columns), 1 valid, 0 padding.

        Returns:
            named tensors, batch first; they are the outputs of the encoder graph, in this order.
        """
        raise NotImplementedError

    def forward(self, memory: dict[str, Tensor], tokens: Tensor) -> Tensor:
        """Teacher forcing: tokens int64 (batch, time), beginning with sos -> logits (batch, time, vocabulary)."""
        raise NotImplementedError

    def step(
        self, memory: dict[str, Tensor], token: Tensor, position: Tensor, state: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        """One step.

        Args:
            memory: as from ``memory``; batch 1 (shared by all beams) or the batch of ``token``.
            token: int32 (beam,), the previous token of each beam (sos at first).
            position: int32 (1,), index of this step, from 0.
            state: by name, as in ``state_spec``.

        Returns:
            log-probabilities float32 (beam, vocabulary); the state's outputs by name (see StateSpec.update);
            attention float32 (beam, cells), summing to 1 over valid cells.
        """
        raise NotImplementedError


_REGISTRY: dict[tuple[str, str], tuple[type, Callable[..., nn.Module]]] = {}


def register(kind: str, name: str, config: type) -> Callable[[type[nn.Module]], type[nn.Module]]:
    """Class decorator: make a part available to presets as ``[model.<kind>] name = "<name>"``."""

    def add(cls: type[nn.Module]) -> type[nn.Module]:
        _REGISTRY[kind, name] = (config, cls)
        return cls

    return add


def names(kind: str) -> list[str]:
    """Names of the registered parts of a kind."""
    return sorted(name for k, name in _REGISTRY if k == kind)


def build(kind: str, options: dict[str, Any], **fixed: Any) -> nn.Module:
    """Build a part from a preset's table ``{"name": ..., option: value}``.

    Raises:
        ConfigError: unknown name or option, or a value the part refuses.
    """
    if not isinstance(options, dict):
        raise ConfigError(f'[model.{kind}] = {options!r}: expected a table such as {{name = "{names(kind)[0]}"}}')
    name = options.get("name", "")
    if (kind, name) not in _REGISTRY:
        raise ConfigError(f"[model.{kind}] name = {name!r} is unknown; choose one of {', '.join(names(kind))}")
    config, cls = _REGISTRY[kind, name]
    try:
        chosen = {key: value for key, value in options.items() if key != "name"}
        _check_numbers(config, chosen)
        return cls(config(**chosen), **fixed)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise ConfigError(f"[model.{kind}] name = {name!r}: {error}") from error


def _check_numbers(config: type, options: dict[str, Any]) -> None:
    """Only options that there are; counts and sizes are at least 1, or 0 where 0, for "without", is the default; no
    number is infinite or NaN."""
    known = {option.name for option in dataclasses.fields(config)}
    for unknown in sorted(set(options) - known):
        raise ValueError(f"unknown option {unknown!r}; known are {', '.join(sorted(known)) or 'none'}")
    for option in dataclasses.fields(config):
        value, default = options.get(option.name, option.default), option.default
        if isinstance(default, bool) and not isinstance(value, bool):
            raise ValueError(f"{option.name} = {value!r}; expected true or false")
        if isinstance(default, int) and not isinstance(default, bool):
            least = 0 if default == 0 else 1
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{option.name} = {value!r}; expected a whole number of at least {least}")
        if isinstance(default, float) and not (isinstance(value, int | float) and math.isfinite(value)):
            raise ValueError(f"{option.name} = {value!r}; expected a finite number")


class CellMask(nn.Module):
    """Mask of the cells that a raster touches, by comparing with a constant ramp (so no Range in the graph).

    Args:
        stride: raster pixels per cell.
        longest: largest raster side, pixels.
    """

    ramp: Tensor

    def __init__(self, stride: int, longest: int = 2048) -> None:
        super().__init__()
        self.register_buffer("ramp", torch.arange(0, longest, stride, dtype=torch.int32), persistent=False)

    def forward(self, size: Tensor, rows: int, columns: int) -> Tensor:
        """size int32 (batch, 2), pixels -> float32 (batch, 1, rows, columns), 1 inside and 0 on padding."""
        row = self.ramp[:rows][None, :, None] < size[:, 0, None, None]
        column = self.ramp[:columns][None, None, :] < size[:, 1, None, None]
        return (row & column)[:, None].float()
