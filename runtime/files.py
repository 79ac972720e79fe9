"""Files and folders that are there as a whole or not at all."""

import errno
import io
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

_TAKEN = (errno.ENOTEMPTY, errno.EEXIST)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file beside its final place, then move it there; folders are made as needed.

    Raises:
        OSError: naming ``path``; whatever was there is untouched.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OSError(error.errno, os.strerror(error.errno or 0), str(path)) from error


def write_text(path: Path, content: str) -> None:
    """``write_bytes`` of UTF-8 text."""
    write_bytes(path, content.encode())


def png(image: "Image.Image") -> bytes:
    """What a PNG file of a picture holds."""
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def check_writable(*paths: Path | None) -> None:
    """Find out before long work whether files can be written at its end; ``None`` is passed over.

    Raises:
        OSError: naming the first path that cannot be written.
    """
    for path in paths:
        if path is None:
            continue
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        probe = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
        try:
            write_bytes(probe, b"")
            probe.unlink()
        except OSError as error:
            raise OSError(error.errno, os.strerror(error.errno or 0), str(path)) from error


@contextmanager
def replaced_folder(path: Path) -> Iterator[Path]:
    """A new folder to fill; it takes the place of ``path`` when the block ends without error.

    Readers that have files of the old folder open keep them. Of several writers the last to finish wins. A process
    that is killed between the two moves leaves the old folder beside the place: see ``recover_folder``.

    Raises:
        OSError: naming ``path`` where the folder cannot be made or moved; whatever was there stays.
    """
    folder = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir()
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno or 0), str(path)) from error
    try:
        yield folder
        _take_place(folder, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _take_place(folder: Path, path: Path) -> None:
    """Move ``folder`` to ``path``; what was there is deleted, or put back if the move fails."""
    while True:
        old = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.old")
        with suppress(FileNotFoundError):
            path.rename(old)
        try:
            folder.rename(path)
        except OSError as error:
            if error.errno in _TAKEN:  # another writer was quicker: replace its folder too
                shutil.rmtree(old, ignore_errors=True)
                continue
            if old.exists():
                old.rename(path)
            raise
        shutil.rmtree(old, ignore_errors=True)
        return


def recover_folder(path: Path) -> None:
    """Undo what a writer of ``path`` left that was killed: put the old folder back, delete what is not complete.

    Only where no other process writes ``path``.
    """
    for left in sorted(path.parent.glob(f".{path.name}.*.old")):
        if not path.exists():
            left.rename(path)
        shutil.rmtree(left, ignore_errors=True)
    for left in path.parent.glob(f".{path.name}.*.partial"):
        shutil.rmtree(left, ignore_errors=True)
