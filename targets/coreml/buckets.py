"""The few raster sizes that a target of fixed shapes is built for."""

from collections.abc import Callable, Sequence

import numpy as np

from hmerctl.runtime.buckets import BUCKETS, Bucket

STATIC_BUCKETS = tuple(
    sorted(
        (
            Bucket(64, 128),
            Bucket(96, 256),
            Bucket(64, 512),
            Bucket(128, 384),
            Bucket(96, 768),
            Bucket(192, 512),
            Bucket(128, 1280),
            Bucket(256, 1280),
        ),
        key=lambda b: (b.height * b.width, b.height),
    )
)
"""``best_buckets`` of the rasters of 2,500 CROHME training inks, 8 of 35: 1.37 times the padded area of all 35.

(With 5: 1.75, with 12: 1.22.) Each further bucket costs a conversion, and on the device a compilation when it is
first used and its share of memory; so the list stops where the curve flattens.
"""


def best_buckets(sizes: Sequence[tuple[int, int]], count: int, choice: Sequence[Bucket] = BUCKETS) -> list[Bucket]:
    """The buckets with the least mean padded area: greedy, then swaps until none helps.

    Args:
        sizes: heights and widths of typical rasters, pixels.
        count: how many buckets; the largest of ``choice`` is always one.
        choice: what to choose from, ordered.
    """
    pixels, buckets = np.asarray(sizes), np.asarray(choice)
    fits = (pixels[:, None] <= buckets[None]).all(2)
    area = np.where(fits, buckets.prod(1)[None].astype(float), np.inf)

    def cost(chosen: list[int]) -> float:
        return float(area[:, chosen].min(1).mean())

    chosen = [len(buckets) - 1]
    while len(chosen) < min(count, len(buckets)):
        rest = [i for i in range(len(buckets)) if i not in chosen]
        chosen.append(min(rest, key=lambda i: cost([*chosen, i])))
        chosen = _improve(chosen, len(buckets), cost)
    return [choice[i] for i in sorted(chosen)]


def _improve(chosen: list[int], total: int, cost: Callable[[list[int]], float]) -> list[int]:
    """Swap any bucket but the first while that lowers the cost."""
    best = cost(chosen)
    improved = True
    while improved:
        improved = False
        for place in range(1, len(chosen)):
            for other in set(range(total)) - set(chosen):
                swapped = [*chosen[:place], other, *chosen[place + 1 :]]
                if cost(swapped) < best - 1e-9:
                    chosen, best, improved = swapped, cost(swapped), True
    return chosen
