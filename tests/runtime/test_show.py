"""The picture of a result."""

from pathlib import Path

import numpy as np

from hmerctl.runtime.ink import Ink
from hmerctl.runtime.recognizer import Recognizer
from hmerctl.runtime.show import draw_result


def test_the_picture_shows_ink_boxes_and_attention(shared_tiny: Path) -> None:
    result = Recognizer(shared_tiny).recognize(Ink((np.array([[0.0, 0], [30, 30], [60, 0]]),)))
    picture = np.asarray(draw_result(result))
    red = (picture[:, :, 0] > picture[:, :, 1] + 60).sum()
    assert picture.shape[0] > 100 and red > 100
    assert (picture.max(2) < 60).sum() > 100


def test_an_empty_result_can_be_drawn(shared_tiny: Path) -> None:
    assert draw_result(Recognizer(shared_tiny).recognize(Ink(()))).width > 100
