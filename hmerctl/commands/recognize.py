"""``hmerctl recognize``: handwriting to LaTeX."""

from pathlib import Path

import typer

from hmerctl.commands.common import (
    BeamOption,
    GrammarOption,
    LengthOption,
    PruneOption,
    RereadOption,
    fail,
    print_json,
    progress,
)
from hmerctl.runtime.errors import ConfigError, HmerError


def recognize(
    files: list[Path] = typer.Argument(help="Ink (InkML, strokes JSON) or pictures (PNG, JPEG, BMP, WebP)."),
    bundle: Path | None = typer.Option(None, help="Bundle folder; the shipped one if left out."),
    beam: BeamOption = None,
    length_power: LengthOption = None,
    prune: PruneOption = None,
    grammar: GrammarOption = None,
    reread: RereadOption = None,
    deadline: float | None = typer.Option(None, min=0, help="Seconds after which the reading of a file ends."),
    threads: int | None = typer.Option(None, min=1, max=256, help="Threads of the encoder."),
    json: bool = typer.Option(False, "--json", help="Print all that is known as a JSON array."),
    picture: Path | None = typer.Option(
        None, help="Write a picture of one result (PNG): ink, boxes, LaTeX, attention."
    ),
) -> None:
    """Read handwriting and print its LaTeX, one line per file: path, LaTeX, decision.

    Decoding is as the bundle says, but for the options that are given. A file that cannot be read is named on stderr,
    the rest goes on, and the exit code is 1. Examples:

    hmerctl recognize formula.png notes/*.inkml

    hmerctl recognize formula.inkml --picture reading.png
    """
    from hmerctl.runtime.files import check_writable, png, write_bytes
    from hmerctl.runtime.recognizer import Recognizer
    from hmerctl.runtime.show import draw_result

    if picture is not None and len(files) != 1:
        raise ConfigError(f"--picture {picture} shows one result; give one file")
    check_writable(picture)
    recognizer = Recognizer(
        bundle, beams=beam, length_power=length_power, prune=prune, grammar=grammar, reread=reread, threads=threads
    )
    failed = False
    items: list[dict[str, object]] = []
    for file in progress(files, "recognize") if json else files:
        try:
            result = recognizer.recognize(file, deadline=deadline)
        except HmerError as error:
            failed = True
            fail(error)
            items.append({"id": str(file), "error": str(error)})
            continue
        items.append(result.to_dict())
        if not json:
            typer.echo(f"{file}\t{result.latex}\t{result.decision} ({result.reason})")
        if picture is not None:
            write_bytes(picture, png(draw_result(result)))
    if json:
        print_json(items)
    if failed:
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(recognize)
