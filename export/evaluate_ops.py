"""The ONNX operators that the evaluator computes, one plain function each.

A function gets the node's attributes and its inputs as numpy arrays (None for an input left out) and gives its
output, or a tuple of outputs. Float inputs arrive as float32 even where the graph says float16: the evaluator
widens them, which is exact, and rounds the result once. Semantics are those of opset 13 to 19.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper

Array = np.ndarray
Attributes = dict[str, Any]
Operator = Callable[..., Any]

ARITHMETIC: dict[str, Operator] = {}
"""Operators that compute: the result is rounded to the type of the inputs."""

MOVEMENT: dict[str, Operator] = {}
"""Operators that only move, compare or convert values: they see the arrays in the graph's own types."""


def _register(table: dict[str, Operator], *names: str) -> Callable[[Operator], Operator]:
    def add(function: Operator) -> Operator:
        for name in names:
            table[name] = function
        return function

    return add


def tensor(x: Array) -> torch.Tensor:
    """A torch view of an array, or of a copy where torch cannot have one (read-only, negative strides)."""
    whole = np.asarray(x, order="C")
    return torch.from_numpy(whole if whole.flags.writeable else whole.copy())


def _simple(function: Callable[..., Array]) -> Operator:
    return lambda attributes, *inputs: function(*inputs)


def _divide(a: Array, b: Array) -> Array:
    """Division; integers truncate towards zero."""
    if np.issubdtype(a.dtype, np.integer):
        return (np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))).astype(a.dtype)
    return a / b


def _sigmoid(x: Array) -> Array:
    return tensor(x).sigmoid().numpy()


def _erf(x: Array) -> Array:
    return tensor(x).erf().numpy()


ARITHMETIC |= {
    "Add": _simple(np.add),
    "Sub": _simple(np.subtract),
    "Mul": _simple(np.multiply),
    "Div": _simple(_divide),
    "Pow": _simple(lambda a, b: np.power(a, b.astype(a.dtype))),
    "Neg": _simple(np.negative),
    "Abs": _simple(np.abs),
    "Sqrt": _simple(np.sqrt),
    "Exp": _simple(np.exp),
    "Log": _simple(np.log),
    "Reciprocal": _simple(np.reciprocal),
    "Erf": _simple(_erf),
    "Sigmoid": _simple(_sigmoid),
    "Tanh": _simple(np.tanh),
    "Relu": _simple(lambda x: np.maximum(x, 0)),
    "Max": _simple(lambda *xs: np.maximum.reduce(np.broadcast_arrays(*xs))),
    "Min": _simple(lambda *xs: np.minimum.reduce(np.broadcast_arrays(*xs))),
}

MOVEMENT |= {
    "Identity": _simple(lambda x: x),
    "Less": _simple(np.less),
    "LessOrEqual": _simple(np.less_equal),
    "Greater": _simple(np.greater),
    "GreaterOrEqual": _simple(np.greater_equal),
    "Equal": _simple(np.equal),
    "And": _simple(np.logical_and),
    "Or": _simple(np.logical_or),
    "Not": _simple(np.logical_not),
    "Where": _simple(np.where),
    "Tile": _simple(lambda x, repeats: np.tile(x, repeats)),
}


@_register(ARITHMETIC, "LeakyRelu")
def leaky_relu(attributes: Attributes, x: Array) -> Array:
    return np.where(x < 0, np.float32(attributes.get("alpha", 0.01)) * x, x)


@_register(ARITHMETIC, "Clip")
def clip(attributes: Attributes, x: Array, low: Array | None = None, high: Array | None = None) -> Array:
    return np.clip(x, low, high)


@_register(ARITHMETIC, "Softmax")
def softmax(attributes: Attributes, x: Array) -> Array:
    return tensor(x).softmax(attributes.get("axis", -1)).numpy()


@_register(ARITHMETIC, "LogSoftmax")
def log_softmax(attributes: Attributes, x: Array) -> Array:
    return tensor(x).log_softmax(attributes.get("axis", -1)).numpy()


