"""The dataset folder gives back what was written, whole, quickly, and refuses what is not one."""

import json
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image, ImageDraw

from hmerctl.runtime.errors import DataError
from hmerctl.runtime.files import png
from hmerctl.runtime.ink import Ink, Symbol
from hmerctl.runtime.load import load_raster
from hmerctl.runtime.raster import RasterSpec, rasterise_ink
from hmerctl.train.dataset import ARROW_FILE, JSON_FILE, SCHEMA, Expression, ExpressionDataset, Origin, write_dataset


def ink(name: str = "one") -> Ink:
    strokes = (np.array([[0.0, 0.0], [1.5, 2.25]]), np.array([[7.0, -3.0]]))
    return Ink(strokes, (Symbol("x", (0,)), Symbol("", (1,))), " $x1$", name)


def line(width: int) -> bytes:
    """A PNG file of a diagonal line."""
    image = Image.new("L", (120, 80), 255)
    ImageDraw.Draw(image).line([(10, 10), (100, 60)], fill=0, width=width)
    return png(image)


def assert_same(read: Expression, written: Expression) -> None:
    assert (read.id, read.tokens, read.symbols_match) == (written.id, written.tokens, written.symbols_match)
    assert (read.ink is None) == (written.ink is None)
    if read.ink is not None and written.ink is not None:
        assert read.ink.symbols == written.ink.symbols
        assert read.ink.truth == written.ink.truth
        assert [s.tolist() for s in read.ink.strokes] == [s.tolist() for s in written.ink.strokes]
        assert {s.dtype for s in read.ink.strokes} == {np.dtype(np.float64)}
    assert read.picture == written.picture


def test_ink_and_picture_come_back(tmp_path: Path) -> None:
    written = [
        Expression("one", ("x", "1"), ink(), symbols_match=True),
        Expression("two", ("y",), picture=line(9)),
        Expression("three", ("z",), Ink((np.ones((1, 2)),), id="three")),
    ]
    assert write_dataset(tmp_path / "d", iter(written), {"read": 3}) == 3
    dataset = ExpressionDataset(tmp_path / "d")
    assert len(dataset) == 3
    assert dataset.report == {"read": 3}
    assert dataset.ids == ["one", "two", "three"]
    assert dataset.labels == [("x", "1"), ("y",), ("z",)]
    for read, was in zip(dataset, written, strict=True):
        assert_same(read, was)
    assert dataset[0].ink is not None
    assert dataset[0].ink.id == "one"
    assert dataset[-1].id == "three"
    with pytest.raises(IndexError):
        dataset[3]


stroke = st.integers(1, 5).flatmap(lambda n: arrays(np.float32, (n, 2), elements=st.floats(-1e6, 1e6, width=32)))
labels = st.lists(st.sampled_from(["x", "\\frac", "{", "|", ""]), max_size=3)


@st.composite
def expressions(draw: st.DrawFn) -> list[Expression]:
    names = draw(st.lists(st.text(min_size=1), unique=True, max_size=4))
    result = []
    for name in names:
        strokes = tuple(s.astype(np.float64) for s in draw(st.lists(stroke, min_size=1, max_size=4)))
        symbols = tuple(Symbol(text, (i % len(strokes),)) for i, text in enumerate(draw(labels)))
        match = draw(st.booleans()) if symbols else None
        result.append(
            Expression(name, ("x", "^"), Ink(strokes, symbols, draw(st.none() | st.text()), name), None, match)
        )
    return result


@settings(max_examples=30, deadline=None)
@given(expressions())
def test_any_ink_comes_back(tmp_path_factory: pytest.TempPathFactory, written: list[Expression]) -> None:
    path = tmp_path_factory.mktemp("any") / "d"
    write_dataset(path, written, {})
    for read, was in zip(ExpressionDataset(path), written, strict=True):
        assert_same(read, was)


