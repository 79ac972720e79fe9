"""Engine ``tensorrt``: engines that ``hmerctl build-engine`` built on this device. Not run on a Jetson yet.

Everything that a decoding needs stays on the device: the encoder's outputs, the caches, the coverage. A step is one
CUDA graph (token and position up, the decoder, log-probabilities and attention down), then a small copy per cache.
"""

import threading
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from hmerctl.runtime.bundle import Bundle
from hmerctl.runtime.engine import Memory
from hmerctl.runtime.engines.cuda import Cuda, DeviceBuffer, Graph
from hmerctl.runtime.engines.tensorrt_build import Which, default_cache, load_tensorrt, plan_path, read_profiles
from hmerctl.runtime.errors import EngineError
from hmerctl.runtime.state import StateSpec

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Tensor:
    """An input or output of an engine; ``shape`` has -1 where it depends on the profile."""

    name: str
    dtype: np.dtype
    shape: Shape
    is_input: bool


class Plan:
    """A deserialised engine and what its tensors are."""

    def __init__(self, trt: Any, runtime: Any, path: Path) -> None:
        self.engine = runtime.deserialize_cuda_engine(path.read_bytes())
        if self.engine is None:
            raise EngineError(
                f"{path}: TensorRT cannot load this engine; delete it and run hmerctl build-engine again"
            )
        self.tensors: dict[str, Tensor] = {}
        for i in range(self.engine.num_io_tensors):
            name = self.engine.get_tensor_name(i)
            self.tensors[name] = Tensor(
                name,
                np.dtype(trt.nptype(self.engine.get_tensor_dtype(name))),
                tuple(self.engine.get_tensor_shape(name)),
                self.engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT,
            )

    def profile(self, shapes: Mapping[str, Shape]) -> int:
        """The first profile that takes these shapes, or -1."""
        for index in range(self.engine.num_optimization_profiles):
            if all(self._covers(index, name, shape) for name, shape in shapes.items()):
                return index
        return -1

    def _covers(self, index: int, name: str, shape: Shape) -> bool:
        low, _, high = (tuple(s) for s in self.engine.get_tensor_profile_shape(name, index))
        return len(low) == len(shape) and all(a <= b <= c for a, b, c in zip(low, shape, high, strict=True))

    def context(self, cuda: Cuda, index: int, shapes: Mapping[str, Shape]) -> Any:
        """An execution context with profile and shapes set; outputs have their shapes from now on."""
        context = self.engine.create_execution_context()
        if context is None or not context.set_optimization_profile_async(index, cuda.stream):
            raise EngineError("TensorRT has no memory for another execution context; decode fewer pictures at once")
        for name, shape in shapes.items():
            if not context.set_input_shape(name, shape):
                raise EngineError(f"TensorRT refuses shape {shape} for {name}")
        return context


class DeviceMemory(Mapping[str, np.ndarray]):
    """The encoder's outputs on the device; a tensor is copied to the host when it is first looked at."""

    def __init__(self, cuda: Cuda, shapes: dict[str, tuple[Shape, np.dtype]]) -> None:
        self._cuda = cuda
        self._seen: dict[str, np.ndarray] = {}
        self.shapes = shapes
        self.buffers = {name: cuda.allocate(prod(shape) * dtype.itemsize) for name, (shape, dtype) in shapes.items()}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._seen:
            host = self._cuda.allocate_host(*self.shapes[name])
            self._cuda.to_host(host.pointer, self.buffers[name].pointer, self.buffers[name].size)
            self._cuda.synchronize()
            self._seen[name] = host.array.copy()
        return self._seen[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)


class TensorRTEngine:
    """See ``hmerctl.runtime.engine.Engine``.

    Args:
        bundle: made for jetson-trt; its engines must be in the cache.
        threads: not used, the GPU has its own.
        profiles: which of the sets that were built.
        cache: where ``hmerctl build-engine`` put the engines.
        trt, cuda: the modules to use; None for the installed ones.

    Raises:
        BundleError: TensorRT is older than the bundle says.
        EngineError: TensorRT or cuda-python is missing, or no engine was built for this device and TensorRT.
    """

    def __init__(
        self,
        bundle: Bundle,
        threads: int | None = None,
        *,
        profiles: Which | None = None,
        cache: Path | None = None,
        trt: Any = None,
        cuda: Cuda | None = None,
    ) -> None:
        trt, self._cuda = trt or load_tensorrt(), cuda or Cuda()
        bundle.require_runtime("TensorRT", trt.__version__)
        major, minor = self._cuda.compute_capability()
        self.name = f"TensorRT {trt.__version__} sm{major}{minor}"
        self.threads = {"encoder": 1, "step": 1}
        self._bundle = bundle
        self._lock = threading.Lock()
        self._runtime = trt.Runtime(trt.Logger(trt.Logger.ERROR))
        paths = _find(bundle, profiles, cache or default_cache(), trt, self._cuda)
        self._plans = {role: Plan(trt, self._runtime, path) for role, path in paths.items()}
        self._encoders: dict[Shape, _Encoder] = {}
        self._idle: dict[tuple[int, int, int], list[_StepRunner]] = {}

    def encode(self, raster: np.ndarray, size: np.ndarray) -> Memory:
        """See ``Engine.encode``; the result stays on the device until someone looks at it."""
        with self._lock:
            shape = raster.shape
            if shape not in self._encoders:
                self._encoders[shape] = _Encoder(
                    self._plans["encoder"], self._cuda, {"raster": shape, "size": (1, 2)}
                )
            return self._encoders[shape].run({"raster": raster, "size": size})

    def start(self, memory: Memory, beams: int) -> "TensorRTSession":
        """See ``Engine.start``. Memory from elsewhere than this engine's encoder is copied to the device once."""
        shape = memory.shapes["memory_mask"][0] if isinstance(memory, DeviceMemory) else memory["memory_mask"].shape
        rows, columns = shape[-2:]
        with self._lock:
            idle = self._idle.setdefault((rows, columns, beams), [])
            runner = (
                idle.pop()
                if idle
                else _StepRunner(self._plans["step"], self._cuda, self._bundle, rows, columns, beams)
            )
            runner.begin(memory)
        return TensorRTSession(runner, self._lock, idle)


