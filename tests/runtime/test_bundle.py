"""A damaged, unsafe or foreign bundle is refused in one line that names the file and the fix."""

import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hmerctl.runtime import bundle as bundle_module
from hmerctl.runtime.buckets import TO_BUCKETS, Padding
from hmerctl.runtime.bundle import list_files, open_bundle, read_manifest, write_manifest
from hmerctl.runtime.errors import BundleError


def edit(folder: Path, change: Callable[[Any], object]) -> None:
    """Change the manifest as a text editor would."""
    file = folder / "manifest.json"
    value = json.loads(file.read_text())
    change(value)
    file.write_text(json.dumps(value))


def refused(folder: Path, *words: str) -> None:
    with pytest.raises(BundleError) as caught:
        open_bundle(folder)
    message = str(caught.value)
    assert "\n" not in message
    for word in (str(folder), *words):
        assert word in message


def test_a_good_bundle(shared_tiny: Path) -> None:
    bundle = open_bundle(shared_tiny)
    assert bundle.manifest.bundle_id.startswith("tiny-onnx-fp32@")
    assert bundle.vocabulary.tokens[0] == "x"
    assert [c.file for c in bundle.components("step")] == ["step.onnx"]
    assert bundle.total_bytes() == sum(entry.bytes for entry in list_files(shared_tiny))
    assert bundle.buckets()[0].height == 64


def test_a_bundle_without_a_padding_step_pads_to_buckets(tiny: Path) -> None:
    assert open_bundle(tiny).padding() == TO_BUCKETS
    edit(tiny, lambda manifest: manifest.update(schema_version="1.0"))
    assert open_bundle(tiny).padding() == TO_BUCKETS
    edit(tiny, lambda manifest: manifest.update(schema_version="1.1", padding_step=16))
    assert open_bundle(tiny).padding() == Padding(step=16)


def test_the_manifest_survives_being_written_again(tiny: Path) -> None:
    before = read_manifest(tiny, "tiny")
    write_manifest(tiny, before)
    assert read_manifest(tiny, "tiny") == before
    assert [p.name for p in tiny.iterdir() if p.name.startswith(".")] == []


def test_no_such_folder(tmp_path: Path) -> None:
    refused(tmp_path / "none.hmer", "no such bundle folder", "hmerctl export")


def test_a_file_is_no_bundle(tmp_path: Path) -> None:
    (tmp_path / "x.onnx").write_bytes(b"x")
    refused(tmp_path / "x.onnx", "no such bundle folder")


@pytest.mark.parametrize("file", ["encoder.onnx", "step.onnx", "vocab.json", "samples/x.json", "LICENSE"])
def test_missing(tiny: Path, file: str) -> None:
    (tiny / file).unlink()
    refused(tiny, file, "missing", "export it anew")


def test_renamed(tiny: Path) -> None:
    (tiny / "step.onnx").rename(tiny / "decoder.onnx")
    refused(tiny, "step.onnx is missing")


def test_swapped(tiny: Path) -> None:
    (tiny / "step.onnx").rename(tiny / "swap")
    (tiny / "encoder.onnx").rename(tiny / "step.onnx")
    (tiny / "swap").rename(tiny / "encoder.onnx")
    refused(tiny, "encoder.onnx has")


def test_truncated(tiny: Path) -> None:
    data = (tiny / "step.onnx").read_bytes()
    (tiny / "step.onnx").write_bytes(data[:-1])
    refused(tiny, "step.onnx", f"{len(data) - 1} bytes", str(len(data)))


def test_one_bit_flipped(tiny: Path) -> None:
    data = bytearray((tiny / "step.onnx").read_bytes())
    data[len(data) // 2] ^= 1
    (tiny / "step.onnx").write_bytes(data)
    refused(tiny, "step.onnx", "sha256")


def test_no_manifest(tiny: Path) -> None:
    (tiny / "manifest.json").unlink()
    refused(tiny, "manifest.json is missing")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"schema_version": "one"}', "[" * 100_000, "\xff"])
