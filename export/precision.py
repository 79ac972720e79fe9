"""float32 ONNX graphs to float16, strongly typed: the precision stands in the graph, as weights and Casts.

Products (Conv, Gemm, MatMul) become float16. What is known to lose there stays float32: the input of every softmax,
layer norm with its statistics, reductions, the last projection before the log-probabilities, and every tensor that
adds up over the steps (coverage, attention spent, recurrent state). Everything between follows its consumers: a node
is float32 as soon as one of them is. Casts are made explicit, so that a strongly typed engine (TensorRT 10 with its
flag, 11 always) computes exactly what the graph says, and ``evaluate16`` can compute the same here.
"""

import copy
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from hmerctl.runtime.errors import HmerError
from hmerctl.runtime.state import StateSpec

HALF, SINGLE = TensorProto.FLOAT16, TensorProto.FLOAT

FLOAT16_MAX = 65504.0
"""The largest float16."""

PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Operators worth float16: they hold the weights and the arithmetic."""

FOLLOWERS = frozenset(
    """Add Sub Mul Div Neg Abs Relu LeakyRelu Clip Sigmoid Tanh Max Min Where Cast Concat Split Reshape Flatten
    Transpose Slice Gather GatherND GatherElements Unsqueeze Squeeze Expand Tile Identity Pad MaxPool AveragePool
    ConstantOfShape""".split()
)
"""Operators that take the precision of what reads their result. Any operator in neither set stays float32: softmax,
layer norm, reductions, powers, and GRU, whose state accumulates."""


class PrecisionError(HmerError):
    """A graph cannot be converted to another precision."""


@dataclass(frozen=True)
class HalfPolicy:
    """What becomes float16.

    Attributes:
        half_tensors: inputs and outputs of the graph that become float16; the others keep float32, cast inside.
        single_nodes: names of nodes that stay float32 although their operator is a product.
        single_projection: keep the product whose result goes into LogSoftmax in float32: it is small, and ties
            between hypotheses are decided there.
    """

    half_tensors: frozenset[str] = frozenset()
    single_nodes: frozenset[str] = frozenset()
    single_projection: bool = True


def half_interface(memory: Iterable[str], states: Iterable[StateSpec]) -> frozenset[str]:
    """The inputs and outputs that are float16 in an encoder-step pair, by name.

    Keys, values and appended caches, which are read by products and make up the traffic. The mask of the memory and
    states that are replaced in every step (they accumulate) stay float32, and so do raster, log-probabilities and
    attention.
    """
    names = {name for name in memory if not name.endswith("mask")}
    for state in states:
        if state.update == "append":
            names |= {state.name, f"next_{state.name}"}
    return frozenset(names)


def to_half(model: onnx.ModelProto, policy: HalfPolicy | None = None) -> onnx.ModelProto:
    """A float16 copy of a float32 graph (which may hold QuantizeLinear and DequantizeLinear; those stay float32).

    Raises:
        PrecisionError: a weight does not fit float16, a type cannot be inferred, or the policy names a tensor or node
            that the graph does not have.
    """
    return _Conversion(model, policy or HalfPolicy()).run()


class _Conversion:
    def __init__(self, model: onnx.ModelProto, policy: HalfPolicy) -> None:
        self.model = copy.deepcopy(model)
        self.policy = policy
        _constants_to_initializers(self.model.graph)
        graph = self.model.graph
        self.floats = _float_tensors(self.model)
        self.weights = {t.name: t for t in graph.initializer if t.name in self.floats}
        self.readers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
        self.writer: dict[str, onnx.NodeProto] = {}
        for node in graph.node:
            for name in node.input:
                self.readers[name].append(node)
            for name in node.output:
                self.writer[name] = node
        self.outputs = {o.name for o in graph.output}
        self._check_policy()

    def _check_policy(self) -> None:
        graph = self.model.graph
        io = {v.name for v in (*graph.input, *graph.output)}
        missing = (self.policy.half_tensors & self.floats) - io
        missing |= self.policy.single_nodes - {n.name for n in graph.node}
        if missing:
            raise PrecisionError(f"graph {graph.name!r} has no input, output or node {', '.join(sorted(missing))}")

    def run(self) -> onnx.ModelProto:
        graph = self.model.graph
        precision = self._assign()
        held = {i.name: self._io_type(i.name) for i in graph.input if i.name in self.floats}
        cast: dict[tuple[str, int], str] = {}
        weights: dict[str, TensorProto] = {t.name: t for t in graph.initializer if t.name not in self.weights}
        nodes: list[onnx.NodeProto] = []

        def as_type(name: str, wanted: int) -> str:
            """The tensor ``name`` in the wanted float type: itself, a converted weight, or a Cast of it."""
            if name in self.weights:
                stored = name if wanted == SINGLE else f"{name}_half"
                if stored not in weights:
                    weights[stored] = (
                        self.weights[name] if wanted == SINGLE else _half_weight(name, self.weights[name])
                    )
                return stored
            if held[name] == wanted:
                return name
            if (name, wanted) not in cast:
                target = f"{name}_{'half' if wanted == HALF else 'single'}"
                nodes.append(helper.make_node("Cast", [name], [target], name=f"{target}_cast", to=wanted))
                cast[name, wanted] = target
            return cast[name, wanted]

        for node in graph.node:
            wanted = precision[node.name]
            for i, name in enumerate(node.input):
                if name in self.floats:
                    node.input[i] = as_type(name, wanted)
            _retype(node, wanted, self.floats)
            nodes.append(node)
            held.update({name: wanted for name in node.output if name in self.floats})
        for output in graph.output:
            if output.name in self.floats and held[output.name] != self._io_type(output.name):
                inner = f"{output.name}_inner"
                _rename(nodes, output.name, inner)
                wanted = self._io_type(output.name)
                nodes.append(helper.make_node("Cast", [inner], [output.name], name=f"{output.name}_cast", to=wanted))
        for value in (*graph.input, *graph.output):
            if value.name in self.floats:
                value.type.tensor_type.elem_type = self._io_type(value.name)
        for repeated, kept in ((graph.node, nodes), (graph.initializer, list(weights.values()))):
            del repeated[:]
            repeated.extend(kept)
        del graph.value_info[:]
        _check_types(self.model)
        return self.model

    def _io_type(self, name: str) -> int:
        return HALF if name in self.policy.half_tensors else SINGLE

    def _assign(self) -> dict[str, int]:
        """The float type of every node, by name; nodes are visited from the outputs to the inputs."""
        precision: dict[str, int] = {}
        for node in reversed(self.model.graph.node):
            if node.op_type in PRODUCTS:
                half = not self._kept_single(node)
            elif node.op_type in FOLLOWERS:
                half = not self._feeds_single(node, precision)
            else:
                half = False
            precision[node.name] = HALF if half else SINGLE
        return precision

    def _kept_single(self, node: onnx.NodeProto) -> bool:
        if node.name in self.policy.single_nodes:
            return True
        if any(name in self.writer and self.writer[name].op_type == "DequantizeLinear" for name in node.input):
            return True  # an engine fuses the quantised product only if nothing stands between
        readers = [reader.op_type for name in node.output for reader in self.readers[name]]
        return self.policy.single_projection and "LogSoftmax" in readers

    def _feeds_single(self, node: onnx.NodeProto, precision: dict[str, int]) -> bool:
        for name in node.output:
            if name in self.floats:
                if name in self.outputs and self._io_type(name) == SINGLE:
                    return True
                if any(precision[reader.name] == SINGLE for reader in self.readers[name]):
                    return True
        # A Cast of a float to an integer, or a choice between integers, has no float result: keep what it reads.
        return not any(name in self.floats for name in node.output)


def _constants_to_initializers(graph: onnx.GraphProto) -> None:
    """Constant nodes become initialisers, and every node gets a unique name."""
    kept, seen = [], set()
    for index, node in enumerate(graph.node):
        if node.op_type == "Constant":
            (attribute,) = node.attribute
            value = helper.get_attribute_value(attribute)
            if not isinstance(value, TensorProto):
                kind = np.float32 if attribute.name.startswith("value_float") else np.int64
                value = numpy_helper.from_array(np.asarray(value, kind))
            value.name = node.output[0]
            graph.initializer.append(value)
            continue
        if not node.name or node.name in seen:
            node.name = f"{node.op_type}_{index}"
        seen.add(node.name)
        kept.append(node)
    del graph.node[:]
    graph.node.extend(kept)


def _float_tensors(model: onnx.ModelProto) -> set[str]:
    """Names of all float32 tensors; every tensor's type must be known."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    types = {t.name: t.data_type for t in graph.initializer}
    types |= {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.value_info, *graph.output)}
    unknown = [o for n in graph.node for o in n.output if o and not types.get(o)]
    if unknown:
        raise PrecisionError(f"graph {graph.name!r}: the type of {unknown[0]!r} cannot be inferred")
    if HALF in types.values():
        raise PrecisionError(f"graph {graph.name!r} holds float16 already")
    return {name for name, kind in types.items() if kind == SINGLE}


