"""``hmerctl data``: make dataset folders from inks or pictures, look at them, count them."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hmerctl.commands.common import Group, print_json, print_table, progress

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hmerctl.train.archives import SourceFile
    from hmerctl.train.prepare import Report
    from hmerctl.train.statistics import Distribution, Statistics

data = typer.Typer(
    cls=Group, no_args_is_help=True, help="Make datasets from inks or pictures, look at them, count them."
)

_JSON = typer.Option(False, "--json", help="Print JSON, with the ids of everything that was repaired or skipped.")
_DATASET = typer.Argument(help="Dataset folder made by 'hmerctl data prepare'.")
_SHOWN_IDS = 4


def register(app: typer.Typer) -> None:
    app.add_typer(data, name="data")


@data.command()
def prepare(
    ink: Path | None = typer.Option(None, help="Folder or archive (tar, tar.xz, tar.gz, zip) with InkML files."),
    images: Path | None = typer.Option(None, help="The same with pictures: BMP, PNG, JPEG or WebP."),
    captions: Path | None = typer.Option(
        None, help="Text file of 'file stem TAB LaTeX tokens'. Without it, labels come from the InkML's truth."
    ),
    out: Path = typer.Option(..., help="Dataset folder to write; an older dataset there is replaced."),
    name: str | None = typer.Option(
        None, help="What the data are, in words, for checkpoints and model cards: 'CROHME training inks'."
    ),
    licence: str | None = typer.Option(
        None, help="Licence of the data (SPDX); what is trained on them has it too. Goes with --name."
    ),
    as_json: bool = _JSON,
) -> None:
    """Make a dataset folder of InkML files or pictures and their captions.

    Nothing is dropped in silence: the report, printed and kept in OUT/dataset.json, says what was read, repaired and
    skipped, and why. Example:

    hmerctl data prepare --ink train.tar.xz --captions caption_train.txt --out data/train
    """
    if (ink is None) == (images is None):
        raise typer.BadParameter("give either --ink or --images")
    if images is not None and captions is None:
        raise typer.BadParameter("pictures need --captions: their labels stand nowhere else")
    if licence is not None and name is None:
        raise typer.BadParameter("--licence goes with --name")
    from hmerctl.train.dataset import Origin
    from hmerctl.train.prepare import prepare_ink, prepare_pictures

    origin = Origin(name, licence) if name is not None else None

    def watch(files: "Iterable[SourceFile]") -> "Iterable[SourceFile]":
        return progress(files, "reading")

    if images is None:
        assert ink is not None
        report = prepare_ink(ink, captions, out, watch=watch, origin=origin)
    else:
        assert captions is not None
        report = prepare_pictures(images, captions, out, watch=watch, origin=origin)
    _print_report(report, out, as_json)


@data.command()
def merge(
    datasets: list[Path] = typer.Argument(help="Dataset folders, in order; of equal ids the first is kept."),
    out: Path = typer.Option(..., help="Dataset folder to write."),
    as_json: bool = _JSON,
) -> None:
    """Put several dataset folders into one."""
    from hmerctl.train.prepare import merge_datasets

    _print_report(merge_datasets(datasets, out), out, as_json)


@data.command()
def take(
    dataset: Path = _DATASET,
    out: Path = typer.Option(..., help="Dataset folder to write; an older dataset there is replaced."),
    count: int = typer.Option(..., min=1, help="How many expressions, drawn at random."),
    seed: int = typer.Option(0, min=0, help="Another seed draws others; of one seed, 64 have the 16."),
    largest: str | None = typer.Option(
        None, metavar="HEIGHTxWIDTH", help="Only rasters of at most so many pixels, e.g. 64x160."
    ),
    min_tokens: int = typer.Option(1, min=1, help="Only labels of at least so many tokens."),
    preset: str = typer.Option("edge", help="Preset whose raster contract draws the rasters of --largest."),
) -> None:
    """Take a random part of a dataset into a new one, e.g. to see whether a model can learn it by heart.

    hmerctl data take data/train --count 512 --largest 80x160 --preset zhou2023 --out data/small
    """
    import re

    from hmerctl.train.config import load_preset
    from hmerctl.train.dataset import ExpressionDataset, check_replaceable, write_dataset
    from hmerctl.train.subset import Wanted, choose

    size = re.fullmatch(r"(\d+)x(\d+)", largest) if largest is not None else None
    if largest is not None and not size:
        raise typer.BadParameter("--largest: write height and width, e.g. 64x160")
    check_replaceable(out)
    limit = (int(size[1]), int(size[2])) if size else None
    source = ExpressionDataset(dataset)
    chosen = choose(source, count, Wanted(limit, min_tokens, load_preset(preset).raster), seed)
    report = {"taken_from": dataset.name, "seed": seed, "largest": largest, "min_tokens": min_tokens}
    write_dataset(out, (source[i] for i in chosen), report, source.origins)
    typer.echo(f"{out}: {count} of {len(source)} expressions")


@data.command()
def compose(
    datasets: list[Path] = typer.Option(
        [], "--data", help="Compose from this dataset with symbol groups; may be given several times."
    ),
    fonts: bool = typer.Option(False, "--fonts", help="Compose from stroke fonts and rules alone, without any data."),
    svg_fonts: list[Path] = typer.Option(
        [], "--svg-font", help="With --fonts: also use this SVG stroke font, or all in this folder (repeat)."
    ),
    out: Path = typer.Option(..., help="Dataset folder to write; an older dataset there is replaced."),
    count: int = typer.Option(1000, min=1, help="How many expressions."),
    seed: int = typer.Option(1, min=0, help="Another seed composes other expressions."),
) -> None:
    """Compose expressions with true labels and symbol groups, from datasets or from stroke fonts.

    With --data, labels and symbol inks are those of the datasets, recombined, and their licence holds for the result
    too. With --fonts, nothing comes from any dataset.
    """
    if bool(datasets) == fonts:
        raise typer.BadParameter("give either --data or --fonts")
    if svg_fonts and not fonts:
        raise typer.BadParameter("--svg-font goes with --fonts")
    from hmerctl.runtime.raster import RasterSpec
    from hmerctl.runtime.vocabulary import CROHME
    from hmerctl.train.compose.composer import learned_composer
    from hmerctl.train.dataset import ExpressionDataset, Origin, check_replaceable, write_dataset
    from hmerctl.train.fonts.hands import font_composer, font_origin
    from hmerctl.train.inks import InkBank
    from hmerctl.train.run_data import load_inks

    check_replaceable(out)
    spec = RasterSpec()
    if fonts:
        composer = font_composer(CROHME, spec, svg_fonts)
        origins = [font_origin(svg_fonts)]
    else:
        inks = load_inks(tuple(datasets), CROHME, spec)
        composer = learned_composer(inks, InkBank(inks), CROHME, spec)
        parts = [origin for path in datasets for origin in ExpressionDataset(path).origins]
        origins = [Origin(f"expressions composed from {part.name}", part.licence) for part in parts]
    composed = (composer.expression((seed, i)) for i in progress(range(count), "composing", count))
    write_dataset(
        out, composed, {"composed_from": [path.name for path in (*datasets, *svg_fonts)], "seed": seed}, origins
    )
    typer.echo(f"{out}: {count} composed expressions")


@data.command()
def show(
    dataset: Path = _DATASET,
    out: Path = typer.Option(Path("sheet.png"), help="PNG to write."),
    count: int = typer.Option(24, min=1, help="How many expressions, drawn at random."),
    seed: int = typer.Option(0, help="Another seed draws other expressions."),
    ids: list[str] | None = typer.Option(None, "--id", help="Draw this expression; may be given several times."),
) -> None:
    """Draw expressions with their labels on one picture."""
    import random

    from hmerctl.runtime.errors import DataError
    from hmerctl.train.dataset import ExpressionDataset
    from hmerctl.train.sheet import contact_sheet, save_sheet

    expressions = ExpressionDataset(dataset)
    if ids:
        position = {name: i for i, name in enumerate(expressions.ids)}
        if missing := [name for name in ids if name not in position]:
            raise DataError(f"{dataset}: has no expression {missing[0]}")
        chosen = [position[name] for name in ids]
    else:
        chosen = sorted(random.Random(seed).sample(range(len(expressions)), min(count, len(expressions))))
    sheet = contact_sheet(expressions[i] for i in progress(chosen, "drawing", len(chosen)))
    save_sheet(sheet, out)
    typer.echo(f"{out}: {len(chosen)} of {len(expressions)} expressions, {sheet.width} x {sheet.height} pixels")


@data.command()
def stats(
    dataset: Path = _DATASET,
    measured: int = typer.Option(2000, min=1, help="Rasters to draw and measure, evenly spread over the dataset."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Print number, label lengths, raster sizes, strokes and symbols of a dataset."""
    from hmerctl.train.dataset import ExpressionDataset
    from hmerctl.train.statistics import describe

    statistics = describe(
        ExpressionDataset(dataset), measured=measured, watch=lambda i: progress(i, "counting", len(i))
    )
    if as_json:
        print_json(statistics)
    else:
        _print_statistics(statistics)


