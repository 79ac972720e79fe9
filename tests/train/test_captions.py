"""Caption files: what is read, and that every malformed line is named."""

from pathlib import Path

import pytest

from hmerctl.runtime.errors import DataError
from hmerctl.train.captions import read_captions


@pytest.mark.parametrize(
    "content", [b"a\tx ^ 2\nb\t\\frac\n", b"\xef\xbb\xbfa\tx ^ 2\r\n\r\nb\t\\frac", b"a \t x ^ 2 \nb\t\\frac\n\n"]
)
def test_captions_by_id(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "c.txt").write_bytes(content)
    captions = read_captions(tmp_path / "c.txt")
    assert {name: c.text for name, c in captions.items()} == {"a": "x ^ 2", "b": "\\frac"}
    assert captions["a"].where == f"{tmp_path / 'c.txt'}:1"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\tx\nb x\n", "c.txt:2: expected 'id TAB label', found 'b x'"),
        (b"a\tx\n\ty\n", "c.txt:2: expected"),
        (b"a\t\n", "c.txt:1: expected"),
        (b"a\tx\n\n\na\ty\n", "c.txt:4: a has a caption already, in line 1"),
        (b"a\tx\nb\t\xe9\n", "c.txt:2: not UTF-8"),
        (b"\n\n", "c.txt: holds no captions"),
        (b"\x00" * 500, "c.txt:1: expected"),
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "c.txt").write_bytes(content)
    with pytest.raises(DataError) as error:
        read_captions(tmp_path / "c.txt")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_missing_captions_are_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read captions"):
        read_captions(tmp_path / "c.txt")


def test_endless_labels_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "captions.txt"
    file.write_text("a\tx\nb\t" + "{" * 10_001 + "\n")
    with pytest.raises(DataError, match=r"captions.txt:2: the label has 10001 characters"):
        read_captions(file)
