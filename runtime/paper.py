"""Ink apart from paper: a grey picture of any polarity, light and noise becomes a map of ink coverage."""

from dataclasses import dataclass

import numpy as np

from hmerctl.runtime.components import Components, connected_components, typical_extent

MIN_CONTRAST = 24
"""Ink must be darker than its paper by this many 255ths of the paper's brightness."""


@dataclass(frozen=True)
class InkMap:
    """Where a picture holds ink.

    Attributes:
        coverage: uint8 (height, width), 255 where a pixel is all ink; 0 away from the kept components.
        components: of the pixels at least half covered, without specks.
        pen_width: estimated width of the strokes, pixels.
        blank: why there is no ink, or None; the other fields are empty then.
    """

    coverage: np.ndarray
    components: Components
    pen_width: float
    blank: str | None = None


def find_ink(grey: np.ndarray) -> InkMap:
    """Separate ink from paper.

    1. Polarity: ink is what deviates from its neighbourhood in the rarer direction (skewness of grey minus local
       mean); where ink fills too much of the picture for that, what the border shows less of.
    2. Paper: the grey closing (Serra 1982) by a square wider than any pen, which fills strokes and leaves the
       edges of shadows where they are. Darkness is the part of the paper's light that is missing.
    3. Otsu's threshold on darkness, with paper weighing no more than ink; no ink below ``MIN_CONTRAST``.
    4. Specks smaller than a quarter of a pen dot are dropped, and so are dots far away from everything else and
       what little touches the border away from the rest.

    Args:
        grey: uint8 (height, width).
    """
    nothing = InkMap(np.zeros_like(grey), connected_components(np.zeros((0, 0), bool)), 0.0)
    if int(grey.max()) - int(grey.min()) < MIN_CONTRAST:
        tone = "white" if grey.min() > 200 else "black" if grey.max() < 56 else "one shade"
        return InkMap(nothing.coverage, nothing.components, 0.0, f"the picture is all {tone}")
    dark_ink = grey if _ink_is_dark(grey) else 255 - grey
    darkness = _darkness(dark_ink)
    threshold, contrast = _ink_threshold(darkness)
    if contrast < MIN_CONTRAST:
        return InkMap(nothing.coverage, nothing.components, 0.0, "no ink stands out from the paper")
    ink = darkness >= threshold
    # Soft pixels at the edges of strokes pull a mean down; the upper quartile is the pen's own darkness.
    full = float(np.percentile(darkness[ink], 75))
    coverage = np.clip(darkness.astype(np.float32) * (255 / full) + 0.5, 0, 255).astype(np.uint8)
    binary = coverage >= 128
    components = connected_components(binary)
    size = _area_weighted_extent(components)
    large = components.extent * 4 >= size
    pen_width = estimate_pen_width(paint(components, large, binary.shape))
    speck = components.area * 4 < min(pen_width**2, float(components.area.max()))
    symbol = typical_extent(components.extent[large])
    dust = ~large & _outside(components, large, 2 * symbol)
    mask = paint(components, ~(speck | dust | _cut_off(components, large, symbol / 4, binary.shape)), binary.shape)
    coverage[~_grow(mask)] = 0
    return InkMap(coverage, connected_components(mask), pen_width)


def estimate_pen_width(binary: np.ndarray) -> float:
    """Width of strokes: twice the area over the perimeter, by Cauchy and Crofton's formula in four directions.

    Within 5 % for round pens from 2 to 20 pixels; at least 1.
    """
    padded = np.pad(binary, 1).view(np.int8)
    straight = np.count_nonzero(np.diff(padded, axis=0)) + np.count_nonzero(np.diff(padded, axis=1))
    diagonal = np.count_nonzero(padded[1:, 1:] != padded[:-1, :-1])
    diagonal += np.count_nonzero(padded[1:, :-1] != padded[:-1, 1:])
    perimeter = np.pi / 8 * (straight + diagonal / np.sqrt(2))
    # The round ends of a stroke add to the perimeter: 4 % for one fifteen times as long as wide.
    return max(1.0, float(1.04 * 2 * np.count_nonzero(binary) / max(perimeter, 1.0)))


