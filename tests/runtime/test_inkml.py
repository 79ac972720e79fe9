"""What read_inkml makes of good, odd and hostile InkML."""

import io
import tarfile
import time
from io import IOBase

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typed import as_a

from hmerctl.runtime.errors import InkError
from hmerctl.runtime.ink import MAX_FILE_BYTES, Symbol
from hmerctl.runtime.inkml import read_inkml

XY = '<traceFormat><channel name="X" type="decimal"/><channel name="Y" type="decimal"/></traceFormat>'


def document(*body: str, attributes: str = 'xmlns="http://www.w3.org/2003/InkML"') -> bytes:
    return f"<ink {attributes}>{''.join(body)}</ink>".encode()


def group(label: str, *views: str, more: str = "") -> str:
    references = "".join(f'<traceView traceDataRef="{v}"/>' for v in views)
    return f'<traceGroup xml:id="g"><annotation type="truth">{label}</annotation>{references}{more}</traceGroup>'


def points(source: bytes, stroke: int = 0) -> list[list[float]]:
    return read_inkml(source).strokes[stroke].tolist()


def test_a_whole_file(tmp_path):
    path = tmp_path / "eq7.inkml"
    path.write_bytes(
        document(
            XY,
            '<annotation type="UI">2020-1</annotation><annotation type="truth">$x&lt;2$ </annotation>',
            '<trace id="0">\r\n1 2, 3.5 -4e1,5 6\r\n</trace><trace id="1">7 8</trace><trace id="2">9 9,8 8</trace>',
            '<traceGroup xml:id="all"><annotation type="truth">Segmentation</annotation>',
            group("x", "0", "2"),
            group(r"\lt", "1"),
            "</traceGroup>",
        )
    )
    ink = read_inkml(path)
    assert ink.id == "eq7"
    assert ink.truth == "$x<2$ "
    assert [s.tolist() for s in ink.strokes] == [[[1, 2], [3.5, -40], [5, 6]], [[7, 8]], [[9, 9], [8, 8]]]
    assert all(s.dtype == np.float64 for s in ink.strokes)
    assert ink.symbols == (Symbol("x", (0, 2)), Symbol("<", (1,)))
    assert ink.notes == ()


@pytest.mark.parametrize(
    ("channels", "text", "expected"),
    [
        ([], "1 2, 3 4", [[1, 2], [3, 4]]),
        ([], "1 2 900, 3 4 901", [[1, 2], [3, 4]]),
        (["X", "Y", "T"], "1 2 900, 3 4 901", [[1, 2], [3, 4]]),
        (["X", "Y", "F"], "1 2 0.5, 3 4 1", [[1, 2], [3, 4]]),
        (["T", "Y", "X"], "900 2 1, 901 4 3", [[1, 2], [3, 4]]),
        (["X", "Y"], "1 2, 3 4,", [[1, 2], [3, 4]]),
        (["X", "Y"], "1 2, 3 4, 3 4", [[1, 2], [3, 4], [3, 4]]),
    ],
)
def test_channels(channels, text, expected):
    format_ = "".join(f'<channel name="{c}"/>' for c in channels)
    format_ = f"<traceFormat>{format_}</traceFormat>" if channels else ""
    assert points(document(format_, f"<trace>{text}</trace>")) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10 20,'1'-2,3 4,!5!6", [[10, 20], [11, 18], [14, 22], [5, 6]]),
        ("10 20,'2'3,\"1\"-1,0 0", [[10, 20], [12, 23], [15, 25], [18, 27]]),
        ("10 20,'1'2,\"1\"1-5", [[10, 20], [11, 22], [13, 25]]),
        ("10-20,* 5,7*", [[10, -20], [10, 5], [7, 5]]),
        ("#A #ff, #1f 2", [[10, 255], [31, 2]]),
    ],
)
def test_compact_notation(text, expected):
    """Differences, differences of differences, repeats, hexadecimal numbers, values without a space between."""
    assert points(document(f"<trace>{text}</trace>")) == expected


@pytest.mark.parametrize("attributes", ["", 'xmlns="urn:other"'])
def test_any_namespace_or_none(attributes):
    assert points(document("<trace>1 2</trace>", attributes=attributes)) == [[1, 2]]


def test_prefixed_names():
    source = b'<i:ink xmlns:i="http://www.w3.org/2003/InkML"><i:trace>1 2</i:trace></i:ink>'
    assert points(source) == [[1, 2]]