def _reduce(function: Callable[..., Array]) -> Operator:
    def apply(attributes: Attributes, x: Array, axes: Array | None = None) -> Array:
        chosen = attributes.get("axes") if axes is None else axes.tolist()
        if not chosen and attributes.get("noop_with_empty_axes", 0):
            return x
        return function(x, axis=tuple(chosen) if chosen else None, keepdims=bool(attributes.get("keepdims", 1)))

    return apply


ARITHMETIC |= {
    "ReduceSum": _reduce(np.sum),
    "ReduceMean": _reduce(np.mean),
    "ReduceMax": _reduce(np.max),
    "ReduceMin": _reduce(np.min),
    "ReduceProd": _reduce(np.prod),
}


@_register(ARITHMETIC, "MatMul")
def matmul(attributes: Attributes, a: Array, b: Array) -> Array:
    return np.matmul(a, b)


@_register(ARITHMETIC, "Gemm")
def gemm(attributes: Attributes, a: Array, b: Array, c: Array | None = None) -> Array:
    a = a.T if attributes.get("transA", 0) else a
    b = b.T if attributes.get("transB", 0) else b
    product = attributes.get("alpha", 1.0) * (a @ b)
    return product if c is None else product + attributes.get("beta", 1.0) * c


def _pads(attributes: Attributes, spatial: int) -> list[int]:
    """Padding in the order of torch.nn.functional.pad: last axis first, begin and end."""
    if attributes.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise NotImplementedError(f"auto_pad {attributes['auto_pad']}")
    pads = attributes.get("pads", [0] * 2 * spatial)
    return [pads[i + side * spatial] for i in reversed(range(spatial)) for side in (0, 1)]


@_register(ARITHMETIC, "Conv")
def conv(attributes: Attributes, x: Array, weight: Array, bias: Array | None = None) -> Array:
    spatial = x.ndim - 2
    function = {1: F.conv1d, 2: F.conv2d}[spatial]
    padded = F.pad(tensor(x), _pads(attributes, spatial))
    out = function(
        padded,
        tensor(weight),
        None if bias is None else tensor(bias),
        stride=attributes.get("strides", [1] * spatial),
        dilation=attributes.get("dilations", [1] * spatial),
        groups=attributes.get("group", 1),
    )
    return out.numpy()


@_register(ARITHMETIC, "MaxPool", "AveragePool")
def pool(attributes: Attributes, x: Array) -> Array:
    kernel = attributes["kernel_shape"]
    if attributes.get("ceil_mode", 0) or any(d != 1 for d in attributes.get("dilations", [1])):
        raise NotImplementedError("pooling with ceil_mode or dilations")
    strides = attributes.get("strides", [1] * len(kernel))
    pads, maximum = _pads(attributes, len(kernel)), "count_include_pad" not in attributes
    padded = F.pad(tensor(x), pads, value=-math.inf if maximum else 0.0)
    if maximum:
        return F.max_pool2d(padded, kernel, strides).numpy()
    if any(pads) and not attributes["count_include_pad"]:
        raise NotImplementedError("average pooling that leaves the padding out of the count")
    return F.avg_pool2d(padded, kernel, strides).numpy()


@_register(ARITHMETIC, "GlobalAveragePool")
def global_average_pool(attributes: Attributes, x: Array) -> Array:
    return x.mean(axis=tuple(range(2, x.ndim)), keepdims=True)


@_register(ARITHMETIC, "BatchNormalization")
def batch_normalization(
    attributes: Attributes, x: Array, scale: Array, bias: Array, mean: Array, variance: Array
) -> Array:
    shape = (1, -1) + (1,) * (x.ndim - 2)
    factor = scale / np.sqrt(variance + np.float32(attributes.get("epsilon", 1e-5)))
    return x * factor.reshape(shape) + (bias - mean * factor).reshape(shape)


@_register(ARITHMETIC, "LayerNormalization")
def layer_normalization(attributes: Attributes, x: Array, scale: Array, bias: Array | None = None) -> Array:
    shape = x.shape[attributes.get("axis", -1) :]
    return F.layer_norm(
        tensor(x),
        shape,
        tensor(scale.reshape(shape)),
        None if bias is None else tensor(bias.reshape(shape)),
        attributes.get("epsilon", 1e-5),
    ).numpy()


