"""Engines: what runs the graphs of a bundle, one module each, imported only when a bundle asks for it."""

import importlib

from hmerctl.runtime.bundle import Bundle
from hmerctl.runtime.engine import Engine
from hmerctl.runtime.errors import EngineError

ENGINES = {
    "onnx": "hmerctl.runtime.engines.onnx:OnnxEngine",
    "jetson-trt": "hmerctl.runtime.engines.tensorrt:TensorRTEngine",
}
"""Target to the engine that runs its bundles here: module and class, called with the bundle and ``threads``."""


def load_engine(bundle: Bundle, threads: int | None = None) -> Engine:
    """The engine for a bundle's target.

    Args:
        threads: for the encoder; None for the engine's default.

    Raises:
        EngineError: no engine in this runtime runs bundles of that target.
    """
    target = bundle.manifest.target.name
    if target not in ENGINES:
        known = ", ".join(sorted(ENGINES))
        raise EngineError(f"{bundle.name}: made for {target}, which does not run here; this runtime runs {known}")
    module, name = ENGINES[target].split(":")
    engine: Engine = getattr(importlib.import_module(module), name)(bundle, threads)
    return engine