def test_a_manifest_that_is_none(tiny: Path, text: str) -> None:
    (tiny / "manifest.json").write_bytes(text.encode("latin-1"))
    refused(tiny, "manifest.json is not a manifest")


def test_a_huge_manifest(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_module, "MAX_MANIFEST_BYTES", 100)
    refused(tiny, "manifest.json is larger than 100 bytes")


@pytest.mark.parametrize(("version", "advice"), [("2.0", "upgrade hmerctl"), ("0.9", "export the bundle anew")])
def test_another_major_version(tiny: Path, version: str, advice: str) -> None:
    edit(tiny, lambda manifest: manifest.update(schema_version=version))
    refused(tiny, f"schema version {version}", advice)


def test_a_newer_minor_version_is_read(tiny: Path) -> None:
    edit(tiny, lambda manifest: manifest.update(schema_version="1.99", novelty=[1]))
    assert open_bundle(tiny).manifest.schema_version == "1.99"


@pytest.mark.parametrize(("version", "advice"), [(99, "upgrade hmerctl"), (0, "export anew")])
def test_another_raster_contract(tiny: Path, version: int, advice: str) -> None:
    edit(tiny, lambda manifest: manifest["preprocessing"].update(version=version))
    refused(tiny, f"raster contract {version}", advice)


@pytest.mark.parametrize("path", ["../encoder.onnx", "/etc/passwd", "samples/../../x", "..\\x", "C:\\x"])
def test_path_traversal(tiny: Path, path: str) -> None:
    edit(tiny, lambda manifest: manifest["files"].append({"path": path, "bytes": 1, "sha256": "0" * 64}))
    refused(tiny, "manifest.json", "leaves the bundle")


def test_a_component_that_leaves_the_bundle(tiny: Path) -> None:
    edit(tiny, lambda manifest: manifest["components"][0].update(file="../encoder.onnx"))
    refused(tiny, "components.0.file", "leaves the bundle")


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="this system has no symbolic links")
def test_a_link_out_of_the_bundle(tiny: Path, tmp_path: Path) -> None:
    (tiny / "step.onnx").rename(tmp_path / "step.onnx")
    (tiny / "step.onnx").symlink_to(tmp_path / "step.onnx")
    refused(tiny, "step.onnx is a link out of the bundle", "cp -rL")


def test_size_bombs_are_refused_before_anything_is_read(tiny: Path) -> None:
    edit(tiny, lambda manifest: manifest["files"][0].update(bytes=1 << 60))
    refused(tiny, "not a usable bundle")


def test_another_vocabulary(tiny: Path) -> None:
    tokens = json.loads((tiny / "vocab.json").read_text())
    (tiny / "vocab.json").write_text(json.dumps(tokens[::-1]))
    edit(tiny, lambda manifest: manifest.update(files=[entry.model_dump() for entry in list_files(tiny)]))
    refused(tiny, "vocab.json is not the vocabulary that the manifest names")


@pytest.mark.parametrize("text", ["{}", "[1]", '["a","a"]', "[", '[""]'])
def test_a_vocabulary_that_is_none(tiny: Path, text: str) -> None:
    (tiny / "vocab.json").write_text(text)
    edit(tiny, lambda manifest: manifest.update(files=[entry.model_dump() for entry in list_files(tiny)]))
    refused(tiny, "vocab.json is not a vocabulary")


@pytest.mark.parametrize("top", ["", "tiny-onnx-fp32.hmer"])
def test_a_zipped_bundle(shared_tiny: Path, tmp_path: Path, top: str) -> None:
    base = {"root_dir": shared_tiny.parent, "base_dir": top} if top else {"root_dir": shared_tiny}
    archive = Path(shutil.make_archive(str(tmp_path / "tiny.hmer"), "zip", **base))
    assert open_bundle(archive).manifest == open_bundle(shared_tiny).manifest


def test_a_zip_that_climbs_out(tmp_path: Path) -> None:
    archive = tmp_path / "bad.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("../evil", "x")
    refused(archive, "leaves the bundle")
    assert not (tmp_path / "evil").exists()