def _print_report(report: "Report", out: Path, as_json: bool) -> None:
    if as_json:
        print_json(report)
        return
    rows: list[tuple[str, int, str]] = [("read", report.read, ""), ("written", report.written, str(out))]
    rows += [(f"repaired: {key}", len(names), _some(names)) for key, names in sorted(report.repaired.items())]
    for reason in dict.fromkeys(item.reason for item in report.skipped):
        items = [item for item in report.skipped if item.reason == reason]
        rows.append((f"skipped: {reason}", len(items), "; ".join(f"{i.id}: {i.detail}" for i in items[:_SHOWN_IDS])))
    rows += [(f"skipped: {token} not in the vocabulary", n, "") for token, n in report.unknown_tokens.items()]
    rows += [(f"other files: {suffix}", n, "") for suffix, n in sorted(report.other_files.items())]
    missing = report.captions_without_file
    rows.append(("captions without a file", len(missing), _some(missing)))
    rows.append(("labels too long to be said", len(report.long_labels), _some(list(report.long_labels))))
    rows.append(("with symbol groups", report.with_symbols, ""))
    rows.append(("groups agree with the label", report.symbols_match, ""))
    print_table(["", "count", "which"], rows, title=" + ".join(report.sources))


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN_IDS]) + (" ..." if len(names) > _SHOWN_IDS else "")


