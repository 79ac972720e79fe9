"""Stepwise views: x stretched by m, y stretched by n, never both at once."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hmerctl.train.config import ViewsConfig
from hmerctl.train.views import stepwise_stretch, stretch_in_room


@given(epoch=st.integers(0, 10_000), index=st.integers(0, 10_000))
def test_a_picture_is_plain_wide_and_tall_in_turn(epoch: int, index: int) -> None:
    seen = {tuple(stepwise_stretch(epoch + i, index, 3.0, 2.0).diagonal().tolist()) for i in range(3)}
    assert seen == {(1.0, 1.0), (3.0, 1.0), (1.0, 2.0)}


def test_every_epoch_has_a_third_of_each() -> None:
    kinds = [tuple(stepwise_stretch(4, i, 3.0, 2.0).diagonal().tolist()) for i in range(30)]
    assert all(kinds.count(kind) == 10 for kind in set(kinds)) and len(set(kinds)) == 3


def test_points_keep_the_axis_that_is_not_stretched() -> None:
    points = np.array([[1.0, 2.0], [3.0, 5.0]])
    assert (points @ stepwise_stretch(0, 1, 3.0, 2.0).T).tolist() == [[3, 2], [9, 5]]
    assert (points @ stepwise_stretch(0, 2, 3.0, 2.0).T).tolist() == [[1, 4], [3, 10]]


def test_a_picture_is_stretched_as_far_as_there_is_room() -> None:
    views, room = ViewsConfig(3.0, 2.0), np.array([1000.0, 200.0])

    def scales(turn: int, *extent: float) -> list[float]:
        return stretch_in_room(views, 0, turn, np.array(extent), room).diagonal().tolist()

    assert scales(1, 300, 100) == [3, 1]
    assert scales(1, 500, 100) == [2, 1]
    assert scales(2, 500, 160) == [1, 1.25]
    assert scales(1, 1200, 300) == scales(0, 10, 10) == [1, 1]
