"""Caption files: ``id TAB label``, one expression a line, the id being the stem of the ink's or picture's file."""

from dataclasses import dataclass
from pathlib import Path

from hmerctl.runtime.errors import DataError

MAX_LABEL_CHARACTERS = 10_000
"""Longest label; aligning two labels takes memory by the product of their lengths."""


@dataclass(frozen=True)
class Caption:
    """One line of a caption file.

    Attributes:
        text: LaTeX or tokens, as the file has them.
        where: file and line, for messages.
    """

    text: str
    where: str


def read_captions(path: Path, empty_labels: bool = False) -> dict[str, Caption]:
    """Read a caption file: UTF-8 with or without BOM, LF or CRLF; empty lines are passed over.

    Args:
        path: the file.
        empty_labels: a label may be empty, as the output of a recogniser may; otherwise that is an error.

    Returns:
        Captions by id, in the order of the file.

    Raises:
        DataError: the file is missing, empty or not UTF-8; a line has no TAB, no id, no label or an endless one; an
            id comes twice. The message names the line.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"{path}: cannot read captions ({error.strerror})") from error
    except UnicodeDecodeError as error:
        bad = error.object[: error.start].count(b"\n") + 1
        raise DataError(f"{path}:{bad}: not UTF-8; save the captions as UTF-8") from error
    captions: dict[str, Caption] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        name, tab, label = line.partition("\t")
        name, label = name.strip(), label.strip()
        if not (tab and name and (label or empty_labels)):
            raise DataError(f"{where}: expected 'id TAB label', found {line.strip()[:60]!r}")
        if len(label) > MAX_LABEL_CHARACTERS:
            raise DataError(
                f"{where}: the label has {len(label)} characters, more than {MAX_LABEL_CHARACTERS}; shorten it"
            )
        if name in captions:
            raise DataError(
                f"{where}: {name} has a caption already, in line {captions[name].where.rpartition(':')[2]}"
            )
        captions[name] = Caption(label, where)
    if not captions:
        raise DataError(f"{path}: holds no captions; expected lines of 'id TAB label'")
    return captions
