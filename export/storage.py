"""Weights stored smaller than they are computed with: float16 or int8 in the file, float32 in the arithmetic.

Each stored weight gets the nodes that widen it again. They have constant inputs only, so an engine folds them when it
loads the graph: onnxruntime at every level of optimisation but "none". The interface of a graph stays as it was.
"""

import copy
from collections.abc import Iterable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from hmerctl.export.precision import FLOAT16_MAX, PrecisionError

SMALLEST = 1024
"""Elements from which a weight is stored smaller; a Cast takes about 100 bytes itself."""

_CHANNEL_AXIS = {("Conv", 1): 0, ("Gather", 0): 0}
"""Operators whose weight is quantised, beside Gemm and MatMul, and which input it is: the axis of its scales."""


def store_half(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a graph whose float32 weights are stored as float16, rounded to nearest.

    Raises:
        PrecisionError: a weight does not fit float16.
    """
    result = copy.deepcopy(model)
    nodes = []
    for tensor in list(_large(result.graph)):
        values = numpy_helper.to_array(tensor)
        if np.abs(values).max() > FLOAT16_MAX:
            raise PrecisionError(f"weight {tensor.name!r} reaches {np.abs(values).max():.3g}, beyond float16")
        name = tensor.name
        tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float16), f"{name}_stored"))
        nodes.append(helper.make_node("Cast", [f"{name}_stored"], [name], name=f"{name}_widen", to=TensorProto.FLOAT))
    return _prepended(result, nodes)


def store_int8(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a graph whose float32 matrices and kernels are stored as int8 with a float32 scale per output channel
    (per row of a table), symmetric: the largest of a channel becomes 127. Other weights are left as they are."""
    result = copy.deepcopy(model)
    axes = _channel_axes(result.graph)
    nodes = []
    for tensor in list(_large(result.graph)):
        if tensor.name not in axes:
            continue
        values, name = numpy_helper.to_array(tensor), tensor.name
        others = tuple(axis for axis in range(values.ndim) if axis != axes[name])
        scale = np.maximum(np.abs(values).max(others, keepdims=True), np.float32(1e-30)) / np.float32(127)
        tensor.CopyFrom(numpy_helper.from_array(np.rint(values / scale).astype(np.int8), f"{name}_stored"))
        result.graph.initializer.append(numpy_helper.from_array(scale.astype(np.float32), f"{name}_scale"))
        nodes += [
            helper.make_node(
                "Cast", [f"{name}_stored"], [f"{name}_wide"], name=f"{name}_widen", to=TensorProto.FLOAT
            ),
            helper.make_node("Mul", [f"{name}_wide", f"{name}_scale"], [name], name=f"{name}_rescale"),
        ]
    return _prepended(result, nodes)


def _large(graph: onnx.GraphProto) -> Iterable[onnx.TensorProto]:
    return (t for t in graph.initializer if t.data_type == TensorProto.FLOAT and np.prod(t.dims) >= SMALLEST)


def channel_axis(node: onnx.NodeProto, position: int, rank: int) -> int | None:
    """The axis of the output channels in the weight of ``rank`` axes that a node reads as its input ``position``.

    None if that is no weight of a product or table.
    """
    if (node.op_type, position) in _CHANNEL_AXIS:
        return _CHANNEL_AXIS[node.op_type, position]
    if (node.op_type, position) == ("MatMul", 1):
        return rank - 1
    if (node.op_type, position) == ("Gemm", 1):
        return 0 if any(a.name == "transB" and a.i for a in node.attribute) else 1
    return None


def _channel_axes(graph: onnx.GraphProto) -> dict[str, int]:
    """The axis of the scales of every weight of at least two axes that only products and tables read, by name."""
    found: dict[str, set[int | None]] = {}
    ranks = {t.name: len(t.dims) for t in graph.initializer}
    for node in graph.node:
        for position, name in enumerate(node.input):
            if ranks.get(name, 0) < 2:
                continue
            found.setdefault(name, set()).add(channel_axis(node, position, ranks[name]))
    return {name: axis for name, axes in found.items() if len(axes) == 1 and (axis := next(iter(axes))) is not None}


def _prepended(model: onnx.ModelProto, nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
    """The model with nodes before all others."""
    kept = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([*nodes, *kept])
    onnx.checker.check_model(model)
    return model
