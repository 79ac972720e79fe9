"""Stepwise training views: one picture, stretched in one direction at a time (Zhou 2023, section 1, figure 4)."""

import numpy as np


def stepwise_stretch(epoch: int, index: int, x_scale: float, y_scale: float) -> np.ndarray:
    """How a picture is stretched at one moment of training.

    The paper lets one picture give two stretched pictures "at different moments": x by m, which parts symbols
    that stand close, and y by n, which brings out what is above and below. The plain picture, which is what
    inference sees, takes turns with them **(reading)**. The turn depends on the epoch and the picture alone, so each
    epoch has a third of each kind, each picture has all three in three epochs, and a resumed run repeats nothing.

    Args:
        epoch: from 0.
        index: of the picture in the training set.
        x_scale, y_scale: m and n, at least 1.

    Returns:
        float64 (2, 2), to be applied to points (x, y) as column vectors before the picture is drawn.
    """
    turn = (epoch + index) % 3
    return np.diag([x_scale if turn == 1 else 1.0, y_scale if turn == 2 else 1.0])
