"""Figures and contact sheet of a dataset."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from hmerctl.runtime.errors import DataError
from hmerctl.runtime.files import png
from hmerctl.runtime.ink import Ink, Symbol
from hmerctl.runtime.picture import rasterise_picture
from hmerctl.runtime.raster import rasterise_ink
from hmerctl.train.dataset import Expression, ExpressionDataset, write_dataset
from hmerctl.train.sheet import contact_sheet, save_sheet
from hmerctl.train.statistics import describe

STROKE = np.array([[0.0, 0.0], [30.0, 40.0]])


def dashes(count: int) -> bytes:
    """A PNG file of dashes side by side, dark on light."""
    image = Image.new("L", (30 * count + 10, 60), 255)
    for i in range(count):
        ImageDraw.Draw(image).line([(30 * i + 10, 30), (30 * i + 30, 30)], fill=0, width=3)
    return png(image)


PICTURE = dashes(10)


def expression(name: str, tokens: str, strokes: int = 1, match: bool | None = None) -> Expression:
    symbols = () if match is None else (Symbol("x", (0,)),)
    return Expression(name, tuple(tokens.split()), Ink((STROKE,) * strokes, symbols, id=name), None, match)


@pytest.fixture
def dataset(tmp_path: Path) -> ExpressionDataset:
    rows = [
        expression("a", "x", match=True),
        expression("b", "x " * 12, strokes=3, match=False),
        expression("c", "\\aleph x" + " x" * 7),
        Expression("d", ("y",), picture=PICTURE),
    ]
    write_dataset(tmp_path / "d", rows, {})
    return ExpressionDataset(tmp_path / "d")


def test_what_is_counted(dataset: ExpressionDataset) -> None:
    s = describe(dataset)
    assert (s.expressions, s.inks, s.pictures) == (4, 3, 1)
    assert (s.with_symbols, s.symbols_match) == (2, 1)
    assert s.label_lengths.mean == 5.75
    assert (s.label_lengths.percentiles[0], s.label_lengths.percentiles[100]) == (1, 12)
    assert s.label_histogram == {"0-9": 3, "10-19": 1}
    assert (s.strokes.count, s.strokes.percentiles[100]) == (3, 3)
    assert s.symbols == {"x": 21, "\\aleph": 1, "y": 1}
    assert s.unknown_tokens == {"\\aleph": 1}
    assert "\\frac" in s.unused_tokens
    assert "x" not in s.unused_tokens


def test_sizes_are_those_the_encoder_gets(dataset: ExpressionDataset) -> None:
    s = describe(dataset)
    ink = dataset[0].ink
    assert ink is not None
    height, width = rasterise_ink(ink).pixels.shape
    high, wide = rasterise_picture(PICTURE).pixels.shape
    assert (s.heights.count, s.heights.percentiles[0], s.heights.percentiles[100]) == (4, high, height)
    assert (s.widths.percentiles[0], s.widths.percentiles[100]) == (width, wide)
    assert s.buckets == {"64 x 128": 3, "64 x 384": 1}


def test_fewer_rasters_can_be_measured(dataset: ExpressionDataset) -> None:
    s = describe(dataset, measured=2)
    assert s.heights.count == 2
    assert s.label_lengths.count == 4


def test_an_empty_dataset_has_figures(tmp_path: Path) -> None:
    write_dataset(tmp_path / "d", [], {})
    s = describe(ExpressionDataset(tmp_path / "d"))
    assert (s.expressions, s.label_histogram, s.heights.percentiles) == (0, {}, {})


def test_a_sheet_shows_every_expression_dark_on_light(dataset: ExpressionDataset) -> None:
    one, four = contact_sheet([dataset[0]]), contact_sheet(list(dataset))
    assert four.width == 3 * one.width - 2 * 10
    assert four.height > one.height
    pixels = np.asarray(one)
    assert pixels.min() == 0
    assert (pixels == 255).mean() > 0.5


def test_a_wide_raster_is_shrunk_and_a_long_label_wrapped() -> None:
    wide = dashes(40)
    raster = rasterise_picture(wide).pixels
    assert raster.shape[1] > 1000
    short = contact_sheet([Expression("a", ("x",), picture=wide)])
    long = contact_sheet([Expression("a", ("x",) * 200, picture=wide)])
    assert short.width == long.width < 500
    shown = 255 - np.asarray(short)[10 : 10 + raster.shape[0] // 2, 10:470].astype(int)
    assert shown.any(0).sum() > 300, "all of its width is there"
    assert short.height < raster.shape[0] + 16 + 3 * 10
    assert long.height > short.height


def test_a_sheet_is_written_whole_or_not(tmp_path: Path) -> None:
    sheet = contact_sheet([expression("a", "x")])
    save_sheet(sheet, tmp_path / "new" / "s.png")
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["s.png"]
    for path, message in {"s.jpg": "is a PNG", "new/s.png/s.png": "cannot be written"}.items():
        with pytest.raises(DataError, match=message):
            save_sheet(sheet, tmp_path / path)
