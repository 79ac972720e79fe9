"""Engine ``onnxruntime``: ONNX graphs on the CPU, the state kept in buffers that live as long as the decoding."""

import numpy as np
import onnxruntime as ort

from hmerctl.runtime.bundle import VOCABULARY_METADATA, Bundle
from hmerctl.runtime.device import available_cores
from hmerctl.runtime.engine import Memory
from hmerctl.runtime.errors import BundleError, EngineError
from hmerctl.runtime.manifest import Component
from hmerctl.runtime.state import StateSpec

PROVIDER = "CPUExecutionProvider"
"""The only one: no other is ever picked behind the caller's back."""

MASK = "memory_mask"
"""Output of every encoder: which cells are no padding."""

FIRST_ROWS = 16
"""Rows that a cache begins with where the graph lets its time axis grow: a step reads all of them."""

_EXTERNAL_DATA = b"\x0a\x08location\x12"
"""How a tensor's external data begins in a protobuf. onnxruntime 1.23 reads whatever file it names."""

_DTYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int32)": np.int32}


class OnnxEngine:
    """See ``hmerctl.runtime.engine.Engine``.

    Args:
        bundle: with components of format ``onnx`` or ``ort``.
        encoder_threads: default: the cores that this process may use, at most 4.
        step_threads: a step is so small that one thread is fastest.

    Raises:
        BundleError, EngineError: onnxruntime is older than the bundle says, or cannot load its graphs.
    """

    def __init__(self, bundle: Bundle, encoder_threads: int | None = None, step_threads: int = 1) -> None:
        bundle.require_runtime("onnxruntime", ort.__version__)
        self.name = f"onnxruntime {ort.__version__} CPU"
        self.bundle = bundle
        self.threads = {"encoder": encoder_threads or min(4, available_cores()), "step": step_threads}
        self._sessions: dict[str, ort.InferenceSession] = {}
        for role in ("encoder", "step"):
            for component in bundle.components(role):
                self._sessions[component.name] = self._load(component)

    def _load(self, component: Component) -> ort.InferenceSession:
        where = f"{self.bundle.name}: {component.file}"
        options = ort.SessionOptions()
        options.intra_op_num_threads = self.threads[component.role]
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        data = self.bundle.file(component.file).read_bytes()
        if _EXTERNAL_DATA in data:
            raise EngineError(f"{where} keeps weights in another file, which is not allowed; export the bundle anew")
        try:
            session = ort.InferenceSession(data, options, providers=[PROVIDER])
        except Exception as error:  # onnxruntime's errors share no base class
            raise EngineError(f"{where} cannot be loaded by {self.name} ({error}); export the bundle anew") from error
        digest = session.get_modelmeta().custom_metadata_map.get(VOCABULARY_METADATA)
        if digest != self.bundle.vocabulary.sha256:
            raise BundleError(f"{where} was made for another vocabulary (or names none); export the bundle anew")
        takes, gives = self._named(component)
        inputs = {tensor.name for tensor in session.get_inputs()}
        problems = [f"takes no {name}" for name in sorted(takes - inputs)]
        problems += [f"gives no {name}" for name in sorted(gives - {t.name for t in session.get_outputs()})]
        if component.role == "step":
            memory = set(self.bundle.manifest.decoder.memory)
            problems += [f"takes {name}, which nothing gives" for name in sorted(inputs - takes - memory)]
        if problems:
            raise EngineError(
                f"{where} is no {component.role} of this bundle: it {problems[0]}; export the bundle anew"
            )
        return session

    def _named(self, component: Component) -> tuple[set[str], set[str]]:
        """Inputs and outputs that a graph of this role must have; a step may take any part of the memory."""
        decoder = self.bundle.manifest.decoder
        if component.role == "encoder":
            return {"raster", "size"}, {MASK, *decoder.memory}
        state = [spec.name for spec in decoder.state]
        return {"token", "position", *state}, {"log_probs", "attention", *(f"next_{name}" for name in state)}

    def _session(self, role: str, height: int, width: int) -> ort.InferenceSession:
        for component in self.bundle.components(role):
            if component.bucket in (None, (height, width)):
                return self._sessions[component.name]
        raise EngineError(f"{self.bundle.name}: no {role} takes rasters of {height} x {width} pixels")

    def encode(self, raster: np.ndarray, size: np.ndarray) -> Memory:
        """See ``Engine.encode``."""
        session = self._session("encoder", *raster.shape[2:])
        feed = {"raster": raster.astype(_dtype(session, "raster"), copy=False), "size": size}
        names = [output.name for output in session.get_outputs()]
        try:
            memory = dict(zip(names, session.run(None, feed), strict=True))
        except Exception as error:  # onnxruntime's errors share no base class
            raise EngineError(f"{self.bundle.name}: encoder fails ({error}); export the bundle anew") from error
        cells, stride = memory[MASK].shape[-2:], self.bundle.manifest.decoder.stride
        if tuple(side * stride for side in cells) != raster.shape[2:]:
            raise EngineError(
                f"{self.bundle.name}: encoder gives {cells[0]} x {cells[1]} cells for {raster.shape[2]} x "
                f"{raster.shape[3]} pixels, which are not of {stride} pixels; export the bundle anew"
            )
        return memory

    def start(self, memory: Memory, beams: int) -> "OnnxSession":
        """See ``Engine.start``."""
        decoder = self.bundle.manifest.decoder
        rows, columns = memory[MASK].shape[-2:]
        session = self._session("step", rows * decoder.stride, columns * decoder.stride)
        return OnnxSession(session, decoder.state, memory, beams, decoder.max_steps)