def paint(components: Components, kept: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The kept components (bool (count,)) as a bool picture of ``shape``."""
    height, width = shape
    change = np.zeros(height * (width + 1), np.int8)
    runs = kept[components.run_label]
    change[components.run_row[runs] * (width + 1) + components.run_start[runs]] += 1
    change[components.run_row[runs] * (width + 1) + components.run_stop[runs]] -= 1
    return np.cumsum(change, dtype=np.int8).reshape(height, width + 1)[:, :width].astype(bool)


def _area_weighted_extent(components: Components) -> float:
    """Extent of the component that half of all ink lies in or below: specks are many but weigh little."""
    order = np.argsort(components.extent, kind="stable")
    weight = np.cumsum(components.area[order])
    return float(components.extent[order[np.searchsorted(weight, weight[-1] / 2)]])


def _outside(components: Components, core: np.ndarray, reach: float) -> np.ndarray:
    """Which components are further than ``reach`` from the box around those of ``core``: bool (count,)."""
    right, left = components.right[core].max() + reach, components.left[core].min() - reach
    bottom, top = components.bottom[core].max() + reach, components.top[core].min() - reach
    return (
        (components.left > right) | (components.right < left) | (components.top > bottom) | (components.bottom < top)
    )


def _cut_off(components: Components, large: np.ndarray, reach: float, shape: tuple[int, int]) -> np.ndarray:
    """Marks at the picture's border, apart from the ink and small beside it: corners of shadows, other writing."""
    height, width = shape
    touching = (components.top == 0) | (components.left == 0)
    touching |= (components.bottom == height - 1) | (components.right == width - 1)
    inner = large & ~touching
    if not inner.any() or components.area[touching].sum() * 4 > components.area[inner].sum():
        return np.zeros(len(components), bool)
    return touching & _outside(components, inner, reach)


def _grow(mask: np.ndarray) -> np.ndarray:
    """``mask`` and its 8-neighbours."""
    out = mask.copy()
    out[1:] |= mask[:-1]
    out[:-1] |= mask[1:]
    wide = out.copy()
    wide[:, 1:] |= out[:, :-1]
    wide[:, :-1] |= out[:, 1:]
    return wide


def _box_sum(values: np.ndarray, radius: int) -> np.ndarray:
    """Sums over windows of 2 radius + 1 on a side, cut off at the borders; int64."""
    for axis in (0, 1):
        total = np.cumsum(values, axis=axis, dtype=np.int64)
        total = np.insert(total, 0, 0, axis=axis)
        n = values.shape[axis]
        index = np.arange(n)
        upper, lower = np.minimum(index + radius + 1, n), np.maximum(index - radius, 0)
        values = np.take(total, upper, axis=axis) - np.take(total, lower, axis=axis)
    return values


def _ink_is_dark(grey: np.ndarray) -> bool:
    step = max(1, min(max(grey.shape) // 512, min(grey.shape) // 16))
    small = grey[step // 2 :: step, step // 2 :: step]
    strongest = 0.0
    # Small windows look past shadows, large ones past the width of a fat pen; rare strokes are the most skewed.
    for part in (24, 8, 3):
        radius = max(4, max(small.shape) // part)
        deviation = small - _box_sum(small, radius) / _box_sum(np.ones_like(small), radius)
        spread = float(np.sqrt(np.mean(deviation**2)))
        # numpy's own third power takes thirty times as long.
        skewness = float(np.mean(deviation * deviation * deviation)) / max(spread, 1e-9) ** 3
        if abs(skewness) > abs(strongest):
            strongest = skewness
    # Two shades of which one fills 40 % have a skewness of 0.41.
    if abs(strongest) > 0.4:
        return strongest < 0
    threshold, _ = _otsu(np.bincount(grey.ravel(), minlength=256).astype(np.float64))
    border = np.concatenate([grey[0], grey[-1], grey[:, 0], grey[:, -1]])
    return bool(np.mean(border >= threshold) >= 0.5)


def _darkness(grey: np.ndarray) -> np.ndarray:
    """How much of its paper's light each pixel misses, above what plain paper misses: uint8."""
    noise = _noise(grey)
    if noise > 2:
        grey = _blur(grey, 1 if noise < 6 else 2)
    reach = max(48, max(grey.shape) // 20)
    paper = _running(np.minimum, _running(np.maximum, grey, reach), reach)
    missing = (paper - grey).astype(np.float32) * (255 / np.maximum(paper, 16).astype(np.float32))
    # The brightest pixel of a window lies above ordinary paper by its noise.
    return np.clip(missing - np.median(missing[::4, ::4]) + 0.5, 0, 255).astype(np.uint8)


def _noise(grey: np.ndarray) -> float:
    """Standard deviation of the noise, from the median step between neighbours: strokes and shadows are rare."""
    step = np.abs(np.diff(grey.astype(np.int16), axis=1))
    return float(np.median(step)) / 0.954 if step.size else 0.0


def _blur(grey: np.ndarray, radius: int) -> np.ndarray:
    count = _box_sum(np.ones_like(grey), radius)
    return ((_box_sum(grey, radius) + count // 2) // count).astype(np.uint8)


def _running(extreme: np.ufunc, values: np.ndarray, size: int) -> np.ndarray:
    """Maximum or minimum over squares of about ``size`` pixels centred on each pixel, cut off at the borders."""
    radius = size // 2
    for _ in range(2):
        values = values.T
        n = len(values)
        # Windows of 1, 2, 4 ... rows that start at each row, then two that overlap to fill 2 radius + 1.
        padded = np.concatenate([np.repeat(values[:1], radius, 0), values, np.repeat(values[-1:], radius, 0)])
        length = 1
        while 2 * length <= 2 * radius + 1:
            padded = extreme(padded[: len(padded) - length], padded[length:])
            length *= 2
        rest = 2 * radius + 1 - length
        values = extreme(padded[:n], padded[rest : rest + n])
    return values


def _ink_threshold(darkness: np.ndarray) -> tuple[int, float]:
    """First darkness that is ink, and the mean darkness of ink.

    Paper outweighs ink a hundredfold and more, which would pull Otsu's threshold into its noise. So pixels within
    the noise (five deviations, the deviation estimated from the pixels below) count only as much as all others.
    """
    histogram = np.bincount(darkness.ravel(), minlength=256).astype(np.float64)
    # Half of the paper lies at 0, where it was cut off; two thirds of the rest within one deviation.
    positive = np.cumsum(histogram[1:])
    deviation = int(np.searchsorted(positive, 0.68 * min(histogram[0], positive[-1]))) + 1
    floor = min(max(5 * deviation, 8), 128)
    above = histogram[floor:].sum()
    if not above:
        return 255, 0.0
    histogram[:floor] *= min(1.0, above / histogram[:floor].sum())
    threshold, _ = _otsu(histogram)
    threshold = max(threshold, floor)
    upper = histogram[threshold:]
    return threshold, float((upper * np.arange(threshold, 256)).sum() / max(upper.sum(), 1.0))


def _otsu(histogram: np.ndarray) -> tuple[int, float]:
    """Otsu's threshold (Otsu 1979): the first value of the upper class, and the distance of the two means."""
    weight = np.cumsum(histogram)
    total = np.cumsum(histogram * np.arange(256))
    rest = weight[-1] - weight
    lower = total / np.maximum(weight, 1)
    upper = (total[-1] - total) / np.maximum(rest, 1)
    between = weight * rest * (upper - lower) ** 2
    # Between two far modes the maximum is flat: its middle is the fairest threshold.
    best = np.flatnonzero(between >= between.max() * (1 - 1e-12))
    at = int(best[len(best) // 2])
    return at + 1, float(upper[at] - lower[at])
