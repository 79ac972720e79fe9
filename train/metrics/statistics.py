"""How sure a score is, and whether one output is really better than another on the same expressions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

RESAMPLES = 10_000
"""Bootstrap samples drawn unless told otherwise."""


@dataclass(frozen=True)
class Interval:
    """A confidence interval of a mean, in the units of the mean."""

    low: float
    high: float
    level: float = 0.95


@dataclass(frozen=True)
class PairedTest:
    """Two outputs compared expression by expression.

    Attributes:
        expressions: how many were compared.
        first, second: share of right ones of each output.
        only_first, only_second: expressions that only this output has right.
        difference: second minus first.
        interval: bootstrap interval of the difference.
        p_mcnemar: two-sided p of McNemar's exact test.
        p_bootstrap: two-sided p of the paired bootstrap.
    """

    expressions: int
    first: float
    second: float
    only_first: int
    only_second: int
    difference: float
    interval: Interval
    p_mcnemar: float
    p_bootstrap: float


def bootstrap_interval(
    values: Sequence[float] | npt.NDArray[np.generic], level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Percentile bootstrap interval of the mean of ``values``: right or wrong as 1 or 0. Same seed, same answer."""
    tail = 100 * (1 - level) / 2
    low, high = np.percentile(_resampled_means(values, resamples, seed), [tail, 100 - tail])
    return Interval(float(low), float(high), level)


def compare(
    first: Sequence[bool] | npt.NDArray[np.bool_],
    second: Sequence[bool] | npt.NDArray[np.bool_],
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> PairedTest:
    """Compare two outputs; ``first[i]`` and ``second[i]`` say whether expression i is right.

    McNemar's exact test asks how likely the split of the expressions on which the outputs disagree is if both were
    equally good (binomial, p = 1/2). The bootstrap draws expressions with replacement; its p is twice the smaller
    share of samples in which the difference is not above (not below) zero, the outputs themselves being one of them.

    Raises:
        ValueError: the two do not cover the same number of expressions, or none.
    """
    from scipy.stats import binomtest

    a, b = np.asarray(first, dtype=bool), np.asarray(second, dtype=bool)
    if a.shape != b.shape or a.size == 0:
        raise ValueError(f"two outputs of the same expressions are needed, not {a.size} and {b.size}")
    only_first, only_second = int((a & ~b).sum()), int((b & ~a).sum())
    disagreements = only_first + only_second
    differences = b.astype(np.int64) - a
    means = _resampled_means(differences, resamples, seed)
    return PairedTest(
        expressions=int(a.size),
        first=float(a.mean()),
        second=float(b.mean()),
        only_first=only_first,
        only_second=only_second,
        difference=float(differences.mean()),
        interval=bootstrap_interval(differences, level, resamples, seed),
        p_mcnemar=float(binomtest(only_first, disagreements, 0.5).pvalue) if disagreements else 1.0,
        p_bootstrap=min(1.0, 2 * (1 + int(min((means <= 0).sum(), (means >= 0).sum()))) / (1 + resamples)),
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Each p adjusted for how many comparisons were made (Holm 1979), in the same order.

    Those that stay below a level are, all together, wrong with at most that probability, however they depend on each
    other.
    """
    adjusted = [0.0] * len(p_values)
    so_far = 0.0
    for rank, index in enumerate(np.argsort(p_values, kind="stable").tolist()):
        so_far = max(so_far, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = so_far
    return adjusted


def _resampled_means(
    values: Sequence[float] | npt.NDArray[np.generic], resamples: int, seed: int
) -> npt.NDArray[np.float64]:
    """Means of samples drawn with replacement, shape (resamples,).

    How often each distinct value is drawn follows a multinomial law, so only the counts are drawn.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        raise ValueError("a bootstrap needs at least one value")
    distinct, counts = np.unique(array, return_counts=True)
    drawn = np.random.default_rng(seed).multinomial(array.size, counts / array.size, size=resamples)
    return drawn @ distinct / array.size
