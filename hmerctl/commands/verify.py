"""``hmerctl verify``: a bundle up the parity ladder."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hmerctl.commands.common import print_json, print_table, progress

if TYPE_CHECKING:
    from hmerctl.targets.verify import Verification


def verify(
    bundle: Path | None = typer.Argument(None, help="Bundle folder; the shipped one if left out."),
    checkpoint: Path | None = typer.Option(
        None, help="The checkpoint it was made from; the shipped one if left out and it is the one."
    ),
    data: Path | None = typer.Option(
        None, help="Dataset folder to compare on; the bundle's own sample inks if left out."
    ),
    limit: int | None = typer.Option(
        None, min=1, help="Only about so many expressions of --data, evenly spread; for slow stand-ins."
    ),
    write: bool = typer.Option(True, help="Write the report into the bundle."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON, every single check."),
) -> None:
    """Prove that a bundle says what its checkpoint says.

    L0 the graphs hold only what the target takes; L1 exported forms equal training forms; L2 encoder and step equal
    PyTorch's on real ink in every bucket; L3 free-running tokens are the same; L4 ExpRate is the same; L5 the sample
    inks give what the bundle says. Any miss, and any of L0 to L3 that could not run, ends with exit code 1.
    """
    import torch

    from hmerctl.export.source import checkpoint_of, load_source
    from hmerctl.runtime.bundle import open_bundle
    from hmerctl.runtime.shipped import shipped_bundle
    from hmerctl.targets.verify import verify_bundle, write_report

    torch.set_num_threads(1)
    path = bundle or shipped_bundle()
    chosen = checkpoint or checkpoint_of(open_bundle(path))
    source = None if chosen is None else load_source(chosen)
    missing = "the bundle was not made from the shipped checkpoint: name its own with --checkpoint"
    result = verify_bundle(path, source, data, progress, missing, limit)
    if write:
        write_report(path, result)
    if as_json:
        print_json({"bundle": result.bundle, "verified": result.verified, "engine": result.engine} | _plain(result))
    else:
        _print(result)
    if not result.verified:
        raise typer.Exit(1)


def _plain(result: "Verification") -> dict[str, object]:
    return {"levels": result.report.levels, "findings": result.findings}


def _print(result: "Verification") -> None:
    """Every check that has a number or did not pass, then one line a level."""
    rows = [
        (f.level, f.check, f.status, "" if f.value is None else f"{f.value:.3g}", "" if f.bound is None else f.bound)
        for f in result.findings
        if f.value is not None or f.status in ("failed", "not-run")
    ]
    print_table(["level", "check", "status", "value", "bound"], rows, title=f"{result.bundle} on {result.engine}")
    for level in result.report.levels:
        typer.echo(f"{level.level} {level.status}: {level.detail}")
    typer.echo("verified" if result.verified else "NOT VERIFIED")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("verify")(verify)
