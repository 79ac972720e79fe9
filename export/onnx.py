"""Graphs to ONNX: dynamic where a target can have it, fixed where it must be, and described by their metadata."""

import contextlib
import logging
import warnings
from collections.abc import Iterable, Iterator, Mapping

import onnx
import torch
from torch.export import Dim

from hmerctl.export.graphs import Graph, complete_sizes, fixed
from hmerctl.export.opset import lower_to_17
from hmerctl.runtime.errors import HmerError
from hmerctl.runtime.manifest import TensorSpec
from hmerctl.train.models.parts import MAX_STEPS

OPSET = 17
"""The lowest with LayerNormalization as one operator; read by every runtime and TensorRT in use."""

_EXPORTED_OPSET = 18
"""The lowest that the exporter itself writes."""

_EXAMPLE = {"batch": 2, "rows": 4, "columns": 9, "beam": 3, "time": 16}
"""Lengths of dynamic axes while tracing: all different, none 1 (a batch of 1 would be taken for a constant)."""

_LONGEST = {"batch": 64, "beam": 64, "rows": 64, "columns": 256, "time": MAX_STEPS}


class ExportError(HmerError):
    """A graph cannot be converted."""


def to_onnx(
    graph: Graph, sizes: Mapping[str, int] | None = None, metadata: Mapping[str, str] | None = None
) -> onnx.ModelProto:
    """Convert a graph.

    Args:
        graph: from ``take_apart``.
        sizes: axes to make constant, e.g. ``{"batch": 1, "height": 64, "width": 128}``; the others stay dynamic.
        metadata: strings for the model's ``metadata_props``.

    Raises:
        ExportError: the exporter made a dynamic axis constant, or gave the graph other inputs than it has.
    """
    sizes = dict(sizes or {})
    example = complete_sizes({**_EXAMPLE, **complete_sizes(sizes, graph.stride)}, graph.stride)
    inputs = fixed(graph.inputs, sizes, graph.stride)
    outputs = fixed(graph.outputs, sizes, graph.stride)
    axes: tuple[object, ...] = tuple(_dynamic_axes(spec, graph.stride) for spec in inputs)
    if graph.role == "step":  # its forward is (token, position, *tensors)
        axes = (*axes[:2], axes[2:])
    with _quiet():
        program = torch.onnx.export(
            graph.module,
            graph.example(example),
            dynamo=True,
            opset_version=_EXPORTED_OPSET,
            dynamic_shapes=axes,
            input_names=[spec.name for spec in inputs],
            output_names=[spec.name for spec in outputs],
            verbose=False,
        )
    assert program is not None
    model = program.model_proto
    _tidy(model)
    _name_axes(model.graph.input, inputs)
    _name_axes(model.graph.output, outputs)
    written = {entry.domain: entry.version for entry in model.opset_import}
    if written != {"": _EXPORTED_OPSET}:
        raise ExportError(f"{graph.role} graph: the exporter wrote opsets {written}, not {_EXPORTED_OPSET}")
    lower_to_17(model)
    onnx.helper.set_model_props(model, dict(metadata or {}))
    onnx.checker.check_model(model)
    return model


def _dynamic_axes(spec: TensorSpec, stride: int) -> dict[int, object]:
    """What ``torch.export`` is told about the symbolic axes of one input."""
    axes: dict[int, object] = {}
    for i, symbol in enumerate(spec.shape):
        if symbol in ("height", "width"):
            cells = "rows" if symbol == "height" else "columns"
            axes[i] = stride * Dim(cells, min=1, max=_LONGEST[cells])
        elif symbol in _LONGEST:
            axes[i] = Dim(symbol, min=1, max=_LONGEST[symbol])
        elif isinstance(symbol, str):  # cells: a product, which Dim cannot express
            axes[i] = Dim.AUTO
    return axes


def _tidy(model: onnx.ModelProto) -> None:
    """Drop what only a debugger reads (stack traces, and with them local paths) and the traced shapes."""
    del model.graph.value_info[:]
    del model.functions[:]
    model.graph.name, model.producer_name = "hmerctl", "hmerctl"
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    for value in (*model.graph.initializer, *model.graph.input, *model.graph.output):
        del value.metadata_props[:]
        value.doc_string = ""
    del model.graph.metadata_props[:]


def _name_axes(values: Iterable[onnx.ValueInfoProto], specs: tuple[TensorSpec, ...]) -> None:
    """Give the symbolic axes our names; fail where the exporter disagrees about names, constants or types."""
    for value, spec in zip(values, specs, strict=True):
        tensor = value.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
        if value.name != spec.name or dtype != spec.dtype or len(tensor.shape.dim) != len(spec.shape):
            raise ExportError(f"the exporter wrote {value.name} ({dtype}) where {spec.name} ({spec.dtype}) belongs")
        for axis, (dim, wanted) in enumerate(zip(tensor.shape.dim, spec.shape, strict=True)):
            if isinstance(wanted, str):
                if dim.HasField("dim_value"):
                    raise ExportError(f"{spec.name}: axis {axis} ({wanted}) became the constant {dim.dim_value}")
                dim.dim_param = wanted
            elif not dim.HasField("dim_value") or dim.dim_value != wanted:
                raise ExportError(f"{spec.name}: axis {axis} should be {wanted}")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's remarks about itself (missing torchvision, opset conversion); errors still show."""
    loggers = [logging.getLogger(f"torch.onnx._internal.exporter.{name}") for name in ("_registration", "_compat")]
    loggers.append(logging.getLogger("onnxscript.version_converter"))
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
