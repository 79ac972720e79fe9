"""Level L0: what an ONNX graph may hold, and that it is the graph that the manifest describes."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
import onnx
from onnx import numpy_helper

from hmerctl.export.parity.description import expected_metadata, metadata_fault, ports_fault
from hmerctl.export.parity.report import Finding, holds
from hmerctl.export.precision import FLOAT16_MAX
from hmerctl.runtime.bundle import Bundle
from hmerctl.runtime.manifest import Component, TensorSpec

FORBIDDEN = frozenset(
    "Loop If Scan NonZero ScatterND ScatterElements GatherND Sin Cos Range CumSum Unique TopK Einsum "
    "RandomNormal RandomUniform RandomNormalLike RandomUniformLike Dropout".split()
)
"""Never in a graph: control flow and data-dependent shapes (no accelerator takes them), position tables that should
be constants, chance."""

PORTABLE = frozenset(
    "Add Sub Mul Div Neg Abs Sqrt Reciprocal Pow Exp Log Erf Tanh Sigmoid Relu LeakyRelu Elu Clip Min Max Where Less "
    "LessOrEqual Greater GreaterOrEqual Equal And Or Not Cast Concat Split Slice Gather Unsqueeze Squeeze Reshape "
    "Transpose Expand Flatten Shape Constant ConstantOfShape Tile Pad Identity Conv MaxPool AveragePool "
    "GlobalAveragePool MatMul Gemm Softmax LogSoftmax LayerNormalization BatchNormalization ReduceSum ReduceMean "
    "ReduceMax ReduceMin GRU".split()
)
"""Operators of opset 17 that onnxruntime (CPU, web, mobile) and TensorRT 10.3 both run in these graphs' forms."""


def check_onnx_bundle(bundle: Bundle, allowed: frozenset[str]) -> list[Finding]:
    """All checks on all components of a bundle whose components are ONNX files."""
    findings: list[Finding] = []
    for component in bundle.manifest.components:
        model = onnx.load(bundle.file(component.file), load_external_data=False)
        expected = expected_metadata(bundle, component)
        findings += check_onnx(component, model, allowed, bundle.manifest.target.opset, expected)
    return findings


def check_onnx(
    component: Component, model: onnx.ModelProto, allowed: frozenset[str], opset: int | None, metadata: dict[str, str]
) -> list[Finding]:
    """The checks on one graph.

    Args:
        component: what the manifest says of it.
        allowed: operators that the target takes.
        opset: of the default domain.
        metadata: entries that the graph's metadata must have.
    """
    inputs, outputs = ([describe(value) for value in ports] for ports in (model.graph.input, model.graph.output))
    metadata_found = {entry.key: entry.value for entry in model.metadata_props}
    checks = [
        ("operators", _operators(model, allowed)),
        ("no control flow, chance or computed position tables", _forbidden(model)),
        ("valid ONNX", _invalid(model)),
        ("opset", _opset(model, opset)),
        ("inputs as in the manifest", ports_fault(inputs, component.inputs)),
        ("outputs as in the manifest", ports_fault(outputs, component.outputs)),
        ("int32 ids", _wide_ids([*inputs, *outputs])),
        ("batch norms folded", _unfolded(model)),
        ("constants finite and within fp16", _large_constants(model)),
        ("metadata as in the manifest", metadata_fault(metadata_found, metadata)),
        ("no external data", _external(model)),
    ]
    return [holds("L0", f"{component.name}: {check}", not fault, fault) for check, fault in checks]


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Every node, those in the bodies of control flow included."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from all_nodes(attribute.g)


def _operators(model: onnx.ModelProto, allowed: frozenset[str]) -> str:
    other = Counter(
        f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        for node in all_nodes(model.graph)
        if node.domain or node.op_type not in allowed
    )
    return ", ".join(f"{count} x {name}" for name, count in sorted(other.items()))


def _forbidden(model: onnx.ModelProto) -> str:
    return ", ".join(sorted({node.op_type for node in all_nodes(model.graph)} & FORBIDDEN))


def _invalid(model: onnx.ModelProto) -> str:
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return str(error).strip().splitlines()[0]
    return ""


def _opset(model: onnx.ModelProto, opset: int | None) -> str:
    versions = {entry.domain: entry.version for entry in model.opset_import}
    return "" if versions.get("") == opset else f"{versions.get('')}, the manifest says {opset}"


def describe(value: onnx.ValueInfoProto) -> TensorSpec:
    """An input or output as a manifest describes it."""
    tensor = value.type.tensor_type
    shape = tuple(dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in tensor.shape.dim)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
    return TensorSpec.model_construct(name=value.name, dtype=dtype, shape=shape)


def _wide_ids(ports: list[TensorSpec]) -> str:
    wide = [f"{spec.name} is {spec.dtype}" for spec in ports if spec.dtype in ("int64", "float64", "double")]
    ids = [spec for spec in ports if spec.name in ("token", "position", "size")]
    return ", ".join(wide + [f"{spec.name} is {spec.dtype}" for spec in ids if spec.dtype != "int32"])


def _unfolded(model: onnx.ModelProto) -> str:
    convolved = {name for node in model.graph.node if node.op_type == "Conv" for name in node.output}
    return ", ".join(
        node.name or node.output[0]
        for node in model.graph.node
        if node.op_type == "BatchNormalization" and node.input[0] in convolved
    )


def _large_constants(model: onnx.ModelProto) -> str:
    """A constant beyond float16, or infinite, would become NaN in a target of lower precision."""
    faults = []
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.dtype.kind == "f" and values.size and not bool(np.all(np.abs(values) <= FLOAT16_MAX)):
            faults.append(f"{tensor.name} reaches {np.abs(values).max()}")
    return ", ".join(faults)


def _external(model: onnx.ModelProto) -> str:
    outside = [t.name for t in model.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL]
    return ", ".join(outside)
