"""Files of a folder or an archive, one after the other, without unpacking anything to disk.

Archives come from anywhere and are not trusted: member names are only ever used as names, links and special files
are refused, sizes are limited before anything is read, and a damaged archive is an error, not a shorter one.
"""

import bz2
import gzip
import lzma
import os
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from hmerctl.runtime.errors import DataError

MAX_FILE_BYTES = 64 << 20
"""Largest file that is read, unpacked size; larger ones fail by name."""

MAX_TOTAL_BYTES = 16 << 30
"""Largest sum of all unpacked sizes of one archive, headers included."""

MAX_MEMBERS = 5_000_000
"""Largest number of files in one archive."""

_HEADER_BYTES = 1 << 20
"""What an archive may spend between two files: tar's long names and extended attributes."""

# What the standard library raises about damaged archives, besides the errors meant for it.
_DAMAGE = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, OSError, ValueError, NotImplementedError),
)
_OPENERS: dict[str, Callable[..., Any]] = {"xz": lzma.open, "gz": gzip.open, "bz2": bz2.open, "tar": open}


@dataclass(frozen=True)
class SourceFile:
    """One file found.

    Attributes:
        name: where it is, for people: path inside the source, control characters escaped.
        stem: its name without folder and suffix; the id of an expression.
        suffix: in lower case, with the dot.
        data: its bytes, or None if it was refused or has a suffix that was not asked for.
        refused: why there are no bytes, or None.
    """

    name: str
    stem: str
    suffix: str
    data: bytes | None = None
    refused: str | None = None


def read_files(source: Path, suffixes: frozenset[str]) -> Iterator[SourceFile]:
    """All files of a folder (with its sub-folders, sorted by path) or of a .tar, .tar.xz, .tar.gz, .tar.bz2 or .zip.

    Args:
        source: the folder or archive.
        suffixes: in lower case; the bytes of other files are not read.

    Raises:
        DataError: the source is missing, no folder or known archive, damaged, or beyond the limits.
    """
    if source.is_dir():
        yield from _folder(source, suffixes)
        return
    if not source.is_file():
        raise DataError(f"{source}: no such folder or archive")
    kind = _kind(source)
    count = 0
    try:
        for file in _zip(source, suffixes) if kind == "zip" else _tar(source, suffixes, kind):
            count += 1
            if count > MAX_MEMBERS:
                raise DataError(f"{source}: holds more than {MAX_MEMBERS} files; unpack what you need into a folder")
            yield file
    except _DAMAGE as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise DataError(f"{source}: damaged after {count} files ({reason}); get the archive again") from error


def _kind(source: Path) -> str:
    """``zip``, ``xz``, ``gz``, ``bz2`` or ``tar``, by the first bytes and not by the name."""
    with source.open("rb") as file:
        head = file.read(265)
    signatures = {b"PK\3\4": "zip", b"PK\5\6": "zip", b"\xfd7zXZ\0": "xz", b"\x1f\x8b": "gz", b"BZh": "bz2"}
    for signature, kind in signatures.items():
        if head.startswith(signature):
            return kind
    if head[257:262] == b"ustar":
        return "tar"
    raise DataError(f"{source}: is neither a folder nor a tar (plain, xz, gz, bz2) or zip archive")


def _named(name: str, data: bytes | None = None, refused: str | None = None) -> SourceFile:
    path = PurePosixPath(name.replace("\\", "/"))
    shown = "".join(c if c.isprintable() else "?" for c in name)
    return SourceFile(shown, path.stem, path.suffix.lower(), data, refused)


def _is_wanted(name: str, suffixes: frozenset[str]) -> bool:
    """Has the right suffix and is no resource fork that a Mac put into the archive."""
    path = PurePosixPath(name.replace("\\", "/"))
    return path.suffix.lower() in suffixes and not path.name.startswith("._")