def test_ids_that_a_strict_parser_refuses():
    ink = read_inkml(document('<trace xml:id="3:4 (">1 2</trace>', group("(", "#3:4 (")))
    assert ink.symbols == (Symbol("(", (0,)),)


def test_latin_1_bytes():
    source = document("<annotation type='writer'>Andr\xe9</annotation><trace>1 2</trace>").decode().encode("latin-1")
    ink = read_inkml(source)
    assert ink.notes == ("latin-1",)
    assert ink.strokes[0].tolist() == [[1, 2]]


def test_utf_16_and_byte_order_marks():
    text = '<?xml version="1.0" encoding="{}"?>' + document("<trace>1 2</trace>").decode()
    for encoding in ("utf-16", "utf-8-sig"):
        assert points(text.format(encoding[:6].rstrip("-")).encode(encoding)) == [[1, 2]]


def test_references_that_do_not_match():
    ink = read_inkml(
        document(
            *(f'<trace id="{i}">{i} 0,{i} 1</trace>' for i in (0, 1, 2, 2)),
            group("a", "0", "7"),
            group("b", "1", "0"),
            group("c", "8"),
            group("", "2"),
        )
    )
    assert len(ink.strokes) == 4
    assert ink.symbols == (Symbol("a", (0,)), Symbol("b", (1,)), Symbol("", (2,)))
    assert set(ink.notes) == {
        "dangling-reference",
        "duplicate-reference",
        "duplicate-trace-id",
        "unlabelled-group",
        "ungrouped-stroke",
    }


def test_traces_inside_groups_and_groups_inside_groups():
    inner = "<traceGroup><annotation>x</annotation><trace>1 2</trace><trace>3 4</trace></traceGroup>"
    ink = read_inkml(document(f"<traceGroup><traceGroup>{inner}</traceGroup></traceGroup>"))
    assert ink.symbols == (Symbol("x", (0, 1)),)


def test_a_fraction_bar_is_named_by_the_mathml():
    mathml = '<annotationXML type="truth"><math><mfrac xml:id="_1"/><mo xml:id="_2">-</mo></math></annotationXML>'
    bars = [group("-", str(i), more=f'<annotationXML href="_{i}"/>') for i in (1, 2, 3)]
    traces = [f'<trace id="{i}">0 0, 9 {i}</trace>' for i in (1, 2, 3)]
    ink = read_inkml(document(mathml, *traces, *bars))
    assert [s.label for s in ink.symbols] == [r"\frac", "-", "-"]


def test_mathml_is_not_taken_for_ink():
    odd = "<annotationXML><trace>1 1</trace><annotation type='truth'>no</annotation><traceGroup/></annotationXML>"
    ink = read_inkml(document(odd, "<trace>1 2</trace>", "<annotation type='truth'>yes</annotation>"))
    assert (len(ink.strokes), ink.truth) == (1, "yes")


def test_truth_without_a_type():
    ink = read_inkml(document("<annotation typx='truth'>$x$</annotation><trace>1 2</trace>"))
    assert (ink.truth, ink.notes) == ("$x$", ("untyped-truth",))


@pytest.mark.parametrize("bad", ["nan 5", "5 inf", "1e10 5", "-1e300 1", "1e999 1", "5", "word word"])
def test_points_that_cannot_be_drawn_are_dropped(bad):
    ink = read_inkml(document(f"<trace>1 2,{bad},3 4</trace>"))
    assert ink.strokes[0].tolist() == [[1, 2], [3, 4]]
    assert ink.notes == ("bad-point",)


def test_strokes_without_a_point_are_dropped_and_groups_follow():
    ink = read_inkml(
        document(
            '<trace id="0"> </trace><trace id="1">nan nan</trace><trace id="2">5 6</trace>',
            group("=", "0", "2"),
            group("-", "1"),
        )
    )
    assert [s.tolist() for s in ink.strokes] == [[[5, 6]]]
    assert ink.symbols == (Symbol("=", (0,)),)
    assert set(ink.notes) == {"empty-stroke", "bad-point"}