def test_a_zip_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_module, "MAX_BUNDLE_BYTES", 1000)
    archive = tmp_path / "bomb.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("x", b"0" * 2000)
    refused(archive, "unpacks to more than 1000 bytes")


def test_a_zip_with_a_link(tmp_path: Path) -> None:
    archive = tmp_path / "link.zip"
    with zipfile.ZipFile(archive, "w") as file:
        info = zipfile.ZipInfo("step.onnx")
        info.external_attr = 0o120777 << 16
        file.writestr(info, "/etc/passwd")
    refused(archive, "step.onnx is a link")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda m: m.update(buckets=[[0, 0]]), "bucket 0 x 0"),
        (lambda m: m.update(buckets=[[-64, 128]]), "bucket -64 x 128"),
        (lambda m: m.update(buckets=[[10**9, 10**9]]), "bucket 1000000000"),
        (lambda m: m.update(buckets=[[65, 129]]), "bucket 65 x 129"),
        (lambda m: m.update(padding_step=12), "multiples of 12 pixels"),
        (lambda m: m.update(padding_step=0), "padding_step"),
        (lambda m: m["decoder"].update(eos=9999), "pad, sos and eos"),
        (lambda m: m["preprocessing"].update(margin=-5), "margin = -5"),
        (lambda m: m["preprocessing"].update(margin=10**5), "margin = 100000"),
        (lambda m: m["preprocessing"].update(symbol_extent=0), "symbol_extent = 0"),
        (lambda m: m["preprocessing"].update(max_width=10**9), "max_width"),
        (lambda m: m.update(calibration={"bias": 0, "weights": {"luck": 1}, "fitted_on": "x"}), "calibration"),
        (lambda m: m.update(calibration={"bias": float("nan"), "weights": {}, "fitted_on": "x"}), "calibration"),
    ],
)
def test_numbers_that_no_host_can_run(tiny: Path, change: Callable[[Any], object], word: str) -> None:
    edit(tiny, change)
    refused(tiny, word)


def test_a_damaged_zip(shared_tiny: Path, tmp_path: Path) -> None:
    archive = Path(shutil.make_archive(str(tmp_path / "tiny"), "zip", shared_tiny))
    whole = archive.read_bytes()
    archive.write_bytes(whole[:-30])
    refused(archive, "no sound zip", "copy the bundle again")
    with zipfile.ZipFile(tmp_path / "flate.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("manifest.json", "x" * 1000)
    damaged = bytearray((tmp_path / "flate.zip").read_bytes())
    damaged[30 + len("manifest.json")] = 0xFF  # a block type that deflate does not have
    archive.write_bytes(damaged)
    refused(archive, "cannot be unpacked", "copy the bundle again")


@pytest.mark.parametrize(
    ("lowest", "here", "enough"),
    [
        ("1.18", "1.18.0", True),
        ("1.18", "1.9.2", False),
        ("1.18", "1.18", True),
        ("10.3", "10.3.0.30", True),
        ("10.3", "10.2.9+cu12", False),
        ("1.20", "1.20.0rc1", True),
    ],
)
def test_versions_of_runtimes_compare_as_numbers(shared_tiny: Path, lowest: str, here: str, enough: bool) -> None:
    bundle = open_bundle(shared_tiny)
    bundle.manifest.target.minimum_runtime["engine"] = lowest
    try:
        if enough:
            bundle.require_runtime("engine", here)
        else:
            with pytest.raises(BundleError, match=rf"needs engine {lowest} or later, here is"):
                bundle.require_runtime("engine", here)
        bundle.require_runtime("another", "0")
    finally:
        del bundle.manifest.target.minimum_runtime["engine"]


def test_a_lowest_version_that_is_none_is_refused(tiny: Path) -> None:
    edit(tiny, lambda value: value["target"].update(minimum_runtime={"onnxruntime": "new"}))
    refused(tiny, "minimum_runtime", "export it anew")