def _objection(name: str, size: int) -> str | None:
    """Why a member may not be read, judging by its name and its declared size."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or any(":" in part for part in path.parts[:1]):
        return "its path leads out of the archive"
    if size > MAX_FILE_BYTES:
        return f"{size} bytes, more than {MAX_FILE_BYTES}"
    return None


def _folder(folder: Path, suffixes: frozenset[str]) -> Iterator[SourceFile]:
    for path in sorted(_walk(folder)):
        name = path.relative_to(folder).as_posix()
        if path.is_dir():
            yield _named(name, refused="is a link to a folder; name that folder itself")
        elif not _is_wanted(name, suffixes):
            yield _named(name)
        else:
            yield _open(path, name)


def _walk(folder: Path) -> Iterator[Path]:
    """Everything in a folder and its sub-folders except these; links to folders are not followed, they may loop."""

    def give_up(error: OSError) -> None:
        raise DataError(f"{error.filename}: cannot be read ({error.strerror})") from error

    for here, folders, files in os.walk(folder, onerror=give_up):
        yield from (Path(here, name) for name in files)
        yield from (path for name in folders if (path := Path(here, name)).is_symlink())


def _open(path: Path, name: str) -> SourceFile:
    try:
        if not path.is_file():
            return _named(name, refused="is not a regular file")
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            return _named(name, refused=f"{size} bytes, more than {MAX_FILE_BYTES}")
        return _named(name, path.read_bytes())
    except OSError as error:
        return _named(name, refused=error.strerror or str(error))


def _zip(source: Path, suffixes: frozenset[str]) -> Iterator[SourceFile]:
    with zipfile.ZipFile(source) as archive:
        members = archive.infolist()
        total = sum(m.file_size for m in members)
        if total > MAX_TOTAL_BYTES:
            raise DataError(f"{source}: unpacks to {total} bytes, more than {MAX_TOTAL_BYTES}")
        for member in members:
            if member.filename.endswith("/"):
                continue
            file_type = member.external_attr >> 16 & 0o170000
            objection = _objection(member.filename, member.file_size)
            if not _is_wanted(member.filename, suffixes):
                yield _named(member.filename)
            elif file_type not in (0, 0o100000):
                yield _named(member.filename, refused="is a link or a special file")
            elif member.flag_bits & 1:
                yield _named(member.filename, refused="is encrypted")
            elif objection:
                yield _named(member.filename, refused=objection)
            else:
                yield _unzip(archive, member)


def _unzip(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> SourceFile:
    try:
        with archive.open(member) as file:  # never gives more than the declared size
            return _named(member.filename, file.read())
    except NotImplementedError as error:
        return _named(member.filename, refused=str(error))


def _tar(source: Path, suffixes: frozenset[str], kind: str) -> Iterator[SourceFile]:
    with _OPENERS[kind](source, "rb") as stream:
        metered = _Metered(stream, source)
        # Forward only: each byte is unpacked once, and nothing is kept.
        with tarfile.open(fileobj=metered, mode="r|") as archive:  # type: ignore[call-overload]
            while (member := archive.next()) is not None:
                metered.allow(member.size)
                archive.members = []
                if member.isdir():
                    continue
                objection = _objection(member.name, member.size)
                if not _is_wanted(member.name, suffixes):
                    yield _named(member.name)
                elif not member.isreg() or member.issparse():
                    yield _named(member.name, refused="is a link or a special file")
                elif objection:
                    yield _named(member.name, refused=objection)
                else:
                    file = archive.extractfile(member)
                    assert file is not None
                    yield _named(member.name, file.read())


class _Metered:
    """A stream that stops when tar asks for more than the files it announced; its headers could claim any size."""

    def __init__(self, stream: IO[bytes], source: Path) -> None:
        self._stream = stream
        self._source = source
        self._total = 0
        self._allowance = _HEADER_BYTES

    def allow(self, size: int) -> None:
        """The member just announced may use ``size`` bytes, and as much as headers may until the next one."""
        self._allowance = size + _HEADER_BYTES

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._total += len(data)
        self._allowance -= len(data)
        if self._allowance < 0:
            raise DataError(f"{self._source}: has a header of more than {_HEADER_BYTES} bytes; not a sound archive")
        if self._total > MAX_TOTAL_BYTES:
            raise DataError(f"{self._source}: unpacks to more than {MAX_TOTAL_BYTES} bytes")
        return data
