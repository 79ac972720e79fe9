"""The target object: plan, build, check and load for ``jetson-trt``."""

from collections import Counter
from pathlib import Path
from typing import ClassVar

import onnx

from hmerctl.export.calibration import encoder_feeds
from hmerctl.export.graphs import Graph, take_apart
from hmerctl.export.half_engine import EvaluatorEngine
from hmerctl.export.metadata import component, decoder_info, graph_metadata
from hmerctl.export.onnx import OPSET, to_onnx
from hmerctl.export.parity.graphs import PORTABLE, check_onnx_bundle, describe
from hmerctl.export.parity.report import Finding, holds
from hmerctl.export.precision import HalfPolicy, half_interface, precision_of, to_half, unexpected_products
from hmerctl.export.quantize import QuantizeOptions, quantize_with_care
from hmerctl.export.source import Source
from hmerctl.runtime.buckets import BUCKETS
from hmerctl.runtime.bundle import Bundle
from hmerctl.runtime.engine import Engine
from hmerctl.runtime.engines.tensorrt_build import PROFILES, read_profiles
from hmerctl.runtime.manifest import Component, DecoderInfo, Level
from hmerctl.targets.base import (
    FROM_L2,
    ONE_GRAPH_A_ROLE,
    Plan,
    Requirement,
    Target,
    TargetError,
    installed,
    package,
)
from hmerctl.targets.jetson import trtexec
from hmerctl.targets.jetson.jetpacks import check_for_jetpacks
from hmerctl.targets.jetson.profiles import make_profiles
from hmerctl.targets.jetson.rtx import HOW as RTX_HOW
from hmerctl.targets.jetson.rtx import check_with_rtx
from hmerctl.targets.refusals import refusal


class Jetson(Target):
    """See the package. int8 is the encoder's products; all else, the step included, is float16 there."""

    name: ClassVar[str] = "jetson-trt"
    summary: ClassVar[str] = "TensorRT engines for NVIDIA Jetson, built on the device (not run on a Jetson yet)"
    precisions: ClassVar[tuple[str, ...]] = ("fp16", "fp32", "int8")
    engine: ClassVar[str] = "TensorRT"
    stand_ins: ClassVar[dict[Level, str]] = {
        "L0": "TensorRT-RTX",
        **dict.fromkeys(FROM_L2, "ONNX evaluator"),
    }

    def requirements(self) -> list[Requirement]:
        """See ``Target``."""
        export = "pip install 'hmerctl[export]'"
        jetpack = "comes with JetPack 6.1 or later: sudo apt install python3-libnvinfer"
        return [
            package("torch", "build", export),
            package("onnx", "build", export),
            package("tensorrt-rtx-cu12", "parity", RTX_HOW),
            package("tensorrt", "run", jetpack),
            package("cuda-python", "run", "pip install 'hmerctl[jetson]'"),
            Requirement("Jetson", "run", _board(), "an Orin or Thor with JetPack 6.1 or later"),
        ]

    def plan(self, source: Source, precision: str) -> Plan:
        """See ``Target``."""
        notes = [
            "engines are built on the device: hmerctl build-engine BUNDLE",
            "not run on a Jetson yet: parity is measured with the float16 evaluator and TensorRT-RTX's parser",
        ]
        if precision == "int8":
            notes.append(f"calibrated on {len(source.rasters)} inks; products of the encoder only")
        return Plan(
            target=self.name,
            precision=precision,
            components=ONE_GRAPH_A_ROLE,
            opset=OPSET,
            minimum_runtime={"JetPack": "6.1", "TensorRT": "10.3"},
            notes=tuple(notes),
            refusal=refusal(self.name, source, BUCKETS),
        )

    def build(self, source: Source, plan: Plan, folder: Path) -> tuple[Component, ...]:
        """See ``Target``. Also writes ``profiles.json`` and the ``trtexec`` scripts.

        Raises:
            TargetError: int8 without ink to calibrate on.
        """
        encoder, step = take_apart(source.model)
        decoder = decoder_info(source.model, tuple(spec.name for spec in encoder.outputs))
        components = []
        for planned, graph in zip(plan.components, (encoder, step), strict=True):
            info = source.info
            metadata = graph_metadata(graph.role, info.name, decoder, info.vocabulary, info.raster)
            model = in_precision(to_onnx(graph, planned.sizes, metadata), graph, decoder, plan.precision, source)
            onnx.save(model, folder / planned.file)
            components.append(
                component(
                    graph,
                    planned.name,
                    planned.format,
                    planned.file,
                    inputs=tuple(describe(v) for v in model.graph.input),
                    outputs=tuple(describe(v) for v in model.graph.output),
                )
            )
        profiles = make_profiles(encoder.inputs, step.inputs, plan.buckets, encoder.stride, decoder.max_steps)
        (folder / PROFILES).write_text(profiles.model_dump_json(indent=1) + "\n", encoding="utf-8")
        (folder / "trtexec").mkdir()
        for jetpack, name in trtexec.ALL:
            files = [(c.role, c.file) for c in components]
            script = trtexec.trtexec_script(jetpack, files, profiles.ranged)
            (folder / name).write_text(script, encoding="utf-8")
        return tuple(components)

    def check(self, bundle: Bundle) -> list[Finding]:
        """See ``Target``."""
        findings = check_onnx_bundle(bundle, PORTABLE | {"QuantizeLinear", "DequantizeLinear"})
        profiles = read_profiles(bundle)
        for part in bundle.manifest.components:
            path = bundle.file(part.file)
            model = onnx.load(path, load_external_data=False)
            findings.append(check_products(part.name, model, bundle.manifest.target.precision))
            findings += check_for_jetpacks(part.name, model)
            findings.append(check_with_rtx(part.name, path, getattr(profiles.ranged, part.role)))
        return findings

    def load(self, bundle: Bundle) -> Engine:
        """See ``Target``: the device's engine where its engines were built, else the evaluator."""
        if self.stand_in():
            return EvaluatorEngine(bundle)
        from hmerctl.runtime.engines.tensorrt import TensorRTEngine

        return TensorRTEngine(bundle)

    def stand_in(self) -> bool:
        """See ``Target``: True where there is no TensorRT."""
        return installed("tensorrt") is None or _board() is None


def in_precision(
    model: onnx.ModelProto, graph: Graph, decoder: DecoderInfo, precision: str, source: Source
) -> onnx.ModelProto:
    """A float32 graph in one of the target's precisions."""
    if precision == "fp32":
        return model
    if precision == "int8" and graph.role == "encoder":
        if not source.rasters:
            raise TargetError("int8 needs ink to calibrate on: name a dataset with --calibration")
        model, _ = quantize_with_care(model, list(encoder_feeds(source.rasters)), QuantizeOptions())
    return to_half(model, HalfPolicy(half_interface(decoder.memory, decoder.state)))


def check_products(name: str, model: onnx.ModelProto, precision: str) -> Finding:
    """Whether a component computes in the precision that its bundle has in its name; counts in the detail."""
    wrong = unexpected_products(model, single=precision == "fp32")
    counts = ", ".join(f"{count} in {kind}" for kind, count in sorted(Counter(precision_of(model).values()).items()))
    return holds("L0", f"{name}: products in {precision}", not wrong, "; ".join(wrong[:5]) or counts)


def _board() -> str | None:
    """What kind of Jetson this is, None where it is none."""
    release, model = Path("/etc/nv_tegra_release"), Path("/proc/device-tree/model")
    return model.read_text().rstrip("\0") if release.is_file() and model.is_file() else None
