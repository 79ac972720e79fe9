"""From files to a dataset: quirks are repaired and counted, bad files fail alone, nothing is dropped in silence."""

import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from hmerctl.runtime.errors import DataError
from hmerctl.runtime.picture import read_grey
from hmerctl.runtime.raster import rasterise_ink
from hmerctl.train.dataset import ExpressionDataset, Origin
from hmerctl.train.prepare import LONGEST_LABEL, Report, merge_datasets, prepare_ink, prepare_pictures

TRACES = '<trace id="0">0 0, 30 40</trace><trace id="1">60 0, 60 45, 61 50</trace>'
GROUPS = """<traceGroup><annotation type="truth">Segmentation</annotation>
<traceGroup><annotation type="truth">x</annotation><traceView traceDataRef="0"/></traceGroup>
<traceGroup><annotation type="truth">1</annotation><traceView traceDataRef="1"/></traceGroup></traceGroup>"""


def inkml(body: str = TRACES + GROUPS, truth: str | None = "$x1$") -> str:
    annotation = "" if truth is None else f'<annotation type="truth">{truth}</annotation>'
    return (
        f'<ink xmlns="http://www.w3.org/2003/InkML"><annotation type="UI">same</annotation>{annotation}{body}</ink>'
    )


QUIRKS: dict[str, bytes] = {
    "plain.inkml": inkml().encode(),
    "crlf.inkml": inkml().replace("><", ">\r\n<").encode(),
    "latin.inkml": inkml().replace("same", "été").encode("latin-1"),
    "dot.inkml": inkml('<trace id="0">5 5</trace>', "$.$").encode(),
    "tiny.inkml": inkml('<trace id="0">0.01 0.02, 0.11 0.1</trace>', "x").encode(),
    "dangling.inkml": inkml(TRACES + GROUPS.replace('Ref="1"', 'Ref="7"')).encode(),
    "xyt.inkml": inkml(
        '<traceFormat><channel name="X"/><channel name="Y"/><channel name="T"/></traceFormat>'
        '<trace id="0">0 0 1000, 30 40 1010</trace>'
    ).encode(),
    "ids.inkml": inkml('<annotationXML><math><mn xml:id="0:">1</mn></math></annotationXML>' + TRACES).encode(),
    "empty.inkml": b"",
    "cut.inkml": inkml().encode()[:150],
    "strokeless.inkml": inkml("").encode(),
    "README.txt": b"about",
}
CAPTIONS = (
    "".join(
        f"{name.partition('.')[0]}\t{label}\n"
        for name, label in {**dict.fromkeys(QUIRKS, "x 1"), "dot.": ".", "tiny.": "x", "absent.": "y"}.items()
        if name != "README.txt"
    )
    .replace("dot\tx 1\n", "")
    .replace("tiny\tx 1\n", "")
)


def folder(path: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., tuple[Report, ExpressionDataset]]:
    def build(files: dict[str, bytes], captions: str | None = None) -> tuple[Report, ExpressionDataset]:
        if captions is not None:
            (tmp_path / "captions.txt").write_text(captions)
        file = None if captions is None else tmp_path / "captions.txt"
        report = prepare_ink(folder(tmp_path / "ink", files), file, tmp_path / "out")
        return report, ExpressionDataset(tmp_path / "out")

    return build


def skipped(report: Report) -> dict[str, str]:
    return {item.id: item.reason for item in report.skipped}


def test_quirks_are_repaired_and_counted(make) -> None:
    report, dataset = make(QUIRKS, CAPTIONS)
    assert report.read == 11
    assert report.written == len(dataset) == 8
    assert dataset.ids == ["crlf", "dangling", "dot", "ids", "latin", "plain", "tiny", "xyt"]
    assert report.repaired == {
        "dangling-reference": ["dangling"],
        "ungrouped-stroke": ["dangling"],
        "latin-1": ["latin"],
    }
    assert skipped(report) == {"empty": "unreadable", "cut": "unreadable", "strokeless": "unreadable"}
    assert report.other_files == {".txt": 1}
    assert report.captions_without_file == ["absent"]
    assert (report.with_symbols, report.symbols_match) == (4, 3)
    assert report.read == report.written + len(report.skipped)


