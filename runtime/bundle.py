"""Reading a bundle folder (or ``.hmer.zip``): nothing is used before its size and sha256 are checked.

The digests protect against damage and mix-ups, not against an author who means harm; for that there are the limits
on paths, links and sizes below. Every refusal is a ``BundleError`` of one line that names the file and the fix.
"""

import hashlib
import json
import lzma
import re
import shutil
import stat
import tempfile
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hmerctl.runtime import raster
from hmerctl.runtime.buckets import Bucket, Padding
from hmerctl.runtime.errors import BundleError
from hmerctl.runtime.files import write_text
from hmerctl.runtime.manifest import SCHEMA_VERSION, Component, FileEntry, Manifest, safe_path
from hmerctl.runtime.vocabulary import Vocabulary

MANIFEST = "manifest.json"
VOCABULARY_METADATA = "vocabulary_sha256"
"""Key in the metadata of every ONNX graph; its value is ``Vocabulary.sha256``."""

MAX_MANIFEST_BYTES = 8 << 20
MAX_VOCABULARY_BYTES = 1 << 20
MAX_BUNDLE_BYTES = 4 << 30
MAX_FILES = 4096

_DAMAGE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError)

_AGAIN = "copy the bundle again or export it anew"


@dataclass(frozen=True)
class Bundle:
    """A verified bundle.

    Attributes:
        path: its folder.
        name: what to call it in messages: the path that was given.
        manifest: see ``hmerctl.runtime.manifest``.
        vocabulary: what the ids mean.
    """

    path: Path
    name: str
    manifest: Manifest
    vocabulary: Vocabulary
    _unpacked: "tempfile.TemporaryDirectory[str] | None" = field(default=None, repr=False, compare=False)

    def components(self, role: str) -> list[Component]:
        """The graphs of a role, ``encoder`` or ``step``."""
        return [component for component in self.manifest.components if component.role == role]

    def buckets(self) -> list[Bucket]:
        """The raster sizes that the encoder takes, in the order in which they are tried."""
        return [Bucket(*bucket) for bucket in self.manifest.buckets]

    def padding(self) -> Padding:
        """How large a raster is made before it goes into the encoder."""
        return Padding(tuple(self.buckets()), self.manifest.padding_step)

    def file(self, path: str) -> Path:
        """Where a listed file or folder lies."""
        return self.path / path

    def require_runtime(self, name: str, version: str) -> None:
        """Refuse a runtime that is older than the manifest's ``minimum_runtime``.

        Args:
            name: of the runtime, e.g. ``onnxruntime``; one that the manifest does not name is not asked for anything.
            version: which one is here; what follows its numbers (``rc1``, ``+cu12``) is passed over.

        Raises:
            BundleError: naming both versions.
        """
        lowest = self.manifest.target.minimum_runtime.get(name)
        if lowest is not None and _numbers(version) < _numbers(lowest):
            raise BundleError(f"{self.name}: needs {name} {lowest} or later, here is {version}; upgrade {name}")

    def total_bytes(self) -> int:
        """Size of all files together, ``manifest.json`` not counted."""
        return sum(entry.bytes for entry in self.manifest.files)


def open_bundle(path: Path | str) -> Bundle:
    """Read and verify a bundle: every listed file is there, inside the folder, with its size and sha256.

    Args:
        path: the folder, or a ``.zip`` of it, which is unpacked into a temporary folder for the bundle's lifetime.

    Raises:
        BundleError: naming the file and the fix.
    """
    given = Path(path)
    unpacked = None
    root = given
    if given.is_file() and zipfile.is_zipfile(given):
        unpacked = tempfile.TemporaryDirectory(prefix="hmerctl-")
        root = _unpack(given, Path(unpacked.name))
    elif given.is_file():
        raise BundleError(f"{given}: no such bundle folder, and no sound zip of one; {_AGAIN}")
    elif not given.is_dir():
        raise BundleError(f"{given}: no such bundle folder; hmerctl export makes one")
    manifest = read_manifest(root, str(given))
    _check_preprocessing(manifest, str(given))
    if len(manifest.files) > MAX_FILES or sum(entry.bytes for entry in manifest.files) > MAX_BUNDLE_BYTES:
        raise BundleError(
            f"{given}: lists more than {MAX_FILES} files or {MAX_BUNDLE_BYTES} bytes; not a usable bundle"
        )
    for entry in manifest.files:
        _check_file(root, entry, str(given))
    return Bundle(root, str(given), manifest, _read_vocabulary(root, manifest, str(given)), unpacked)


