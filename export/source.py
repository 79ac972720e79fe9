"""What an export starts from: a trained recogniser with its description and some real ink."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hmerctl.runtime.bundle import sha256_file
from hmerctl.train.checkpoint import WEIGHTS, CheckpointInfo, load_checkpoint
from hmerctl.train.models.recognizer import Recognizer


@dataclass(frozen=True)
class Source:
    """A checkpoint, loaded.

    Attributes:
        model: in evaluation mode, on the CPU.
        info: its name, training and licence.
        sha256: of the weights file; None for weights that were never saved.
        path: the checkpoint's folder, or None.
        rasters: real ink for calibration, uint8 (height, width) each, ink 255 on 0; may be empty where the
            precision needs none.
    """

    model: Recognizer
    info: CheckpointInfo
    sha256: str | None = None
    path: Path | None = None
    rasters: Sequence[np.ndarray] = field(default=(), repr=False)


def load_source(checkpoint: Path, rasters: Sequence[np.ndarray] = ()) -> Source:
    """Load a checkpoint folder.

    Raises:
        CheckpointError: naming the file and the fix.
    """
    model, info = load_checkpoint(checkpoint)
    return Source(model, info, sha256_file(checkpoint / WEIGHTS), checkpoint, rasters)