def _dtype(session: ort.InferenceSession, name: str) -> type:
    return next(_DTYPES[tensor.type] for tensor in session.get_inputs() if tensor.name == name)


class OnnxSession:
    """See ``hmerctl.runtime.engine.StepSession``."""

    def __init__(
        self,
        session: ort.InferenceSession,
        specs: tuple[StateSpec, ...],
        memory: Memory,
        beams: int,
        max_steps: int,
    ) -> None:
        self._session, self._specs, self._max_steps = session, specs, max_steps
        inputs = {tensor.name: tensor for tensor in session.get_inputs()}
        self._outputs = [tensor.name for tensor in session.get_outputs()]
        self._feed = {name: value for name, value in memory.items() if name in inputs}
        self._position = 0
        rows, columns = memory[MASK].shape[-2:]
        symbols = {"beam": beams, "rows": rows, "columns": columns, "time": self._first_rows(inputs)}
        self._state: dict[str, np.ndarray] = {}
        self._caches: dict[str, np.ndarray] = {}
        for spec in specs:
            shape = [symbols[axis] if isinstance(axis, str) else axis for axis in spec.shape]
            self._keep(spec, np.zeros(shape, _DTYPES[inputs[spec.name].type]))

    def _keep(self, spec: StateSpec, buffer: np.ndarray) -> None:
        """Set a state tensor; ``_caches`` views those with a time axis as (time, beam, ...)."""
        self._state[spec.name] = buffer
        if spec.update == "append":
            self._caches[spec.name] = np.moveaxis(buffer, spec.shape.index("time"), 0)

    def _first_rows(self, inputs: dict[str, "ort.NodeArg"]) -> int:
        """Rows of a fresh cache: what a static graph demands, few where the time axis is symbolic."""
        for spec in self._specs:
            if spec.update == "append":
                rows = inputs[spec.name].shape[spec.shape.index("time")]
                return rows if isinstance(rows, int) else min(FIRST_ROWS, self._max_steps)
        return self._max_steps

    def step(self, tokens: np.ndarray, parents: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """See ``StepSession.step``."""
        count = len(tokens)
        if parents is not None and self._position:
            self._reorder(parents)
        self._grow()
        feed = {name: buffer[:count] for name, buffer in self._state.items()}
        feed |= self._feed
        feed["token"], feed["position"] = tokens, np.array([self._position], np.int32)
        try:
            outputs = dict(zip(self._outputs, self._session.run(self._outputs, feed), strict=True))
        except Exception as error:  # onnxruntime's errors share no base class
            raise EngineError(f"decoder step fails ({error}); export the bundle anew") from error
        for spec in self._specs:
            value = outputs[f"next_{spec.name}"]
            if spec.update == "append":
                self._caches[spec.name][self._position, :count] = value
            else:
                self._state[spec.name] = value
        self._position += 1
        return outputs["log_probs"].astype(np.float32, copy=False), outputs["attention"]

    def _reorder(self, parents: np.ndarray) -> None:
        """Bring the state of the parents into the rows of their children; of caches only what is already written."""
        unmoved = np.array_equal(parents, np.arange(len(parents)))
        for spec in self._specs:
            if spec.update == "replace":
                state = self._state[spec.name]
                self._state[spec.name] = state[: len(parents)] if unmoved else state[parents]
            elif not unmoved:
                written = self._caches[spec.name][: self._position]
                written[:, : len(parents)] = written[:, parents]

    def _grow(self) -> None:
        """Double the caches when they are full."""
        for spec in self._specs:
            if spec.name not in self._caches or self._position < len(self._caches[spec.name]):
                continue
            old, shape = self._caches[spec.name], list(self._state[spec.name].shape)
            shape[spec.shape.index("time")] = min(2 * len(old), self._max_steps)
            self._keep(spec, np.zeros(shape, old.dtype))
            self._caches[spec.name][: len(old)] = old