def read_manifest(root: Path, name: str) -> Manifest:
    """Read ``manifest.json`` alone, without looking at the other files.

    Args:
        root: the bundle's folder.
        name: what to call the bundle in messages.
    """
    where = f"{name}: {MANIFEST}"
    file = root / MANIFEST
    if not file.is_file():
        raise BundleError(f"{where} is missing; {_AGAIN}")
    if file.stat().st_size > MAX_MANIFEST_BYTES:
        raise BundleError(f"{where} is larger than {MAX_MANIFEST_BYTES} bytes; {_AGAIN}")
    try:
        value: Any = json.loads(file.read_text(encoding="utf-8"))
        version = str(value["schema_version"])
        major = int(version.split(".")[0])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BundleError(f"{where} is not a manifest ({type(error).__name__}: {error}); {_AGAIN}") from error
    if major != int(SCHEMA_VERSION.split(".")[0]):
        advice = "upgrade hmerctl" if major > int(SCHEMA_VERSION.split(".")[0]) else "export the bundle anew"
        raise BundleError(f"{where} has schema version {version}, this runtime reads {SCHEMA_VERSION}; {advice}")
    try:
        return Manifest.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(str(part) for part in first["loc"]) or "manifest"
        raise BundleError(f"{where}: {at}: {first['msg']}; {_AGAIN}") from error


def write_manifest(root: Path, manifest: Manifest) -> None:
    """Write ``manifest.json`` into a bundle's folder, in one piece or not at all."""
    write_text(root / MANIFEST, manifest.model_dump_json(indent=2, exclude_none=True) + "\n")


def _numbers(version: str) -> tuple[int, ...]:
    """``1.23.2+local`` as (1, 23, 2): the numbers that a version begins with."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(number) for number in found.group().split(".")) if found else ()


def sha256_file(path: Path) -> str:
    """Hex digest of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def list_files(root: Path) -> tuple[FileEntry, ...]:
    """Every file under a folder as a manifest lists it, sorted by path; ``manifest.json`` is left out."""
    paths = sorted(path for path in root.rglob("*") if path.is_file() and path != root / MANIFEST)
    return tuple(
        FileEntry(path=path.relative_to(root).as_posix(), bytes=path.stat().st_size, sha256=sha256_file(path))
        for path in paths
    )


def _check_preprocessing(manifest: Manifest, name: str) -> None:
    version = manifest.preprocessing.version
    if version != raster.CONTRACT_VERSION:
        advice = "upgrade hmerctl" if version > raster.CONTRACT_VERSION else "train and export anew"
        raise BundleError(
            f"{name}: made for raster contract {version}, this runtime draws {raster.CONTRACT_VERSION}; {advice}"
        )


def _check_file(root: Path, entry: FileEntry, name: str) -> None:
    where = f"{name}: {entry.path}"
    file = root / entry.path
    if not file.resolve().is_relative_to(root.resolve()):
        raise BundleError(f"{where} is a link out of the bundle; copy the bundle with its links followed (cp -rL)")
    if not file.is_file():
        raise BundleError(f"{where} is missing; {_AGAIN}")
    size = file.stat().st_size
    if size != entry.bytes:
        raise BundleError(f"{where} has {size} bytes where the manifest says {entry.bytes}; {_AGAIN}")
    if sha256_file(file) != entry.sha256:
        raise BundleError(f"{where} does not have the sha256 that the manifest says; {_AGAIN}")


def _read_vocabulary(root: Path, manifest: Manifest, name: str) -> Vocabulary:
    info = manifest.vocabulary
    where = f"{name}: {info.file}"
    file = root / info.file
    if file.stat().st_size > MAX_VOCABULARY_BYTES:
        raise BundleError(f"{where} is larger than {MAX_VOCABULARY_BYTES} bytes; {_AGAIN}")
    try:
        tokens = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(tokens, list) or not all(isinstance(token, str) and token for token in tokens):
            raise ValueError("not a list of tokens")
        vocabulary = Vocabulary(tuple(tokens))
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{where} is not a vocabulary ({error}); {_AGAIN}") from error
    if vocabulary.sha256 != info.sha256 or len(vocabulary) != info.size:
        raise BundleError(f"{where} is not the vocabulary that the manifest names; {_AGAIN}")
    return vocabulary


def _unpack(archive: Path, folder: Path) -> Path:
    """Unpack a zipped bundle; returns the folder with the manifest, which may be the zip's only top folder."""
    try:
        with zipfile.ZipFile(archive) as file:
            members = [member for member in file.infolist() if not member.is_dir()]
            if len(members) > MAX_FILES or sum(member.file_size for member in members) > MAX_BUNDLE_BYTES:
                raise BundleError(f"{archive}: unpacks to more than {MAX_BUNDLE_BYTES} bytes; not a usable bundle")
            for member in members:
                if stat.S_ISLNK(member.external_attr >> 16):
                    raise BundleError(
                        f"{archive}: {member.filename} is a link; zip the bundle with its links followed"
                    )
                target = folder / safe_path(member.filename)
                target.parent.mkdir(parents=True, exist_ok=True)
                with file.open(member) as source, target.open("wb") as copy:
                    shutil.copyfileobj(source, copy)  # zipfile stops at the declared size and checks the CRC
    except (ValueError, OSError, RuntimeError, NotImplementedError, EOFError, *_DAMAGE) as error:
        raise BundleError(f"{archive}: cannot be unpacked ({error}); {_AGAIN}") from error
    tops = list(folder.iterdir())
    return tops[0] if len(tops) == 1 and tops[0].is_dir() else folder