@_register(ARITHMETIC, "GRU")
def gru(
    attributes: Attributes,
    x: Array,
    weight: Array,
    recurrent: Array,
    bias: Array | None = None,
    lengths: Array | None = None,
    initial: Array | None = None,
) -> tuple[Array, Array]:
    """Gates in the order update, reset, hidden; x (time, batch, inputs) -> (time, 1, batch, width) and the last."""
    known = {"hidden_size", "linear_before_reset", "direction"}
    if lengths is not None or set(attributes) - known or attributes.get("direction", "forward") != "forward":
        raise NotImplementedError("GRU with lengths, both directions or other activations")
    width, late = attributes["hidden_size"], bool(attributes.get("linear_before_reset", 0))
    both = np.zeros((1, 6 * width), np.float32) if bias is None else bias
    from_input = x @ weight[0].T + both[0, : 3 * width]
    r, rb = recurrent[0], both[0, 3 * width :]
    h = np.zeros((x.shape[1], width), np.float32) if initial is None else initial[0]
    states = []
    for step in from_input:
        gates = step[:, : 2 * width] + h @ r[: 2 * width].T + rb[: 2 * width]
        update, reset = np.split(1 / (1 + np.exp(-gates)), 2, axis=1)
        if late:
            hidden = reset * (h @ r[2 * width :].T + rb[2 * width :])
        else:
            hidden = (reset * h) @ r[2 * width :].T + rb[2 * width :]
        h = (1 - update) * np.tanh(step[:, 2 * width :] + hidden) + update * h
        states.append(h)
    return np.stack(states)[:, None], h[None]


@_register(MOVEMENT, "Cast")
def cast(attributes: Attributes, x: Array) -> Array:
    if attributes["to"] == TensorProto.BFLOAT16:
        raise NotImplementedError("Cast to bfloat16")
    return x.astype(helper.tensor_dtype_to_np_dtype(attributes["to"]))


@_register(MOVEMENT, "Constant")
def constant(attributes: Attributes) -> Array:
    if "value" in attributes:
        return attributes["value"]
    for key, dtype in (("value_float", np.float32), ("value_floats", np.float32), ("value_int", np.int64)):
        if key in attributes:
            return np.asarray(attributes[key], dtype)
    return np.asarray(attributes["value_ints"], np.int64)


@_register(MOVEMENT, "ConstantOfShape")
def constant_of_shape(attributes: Attributes, shape: Array) -> Array:
    value = attributes.get("value", np.zeros(1, np.float32))
    return np.full(shape.tolist(), value[0], value.dtype)


@_register(MOVEMENT, "Shape")
def shape_of(attributes: Attributes, x: Array) -> Array:
    return np.asarray(x.shape[attributes.get("start", 0) : attributes.get("end")], np.int64)


@_register(MOVEMENT, "Gather")
def gather(attributes: Attributes, x: Array, indices: Array) -> Array:
    axis = attributes.get("axis", 0)
    if indices.size and (indices.min() < -x.shape[axis] or indices.max() >= x.shape[axis]):
        raise IndexError(f"Gather index outside 0..{x.shape[axis] - 1}: {indices.min()}..{indices.max()}")
    return np.take(x, indices, axis=axis)


@_register(MOVEMENT, "GatherElements")
def gather_elements(attributes: Attributes, x: Array, indices: Array) -> Array:
    return np.take_along_axis(x, indices, attributes.get("axis", 0))


@_register(MOVEMENT, "GatherND")
def gather_nd(attributes: Attributes, x: Array, indices: Array) -> Array:
    if attributes.get("batch_dims", 0):
        raise NotImplementedError("GatherND with batch_dims")
    return x[tuple(np.moveaxis(indices, -1, 0))]


@_register(MOVEMENT, "Slice")
def slice_(
    attributes: Attributes,
    x: Array,
    starts: Array,
    ends: Array,
    axes: Array | None = None,
    steps: Array | None = None,
) -> Array:
    chosen = range(len(starts)) if axes is None else axes.tolist()
    by = [1] * len(starts) if steps is None else steps.tolist()
    window = [slice(None)] * x.ndim
    for axis, start, end, step in zip(chosen, starts.tolist(), ends.tolist(), by, strict=True):
        stop = None if step < 0 and end < -x.shape[axis] else end
        window[axis] = slice(start, stop, step)
    return x[tuple(window)]