def test_the_ink_is_kept_as_read(make) -> None:
    _, dataset = make(QUIRKS, CAPTIONS)
    by_id = {e.id: e for e in dataset}
    plain = by_id["plain"]
    assert plain.tokens == ("x", "1")
    assert [s.tolist() for s in plain.ink.strokes] == [[[0, 0], [30, 40]], [[60, 0], [60, 45], [61, 50]]]
    assert [(s.label, s.strokes) for s in plain.ink.symbols] == [("x", (0,)), ("1", (1,))]
    assert plain.ink.truth == "$x1$"
    assert by_id["xyt"].ink.strokes[0].tolist() == [[0, 0], [30, 40]]
    assert not rasterise_ink(by_id["dot"].ink).blank
    assert max(rasterise_ink(by_id["tiny"].ink).pixels.shape) > 20


def test_the_report_stands_in_the_dataset(make) -> None:
    report, dataset = make(QUIRKS, CAPTIONS)
    assert dataset.report["repaired"] == report.repaired
    assert dataset.report["skipped"] == [vars(item) for item in report.skipped]
    assert dataset.report["read"] == 11
    json.dumps(dataset.report)


def test_without_captions_the_truth_is_the_label(make) -> None:
    truths = {
        "a": r"$\left( \mbox{x}\!_{} \right)^2$",
        "b": r"a \lt b",
        "spelled": r"$ log (x) $",
        "unbalanced": r"$\frac{1$",
        "unknown": r"\aleph \aleph + \aleph_0 \heartsuit",
        "nothing": r"$ $",
    }
    files = {
        f"{n}.inkml": inkml(TRACES, t.replace("&", "&amp;").replace("<", "&lt;")).encode() for n, t in truths.items()
    }
    report, dataset = make({**files, "untold.inkml": inkml(TRACES, None).encode()})
    assert dict(zip(dataset.ids, map(" ".join, dataset.labels), strict=True)) == {
        "a": "( x ) ^ { 2 }",
        "b": "a < b",
        "spelled": r"\log ( x )",
    }
    assert skipped(report) == {
        "unbalanced": "bad-label",
        "unknown": "unknown-token",
        "nothing": "bad-label",
        "untold": "no-truth",
    }
    assert report.unknown_tokens == {r"\aleph": 1, r"\heartsuit": 1}
    assert report.repaired["truth: function spelled in letters"] == ["spelled"]


def test_captions_are_normalised_and_bad_ones_named(make) -> None:
    files = {f"{n}.inkml": inkml(TRACES).encode() for n in "abcd"}
    report, dataset = make(files, "a\t\\sum \\limits ^ 2 _ i\nb\tx ^ {\nd\t\\limits\n")
    assert dataset.labels == [tuple(r"\sum _ { i } ^ { 2 }".split())]
    assert skipped(report) == {"b": "bad-label", "c": "no-caption", "d": "bad-label"}
    assert "captions.txt:2: " in report.skipped[0].detail


def test_labels_too_long_to_be_said_are_kept_and_reported(make) -> None:
    files = {"long.inkml": inkml(TRACES).encode(), "fits.inkml": inkml(TRACES).encode()}
    report, dataset = make(files, f"long\t{'x ' * (LONGEST_LABEL + 1)}\nfits\t{'x ' * LONGEST_LABEL}\n")
    assert len(dataset) == 2
    assert report.long_labels == {"long": LONGEST_LABEL + 1}


def test_equal_stems_are_told(make) -> None:
    report, dataset = make({"a/one.inkml": inkml().encode(), "b/one.inkml": inkml().encode()})
    assert dataset.ids == ["one"]
    assert skipped(report) == {"one": "duplicate"}
    assert "b/one.inkml" in report.skipped[0].detail
    assert report.written == 1


