"""``hmerctl build-engine``: TensorRT engines for a bundle, built and proven on the device they will run on."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from hmerctl.commands.common import print_json, print_table

if TYPE_CHECKING:
    from hmerctl.runtime.engines.tensorrt_build import Built
    from hmerctl.runtime.manifest import ParityLevel


def build_engine(
    bundle: Path = typer.Argument(..., help="Bundle folder made for jetson-trt."),
    profiles: Literal["ranged", "exact"] = typer.Option(
        "ranged",
        help="ranged: few profiles, minutes; exact: one per bucket and beam width, the fastest engines, hours.",
    ),
    cache: Path | None = typer.Option(None, help="Where engines are kept; default ~/.cache/hmerctl/tensorrt."),
    prove: bool = typer.Option(True, help="Compare with onnxruntime on the bundle's samples afterwards."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Build TensorRT engines for a bundle on this device, then prove them.

    Engines depend on the GPU and the TensorRT that built them, so run this on the device itself, once per bundle and
    JetPack. What is in the cache is not built again. A failed proof ends with exit code 1.
    """
    from hmerctl.runtime.bundle import open_bundle
    from hmerctl.runtime.engines.tensorrt_build import build_engines

    opened = open_bundle(bundle)
    built = build_engines(opened, profiles, cache, report=lambda line: typer.echo(line, err=True))
    levels: tuple[ParityLevel, ...] = ()
    if prove:
        from hmerctl.runtime.engines.onnx import OnnxEngine
        from hmerctl.runtime.engines.tensorrt import TensorRTEngine
        from hmerctl.runtime.prove import prove as prove_engine

        levels = prove_engine(opened, TensorRTEngine(opened, profiles=profiles, cache=cache), OnnxEngine(opened))
    if as_json:
        print_json({"bundle": opened.manifest.bundle_id, "engines": built, "levels": levels})
    else:
        _print(built, levels)
    if any(level.status == "failed" for level in levels):
        raise typer.Exit(1)


def _print(built: "list[Built]", levels: "tuple[ParityLevel, ...]") -> None:
    rows = [(b.role, b.profiles, f"{b.seconds:.0f} s" if b.seconds else "from the cache", b.plan) for b in built]
    print_table(["graph", "profiles", "built in", "engine"], rows)
    for level in levels:
        typer.echo(f"{level.level} {level.status}: {level.detail}")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("build-engine")(build_engine)
