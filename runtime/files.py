"""Files and folders that are there as a whole or not at all."""

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file beside its final place, then move it there; folders are made as needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, content: str) -> None:
    """``write_bytes`` of UTF-8 text."""
    write_bytes(path, content.encode())


@contextmanager
def replaced_folder(path: Path) -> Iterator[Path]:
    """A new folder to fill; it takes the place of ``path`` in one move when the block ends without error.

    Readers that have files of the old folder open keep them.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.partial")
    folder.mkdir()
    old = folder.with_suffix(".old")
    try:
        yield folder
        if path.exists():
            path.rename(old)
        try:
            folder.rename(path)
        except OSError:
            if old.exists():
                old.rename(path)
            raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
