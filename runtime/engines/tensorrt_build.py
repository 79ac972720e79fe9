"""Building TensorRT engines on the device they run on, from the strongly typed ONNX graphs of a bundle.

An engine is tied to the GPU and the TensorRT that built it, so nothing is built elsewhere; what was built is kept in
a cache under the sha256 of the graph, the TensorRT version, the compute capability and the shapes. The calls below
are those that TensorRT 10.3 (JetPack 6.1, 6.2) and 11 (JetPack 7.2.2) have in common: no precision flag, no
calibrator.
"""

import hashlib
import importlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from hmerctl.runtime.bundle import Bundle, sha256_file
from hmerctl.runtime.engines.cuda import Cuda
from hmerctl.runtime.errors import BundleError, EngineError
from hmerctl.runtime.files import check_writable, write_bytes
from hmerctl.runtime.manifest import Component

PROFILES = "profiles.json"
WORKSPACE = 1 << 30
"""Bytes that a kernel may use for scratch while building; an Orin Nano has 8 GiB for everything."""

Shape = tuple[int, ...]
Which = Literal["ranged", "exact"]


class Profile(BaseModel):
    """One optimisation profile: smallest, typical and largest shape of every input."""

    model_config = ConfigDict(frozen=True)

    name: str
    minimum: dict[str, Shape]
    typical: dict[str, Shape]
    maximum: dict[str, Shape]


class ProfileSet(BaseModel):
    """Profiles of both graphs that belong together."""

    model_config = ConfigDict(frozen=True)

    encoder: tuple[Profile, ...]
    step: tuple[Profile, ...]


class Profiles(BaseModel):
    """``profiles.json`` of a bundle.

    Attributes:
        ranged: few profiles that cover every bucket: quick to build.
        exact: one profile per bucket (and beam width): the fastest engines, slow to build.
    """

    model_config = ConfigDict(frozen=True)

    version: Literal[1] = 1
    ranged: ProfileSet
    exact: ProfileSet


@dataclass(frozen=True)
class Built:
    """One engine file.

    Attributes:
        seconds: the build took; 0 for one from the cache.
    """

    role: str
    plan: Path
    profiles: int
    seconds: float


def load_tensorrt() -> Any:
    """The ``tensorrt`` module.

    Raises:
        EngineError: it is not installed.
    """
    try:
        return importlib.import_module("tensorrt")
    except ImportError as error:
        raise EngineError(
            f"tensorrt is missing ({error}); JetPack brings it (apt install python3-libnvinfer), and a virtual "
            "environment sees it with --system-site-packages"
        ) from error


def read_profiles(bundle: Bundle) -> Profiles:
    """``profiles.json`` of a bundle."""
    path = bundle.file(PROFILES)
    try:
        return Profiles.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise BundleError(f"{bundle.name}: {PROFILES} cannot be read ({reason}); export it for jetson-trt") from error


def default_cache() -> Path:
    """``$HMERCTL_CACHE/tensorrt``, else ``$XDG_CACHE_HOME/hmerctl/tensorrt``, else ``~/.cache/hmerctl/tensorrt``."""
    if own := os.environ.get("HMERCTL_CACHE"):
        return Path(own) / "tensorrt"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hmerctl" / "tensorrt"


def cache_key(
    onnx_sha256: str, tensorrt_version: str, capability: tuple[int, int], profiles: tuple[Profile, ...]
) -> str:
    """Hex digest of everything that an engine depends on."""
    value = {
        "onnx": onnx_sha256,
        "tensorrt": tensorrt_version,
        "sm": f"{capability[0]}{capability[1]}",
        "shapes": [profile.model_dump(mode="json") for profile in profiles],
    }
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def plan_path(
    cache: Path, bundle: Bundle, component: Component, profiles: tuple[Profile, ...], trt: Any, cuda: Cuda
) -> Path:
    """Where the engine of a graph lies, or will lie."""
    digest = sha256_file(bundle.file(component.file))
    return cache / f"{cache_key(digest, trt.__version__, cuda.compute_capability(), profiles)}.plan"


