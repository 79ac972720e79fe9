"""Target ``coreml``: packages for iPhone, iPad and Mac."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from hmerctl.export.graphs import Graph, fixed, take_apart
from hmerctl.export.metadata import component, decoder_info, graph_metadata
from hmerctl.export.parity.report import TOLERANCES, Finding, Tolerance
from hmerctl.export.source import Source
from hmerctl.runtime.buckets import Bucket
from hmerctl.runtime.bundle import Bundle
from hmerctl.runtime.engine import Engine
from hmerctl.runtime.manifest import Component, Level, TensorSpec
from hmerctl.targets.base import FROM_L2, Plan, PlannedComponent, Requirement, Target, package
from hmerctl.targets.coreml.buckets import STATIC_BUCKETS
from hmerctl.targets.coreml.convert import PRECISIONS, convert
from hmerctl.targets.coreml.tools import REQUIREMENT
from hmerctl.targets.refusals import refusal
from hmerctl.train.models.parts import MAX_STEPS

RUNTIMES = {16: {"iOS": "16", "macOS": "13"}, 18: {"iOS": "18", "macOS": "15"}}


class CoreMl(Target):
    """One package of encoders and one of steps, a function for each bucket (and beam width), weights shared.

    Functions that share weights need iOS 18. That is the price of one copy of the weights instead of eight, and it
    costs little: every device whose Neural Engine Core ML can use (A12 and later) has iOS 18. ``CoreMlModels`` makes
    separate packages for iOS 16.

    Attributes:
        minimum_ios: 18 for shared weights, 16 for separate packages.
        buckets: raster sizes; a subclass may have others.
        beams: beam widths of the steps.
    """

    name: ClassVar[str] = "coreml"
    summary: ClassVar[str] = "Core ML packages for iPhone, iPad and Mac (iOS 18, weights shared by all buckets)"
    precisions: ClassVar[tuple[str, ...]] = tuple(PRECISIONS)
    engine: ClassVar[str] = "Core ML"
    stand_ins: ClassVar[dict[Level, str]] = dict.fromkeys(FROM_L2, "MIL evaluator")
    minimum_ios: ClassVar[int] = 18
    buckets: ClassVar[tuple[Bucket, ...]] = STATIC_BUCKETS
    beams: ClassVar[tuple[int, ...]] = (1, 5)

    def requirements(self) -> list[Requirement]:
        """See ``Target``."""
        from hmerctl.targets.coreml.engine import on_a_mac

        mac = Requirement("macOS 13 or later", "run", "here" if on_a_mac() else None, "verify on a Mac")
        return [
            package("torch", "build", "pip install 'hmerctl[export]'"),
            package("coremltools", "build", f"pip install '{REQUIREMENT}'"),
            package("coremltools", "parity", f"pip install '{REQUIREMENT}'"),
            mac,
        ]

    def plan(self, source: Source, precision: str) -> Plan:
        """See ``Target``."""
        stride = source.model.encoder.stride
        components = []
        for bucket in self.buckets:
            place = f"{bucket.height}x{bucket.width}"
            sizes = {"batch": 1, "height": bucket.height, "width": bucket.width}
            components.append(self._planned("encoder", f"encoder-{place}", sizes))
            cells = {"rows": bucket.height // stride, "columns": bucket.width // stride, "time": MAX_STEPS}
            for beams in self.beams:
                components.append(self._planned("step", f"step-{place}-beams{beams}", {"beam": beams, **cells}))
        unrolled = source.model.context.fixed_size
        return Plan(
            target=self.name,
            precision=precision,
            components=tuple(components),
            buckets=self.buckets,
            minimum_runtime=RUNTIMES[self.minimum_ios],
            notes=(
                PRECISIONS[precision].note,
                f"fixed shapes: {len(self.buckets)} buckets, beam widths {', '.join(map(str, self.beams))}, "
                f"caches of {MAX_STEPS} rows, explicit state",
                *([f"{unrolled}: the largest bucket has thousands of operations"] if unrolled else []),
                "never run on Apple hardware by this project: parity comes from an evaluator of the saved packages",
            ),
            refusal=refusal(self.name, source, self.buckets),
        )

    def _planned(self, role: str, name: str, sizes: dict[str, int]) -> PlannedComponent:
        file = f"{role}.mlpackage" if self.minimum_ios >= 18 else f"{name}.mlpackage"
        return PlannedComponent(name=name, role=role, format="mlpackage", file=file, sizes=sizes)

    def build(self, source: Source, plan: Plan, folder: Path) -> tuple[Component, ...]:
        """See ``Target``. About a second a function on one core."""
        from hmerctl.targets.coreml.package import merge, save

        graphs: dict[str, Graph] = {graph.role: graph for graph in take_apart(source.model)}
        wide = wide_tensors(source.model)
        precision = PRECISIONS[plan.precision]
        decoder = decoder_info(source.model, tuple(spec.name for spec in graphs["encoder"].outputs))
        info = source.info
        metadata = {
            role: graph_metadata(graph.role, info.name, decoder, info.vocabulary, info.raster)
            for role, graph in graphs.items()
        }
        components: list[Component] = []
        with tempfile.TemporaryDirectory() as scratch:
            parts: dict[str, dict[str, Path]] = {}
            for planned in plan.components:
                graph = graphs[planned.role]
                inputs = fixed(graph.inputs, planned.sizes, graph.stride)
                outputs = fixed(graph.outputs, planned.sizes, graph.stride)
                examples = dict(zip((s.name for s in inputs), graph.example(planned.sizes), strict=True))
                names = [s.name for s in outputs]
                memory = planned.role == "encoder"
                model = convert(graph.module, examples, names, precision, self.minimum_ios, wide, memory)
                function = planned.name.replace("-", "_") if self.minimum_ios >= 18 else None
                if function:
                    part = Path(scratch) / f"{planned.name}.mlpackage"
                    model.save(str(part))
                    parts.setdefault(planned.file, {})[function] = part
                else:
                    save(model, folder / planned.file, metadata[planned.role])
                components.append(
                    component(
                        graph,
                        planned.name,
                        planned.format,
                        planned.file,
                        function=function,
                        bucket=_bucket(planned, graph.stride),
                        beams=planned.sizes.get("beam"),
                        inputs=_typed(inputs, precision.half, wide),
                        outputs=_typed(outputs, precision.half, wide),
                    )
                )
            for file, functions in parts.items():
                merge(functions, folder / file, metadata[Path(file).stem])
        return tuple(components)

    def check(self, bundle: Bundle) -> list[Finding]:
        """See ``Target``; adds what the Neural Engine could take."""
        from hmerctl.targets.coreml.check import check_bundle

        return check_bundle(bundle)

    def load(self, bundle: Bundle) -> Engine:
        """See ``Target``: Core ML on a Mac, elsewhere the evaluator."""
        from hmerctl.targets.coreml.engine import CoreMlEngine

        return CoreMlEngine(bundle)

    def stand_in(self) -> bool:
        """See ``Target``."""
        from hmerctl.targets.coreml.engine import on_a_mac

        return not on_a_mac()

    def tolerance(self, precision: str) -> Tolerance:
        """See ``Target``."""
        return BOUNDS.get(precision, TOLERANCES.get(precision, Tolerance()))


BOUNDS = {
    "fp16": replace(TOLERANCES["fp16"], top1=0.99),
    "pal6": Tolerance(snr_db=15.0, top1=0.97, sequences=0.85, exprate=1.0),
}
"""Where the target has its own. ``fp16``: few buckets give few steps, and one near tie of the 128 steps with one beam
is 0.8 % (level L3 holds real sequences to the usual bound). ``pal6``: 64 values a weight tensor, an option for the
smallest bundle, not held to the bounds of 8 bits."""


class CoreMlModels(CoreMl):
    """A package of its own for every bucket and beam width: more bytes, but iOS 16."""

    name: ClassVar[str] = "coreml-ios16"
    summary: ClassVar[str] = "the same for iOS 16: a package for each bucket and beam width, weights repeated"
    minimum_ios: ClassVar[int] = 16


def wide_tensors(model: Any) -> frozenset[str]:
    """What stays float32 in float16 packages: what the host computes with, and state that is summed up step by step
    (attention spent, summed in float16, would be off by 0.009 after 200 steps)."""
    summed = [spec.name for spec in model.decoder.state_spec() if spec.update == "replace"]
    return frozenset({"log_probs", "attention", *summed, *(f"next_{name}" for name in summed)})


def _bucket(planned: PlannedComponent, stride: int) -> tuple[int, int]:
    sizes = planned.sizes
    if planned.role == "encoder":
        return sizes["height"], sizes["width"]
    return sizes["rows"] * stride, sizes["columns"] * stride


def _typed(specs: tuple[TensorSpec, ...], half: bool, wide: frozenset[str]) -> tuple[TensorSpec, ...]:
    """The types that the package declares."""
    if not half:
        return specs
    return tuple(
        spec.model_copy(update={"dtype": "float16"}) if spec.dtype == "float32" and spec.name not in wide else spec
        for spec in specs
    )
