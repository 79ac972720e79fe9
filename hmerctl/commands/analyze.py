"""``hmerctl analyze``: what a trained model looks at, and how its training went."""

from pathlib import Path

import typer

from hmerctl.commands.common import Group, console, print_json, print_table
from hmerctl.runtime.errors import ConfigError

analyze = typer.Typer(
    cls=Group, no_args_is_help=True, help="Show what a model looks at, how local its attention is, how training went."
)


@analyze.command()
def attention(
    model: Path = typer.Argument(help="A checkpoint folder, or any bundle."),
    source: Path = typer.Argument(metavar="INPUT", help="Ink (InkML, strokes JSON) or a picture."),
    out: Path = typer.Option(..., help="Folder for attention.png, attention.html and attention.json."),
    beam: int = typer.Option(1, min=1, max=64, help="Beam width; 1 is greedy."),
    json_: bool = typer.Option(False, "--json", help="Print tokens and attention as JSON."),
) -> None:
    """Draw where the decoder looks at each step: a strip of pictures (PNG) and a page to click through (HTML)."""
    import json

    from hmerctl.commands.eval import open_engine
    from hmerctl.runtime.decode import DecodeOptions
    from hmerctl.runtime.files import write_bytes, write_text
    from hmerctl.runtime.load import load_raster
    from hmerctl.train.analysis.attention import page, png, strip, trace

    engine, vocabulary, spec, buckets, name = open_engine(model)
    read = trace(engine, load_raster(source, spec), vocabulary, DecodeOptions(beams=beam), buckets)
    write_bytes(out / "attention.png", png(strip(read)))
    write_text(out / "attention.html", page(read, f"{source.name} read by {name}"))
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


def _at(point: tuple[int, float] | None) -> str:
    return "-" if point is None else f"{point[1]:.3f} ({point[0]})"


def register(app: typer.Typer) -> None:
    """Add the command group."""
    app.add_typer(analyze, name="analyze")