def test_rows_keep_their_order_over_many_batches(tmp_path: Path) -> None:
    write_dataset(tmp_path / "d", (Expression(str(i), ("x",) * (i % 7), ink()) for i in range(2500)), {})
    dataset = ExpressionDataset(tmp_path / "d")
    assert dataset.ids == [str(i) for i in range(2500)]
    assert [dataset[i].id for i in (0, 1023, 1024, 2047, 2048, 2499)] == ["0", "1023", "1024", "2047", "2048", "2499"]
    assert len(dataset[2049].tokens) == 2049 % 7


def test_a_pickled_dataset_is_its_path(tmp_path: Path) -> None:
    write_dataset(tmp_path / "d", [Expression("one", ("x",), ink())] * 1, {})
    packed = pickle.dumps(ExpressionDataset(tmp_path / "d"))
    assert len(packed) < 500
    assert pickle.loads(packed)[0].id == "one"


def test_replacing_keeps_the_old_until_the_new_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "d"
    write_dataset(path, [Expression("old", ("x",), ink())], {})
    mapped = ExpressionDataset(path)

    def failing():
        yield Expression("new", ("x",), ink())
        raise RuntimeError("disk on fire")

    with pytest.raises(RuntimeError):
        write_dataset(path, failing(), {})
    assert ExpressionDataset(path).ids == ["old"]
    write_dataset(path, [Expression("new", ("x",), ink())], {})
    assert ExpressionDataset(path).ids == ["new"]
    assert mapped[0].id == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["d"]


def test_a_folder_of_other_things_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(DataError, match="not a dataset"):
        write_dataset(tmp_path, [], {})
    with pytest.raises(DataError, match="not a folder"):
        write_dataset(tmp_path / "thesis.tex", [], {})
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        write_dataset(tmp_path / "file" / "d", [], {})


def test_ids_are_unique(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="same: this id comes twice"):
        write_dataset(tmp_path / "d", [Expression("same", ("x",), ink())] * 2, {})
    assert not (tmp_path / "d").exists()


def test_an_empty_dataset_is_one(tmp_path: Path) -> None:
    write_dataset(tmp_path / "d", [], {})
    assert len(ExpressionDataset(tmp_path / "d")) == 0


def damage_json(path: Path) -> None:
    (path / JSON_FILE).write_text("{")


def newer(path: Path) -> None:
    (path / JSON_FILE).write_text(json.dumps({"format_version": 99, "count": 1}))


def cut_short(path: Path) -> None:
    data = (path / ARROW_FILE).read_bytes()
    (path / ARROW_FILE).write_bytes(data[: len(data) // 2])


def lose_arrow(path: Path) -> None:
    (path / ARROW_FILE).unlink()


def other_columns(path: Path) -> None:
    table = pa.ipc.open_file(path / ARROW_FILE).read_all().append_column("more", pa.array([1]))
    with pa.OSFile(str(path / ARROW_FILE), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def no_count(path: Path) -> None:
    (path / JSON_FILE).write_text(json.dumps({"format_version": 2}))


def other_count(path: Path) -> None:
    with pa.OSFile(str(path / ARROW_FILE), "wb") as sink, pa.ipc.new_file(sink, SCHEMA):
        pass


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_json, "is damaged"),
        (newer, "format 99"),
        (cut_short, "cannot be read"),
        (lose_arrow, "cannot be read"),
        (other_columns, "other columns"),
        (other_count, "holds 0 expressions"),
        (no_count, "is damaged .*count"),
    ],
)
def test_a_damaged_dataset_is_refused_by_name(tmp_path: Path, damage, message: str) -> None:
    write_dataset(tmp_path / "d", [Expression("one", ("x",), ink())], {})
    damage(tmp_path / "d")
    with pytest.raises(DataError, match=message) as error:
        ExpressionDataset(tmp_path / "d")
    assert str(tmp_path / "d") in str(error.value)
    assert "\n" not in str(error.value)


