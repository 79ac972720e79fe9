"""The bundle folder that an export writes."""

import hashlib
import json
from pathlib import Path

import pytest

from hmerctl.export.bundle import write_bundle
from hmerctl.export.reference import TorchEngine
from hmerctl.export.source import Source
from hmerctl.runtime.buckets import BUCKETS, TO_BUCKETS, Padding, bucket_for, pad
from hmerctl.runtime.bundle import Bundle, open_bundle
from hmerctl.runtime.decode import search
from hmerctl.runtime.errors import BundleError
from hmerctl.runtime.ink import Ink
from hmerctl.runtime.manifest import Component, TargetInfo
from hmerctl.runtime.raster import rasterise_ink
from hmerctl.runtime.strokes import read_strokes

TARGET = TargetInfo(name="none", precision="fp32")


def fake_build(folder: Path) -> tuple[Component, ...]:
    parts = []
    for role in ("encoder", "step"):
        (folder / f"{role}.bin").write_bytes(role.encode())
        parts.append(Component(name=role, role=role, format="bin", file=f"{role}.bin", inputs=(), outputs=()))
    return tuple(parts)


def test_it_holds_graphs_vocabulary_samples_licence_and_manifest(bundle: Bundle) -> None:
    files = {path.relative_to(bundle.path).as_posix() for path in bundle.path.rglob("*") if path.is_file()}
    assert files == {
        *("manifest.json", "encoder.onnx", "step.onnx", "vocab.json", "LICENSE"),
        *(f"samples/scribble-{i}.json" for i in (1, 2, 3)),
    }
    assert json.loads(bundle.file("vocab.json").read_text()) == list(bundle.vocabulary.tokens)
    assert bundle.manifest.model.name == "tiny"
    assert bundle.manifest.decoder.memory == ("keys_0", "values_0", "keys_1", "values_1", "memory_mask")
    assert [state.name for state in bundle.manifest.decoder.state][-1] == "spent_1"
    assert bundle.padding() == Padding(BUCKETS, step=8)


def test_samples_hold_what_pytorch_reads_and_their_raster_to_the_bit(bundle: Bundle, source: Source) -> None:
    for sample in bundle.manifest.samples:
        ink = read_strokes(bundle.file(sample.file))
        pixels = rasterise_ink(ink, bundle.manifest.preprocessing).pixels
        assert sample.raster_sha256 == hashlib.sha256(pixels.tobytes()).hexdigest()
        engine = TorchEngine(source.model)
        memory = engine.encode(*pad(pixels, bucket_for(pixels)))
        best = search(engine.start(memory, 1))[0]
        assert sample.tokens == tuple(bundle.vocabulary.decode(best.ids))


def test_an_old_bundle_is_replaced_and_a_failed_build_leaves_it_as_it_was(source: Source, tmp_path: Path) -> None:
    path = tmp_path / "a.hmer"
    write_bundle(path, source, TARGET, fake_build, TO_BUCKETS, [])
    (path / "old").touch()

    def broken(folder: Path) -> tuple[Component, ...]:
        raise BundleError("no")

    with pytest.raises(BundleError):
        write_bundle(path, source, TARGET, broken, TO_BUCKETS, [])
    assert (path / "old").exists()
    write_bundle(path, source, TARGET, fake_build, TO_BUCKETS, [])
    assert not (path / "old").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["a.hmer"]
    open_bundle(path)


def test_a_folder_that_is_no_bundle_is_not_overwritten(source: Source, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(BundleError, match="exists and is not a bundle"):
        write_bundle(tmp_path, source, TARGET, fake_build, TO_BUCKETS, [])
    assert (tmp_path / "thesis.tex").exists()


def test_sample_inks_do_not_carry_their_truth_into_the_bundle(
    source: Source, inks: list[Ink], tmp_path: Path
) -> None:
    """What a sample must give stands in the manifest, and is what the model reads."""
    ink = Ink(inks[0].strokes, truth="x", id="one")
    manifest = write_bundle(tmp_path / "a.hmer", source, TARGET, fake_build, TO_BUCKETS, [ink])
    assert read_strokes(tmp_path / "a.hmer" / manifest.samples[0].file).truth is None