def _half_weight(name: str, weight: TensorProto) -> TensorProto:
    values = numpy_helper.to_array(weight)
    with np.errstate(over="ignore"):
        half = values.astype(np.float16)
    if not np.isfinite(half).all():
        raise PrecisionError(f"weight {name!r} reaches {np.abs(values).max():.3g}, float16 ends at {FLOAT16_MAX:.0f}")
    return numpy_helper.from_array(half, f"{name}_half")


def _retype(node: onnx.NodeProto, wanted: int, floats: Collection[str]) -> None:
    """Adapt the attributes that state a float type."""
    if not any(name in floats for name in node.output):
        return
    if node.op_type == "Cast":
        next(a for a in node.attribute if a.name == "to").i = wanted
    elif node.op_type == "ConstantOfShape":
        given = [numpy_helper.to_array(a.t) for a in node.attribute]
        value = (given[0] if given else np.zeros(1)).astype(helper.tensor_dtype_to_np_dtype(wanted))
        del node.attribute[:]
        node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(value)))


def _rename(nodes: Iterable[onnx.NodeProto], old: str, new: str) -> None:
    for node in nodes:
        for names in (node.input, node.output):
            for i, name in enumerate(names):
                if name == old:
                    names[i] = new


def _check_types(model: onnx.ModelProto) -> None:
    try:
        onnx.checker.check_model(onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True))
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise PrecisionError(f"graph {model.graph.name!r} is not well typed: {str(error).splitlines()[0]}") from error


