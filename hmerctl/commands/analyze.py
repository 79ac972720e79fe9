"""``hmerctl analyze``: what a trained model looks at, and how its training went."""

from pathlib import Path

import typer

from hmerctl.commands.common import BeamOption, Group, console, print_json, print_table, progress
from hmerctl.runtime.errors import ConfigError

analyze = typer.Typer(
    cls=Group, no_args_is_help=True, help="Show what a model looks at, how local its attention is, how training went."
)


@analyze.command()
def attention(
    model: Path = typer.Argument(help="A checkpoint folder, or any bundle."),
    source: Path = typer.Argument(metavar="INPUT", help="Ink (InkML, strokes JSON) or a picture."),
    out: Path = typer.Option(..., help="Folder for attention.png, attention.html and attention.json."),
    beam: BeamOption = None,
    json_: bool = typer.Option(False, "--json", help="Print tokens and attention as JSON."),
) -> None:
    """Draw where the decoder looks at each step: a strip of pictures (PNG) and a page to click through (HTML)."""
    import json

    from hmerctl.runtime.files import png, write_bytes, write_text
    from hmerctl.runtime.load import load_raster
    from hmerctl.targets.opened import open_model
    from hmerctl.train.analysis.attention import page, strip, trace

    opened = open_model(model)
    read = trace(
        opened.engine,
        load_raster(source, opened.raster),
        opened.vocabulary,
        opened.options(beams=beam),
        opened.padding,
    )
    write_bytes(out / "attention.png", png(strip(read)))
    write_text(out / "attention.html", page(read, f"{source.name} read by {opened.name}"))
    write_text(out / "attention.json", json.dumps(read.to_dict()) + "\n")
    if json_:
        print_json(read.to_dict())
    else:
        typer.echo(f"{source}\t{read.latex}")
        console().print(f"{len(read.tokens)} steps drawn: {out / 'attention.png'}, {out / 'attention.html'}")


@analyze.command()
def curves(
    runs: list[Path] = typer.Argument(metavar="RUN...", help="Folders of training runs ('hmerctl train --out')."),
    out: Path = typer.Option(..., help="The picture to write (PNG)."),
    json_: bool = typer.Option(False, "--json", help="Print the curves as JSON."),
) -> None:
    """Draw loss, ExpRate, perplexity, BLEU-4 and edit distance over training, one colour for each run.

    All but the loss are of the sample that the run validated on. Runs logged by an earlier version have only loss and
    ExpRate.
    """
    from hmerctl.runtime.files import write_bytes
    from hmerctl.train.analysis.curves import PANELS, draw, read_run

    if out.suffix.lower() != ".png":
        raise ConfigError(f"--out {out}: the picture is a PNG; give it a name that ends so")
    read = [read_run(run) for run in runs]
    write_bytes(out, draw(read))
    if json_:
        print_json(read)
        return
    rows = [("best ExpRate, %", *(_at(run.best()) for run in read))]
    for name, title in PANELS.items():
        ends = (run.curves[name][-1] if name in run.curves else None for run in read)
        rows.append((f"last {title}", *(_at(end) for end in ends)))
    print_table(["value (step)", *(run.name for run in read)], rows)
    console().print(f"drawn: {out}")


@analyze.command()
def locality(
    checkpoint: Path = typer.Argument(help="Checkpoint folder of a model with self-attention over the whole map."),
    data: Path = typer.Option(..., help="Dataset folder to draw expressions from."),
    out: Path = typer.Option(..., help="Folder for the table, pictures, JSON and the preset local.toml."),
    samples: int = typer.Option(400, min=1, help="Expressions to look at."),
    threshold: float = typer.Option(0.015, min=0, help="Mean contribution above which a diagonal matters."),
    most_lost: float = typer.Option(0.25, min=0, max=1, help="Layers that would lose more keep the whole map."),
    most_cells: int = typer.Option(1500, min=1, help="Larger maps are left out (memory grows with the square)."),
    json_: bool = typer.Option(False, "--json", help="Print the analysis as JSON."),
) -> None:
    """Measure how local the self-attention of each layer is, and choose a window for it.

    Contributions of cells to cells, diagonality and its area (CCD), window by Algorithm 1 of Alastruey et al. 2022 on
    both axes, contribution lost (CL). OUT/local.toml is the checkpoint's preset with the windows, to go on with:

    hmerctl train --preset OUT/local.toml --init CHECKPOINT --data DIR --valid DIR --out RUN --max-steps 1000
    """
    from hmerctl.runtime.files import write_bytes, write_text
    from hmerctl.train.analysis import windows_report as report
    from hmerctl.train.analysis.windows import analyse, local_preset
    from hmerctl.train.checkpoint import load_checkpoint
    from hmerctl.train.config import to_json, to_toml
    from hmerctl.train.dataset import ExpressionDataset

    model, info = load_checkpoint(checkpoint)
    dataset = ExpressionDataset(data)
    steps = analyse(model, info, dataset, samples, threshold, most_lost, most_cells)
    *_, found = progress(steps, "maps", min(samples, len(dataset)))
    description = {"checkpoint": str(checkpoint), "data": str(data), **found.to_dict()}
    preset = local_preset(info.preset, found.windows).to_dict()
    write_text(out / "locality.json", to_json(description) + "\n")
    write_text(out / "locality.md", report.markdown(f"Locality of {info.name} on {data.name}", found))
    write_bytes(out / "diagonality.png", report.draw_curves(found))
    write_bytes(out / "contributions.png", report.draw_contributions(found))
    write_bytes(out / "profiles.png", report.draw_profiles(found))
    head = f"# Windows found by 'hmerctl analyze locality' on {info.name}; fine-tune from it with --init.\n\n"
    write_text(out / "local.toml", head + to_toml(preset))
    if json_:
        print_json(description)
        return
    print_table(report.HEADERS, report.rows(found))
    for note in report.notes(found):
        typer.echo(f"- {note}")
    console().print(f"written: locality.md, locality.json, three pictures and local.toml in {out}")


def _at(point: tuple[int, float] | None) -> str:
    return "-" if point is None else f"{point[1]:.3f} ({point[0]})"


def register(app: typer.Typer) -> None:
    """Add the command group."""
    app.add_typer(analyze, name="analyze")
