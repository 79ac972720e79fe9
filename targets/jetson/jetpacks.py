"""What the TensorRT of each JetPack reads: versions, operators and their limits, with the sources.

Sources:
    JetPack and TensorRT: NVIDIA's JetPack release notes; for 7.2.2 and TensorRT 11.4.1 (Jetson AGX Orin and Thor;
    Orin on JetPack 6 stays with 10.x) "Migrating TensorRT from 10.x to 11.x on Jetson/JetPack", TensorRT
    documentation 11.4.1.
    Operators: docs/operators.md of github.com/onnx/onnx-tensorrt, as shipped with TensorRT 8.5 (commit 6d0ab7be) and
    10.15, and its docs/Changelog.md for the releases between: what 8.5 or the changelog up to 10.3 has and 10.15
    still has, is in 10.3. For 11.x the ONNX opset guide (documentation 11.4) points to the same list; its own was
    not read.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from hmerctl.export.parity.graphs import all_nodes
from hmerctl.export.parity.report import Finding, holds

Version = tuple[int, int]


@dataclass(frozen=True)
class JetPack:
    """One line of JetPack releases.

    Attributes:
        releases: in NVIDIA's words.
        tensorrt: major and minor.
        opset: largest ONNX opset of the parser.
        typed_flag: whether trtexec and the builder must be told that the network is strongly typed.
    """

    releases: str
    tensorrt: Version
    opset: int
    typed_flag: bool


JETPACKS = (
    JetPack("6.1, 6.2", (10, 3), 20, typed_flag=True),
    JetPack("7.0", (10, 13), 24, typed_flag=True),
    JetPack("7.2", (10, 16), 24, typed_flag=True),
    JetPack("7.2.2", (11, 4), 25, typed_flag=False),
)
"""JetPack 5 is not among them: its TensorRT 8.5 has no LayerNormalization and no strongly typed networks."""

FLOATS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16})
INTEGERS = frozenset({TensorProto.INT32, TensorProto.INT64})
BOOLS = frozenset({TensorProto.BOOL})

COMPARISONS = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal")

OPERATORS: dict[str, frozenset[int]] = {
    **dict.fromkeys("Add Sub Mul Div Abs Neg Max Min Pow".split(), FLOATS | INTEGERS),
    **dict.fromkeys(COMPARISONS, FLOATS | INTEGERS),
    **dict.fromkeys("ReduceSum ReduceMean ReduceMax ReduceMin".split(), FLOATS | INTEGERS),
    **dict.fromkeys("Sqrt Exp Log Erf Sigmoid Tanh Relu LeakyRelu Elu Clip Reciprocal".split(), FLOATS),
    **dict.fromkeys("Conv ConvTranspose Gemm MatMul MaxPool AveragePool GlobalAveragePool".split(), FLOATS),
    "GRU": FLOATS,
    **dict.fromkeys("Softmax LogSoftmax LayerNormalization BatchNormalization".split(), FLOATS),
    **dict.fromkeys("Concat Gather GatherElements Reshape Flatten Slice".split(), FLOATS | INTEGERS | BOOLS),
    **dict.fromkeys("Squeeze Unsqueeze Transpose Shape Expand Tile".split(), FLOATS | INTEGERS | BOOLS),
    **dict.fromkeys("Split Where Identity Cast Constant ConstantOfShape".split(), FLOATS | INTEGERS | BOOLS),
    "Pad": FLOATS | INTEGERS,
    **dict.fromkeys("And Or Not".split(), BOOLS),
    "QuantizeLinear": FLOATS | {TensorProto.INT8},
    "DequantizeLinear": FLOATS | {TensorProto.INT8},
}
"""Operator to the types of its tensors; the same for TensorRT 10.3 to 11. LayerNormalization came with 8.6,
Reciprocal with 9, native INT64 with 9. Types of operands that are shapes or indices are INT64 or INT32."""

CONSTANT_OPERANDS = {
    **dict.fromkeys("ReduceSum ReduceMean ReduceMax ReduceMin".split(), (1,)),
    **dict.fromkeys("Squeeze Unsqueeze".split(), (1,)),  # dynamic axes: from 10.7 on
    **dict.fromkeys("QuantizeLinear DequantizeLinear".split(), (1, 2)),
}
"""Operands that must be initialisers."""


def check_for_jetpacks(name: str, model: onnx.ModelProto) -> list[Finding]:
    """One finding per JetPack: whether the table takes every node of the graph.

    Args:
        name: of the component, for the findings.
    """
    faults = list(dict.fromkeys(operator_faults(model)))
    opset = next(entry.version for entry in model.opset_import if entry.domain == "")
    findings = []
    for jetpack in JETPACKS:
        own = [f"opset {opset} > {jetpack.opset}"] if opset > jetpack.opset else []
        label = f"{name}: TensorRT {jetpack.tensorrt[0]}.{jetpack.tensorrt[1]} (JetPack {jetpack.releases}) operators"
        findings.append(holds("L0", label, not (own + faults), "; ".join((own + faults)[:5])))
    return findings


def operator_faults(model: onnx.ModelProto) -> Iterator[str]:
    """What the table does not take, a line each, beginning with operator and node name."""
    inferred = onnx.shape_inference.infer_shapes(model).graph
    types = {t.name: t.data_type for t in inferred.initializer}
    types |= {v.name: v.type.tensor_type.elem_type for v in (*inferred.input, *inferred.value_info, *inferred.output)}
    constants = {t.name: t for t in model.graph.initializer}
    for node in all_nodes(model.graph):
        where = f"{node.op_type} {node.name or node.output[0]}"
        if node.domain or node.op_type not in OPERATORS:
            yield f"{where}: not in the table"
            continue
        allowed = OPERATORS[node.op_type]
        data = node.input[1:2] if node.op_type == "Where" else node.input[:1]
        results = () if node.op_type in COMPARISONS else node.output
        others = {types.get(n, 0) for n in (*data, *results) if n} - allowed
        if others:
            yield f"{where}: type {', '.join(TensorProto.DataType.Name(t) for t in sorted(others))}"
        for index in CONSTANT_OPERANDS.get(node.op_type, ()):
            if index < len(node.input) and node.input[index] not in constants:
                yield f"{where}: operand {index} is not a constant"
        yield from _limits(node, where, constants)


def _limits(node: onnx.NodeProto, where: str, constants: dict[str, TensorProto]) -> Iterator[str]:
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type == "LayerNormalization" and len([o for o in node.output if o]) > 1:
        yield f"{where}: only the first output is supported"
    if node.op_type in ("MaxPool", "AveragePool"):
        if any(d != 1 for d in attributes.get("dilations", [])):
            yield f"{where}: dilations"
        if len([o for o in node.output if o]) > 1:
            yield f"{where}: output Indices"
    if node.op_type == "GRU":
        functions = attributes.get("activations", [])
        if functions[2:] and functions[:2] != functions[2:]:
            yield f"{where}: other activations in the second direction"
    if node.op_type in ("QuantizeLinear", "DequantizeLinear") and len(node.input) == 3:
        zero = constants.get(node.input[2])
        if zero is not None and (zero.data_type != TensorProto.INT8 or np.any(numpy_helper.to_array(zero))):
            yield f"{where}: zero point must be int8 0"
