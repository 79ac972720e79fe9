"""A part of a dataset: so many expressions at random, of those that are small and long enough."""

from dataclasses import dataclass, field

import numpy as np

from hmerctl.runtime.errors import DataError
from hmerctl.runtime.raster import RasterSpec
from hmerctl.train.dataset import ExpressionDataset


@dataclass(frozen=True)
class Wanted:
    """Which expressions are taken into account.

    Attributes:
        largest: height and width, pixels, that the raster must fit; None for any.
        min_tokens: tokens that the label must have.
        spec: the raster contract by which inks are drawn.
    """

    largest: tuple[int, int] | None = None
    min_tokens: int = 1
    spec: RasterSpec = field(default_factory=RasterSpec)

    def at(self, dataset: ExpressionDataset, index: int) -> bool:
        """Whether an expression is one of them; its ink is read only if its label is long enough."""
        if len(dataset.labels[index]) < self.min_tokens:
            return False
        if self.largest is None:
            return True
        height, width = dataset[index].drawn(self.spec).pixels.shape
        return height <= self.largest[0] and width <= self.largest[1]


def choose(dataset: ExpressionDataset, count: int, wanted: Wanted | None = None, seed: int = 0) -> list[int]:
    """Draw ``count`` expressions at random; returns their indices, rising.

    With one seed the choices grow: what a smaller count takes, a larger one takes too.

    Raises:
        DataError: fewer expressions are wanted ones.
    """
    wanted = wanted or Wanted()
    chosen: list[int] = []
    for index in np.random.default_rng(seed).permutation(len(dataset)).tolist():
        if len(chosen) == count:
            break
        if wanted.at(dataset, index):
            chosen.append(index)
    if len(chosen) < count:
        raise DataError(
            f"{dataset.path}: only {len(chosen)} of {len(dataset)} expressions fit; ask for fewer or larger"
        )
    return sorted(chosen)