def test_a_hostile_archive_is_one_failed_item(tmp_path: Path) -> None:
    folder(tmp_path, {"good.inkml": inkml().encode()})
    with tarfile.open(tmp_path / "x.tar.xz", "w:xz") as archive:
        archive.add(tmp_path / "good.inkml", "../evil.inkml")
        link = tarfile.TarInfo("link.inkml")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        archive.add(tmp_path / "good.inkml", "good.inkml")
    report = prepare_ink(tmp_path / "x.tar.xz", None, tmp_path / "out")
    assert skipped(report) == {"evil": "refused", "link": "refused"}
    assert ExpressionDataset(tmp_path / "out").ids == ["good"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "nothing to read"),
        ({"a.txt": b"", "b.bmp": b""}, "nothing to read; other files: 1 .bmp, 1 .txt"),
        ({"a.inkml": b""}, "not one of 1 files is usable; a: a: the file is empty"),
    ],
)
def test_nothing_usable_is_an_error_and_leaves_no_dataset(
    tmp_path: Path, files: dict[str, bytes], message: str
) -> None:
    (tmp_path / "ink").mkdir()
    with pytest.raises(DataError, match=message):
        prepare_ink(folder(tmp_path / "ink", files), None, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def picture(path: Path, mode: str = "L", size: tuple[int, int] = (90, 60)) -> None:
    image = Image.new(mode, size, 0)
    ImageDraw.Draw(image).line([(10, 10), (60, 40), (60, 15)], fill=255, width=3)
    image.save(path)


def test_pictures_are_kept_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    picture(tmp_path / "in" / "a.bmp")
    picture(tmp_path / "in" / "b.png")
    picture(tmp_path / "in" / "nocaption.png")
    Image.new("L", (50, 50), 255).save(tmp_path / "in" / "white.png")
    (tmp_path / "in" / "bad.png").write_bytes(b"\x89PNG")
    (tmp_path / "c.txt").write_text("a\tx\nb\ty\nwhite\tx\nbad\tx\n")
    report = prepare_pictures(tmp_path / "in", tmp_path / "c.txt", tmp_path / "out")
    dataset = ExpressionDataset(tmp_path / "out")
    assert [(e.id, e.tokens, e.ink) for e in dataset] == [("a", ("x",), None), ("b", ("y",), None)]
    for expression, file in zip(dataset, ("a.bmp", "b.png"), strict=True):
        assert expression.picture is not None and expression.picture.startswith(b"\x89PNG")
        np.testing.assert_array_equal(read_grey(expression.picture), read_grey(tmp_path / "in" / file))
    assert skipped(report) == {"nocaption": "no-caption", "white": "blank-picture", "bad": "unreadable"}


def test_merging_keeps_the_first_of_equal_ids(tmp_path: Path) -> None:
    for name, ids in {"a": "xy", "b": "yz"}.items():
        folder(tmp_path / name, {f"{i}.inkml": inkml().encode() for i in ids})
        prepare_ink(tmp_path / name, None, tmp_path / f"d{name}")
    report = merge_datasets([tmp_path / "da", tmp_path / "db"], tmp_path / "da")
    assert ExpressionDataset(tmp_path / "da").ids == ["x", "y", "z"]
    assert (report.read, report.written, skipped(report)) == (4, 3, {"y": "duplicate"})
    assert report.symbols_match == 3


def test_origins_are_kept_and_merged(tmp_path: Path) -> None:
    folder(tmp_path / "ink", {"a.inkml": inkml().encode()})
    origins = [Origin("ours", "CC0-1.0"), Origin("yours", "CC-BY-4.0")]
    for name, origin in zip("ab", origins, strict=True):
        prepare_ink(tmp_path / "ink", None, tmp_path / name, origin=origin)
    prepare_ink(tmp_path / "ink", None, tmp_path / "unnamed")
    merge_datasets([tmp_path / name for name in ("a", "unnamed", "b", "a")], tmp_path / "all")
    assert ExpressionDataset(tmp_path / "all").origins == (origins[0], Origin("unnamed"), origins[1])


def test_crohme_2014_and_extra(crohme: Path, tmp_path: Path) -> None:
    """All 986 with their captions, one longer than 200 tokens; all truths of the extra set but one."""
    report = prepare_ink(crohme / "test2014.tar.xz", crohme / "caption_2014.txt", tmp_path / "valid")
    assert (report.read, report.written, report.skipped, report.captions_without_file) == (986, 986, [], [])
    assert report.symbols_match >= 970
    assert max(map(len, ExpressionDataset(tmp_path / "valid").labels)) > 200
    report = prepare_ink(crohme / "extra.tar.xz", None, tmp_path / "extra")
    assert (report.read, report.written) == (1179, 1178)
