"""The target jetson-trt: graphs in each precision, proven by the evaluator and TensorRT-RTX; the bundle's files."""

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from fake_tensorrt import FakeCuda, FakeTensorRT
from onnx import TensorProto, helper, numpy_helper
from tiny import tiny_ink

from hmerctl.export.half_engine import EvaluatorEngine
from hmerctl.export.parity.ladder import Evidence, climb
from hmerctl.export.parity.pictures import pictures_of_samples
from hmerctl.export.parity.report import failed
from hmerctl.export.precision import precision_of
from hmerctl.export.source import Source
from hmerctl.runtime.bundle import Bundle, list_files, open_bundle, write_manifest
from hmerctl.runtime.engines.cuda import Cuda
from hmerctl.runtime.engines.onnx import OnnxEngine
from hmerctl.runtime.engines.tensorrt import TensorRTEngine
from hmerctl.runtime.engines.tensorrt_build import build_engines, read_profiles
from hmerctl.runtime.ink import Ink
from hmerctl.runtime.prove import prove
from hmerctl.runtime.raster import rasterise_ink
from hmerctl.targets.base import TargetError, find
from hmerctl.targets.build import export_bundle, make_plan
from hmerctl.targets.jetson import rtx, target
from hmerctl.targets.jetson.jetpacks import JETPACKS, check_for_jetpacks, operator_faults

PRECISIONS = ("fp32", "fp16", "int8")
needs_rtx = pytest.mark.skipif(rtx.load_rtx() is None, reason=f"TensorRT-RTX is not installed: {rtx.HOW}")


