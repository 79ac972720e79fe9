"""``hmerctl build-engine`` on fakes of TensorRT and CUDA: builds, keeps, proves, and says no where it must."""

import errno
import json
import shutil
from pathlib import Path

import pytest
from fake_tensorrt import FakeCuda, FakeTensorRT, with_profiles
from typer.testing import CliRunner

from hmerctl.cli import app
from hmerctl.runtime import files
from hmerctl.runtime.bundle import Bundle
from hmerctl.runtime.engines import cuda, tensorrt, tensorrt_build


@pytest.fixture(scope="module")
def jetson_bundle(shared_tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The tiny bundle with profiles for TensorRT."""
    return with_profiles(shared_tiny, tmp_path_factory.mktemp("jetson") / "tiny-jetson-trt-fp32.hmer")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeTensorRT:
    """This machine as a Jetson."""
    api = FakeCuda()
    trt = FakeTensorRT(api)
    monkeypatch.setattr(cuda, "load_runtime_api", lambda: api)
    for module in (tensorrt, tensorrt_build):
        monkeypatch.setattr(module, "load_tensorrt", lambda: trt)
    monkeypatch.setenv("HMERCTL_CACHE", str(tmp_path / "cache"))
    return trt


def test_it_builds_once_and_proves_every_time(device: FakeTensorRT, jetson_bundle: Bundle) -> None:
    first = CliRunner().invoke(app, ["build-engine", str(jetson_bundle.path)])
    assert first.exit_code == 0, first.output
    for line in ("L2 passed", "L3 passed: 1 of 1", "L5 passed: 1 of 1"):
        assert line in first.output
    assert device.builds == 2
    again = CliRunner().invoke(app, ["build-engine", str(jetson_bundle.path), "--json"])
    assert again.exit_code == 0 and device.builds == 2
    value = json.loads(again.stdout)
    assert [engine["role"] for engine in value["engines"]] == ["encoder", "step"]
    assert {level["status"] for level in value["levels"]} == {"passed"}
    assert value["levels"][0]["figures"]["top1"] == 1.0


def test_an_engine_that_computes_otherwise_fails_the_proof(
    device: FakeTensorRT, jetson_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Coverage that is not carried on: every number is plausible, the proof sees it."""
    monkeypatch.setattr(cuda.Cuda, "on_device", lambda *_: None)
    result = CliRunner().invoke(app, ["build-engine", str(jetson_bundle.path)])
    assert result.exit_code == 1 and "L2 failed" in result.output


def test_unknown_profiles_are_refused(device: FakeTensorRT, jetson_bundle: Bundle) -> None:
    result = CliRunner().invoke(app, ["build-engine", str(jetson_bundle.path), "--profiles", "all"])
    assert result.exit_code == 2 and "ranged" in result.output


def test_without_tensorrt_it_says_where_to_get_it(jetson_bundle: Bundle, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["build-engine", str(jetson_bundle.path), "--cache", str(tmp_path)])
    assert result.exit_code == 1 and "JetPack brings it" in result.output


def test_a_bundle_for_another_target_is_refused(device: FakeTensorRT, shared_tiny: Path, tmp_path: Path) -> None:
    other = shutil.copytree(shared_tiny, tmp_path / "other.hmer")
    result = CliRunner().invoke(app, ["build-engine", str(other)])
    assert result.exit_code == 1 and "export it for jetson-trt" in result.output


def test_a_cache_that_cannot_be_written_is_known_before_the_build(
    device: FakeTensorRT, jetson_bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(files, "write_bytes", full)
    result = CliRunner().invoke(app, ["build-engine", str(jetson_bundle.path), "--cache", str(tmp_path / "engines")])
    assert result.exit_code == 1 and device.builds == 0
    assert result.stderr.splitlines()[-1].endswith(".plan: No space left on device; make room or name another folder")
