"""Honest confidence: fitted on validation results, judged on those it was not fitted on."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, get_args

import numpy as np

from hmerctl.runtime.errors import DataError
from hmerctl.runtime.manifest import Calibration, DecodingDefaults, Feature
from hmerctl.train.checkpoint import CheckpointInfo
from hmerctl.train.evaluate import Reading, is_right
from hmerctl.train.metrics.selective import (
    expected_calibration_error,
    fit_logistic,
    risk_coverage,
    threshold_for_risk,
)

FEATURES: tuple[Feature, ...] = get_args(Feature)
FOLDS = 5


@dataclass(frozen=True)
class Calibrated:
    """A calibration and how good it is.

    Attributes:
        calibration: fitted on all results.
        decoding: with the threshold to accept, and the one to reject.
        ece_raw, ece: calibration error of the model's own probability, and of the calibrated confidence.
        aurc: area under the risk-coverage curve of the calibrated confidence.
        coverage, risk: share of results accepted at the threshold, and share of wrong ones among them.
        results: how many there were. ``ece``, ``aurc``, ``coverage`` and ``risk`` are cross-validated: every
            result is judged by a calibration that has not seen it.
    """

    calibration: Calibration
    decoding: DecodingDefaults
    ece_raw: float
    ece: float
    aurc: float
    coverage: float
    risk: float
    results: int

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "calibration": self.calibration.model_dump(), "decoding": self.decoding.model_dump()}


def calibrate(
    readings: Sequence[Reading], fitted_on: str, defaults: DecodingDefaults, risk: float = 0.05, reject: float = 0.1
) -> Calibrated:
    """Fit a logistic map from a result's log-probabilities to the chance that it is right.

    Args:
        readings: results on validation data.
        fitted_on: its name.
        defaults: decoding options that the results were made with.
        risk: share of wrong results among the accepted ones to aim at.
        reject: confidence below which a result is rejected.

    Raises:
        DataError: too few results, or all of them right or wrong.
    """
    values = np.array([[r.features[name] for name in FEATURES] for r in readings])
    right = np.array([is_right(r) for r in readings])
    if len(readings) < 10 * FOLDS or right.all() or not right.any():
        raise DataError(f"{fitted_on}: {len(readings)} results, {right.sum()} right, are too few to fit a confidence")
    fold = np.random.default_rng(0).permutation(len(readings)) % FOLDS
    unseen = np.zeros(len(readings))
    for k in range(FOLDS):
        unseen[fold == k] = fit_logistic(values[fold != k], right[fold != k]).confidence(values[fold == k])
    fitted = fit_logistic(values, right)
    accept = min(threshold_for_risk(unseen, right, risk).threshold, 1.0)
    accepted = unseen >= accept
    return Calibrated(
        Calibration(bias=fitted.bias, weights=dict(zip(FEATURES, fitted.weights, strict=True)), fitted_on=fitted_on),
        defaults.model_copy(update={"accept": round(accept, 4), "reject": min(reject, accept)}),
        expected_calibration_error(np.exp(np.minimum(values[:, 0], 0.0)), right),
        expected_calibration_error(unseen, right),
        risk_coverage(unseen, right).aurc,
        float(accepted.mean()),
        float((~right[accepted]).mean()) if accepted.any() else 0.0,
        len(readings),
    )


def with_calibration(info: CheckpointInfo, calibrated: Calibrated) -> CheckpointInfo:
    """The checkpoint's description with its confidence."""
    figures = {k: v for k, v in asdict(calibrated).items() if isinstance(v, float | int)}
    training = {**info.training, "confidence": {k: round(v, 4) for k, v in figures.items()}}
    return replace(info, training=training, calibration=calibrated.calibration, decoding=calibrated.decoding)