def build_engines(
    bundle: Bundle,
    which: Which = "ranged",
    cache: Path | None = None,
    trt: Any = None,
    cuda: Cuda | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> list[Built]:
    """Build what is not in the cache yet.

    Args:
        which: set of profiles, see ``Profiles``.
        trt, cuda: the modules to use; None for the installed ones.
        report: told what happens, a line at a time.

    Raises:
        BundleError: TensorRT is older than the bundle says.
        EngineError: TensorRT is missing or refuses a graph; its own words are in the message.
        OSError: the cache cannot be written; known before anything is built.
    """
    trt, cuda = trt or load_tensorrt(), cuda or Cuda()
    bundle.require_runtime("TensorRT", trt.__version__)
    cache = cache or default_cache()
    cache.mkdir(parents=True, exist_ok=True)
    profiles: ProfileSet = getattr(read_profiles(bundle), which)
    built = []
    for component in bundle.manifest.components:
        wanted: tuple[Profile, ...] = getattr(profiles, component.role)
        path = plan_path(cache, bundle, component, wanted, trt, cuda)
        if path.is_file():
            report(f"{component.name}: in the cache")
            built.append(Built(component.role, path, len(wanted), 0.0))
            continue
        report(f"{component.name}: building {len(wanted)} profiles with TensorRT {trt.__version__}")
        started = time.monotonic()
        timing = cache / f"timing-{trt.__version__}-sm{''.join(map(str, cuda.compute_capability()))}.cache"
        check_writable(path, timing)  # a build may take hours
        plan = build_plan(trt, bundle.file(component.file), wanted, timing)
        write_bytes(path, plan)
        built.append(Built(component.role, path, len(wanted), time.monotonic() - started))
    return built


def build_plan(
    trt: Any,
    onnx: Path,
    profiles: tuple[Profile, ...],
    timing_cache: Path | None = None,
    configure: Callable[[Any], None] = lambda config: None,
) -> bytes:
    """Parse a graph and build its engine.

    Args:
        timing_cache: kernel timings, read if there and written back; bound to the device like the engine.
        configure: is given the builder's configuration before it is used.

    Raises:
        EngineError: naming the operator that the parser refuses, or what the builder said.
    """
    log = _Log(trt)
    builder = trt.Builder(log.logger)
    network, parser = _parse(trt, builder, log, onnx)
    config = builder.create_builder_config()
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, WORKSPACE)
    # What the graph keeps in float32 is kept because it matters: no 10-bit mantissas there.
    config.clear_flag(trt.BuilderFlag.TF32)
    configure(config)
    inputs = {network.get_input(i).name for i in range(network.num_inputs)}
    for profile in profiles:
        if set(profile.minimum) != inputs:
            raise EngineError(f"{onnx.name}: profile {profile.name} is for other inputs than the graph has")
        shapes = builder.create_optimization_profile()
        for name in profile.minimum:
            shapes.set_shape(name, profile.minimum[name], profile.typical[name], profile.maximum[name])
        config.add_optimization_profile(shapes)
    timings = None
    if timing_cache is not None:
        timings = config.create_timing_cache(timing_cache.read_bytes() if timing_cache.is_file() else b"")
        config.set_timing_cache(timings, ignore_mismatch=False)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise EngineError(f"{onnx.name}: TensorRT {trt.__version__} builds no engine: {log.last()}")
    if timing_cache is not None and timings is not None:
        write_bytes(timing_cache, bytes(timings.serialize()))
    del parser  # the network refers to its memory until here
    return bytes(plan)


def _parse(trt: Any, builder: Any, log: "_Log", onnx: Path) -> tuple[Any, Any]:
    # TensorRT 11 networks are always strongly typed and the flag means nothing there.
    typed = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
    network = builder.create_network(0 if typed is None else 1 << int(typed))
    parser = trt.OnnxParser(network, log.logger)
    if not parser.parse(onnx.read_bytes()):
        errors = [parser.get_error(i) for i in range(parser.num_errors)]
        said = "; ".join(f"{e.node_operator()} {e.node_name()}: {e.desc()}" for e in errors) or log.last()
        raise EngineError(f"{onnx.name}: TensorRT {trt.__version__} cannot read the graph: {said}")
    return network, parser


class _Log:
    """TensorRT's logger, kept for error messages instead of printed."""

    def __init__(self, trt: Any) -> None:
        lines: list[str] = []

        class Logger(trt.ILogger):
            def __init__(self) -> None:
                trt.ILogger.__init__(self)

            def log(self, severity: Any, message: str) -> None:
                if severity in (trt.ILogger.Severity.ERROR, trt.ILogger.Severity.INTERNAL_ERROR):
                    lines.append(" ".join(message.split()))

        self.lines, self.logger = lines, Logger()

    def last(self) -> str:
        """The last error, or a remark that there was none."""
        return self.lines[-1] if self.lines else "no reason given"
