"""Selective recognition: how well a confidence tells right results from wrong ones, and where to draw the line.

All functions take ``confidence``, float (n,), higher is surer, and ``correct``, bool (n,). The *risk* at a threshold
is the share of wrong ones among the results accepted there (confidence >= threshold), the *coverage* the share
accepted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RiskCoverage:
    """The risk-coverage curve: one point for each distinct confidence, from the surest down.

    Attributes:
        thresholds, coverage, risk: float64 (points,); coverage rises to 1.
        aurc: area under the curve: the mean risk over coverages 1/n, 2/n ... 1. Where results are equally sure, their
            errors count as spread evenly over them, so that the order of the input does not matter. 0 is best.
        optimal_aurc: the same for a confidence that ranks every right result above every wrong one.
    """

    thresholds: Floats
    coverage: Floats
    risk: Floats
    aurc: float
    optimal_aurc: float


@dataclass(frozen=True)
class Threshold:
    """Where to accept: results with ``confidence >= threshold``.

    Attributes:
        threshold: infinity where no threshold meets the target, so that nothing is accepted.
        coverage: share of the results accepted.
        risk: share of wrong ones among them; 0 when none is accepted.
    """

    threshold: float
    coverage: float
    risk: float


@dataclass(frozen=True)
class LogisticCalibration:
    """Probability of being right from features of a result: ``1 / (1 + exp(-(bias + sum(weights * features))))``.

    Attributes:
        weights: one for each feature, in the features' own units.
        bias: the constant term.
    """

    weights: tuple[float, ...]
    bias: float

    def confidence(self, features: npt.ArrayLike) -> Floats:
        """Calibrated confidence, float64 (n,), of features (n, len(weights))."""
        from scipy.special import expit

        return np.asarray(expit(np.asarray(features, dtype=np.float64) @ np.array(self.weights) + self.bias))


def risk_coverage(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> RiskCoverage:
    """The risk-coverage curve and the area under it. Raises ValueError for no results, NaN, or unequal lengths."""
    scores, right = _checked(confidence, correct)
    n = len(scores)
    distinct, inverse, sizes = np.unique(-scores, return_inverse=True, return_counts=True)
    wrong = np.bincount(inverse, weights=~right)
    accepted = np.cumsum(sizes)
    risk = np.cumsum(wrong) / accepted
    spread_errors = np.cumsum(np.repeat(wrong / sizes, sizes))
    errors = int((~right).sum())
    best_errors = np.maximum(np.arange(1, n + 1) - (n - errors), 0)
    ranks = np.arange(1, n + 1)
    return RiskCoverage(
        thresholds=-distinct,
        coverage=accepted / n,
        risk=risk,
        aurc=float((spread_errors / ranks).mean()),
        optimal_aurc=float((best_errors / ranks).mean()),
    )


def threshold_for_risk(confidence: npt.ArrayLike, correct: npt.ArrayLike, target: float) -> Threshold:
    """The threshold of largest coverage whose risk on these results is at most ``target``.

    It is as good as the results it was chosen on: take validation data, not the test.
    """
    curve = risk_coverage(confidence, correct)
    fitting = np.flatnonzero(curve.risk <= target)
    if fitting.size == 0:
        return Threshold(float("inf"), 0.0, 0.0)
    last = fitting[-1]
    return Threshold(float(curve.thresholds[last]), float(curve.coverage[last]), float(curve.risk[last]))


def expected_calibration_error(confidence: npt.ArrayLike, correct: npt.ArrayLike, bins: int = 15) -> float:
    """ECE of confidences in [0, 1]: the gap between mean confidence and accuracy in bins of equal width.

    Each bin weighs as many results as fall into it (Guo et al. 2017, eq. 3); a confidence on an edge between two bins
    belongs to the lower one.

    Raises:
        ValueError: a confidence outside [0, 1], or as for ``risk_coverage``.
    """
    scores, right = _checked(confidence, correct)
    if scores.min() < 0 or scores.max() > 1:
        raise ValueError("the calibration error needs confidences in [0, 1]: calibrate them first")
    number = np.clip(np.ceil(scores * bins).astype(np.int64) - 1, 0, bins - 1)
    gaps = np.bincount(number, weights=scores - right, minlength=bins)
    return float(np.abs(gaps).sum() / len(scores))


def fit_logistic(features: npt.ArrayLike, correct: npt.ArrayLike, penalty: float = 1.0) -> LogisticCalibration:
    """Fit the probability of being right by logistic regression (Platt 1999, with any number of features).

    The features are standardised for the fit, and the solution is given for the features as they are. Two priors keep
    it finite when the features separate right from wrong: Platt's softened targets, (right + 1) / (right + 2) and
    1 / (wrong + 2), and ``penalty / 2`` times the squared standardised weights.

    Args:
        features: float (n, d), such as mean and smallest token log-probability.
        correct: bool (n,).
        penalty: strength of the prior on the weights, in observations.

    Raises:
        ValueError: no results, features that are not finite, or unequal lengths.
    """
    from scipy.optimize import minimize

    x = np.asarray(features, dtype=np.float64)
    right = np.asarray(correct, dtype=bool)
    if x.ndim != 2 or len(x) != len(right) or x.size == 0 or not np.isfinite(x).all():
        raise ValueError("the fit needs finite features (n, d) and as many results (n,), at least one")
    mean, deviation = x.mean(axis=0), x.std(axis=0)
    deviation[deviation == 0] = 1.0
    z = np.column_stack([(x - mean) / deviation, np.ones(len(x))])
    target = np.where(right, (right.sum() + 1) / (right.sum() + 2), 1 / ((~right).sum() + 2))
    prior = np.full(z.shape[1], penalty)
    prior[-1] = 0.0

    def loss(w: Floats) -> tuple[float, Floats]:
        logits = z @ w
        value = np.logaddexp(0, logits).sum() - target @ logits + (prior * w * w).sum() / 2
        return float(value), z.T @ (_sigmoid(logits) - target) + prior * w

    fitted = minimize(loss, np.zeros(z.shape[1]), jac=True, method="L-BFGS-B").x
    weights = fitted[:-1] / deviation
    return LogisticCalibration(tuple(map(float, weights)), float(fitted[-1] - weights @ mean))


def _sigmoid(logits: Floats) -> Floats:
    from scipy.special import expit

    return np.asarray(expit(logits))


def _checked(
    confidence: npt.ArrayLike | Sequence[float], correct: npt.ArrayLike | Sequence[bool]
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    scores, right = np.asarray(confidence, dtype=np.float64), np.asarray(correct, dtype=bool)
    if scores.ndim != 1 or scores.shape != right.shape or scores.size == 0:
        raise ValueError(f"as many confidences as results are needed, at least one: {scores.shape} and {right.shape}")
    if np.isnan(scores).any():
        raise ValueError("a confidence is not a number")
    return scores, right
