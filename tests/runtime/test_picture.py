"""Pictures of any kind give the raster that the ink in them gives."""

import io
import struct
import tarfile
import time
import zlib
from io import IOBase
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image
from typed import as_a

from hmerctl.runtime import picture
from hmerctl.runtime.errors import PictureError
from hmerctl.runtime.inkml import read_inkml
from hmerctl.runtime.picture import MAX_FILE_BYTES, rasterise_picture
from hmerctl.runtime.raster import Raster, RasterSpec, draw, rasterise_ink
from hmerctl.runtime.samples import sample_paths
from hmerctl.runtime.strokes import read_strokes
from hmerctl.runtime.trace import trace

INK = {path.stem: read_strokes(path) for path in sample_paths()}
SPEC = RasterSpec()


def page(name: str, height: int = 120, pen: float = 5, margin: int = 30) -> np.ndarray:
    """Coverage of a sample drawn about ``height`` pixels high: uint8, ink 255."""
    strokes = INK[name].strokes
    extent = np.ptp(np.concatenate(strokes), axis=0)
    return draw([s * (height / extent[1]) for s in strokes], pen, margin)


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    """Shared part of two rasters, over all shifts of up to three pixels: sum of minima over sum of maxima."""
    height, width = max(a.shape[0], b.shape[0]) + 6, max(a.shape[1], b.shape[1]) + 6

    def place(x: np.ndarray, dy: int, dx: int) -> np.ndarray:
        return np.pad(x, ((dy, height - dy - x.shape[0]), (dx, width - dx - x.shape[1]))).astype(np.int64)

    still = place(a, 3, 3)
    best = 0.0
    for dy in range(height - b.shape[0] + 1):
        for dx in range(width - b.shape[1] + 1):
            moved = place(b, dy, dx)
            best = max(best, float(np.minimum(still, moved).sum() / np.maximum(still, moved).sum()))
    return best


def assert_agrees(raster: Raster, name: str, size: float = 0.08, shared: float = 0.6) -> None:
    """The raster has the size of the ink's within ``size``, and at equal size shares ``shared`` of its pixels."""
    ink = INK[name]
    assert raster.blank is None
    assert np.allclose(raster.pixels.shape, rasterise_ink(ink).pixels.shape, rtol=size, atol=2)
    extent = np.ptp(np.concatenate(ink.strokes), axis=0)
    scale = (np.array(raster.pixels.shape[::-1]) - 2 * SPEC.margin - 1) / extent
    same_size = draw([s * scale for s in ink.strokes], SPEC.pen_width, SPEC.margin)
    assert overlap(raster.pixels, same_size) >= shared


@pytest.mark.parametrize("name", INK)
def test_a_clean_picture_gives_the_raster_of_its_ink(name):
    assert_agrees(rasterise_picture(Image.fromarray(255 - page(name))), name)


@pytest.mark.parametrize("pen", [1.5, 2, 3, 5, 8, 12])
def test_any_pen_comes_out_two_pixels_wide(pen):
    raster = rasterise_picture(Image.fromarray(255 - page("root", pen=pen)))
    assert_agrees(raster, "root", size=0.12, shared=0.55)
    assert np.isclose(raster.pixels.sum() / rasterise_ink(INK["root"]).pixels.sum(), 1, atol=0.25)


@pytest.mark.parametrize("height", [40, 60, 200, 600])
def test_any_size_gives_the_same_raster(height):
    raster = rasterise_picture(Image.fromarray(255 - page("root", height, height / 25)))
    assert_agrees(raster, "root", shared=0.55)


COVERAGE = page("fraction")
GREY = Image.fromarray(255 - COVERAGE)
EXPECTED = rasterise_picture(GREY).pixels


def with_alpha(red: int, green: int, blue: int, alpha: np.ndarray) -> Image.Image:
    colour = np.empty((*alpha.shape, 4), np.uint8)
    colour[:] = (red, green, blue, 0)
    colour[:, :, 3] = alpha
    return Image.fromarray(colour)


def palette_with_transparency() -> Image.Image:
    image = Image.fromarray((COVERAGE >= 128).astype(np.uint8), "P")
    image.putpalette([9, 9, 9, 0, 0, 0])
    image.info["transparency"] = 0
    return image


