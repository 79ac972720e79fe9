"""Target ``onnx`` in every precision: sizes, interface, and the parity ladder by the bounds of each."""

from dataclasses import replace
from pathlib import Path

import pytest

from hmerctl.export.parity.ladder import Evidence, climb
from hmerctl.export.parity.pictures import pictures_of_samples
from hmerctl.export.parity.report import failed
from hmerctl.export.source import Source
from hmerctl.runtime.bundle import Bundle, open_bundle
from hmerctl.runtime.ink import Ink
from hmerctl.runtime.raster import rasterise_ink
from hmerctl.targets.base import TargetError
from hmerctl.targets.build import export_bundle, make_plan
from hmerctl.targets.onnx import Onnx


@pytest.fixture(scope="module")
def bundles(
    source: Source, inks: list[Ink], bundle: Bundle, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Bundle]:
    calibrated = replace(source, rasters=[rasterise_ink(ink).pixels for ink in inks])
    made = {"fp32": bundle}
    for precision in ("fp16", "int8"):
        path = tmp_path_factory.mktemp(precision) / f"tiny-onnx-{precision}.hmer"
        export_bundle(calibrated, Onnx(), make_plan(calibrated, Onnx(), precision), path, inks)
        made[precision] = open_bundle(path)
    return made


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_the_ladder_holds_by_the_bounds_of_the_precision(
    bundles: dict[str, Bundle], source: Source, precision: str
) -> None:
    target, bundle = Onnx(), bundles[precision]
    few = bundle.manifest.model_copy(update={"buckets": bundle.manifest.buckets[:4]})
    bundle = replace(bundle, manifest=few)
    evidence = Evidence(source.model, pictures_of_samples(bundle), labelled=True)
    findings = target.check(bundle) + climb(bundle, target.load(bundle), evidence, target.tolerance(precision))
    # A random model has no margins between tokens: its sequences and samples may differ, a trained one's may not.
    assert [f for f in failed(findings) if f.level not in ("L3", "L4", "L5") and "top-1" not in f.check] == []
    assert {f.level for f in findings if f.status == "passed"} >= {"L0", "L1", "L2"}


def test_every_precision_has_one_interface_and_padding(bundles: dict[str, Bundle]) -> None:
    first = bundles["fp32"].manifest
    for bundle in bundles.values():
        manifest = bundle.manifest
        assert [(c.inputs, c.outputs) for c in manifest.components] == [
            (c.inputs, c.outputs) for c in first.components
        ]
        assert manifest.padding_step == first.padding_step == 8


def test_files_shrink_with_the_precision(bundles: dict[str, Bundle]) -> None:
    sizes = [bundles[p].file("step.onnx").stat().st_size for p in ("fp32", "fp16", "int8")]
    assert sizes == sorted(sizes, reverse=True)


def test_int8_without_ink_to_calibrate_on_is_refused(source: Source, tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="--calibration"):
        export_bundle(source, Onnx(), make_plan(source, Onnx(), "int8"), tmp_path / "x.hmer", [])
