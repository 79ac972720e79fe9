"""Engine for Core ML bundles: Core ML itself on a Mac, elsewhere the evaluator of the saved packages."""

import functools
import platform
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from hmerctl.runtime.bundle import Bundle
from hmerctl.runtime.engine import Memory
from hmerctl.runtime.errors import EngineError
from hmerctl.runtime.manifest import Component
from hmerctl.targets.coreml.mil import MilFunction, MilPackage
from hmerctl.targets.coreml.operations import Arithmetic
from hmerctl.targets.coreml.tools import coremltools

Function = Callable[[dict[str, np.ndarray]], Mapping[str, np.ndarray]]


def on_a_mac() -> bool:
    """Whether Core ML is here."""
    return platform.system() == "Darwin"


class CoreMlEngine:
    """See ``hmerctl.runtime.engine.Engine``.

    Args:
        bundle: with components of format ``mlpackage``.
        arithmetic: of the evaluator, see ``hmerctl.targets.coreml.mil``.
    """

    def __init__(self, bundle: Bundle, arithmetic: Arithmetic = "declared") -> None:
        version = coremltools().__version__
        self.bundle, self.arithmetic = bundle, arithmetic
        self.name = (
            f"Core ML on macOS {platform.mac_ver()[0]} (coremltools {version})"
            if on_a_mac()
            else f"MIL evaluator of the saved packages, not Core ML (coremltools {version}, {arithmetic} arithmetic)"
        )
        self.threads = {"encoder": 1, "step": 1}
        self._overflows: dict[str, None] = {}
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._load = functools.cache(self._load_function)
        self._package = functools.cache(lambda file: MilPackage(bundle.file(file)))

    def _load_function(self, component: Component) -> Function:
        if not on_a_mac():
            package = self._package(component.file)
            return self._watched(package.function(component.function or "main", self.arithmetic))
        ct = coremltools()
        path = self._copy(component.file)
        model = ct.models.MLModel(path, function_name=component.function, compute_units=ct.ComputeUnit.ALL)
        dtypes = {spec.name: np.dtype(spec.dtype) for spec in component.inputs}
        return lambda inputs: model.predict({name: x.astype(dtypes[name]) for name, x in inputs.items()})

    def _watched(self, function: MilFunction) -> Function:
        def run(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            outputs = function(inputs)
            self._overflows.update(dict.fromkeys(f"{function.label}: {what}" for what in function.overflows))
            return outputs

        return run

    @property
    def overflows(self) -> Sequence[str] | None:
        """Operations whose result was not finite although what they read was; None on a Mac, which does not tell."""
        return None if on_a_mac() else tuple(self._overflows)

    def _copy(self, file: str) -> str:
        """A copy of a package for Core ML's use: coremltools renews the Manifest.json of what it opens."""
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="hmerctl-")
        copy = Path(self._scratch.name) / file
        if not copy.exists():
            shutil.copytree(self.bundle.file(file), copy)
        return str(copy)

    def component(self, role: str, bucket: tuple[int, int], beams: int | None = None) -> Component:
        """The component that serves a bucket, and of steps the one for the fewest beams that suffice.

        Raises:
            EngineError: there is none.
        """
        fitting = [c for c in self.bundle.components(role) if c.bucket == bucket]
        if beams is not None:
            fitting = sorted((c for c in fitting if (c.beams or 0) >= beams), key=lambda c: c.beams or 0)
        if not fitting:
            what = f"{role} for rasters of {bucket[0]} x {bucket[1]} pixels" + (
                f" and {beams} beams" if beams else ""
            )
            raise EngineError(f"{self.bundle.name}: has no {what}; export it with that bucket and beam width")
        return fitting[0]

    def encode(self, raster: np.ndarray, size: np.ndarray) -> Memory:
        """See ``Engine.encode``."""
        component = self.component("encoder", (raster.shape[2], raster.shape[3]))
        outputs = self._load(component)({"raster": raster, "size": size})
        return {spec.name: outputs[spec.name] for spec in component.outputs}

    def start(self, memory: Memory, beams: int) -> "CoreMlSession":
        """See ``Engine.start``."""
        stride = self.bundle.manifest.decoder.stride
        rows, columns = memory["memory_mask"].shape[-2:]
        component = self.component("step", (rows * stride, columns * stride), beams)
        return CoreMlSession(self, component, self._load(component), memory)


class CoreMlSession:
    """See ``hmerctl.runtime.engine.StepSession``; the graph's beams are fixed, rows not in use repeat row 0."""

    def __init__(self, engine: CoreMlEngine, component: Component, function: Function, memory: Memory) -> None:
        self._decoder = engine.bundle.manifest.decoder
        self._function, self._beams = function, component.beams or 1
        names = {spec.name for spec in component.inputs}
        self._memory = {name: value for name, value in memory.items() if name in names}
        shapes = {spec.name: [int(n) for n in spec.shape] for spec in component.inputs}
        self._state = {spec.name: np.zeros(shapes[spec.name], np.float32) for spec in self._decoder.state}
        self._position = 0

    def step(self, tokens: np.ndarray, parents: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """See ``StepSession.step``."""
        count = len(tokens)
        if count > self._beams:
            raise EngineError(f"a step of {self._beams} beams cannot take {count} tokens")
        padded = np.concatenate([tokens, np.repeat(tokens[:1], self._beams - count)]).astype(np.int32)
        if parents is not None and self._position:
            rows = np.concatenate([parents, np.repeat(parents[:1], self._beams - count)])
            self._state = {name: value[rows] for name, value in self._state.items()}
        inputs = {"token": padded, "position": np.array([self._position], np.int32), **self._memory, **self._state}
        outputs = self._function(inputs)
        for spec in self._decoder.state:
            value = np.asarray(outputs[f"next_{spec.name}"], np.float32)
            if spec.update == "replace":
                self._state[spec.name] = value
            else:
                np.moveaxis(self._state[spec.name], spec.shape.index("time"), 0)[self._position] = value
        self._position += 1
        log_probs, attention = (np.asarray(outputs[name], np.float32)[:count] for name in ("log_probs", "attention"))
        return log_probs, attention
