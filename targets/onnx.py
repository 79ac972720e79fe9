"""Target ``onnx``: two dynamic ONNX graphs, for onnxruntime on any CPU and as the base of other targets.

Every precision has the interface of fp32 and is driven alike. onnxruntime's CPU provider computes no float16, so fp16
is a way to store weights; int8 computes the encoder in int8 and stores the step's weights so: docs/precision.md."""

from pathlib import Path
from typing import ClassVar

import onnx

from hmerctl.export.calibration import encoder_feeds
from hmerctl.export.graphs import Graph, take_apart
from hmerctl.export.metadata import component, decoder_info, graph_metadata
from hmerctl.export.onnx import OPSET, to_onnx
from hmerctl.export.parity.graphs import PORTABLE, check_onnx_bundle
from hmerctl.export.parity.report import Finding
from hmerctl.export.quantize import Care, QuantizeOptions, quantize_with_care
from hmerctl.export.source import Source
from hmerctl.export.storage import store_half, store_int8
from hmerctl.runtime.buckets import BUCKETS
from hmerctl.runtime.bundle import Bundle
from hmerctl.runtime.engine import Engine
from hmerctl.runtime.manifest import Component
from hmerctl.targets.base import ONE_GRAPH_A_ROLE, Plan, Requirement, Target, TargetError, package
from hmerctl.targets.refusals import refusal

CARE = Care(target_snr=29.0)
"""Of the encoder in int8. Most layers stand there by themselves; leaving the worst out costs no time that shows."""


class Onnx(Target):
    """See the module. One encoder serves every size, so rasters are padded to whole cells: docs/export.md has the
    measurements."""

    name: ClassVar[str] = "onnx"
    summary: ClassVar[str] = "ONNX graphs for onnxruntime on any CPU"
    precisions: ClassVar[tuple[str, ...]] = ("fp32", "fp16", "int8")
    engine: ClassVar[str] = "onnxruntime"
    device: ClassVar[str] = "run on x86-64; fp32 and int8 also on an emulated aarch64"

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
        notes = ["one encoder graph for every size and batch, one step graph for every size and beam width"]
        if precision == "fp16":
            notes.append("weights stored in float16, arithmetic in float32")
        if precision == "int8":
            notes.append(
                f"encoder in int8, calibrated on {len(source.rasters)} inks; weights of the step stored in int8"
            )
        return Plan(
            target=self.name,
            precision=precision,
            components=ONE_GRAPH_A_ROLE,
            opset=OPSET,
            padding_step=source.model.encoder.stride,
            minimum_runtime={"onnxruntime": "1.18"},
            notes=tuple(notes),
            refusal=refusal(self.name, source, BUCKETS),
        )

    def build(self, source: Source, plan: Plan, folder: Path) -> tuple[Component, ...]:
        """See ``Target``.

        Raises:
            TargetError: int8 without ink to calibrate on.
        """
        graphs: dict[str, Graph] = {graph.role: graph for graph in take_apart(source.model)}
        decoder = decoder_info(source.model, tuple(spec.name for spec in graphs["encoder"].outputs))
        components = []
        for planned in plan.components:
            graph = graphs[planned.role]
            info = source.info
            metadata = graph_metadata(graph.role, info.name, decoder, info.vocabulary, info.raster)
            model = in_precision(to_onnx(graph, planned.sizes, metadata), graph.role, plan, source)
            onnx.save(model, folder / planned.file)
            components.append(component(graph, planned.name, planned.format, planned.file))
        return tuple(components)

    def check(self, bundle: Bundle) -> list[Finding]:
        """See ``Target``."""
        return check_onnx_bundle(bundle, PORTABLE | {"QuantizeLinear", "DequantizeLinear"})

    def load(self, bundle: Bundle) -> Engine:
        """See ``Target``."""
        from hmerctl.runtime.engines.onnx import OnnxEngine

        return OnnxEngine(bundle)


def in_precision(model: onnx.ModelProto, role: str, plan: Plan, source: Source) -> onnx.ModelProto:
    """A float32 graph in the plan's precision."""
    if plan.precision == "fp32":
        return model
    if plan.precision == "int8" and role == "encoder":
        if not source.rasters:
            raise TargetError("int8 needs ink to calibrate on: name a dataset with --calibration")
        feeds = list(encoder_feeds(source.rasters, plan.padding))
        model, _ = quantize_with_care(model, feeds, QuantizeOptions(layout="chain"), CARE)
    elif plan.precision == "int8":
        model = store_int8(model)
    return store_half(model)
