"""Where the shipped bundle is found."""

from pathlib import Path

import pytest

from hmerctl.runtime import shipped
from hmerctl.runtime.errors import BundleError


def test_the_bundle_of_a_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "FOLDER", tmp_path)
    (tmp_path / "edge-onnx-fp32.hmer").mkdir()
    (tmp_path / "edge-web-int8.hmer").mkdir()
    assert shipped.shipped_bundle() == tmp_path / "edge-onnx-fp32.hmer"
    assert shipped.shipped_bundle("web") == tmp_path / "edge-web-int8.hmer"


def test_none_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "FOLDER", tmp_path / "nowhere")
    with pytest.raises(BundleError, match="no bundle for onnx is shipped"):
        shipped.shipped_bundle()
