"""Weights stored smaller: what comes back out of them, and that onnxruntime widens them once, when it loads."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from hmerctl.export.precision import PrecisionError
from hmerctl.export.session import cpu_session
from hmerctl.export.storage import store_half, store_int8

RNG = np.random.default_rng(0)
WEIGHTS = {
    "table": RNG.normal(size=(40, 64)).astype(np.float32),
    "kernel": RNG.normal(size=(16, 64, 1)).astype(np.float32)
    * np.logspace(-3, 1, 16).astype(np.float32)[:, None, None],
    "matrix": RNG.normal(size=(16, 96)).astype(np.float32),
    "gemm": RNG.normal(size=(80, 96)).astype(np.float32),
    "bias": RNG.normal(size=80).astype(np.float32),
    "small": RNG.normal(size=(80, 2)).astype(np.float32),
}


def model(**changed: np.ndarray) -> onnx.ModelProto:
    """token -> table row -> convolution -> two products; ``small`` is too small to be worth it."""
    nodes = [
        helper.make_node("Gather", ["table", "token"], ["row"]),
        helper.make_node("Unsqueeze", ["row", "last"], ["column"]),
        helper.make_node("Conv", ["column", "kernel"], ["mixed"]),
        helper.make_node("Squeeze", ["mixed", "last"], ["flat"]),
        helper.make_node("MatMul", ["flat", "matrix"], ["wide"]),
        helper.make_node("Gemm", ["wide", "gemm", "bias"], ["tall"], transB=1),
        helper.make_node("MatMul", ["tall", "small"], ["out"]),
    ]
    weights = {**WEIGHTS, **changed, "last": np.array([2])}
    graph = helper.make_graph(
        nodes,
        "stored",
        [helper.make_tensor_value_info("token", TensorProto.INT32, [3])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, [3, 2])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def stored(result: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {t.name: numpy_helper.to_array(t) for t in result.graph.initializer}


def run(result: onnx.ModelProto) -> np.ndarray:
    return cpu_session(result).run(None, {"token": np.array([0, 7, 39], np.int32)})[0]


def test_half_stores_large_weights_rounded_and_leaves_the_interface() -> None:
    half = store_half(model())
    kinds = {name: value.dtype for name, value in stored(half).items() if value.dtype != np.int64}
    assert {name for name, kind in kinds.items() if kind == np.float16} == {
        f"{name}_stored" for name in ("table", "kernel", "matrix", "gemm")
    }
    assert kinds["bias"] == kinds["small"] == np.float32
    rounded = {
        k: v.astype(np.float16).astype(np.float32)
        for k, v in WEIGHTS.items()
        if k in ("table", "kernel", "matrix", "gemm")
    }
    assert np.array_equal(run(half), run(model(**rounded)))
    assert half.graph.output == model().graph.output


def test_a_weight_beyond_float16_is_refused_by_name() -> None:
    with pytest.raises(PrecisionError, match=r"'gemm' reaches 7e\+04"):
        store_half(model(gemm=np.full((80, 96), 7e4, np.float32)))


@pytest.mark.parametrize(("name", "axis"), [("table", 0), ("kernel", 0), ("matrix", 1), ("gemm", 0)])
def test_int8_has_a_scale_for_every_output_channel(name: str, axis: int) -> None:
    values = stored(store_int8(model()))
    whole, scale = values[f"{name}_stored"], values[f"{name}_scale"]
    assert whole.dtype == np.int8 and scale.size == WEIGHTS[name].shape[axis]
    others = tuple(a for a in range(whole.ndim) if a != axis)
    assert (np.abs(whole.astype(int)).max(others) == 127).all()
    assert (np.abs(whole * scale - WEIGHTS[name]) <= 0.501 * scale).all()


def test_int8_leaves_what_no_product_and_no_table_reads_alone() -> None:
    added = model()
    added.graph.node.append(helper.make_node("Transpose", ["gemm"], ["turned"]))
    assert "gemm" in stored(store_int8(added)) and "gemm_stored" not in stored(store_int8(added))
    assert {"bias", "small"} <= set(stored(store_int8(model())))
    zeros = store_int8(model(matrix=np.zeros((16, 96), np.float32)))
    assert np.isfinite(run(zeros)).all()


def test_onnxruntime_widens_when_it_loads_and_not_in_every_run(tmp_path: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "loaded.onnx")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    onnxruntime.InferenceSession(store_half(store_int8(model())).SerializeToString(), options)
    kinds = [node.op_type for node in onnx.load(tmp_path / "loaded.onnx").graph.node]
    assert "Cast" not in kinds and "Mul" not in kinds and "Conv" in kinds