@pytest.fixture(scope="module")
def bundles(
    source: Source, inks: list[Ink], bundle: Bundle, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Bundle]:
    """The tiny model in every precision. Tracing takes the time, so the graphs of the target onnx are used again."""
    jetson = find("jetson-trt")
    folder = tmp_path_factory.mktemp("jetson")
    traced = replace(source, rasters=[rasterise_ink(tiny_ink(seed)).pixels for seed in range(10, 14)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target, "to_onnx", lambda graph, *_: onnx.load(bundle.file(f"{graph.role}.onnx")))
        for precision in PRECISIONS:
            plan = make_plan(traced, jetson, precision)
            export_bundle(traced, jetson, plan, folder / f"{precision}.hmer", inks)
    return {precision: open_bundle(folder / f"{precision}.hmer") for precision in PRECISIONS}


def graph(bundle: Bundle, role: str) -> onnx.ModelProto:
    return onnx.load(bundle.file(f"{role}.onnx"))


def test_fp16_is_the_default() -> None:
    assert find("jetson-trt").precisions[0] == "fp16"


def test_the_interface_says_its_types_in_the_manifest(bundles: dict[str, Bundle]) -> None:
    for precision, kind in (("fp32", "float32"), ("fp16", "float16"), ("int8", "float16")):
        types = {t.name: t.dtype for c in bundles[precision].manifest.components for t in (*c.inputs, *c.outputs)}
        for name in ("keys_0", "values_1", "self_keys_0", "next_self_values_1"):
            assert types[name] == kind, (precision, name)
        for name in ("raster", "memory_mask", "spent_1", "next_spent_1", "log_probs", "attention"):
            assert types[name] == "float32", (precision, name)
        assert types["token"] == types["position"] == types["size"] == "int32"


def test_weights_are_in_the_precision_of_the_name(bundles: dict[str, Bundle]) -> None:
    half = Counter(precision_of(graph(bundles["fp16"], "encoder")).values())
    assert half == {"float16": half.total()}
    step = precision_of(graph(bundles["fp16"], "step"))
    assert Counter(step.values())["float32"] == 1  # the projection to log-probabilities
    quantised = graph(bundles["int8"], "encoder")
    assert Counter(n.op_type for n in quantised.graph.node)["QuantizeLinear"] >= 9
    assert not [n for n in graph(bundles["int8"], "step").graph.node if n.op_type == "QuantizeLinear"]


def test_a_graph_in_another_precision_than_the_name_fails_level_0(bundles: dict[str, Bundle]) -> None:
    for precision, role in (("fp32", "encoder"), ("fp16", "step"), ("int8", "encoder")):
        model = graph(bundles[precision], role)
        assert target.check_products(role, model, precision).status == "passed"
    wrong = target.check_products("step", graph(bundles["fp32"], "step"), "fp16")
    assert wrong.status == "failed" and " is float32" in wrong.detail
    wrong = target.check_products("encoder", graph(bundles["int8"], "encoder"), "fp32")
    assert wrong.status == "failed" and " is int8" in wrong.detail


@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_check_of_level_0_passes(bundles: dict[str, Bundle], precision: str) -> None:
    findings = find("jetson-trt").check(bundles[precision])
    assert [f for f in findings if f.status == "failed"] == []
    built = [f for f in findings if "TensorRT-RTX" in f.check]
    assert len(built) == 2
    if rtx.load_rtx() is not None:
        assert {f.status for f in built} == {"stand-in"}


@needs_rtx
def test_tensorrt_rtx_builds_an_engine_for_every_bucket_and_beam_width(bundles: dict[str, Bundle]) -> None:
    exact = read_profiles(bundles["fp16"]).exact
    assert len(exact.encoder) == 35 and len(exact.step) == 70
    finding = rtx.check_with_rtx("encoder", bundles["fp16"].file("encoder.onnx"), exact.encoder)
    assert finding.status == "stand-in", finding.detail
    few = (exact.step[0], exact.step[34], exact.step[35], exact.step[69])
    finding = rtx.check_with_rtx("step", bundles["fp16"].file("step.onnx"), few)
    assert finding.status == "stand-in", finding.detail


@needs_rtx
@pytest.mark.parametrize("operator", ["DynamicQuantizeLinear", "Unique"])
def test_tensorrt_rtx_names_an_operator_that_it_cannot_read(
    bundles: dict[str, Bundle], tmp_path: Path, operator: str
) -> None:
    model = graph(bundles["fp32"], "encoder")
    results = ["a", "b", "c"] if operator == "DynamicQuantizeLinear" else ["a"]
    model.graph.node.append(helper.make_node(operator, ["memory_mask"], results, name="bad_node"))
    model.graph.output.append(helper.make_empty_tensor_value_info("a"))
    model.graph.output[-1].CopyFrom(
        helper.make_tensor_value_info("a", TensorProto.UINT8 if len(results) == 3 else TensorProto.FLOAT, None)
    )
    onnx.save(model, tmp_path / "bad.onnx")
    (profile, *_) = read_profiles(bundles["fp32"]).ranged.encoder
    finding = rtx.check_with_rtx("encoder", tmp_path / "bad.onnx", (profile,))
    assert finding.status == "failed" and f"{operator} bad_node" in finding.detail
    (fault,) = operator_faults(model)
    assert fault.startswith(f"{operator} bad_node")


def test_the_table_names_what_a_jetpack_does_not_take(bundles: dict[str, Bundle]) -> None:
    model = graph(bundles["fp16"], "step")
    assert {f.status for f in check_for_jetpacks("step", model)} == {"passed"}
    norm = next(n for n in model.graph.node if n.op_type == "LayerNormalization")
    norm.output.append("mean")
    model.graph.node.append(helper.make_node("ReduceSum", ["attention", "position"], ["all"], "all"))
    assert list(operator_faults(model)) == [
        f"LayerNormalization {norm.name}: only the first output is supported",
        "ReduceSum all: operand 1 is not a constant",
    ]
    model.opset_import[0].version = 21
    old, *newer = check_for_jetpacks("step", model)
    assert "opset 21 > 20" in old.detail
    assert all("opset" not in f.detail and f.status == "failed" for f in newer)


def test_fp16_agrees_with_onnxruntime_on_the_sample_inks(bundles: dict[str, Bundle]) -> None:
    """onnxruntime computes the same graph in float32 inside: what remains is float16's rounding."""
    engine = EvaluatorEngine(bundles["fp16"])
    levels = prove(bundles["fp16"], engine, OnnxEngine(bundles["fp16"]))
    assert [level.status for level in levels] == ["passed"] * 3, levels
    assert engine.overflows == []


@needs_rtx
def test_the_ladder_stands_on_what_the_target_says_that_it_does(bundles: dict[str, Bundle], source: Source) -> None:
    """docs/targets/README.md shows what it says. Four buckets show as much as all."""
    whole, jetson = bundles["fp16"], find("jetson-trt")
    cut = replace(whole, manifest=whole.manifest.model_copy(update={"buckets": whole.manifest.buckets[:4]}))
    evidence = Evidence(source.model, pictures_of_samples(cut), labelled=True)
    findings = climb(cut, jetson.load(cut), evidence, jetson.tolerance("fp16"), jetson.stand_in())
    assert not failed(findings), failed(findings)
    ran = {f.level: f.status for f in findings if f.status not in ("not-run", "failed")}
    assert ran == {level: "stand-in" if level in jetson.stand_ins else "passed" for level in ran}
    assert {f.status for f in jetson.check(whole)} == {"passed", "stand-in"} and "L0" in jetson.stand_ins


def test_a_model_scaled_to_overflow_is_caught(bundles: dict[str, Bundle], source: Source, tmp_path: Path) -> None:
    """The first layer's weights times 3e4: its results leave the range of float16, and the ladder names the layer."""
    folder = tmp_path / "scaled.hmer"
    shutil.copytree(bundles["fp16"].path, folder)
    model = onnx.load(folder / "encoder.onnx")
    first = next(n for n in model.graph.node if n.op_type == "Conv")
    for tensor in model.graph.initializer:
        if tensor.name in first.input:
            values = numpy_helper.to_array(tensor).astype(np.float32) * 3e4
            tensor.CopyFrom(numpy_helper.from_array(values.clip(-6e4, 6e4).astype(np.float16), tensor.name))
    onnx.save(model, folder / "encoder.onnx")
    write_manifest(folder, bundles["fp16"].manifest.model_copy(update={"files": list_files(folder)}))
    jetson, scaled = find("jetson-trt"), open_bundle(folder)
    (picture, *_) = pictures_of_samples(scaled)
    evidence = Evidence(source.model, [picture], labelled=False)
    findings = climb(scaled, jetson.load(scaled), evidence, jetson.tolerance("fp16"), jetson.stand_in())
    (range_,) = [f for f in findings if f.check == "nothing leaves the range of float16"]
    assert range_.status == "failed" and f"Conv '{first.name}'" in range_.detail


def test_the_engine_on_fake_tensorrt_agrees_with_onnxruntime(bundles: dict[str, Bundle], tmp_path: Path) -> None:
    """float16 caches, coverage in float32, refinement, real attention: through the engine that a Jetson runs."""
    bundle, api = bundles["fp16"], FakeCuda()
    trt = FakeTensorRT(api)
    build_engines(bundle, "ranged", tmp_path, trt, Cuda(api))
    engine = TensorRTEngine(bundle, cache=tmp_path, trt=trt, cuda=Cuda(api))
    levels = prove(bundle, engine, OnnxEngine(bundle))
    assert [level.status for level in levels] == ["passed"] * 3, levels


def test_the_bundle_holds_a_trtexec_script_for_every_jetpack(bundles: dict[str, Bundle]) -> None:
    scripts = {path.name: path.read_text() for path in bundles["fp16"].file("trtexec").iterdir()}
    assert len(scripts) == len(JETPACKS)
    for name, text in scripts.items():
        assert "--noTF32" in text and "--onnx=step.onnx" in text
        for removed in ("--fp16", "--int8", "--best", "--explicitBatch", "--workspace", "--buildOnly"):
            assert removed not in text
        assert ("--stronglyTyped" in text) == (name != "jetpack-7.2.2.sh")
        assert "raster:1x1x64x128,size:1x2" in text and "--profile=4" in text


def test_profiles_cover_every_bucket(bundles: dict[str, Bundle]) -> None:
    profiles = read_profiles(bundles["fp16"])
    for bucket in bundles["fp16"].buckets():
        raster = (1, 1, *bucket)
        covering = [
            p
            for p in profiles.ranged.encoder
            if all(a <= b <= c for a, b, c in zip(p.minimum["raster"], raster, p.maximum["raster"], strict=True))
        ]
        assert len(covering) == 1, bucket
        assert any(p.typical["raster"] == raster for p in profiles.exact.encoder)


def test_int8_needs_ink(source: Source, bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "to_onnx", lambda graph, *_: onnx.load(bundle.file(f"{graph.role}.onnx")))
    jetson = find("jetson-trt")
    with pytest.raises(TargetError, match="int8 needs ink"):
        jetson.build(replace(source, rasters=()), make_plan(source, jetson, "int8"), tmp_path)


def test_without_tensorrt_the_stand_in_is_loaded_and_named(bundles: dict[str, Bundle]) -> None:
    jetson = find("jetson-trt")
    assert jetson.stand_in()
    assert jetson.load(bundles["fp16"]).name == "hmerctl float16 evaluator"


def test_what_is_missing_is_listed_with_the_way_to_get_it() -> None:
    missing = {r.name: r.how for r in find("jetson-trt").requirements() if r.found is None}
    assert (
        "JetPack" in missing["tensorrt"]
        and "hmerctl[jetson]" in missing["cuda-python"]
        and "Orin" in missing["Jetson"]
    )
