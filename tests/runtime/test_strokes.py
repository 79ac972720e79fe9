"""What read_strokes makes of good, odd and hostile strokes JSON."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmerctl.runtime.errors import InkError
from hmerctl.runtime.ink import Ink, Symbol
from hmerctl.runtime.strokes import format_strokes, read_strokes

coordinates = st.floats(-1e6, 1e6, width=32)
inks = st.lists(
    st.lists(st.tuples(coordinates, coordinates), min_size=1, max_size=5).map(np.array), min_size=1, max_size=4
)


@pytest.mark.parametrize(
    "strokes",
    [
        [[[1, 2], [3, 4.5]], [[5, 6]]],
        [[[1, 2, 0.01], [3, 4.5, 0.02]], [[5, 6, 0.9]]],
        [[[1, 2, 10, 0.5, 45], [3, 4.5, 20, 0.6, 45]], [[5, 6, 30, 0.7, 45]]],
        [[{"x": 1, "y": 2, "t": 7}, {"x": 3, "y": 4.5, "pressure": 1}], [{"y": 6, "x": 5}]],
        [{"x": [1, 3], "y": [2, 4.5], "t": [1, 2]}, {"x": [5], "y": [6]}],
    ],
)
def test_all_forms_of_a_stroke(strokes):
    for document in (strokes, {"strokes": strokes}):
        ink = read_strokes(json.dumps(document).encode())
        assert [s.tolist() for s in ink.strokes] == [[[1, 2], [3, 4.5]], [[5, 6]]]
        assert all(s.dtype == np.float64 for s in ink.strokes)
        assert (ink.truth, ink.symbols, ink.notes) == (None, (), ())


def test_truth_name_and_symbols(tmp_path):
    path = tmp_path / "note.json"
    document = {
        "strokes": [[[1, 2]], [], [[3, 4]]],
        "truth": "x",
        "symbols": [{"label": "x", "strokes": [0, 2]}, {"label": "-", "strokes": [1]}],
    }
    path.write_text(json.dumps(document))
    ink = read_strokes(path)
    assert (ink.id, ink.truth, ink.symbols) == ("note", "x", (Symbol("x", (0, 1)),))
    assert ink.notes == ("empty-stroke",)
    path.write_text(json.dumps({**document, "id": "mine"}))
    assert read_strokes(path).id == "mine"
    assert read_strokes(path, "other").id == "other"


@given(inks)
def test_what_is_written_is_read_back(strokes):
    ink = Ink(tuple(strokes), (Symbol(r"\frac", (0,)),), r"\frac{a}{b}", "n")
    again = read_strokes(format_strokes(ink, digits=4).encode())
    assert again == Ink(again.strokes, ink.symbols, ink.truth, ink.id)
    assert all(np.allclose(a, b, atol=1e-4) for a, b in zip(again.strokes, ink.strokes, strict=True))


@pytest.mark.parametrize("bad", ["NaN", "Infinity", "-Infinity", "1e999", "2e9", "1" + "0" * 400])
def test_points_that_cannot_be_drawn_are_dropped(bad):
    ink = read_strokes(f"[[[1, 2], [{bad}, 2], [3, 4]]]".encode())
    assert ink.strokes[0].tolist() == [[1, 2], [3, 4]]
    assert ink.notes == ("bad-point",)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (b"", "not JSON: the file is empty"),
        (b"[[[1, 2]", "not JSON: "),
        (b"\xff\xfe\xfd", "not JSON: "),
        (b"[" * 100_000, "not JSON: "),
        (b"1" * 100_000, "not JSON: "),
        (b"7", "expected {"),
        (b'"text"', "expected {"),
        (b"{}", "expected {"),
        (b'{"strokes": {"0": []}}', "expected {"),
        (b"[]", "holds no stroke"),
        (b"[[], []]", "holds no stroke"),
        (b"[[1, 2], [3, 4]]", "stroke 0 is not a list of points"),
        (b'[[[1, 2]], "ab"]', "stroke 1 is not a list of points"),
        (b'[[["1", "2"]]]', "stroke 0 is not a list of points"),
        (b"[[[true, false]]]", "stroke 0 is not a list of points"),
        (b"[[[1]]]", "stroke 0 is not a list of points"),
        (b"[[[[1], 2]]]", "stroke 0 is not a list of points"),
        (b"[null]", "stroke 0 is not a list of points"),
        (b'[{"x": [1, 2], "y": [3]}]', "stroke 0 is not a list of points"),
        (b'{"strokes": [[[1, 2]]], "symbols": [3]}', '"symbols" is not'),
        (b'{"strokes": [[[1, 2]]], "symbols": [{"label": "x", "strokes": [[]]}]}', '"symbols" is not'),
        (b" " * (16 * 2**20 + 1), "an ink file may have 16 MiB at most"),
    ],
)
def test_refused_in_one_line_that_names_the_file(source, reason):
    with pytest.raises(InkError) as caught:
        read_strokes(source, "note.json")
    message = str(caught.value)
    assert message.startswith("note.json: ")
    assert reason in message
    assert "\n" not in message


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["strokes", "x", "y"]), inner),
    max_leaves=12,
)


@given(json_values)
def test_any_json_gives_an_ink_or_an_ink_error(document):
    try:
        ink = read_strokes(json.dumps(document).encode())
    except InkError as error:
        assert "\n" not in str(error)
    else:
        assert all(len(s) and np.isfinite(s).all() for s in ink.strokes)
