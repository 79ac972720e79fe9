"""Engines: what runs the graphs of a bundle, one module each, imported only when a bundle asks for it."""

import importlib
import importlib.metadata
from collections.abc import Callable

from hmerctl.runtime.bundle import Bundle
from hmerctl.runtime.engine import Engine
from hmerctl.runtime.errors import EngineError

ENGINES = {
    "onnx": "hmerctl.runtime.engines.onnx:OnnxEngine",
    "jetson-trt": "hmerctl.runtime.engines.tensorrt:TensorRTEngine",
}
"""Target to the engine that runs its bundles here: module and class, called with the bundle and ``threads``."""

GROUP = "hmerctl.engines"
"""Entry points by which another package names the engine for the bundles of its own target, in the same form."""


def load_engine(bundle: Bundle, threads: int | None = None) -> Engine:
    """The engine for a bundle's target.

    Args:
        threads: for the encoder; None for the engine's default.

    Raises:
        EngineError: no engine in this runtime runs bundles of that target, or another package's cannot be imported.
    """
    target = bundle.manifest.target.name
    others = {entry.name: entry for entry in importlib.metadata.entry_points(group=GROUP)}
    if target not in ENGINES and target not in others:
        known = ", ".join(sorted({*ENGINES, *others}))
        raise EngineError(f"{bundle.name}: made for {target}, which does not run here; this runtime runs {known}")
    engine: Engine = (_own(target) if target in ENGINES else _of_another(others[target]))(bundle, threads)
    return engine


def _own(target: str) -> Callable[[Bundle, int | None], Engine]:
    module, name = ENGINES[target].split(":")
    make: Callable[[Bundle, int | None], Engine] = getattr(importlib.import_module(module), name)
    return make


def _of_another(entry: importlib.metadata.EntryPoint) -> Callable[[Bundle, int | None], Engine]:
    try:
        make: Callable[[Bundle, int | None], Engine] = entry.load()
    except Exception as error:  # any fault of a third party's package
        raise EngineError(f"engine {entry.name} ({entry.value}) cannot be loaded: {error!r}; reinstall it") from error
    return make