def _find(bundle: Bundle, which: str | None, cache: Path, trt: Any, cuda: Cuda) -> dict[str, Path]:
    """The engine files by role: of the set asked for, else of the exact one where it was built, else the ranged."""
    known = read_profiles(bundle)
    for name in (which,) if which else ("exact", "ranged"):
        paths: dict[str, Path] = {
            c.role: plan_path(cache, bundle, c, getattr(getattr(known, name), c.role), trt, cuda)
            for c in bundle.manifest.components
        }
        if all(path.is_file() for path in paths.values()):
            return paths
    raise EngineError(
        f"{bundle.name}: no engine for TensorRT {trt.__version__} on this GPU in {cache}; "
        "run hmerctl build-engine with this bundle, on this device"
    )


class _Encoder:
    """The encoder in one input shape; used by one thread at a time."""

    def __init__(self, plan: Plan, cuda: Cuda, shapes: dict[str, Shape]) -> None:
        index = plan.profile(shapes)
        if index < 0:
            height, width = shapes["raster"][2:]
            raise EngineError(f"no encoder profile takes rasters of {height} x {width} pixels; build all profiles")
        self._plan, self._cuda = plan, cuda
        self._context = plan.context(cuda, index, shapes)
        self._inputs = {name: cuda.allocate_host(shape, plan.tensors[name].dtype) for name, shape in shapes.items()}
        self._device = {name: cuda.allocate(host.array.nbytes) for name, host in self._inputs.items()}
        for name, buffer in self._device.items():
            self._context.set_tensor_address(name, buffer.pointer)
        self._outputs = {
            t.name: (tuple(self._context.get_tensor_shape(t.name)), t.dtype)
            for t in plan.tensors.values()
            if not t.is_input
        }

    def run(self, values: Mapping[str, np.ndarray]) -> DeviceMemory:
        memory = DeviceMemory(self._cuda, self._outputs)
        for name, buffer in memory.buffers.items():
            self._context.set_tensor_address(name, buffer.pointer)
        for name, host in self._inputs.items():
            host.array[...] = values[name]
            self._cuda.to_device(self._device[name].pointer, host.pointer, host.array.nbytes)
        if not self._context.execute_async_v3(self._cuda.stream):
            raise EngineError("TensorRT failed to run the encoder")
        self._cuda.synchronize()
        return memory


