"""``hmerctl export``: a checkpoint to a bundle for a target."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hmerctl.commands.common import (
    BeamOption,
    GrammarOption,
    LengthOption,
    PruneOption,
    RereadOption,
    fail,
    print_json,
    print_table,
)

if TYPE_CHECKING:
    from hmerctl.targets.base import Plan

CALIBRATION_INKS = 256
"""Expressions drawn from ``--calibration`` at most."""


def export(
    checkpoint: Path | None = typer.Argument(None, help="Checkpoint folder; the shipped one if left out."),
    target: str = typer.Option("onnx", help="What to export for; 'hmerctl doctor' lists the targets."),
    out: Path = typer.Option(Path(), help="Folder for <model>-<target>-<precision>.hmer, or a *.hmer path."),
    precision: str | None = typer.Option(None, help="fp32, fp16, int8, ...; the target's default if left out."),
    calibration: Path | None = typer.Option(None, help="Dataset folder whose inks set the ranges of int8."),
    beam: BeamOption = None,
    length_power: LengthOption = None,
    prune: PruneOption = None,
    grammar: GrammarOption = None,
    reread: RereadOption = None,
    dry_run: bool = typer.Option(False, "--dry-run", help="Print what would be written, and write nothing."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Take a checkpoint apart into encoder and decoder step, convert both for a target, and write the bundle.

    The bundle decodes as the checkpoint says, but for the options that are given. Verify it afterwards with
    'hmerctl verify'. Example:

    hmerctl export runs/edge/best --target onnx --out bundles
    """
    from dataclasses import replace

    import torch

    from hmerctl.export.source import load_source, shipped_checkpoint
    from hmerctl.runtime.bundle import open_bundle
    from hmerctl.runtime.samples import sample_paths
    from hmerctl.runtime.strokes import read_strokes
    from hmerctl.targets.base import find
    from hmerctl.targets.build import bundle_path, export_bundle, make_plan

    torch.set_num_threads(1)  # tracing is no faster on more
    chosen = find(target)
    folder = checkpoint or shipped_checkpoint()
    source = load_source(folder, _calibration(calibration, folder))
    info = source.info.decoded(beams=beam, length_power=length_power, prune=prune, grammar=grammar, reread=reread)
    if info.calibration != source.info.calibration:
        fail(
            f"{folder}: its confidence was fitted on results of other decoding, so the bundle goes without: "
            "fit it with the same options of hmerctl calibrate, then export without them"
        )
    source = replace(source, info=info)
    plan = make_plan(source, chosen, precision)
    path = bundle_path(out, source, plan)
    if dry_run:
        print_json({"path": path, "plan": plan}) if as_json else _print_plan(plan, path)
        return
    manifest = export_bundle(source, chosen, plan, path, [read_strokes(file) for file in sample_paths()])
    if as_json:
        print_json({"path": path, "bundle": manifest.bundle_id, "components": manifest.components})
        return
    size = open_bundle(path).total_bytes()
    typer.echo(f"{path}: {manifest.bundle_id}, {size / 1e6:.1f} MB; verify it with: hmerctl verify {path}")


def _calibration(path: Path | None, checkpoint: Path) -> list:
    """Rasters for calibration: expressions spread evenly over a dataset, drawn as the checkpoint wants them."""
    if path is None:
        return []
    from hmerctl.export.parity.pictures import pictures_of_dataset
    from hmerctl.train.checkpoint import read_info

    pictures = pictures_of_dataset(path, read_info(checkpoint).raster, CALIBRATION_INKS)
    return [picture.pixels for picture in pictures]


def _print_plan(plan: "Plan", path: Path) -> None:
    """A plan for people."""
    opset = "" if plan.opset is None else f", opset {plan.opset}"
    typer.echo(f"Would write {path}: target {plan.target}, precision {plan.precision}{opset}")
    rows = [
        (c.name, c.role, c.format, c.file, ", ".join(f"{axis} {size}" for axis, size in c.sizes.items()) or "dynamic")
        for c in plan.components
    ]
    print_table(["component", "role", "format", "file", "shapes"], rows)
    for note in plan.notes:
        typer.echo(f"- {note}")
    if plan.refusal:
        typer.echo(f"REFUSED: {plan.refusal}")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("export")(export)
