"""What a quantiser measures its ranges on: the encoder's inputs as they occur when real ink is read.

The step is not quantised by ranges: it gains nothing from it on any target (docs/precision.md)."""

from collections.abc import Iterator, Sequence

import numpy as np

from hmerctl.runtime.buckets import TO_BUCKETS, Padding

Feeds = dict[str, np.ndarray]


def encoder_feeds(rasters: Sequence[np.ndarray], padding: Padding = TO_BUCKETS) -> Iterator[Feeds]:
    """Encoder inputs, each raster padded as on the device.

    Args:
        rasters: uint8 (height, width) each, ink 255 on 0.
        padding: the bundle's; buckets if left out.
    """
    for pixels in rasters:
        raster, size = padding.pad(pixels)
        yield {"raster": raster, "size": size}