@_register(MOVEMENT, "Concat")
def concat(attributes: Attributes, *xs: Array) -> Array:
    return np.concatenate(xs, axis=attributes["axis"])


@_register(MOVEMENT, "Split")
def split(attributes: Attributes, x: Array, sizes: Array | None = None) -> tuple[Array, ...]:
    axis = attributes.get("axis", 0)
    if sizes is None:  # equal parts, the last one smaller
        chunk = -(-x.shape[axis] // attributes["num_outputs"])
        return tuple(np.split(x, range(chunk, x.shape[axis], chunk), axis))
    return tuple(np.split(x, np.cumsum(sizes)[:-1], axis))


@_register(MOVEMENT, "Reshape")
def reshape(attributes: Attributes, x: Array, shape: Array) -> Array:
    target = shape.tolist()
    if not attributes.get("allowzero", 0):
        target = [x.shape[i] if d == 0 else d for i, d in enumerate(target)]
    return x.reshape(target)


@_register(MOVEMENT, "Flatten")
def flatten(attributes: Attributes, x: Array) -> Array:
    return x.reshape(math.prod(x.shape[: attributes.get("axis", 1)]), -1)


@_register(MOVEMENT, "Transpose")
def transpose(attributes: Attributes, x: Array) -> Array:
    return np.transpose(x, attributes.get("perm"))


@_register(MOVEMENT, "Unsqueeze")
def unsqueeze(attributes: Attributes, x: Array, axes: Array) -> Array:
    return np.expand_dims(x, tuple(axes.tolist()))


@_register(MOVEMENT, "Squeeze")
def squeeze(attributes: Attributes, x: Array, axes: Array | None = None) -> Array:
    return np.squeeze(x, None if axes is None else tuple(axes.tolist()))


@_register(MOVEMENT, "Expand")
def expand(attributes: Attributes, x: Array, shape: Array) -> Array:
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(shape.tolist())))


@_register(MOVEMENT, "Pad")
def pad(
    attributes: Attributes, x: Array, pads: Array, value: Array | None = None, axes: Array | None = None
) -> Array:
    if attributes.get("mode", "constant") != "constant":
        raise NotImplementedError(f"Pad mode {attributes['mode']}")
    chosen = list(range(x.ndim)) if axes is None else [a % x.ndim for a in axes.tolist()]
    widths = [(0, 0)] * x.ndim
    for i, axis in enumerate(chosen):
        widths[axis] = (int(pads[i]), int(pads[i + len(chosen)]))
    return np.pad(x, widths, constant_values=0 if value is None else value.item())


def _along(parameter: Array, x: Array, axis: int) -> Array:
    """A per-tensor or per-channel parameter, shaped to broadcast against x."""
    return (
        parameter
        if parameter.ndim == 0
        else parameter.reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])
    )


@_register(MOVEMENT, "QuantizeLinear")
def quantize_linear(attributes: Attributes, x: Array, scale: Array, zero_point: Array | None = None) -> Array:
    """Round half to even and saturate, in float32."""
    zero = np.zeros((), np.uint8) if zero_point is None else zero_point
    axis = attributes.get("axis", 1)
    steps = np.rint(x.astype(np.float32) / _along(scale, x, axis).astype(np.float32))
    limits = np.iinfo(zero.dtype)
    return np.clip(steps + _along(zero, x, axis), limits.min, limits.max).astype(zero.dtype)


@_register(MOVEMENT, "DequantizeLinear")
def dequantize_linear(attributes: Attributes, x: Array, scale: Array, zero_point: Array | None = None) -> Array:
    """(x - zero point) * scale, in the type of the scale."""
    axis = attributes.get("axis", 1)
    zero = 0 if zero_point is None else _along(zero_point, x, axis).astype(np.int32)
    return ((x.astype(np.int32) - zero) * _along(scale, x, axis).astype(np.float32)).astype(scale.dtype)
