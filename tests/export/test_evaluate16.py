"""The evaluator: equal to onnxruntime in float32, truly float16 in float16, loud on what it does not know."""

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from hmerctl.export.evaluate16 import EvaluationError, Evaluator

TYPES = {np.dtype(np.float32): 1, np.dtype(np.float16): 10, np.dtype(np.int32): 6, np.dtype(np.int64): 7}
TYPES |= {np.dtype(bool): 9, np.dtype(np.int8): 3}
RNG = np.random.default_rng(7)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=np.float32)


def ints(*values: int) -> np.ndarray:
    return np.asarray(values, np.int64)


def one_node(op: str, inputs: list[np.ndarray], outputs: int = 1, **attributes: Any) -> onnx.ModelProto:
    """A graph of one node; the first input is fed, integer and later inputs too."""
    names = [f"in{i}" for i in range(len(inputs))]
    out = [f"out{i}" for i in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op, names, out, name=f"the_{op}", **attributes)],
        "one",
        [helper.make_tensor_value_info(n, TYPES[x.dtype], x.shape) for n, x in zip(names, inputs, strict=True)],
        [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in out],
    )
    for o in graph.output:
        o.ClearField("type")
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def feeds(inputs: list[np.ndarray]) -> dict[str, np.ndarray]:
    return {f"in{i}": x for i, x in enumerate(inputs)}


