"""One front door: a file of any kind that holds handwriting, to the raster that the recogniser reads."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from hmerctl.runtime.errors import HmerError, InkError
from hmerctl.runtime.ink import Ink
from hmerctl.runtime.inkml import read_inkml
from hmerctl.runtime.picture import picture_drawer
from hmerctl.runtime.raster import Raster, RasterSpec, rasterise_ink
from hmerctl.runtime.strokes import read_strokes

Kind = Literal["inkml", "strokes", "picture"]

_PICTURES = (b"\x89PNG", b"\xff\xd8\xff", b"BM", b"GIF8", b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")


def sniff(head: bytes) -> Kind | None:
    """The kind of a file by its first 64 bytes or more, whatever its name says; None if it is none of them."""
    if head.startswith(_PICTURES) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP"):
        return "picture"
    text = head.removeprefix(b"\xef\xbb\xbf").replace(b"\0", b"").lstrip(b"\xff\xfe \t\r\n")
    if text.startswith(b"<"):
        return "inkml"
    if text.startswith((b"{", b"[")):
        return "strokes"
    return None


def load_ink(source: str | Path | bytes, name: str = "") -> Ink:
    """The ink of an InkML or strokes JSON file (path or contents). Raises InkError, also for a picture."""
    kind, where = _kind(source, name)
    if kind == "picture":
        raise InkError(f"{where}: is a picture; expected pen strokes (InkML or strokes JSON)")
    return read_inkml(source, name) if kind == "inkml" else read_strokes(source, name)


def load_raster(source: str | Path | bytes, spec: RasterSpec | None = None) -> Raster:
    """The normalised raster of an InkML, strokes JSON or picture file, told apart by what they hold.

    Args:
        source: a path, or the file's contents.
        spec: the raster contract's numbers.

    Raises:
        InkError, PictureError: the file is missing, too large, broken, or of another kind.
    """
    return drawer(source)(spec or RasterSpec())


def drawer(source: str | Path | bytes) -> Callable[[RasterSpec], Raster]:
    """``load_raster`` for several contracts: the file is read once."""
    if _kind(source, "")[0] == "picture":
        return picture_drawer(source)
    ink = load_ink(source)
    # What cannot be drawn is named as what cannot be read: by its path.
    return partial(rasterise_ink, ink if isinstance(source, bytes) else replace(ink, id=str(source)))


def _kind(source: str | Path | bytes, name: str) -> tuple[Kind, str]:
    if isinstance(source, bytes):
        head, where = source[:256], name or "input"
    else:
        path = Path(source)
        where = str(path)
        if not path.is_file():
            raise InkError(f"{where}: {'not a file' if path.exists() else 'no such file'}")
        try:
            with path.open("rb") as file:
                head = file.read(256)
        except OSError as error:
            raise InkError(f"{where}: cannot be read: {error.strerror}") from None
    kind = sniff(head)
    if kind is None:
        problem = "the file is empty" if not head.strip() else "neither InkML, strokes JSON nor a picture"
        raise HmerError(f"{where}: {problem}; see the formats in the README")
    return kind, where
