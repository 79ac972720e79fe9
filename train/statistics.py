"""Figures about a dataset: how many, how long, how large, which symbols."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hmerctl.runtime.buckets import bucket_for
from hmerctl.runtime.vocabulary import CROHME, Vocabulary
from hmerctl.train.dataset import ExpressionDataset

PERCENTS = (0, 5, 50, 95, 99, 100)


@dataclass(frozen=True)
class Distribution:
    """Of a whole number per expression.

    Attributes:
        count: values seen.
        mean: their mean.
        percentiles: value at each of ``PERCENTS``.
    """

    count: int
    mean: float
    percentiles: dict[int, int]


@dataclass(frozen=True)
class Statistics:
    """What ``hmerctl data stats`` prints.

    Attributes:
        expressions, inks, pictures: how many, and how many of them have strokes or a picture.
        label_lengths: tokens per label.
        label_histogram: labels by length in steps of ten: ``"0-9"``, ``"10-19"`` ...
        heights, widths: of the rasters measured, pixels.
        buckets: rasters measured by the bucket (height x width) they fall in, most frequent first.
        strokes: strokes per ink.
        symbols: how often each token occurs, most frequent first.
        unused_tokens: those of the vocabulary that never occur.
        unknown_tokens: tokens that the vocabulary lacks, and how often they occur.
        with_symbols, symbols_match: inks with symbol groups, and those whose groups are the symbols of the label.
    """

    expressions: int
    inks: int
    pictures: int
    label_lengths: Distribution
    label_histogram: dict[str, int]
    heights: Distribution
    widths: Distribution
    buckets: dict[str, int]
    strokes: Distribution
    symbols: dict[str, int]
    unused_tokens: list[str]
    unknown_tokens: dict[str, int]
    with_symbols: int
    symbols_match: int


def describe(
    dataset: ExpressionDataset,
    vocabulary: Vocabulary = CROHME,
    measured: int = 2000,
    watch: Callable[[Sequence[int]], Iterable[int]] = iter,
) -> Statistics:
    """Count a dataset.

    Args:
        dataset: inks or pictures.
        vocabulary: for unused and unknown tokens.
        measured: rasters to draw and measure, evenly spread over the dataset; drawing takes a few ms each.
        watch: passes indices on and may show progress.
    """
    step = max(1, -(-len(dataset) // max(measured, 1)))
    lengths, strokes, sizes = [], [], []
    buckets: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    pictures = with_symbols = symbols_match = 0
    for i in watch(range(len(dataset))):
        expression = dataset[i]
        lengths.append(len(expression.tokens))
        tokens.update(expression.tokens)
        pictures += expression.picture is not None
        with_symbols += expression.symbols_match is not None
        symbols_match += expression.symbols_match is True
        if expression.ink is not None:
            strokes.append(len(expression.ink.strokes))
        if i % step == 0:
            pixels = expression.drawn().pixels
            sizes.append(pixels.shape)
            buckets["{} x {}".format(*bucket_for(pixels))] += 1
    return Statistics(
        len(dataset),
        len(strokes),
        pictures,
        _distribution(lengths),
        _histogram(lengths),
        _distribution([h for h, _ in sizes]),
        _distribution([w for _, w in sizes]),
        dict(buckets.most_common()),
        _distribution(strokes),
        dict(tokens.most_common()),
        [t for t in vocabulary.tokens if t not in tokens],
        {t: n for t, n in tokens.most_common() if t not in vocabulary.ids},
        with_symbols,
        symbols_match,
    )


def _distribution(values: Sequence[int]) -> Distribution:
    if not values:
        return Distribution(0, 0.0, {})
    at = np.percentile(values, PERCENTS, method="nearest").tolist()
    return Distribution(len(values), float(np.mean(values)), dict(zip(PERCENTS, at, strict=True)))


def _histogram(lengths: Sequence[int], step: int = 10) -> dict[str, int]:
    counts = Counter(length // step for length in lengths)
    return {f"{k * step}-{k * step + step - 1}": counts[k] for k in range(max(counts, default=-1) + 1)}
