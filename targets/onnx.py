"""Target ``onnx``: two dynamic ONNX graphs in fp32, for onnxruntime on any CPU and as the base of other targets."""

from pathlib import Path
from typing import ClassVar

import onnx

from hmerctl.export.graphs import Graph, take_apart
from hmerctl.export.metadata import component, decoder_info, graph_metadata
from hmerctl.export.onnx import OPSET, to_onnx
from hmerctl.export.parity.graphs import PORTABLE, check_onnx_bundle
from hmerctl.export.parity.report import Finding
from hmerctl.export.source import Source
from hmerctl.runtime.bundle import Bundle
from hmerctl.runtime.engine import Engine
from hmerctl.runtime.manifest import Component
from hmerctl.targets.base import ONE_GRAPH_A_ROLE, Plan, Requirement, Target, one_bucket_only, package


class Onnx(Target):
    """See the module. One encoder serves every size, so rasters are padded to whole cells: docs/export.md has the
    measurements."""

    name: ClassVar[str] = "onnx"
    summary: ClassVar[str] = "ONNX graphs for onnxruntime on any CPU"
    precisions: ClassVar[tuple[str, ...]] = ("fp32",)

    def requirements(self) -> list[Requirement]:
        """See ``Target``."""
        return [
            package("torch", "build", "pip install 'hmerctl[export]'"),
            package("onnx", "build", "pip install 'hmerctl[export]'"),
            package("onnxscript", "build", "pip install 'hmerctl[export]'"),
            package("onnxruntime", "run", "pip install hmerctl"),
        ]

    def plan(self, source: Source, precision: str) -> Plan:
        """See ``Target``."""
        return Plan(
            target=self.name,
            precision=precision,
            components=ONE_GRAPH_A_ROLE,
            opset=OPSET,
            padding_step=source.model.encoder.stride,
            minimum_runtime={"onnxruntime": "1.18"},
            notes=("one encoder graph for every size and batch, one step graph for every size and beam width",),
            refusal=one_bucket_only(source),
        )

    def build(self, source: Source, plan: Plan, folder: Path) -> tuple[Component, ...]:
        """See ``Target``."""
        graphs: dict[str, Graph] = {graph.role: graph for graph in take_apart(source.model)}
        decoder = decoder_info(source.model, tuple(spec.name for spec in graphs["encoder"].outputs))
        components = []
        for planned in plan.components:
            graph = graphs[planned.role]
            info = source.info
            metadata = graph_metadata(graph.role, info.name, decoder, info.vocabulary, info.raster)
            onnx.save(to_onnx(graph, planned.sizes, metadata), folder / planned.file)
            components.append(component(graph, planned.name, planned.format, planned.file))
        return tuple(components)

    def check(self, bundle: Bundle) -> list[Finding]:
        """See ``Target``."""
        return check_onnx_bundle(bundle, PORTABLE)

    def load(self, bundle: Bundle) -> Engine:
        """See ``Target``."""
        from hmerctl.runtime.engines.onnx import OnnxEngine

        return OnnxEngine(bundle)
