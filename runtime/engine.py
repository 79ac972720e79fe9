"""What every engine offers: the encoder once per picture, then decoder steps in a session that keeps the state."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np

Memory = Mapping[str, np.ndarray]
"""Encoder outputs by name, batch axis 1; what the steps need of the picture."""


class StepSession(Protocol):
    """The decoding of one picture: holds the state of up to ``beams`` hypotheses.

    One session belongs to one thread; many sessions may run on one engine at the same time.
    """

    def step(self, tokens: np.ndarray, parents: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Run the decoder once; the n-th call is position n, from 0.

        Args:
            tokens: int32 (n,), 1 <= n <= beams: the last token of each hypothesis (sos at first).
            parents: int (n,): which row of the step before each hypothesis goes on from; None for the same rows.
                Ignored by the first step.

        Returns:
            log-probabilities float32 (n, vocabulary) and attention float32 (n, rows * columns). Both may be buffers
            that the next step overwrites.
        """


class Engine(Protocol):
    """Runs the graphs of one bundle.

    Attributes:
        name: what really computes, with version and device, e.g. ``onnxruntime 1.32.0 CPU``.
        threads: threads by component role.
    """

    name: str
    threads: dict[str, int]

    def encode(self, raster: np.ndarray, size: np.ndarray) -> Memory:
        """Run the encoder.

        Args:
            raster: float32 (1, 1, height, width), one of the manifest's buckets, ink 1 on 0, zero in the padding.
            size: int32 (1, 2): height and width without padding.
        """

    def start(self, memory: Memory, beams: int) -> StepSession:
        """Begin to decode one picture with at most ``beams`` hypotheses."""
