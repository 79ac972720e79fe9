"""An evaluator that computes an ONNX graph in the types the graph states, float16 included.

onnxruntime's CPU provider widens float16 graphs to float32 inside, so an overflow never shows there. Here every
operator reads float16, computes in float32 and rounds its result to float16 once: what a tensor core with a
float32 accumulator does, and an upper bound on the roundings of an engine that fuses operators (a fused engine
skips some). Some kernels accumulate in float16 as well; ``accumulate="half"`` rounds the running sum every
``BLOCK`` terms, which shows an overflow or a loss of small terms inside a sum.

Example:
    >>> evaluator = Evaluator(onnx.load("encoder.onnx"))
    >>> memory = evaluator.run({"raster": raster, "size": size})
    >>> evaluator.overflows
    []
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
from onnx import helper, numpy_helper

from hmerctl.export.evaluate_ops import ARITHMETIC, MOVEMENT, Array, tensor
from hmerctl.export.precision import FLOAT16_MAX
from hmerctl.runtime.errors import HmerError

BLOCK = 16
"""Terms that one tensor-core instruction adds before the sum is stored (the K of an m16n8k16 MMA)."""

FLOAT16_LIMIT = 65520.0
"""From here on the nearest float16 is infinity."""


class EvaluationError(HmerError):
    """A graph holds an operator, a type or a shape that cannot be evaluated as stated."""


@dataclass(frozen=True)
class Overflow:
    """A float16 result that is not finite although its inputs were.

    Attributes:
        node, op: name and type of the operator.
        tensor: the output.
        peak: largest absolute value before rounding to float16.
        count: number of elements that are not finite.
    """

    node: str
    op: str
    tensor: str
    peak: float
    count: int

    def __str__(self) -> str:
        return f"{self.op} {self.node!r}: |{self.tensor}| reaches {self.peak:.4g} > {FLOAT16_MAX:.0f} ({self.count})"


@dataclass(frozen=True)
class _Node:
    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    last_use: tuple[str, ...]
    """Tensors that no later node reads: freed after this one."""


def widen(x: Array) -> Array:
    """float16 to float32, exact; other types unchanged."""
    return tensor(x).float().numpy() if x.dtype == np.float16 else x


def narrow(x: Array) -> Array:
    """float32 to float16, rounded to nearest even; too large becomes infinite."""
    return tensor(x.astype(np.float32, copy=False)).half().numpy()


class Evaluator:
    """Evaluates one graph, op by op.

    Attributes:
        overflows: of the last ``run``.
        peaks: largest absolute value, before rounding, of each float16 result that fitted, over all runs; its
            distance to 65504 is the headroom of the graph.
    """

    def __init__(self, model: onnx.ModelProto | Path | str, accumulate: Literal["single", "half"] = "single") -> None:
        """Prepare a graph.

        Raises:
            EvaluationError: the graph holds an operator that is not covered; it is named.
        """
        if not isinstance(model, onnx.ModelProto):
            model = onnx.load(str(model))
        self.accumulate = accumulate
        self.overflows: list[Overflow] = []
        self.peaks: dict[str, float] = {}
        graph = model.graph
        self._constants = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
        self._wide = {name: widen(x) for name, x in self._constants.items() if x.dtype == np.float16}
        self._inputs = {i.name: i for i in graph.input if i.name not in self._constants}
        self.outputs = tuple(o.name for o in graph.output)
        unknown = sorted({n.op_type for n in graph.node if n.domain or n.op_type not in ARITHMETIC | MOVEMENT})
        if unknown:
            raise EvaluationError(f"graph {graph.name!r}: no evaluation of operator {', '.join(unknown)}")
        self._nodes = _schedule(graph, keep={*self._constants, *self.outputs})

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the graph's inputs."""
        return tuple(self._inputs)

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Compute the graph's outputs.

        Args:
            feeds: every input by name, in exactly the graph's types.

        Raises:
            EvaluationError: a missing input, a wrong type or rank, operands of different float types (a strongly
                typed engine refuses those too), or an operator's option that is not covered; the node is named.
        """
        self._check(feeds)
        self.overflows = []
        values: dict[str, Array] = {**self._constants, **feeds}
        with np.errstate(all="ignore"):
            for node in self._nodes:
                results = self._compute(node, [values[i] if i else None for i in node.inputs])
                values.update(zip(node.outputs, results, strict=False))
                for name in node.last_use:
                    values.pop(name, None)
        return {name: np.array(values[name]) for name in self.outputs}

    def _check(self, feeds: Mapping[str, Array]) -> None:
        for name, info in self._inputs.items():
            if name not in feeds:
                raise EvaluationError(f"input {name!r} is missing")
            stated = info.type.tensor_type
            want, got = helper.tensor_dtype_to_np_dtype(stated.elem_type), feeds[name]
            if got.dtype != want:
                raise EvaluationError(f"input {name!r} is {got.dtype}, the graph says {want}")
            dims = [d.dim_value or None for d in stated.shape.dim]
            if len(dims) != got.ndim or any(d not in (None, g) for d, g in zip(dims, got.shape, strict=True)):
                raise EvaluationError(f"input {name!r} has shape {got.shape}, the graph says {dims}")

    def _compute(self, node: _Node, inputs: list[Array | None]) -> Sequence[Array]:
        try:
            if node.op in MOVEMENT:
                _same_float_type(node, inputs)
                result = MOVEMENT[node.op](node.attributes, *inputs)
                return result if isinstance(result, tuple) else (np.asarray(result),)
            dtype = _same_float_type(node, inputs)
            if dtype != np.float16:
                result = ARITHMETIC[node.op](node.attributes, *inputs)
                results = [np.asarray(r) for r in (result if isinstance(result, tuple) else (result,))]
                return [r if dtype is None else r.astype(dtype, copy=False) for r in results]
            if node.op == "GRU":
                raise NotImplementedError("float16: the state would be rounded at every step")
            wide = [
                self._wide[name] if name in self._wide else None if x is None else widen(x)
                for name, x in zip(node.inputs, inputs, strict=True)
            ]
            if self.accumulate == "half" and node.op in _BLOCKED:
                result = _BLOCKED[node.op](node.attributes, *wide)
            else:
                result = ARITHMETIC[node.op](node.attributes, *wide)
            exact = np.asarray(result, np.float32)
            rounded = narrow(exact)
            self._watch(node, inputs, exact, rounded)
            return (rounded,)
        except (NotImplementedError, IndexError, KeyError, ValueError, RuntimeError) as error:
            raise EvaluationError(f"{node.op} {node.name!r}: {error}") from error

    def _watch(self, node: _Node, inputs: list[Array | None], exact: Array, rounded: Array) -> None:
        name = node.outputs[0]
        peak = float(tensor(exact).abs().max()) if exact.size else 0.0
        if peak < FLOAT16_LIMIT:
            self.peaks[name] = max(self.peaks.get(name, 0.0), peak)
        elif all(x is None or np.isfinite(x).all() for x in inputs):
            count = int((~np.isfinite(rounded)).sum())
            self.overflows.append(Overflow(node.name, node.op, name, peak, count))


def _schedule(graph: onnx.GraphProto, keep: set[str]) -> list[_Node]:
    """The nodes in graph order, each with the tensors that are read for the last time there."""
    last: dict[str, int] = {}
    for index, node in enumerate(graph.node):
        last.update(dict.fromkeys(node.input, index))
    ends: dict[int, list[str]] = {}
    for name, index in last.items():
        if name and name not in keep:
            ends.setdefault(index, []).append(name)
    nodes = []
    for index, node in enumerate(graph.node):
        attributes = {a.name: _attribute(a) for a in node.attribute}
        if node.op_type == "AveragePool":
            attributes.setdefault("count_include_pad", 0)
        elif node.op_type == "Split":
            attributes.setdefault("num_outputs", len(node.output))
        nodes.append(
            _Node(
                node.op_type,
                node.name or node.output[0],
                tuple(node.input),
                tuple(node.output),
                attributes,
                tuple(ends.get(index, ())),
            )
        )
    return nodes


def _attribute(attribute: onnx.AttributeProto) -> Any:
    value = helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return value.decode() if isinstance(value, bytes) else value


def _same_float_type(node: _Node, inputs: Sequence[Array | None]) -> np.dtype | None:
    """The one float type among the operands, or None; Quantize, Dequantize and Cast may mix."""
    floats = {x.dtype for x in inputs if x is not None and np.issubdtype(x.dtype, np.floating)}
    if len(floats) > 1 and node.op not in ("QuantizeLinear", "DequantizeLinear"):
        kinds = ", ".join(sorted(str(f) for f in floats))
        raise EvaluationError(f"{node.op} {node.name!r}: operands of different types ({kinds})")
    return next(iter(floats), None)


def _round(x: Array) -> Array:
    return widen(narrow(x))


def _blocked_matmul(attributes: dict[str, Any], a: Array, b: Array) -> Array:
    total = np.zeros((), np.float32)
    for k in range(0, a.shape[-1], BLOCK):
        rows = b[..., k : k + BLOCK, :] if b.ndim > 1 else b[k : k + BLOCK]
        total = _round(total + np.matmul(a[..., k : k + BLOCK], rows))
    return total


def _blocked_gemm(attributes: dict[str, Any], a: Array, b: Array, c: Array | None = None) -> Array:
    a = a.T if attributes.get("transA", 0) else a
    b = b.T if attributes.get("transB", 0) else b
    product = _round(attributes.get("alpha", 1.0) * _blocked_matmul({}, a, b))
    return product if c is None else product + attributes.get("beta", 1.0) * c


def _blocked_conv(attributes: dict[str, Any], x: Array, weight: Array, bias: Array | None = None) -> Array:
    """Sums over blocks of input channels and one kernel tap at a time, in that order."""
    if attributes.get("group", 1) != 1:
        return ARITHMETIC["Conv"](attributes, x, weight, bias)
    total: Array = np.zeros((), np.float32)
    for c in range(0, weight.shape[1], BLOCK):
        for tap in np.ndindex(*weight.shape[2:]):
            part = np.zeros_like(weight[:, c : c + BLOCK])
            part[(slice(None), slice(None), *tap)] = weight[(slice(None), slice(c, c + BLOCK), *tap)]
            total = _round(total + ARITHMETIC["Conv"](attributes, x[:, c : c + BLOCK], part))
    return total if bias is None else total + bias.reshape(1, -1, *[1] * (x.ndim - 2))


def _half_sum(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    moved = np.moveaxis(x, axes, range(-len(axes), 0)).reshape(
        *[n for i, n in enumerate(x.shape) if i not in axes], -1
    )
    total = np.zeros(moved.shape[:-1], np.float32)
    for k in range(0, moved.shape[-1], BLOCK):
        total = _round(total + moved[..., k : k + BLOCK].sum(-1))
    return np.expand_dims(total, axes) if keepdims else total


def _blocked_reduce(mean: bool) -> Any:
    def apply(attributes: dict[str, Any], x: Array, axes: Array | None = None) -> Array:
        chosen = attributes.get("axes") if axes is None else axes.tolist()
        axis = tuple(a % x.ndim for a in (chosen or range(x.ndim)))
        total = _half_sum(x, axis, bool(attributes.get("keepdims", 1)))
        return total / np.prod([x.shape[a] for a in axis]) if mean else total

    return apply


def _half_layer_norm(attributes: dict[str, Any], x: Array, scale: Array, bias: Array | None = None) -> Array:
    """Layer norm whose statistics are float16: where large activations overflow when squared."""
    axes = tuple(range(attributes.get("axis", -1) % x.ndim, x.ndim))
    count = np.prod([x.shape[a] for a in axes])
    centred = _round(x - _round(_half_sum(x, axes, True) / count))
    variance = _round(_half_sum(_round(centred * centred), axes, True) / count)
    normed = _round(centred / _round(np.sqrt(_round(variance + np.float32(attributes.get("epsilon", 1e-5))))))
    return normed * scale if bias is None else _round(normed * scale) + bias


def _half_softmax(attributes: dict[str, Any], x: Array) -> Array:
    axis = attributes.get("axis", -1) % x.ndim
    powers = _round(np.exp(_round(x - x.max(axis, keepdims=True))))
    return powers / _half_sum(powers, (axis,), True)


_BLOCKED = {
    "MatMul": _blocked_matmul,
    "Gemm": _blocked_gemm,
    "Conv": _blocked_conv,
    "ReduceSum": _blocked_reduce(mean=False),
    "ReduceMean": _blocked_reduce(mean=True),
    "LayerNormalization": _half_layer_norm,
    "Softmax": _half_softmax,
}