SAME = {
    "light-on-dark": Image.fromarray(COVERAGE),
    "RGB": GREY.convert("RGB"),
    "opaque-RGBA": GREY.convert("RGBA"),
    "opaque-LA": GREY.convert("LA"),
    "CMYK": GREY.convert("CMYK"),
    "YCbCr": GREY.convert("YCbCr"),
    "black-on-transparent": with_alpha(0, 0, 0, COVERAGE),
    "white-on-transparent": with_alpha(255, 255, 255, COVERAGE),
    "LA-on-transparent": with_alpha(0, 0, 0, COVERAGE).convert("LA"),
    "16-bit": Image.fromarray((255 - COVERAGE).astype(np.uint16) * 257),
    "32-bit": Image.fromarray((255 - COVERAGE).astype(np.int32) * 257),
    "float-to-1": Image.fromarray((255 - COVERAGE).astype(np.float32) / 255),
    "float-to-255": Image.fromarray((255 - COVERAGE).astype(np.float32)),
}


@pytest.mark.parametrize("kind", SAME)
def test_every_mode_gives_the_same_raster(kind):
    got = rasterise_picture(SAME[kind]).pixels
    assert got.shape == EXPECTED.shape
    assert np.abs(got.astype(int) - EXPECTED).mean() < 1


@pytest.mark.parametrize("kind", ["1-bit", "palette", "blue ink", "red on green"])
def test_fewer_shades_and_colours(kind):
    if kind == "1-bit":
        image = GREY.point(lambda v: 255 if v > 127 else 0).convert("1")
    elif kind == "palette":
        image = palette_with_transparency()
    else:
        ink, paper = ((30, 60, 160), (250, 250, 240)) if kind == "blue ink" else ((170, 20, 20), (180, 220, 180))
        part = COVERAGE[:, :, None] / 255
        image = Image.fromarray((part * ink + (1 - part) * paper).astype(np.uint8))
    assert_agrees(rasterise_picture(image), "fraction")


def test_the_lines_are_traced_once_for_all_contracts(monkeypatch):
    specs = [RasterSpec(symbol_extent=extent, stroke_extent=extent - 3) for extent in (18, 23, 18)]
    apart = [rasterise_picture(GREY, spec) for spec in specs]
    traced = Mock(wraps=trace)
    monkeypatch.setattr(picture, "trace", traced)
    draw_by = picture.picture_drawer(GREY)
    for spec, alone in zip(specs, apart, strict=True):
        raster = draw_by(spec)
        assert np.array_equal(raster.pixels, alone.pixels)
        assert (raster.scale, raster.origin) == (alone.scale, alone.origin)
    assert traced.call_count == 1


@pytest.mark.parametrize("format_", ["PNG", "BMP", "JPEG", "WEBP", "GIF", "TIFF"])
def test_every_format_as_path_and_as_bytes(format_, tmp_path):
    path = tmp_path / "picture.of-any-name"
    GREY.save(path, format_)
    by_path, by_bytes = rasterise_picture(path), rasterise_picture(path.read_bytes())
    assert np.array_equal(by_path.pixels, by_bytes.pixels)
    assert_agrees(by_path, "fraction")


def test_a_phones_rotation_is_undone():
    turns = Image.Transpose
    for orientation, turn in ((3, turns.ROTATE_180), (6, turns.ROTATE_90), (8, turns.ROTATE_270)):
        image = GREY.transpose(turn)
        exif = image.getexif()
        exif[0x0112] = orientation
        file = io.BytesIO()
        image.save(file, "PNG", exif=exif)
        assert np.array_equal(rasterise_picture(file.getvalue()).pixels, EXPECTED)


def photo(
    name: str,
    *,
    light: np.ndarray | float = 1.0,
    ink: float = 60,
    noise: float = 4,
    pen: float = 6,
    quality: int = 70,
) -> bytes:
    """A JPEG of ink on paper of brightness 215 under ``light`` (per pixel or overall)."""
    coverage = page(name, 200, pen, 90).astype(np.float64) / 255
    grey = 215 * (1 - coverage * (1 - ink / 215)) * light
    grey += np.random.default_rng(0).normal(0, noise, grey.shape)
    file = io.BytesIO()
    Image.fromarray(np.clip(grey, 0, 255).astype(np.uint8)).save(file, "JPEG", quality=quality)
    return file.getvalue()


def across(name: str) -> np.ndarray:
    """0 at the left of the page to 1 at the right, sloping."""
    height, width = page(name, 200, 6, 90).shape
    y, x = np.mgrid[:height, :width]
    return (x / width + 0.3 * y / height) / 1.3


