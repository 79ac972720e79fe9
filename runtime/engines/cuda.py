"""The few CUDA runtime calls that the TensorRT engine needs, through ``cuda-python``, with errors as exceptions."""

import ctypes
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from hmerctl.runtime.errors import EngineError


def load_runtime_api() -> ModuleType:
    """``cuda.bindings.runtime`` of cuda-python.

    Raises:
        EngineError: it is not installed.
    """
    try:
        return importlib.import_module("cuda.bindings.runtime")
    except ImportError as error:
        raise EngineError(f"cuda-python is missing ({error}); pip install 'hmerctl[jetson]'") from error


class Cuda:
    """One device and one stream; every copy and fill is queued on that stream.

    Args:
        api: ``cuda.bindings.runtime`` or something that behaves like it.
    """

    def __init__(self, api: Any = None) -> None:
        self._api = api or load_runtime_api()
        self._stream = self._call("cudaStreamCreateWithFlags", self._api.cudaStreamNonBlocking)

    @property
    def stream(self) -> int:
        """The stream's handle as TensorRT takes it."""
        return int(self._stream)

    def compute_capability(self) -> tuple[int, int]:
        """Major and minor of the current device, e.g. (8, 7) for Orin."""
        device = self._call("cudaGetDevice")
        attribute = self._api.cudaDeviceAttr
        return (
            self._call("cudaDeviceGetAttribute", attribute.cudaDevAttrComputeCapabilityMajor, device),
            self._call("cudaDeviceGetAttribute", attribute.cudaDevAttrComputeCapabilityMinor, device),
        )

    def allocate(self, size: int) -> "DeviceBuffer":
        """Device memory of ``size`` bytes, freed with the returned object."""
        return DeviceBuffer(self, self._call("cudaMalloc", max(size, 1)), size)

    def allocate_host(self, shape: tuple[int, ...], dtype: Any) -> "HostBuffer":
        """Page-locked host memory, which copies need to be asynchronous; zero."""
        size = max(int(np.prod(shape)) * np.dtype(dtype).itemsize, 1)
        pointer = int(self._call("cudaMallocHost", size))
        raw = (ctypes.c_byte * size).from_address(pointer)
        ctypes.memset(pointer, 0, size)
        array = np.frombuffer(raw, dtype, int(np.prod(shape))).reshape(shape)
        return HostBuffer(self, pointer, array)

    def free(self, pointer: int, host: bool) -> None:
        """Give memory back; no error at the interpreter's end, when the driver may be gone already."""
        getattr(self._api, "cudaFreeHost" if host else "cudaFree")(pointer)

    def to_device(self, target: int, source: int, size: int) -> None:
        """Queue a copy from page-locked host memory."""
        self._copy(target, source, size, "cudaMemcpyHostToDevice")

    def to_host(self, target: int, source: int, size: int) -> None:
        """Queue a copy to page-locked host memory; valid after ``synchronize``."""
        self._copy(target, source, size, "cudaMemcpyDeviceToHost")

    def on_device(self, target: int, source: int, size: int) -> None:
        """Queue a copy within the device."""
        self._copy(target, source, size, "cudaMemcpyDeviceToDevice")

    def _copy(self, target: int, source: int, size: int, kind: str) -> None:
        self._call("cudaMemcpyAsync", target, source, size, getattr(self._api.cudaMemcpyKind, kind), self._stream)

    def copy_rows(self, target: int, target_pitch: int, source: int, row: int, count: int) -> None:
        """Queue a copy of ``count`` rows of ``row`` bytes within the device; the source's rows are adjacent."""
        kind = self._api.cudaMemcpyKind.cudaMemcpyDeviceToDevice
        self._call("cudaMemcpy2DAsync", target, target_pitch, source, row, row, count, kind, self._stream)

    def zero(self, target: int, size: int) -> None:
        """Queue filling with zeros."""
        self._call("cudaMemsetAsync", target, 0, size, self._stream)

    def synchronize(self) -> None:
        """Wait until everything queued is done."""
        self._call("cudaStreamSynchronize", self._stream)

    def capture(self, work: Callable[[], None]) -> "Graph":
        """Record what ``work`` queues as a CUDA graph, without running it.

        Raises:
            EngineError: something in it cannot be recorded; the stream is usable again.
        """
        mode = self._api.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        self._call("cudaStreamBeginCapture", self._stream, mode)
        try:
            work()
        except EngineError:
            self._api.cudaStreamEndCapture(self._stream)
            raise
        graph = self._call("cudaStreamEndCapture", self._stream)
        executable = self._call("cudaGraphInstantiate", graph, 0)
        self._call("cudaGraphDestroy", graph)
        return Graph(self, executable)

    def launch(self, executable: Any) -> None:
        """Queue a captured graph."""
        self._call("cudaGraphLaunch", executable, self._stream)

    def destroy_graph(self, executable: Any) -> None:
        """Give a captured graph back."""
        self._api.cudaGraphExecDestroy(executable)

    def _call(self, name: str, *arguments: Any) -> Any:
        error, *results = getattr(self._api, name)(*arguments)
        if int(error):
            text = self._api.cudaGetErrorString(error)[1]
            raise EngineError(f"CUDA: {name} failed: {text.decode() if isinstance(text, bytes) else text}")
        return results[0] if results else None


class DeviceBuffer:
    """Device memory; ``pointer`` is its address, ``size`` its length in bytes."""

    def __init__(self, cuda: Cuda, pointer: int, size: int) -> None:
        self._cuda, self.pointer, self.size = cuda, int(pointer), size

    def __del__(self) -> None:
        self._cuda.free(self.pointer, host=False)


class HostBuffer:
    """Page-locked host memory; ``array`` is a view of it that must not outlive this object."""

    def __init__(self, cuda: Cuda, pointer: int, array: np.ndarray) -> None:
        self._cuda, self.pointer, self.array = cuda, pointer, array

    def __del__(self) -> None:
        self._cuda.free(self.pointer, host=True)


class Graph:
    """A captured sequence of kernels and copies, launched as one."""

    def __init__(self, cuda: Cuda, executable: Any) -> None:
        self._cuda, self._executable = cuda, executable

    def launch(self) -> None:
        """Queue it."""
        self._cuda.launch(self._executable)

    def __del__(self) -> None:
        self._cuda.destroy_graph(self._executable)