def test_rasters_of_format_1_are_refused_and_its_inks_are_read(tmp_path: Path) -> None:
    for name, row in {"ink": Expression("a", ("x",), ink()), "pic": Expression("a", ("x",), picture=line(3))}.items():
        write_dataset(tmp_path / name, [row], {})
        about = json.loads((tmp_path / name / JSON_FILE).read_text())
        (tmp_path / name / JSON_FILE).write_text(json.dumps({**about, "format_version": 1}))
    assert len(ExpressionDataset(tmp_path / "ink")) == 1
    with pytest.raises(
        DataError, match=r"pic: format 1 kept rasters in place of its pictures; prepare .* from them$"
    ):
        ExpressionDataset(tmp_path / "pic")


def test_large_pictures_come_in_smaller_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hmerctl.train.dataset._PICTURES_PER_BATCH", 3 * len(line(5)))
    rows = [Expression(str(i), ("x",), picture=line(5)) for i in range(7)]
    write_dataset(tmp_path / "d", rows, {})
    with pa.ipc.open_file(tmp_path / "d" / ARROW_FILE) as reader:
        assert [reader.get_batch(i).num_rows for i in range(reader.num_record_batches)] == [3, 3, 1]
    assert list(ExpressionDataset(tmp_path / "d")) == rows


def test_what_is_no_dataset_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="data prepare"):
        ExpressionDataset(tmp_path / "nothing")


def test_a_dataset_says_where_it_comes_from(tmp_path: Path) -> None:
    origins = [Origin("inks of our class", "CC0-1.0"), Origin("others")]
    write_dataset(tmp_path / "a", [Expression("one", ("x",), ink())], {}, [*origins, origins[0]])
    assert ExpressionDataset(tmp_path / "a").origins == tuple(origins)


def test_a_dataset_that_does_not_say_is_named_by_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_dataset(tmp_path / "old", [Expression("one", ("x",), ink())], {})
    file = tmp_path / "old" / JSON_FILE
    about = json.loads(file.read_text())
    about.pop("origins")  # as older versions wrote it
    file.write_text(json.dumps(about))
    monkeypatch.chdir(tmp_path / "old")
    assert ExpressionDataset(Path()).origins == (Origin("old"),)


def test_damaged_origins_are_told(tmp_path: Path) -> None:
    write_dataset(tmp_path / "a", [Expression("one", ("x",), ink())], {})
    file = tmp_path / "a" / JSON_FILE
    file.write_text(json.dumps({**json.loads(file.read_text()), "origins": [{"nom": "x"}]}))
    with pytest.raises(DataError, match=r"dataset\.json: origins are damaged"):
        _ = ExpressionDataset(tmp_path / "a").origins


def test_a_picture_is_drawn_by_any_contract_as_its_file_is():
    expression = Expression("x", ("x",), picture=line(5))
    draw = expression.drawer()
    for spec in (RasterSpec(), RasterSpec(symbol_extent=30, stroke_extent=26)):
        expected = load_raster(line(5), spec)
        for raster in (draw(spec), expression.drawn(spec)):
            np.testing.assert_array_equal(raster.pixels, expected.pixels)
            assert (raster.scale, raster.origin) == (expected.scale, expected.origin)


def test_ink_is_drawn_by_any_contract():
    expression = Expression("x", ("x",), ink())
    spec = RasterSpec(symbol_extent=30, stroke_extent=26)
    np.testing.assert_array_equal(expression.drawn(spec).pixels, rasterise_ink(ink(), spec).pixels)


def test_what_cannot_be_drawn_is_told_by_its_id():
    with pytest.raises(DataError, match="lost: neither ink nor picture"):
        Expression("lost", ("x",)).drawn()
    with pytest.raises(DataError, match=r"torn: picture: .*; prepare the dataset again"):
        Expression("torn", ("x",), picture=line(5)[:60]).drawn()