BOMB = (
    b'<?xml version="1.0"?><!DOCTYPE ink [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">'
    b'<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">]><ink><trace>&c;</trace></ink>'
)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (b"", "empty"),
        (b" \r\n", "empty"),
        (b"<ink><trace>1 2</trace>", "cut off: no element found at line 1"),
        (b"<ink><trace>1 2</tra", "cut off"),
        (b"hello", "not readable as InkML"),
        (b"\x89PNG\r\n\x1a\n\0\0", "not readable as InkML"),
        (b"\0" * 64, "not readable as InkML"),
        (b"<svg><path/></svg>", "the document is a <svg>"),
        (b"<ink></ink>", "holds no stroke"),
        (b"<ink><trace>nan nan</trace></ink>", "holds no stroke"),
        (b'<?xml version="1.0" encoding="klingon"?><ink/>', "not readable as InkML"),
        (b"<ink>&nbsp;<trace>1 2</trace></ink>", "not readable as InkML"),
        (BOMB, "document type or entities"),
        (BOMB.replace(b"ha", b"h\xe9"), "document type or entities"),
        (b'<!DOCTYPE ink SYSTEM "file:///etc/passwd"><ink><trace>1 2</trace></ink>', "document type or entities"),
        (b"<ink>" + b" " * MAX_FILE_BYTES + b"</ink>", "an ink file may have 16 MiB at most"),
    ],
)
def test_refused_in_one_line_that_names_the_file(source, reason):
    with pytest.raises(InkError) as caught:
        read_inkml(source, "note.inkml")
    message = str(caught.value)
    assert message.startswith("note.inkml: ")
    assert reason in message
    assert "\n" not in message


def test_a_huge_file_is_refused_unread(tmp_path):
    path = tmp_path / "huge.inkml"
    with path.open("wb") as file:
        file.write(b"<ink><trace>1 2</trace>")
        file.truncate(100_000_000_000)  # a sparse file
    with pytest.raises(InkError, match=r"huge\.inkml: has 95367\.4 MiB"):
        read_inkml(path)


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(InkError, match="no such file"):
        read_inkml(tmp_path / "none.inkml")
    with pytest.raises(InkError, match="not a file"):
        read_inkml(str(tmp_path))


@pytest.mark.parametrize(
    "source",
    [
        b"<ink>" + b"<a>" * 300_000 + b"<trace>1 2</trace>" + b"</a>" * 300_000 + b"</ink>",
        b"<ink>" + b"<traceGroup>" * 100_000 + b"<trace>1 2</trace>" + b"</traceGroup>" * 100_000 + b"</ink>",
        b"<ink><annotationXML>" + b"<m>" * 300_000 + b"</m>" * 300_000 + b"</annotationXML><trace>1 2</trace></ink>",
        b"<ink><traceFormat>" + b'<channel name="Z"/>' * 100_000 + b"</traceFormat><trace>1 2</trace></ink>",
        b"<ink><trace>" + b"1" * 3_000_000 + b" 2, 1 2</trace></ink>",
        b"<ink><trace>1 2, " + b"'" * 3_000_000 + b" 2, 3</trace></ink>",
    ],
    ids=["deep", "deep-groups", "deep-mathml", "channels", "long-number", "quotes"],
)
def test_the_time_stays_in_proportion_to_the_size(source):
    begin = time.process_time()
    assert read_inkml(source).strokes[0][0].tolist() == [1, 2]
    assert time.process_time() - begin < 5


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_anything_gives_an_ink_or_an_ink_error(data):
    for source in (data, b"<ink><trace>" + data + b"</trace></ink>"):
        try:
            ink = read_inkml(source)
        except InkError as error:
            assert "\n" not in str(error)
        else:
            assert all(len(s) and np.isfinite(s).all() for s in ink.strokes)


def test_every_file_of_crohme_but_the_empty_one_is_read(crohme):
    counts = {"train.tar.xz": (8836, ["MfrDB3088.inkml"]), "test2014.tar.xz": (986, [])}
    for archive, (count, refused) in counts.items():
        failed: list[str] = []
        notes: set[str] = set()
        read = 0
        with tarfile.open(fileobj=io.BytesIO((crohme / archive).read_bytes())) as tar:
            for member in tar:
                if not member.name.endswith(".inkml"):
                    continue
                read += 1
                try:
                    ink = read_inkml(as_a(IOBase, tar.extractfile(member)).read())
                except InkError:
                    failed.append(member.name.rpartition("/")[2])
                else:
                    notes.update(ink.notes)
                    assert ink.truth
                    assert ink.symbols
        assert (read, failed) == (count, refused)
        assert notes <= {"ungrouped-stroke", "latin-1", "duplicate-reference"}