X = floats(2, 4, 6, 5)
CASES: list[tuple[str, list[np.ndarray], dict[str, Any]]] = [
    *[(op, [X, floats(4, 1, 5)], {}) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Less", "Greater")],
    *[(op, [X], {}) for op in ("Neg", "Abs", "Exp", "Sigmoid", "Tanh", "Relu", "Erf", "Identity", "Shape")],
    *[(op, [np.abs(X) + 0.1], {}) for op in ("Sqrt", "Log", "Reciprocal")],
    *[(op, [X, X.copy()], {}) for op in ("LessOrEqual", "GreaterOrEqual")],
    ("Pow", [np.abs(X), np.array(2.5, np.float32)], {}),
    ("Div", [ints(7, -7, 7), ints(2, 2, -2)], {}),
    ("LeakyRelu", [X], {"alpha": 0.2}),
    ("Clip", [X, np.array(-0.5, np.float32), np.array(0.5, np.float32)], {}),
    ("Softmax", [X], {"axis": 2}),
    ("LogSoftmax", [X], {"axis": 1}),
    ("ReduceSum", [X, ints(1, -1)], {"keepdims": 0}),
    ("ReduceMean", [X], {"axes": [1, 2]}),
    ("ReduceMax", [X], {"axes": [3], "keepdims": 0}),
    ("ReduceMin", [X], {}),
    ("MatMul", [X, floats(4, 5, 3)], {}),
    ("Gemm", [floats(3, 4), floats(5, 4), floats(5)], {"transB": 1, "alpha": 0.5, "beta": 2.0}),
    ("Conv", [X, floats(6, 2, 3, 2), floats(6)], {"group": 2, "strides": [2, 1], "pads": [1, 0, 2, 1]}),
    ("Conv", [X, floats(3, 4, 3, 3)], {"dilations": [2, 1], "pads": [2, 1, 2, 1]}),
    ("Conv", [floats(1, 3, 9), floats(2, 3, 4)], {"strides": [2]}),
    ("MaxPool", [X], {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [1, 1, 0, 1]}),
    ("AveragePool", [X], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ("AveragePool", [X], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
    ("GlobalAveragePool", [X], {}),
    ("BatchNormalization", [X, floats(4), floats(4), floats(4), np.abs(floats(4))], {"epsilon": 1e-3}),
    ("LayerNormalization", [X, floats(6, 5), floats(6, 5)], {"axis": -2}),
    *[
        ("GRU", [floats(6, 2, 3), floats(1, 15, 3), floats(1, 15, 5), floats(1, 30)], {"hidden_size": 5} | more)
        for more in ({}, {"linear_before_reset": 1})
    ],
    ("Cast", [X], {"to": TensorProto.INT32}),
    ("Gather", [X, np.array([[1, -1]], np.int32)], {"axis": 2}),
    ("GatherElements", [X, np.zeros((2, 4, 1, 5), np.int64)], {"axis": 2}),
    ("GatherND", [X, np.array([[0, 1], [1, 3]], np.int64)], {}),
    ("Slice", [X, ints(1, -1), ints(9, -99), ints(1, 3), ints(1, -1)], {}),
    ("Slice", [X, ints(-3), ints(2**63 - 1), ints(2)], {}),
    ("Concat", [X, floats(2, 4, 1, 5)], {"axis": -2}),
    ("Reshape", [X, ints(0, -1, 5)], {}),
    ("Flatten", [X], {"axis": 2}),
    ("Transpose", [X], {"perm": [0, 2, 3, 1]}),
    ("Unsqueeze", [X, ints(0, 3)], {}),
    ("Squeeze", [floats(1, 3, 1), ints(0)], {}),
    ("Expand", [floats(3, 1), ints(2, 1, 4)], {}),
    ("Tile", [floats(3, 2), ints(2, 1)], {}),
    ("Where", [X > 0, X, floats(1)], {}),
    ("And", [X > 0, X > 1], {}),
    ("Or", [X > 0, X > 1], {}),
    ("Not", [X > 0], {}),
    ("Equal", [np.arange(3), np.array([0, 2, 2])], {}),
    ("Pad", [X, ints(0, 0, 1, 2, 0, 0, 0, 1), np.array(3, np.float32)], {}),
    ("ConstantOfShape", [ints(2, 3)], {"value": numpy_helper.from_array(np.array([5], np.float32))}),
    ("QuantizeLinear", [10 * X, np.array(0.1, np.float32), np.array(0, np.int8)], {}),
    ("QuantizeLinear", [X, np.abs(floats(4)) + 0.1, np.zeros(4, np.int8)], {"axis": 1}),
    ("DequantizeLinear", [np.arange(-6, 6, dtype=np.int8), np.array(0.3, np.float32), np.array(0, np.int8)], {}),
]


@pytest.mark.parametrize(("op", "inputs", "attributes"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_float32_equals_onnxruntime(op: str, inputs: list[np.ndarray], attributes: dict[str, Any]) -> None:
    model = one_node(op, inputs, **attributes)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, feeds(inputs))[0]
    got = Evaluator(model).run(feeds(inputs))["out0"]
    assert got.dtype == expected.dtype and got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_split_gives_every_part() -> None:
    inputs = [floats(2, 7), ints(3, 4)]
    got = Evaluator(one_node("Split", inputs, 2, axis=1)).run(feeds(inputs))
    np.testing.assert_array_equal(np.concatenate([got["out0"], got["out1"]], 1), inputs[0])


@pytest.mark.parametrize("length", [6, 7])
def test_split_without_sizes_gives_equal_parts(length: int) -> None:
    x = floats(2, length)
    model = one_node("Split", [x], 3, axis=1)
    if length == 7:  # uneven parts came with opset 18
        model.opset_import[0].version = 18
        model.graph.node[0].attribute.append(helper.make_attribute("num_outputs", 3))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    got = Evaluator(model).run({"in0": x})
    for mine, right in zip(got.values(), session.run(None, {"in0": x}), strict=True):
        np.testing.assert_array_equal(mine, right)


def test_float16_result_is_the_float32_result_rounded_once() -> None:
    a, b = floats(8, 40).astype(np.float16), floats(40, 8).astype(np.float16)
    got = Evaluator(one_node("MatMul", [a, b])).run(feeds([a, b]))["out0"]
    assert got.dtype == np.float16
    np.testing.assert_array_equal(got, (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16))


def test_small_terms_are_lost_when_sums_are_kept_in_float16() -> None:
    """32768 + 16 is 32768 in float16: a sum of a large and many small terms shows how it was accumulated."""
    a = np.ones((1, 4096), np.float16)
    a[0, 0] = 32768
    b = np.ones((4096, 1), np.float16)
    model = one_node("MatMul", [a, b])
    assert Evaluator(model).run(feeds([a, b]))["out0"] == 32768 + 4096
    assert Evaluator(model, accumulate="half").run(feeds([a, b]))["out0"] == 32768


def test_overflow_is_found_and_named_where_onnxruntime_on_the_cpu_hides_it() -> None:
    """A weight scaled up, then down again: fine in float32, infinite in float16."""
    x = floats(1, 4).astype(np.float16)
    up, down = (np.eye(4) * 6e4).astype(np.float16), (np.eye(4) / 6e4).astype(np.float16)
    nodes = [
        helper.make_node("MatMul", ["x", "up"], ["wide"], name="up_matmul"),
        helper.make_node("MatMul", ["wide", "down"], ["y"], name="down_matmul"),
    ]
    graph = helper.make_graph(
        nodes,
        "scaled",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT16, [1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, [1, 4])],
        [numpy_helper.from_array(up, "up"), numpy_helper.from_array(down, "down")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    evaluator = Evaluator(model)
    got = evaluator.run({"x": 3 * np.sign(x)})
    assert not np.isfinite(got["y"]).all()
    assert [(o.node, o.tensor) for o in evaluator.overflows] == [("up_matmul", "wide")]
    assert "1.8e+05" in str(evaluator.overflows[0])
    evaluator.run({"x": np.float16(0.5) * np.sign(x)})
    assert evaluator.overflows == [] and 2.9e4 < evaluator.peaks["wide"] < 3.1e4


def test_partial_sum_overflow_shows_only_with_half_accumulation() -> None:
    a = np.full((1, 64), 200, np.float16)
    b = np.concatenate([np.full((32, 1), 20), np.full((32, 1), -20)]).astype(np.float16)
    model = one_node("MatMul", [a, b])
    assert Evaluator(model).run(feeds([a, b]))["out0"] == 0
    half = Evaluator(model, accumulate="half")
    half.run(feeds([a, b]))
    assert [o.op for o in half.overflows] == ["MatMul"]


@pytest.mark.parametrize(
    ("op", "inputs", "attributes"),
    [
        ("Gemm", [floats(3, 40), floats(40, 5), floats(5)], {}),
        ("Conv", [floats(1, 20, 5, 5), floats(4, 20, 3, 3), floats(4)], {"pads": [1, 1, 1, 1]}),
        ("ReduceMean", [floats(9, 500)], {"axes": [1]}),
        ("ReduceSum", [floats(9, 500), ints(1)], {"keepdims": 0}),
        ("LayerNormalization", [floats(3, 48), floats(48), floats(48)], {}),
        ("Softmax", [floats(3, 48)], {}),
    ],
)
def test_half_accumulation_stays_near_single(op: str, inputs: list[np.ndarray], attributes: dict[str, Any]) -> None:
    half = [x.astype(np.float16) if x.dtype == np.float32 else x for x in inputs]
    model = one_node(op, half, **attributes)
    single = Evaluator(model).run(feeds(half))["out0"].astype(np.float32)
    lossy = Evaluator(model, accumulate="half").run(feeds(half))["out0"].astype(np.float32)
    np.testing.assert_allclose(lossy, single, atol=0.05, rtol=0.02)
    assert not np.array_equal(lossy, single)


def test_layer_norm_statistics_overflow_in_float16_only() -> None:
    x = np.array([[300, -300] * 24], np.float16)
    ones, zeros = np.ones(48, np.float16), np.zeros(48, np.float16)
    model = one_node("LayerNormalization", [x, ones, zeros])
    np.testing.assert_allclose(Evaluator(model).run(feeds([x, ones, zeros]))["out0"], np.sign(x), atol=1e-3)
    half = Evaluator(model, accumulate="half")
    out = half.run(feeds([x, ones, zeros]))["out0"]
    assert not np.allclose(out, np.sign(x), atol=0.1)


def test_unknown_operator_is_named_at_once() -> None:
    with pytest.raises(EvaluationError, match="CumSum"):
        Evaluator(one_node("CumSum", [floats(3), ints(0).reshape(())]))


def test_mixed_types_are_refused_like_a_strongly_typed_engine_does() -> None:
    inputs = [floats(3), floats(3).astype(np.float16)]
    with pytest.raises(EvaluationError, match=r"the_Add.*float16, float32"):
        Evaluator(one_node("Add", inputs)).run(feeds(inputs))


@pytest.mark.parametrize(
    ("feed", "message"),
    [
        ({}, "missing"),
        ({"in0": np.zeros(3, np.float64)}, "float64"),
        ({"in0": np.zeros(4, np.float32)}, "shape"),
    ],
)
def test_wrong_feeds_are_refused(feed: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        Evaluator(one_node("Relu", [floats(3)])).run(feed)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "message"),
    [
        ("GRU", [floats(6, 2, 3), floats(2, 15, 3), floats(2, 15, 5)], {"direction": "bidirectional"}, "directions"),
        ("GRU", [x.astype(np.float16) for x in (floats(6, 2, 3), floats(1, 15, 3), floats(1, 15, 5))], {}, "rounded"),
        ("Pad", [X, ints(0, 0, 1, 2, 0, 0, 0, 1)], {"mode": "reflect"}, "reflect"),
        ("GatherND", [X, np.zeros((2, 1), np.int64)], {"batch_dims": 1}, "batch_dims"),
        ("Conv", [X, floats(6, 4, 3, 3)], {"auto_pad": "SAME_UPPER"}, "auto_pad"),
        ("MaxPool", [X], {"kernel_shape": [2, 2], "ceil_mode": 1}, "ceil_mode"),
    ],
)
def test_options_that_are_not_covered_are_refused_by_name(
    op: str, inputs: list[np.ndarray], attributes: dict[str, Any], message: str
) -> None:
    if op == "GRU":
        attributes = attributes | {"hidden_size": 5}
    with pytest.raises(EvaluationError, match=message):
        Evaluator(one_node(op, inputs, **attributes)).run(feeds(inputs))


def test_index_out_of_range_is_an_error_not_a_wrap() -> None:
    inputs = [floats(3, 2), np.array([3], np.int32)]
    with pytest.raises(EvaluationError, match=r"Gather.*0\.\.2"):
        Evaluator(one_node("Gather", inputs)).run(feeds(inputs))