@pytest.mark.parametrize("name", ["root", "integral", "sum"])
@pytest.mark.parametrize("case", ["even", "gradient", "soft shadow", "hard shadow", "pencil", "noise", "marker"])
def test_photographs(name, case):
    part = across(name)
    data = {
        "even": lambda: photo(name),
        "gradient": lambda: photo(name, light=1 - 0.5 * part),
        "soft shadow": lambda: photo(name, light=1 - 0.45 / (1 + np.exp((part - 0.5) * 60))),
        "hard shadow": lambda: photo(name, light=np.where(part < 0.55, 1.0, 0.5)),
        "pencil": lambda: photo(name, ink=150),
        "noise": lambda: photo(name, noise=12, quality=40),
        "marker": lambda: photo(name, pen=10),
    }[case]()
    assert_agrees(rasterise_picture(data), name, size=0.12, shared=0.5)


def test_specks_and_dust_are_left_out():
    coverage = page("fraction", 200, 6, 250)
    rng = np.random.default_rng(1)
    for y, x in rng.integers(0, np.array(coverage.shape) - 2, (60, 2)):
        coverage[y : y + 2, x : x + 1] = 255
    coverage[2:8, 2:8] = 255  # a dot, but far away from everything
    assert_agrees(rasterise_picture(Image.fromarray(255 - coverage)), "fraction")


def test_dots_that_belong_are_kept():
    dots = [np.array([[100.0 + 40 * i, 90.0]]) for i in range(3)]
    one = np.array([[60.0, 0.0], [60.0, 90.0]])
    lone = rasterise_picture(Image.fromarray(255 - draw([one], 7, 40)))
    with_dots = rasterise_picture(Image.fromarray(255 - draw([one, *dots], 7, 40)))
    assert with_dots.pixels.shape[1] > lone.pixels.shape[1] + 20


def test_a_lone_dot_is_a_dot():
    raster = rasterise_picture(Image.fromarray(255 - draw([np.array([[0.0, 0.0]])], 9, 40)))
    assert raster.pixels.shape == (13, 13)
    assert (raster.pixels >= 128).sum() <= 6


def test_scale_and_origin_lead_back_to_the_picture():
    raster = rasterise_picture(GREY)
    rows, columns = np.nonzero(raster.pixels >= 128)
    x = raster.origin[0] + (columns + 0.5) / raster.scale
    y = raster.origin[1] + (rows + 0.5) / raster.scale
    covered = COVERAGE[y.astype(int), x.astype(int)] >= 128
    assert covered.mean() > 0.95


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (np.full((80, 120), 255), "the picture is all white"),
        (np.full((80, 120), 0), "the picture is all black"),
        (np.full((80, 120), 130), "the picture is all one shade"),
        (np.full((1, 1), 255), "the picture is all white"),
        (np.tile(np.linspace(90, 220, 120), (80, 1)), "no ink stands out"),
        (200 + np.random.default_rng(0).normal(0, 6, (80, 120)), "no ink stands out"),
    ],
    ids=["white", "black", "grey", "1x1", "gradient", "noise"],
)
def test_nothing_to_read_is_a_blank_raster_with_its_reason(image, reason):
    raster = rasterise_picture(Image.fromarray(image.astype(np.uint8)))
    assert reason in (raster.blank or "")
    assert not raster.pixels.any()
    assert raster.pixels.shape == (12, 12)


def test_a_transparent_picture_is_blank():
    assert rasterise_picture(Image.new("RGBA", (40, 30))).blank == "the picture is all white"


