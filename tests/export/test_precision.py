"""float16 graphs: the products are half, the risky parts are not, and every type is stated by a Cast."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from hmerctl.export.evaluate16 import Evaluator
from hmerctl.export.precision import HalfPolicy, PrecisionError, half_interface, precision_of, to_half
from hmerctl.runtime.state import StateSpec

STEP = """
<ir_version: 8, opset_import: ["" : 17]>
step (int32[beam] token, float[1,16,cells] keys, float[1,cells,16] values, float[1,cells] mask,
      float[beam,cells] spent, float[beam,16,time] cache)
  => (float[beam,12] log_probs, float[beam,cells] next_spent, float[beam,16] next_cache)
{
  axis_one = Constant <value_ints = [1]> ()
  x = Gather (embed, token)
  normed = LayerNormalization <axis = -1> (x, gain, offset)
  query = MatMul (normed, query_weight)
  row = Unsqueeze (query, axis_one)
  past = MatMul (row, cache)
  total_past = ReduceMean <axes = [2]> (past)
  flat_past = Squeeze (total_past, axis_one)
  gated = Sigmoid (flat_past)
  raw = MatMul (row, keys)
  scores = Mul (raw, scale)
  masked = Add (scores, mask)
  spent_row = Unsqueeze (spent, axis_one)
  lowered = Sub (masked, spent_row)
  weights = Softmax <axis = -1> (lowered)
  flat = Squeeze (weights, axis_one)
  next_spent = Add (spent, flat)
  mixed = MatMul (weights, values)
  read = Squeeze (mixed, axis_one)
  scaled = Mul (read, gated)
  next_cache = Gemm (scaled, cache_weight)
  active = Relu (next_cache)
  logits = Gemm <transB = 1> (active, output_weight, output_bias)
  log_probs = LogSoftmax <axis = 1> (logits)
}
"""

CELLS = 10


def step_graph(seed: int = 0) -> onnx.ModelProto:
    """One attention step with coverage, small enough to read."""
    model = onnx.parser.parse_model(STEP)
    rng = np.random.default_rng(seed)
    shapes = {
        "embed": (12, 16),
        "gain": (16,),
        "offset": (16,),
        "query_weight": (16, 16),
        "cache_weight": (16, 16),
        "output_weight": (12, 16),
        "output_bias": (12,),
    }
    for name, shape in shapes.items():
        values = rng.standard_normal(shape, dtype=np.float32)
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    model.graph.initializer.append(numpy_helper.from_array(np.array(0.25, np.float32), "scale"))
    for node in model.graph.node:
        node.name = node.output[0]
    return model


def feeds(half: bool, mask: float = -1e4) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    kind = np.float16 if half else np.float32
    masked = np.zeros((1, CELLS), np.float32)
    masked[0, 7:] = mask
    return {
        "token": np.array([3, 5, 0], np.int32),
        "keys": rng.standard_normal((1, 16, CELLS)).astype(np.float16).astype(kind),
        "values": rng.standard_normal((1, CELLS, 16)).astype(np.float16).astype(kind),
        "mask": masked,
        "spent": rng.random((3, CELLS), dtype=np.float32) * 100,
        "cache": rng.standard_normal((3, 16, 4)).astype(np.float16).astype(kind),
    }


POLICY = HalfPolicy(
    half_interface(
        ["keys", "values", "mask"],
        [
            StateSpec("spent", ("beam", "cells"), "replace"),
            StateSpec("cache", ("beam", 16, "time"), "append"),
        ],
    )
)


def types(model: onnx.ModelProto) -> dict[str, int]:
    graph = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph
    return {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.value_info, *graph.output)}


def test_interface_is_half_for_what_is_read_and_single_for_what_accumulates() -> None:
    assert POLICY.half_tensors == {"keys", "values", "cache", "next_cache"}
    kinds = types(to_half(step_graph(), POLICY))
    for name in ("keys", "values", "cache", "next_cache"):
        assert kinds[name] == TensorProto.FLOAT16, name
    for name in ("mask", "spent", "next_spent", "log_probs"):
        assert kinds[name] == TensorProto.FLOAT, name
    assert kinds["token"] == TensorProto.INT32


def test_risky_parts_stay_single() -> None:
    model = to_half(step_graph(), POLICY)
    kinds = types(model)
    inputs = {n.name: [kinds.get(i) for i in n.input if i in kinds] for n in model.graph.node}
    single = ("normed", "weights", "log_probs", "scores", "masked", "lowered", "next_spent", "total_past", "logits")
    for name in single:
        assert TensorProto.FLOAT16 not in inputs[name], name
    for name in ("query", "raw", "past", "mixed", "scaled"):
        assert TensorProto.FLOAT not in inputs[name], name
    half = {"query", "raw", "past", "mixed", "next_cache_inner", "next_cache"}
    assert {n: p for n, p in precision_of(model).items() if p == "float32"} == {"logits": "float32"}
    assert set(precision_of(model)) - {"logits"} <= half


def test_result_is_near_the_single_result_and_nothing_overflows() -> None:
    single = Evaluator(step_graph()).run(feeds(half=False))
    evaluator = Evaluator(to_half(step_graph(), POLICY))
    half = evaluator.run(feeds(half=True))
    assert evaluator.overflows == []
    for name, expected in single.items():
        np.testing.assert_allclose(half[name], expected, atol=0.03, rtol=0.01, err_msg=name)
    np.testing.assert_allclose(half["next_spent"].sum(1), feeds(True)["spent"].sum(1) + 1, rtol=1e-6)
    assert not np.array_equal(half["log_probs"], single["log_probs"])


def test_float32_interface_keeps_every_input_and_output() -> None:
    kinds = types(to_half(step_graph(), HalfPolicy()))
    graph = step_graph().graph
    for value in (*graph.input, *graph.output):
        assert kinds[value.name] == value.type.tensor_type.elem_type, value.name


def test_named_nodes_stay_single() -> None:
    model = to_half(step_graph(), HalfPolicy(POLICY.half_tensors, frozenset({"raw"})))
    assert precision_of(model)["raw"] == "float32" and precision_of(model)["query"] == "float16"
    every = HalfPolicy(single_nodes=frozenset(precision_of(step_graph())))
    same = Evaluator(to_half(step_graph(), every)).run(feeds(half=False))
    for name, expected in Evaluator(step_graph()).run(feeds(half=False)).items():
        np.testing.assert_array_equal(same[name], expected)


def test_zeros_made_in_the_graph_follow_their_reader() -> None:
    """ConstantOfShape without a value is float32 zeros: an attribute must say float16."""
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    zeros (float[n,4] x) => (float[n,4] y)
    { s = Shape (x)  z = ConstantOfShape (s)  both = Concat <axis = 0> (x, z)  y = MatMul (both, w) }
    """
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(np.eye(4, dtype=np.float32), "w"))
    for dim in model.graph.output[0].type.tensor_type.shape.dim:
        dim.Clear()
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    got = Evaluator(to_half(model)).run({"x": x})["y"]
    np.testing.assert_array_equal(got, np.concatenate([x, np.zeros((2, 4))]))


