"""``hmerctl export``, ``verify`` and ``doctor`` as a user runs them."""

import importlib.metadata
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hmerctl.cli import app
from hmerctl.export.source import Source, load_source
from hmerctl.runtime.bundle import Bundle, open_bundle, write_manifest
from hmerctl.runtime.manifest import Calibration, DecodingDefaults
from hmerctl.targets.opened import open_model
from hmerctl.targets.verify import REPORT_FILE
from hmerctl.train.checkpoint import save_checkpoint


def hmerctl(*arguments: object) -> tuple[int, str]:
    """Exit code, and what was printed on stdout and stderr."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


@pytest.fixture(scope="module")
def checkpoint(source: Source, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("checkpoint") / "tiny"
    save_checkpoint(path, source.model.state_dict(), source.info)
    return path


@pytest.fixture
def folder(bundle: Bundle, tmp_path: Path) -> Path:
    """A copy of the bundle with four buckets, to write into."""
    path = tmp_path / "tiny.hmer"
    shutil.copytree(bundle.path, path)
    write_manifest(path, bundle.manifest.model_copy(update={"buckets": bundle.manifest.buckets[:4]}))
    return path


def test_verify_proves_a_bundle_and_writes_the_report_into_it(folder: Path, checkpoint: Path) -> None:
    code, output = hmerctl("verify", folder, "--checkpoint", checkpoint)
    assert code == 0, output
    assert output.rstrip().endswith("verified")
    manifest = open_bundle(folder).manifest
    assert manifest.parity_state == "verified"
    assert manifest.parity is not None
    assert {level.level: level.status for level in manifest.parity.levels} == {
        **{"L0": "passed", "L1": "passed", "L2": "passed", "L3": "passed"},
        **{"L4": "not-run", "L5": "passed"},  # sample inks have no truth to count against
    }
    findings = json.loads((folder / REPORT_FILE).read_text())["findings"]
    assert {"level": "L3", "status": "passed", "value": 1.0}.items() <= next(
        f for f in findings if f["level"] == "L3"
    ).items()


def test_verify_fails_against_other_weights(folder: Path, source: Source, tmp_path: Path) -> None:
    weights = dict(source.model.state_dict())
    weights["decoder.output.bias"] = weights["decoder.output.bias"].roll(1)
    save_checkpoint(tmp_path / "other", weights, source.info)
    code, output = hmerctl("verify", folder, "--checkpoint", tmp_path / "other")
    assert code == 1
    assert output.rstrip().endswith("NOT VERIFIED")
    assert open_bundle(folder).manifest.parity_state == "failed"


def test_verify_without_a_checkpoint_is_no_proof(folder: Path) -> None:
    code, output = hmerctl("verify", folder, "--no-write")
    assert code == 1
    assert "L2 not-run: not run: comparison with PyTorch" in output
    assert open_bundle(folder).manifest.parity is None


def test_a_bundle_of_another_checkpoint_is_refused_in_one_line(folder: Path, checkpoint: Path) -> None:
    manifest = open_bundle(folder).manifest
    model = manifest.model.model_copy(update={"checkpoint_sha256": 64 * "0"})
    write_manifest(folder, manifest.model_copy(update={"model": model}))
    code, output = hmerctl("verify", folder, "--checkpoint", checkpoint)
    assert code == 1
    assert output.count("\n") == 1
    assert "was made from another checkpoint (sha256 000000000000, not" in output


def test_a_bundle_decodes_as_the_checkpoint_or_the_options_say(source: Source, tmp_path: Path) -> None:
    fitted = Calibration(bias=1.0, weights={"length": -0.1}, fitted_on="paper")
    info = replace(source.info, calibration=fitted, decoding=DecodingDefaults(beams=3, prune=0.2, accept=0.7))
    save_checkpoint(tmp_path / "tiny", source.model.state_dict(), info)
    code, output = hmerctl("export", tmp_path / "tiny", "--out", tmp_path / "same.hmer", "--beam", 3)
    assert code == 0 and "other decoding" not in output
    same = open_bundle(tmp_path / "same.hmer").manifest
    assert (same.decoding, same.calibration) == (info.decoding, fitted)
    options = ("--beam", 2, "--length-power", 0, "--prune", 0.1, "--grammar")
    code, output = hmerctl("export", tmp_path / "tiny", "--out", tmp_path / "other.hmer", *options)
    assert code == 0 and "its confidence was fitted on results of other decoding" in output
    other = open_bundle(tmp_path / "other.hmer").manifest
    assert other.calibration is None
    assert other.decoding == DecodingDefaults(beams=2, length_power=0.0, prune=0.1, grammar=True, accept=0.7)
    opened = open_model(tmp_path / "other.hmer")
    assert opened.decoding == other.decoding
    assert (opened.options().beams, opened.options(beams=1).beams) == (2, 1)
    assert open_model(tmp_path / "tiny").decoding == info.decoding


def test_a_dry_run_prints_the_plan_and_writes_nothing(checkpoint: Path, tmp_path: Path) -> None:
    code, output = hmerctl("export", checkpoint, "--out", tmp_path / "out", "--dry-run", "--json")
    assert code == 0
    planned = json.loads(output)
    assert planned["path"] == str(tmp_path / "out" / "tiny-onnx-fp32.hmer")
    assert [part["file"] for part in planned["plan"]["components"]] == ["encoder.onnx", "step.onnx"]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "abacus"], "unknown target 'abacus'"),
        (["--precision", "int3"], "target onnx has no precision 'int3'; choose fp32"),
    ],
)
def test_export_refuses_in_one_line(arguments: list[str], message: str, checkpoint: Path, tmp_path: Path) -> None:
    code, output = hmerctl("export", checkpoint, "--out", tmp_path, *arguments)
    assert code == 1
    assert output.count("\n") == 1
    assert message in output


def test_export_names_a_folder_that_is_no_checkpoint(tmp_path: Path) -> None:
    code, output = hmerctl("export", tmp_path)
    assert code == 1
    assert "no checkpoint here" in output


def test_doctor_says_what_each_target_needs_and_has() -> None:
    code, output = hmerctl("doctor", "onnx", "--json")
    assert code == 0
    [onnx] = json.loads(output)
    assert onnx["target"] == "onnx"
    assert all(need["found"] for need in onnx["requirements"])
    assert "onnxruntime" in hmerctl("doctor")[1]


def test_doctor_names_a_broken_package_in_one_line_and_shows_the_other_targets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entries = [
        importlib.metadata.EntryPoint("onnx", "hmerctl.targets.onnx:Onnx", "hmerctl.targets"),
        importlib.metadata.EntryPoint("a-broken", "no_such_module:X", "hmerctl.targets"),
    ]
    monkeypatch.setattr(
        importlib.metadata, "entry_points", lambda group, name=None: [e for e in entries if name in (None, e.name)]
    )
    code, output = hmerctl("doctor")
    assert code == 0 and "onnxscript" in output
    [line] = [line for line in output.splitlines() if line.startswith("hmerctl: ")]
    assert line.startswith("hmerctl: target a-broken (no_such_module:X) cannot be loaded")
    code, output = hmerctl("doctor", "--json")
    assert code == 0
    assert [(row["target"], "error" in row) for row in json.loads(output)] == [("onnx", False), ("a-broken", True)]
    code, output = hmerctl("doctor", "a-broken")
    assert code == 1 and output.startswith("hmerctl: target a-broken")


def test_a_loaded_checkpoint_knows_its_weights(checkpoint: Path) -> None:
    loaded = load_source(checkpoint)
    assert loaded.path == checkpoint
    assert len(loaded.sha256 or "") == 64
