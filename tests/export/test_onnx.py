"""Conversion to ONNX: opset 17, our axis names, fixed or dynamic shapes, nothing of this machine in the file."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from hmerctl.export.graphs import take_apart
from hmerctl.export.onnx import to_onnx
from hmerctl.export.opset import OpsetError, lower_to_17
from hmerctl.export.parity.graphs import describe
from hmerctl.export.source import Source
from hmerctl.runtime.bundle import Bundle


def run(model: onnx.ModelProto, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feed), strict=True))


def test_a_dynamic_graph_keeps_every_symbol(bundle: Bundle) -> None:
    model = onnx.load(bundle.file("encoder.onnx"))
    assert [(v.name, describe(v).shape) for v in model.graph.input] == [
        ("raster", ("batch", 1, "height", "width")),
        ("size", ("batch", 2)),
    ]
    assert {entry.domain: entry.version for entry in model.opset_import} == {"": 17}


def test_a_fixed_graph_has_no_symbol_and_the_same_numbers(source: Source, bundle: Bundle) -> None:
    encoder, _ = take_apart(source.model)
    static = to_onnx(encoder, {"batch": 1, "height": 64, "width": 96})
    assert all(isinstance(n, int) for v in (*static.graph.input, *static.graph.output) for n in describe(v).shape)
    assert "Shape" not in {node.op_type for node in static.graph.node}
    rng = np.random.default_rng(0)
    feed = {"raster": rng.random((1, 1, 64, 96), np.float32), "size": np.array([[60, 81]], np.int32)}
    dynamic = run(onnx.load(bundle.file("encoder.onnx")), feed)
    for name, value in run(static, feed).items():
        np.testing.assert_allclose(value, dynamic[name], atol=2e-5)


def test_a_graph_says_nothing_of_where_it_was_made(bundle: Bundle) -> None:
    for role in ("encoder", "step"):
        data = bundle.file(f"{role}.onnx").read_bytes()
        assert b".py" not in data
        assert b"hmerctl.train" not in data


def test_metadata_describe_the_graph_without_a_manifest(bundle: Bundle) -> None:
    metadata = {e.key: e.value for e in onnx.load(bundle.file("step.onnx")).metadata_props}
    assert metadata["vocabulary_sha256"] == bundle.vocabulary.sha256
    assert {k: metadata[k] for k in ("role", "stride", "max_steps", "pad", "sos", "eos", "raster_version")} == {
        **{"role": "step", "stride": "8", "max_steps": "208", "pad": "0", "sos": "1", "eos": "2"},
        "raster_version": "1",
    }


def small_model(nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray], outputs: list[str]) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 6])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_lowering_keeps_what_split_and_reductions_compute() -> None:
    nodes = [
        helper.make_node("Split", ["x"], ["a", "b"], axis=1, num_outputs=2),
        helper.make_node("ReduceMean", ["a", "axes"], ["mean"], keepdims=0),
        helper.make_node("ReduceMax", ["b", "axes"], ["top"], keepdims=1),
    ]
    model = small_model(nodes, {"axes": np.array([1], np.int64)}, ["mean", "top"])
    feed = {"x": np.arange(12, dtype=np.float32).reshape(2, 6)}
    before = run(model, feed)
    lower_to_17(model)
    assert model.opset_import[0].version == 17
    after = run(model, feed)
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_an_operator_that_opset_17_lacks_is_refused_by_name() -> None:
    model = small_model([helper.make_node("Mish", ["x"], ["y"], name="mish_1")], {}, ["y"])
    with pytest.raises(OpsetError, match=r"Mish \(mish_1\) is not available in opset 17"):
        lower_to_17(model)