def test_weights_halve_and_are_stored_once() -> None:
    model = to_half(step_graph(), POLICY)
    stored = {t.name: t.data_type for t in model.graph.initializer}
    assert stored["query_weight_half"] == TensorProto.FLOAT16 and "query_weight" not in stored
    assert stored["gain"] == stored["output_weight"] == TensorProto.FLOAT and "gain_half" not in stored


def test_a_weight_scaled_up_overflows_in_the_graph_and_is_shown() -> None:
    """The same function, computed by way of large numbers: float32 does not notice, float16 does."""
    model = step_graph()
    scaled = {"query_weight": 3e4, "scale": 1 / 3e4}
    for weight in model.graph.initializer:
        if weight.name in scaled:
            values = numpy_helper.to_array(weight) * np.float32(scaled[weight.name])
            weight.CopyFrom(numpy_helper.from_array(np.clip(values, -6e4, 6e4), weight.name))
    assert np.isfinite(Evaluator(model).run(feeds(half=False))["log_probs"]).all()
    evaluator = Evaluator(to_half(model, POLICY))
    assert not np.isfinite(evaluator.run(feeds(half=True))["log_probs"]).all()
    assert evaluator.overflows[0].node == "query"


def test_a_weight_beyond_float16_is_refused_by_name() -> None:
    model = step_graph()
    bad = numpy_helper.from_array(np.full((16, 16), 1e5, np.float32), "cache_weight")
    next(t for t in model.graph.initializer if t.name == "cache_weight").CopyFrom(bad)
    with pytest.raises(PrecisionError, match=r"cache_weight.*1e\+05"):
        to_half(model, POLICY)


def test_unknown_names_and_half_graphs_are_refused() -> None:
    with pytest.raises(PrecisionError, match="nowhere"):
        to_half(step_graph(), HalfPolicy(single_nodes=frozenset({"nowhere"})))
    with pytest.raises(PrecisionError, match="weights"):
        to_half(step_graph(), HalfPolicy(half_tensors=frozenset({"weights"})))
    with pytest.raises(PrecisionError, match="float16 already"):
        to_half(to_half(step_graph(), POLICY), POLICY)


def test_the_input_graph_is_left_as_it_was() -> None:
    model = step_graph()
    before = model.SerializeToString(deterministic=True)
    to_half(model, POLICY)
    assert model.SerializeToString(deterministic=True) == before
