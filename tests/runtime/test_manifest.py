"""manifest.json: what is refused, what survives a round trip, and what names a bundle."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from hmerctl.runtime.manifest import DecodingDefaults, Manifest, ParityLevel, ParityReport, manifest_schema

DIGEST = "0" * 64


def minimal() -> dict[str, Any]:
    """The least that a manifest must say."""
    graph = {"format": "onnx", "inputs": [], "outputs": [{"name": "x", "dtype": "float32", "shape": ["beam", 113]}]}
    return {
        "schema_version": "1.0",
        "model": {"name": "edge", "parameters": 7, "licence": "CC-BY-NC-SA-3.0", "training_data": "CROHME train"},
        "target": {"name": "onnx", "precision": "fp32", "opset": 17},
        "preprocessing": {"symbol_extent": 20, "version": 1},
        "buckets": [[64, 128]],
        "vocabulary": {"file": "vocab.json", "sha256": DIGEST, "size": 113},
        "decoder": {
            "memory": ["keys_0"],
            "state": [{"name": "self_keys_0", "shape": ["beam", 6, "time", 32], "update": "append"}],
            "max_steps": 208,
            "stride": 8,
        },
        "components": [
            {"name": "encoder", "role": "encoder", "file": "encoder.onnx", **graph},
            {"name": "step", "role": "step", "file": "step.mlpackage", **graph},
        ],
        "files": [
            {"path": path, "bytes": 1, "sha256": DIGEST}
            for path in ("vocab.json", "encoder.onnx", "step.mlpackage/Manifest.json")
        ],
    }


def test_decoding_defaults_and_what_a_caller_changes() -> None:
    defaults = DecodingDefaults(beams=4, prune=0.1)
    assert defaults.but(beams=None, grammar=None) == defaults
    changed = defaults.but(beams=2, length_power=0.0, grammar=True)
    assert (changed.beams, changed.length_power, changed.prune, changed.grammar) == (2, 0.0, 0.1, True)
    assert defaults.reads_as(defaults.but(accept=0.5)) and not defaults.reads_as(changed)
    assert DecodingDefaults().described() == "greedy"
    assert changed.described() == "beam 2, length power 0, pruned at 0.1, grammar"
    with pytest.raises(ValueError, match="prune"):
        defaults.but(prune=2.0)


def test_round_trip() -> None:
    manifest = Manifest.model_validate(minimal())
    assert Manifest.model_validate_json(manifest.model_dump_json()) == manifest
    assert manifest.decoder.state[0].shape == ("beam", 6, "time", 32)
    assert manifest.preprocessing.margin == 6


def test_fields_of_a_newer_minor_version_are_ignored() -> None:
    assert Manifest.model_validate({**minimal(), "schema_version": "1.9", "novelty": 1}).schema_version == "1.9"


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "a\\..\\b", "C:/x", "", "a\0b", "."])
def test_paths_that_leave_the_bundle_are_refused(path: str) -> None:
    value = minimal()
    value["files"].append({"path": path, "bytes": 1, "sha256": DIGEST})
    with pytest.raises(ValidationError):
        Manifest.model_validate(value)


@pytest.mark.parametrize("missing", ["vocab.json", "encoder.onnx", "step.mlpackage/Manifest.json"])
def test_a_file_that_is_not_listed_is_refused(missing: str) -> None:
    value = minimal()
    value["files"] = [entry for entry in value["files"] if entry["path"] != missing]
    with pytest.raises(ValidationError, match=r"not among the files"):
        Manifest.model_validate(value)


def test_a_bundle_needs_an_encoder_and_a_step() -> None:
    value = minimal()
    value["components"].pop()
    with pytest.raises(ValidationError, match="role step"):
        Manifest.model_validate(value)


def test_the_id_follows_the_files_and_not_the_parity_report() -> None:
    manifest = Manifest.model_validate(minimal())
    levels = (ParityLevel(level="L2", status="passed", engine="onnxruntime", detail=""),)
    verified = manifest.model_copy(update={"parity": ParityReport(files_sha256=manifest.files_sha256, levels=levels)})
    assert verified.bundle_id == manifest.bundle_id
    assert manifest.bundle_id.startswith("edge-onnx-fp32@")
    value = minimal()
    value["files"][0]["sha256"] = "1" * 64
    assert Manifest.model_validate(value).bundle_id != manifest.bundle_id


@pytest.mark.parametrize(
    ("statuses", "fresh", "state"),
    [
        ("passed passed passed passed", True, "verified"),
        ("passed passed stand-in stand-in not-run", True, "verified"),
        ("passed passed failed passed", True, "failed"),
        ("passed not-run passed passed", True, "incomplete"),
        ("passed passed passed", True, "incomplete"),
        ("", True, "incomplete"),
        ("passed passed passed passed", False, "stale"),
    ],
)
def test_parity_state(statuses: str, fresh: bool, state: str) -> None:
    manifest = Manifest.model_validate(minimal())
    assert manifest.parity_state == "missing"
    levels = [
        ParityLevel.model_validate({"level": f"L{i}", "status": status, "engine": "onnxruntime", "detail": ""})
        for i, status in enumerate(statuses.split())
    ]
    digest = manifest.files_sha256 if fresh else DIGEST
    report = ParityReport(files_sha256=digest, levels=tuple(levels))
    assert manifest.model_copy(update={"parity": report}).parity_state == state


def test_the_schema_is_plain_json_and_names_the_required_fields() -> None:
    schema = json.loads(json.dumps(manifest_schema()))
    assert {"model", "target", "components", "files", "vocabulary"} <= set(schema["required"])
    assert "StateSpec" in schema["$defs"]


def test_a_padding_step_stays_within_the_largest_bucket() -> None:
    value = minimal()
    value["buckets"], value["padding_step"] = [[64, 128], [96, 128]], 32
    assert Manifest.model_validate(value).padding_step == 32
    value["padding_step"] = 64
    with pytest.raises(ValidationError, match="multiples of 64 pixels goes beyond the largest bucket"):
        Manifest.model_validate(value)
