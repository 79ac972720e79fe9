"""The choice of a few buckets."""

from hmerctl.runtime.buckets import Bucket, smallest_bucket
from hmerctl.targets.coreml.buckets import STATIC_BUCKETS, best_buckets

CHOICE = [Bucket(10, 10), Bucket(10, 20), Bucket(20, 20), Bucket(40, 40)]


def test_the_largest_is_always_one() -> None:
    assert best_buckets([(5, 5)] * 9, 1, CHOICE) == [Bucket(40, 40)]


def test_the_others_follow_the_rasters() -> None:
    assert best_buckets([(5, 15)] * 9 + [(5, 5)], 2, CHOICE) == [Bucket(10, 20), Bucket(40, 40)]
    assert best_buckets([(5, 5)] * 9 + [(5, 15)], 3, CHOICE) == [Bucket(10, 10), Bucket(10, 20), Bucket(40, 40)]


def test_greedy_choices_are_undone_where_a_swap_is_better() -> None:
    # Alone, 20x20 serves everyone best; with two, each half has its own and it is not needed.
    sizes = [(10, 20)] * 5 + [(20, 10)] * 5
    choice = [Bucket(10, 20), Bucket(20, 10), Bucket(20, 20), Bucket(40, 40)]
    assert best_buckets(sizes, 2, choice) == [Bucket(20, 20), Bucket(40, 40)]
    assert best_buckets(sizes, 3, choice) == [Bucket(10, 20), Bucket(20, 10), Bucket(40, 40)]


def test_static_buckets_hold_every_raster_and_are_in_order() -> None:
    assert smallest_bucket(256, 1280, STATIC_BUCKETS) == Bucket(256, 1280)
    areas = [bucket.height * bucket.width for bucket in STATIC_BUCKETS]
    assert areas == sorted(areas) and len(set(STATIC_BUCKETS)) == 8