def _print_statistics(s: "Statistics") -> None:
    print_table(
        ["expressions", "inks", "pictures", "with symbols", "symbols match"],
        [(s.expressions, s.inks, s.pictures, s.with_symbols, s.symbols_match)],
    )
    _print_distributions({"tokens": s.label_lengths, "strokes": s.strokes, "height": s.heights, "width": s.widths})
    longest = max(s.label_histogram.values(), default=1)
    bars = ((span, n, "█" * round(40 * n / longest)) for span, n in s.label_histogram.items())
    print_table(["tokens", "labels", ""], bars)
    print_table(["bucket (height x width)", "rasters"], s.buckets.items())
    print_table(["symbols", "and how often"], [(len(s.symbols), "  ".join(f"{t} {n}" for t, n in s.symbols.items()))])
    if s.unused_tokens:
        typer.echo("in the vocabulary, but not here: " + " ".join(s.unused_tokens))
    if s.unknown_tokens:
        typer.echo("not in the vocabulary: " + "  ".join(f"{t} {n}" for t, n in s.unknown_tokens.items()))


def _print_distributions(distributions: "dict[str, Distribution]") -> None:
    from hmerctl.train.statistics import PERCENTS

    headers = ["", "of", "mean", *(f"{p} %" for p in PERCENTS)]
    rows = (
        (name, d.count, f"{d.mean:.1f}", *d.percentiles.values())
        for name, d in distributions.items()
        if d.percentiles
    )
    print_table(headers, rows)