def precision_of(model: onnx.ModelProto) -> dict[str, str]:
    """``float16``, ``float32`` or ``int8`` (between Quantize-Dequantize pairs) for every product, by node name."""
    inferred = onnx.shape_inference.infer_shapes(model).graph
    kinds = {v.name: v.type.tensor_type.elem_type for v in (*inferred.value_info, *inferred.output)}
    restored = {name for n in model.graph.node if n.op_type == "DequantizeLinear" for name in n.output}
    return {
        n.name: "int8"
        if restored.issuperset(n.input[:2])
        else helper.tensor_dtype_to_np_dtype(kinds[n.output[0]]).name
        for n in model.graph.node
        if n.op_type in PRODUCTS
    }


def unexpected_products(model: onnx.ModelProto, single: bool) -> list[str]:
    """Products that a graph does not compute in the precision that it is meant to have.

    Args:
        single: meant to be float32 throughout. Otherwise every product is meant to be float16 or int8, but for the
            one before the log-probabilities (see ``HalfPolicy.single_projection``).
    """
    ends = {name for n in model.graph.node if n.op_type == "LogSoftmax" for name in n.input}
    last = {n.name for n in model.graph.node if ends.intersection(n.output)}
    return [
        f"{name} is {precision}"
        for name, precision in precision_of(model).items()
        if (precision != "float32" if single else precision == "float32" and name not in last)
    ]
