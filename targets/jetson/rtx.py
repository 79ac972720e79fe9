"""Reading and building a bundle's graphs with TensorRT-RTX, which needs neither GPU nor driver.

It is the desktop sister of the Jetson's TensorRT: same parser and builder interface, another set of GPUs (Orin is not
among them). That it accepts a graph proves operators, types and shapes, not a Jetson engine.
"""

import importlib
from pathlib import Path
from typing import Any

from hmerctl.export.parity.report import Finding, not_run
from hmerctl.runtime.engines.tensorrt_build import Profile, build_plan
from hmerctl.runtime.errors import EngineError

HOW = "pip install tensorrt-rtx-cu12==1.7.1.116"


def load_rtx() -> Any:
    """The ``tensorrt_rtx`` module, or None where it is not installed."""
    try:
        return importlib.import_module("tensorrt_rtx")
    except ImportError:
        return None


def refused_nodes(rtx: Any, onnx: Path) -> list[str]:
    """What the parser does not support, a line each: operator, node and reason."""
    builder = rtx.Builder(rtx.Logger(rtx.Logger.INTERNAL_ERROR))
    # A network per parse: a second parse into the same one does not report.
    network = builder.create_network(1 << int(rtx.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = rtx.OnnxParser(network, rtx.Logger(rtx.Logger.INTERNAL_ERROR))
    if parser.supports_model_v2(onnx.read_bytes()):
        return []
    errors = [parser.get_error(i) for i in range(parser.num_errors)]
    return [f"{e.node_operator()} {e.node_name()}: {' '.join(e.desc().split())}" for e in errors]


def check_with_rtx(name: str, onnx: Path, profiles: tuple[Profile, ...]) -> Finding:
    """Parse a graph and build an engine for an Ampere GPU with the given profiles.

    Args:
        name: of the component, for the finding.
    """
    rtx = load_rtx()
    check = f"{name}: TensorRT-RTX reads and builds it, {len(profiles)} profiles"
    if rtx is None:
        return not_run("L0", check, f"tensorrt_rtx is not installed: {HOW}")
    refused = refused_nodes(rtx, onnx)
    if refused:
        return Finding("L0", check, "failed", detail="; ".join(refused[:5]))

    def for_ampere(config: Any) -> None:
        config.num_compute_capabilities = 1
        config.set_compute_capability(rtx.ComputeCapability.SM80, 0)

    try:
        plan = build_plan(rtx, onnx, profiles, configure=for_ampere)
    except EngineError as error:
        return Finding("L0", check, "failed", detail=str(error))
    return Finding("L0", check, "stand-in", detail=f"TensorRT-RTX {rtx.__version__}, {len(plan)} bytes, not a Jetson")
