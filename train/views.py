"""Stepwise training views: one picture, stretched in one direction at a time (Zhou 2023, section 1, figure 4)."""

import numpy as np

from hmerctl.train.config import ViewsConfig


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


def stretch_in_room(config: ViewsConfig, epoch: int, index: int, extent: np.ndarray, room: np.ndarray) -> np.ndarray:
    """``stepwise_stretch``, but no further than the largest training bucket has room.

    A picture that is too long to be stretched m times is stretched less in x, and keeps its height: shrunk to fit,
    its symbols would become small, which is another distortion than the paper's.

    Args:
        extent: width and height before, pixels, float64 (2,).
        room: width and height of the largest picture, pixels, float64 (2,).

    Returns:
        float64 (2, 2); the identity where there is no room at all.
    """
    stretch = stepwise_stretch(epoch, index, config.x_scale, config.y_scale).diagonal()
    return np.diag(np.minimum(stretch, np.maximum(room / np.maximum(extent, 1.0), 1.0)))
