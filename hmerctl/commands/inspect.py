"""``hmerctl inspect``: what a bundle is and holds."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hmerctl.commands.common import print_json, print_table

if TYPE_CHECKING:
    from hmerctl.runtime.bundle import Bundle


def inspect(
    bundle: Path | None = typer.Argument(None, help="Bundle folder; the shipped one if left out."),
    json: bool = typer.Option(False, "--json", help="Print the manifest as JSON."),
    schema: bool = typer.Option(False, "--schema", help="Print the JSON Schema of manifests and nothing else."),
) -> None:
    """Check a bundle's files against its manifest and show what it holds."""
    from hmerctl.runtime.bundle import open_bundle
    from hmerctl.runtime.manifest import manifest_schema
    from hmerctl.runtime.shipped import shipped_bundle

    if schema:
        print_json(manifest_schema())
        return
    opened = open_bundle(bundle or shipped_bundle())
    if json:
        print_json(opened.manifest)
    else:
        _print(opened)


def _print(bundle: "Bundle") -> None:
    """The manifest for people: facts, graphs, parity."""
    manifest = bundle.manifest
    needs = ", ".join(f"{name} >= {version}" for name, version in manifest.target.minimum_runtime.items())
    state = f"{len(manifest.decoder.state)} tensors, up to {manifest.decoder.max_steps} steps"
    confidence = "raw" if manifest.calibration is None else f"calibrated on {manifest.calibration.fitted_on}"
    opset = "" if manifest.target.opset is None else f", opset {manifest.target.opset}"
    facts = [
        ("bundle", manifest.bundle_id),
        ("model", f"{manifest.model.name}, {manifest.model.parameters:,} parameters"),
        ("licence", manifest.model.licence),
        ("training data", manifest.model.training_data),
        ("target", f"{manifest.target.name} {manifest.target.precision}{opset}"),
        ("needs", needs or "nothing stated"),
        ("size", f"{bundle.total_bytes() / 1e6:.1f} MB in {len(manifest.files)} files, all checked"),
        ("vocabulary", f"{len(bundle.vocabulary.tokens)} tokens, sha256 {bundle.vocabulary.sha256[:12]}"),
        ("rasters", f"{len(manifest.buckets)} buckets, contract {manifest.preprocessing.version}"),
        ("decoder state", state),
        ("decoding", ", ".join(f"{name} {value}" for name, value in manifest.decoding)),
        ("confidence", confidence),
        ("samples", str(len(manifest.samples))),
        ("parity", manifest.parity_state),
    ]
    print_table(["", ""], facts)
    tensors = [
        (component.name, component.file, side, spec.name, spec.dtype, f"({', '.join(map(str, spec.shape))})")
        for component in manifest.components
        for side, specs in (("in", component.inputs), ("out", component.outputs))
        for spec in specs
    ]
    print_table(["graph", "file", "", "tensor", "type", "shape"], tensors)
    if manifest.parity is not None:
        levels = [(level.level, level.status, level.engine, level.detail) for level in manifest.parity.levels]
        print_table(["level", "status", "engine", "what was found"], levels)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(inspect)
