"""The real ink that the ladder compares on: a dataset's expressions, or the samples of a bundle."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hmerctl.runtime.buckets import Bucket, pad_all
from hmerctl.runtime.bundle import Bundle
from hmerctl.runtime.load import load_raster
from hmerctl.runtime.raster import RasterSpec
from hmerctl.train.dataset import ExpressionDataset


@dataclass(frozen=True)
class Picture:
    """A normalised raster with its label.

    Attributes:
        id: of the expression.
        pixels: uint8 (height, width), ink 255 on 0.
        tokens: the truth, or what PyTorch decodes where no truth is known.
    """

    id: str
    pixels: np.ndarray = field(repr=False)
    tokens: tuple[str, ...]


def pictures_of_dataset(path: Path, spec: RasterSpec, most: int | None = None) -> list[Picture]:
    """Expressions of a dataset folder, drawn by a raster contract; blank ones are left out.

    Args:
        most: take only so many, evenly spread over the dataset.
    """
    dataset = ExpressionDataset(path)
    step = 1 if most is None else max(1, -(-len(dataset) // most))
    pictures = []
    for index in range(0, len(dataset), step):
        expression = dataset[index]
        raster = expression.drawn(spec)
        if raster.blank is None:
            pictures.append(Picture(expression.id, raster.pixels, expression.tokens))
    return pictures


def pictures_of_samples(bundle: Bundle) -> list[Picture]:
    """The inks and pictures that lie in a bundle, with the tokens they must give."""
    spec = bundle.manifest.preprocessing
    return [
        Picture(Path(sample.file).stem, load_raster(bundle.file(sample.file), spec).pixels, sample.tokens)
        for sample in bundle.manifest.samples
    ]


def fitting(pictures: Sequence[Picture], bucket: Bucket, count: int) -> list[Picture]:
    """The ``count`` largest pictures that a bucket holds; repeated where there are fewer, empty if there is none."""
    inside = [p for p in pictures if p.pixels.shape[0] <= bucket.height and p.pixels.shape[1] <= bucket.width]
    inside.sort(key=lambda p: (-p.pixels.size, p.id))
    return [inside[i % len(inside)] for i in range(count)] if inside else []


def batch(pictures: Sequence[Picture], bucket: Bucket) -> tuple[np.ndarray, np.ndarray]:
    """Raster float32 (batch, 1, height, width) and size int32 (batch, 2) of pictures padded to a bucket."""
    return pad_all([picture.pixels for picture in pictures], bucket)
