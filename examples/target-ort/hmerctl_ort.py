"""Target ``ort``: the two graphs in onnxruntime's own file format, already optimised, as its mobile builds read them.

A build of onnxruntime without the ONNX parser reads only this format, and one that is reduced to the operators of its
models is about a tenth of the full one. The bundle holds the list of these operators, ``required_operators.config``,
in the form that onnxruntime's ``build.py --include_ops_by_config`` takes.

An example of a target outside hmerctl's tree: docs/targets/writing-a-target.md goes through it.
"""

import logging
from pathlib import Path
from typing import ClassVar

import onnx
import onnxruntime

from hmerctl.export.graphs import take_apart
from hmerctl.export.metadata import component, decoder_info, graph_metadata
from hmerctl.export.onnx import OPSET, to_onnx
from hmerctl.export.parity.description import expected_metadata, metadata_fault, ports_fault
from hmerctl.export.parity.graphs import PORTABLE
from hmerctl.export.parity.report import Finding, holds
from hmerctl.export.source import Source
from hmerctl.runtime.bundle import Bundle
from hmerctl.runtime.engine import Engine
from hmerctl.runtime.engines.onnx import OnnxEngine
from hmerctl.runtime.manifest import Component, TensorSpec
from hmerctl.targets.base import Plan, PlannedComponent, Requirement, Target, package
from hmerctl.targets.refusals import one_bucket_only

OPERATORS = "required_operators.config"
IDENTIFIER = b"ORTM"
"""Bytes 4 to 7 of every file of this format."""

FUSED = frozenset(
    {"FusedConv", "FusedGemm", "FusedMatMul", "SkipLayerNormalization", "QuickGelu", "Gelu", "BiasGelu"}
)
"""Operators of onnxruntime's own that its optimiser may put in the place of several portable ones."""

TYPES = {"tensor(float)": "float32", "tensor(int32)": "int32"}


class Ort(Target):
    """See the module."""

    name: ClassVar[str] = "ort"
    summary: ClassVar[str] = "graphs in onnxruntime's own format, for its mobile builds"
    precisions: ClassVar[tuple[str, ...]] = ("fp32",)

    def requirements(self) -> list[Requirement]:
        """See ``Target``."""
        export = "pip install 'hmerctl[export]'"
        return [
            package("torch", "build", export),
            package("onnxscript", "build", export),
            package("onnxruntime", "build", "pip install hmerctl"),
            package("onnxruntime", "run", "pip install hmerctl"),
        ]

    def plan(self, source: Source, precision: str) -> Plan:
        """See ``Target``. A file of this format is promised to be read by the onnxruntime that wrote it and later."""
        version = ".".join(onnxruntime.__version__.split(".")[:2])
        return Plan(
            target=self.name,
            precision=precision,
            components=tuple(PlannedComponent(role, role, "ort", f"{role}.ort") for role in ("encoder", "step")),
            opset=OPSET,
            padding_step=source.model.encoder.stride,
            minimum_runtime={"onnxruntime": version},
            notes=("optimised for any CPU; one encoder for every bucket, one step for every bucket and beam width",),
            refusal=one_bucket_only(source),
        )

    def build(self, source: Source, plan: Plan, folder: Path) -> tuple[Component, ...]:
        """See ``Target``."""
        info, graphs = source.info, take_apart(source.model)
        decoder = decoder_info(source.model, tuple(spec.name for spec in graphs[0].outputs))
        components = []
        for planned, graph in zip(plan.components, graphs, strict=True):
            metadata = graph_metadata(graph.role, info.name, decoder, info.vocabulary, info.raster)
            convert(to_onnx(graph, planned.sizes, metadata), folder / planned.file)
            components.append(component(graph, planned.name, planned.format, planned.file))
        write_operators([folder / planned.file for planned in plan.components], folder / OPERATORS)
        return tuple(components)

    def check(self, bundle: Bundle) -> list[Finding]:
        """See ``Target``."""
        named = operators(bundle.file(OPERATORS))
        other = ", ".join(sorted(named - PORTABLE - FUSED))
        return [holds("L0", "operators", not other, other)] + [
            finding for part in bundle.manifest.components for finding in check_file(bundle, part)
        ]

    def load(self, bundle: Bundle) -> Engine:
        """See ``Target``: this is the device's own engine."""
        return OnnxEngine(bundle)


def convert(model: onnx.ModelProto, path: Path) -> None:
    """Optimise a graph for any CPU and write it in onnxruntime's format."""
    options = onnxruntime.SessionOptions()
    # The next higher level would choose a memory layout for the processor at hand.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(path)
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def write_operators(models: list[Path], path: Path) -> None:
    """List the operators of some files by domain and opset."""
    from onnxruntime.tools.ort_format_model import create_config_from_models

    logging.getLogger("ort_format_model.utils").setLevel(logging.WARNING)
    create_config_from_models(models, path, enable_type_reduction=False)
    # Its first line says where the files lay and when: that would make every build another bundle.
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    path.write_text("\n".join(lines) + "\n")


def operators(path: Path) -> set[str]:
    """Names of the operators in a list of ``write_operators``: lines of ``domain;opset;name,name``."""
    return {name for line in path.read_text().splitlines() if line for name in line.split(";")[2].split(",")}


def check_file(bundle: Bundle, part: Component) -> list[Finding]:
    """That a file has the format, and the inputs, outputs and metadata of its entry in the manifest."""
    data = bundle.file(part.file).read_bytes()
    if data[4:8] != IDENTIFIER:
        return [holds("L0", f"{part.name}: onnxruntime's format", False, f"{part.file} is something else")]
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    metadata = session.get_modelmeta().custom_metadata_map
    checks = [
        ("inputs as in the manifest", ports_fault(specs(session.get_inputs()), part.inputs)),
        ("outputs as in the manifest", ports_fault(specs(session.get_outputs()), part.outputs)),
        ("metadata as in the manifest", metadata_fault(metadata, expected_metadata(bundle, part))),
    ]
    return [holds("L0", f"{part.name}: {check}", not fault, fault) for check, fault in checks]


def specs(ports: list[onnxruntime.NodeArg]) -> list[TensorSpec]:
    """Inputs or outputs as a manifest describes them."""
    return [
        TensorSpec.model_construct(name=port.name, dtype=TYPES.get(port.type, port.type), shape=tuple(port.shape))
        for port in ports
    ]
