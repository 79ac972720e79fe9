"""What an export starts from: a trained recogniser with its description and some real ink."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hmerctl.runtime.bundle import Bundle, sha256_file
from hmerctl.runtime.shipped import FOLDER
from hmerctl.train.checkpoint import DESCRIPTION, WEIGHTS, CheckpointError, CheckpointInfo, load_checkpoint
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


def shipped_checkpoint() -> Path:
    """The checkpoint that comes with the package.

    Raises:
        CheckpointError: none is shipped.
    """
    found = sorted(path.parent for path in FOLDER.glob(f"*/{DESCRIPTION}"))
    if not found:
        raise CheckpointError("no checkpoint is shipped with this package; name one, or make one with hmerctl train")
    return found[0]


def checkpoint_of(bundle: Bundle) -> Path | None:
    """The shipped checkpoint, if a bundle was made from it."""
    try:
        path = shipped_checkpoint()
    except CheckpointError:
        return None
    return path if sha256_file(path / WEIGHTS) == bundle.manifest.model.checkpoint_sha256 else None
