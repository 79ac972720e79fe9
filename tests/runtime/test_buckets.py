"""The smallest bucket that fits, by area and then by height, or whole steps; padding at the bottom and the right."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmerctl.runtime.buckets import BUCKETS, TO_BUCKETS, Bucket, Padding, pad, smallest_bucket
from hmerctl.runtime.errors import EngineError


def test_known_sizes() -> None:
    assert smallest_bucket(64, 128) == (64, 128)
    assert smallest_bucket(65, 128) == (96, 128)
    assert smallest_bucket(60, 500) == (64, 512)
    # 96 x 256 and 128 x 192 have one area: the lower comes first.
    assert smallest_bucket(90, 190) == (96, 192)
    assert BUCKETS.index((96, 256)) + 1 == BUCKETS.index((128, 192))


@given(st.integers(1, 256), st.integers(1, 1280))
def test_nothing_smaller_fits(height: int, width: int) -> None:
    chosen = smallest_bucket(height, width)
    assert chosen.height >= height and chosen.width >= width
    smaller = [
        b
        for b in BUCKETS
        if b.height >= height and b.width >= width and b.height * b.width < chosen.height * chosen.width
    ]
    assert not smaller


def test_too_large_is_an_error() -> None:
    with pytest.raises(EngineError, match="257 x 10"):
        smallest_bucket(257, 10)


@given(st.integers(1, 256), st.integers(1, 1280), st.sampled_from([8, 16, 32]))
def test_a_step_pads_to_its_next_multiple_and_never_beyond_a_bucket(height: int, width: int, step: int) -> None:
    pixels = np.zeros((height, width), np.uint8)
    size = Padding(step=step).size(pixels)
    assert size.height % step == 0 and 0 <= size.height - height < step
    assert size.width % step == 0 and 0 <= size.width - width < step
    bucket = TO_BUCKETS.size(pixels)
    assert bucket == smallest_bucket(height, width)
    assert size.height <= bucket.height and size.width <= bucket.width


def test_a_step_does_not_take_what_is_larger_than_every_bucket() -> None:
    with pytest.raises(EngineError, match="10 x 1281"):
        Padding(step=8).pad(np.zeros((10, 1281), np.uint8))


def test_padding() -> None:
    pixels = np.full((3, 5), 255, np.uint8)
    pixels[2, 4] = 51
    raster, size = pad(pixels, Bucket(8, 16))
    assert raster.shape == (1, 1, 8, 16) and raster.dtype == np.float32
    assert size.dtype == np.int32 and size.tolist() == [[3, 5]]
    assert raster[0, 0, 0, 0] == 1 and raster[0, 0, 2, 4] == np.float32(51) / np.float32(255)
    assert raster.sum() == np.float32(14.2)