class _StepRunner:
    """The step in one size: context, buffers at fixed addresses, and the CUDA graph over them."""

    def __init__(self, plan: Plan, cuda: Cuda, bundle: Bundle, rows: int, columns: int, beams: int) -> None:
        decoder = bundle.manifest.decoder
        self._plan, self._cuda, self._specs = plan, cuda, decoder.state
        self._memory, self.max_steps = decoder.memory, decoder.max_steps
        self._inputs = bundle.components("step")[0].inputs
        index, self.beams, shapes = self._choose(beams, rows, columns)
        self._context = plan.context(cuda, index, shapes)
        self._buffers: dict[str, DeviceBuffer] = {}
        self.shapes: dict[str, Shape] = {}
        for tensor in plan.tensors.values():
            shape = shapes[tensor.name] if tensor.is_input else tuple(self._context.get_tensor_shape(tensor.name))
            self.shapes[tensor.name] = shape
            self._buffers[tensor.name] = cuda.allocate(prod(shape) * tensor.dtype.itemsize)
            self._context.set_tensor_address(tensor.name, self._buffers[tensor.name].pointer)
            cuda.zero(self._buffers[tensor.name].pointer, self._buffers[tensor.name].size)  # a token must be an id
        self._host = {
            name: cuda.allocate_host(self.shapes[name], plan.tensors[name].dtype)
            for name in ("token", "position", "log_probs", "attention")
        }
        self._staging = cuda.allocate(max((self._buffers[s.name].size for s in self._specs), default=0))
        self._graph = self._record()

    def _choose(self, beams: int, rows: int, columns: int) -> tuple[int, int, dict[str, Shape]]:
        """Profile, beams and input shapes: the given number of beams, or the next larger one that a profile takes."""
        for wanted in range(beams, 65):
            shapes = self._shapes(wanted, rows, columns)
            if (index := self._plan.profile(shapes)) >= 0:
                return index, wanted, shapes
        raise EngineError(f"no step profile takes {beams} beams on {rows} x {columns} cells; build all profiles")

    def _shapes(self, beams: int, rows: int, columns: int) -> dict[str, Shape]:
        sizes = {"beam": beams, "rows": rows, "columns": columns, "cells": rows * columns, "time": self.max_steps}
        return {i.name: tuple(sizes[d] if isinstance(d, str) else d for d in i.shape) for i in self._inputs}

    def begin(self, memory: Memory) -> None:
        """Take over a picture's memory, once, and clear the state."""
        for name in self._memory:
            target, dtype = self._buffers[name], self._plan.tensors[name].dtype
            if isinstance(memory, DeviceMemory):
                self._cuda.on_device(target.pointer, memory.buffers[name].pointer, target.size)
            else:
                host = self._cuda.allocate_host(self.shapes[name], dtype)
                host.array[...] = memory[name]
                self._cuda.to_device(target.pointer, host.pointer, target.size)
                self._cuda.synchronize()
        for spec in self._specs:
            self._cuda.zero(self._buffers[spec.name].pointer, self._buffers[spec.name].size)
        self._cuda.synchronize()

    def _record(self) -> Graph | None:
        """The step as a CUDA graph; None where TensorRT cannot be captured."""
        self._execute()  # TensorRT finishes its set-up at the first run, which must not be captured
        self._cuda.synchronize()
        try:
            return self._cuda.capture(self._queue)
        except EngineError:
            return None

    def _execute(self) -> None:
        if not self._context.execute_async_v3(self._cuda.stream):
            raise EngineError("TensorRT failed to run the decoder step")

    def _queue(self) -> None:
        """What a step does that is the same at every position."""
        for name in ("token", "position"):
            self._cuda.to_device(self._buffers[name].pointer, self._host[name].pointer, self._buffers[name].size)
        self._execute()
        for spec in self._specs:
            if spec.update == "replace":
                target = self._buffers[spec.name]
                self._cuda.on_device(target.pointer, self._buffers[f"next_{spec.name}"].pointer, target.size)
        for name in ("log_probs", "attention"):
            self._cuda.to_host(self._host[name].pointer, self._buffers[name].pointer, self._buffers[name].size)

    def step(self, tokens: np.ndarray, position: int) -> tuple[np.ndarray, np.ndarray]:
        """Run the step; the rows beyond ``tokens`` are computed and not looked at."""
        self._host["token"].array[: len(tokens)] = tokens
        self._host["position"].array[0] = position
        if self._graph is None:
            self._queue()
        else:
            self._graph.launch()
        for spec in self._specs:
            if spec.update == "append":
                self._append(spec, position)
        self._cuda.synchronize()
        count = len(tokens)
        return self._host["log_probs"].array[:count], self._host["attention"].array[:count]

    def _append(self, spec: StateSpec, position: int) -> None:
        axis, shape = spec.shape.index("time"), self.shapes[spec.name]
        row = prod(shape[axis + 1 :]) * self._plan.tensors[spec.name].dtype.itemsize
        target = self._buffers[spec.name].pointer + position * row
        source = self._buffers[f"next_{spec.name}"].pointer
        self._cuda.copy_rows(target, shape[axis] * row, source, row, prod(shape[:axis]))

    def reorder(self, parents: np.ndarray) -> None:
        """Bring the state of the parents into the rows of their children."""
        moves = [(child, parent) for child, parent in enumerate(parents.tolist()) if child != parent]
        if not moves:
            return
        for spec in self._specs:
            buffer = self._buffers[spec.name]
            row = buffer.size // self.beams
            self._cuda.on_device(self._staging.pointer, buffer.pointer, buffer.size)
            for child, parent in moves:
                self._cuda.on_device(buffer.pointer + child * row, self._staging.pointer + parent * row, row)


class TensorRTSession:
    """See ``hmerctl.runtime.engine.StepSession``; its buffers go back to the engine with it."""

    def __init__(self, runner: _StepRunner, lock: threading.Lock, idle: list[_StepRunner]) -> None:
        self._runner, self._lock, self._position = runner, lock, 0
        weakref.finalize(self, idle.append, runner)

    def step(self, tokens: np.ndarray, parents: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """See ``StepSession.step``.

        Raises:
            EngineError: more steps than the cache has rows, or more tokens than beams.
        """
        if self._position >= self._runner.max_steps or len(tokens) > self._runner.beams:
            raise EngineError(f"step {self._position} with {len(tokens)} hypotheses: beyond what was started")
        with self._lock:
            if parents is not None and self._position:
                self._runner.reorder(np.asarray(parents))
            result = self._runner.step(tokens, self._position)
        self._position += 1
        return result
