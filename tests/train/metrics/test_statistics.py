"""Intervals and paired tests against values worked out by hand."""

import numpy as np
import pytest

from hmerctl.train.metrics.statistics import bootstrap_interval, compare, holm


def test_the_interval_of_a_rate_is_near_the_normal_approximation() -> None:
    # 986 expressions, 493 right: standard error sqrt(0.25 / 986) = 0.01592; 0.5 -+ 1.96 * 0.01592 = 0.469, 0.531.
    interval = bootstrap_interval(np.arange(986) % 2 == 0)
    assert interval.low == pytest.approx(0.4688, abs=0.002)
    assert interval.high == pytest.approx(0.5312, abs=0.002)


def test_the_seed_decides() -> None:
    values = np.arange(100) % 3 == 0
    assert bootstrap_interval(values, seed=3) == bootstrap_interval(values, seed=3)


def test_nothing_varies_where_all_are_right() -> None:
    interval = bootstrap_interval([1, 1, 1])
    assert (interval.low, interval.high) == (1, 1)


def test_drawing_counts_is_drawing_values() -> None:
    # The plain bootstrap, value by value, on numbers that are not 0 or 1.
    values = np.array([0.0, 1, 1, 2, 5, 5, 9])
    draws = np.random.default_rng(1).choice(values, size=(20_000, len(values))).mean(axis=1)
    interval = bootstrap_interval(values, resamples=20_000)
    assert (interval.low, interval.high) == pytest.approx(tuple(np.percentile(draws, [2.5, 97.5])), abs=0.15)


def test_mcnemar_by_hand() -> None:
    # Both right on 4, the first alone on 1, the second alone on 6. Under p = 1/2 of 7 disagreements the chance of a
    # split of 1:6 or worse is (1 + 7) / 128, twice that for two sides: 0.125.
    first = [True] * 4 + [True] + [False] * 6
    second = [True] * 4 + [False] + [True] * 6
    test = compare(first, second)
    assert (test.only_first, test.only_second) == (1, 6)
    assert test.p_mcnemar == pytest.approx(0.125)
    assert (test.first, test.second, test.difference) == pytest.approx((5 / 11, 10 / 11, 5 / 11))
    assert test.interval.low < 5 / 11 < test.interval.high


def test_equal_outputs_do_not_differ() -> None:
    test = compare([True, False], [True, False])
    assert (test.difference, test.p_mcnemar, test.p_bootstrap) == (0, 1, 1)


def test_a_large_difference_is_found() -> None:
    rng = np.random.default_rng(0)
    first = rng.random(500) < 0.5
    test = compare(first, first | (rng.random(500) < 0.2))
    assert test.p_mcnemar < 1e-6
    assert test.p_bootstrap < 1e-3
    assert test.interval.low > 0


def test_outputs_of_different_sets_are_refused() -> None:
    with pytest.raises(ValueError, match="same expressions"):
        compare([True], [True, False])


def test_holm_by_hand() -> None:
    # In order 0.01, 0.02, 0.03, 0.4: times 4, 3, 2, 1, and never below the one before.
    assert holm([0.03, 0.01, 0.4, 0.02]) == pytest.approx([0.06, 0.04, 0.4, 0.06])
    assert holm([0.5, 0.7]) == [1.0, 1.0]
    assert holm([]) == []
