"""Checkpoints: a folder with the weights (safetensors) and one JSON file that says what they are."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from hmerctl.runtime.errors import HmerError
from hmerctl.runtime.files import replaced_folder, write_text
from hmerctl.runtime.manifest import Calibration, DecodingDefaults
from hmerctl.runtime.raster import RasterSpec
from hmerctl.runtime.vocabulary import Vocabulary
from hmerctl.train.config import Preset, preset_from_dict, to_json
from hmerctl.train.models.recognizer import Recognizer

FORMAT_VERSION = 1
WEIGHTS, DESCRIPTION = "model.safetensors", "checkpoint.json"


CROHME_LICENCE = "CC-BY-NC-SA-3.0"
"""Of CROHME's inks and of weights trained on them."""


class CheckpointError(HmerError):
    """A checkpoint folder is missing, incomplete or of another format."""


@dataclass(frozen=True)
class CheckpointInfo:
    """What the weights are.

    Attributes:
        preset: model, training and raster settings they were made with.
        vocabulary: what the ids mean.
        training: what was done: data, steps, samples, core-hours, figures.
        licence: of the weights, an SPDX expression.
        calibration: how confidence follows from a result, or None; goes into every bundle.
        decoding: beam width and the thresholds of accept and reject; goes into every bundle.
    """

    preset: Preset
    vocabulary: Vocabulary
    training: dict[str, Any] = field(default_factory=dict)
    licence: str = CROHME_LICENCE
    calibration: Calibration | None = None
    decoding: DecodingDefaults = field(default_factory=DecodingDefaults)

    @property
    def name(self) -> str:
        """The model's name in bundles and reports."""
        return self.preset.name

    def decoded(self, **changes: object) -> "CheckpointInfo":
        """The description with other decoding defaults (changes that are not None). A calibration that was fitted on
        results of other decoding is dropped."""
        decoding = self.decoding.but(**changes)
        return replace(
            self, decoding=decoding, calibration=self.calibration if decoding.reads_as(self.decoding) else None
        )

    @property
    def raster(self) -> RasterSpec:
        """The raster contract the model was trained on."""
        return self.preset.raster


def joint_licence(licences: Iterable[str | None]) -> str:
    """The licence of weights that follow from data and weights under these licences, an SPDX expression.

    Where one is not known, it is taken for CROHME's: better a freedom too few than one that nobody gave.
    """
    parts = dict.fromkeys(licence or CROHME_LICENCE for licence in licences)
    return " AND ".join(parts) or CROHME_LICENCE


def save_checkpoint(path: Path, weights: dict[str, Tensor], info: CheckpointInfo, half: bool = False) -> None:
    """Write a checkpoint folder; an existing one is replaced as a whole.

    Args:
        path: the folder.
        weights: a recogniser's state.
        info: what they are.
        half: store matrices and kernels in float16, half the size; vectors (norms, biases) stay float32. A model
            loaded from it computes in float32 with the rounded weights.
    """
    with replaced_folder(path) as folder:
        stored = {k: v.detach().cpu().contiguous() for k, v in weights.items()}
        if half:
            stored = {k: v.half() if v.is_floating_point() and v.ndim > 1 else v for k, v in stored.items()}
        save_file(stored, folder / WEIGHTS)
        (folder / WEIGHTS).chmod(0o644)  # written as private by the library
        (folder / DESCRIPTION).write_text(_describe(info))


def save_info(path: Path, info: CheckpointInfo) -> None:
    """Replace only the description of a checkpoint folder."""
    write_text(Path(path) / DESCRIPTION, _describe(info))


def _describe(info: CheckpointInfo) -> str:
    description = {
        "format_version": FORMAT_VERSION,
        "preset": info.preset.to_dict(),
        "vocabulary": list(info.vocabulary.tokens),
        "training": info.training,
        "licence": info.licence,
        "calibration": info.calibration.model_dump() if info.calibration else None,
        "decoding": info.decoding.model_dump(),
    }
    return to_json(description) + "\n"


def load_checkpoint(path: Path) -> tuple[Recognizer, CheckpointInfo]:
    """Read a checkpoint folder.

    Returns:
        the recogniser in evaluation mode, on the CPU, and what it is.

    Raises:
        CheckpointError: naming the file and what to do.
    """
    path = Path(path)
    info = read_info(path)
    model = Recognizer(info.preset.model, info.vocabulary)
    try:
        model.load_state_dict(load_file(path / WEIGHTS))
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path / WEIGHTS}: cannot be read ({error}); copy the checkpoint again") from error
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise CheckpointError(f"{path / WEIGHTS}: does not fit {DESCRIPTION}: {reason}") from error
    return model.eval(), info


def read_info(path: Path) -> CheckpointInfo:
    """Read only the description of a checkpoint folder."""
    file = Path(path) / DESCRIPTION
    try:
        table = json.loads(file.read_text())
    except OSError as error:
        raise CheckpointError(f"{path}: no checkpoint here ({DESCRIPTION} is missing); give its folder") from error
    except ValueError as error:
        raise CheckpointError(f"{file}: not valid JSON ({error}); copy the checkpoint again") from error
    version = table.get("format_version") if isinstance(table, dict) else None
    if version != FORMAT_VERSION:
        raise CheckpointError(f"{file}: format {version} is not {FORMAT_VERSION}; use the hmerctl that wrote it")
    for key in ("preset", "vocabulary"):
        if key not in table:
            raise CheckpointError(f"{file}: {key!r} is missing; copy the checkpoint again")
    try:
        return CheckpointInfo(
            preset_from_dict(table["preset"], str(file)),
            Vocabulary(tuple(table["vocabulary"])),
            table.get("training", {}),
            table.get("licence", ""),
            Calibration.model_validate(table["calibration"]) if table.get("calibration") else None,
            DecodingDefaults.model_validate(table.get("decoding", {})),
        )
    except (TypeError, ValueError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(
            f"{file}: a value is of the wrong kind ({reason}); copy the checkpoint again"
        ) from error
