"""Saved packages: what happens where they cannot be written."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hmerctl.targets.coreml.package import merge
from hmerctl.targets.coreml.tools import CoreMlError, coremltools


def test_a_full_disk_is_one_line_with_the_fix(
    save_program: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise shutil.Error([("here", "there", "[Errno 28] No space left on device: 'here' -> 'there'")])

    part = save_program(tmp_path / "part.mlpackage", {"x": np.ones((1, 2), np.float32)}, lambda x: {"y": x})
    monkeypatch.setattr(coremltools().utils, "save_multifunction", full)
    message = r"^whole.mlpackage: cannot be written \(\[Errno 28\] No space left on device\); make room"
    with pytest.raises(CoreMlError, match=message):
        merge({"main": part}, tmp_path / "whole.mlpackage", {})