def test_a_texture_is_no_expression():
    y, x = np.mgrid[:1000, :1000]
    texture = ((x // 8 + y // 8) % 2 * 255).astype(np.uint8)
    assert rasterise_picture(Image.fromarray(texture)).blank == "too many lines for a single expression"
    dots = (((x % 20 < 4) & (y % 20 < 4)) * 255).astype(np.uint8)
    assert rasterise_picture(Image.fromarray(dots)).blank == "more than 2000 separate marks: no single expression"


def png(width: int, height: int, *chunks: tuple[bytes, bytes]) -> bytes:
    """A PNG that claims a size, with whatever chunks."""
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    out = b"\x89PNG\r\n\x1a\n"
    for kind, body in ((b"IHDR", head), *chunks):
        out += struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    return out


def file_of(format_: str) -> bytes:
    file = io.BytesIO()
    GREY.save(file, format_)
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not a PNG, JPEG"),
        (b"hello", "not a PNG, JPEG"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not a PNG, JPEG"),
        (png(20_000, 20_000, (b"IDAT", zlib.compress(b"")), (b"IEND", b"")), "more than 64 million pixels"),
        (png(2**31 - 1, 2**31 - 1, (b"IDAT", b""), (b"IEND", b"")), "more than 64 million pixels"),
        (png(10_000, 7_000, (b"IDAT", b""), (b"IEND", b"")), "has 10000 x 7000 pixels, more than 64 million"),
        (png(30, 20, (b"IDAT", zlib.compress(b"\0" * 9)), (b"IEND", b"")), "broken or cut off"),
        (png(30, 20, (b"zTXt", b"a\0\0" + zlib.compress(b" " * 80_000_000))), "broken or cut off"),
        (file_of("PNG")[:300], "broken or cut off"),
        (file_of("JPEG")[:700], "broken or cut off"),
        (file_of("BMP")[:300], "broken or cut off"),
        (file_of("WEBP")[:300], "broken or cut off"),
    ],
)
def test_refused_in_one_line(data, reason, tmp_path):
    path = tmp_path / "p.png"
    path.write_bytes(data)
    begin = time.process_time()
    with pytest.raises(PictureError) as caught:
        rasterise_picture(path)
    assert time.process_time() - begin < 2
    assert str(caught.value).startswith(f"{path}: ")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_huge_and_missing_files_are_refused_unread(tmp_path):
    path = tmp_path / "huge.png"
    with path.open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(PictureError, match="a picture may have 64 MiB at most"):
        rasterise_picture(path)
    with pytest.raises(PictureError, match="no such file"):
        rasterise_picture(tmp_path / "none.png")
    with pytest.raises(PictureError, match="not a file"):
        rasterise_picture(tmp_path)


@given(st.tuples(*[st.integers(0, 90)] * 4))
@settings(max_examples=20, deadline=None)
def test_more_paper_around_the_ink_changes_nothing(borders):
    top, bottom, left, right = borders
    wider = np.pad(COVERAGE, ((top, bottom), (left, right)))
    assert np.array_equal(rasterise_picture(Image.fromarray(255 - wider)).pixels, EXPECTED)


@given(hnp.arrays(np.uint8, st.tuples(st.integers(1, 40), st.integers(1, 40))))
@settings(deadline=None)
def test_any_pixels_give_a_raster_within_bounds(pixels):
    raster = rasterise_picture(Image.fromarray(pixels))
    height, width = raster.pixels.shape
    assert 12 <= height <= SPEC.max_height
    assert 12 <= width <= SPEC.max_width
    assert raster.pixels.dtype == np.uint8
    assert (raster.blank is None) == bool(raster.pixels.any())


@given(
    st.binary(max_size=300), st.sampled_from([b"", b"\x89PNG\r\n\x1a\n", b"BM", b"GIF89a", b"II*\0", b"\xff\xd8\xff"])
)
def test_any_bytes_give_a_raster_or_a_picture_error(data, magic):
    try:
        rasterise_picture(magic + data)
    except PictureError as error:
        assert "\n" not in str(error)


def test_ink_and_bitmap_of_crohme_2014_agree(crohme):
    """Every 20th expression: sizes agree, and at equal size the pixels do."""
    with tarfile.open(crohme / "test2014.tar.xz") as inks, tarfile.open(crohme / "images_2014.tar.xz") as pictures:
        bitmaps = {m.name.rpartition("/")[2][:-4]: m for m in pictures if m.name.endswith(".bmp")}
        members = [m for m in inks if m.name.endswith(".inkml")]
        assert len(bitmaps) == len(members) == 986
        ratios, shared = [], []
        for member in sorted(members, key=lambda m: m.name)[::20]:
            ink = read_inkml(as_a(IOBase, inks.extractfile(member)).read())
            bitmap = bitmaps[member.name.rpartition("/")[2][:-6]]
            raster = rasterise_picture(as_a(IOBase, pictures.extractfile(bitmap)).read())
            ratios.append(raster.pixels.shape[1] / rasterise_ink(ink).pixels.shape[1])
            whole = np.ptp(np.concatenate(ink.strokes), axis=0)
            longer = int(np.argmax(whole))
            scale = (raster.pixels.shape[1 - longer] - 2 * SPEC.margin - 1) / whole[longer]
            same_size = draw([s * scale for s in ink.strokes], SPEC.pen_width, SPEC.margin)
            shared.append(overlap(raster.pixels, same_size))
    assert abs(np.median(ratios) - 1) < 0.02
    assert np.mean(np.abs(np.log(ratios)) < 0.1) > 0.8
    assert np.median(shared) > 0.7
