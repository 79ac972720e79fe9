"""The example of a target outside the tree, installed by pip as anybody's: found, built, proven, run."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hmerctl.cli import app
from hmerctl.export.parity.report import failed
from hmerctl.export.source import Source
from hmerctl.runtime.bundle import list_files, open_bundle, write_manifest
from hmerctl.targets.base import find, names
from hmerctl.train.checkpoint import save_checkpoint

EXAMPLE = Path(__file__).parents[2] / "examples" / "target-ort"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, installed into a folder of its own."""
    folder = tmp_path_factory.mktemp("example")
    shutil.copytree(EXAMPLE, folder / "source")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", folder / "site", folder / "source"], check=True)
    return folder / "site"


@pytest.fixture(scope="module")
def exported(site: Path, source: Source, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny checkpoint exported to the target by the command line, cut to ten buckets; its checkpoint beside it."""
    folder = tmp_path_factory.mktemp("exported")
    save_checkpoint(folder / "tiny", source.model.state_dict(), source.info)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(site)
        code, output = hmerctl("export", folder / "tiny", "--target", "ort", "--out", folder)
    assert code == 0, output
    path = folder / "tiny-ort-fp32.hmer"
    manifest = open_bundle(path).manifest
    write_manifest(
        path, manifest.model_copy(update={"buckets": manifest.buckets[:10], "samples": manifest.samples[:2]})
    )
    return path


@pytest.fixture(autouse=True)
def on_path(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(site)


def hmerctl(*arguments: object) -> tuple[int, str]:
    """Exit code, and what was printed on stdout and stderr."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_an_installed_package_adds_a_target() -> None:
    assert {"ort", "onnx", "coreml"} <= set(names())
    code, output = hmerctl("doctor", "ort", "--json")
    assert code == 0 and json.loads(output)[0]["precisions"] == ["fp32"]


def test_its_bundles_hold_what_a_mobile_build_needs(exported: Path) -> None:
    assert {path.name for path in exported.iterdir()} >= {"encoder.ort", "step.ort", "required_operators.config"}
    listed = (exported / "required_operators.config").read_text()
    assert listed.startswith("ai.onnx;") and "Conv" in listed and str(exported.parent) not in listed


def test_its_bundles_are_proven_and_read(exported: Path) -> None:
    code, output = hmerctl("verify", exported, "--checkpoint", exported.parent / "tiny", "--json")
    report = json.loads(output)
    assert code == 0 and report["verified"], [f for f in report["findings"] if f["status"] == "failed"]
    sample = open_bundle(exported).manifest.samples[0]
    code, output = hmerctl("recognize", exported / sample.file, "--bundle", exported)
    assert code == 0 and sample.latex in output


def test_a_file_of_another_format_or_another_model_fails_level_l0(exported: Path, tmp_path: Path) -> None:
    path = tmp_path / "broken.hmer"
    shutil.copytree(exported, path)
    shutil.copy(path / "step.ort", path / "encoder.ort")
    (path / "step.ort").write_bytes(b"onnx")
    (path / "required_operators.config").write_text("ai.onnx;17;Conv,Loop\n")
    write_manifest(path, open_bundle(exported).manifest.model_copy(update={"files": list_files(path)}))
    faults = {f.check: f.detail for f in failed(find("ort").check(open_bundle(path)))}
    assert faults["operators"] == "Loop"
    assert faults["step: onnxruntime's format"] == "step.ort is something else"
    assert "names are token" in faults["encoder: inputs as in the manifest"]


def test_a_broken_package_disturbs_no_other_target(
    site: Path, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Installed, but what it imports is gone: one line in doctor; the others work; its own commands name it."""
    broken = tmp_path / "site"
    shutil.copytree(site, broken)
    (broken / "hmerctl_ort.py").write_text("import a_package_that_is_gone\n")
    monkeypatch.syspath_prepend(broken)
    monkeypatch.delitem(sys.modules, "hmerctl_ort", raising=False)
    code, output = hmerctl("doctor")
    lines = [line for line in output.splitlines() if line.startswith("hmerctl: ")]
    assert code == 0 and len(lines) == 1 and "target ort (hmerctl_ort:Ort) cannot be loaded" in lines[0]
    assert all(f"{name}: " in output for name in ("onnx", "coreml", "jetson-trt"))
    code, output = hmerctl("verify", exported, "--checkpoint", exported.parent / "tiny")
    assert code == 1 and output.startswith("hmerctl: target ort (hmerctl_ort:Ort) cannot be loaded")
    assert len(output.splitlines()) == 1
