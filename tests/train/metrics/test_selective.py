"""Risk, coverage and calibration, on sets small enough to work out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmerctl.train.metrics.selective import (
    expected_calibration_error,
    fit_logistic,
    risk_coverage,
    threshold_for_risk,
)

CONFIDENCE = [0.9, 0.8, 0.7, 0.6]
CORRECT = [True, False, True, False]


def test_the_curve_by_hand() -> None:
    # Accepting 1, 2, 3, 4 of them: 0/1, 1/2, 1/3, 2/4 are wrong.
    curve = risk_coverage(CONFIDENCE, CORRECT)
    assert curve.thresholds.tolist() == CONFIDENCE
    assert curve.coverage.tolist() == [0.25, 0.5, 0.75, 1]
    assert curve.risk.tolist() == pytest.approx([0, 1 / 2, 1 / 3, 1 / 2])
    assert curve.aurc == pytest.approx((0 + 1 / 2 + 1 / 3 + 1 / 2) / 4)
    # A perfect ranking has both errors last: 0, 0, 1/3, 2/4.
    assert curve.optimal_aurc == pytest.approx((0 + 0 + 1 / 3 + 1 / 2) / 4)


def test_results_that_are_equally_sure_are_accepted_together() -> None:
    curve = risk_coverage([0.5, 0.5, 0.5, 0.5], CORRECT)
    assert curve.coverage.tolist() == [1]
    assert curve.risk.tolist() == [0.5]
    assert curve.aurc == pytest.approx(0.5)


def test_threshold_for_a_target_risk() -> None:
    # A third wrong is allowed: three can be accepted, although two alone would be too risky.
    found = threshold_for_risk(CONFIDENCE, CORRECT, target=0.34)
    assert (found.threshold, found.coverage, found.risk) == pytest.approx((0.7, 0.75, 1 / 3))
    assert threshold_for_risk(CONFIDENCE, CORRECT, target=0.0).threshold == 0.9
    nothing = threshold_for_risk([0.9, 0.1], [False, True], target=0.1)
    assert (nothing.threshold, nothing.coverage, nothing.risk) == (float("inf"), 0, 0)


def test_the_calibration_error_by_hand() -> None:
    # Two bins. (0, 0.5]: 0.2 and 0.4, one of two right: |0.3 - 0.5| = 0.2. (0.5, 1]: 0.9 and 0.9, both right: 0.1.
    error = expected_calibration_error([0.2, 0.4, 0.9, 0.9], [True, False, True, True], bins=2)
    assert error == pytest.approx(0.2 * 2 / 4 + 0.1 * 2 / 4)
    # An edge belongs to the lower bin: 0.5 alone is right, 0.9 alone is wrong.
    assert expected_calibration_error([0.5, 0.9], [True, False], bins=2) == pytest.approx((0.5 + 0.9) / 2)


def test_the_logistic_fit_finds_the_law_that_made_the_data() -> None:
    rng = np.random.default_rng(0)
    features = np.column_stack([rng.normal(-1, 0.5, 20_000), rng.normal(30, 10, 20_000), np.full(20_000, 7.0)])
    truth = 1 / (1 + np.exp(-(3 + 2 * features[:, 0] - 0.05 * features[:, 1])))
    correct = rng.random(20_000) < truth
    fitted = fit_logistic(features, correct)
    # The constant feature says nothing and gets no weight.
    assert fitted.weights == pytest.approx((2, -0.05, 0), abs=0.1)
    assert np.abs(fitted.confidence(features) - truth).max() < 0.03
    assert expected_calibration_error(fitted.confidence(features), correct) < 0.01


def test_the_fit_stays_finite_where_a_feature_separates_right_from_wrong() -> None:
    fitted = fit_logistic([[-1.0], [-2.0], [-8.0], [-9.0]], [True, True, False, False])
    sure, unsure = fitted.confidence([[-1.0], [-9.0]])
    assert 0.5 < sure < 1
    assert 0 < unsure < 0.5


@pytest.mark.parametrize(
    ("confidence", "correct"), [([], []), ([0.1], [True, False]), ([float("nan")], [True]), ([[0.1]], [[True]])]
)
def test_unusable_input_is_refused(confidence: list[float], correct: list[bool]) -> None:
    with pytest.raises(ValueError):
        risk_coverage(confidence, correct)


def test_uncalibrated_scores_have_no_calibration_error() -> None:
    with pytest.raises(ValueError, match="calibrate"):
        expected_calibration_error([-3.2], [True])


results = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=30)


@given(results, st.randoms(use_true_random=False))
def test_the_order_of_results_does_not_matter(pairs: list[tuple[int, bool]], random: object) -> None:
    shuffled = list(pairs)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one = risk_coverage(*zip(*pairs, strict=True))
    other = risk_coverage(*zip(*shuffled, strict=True))
    assert one.aurc == pytest.approx(other.aurc)
    assert one.risk.tolist() == other.risk.tolist()
    assert one.optimal_aurc <= one.aurc + 1e-12
    assert one.risk[-1] == pytest.approx(sum(not right for _, right in pairs) / len(pairs))
