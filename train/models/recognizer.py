"""The recogniser: encoder, position encoding, context and decoder put together from a preset's model table."""

from dataclasses import dataclass, field, fields
from typing import Any, cast

from torch import Tensor, nn

from hmerctl.runtime.buckets import BUCKETS
from hmerctl.runtime.errors import ConfigError
from hmerctl.runtime.vocabulary import Vocabulary
from hmerctl.train.models import (  # noqa: F401  (they register their parts)
    attention_gru,
    contexts,
    densenet,
    edge,
    learned_positions,
    multidirectional,
    self_attention,
    transformer,
)
from hmerctl.train.models.contexts import Context
from hmerctl.train.models.parts import Decoder, Encoder, build
from hmerctl.train.models.positions import Position
from hmerctl.train.models.relative import TakesRelativeBias


@dataclass(frozen=True)
class ModelConfig:
    """The four parts, each ``{"name": ..., option: value}``; saved with the weights, it *is* the configuration."""

    encoder: dict[str, Any] = field(default_factory=lambda: {"name": "edge"})
    position: dict[str, Any] = field(default_factory=lambda: {"name": "multi-scale"})
    context: dict[str, Any] = field(default_factory=lambda: {"name": "none"})
    decoder: dict[str, Any] = field(default_factory=lambda: {"name": "transformer"})


PARTS = tuple(part.name for part in fields(ModelConfig))
"""Names of the parts, which begin the names of their weights."""


class Recognizer(nn.Module):
    """Handwriting to LaTeX tokens.

    Attributes:
        config: which parts, with which options.
        vocabulary: what the ids mean.
    """

    encoder: Encoder
    position: Position
    context: Context
    decoder: Decoder

    def __init__(self, config: ModelConfig, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        self.encoder = cast(Encoder, build("encoder", config.encoder))
        channels = self.encoder.channels
        self.position = cast(Position, build("position", config.position, channels=channels))
        self.context = cast(Context, build("context", config.context, channels=channels))
        decoder = build("decoder", config.decoder, channels=channels, vocabulary=len(vocabulary))
        self.decoder = cast(Decoder, decoder)
        self._check_tables()
        if self.position.reach:
            self._add_relative_bias(self.position.reach)

    def _check_tables(self) -> None:
        """Position tables hold the map of the largest bucket, or a picture of some size would end training, or an
        export, in the middle."""
        rows, columns = (-(-max(sides) // self.encoder.stride) for sides in zip(*BUCKETS, strict=True))
        for part in self.position.modules():
            if isinstance(part, Position):
                try:
                    part.cover(rows, columns)
                except ValueError as error:
                    raise ConfigError(f"[model.position] name = {self.config.position['name']!r}: {error}") from error

    def _add_relative_bias(self, reach: tuple[int, int]) -> None:
        """Give the attention of context and decoder the bias that the position encoding asks for."""
        takers = [part for part in (self.context, self.decoder) if isinstance(part, TakesRelativeBias)]
        if not takers:
            raise ConfigError('[model.position] name = "relative" needs an attention context or decoder to act on')
        for part in takers:
            part.add_relative_bias(reach)

    def features(self, raster: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
        """Encoder output (batch, channels, rows, columns) and mask (batch, 1, rows, columns)."""
        return self.encoder(raster, size)

    def remember(self, features: Tensor, mask: Tensor, stretched: Tensor | None = None) -> dict[str, Tensor]:
        """Position encoding, context, and what the decoder needs of the picture.

        ``stretched``, bool (batch,), belongs to training with stepwise views: see ``Position.in_views``.
        """

        def place(x: Tensor) -> Tensor:
            return self.position(x, mask) if stretched is None else self.position.in_views(x, mask, stretched)

        if self.position.on == "keys":
            values = self.context(features, mask)
            return self.decoder.memory(values, place(values), mask)
        positioned = self.context(place(features), mask)
        return self.decoder.memory(positioned, positioned, mask)

    def encode(self, raster: Tensor, size: Tensor) -> dict[str, Tensor]:
        """The encoder graph: raster float32 (batch, 1, height, width), size int32 (batch, 2) -> memory by name."""
        return self.remember(*self.features(raster, size))

    def forward(self, raster: Tensor, size: Tensor, tokens: Tensor) -> Tensor:
        """Teacher forcing: tokens int64 (batch, time) from sos on -> logits (batch, time, vocabulary)."""
        return self.decoder(self.encode(raster, size), tokens)
