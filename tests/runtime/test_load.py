"""The kind of a file is told by what it holds."""

import io
import json

import numpy as np
import pytest
from PIL import Image

from hmerctl.runtime.errors import HmerError, InkError
from hmerctl.runtime.load import load_ink, load_raster, sniff
from hmerctl.runtime.raster import draw, rasterise_ink
from hmerctl.runtime.samples import sample_paths
from hmerctl.runtime.strokes import format_strokes, read_strokes

LINE = np.array([[0.0, 0.0], [40.0, 9.0]])


def picture(format_: str) -> bytes:
    file = io.BytesIO()
    Image.fromarray(255 - draw([LINE], 4, 20)).save(file, format_)
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"<ink><trace>0 0, 40 9</trace></ink>", "inkml"),
        (b'\xef\xbb\xbf\r\n <?xml version="1.0"?>\n<ink><trace>0 0, 40 9</trace></ink>', "inkml"),
        ('<?xml version="1.0" encoding="utf-16"?><ink><trace>0 0, 40 9</trace></ink>'.encode("utf-16"), "inkml"),
        (b' {"strokes": [[[0, 0], [40, 9]]]}', "strokes"),
        (b"\n[[[0, 0], [40, 9]]]", "strokes"),
        *((picture(format_), "picture") for format_ in ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP")),
    ],
)
def test_every_kind_as_path_and_as_bytes(data, kind, tmp_path):
    path = tmp_path / "anything"
    path.write_bytes(data)
    assert sniff(data) == kind
    rasters = [load_raster(path), load_raster(data)]
    assert np.array_equal(rasters[0].pixels, rasters[1].pixels)
    assert np.allclose(rasters[0].pixels.shape, (17, 32), atol=2)


@pytest.mark.parametrize("data", [b"", b"   ", b"%PDF-1.7", b"hello", b"\0\0\0"])
def test_anything_else_is_refused_by_name(data, tmp_path):
    path = tmp_path / "what.bin"
    path.write_bytes(data)
    for call in (load_raster, load_ink):
        with pytest.raises(
            HmerError, match=r"what\.bin: (the file is empty|neither InkML, strokes JSON nor a picture)"
        ):
            call(path)


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(InkError, match="none: no such file"):
        load_raster(tmp_path / "none")
    with pytest.raises(InkError, match="not a file"):
        load_raster(tmp_path)


def test_a_picture_is_no_ink():
    with pytest.raises(InkError, match=r"p\.png: is a picture"):
        load_ink(picture("PNG"), "p.png")


@pytest.mark.parametrize("path", sample_paths(), ids=lambda p: p.stem)
def test_the_samples_are_ink_with_truth_and_symbols(path):
    ink = load_ink(path)
    assert format_strokes(ink) == format_strokes(read_strokes(path))
    assert ink.id == path.stem
    assert ink.truth
    assert sorted(i for s in ink.symbols for i in s.strokes) == list(range(len(ink.strokes)))
    assert np.array_equal(load_raster(path).pixels, rasterise_ink(ink).pixels)


def test_there_are_samples():
    assert len(sample_paths()) == 6


def test_ink_that_cannot_be_drawn_is_named_by_its_path(tmp_path):
    path = tmp_path / "many.json"
    path.write_text(json.dumps({"strokes": [[[i, 0]] for i in range(20_001)]}))
    with pytest.raises(InkError, match=r"many\.json: has 20001 strokes"):
        load_raster(path)
