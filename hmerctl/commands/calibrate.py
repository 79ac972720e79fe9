"""``hmerctl calibrate``: make a checkpoint's confidence mean what it says."""

from pathlib import Path

import typer

from hmerctl.commands.common import (
    BeamOption,
    GrammarOption,
    LengthOption,
    PruneOption,
    RereadOption,
    print_json,
    print_table,
    progress,
)


def calibrate(
    checkpoint: Path = typer.Argument(help="Checkpoint folder; the calibration is written into it."),
    data: Path = typer.Option(..., help="Validation dataset: not one the model was trained on."),
    risk: float = typer.Option(0.05, min=0, max=1, help="Share of wrong results among the accepted ones to aim at."),
    reject: float = typer.Option(0.1, min=0, max=1, help="Confidence below which a result is rejected."),
    beam: BeamOption = None,
    length_power: LengthOption = None,
    prune: PruneOption = None,
    grammar: GrammarOption = None,
    reread: RereadOption = None,
    readings: Path | None = typer.Option(
        None, help="What 'hmerctl eval CHECKPOINT --readings' wrote of the same data and decoding; saves the reading."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Fit the confidence of a checkpoint on validation data, and the threshold from which results are accepted.

    Every bundle exported from the checkpoint afterwards carries both, and decodes as it was done here: as the
    checkpoint says, but for the options that are given.
    """
    from hmerctl.targets.opened import open_model
    from hmerctl.train.calibrate import calibrate as fit
    from hmerctl.train.calibrate import with_calibration
    from hmerctl.train.checkpoint import read_info, save_info
    from hmerctl.train.dataset import ExpressionDataset
    from hmerctl.train.evaluate import load_readings, read_dataset

    info = read_info(checkpoint)
    changes = {"beams": beam, "length_power": length_power, "prune": prune, "grammar": grammar, "reread": reread}
    dataset = ExpressionDataset(data)
    if readings is None:
        opened = open_model(checkpoint)
        options = opened.options(**changes)
        reader = read_dataset(
            opened.engine, dataset, opened.vocabulary, opened.raster, options, opened.padding, forced=False
        )
        read = list(progress(reader, "reading", len(dataset)))
    else:
        read = load_readings(readings, dataset)
    result = fit(read, data.name, info.decoding.but(**changes), risk, reject)
    save_info(checkpoint, with_calibration(info, result))
    if as_json:
        print_json(result.to_dict())
        return
    rows = [
        ("results", result.results),
        ("calibration error of the plain probability", f"{result.ece_raw:.4f}"),
        ("calibration error, calibrated (cross-validated)", f"{result.ece:.4f}"),
        ("area under the risk-coverage curve", f"{result.aurc:.4f}"),
        ("accepted from confidence", f"{result.decoding.accept:.3f}"),
        ("accepted", f"{100 * result.coverage:.1f} %"),
        ("wrong among the accepted", f"{100 * result.risk:.1f} %"),
    ]
    print_table(["confidence", str(checkpoint)], rows)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("calibrate")(calibrate)
