"""A contact sheet: samples of a dataset with their labels on one picture, to look at before training on them."""

import textwrap
from collections.abc import Iterable
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont, ImageOps

from hmerctl.runtime.errors import DataError
from hmerctl.runtime.files import png, write_bytes
from hmerctl.runtime.raster import Raster
from hmerctl.train.dataset import Expression

_COLUMNS, _CELL, _PAD, _LINE, _LETTERS = 3, 460, 10, 16, 62


def contact_sheet(expressions: Iterable[Expression]) -> Image.Image:
    """Draw expressions in rows of three: the raster as the encoder gets it (dark on light here), id and label.

    Rasters wider than a cell are shrunk. Returns an 8-bit grey image.
    """
    cells = [_cell(expression) for expression in expressions]
    rows = [cells[i : i + _COLUMNS] for i in range(0, len(cells), _COLUMNS)]
    heights = [max(cell.height for cell in row) for row in rows]
    width = _PAD + min(_COLUMNS, max(len(cells), 1)) * (_CELL + _PAD)
    sheet = Image.new("L", (width, _PAD + sum(heights) + _PAD * len(rows)), 208)
    top = _PAD
    for row, height in zip(rows, heights, strict=True):
        for column, cell in enumerate(row):
            sheet.paste(cell, (_PAD + column * (_CELL + _PAD), top))
        top += height + _PAD
    return sheet


def save_sheet(sheet: Image.Image, path: Path) -> None:
    """Write a sheet as PNG; a reader sees the old file or the whole new one.

    Raises:
        DataError: the name does not end in .png, or the file cannot be written.
    """
    if path.suffix.lower() != ".png":
        raise DataError(f"{path}: the sheet is a PNG; give it a name that ends so")
    try:
        write_bytes(path, png(sheet))
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror or error})") from error


def _cell(expression: Expression) -> Image.Image:
    picture = _picture(expression.drawn())
    lines = textwrap.wrap(f"{expression.id}: {' '.join(expression.tokens)}", _LETTERS, break_long_words=True)
    cell = Image.new("L", (_CELL, picture.height + _LINE * len(lines) + _PAD), 255)
    cell.paste(picture, ((_CELL - picture.width) // 2, 0))
    font = ImageFont.load_default(12)
    pen = ImageDraw.Draw(cell)
    for i, line in enumerate(lines):
        pen.text((_PAD // 2, picture.height + _LINE * i), line, fill=0, font=font)
    return cell


def _picture(raster: Raster) -> Image.Image:
    image = ImageOps.invert(Image.fromarray(raster.pixels))
    if image.width > _CELL:
        image = image.resize((_CELL, max(1, image.height * _CELL // image.width)))
    return image
