"""The raster sizes that graphs see. A raster is padded with zeros at the bottom and on the right.

Graphs of fixed sizes know a few buckets, and a raster is padded to the smallest one that fits. A graph that takes any
size needs whole cells only: there a raster is padded to a multiple of some pixels, which spares what a bucket holds
beyond it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hmerctl.runtime.errors import EngineError


class Bucket(NamedTuple):
    """Height and width in pixels."""

    height: int
    width: int


HEIGHTS = (64, 96, 128, 192, 256)
WIDTHS = (128, 192, 256, 384, 512, 768, 1280)

BUCKETS = tuple(sorted((Bucket(h, w) for h in HEIGHTS for w in WIDTHS), key=lambda b: (b.height * b.width, b.height)))
"""All buckets, in the order in which they are tried: by area, then by height."""


def smallest_bucket(height: int, width: int, buckets: Sequence[Bucket] = BUCKETS) -> Bucket:
    """The first of the ordered ``buckets`` that holds a raster of this size (pixels).

    Raises:
        EngineError: none is large enough; a raster made by the raster contract always fits the full list.
    """
    for bucket in buckets:
        if height <= bucket.height and width <= bucket.width:
            return bucket
    raise EngineError(
        f"no bucket of this model holds a raster of {height} x {width} pixels; write smaller or in parts, "
        "or use a bundle with larger buckets"
    )


@dataclass(frozen=True)
class Padding:
    """How large a raster is made before it goes into the encoder.

    Attributes:
        buckets: sizes in the order in which they are tried; a raster that fits none is refused, whatever the step.
        step: pixels; both sides are padded to its next multiple, and no further. None: to the first bucket that fits.
    """

    buckets: tuple[Bucket, ...] = BUCKETS
    step: int | None = None

    def size(self, pixels: np.ndarray) -> Bucket:
        """Height and width to which a picture (height, width) is padded.

        Raises:
            EngineError: it is larger than every bucket.
        """
        bucket = bucket_for(pixels, self.buckets)
        if self.step is None:
            return bucket
        height, width = (-(-side // self.step) * self.step for side in pixels.shape)
        return Bucket(height, width)

    def pad(self, pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The encoder's two inputs for one picture, see ``pad``."""
        return pad(pixels, self.size(pixels))


TO_BUCKETS = Padding()
"""What any encoder takes: the smallest bucket that fits."""


def bucket_for(pixels: np.ndarray, buckets: Sequence[Bucket] = BUCKETS) -> Bucket:
    """``smallest_bucket`` of a picture (height, width)."""
    height, width = pixels.shape
    return smallest_bucket(height, width, buckets)


def pad(pixels: np.ndarray, bucket: Bucket) -> tuple[np.ndarray, np.ndarray]:
    """The encoder's two inputs.

    Args:
        pixels: uint8 (height, width), ink 255 on 0.
        bucket: at least as large.

    Returns:
        raster float32 (1, 1, bucket height, bucket width), ink 1 on 0, zero at the bottom and on the right;
        size int32 (1, 2), height and width of ``pixels``.
    """
    height, width = pixels.shape
    raster = np.zeros((1, 1, *bucket), np.float32)
    np.divide(pixels, np.float32(255), out=raster[0, 0, :height, :width])
    return raster, np.array([[height, width]], np.int32)


def pad_all(pictures: Sequence[np.ndarray], bucket: Bucket) -> tuple[np.ndarray, np.ndarray]:
    """``pad`` of several pictures, as one batch: raster (batch, 1, height, width) and size (batch, 2)."""
    rasters, sizes = zip(*(pad(pixels, bucket) for pixels in pictures), strict=True)
    return np.concatenate(rasters), np.concatenate(sizes)
