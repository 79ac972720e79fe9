"""Archives are read like folders, and hostile ones do no harm."""

import io
import lzma
import os
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hmerctl.runtime.errors import DataError
from hmerctl.train import archives
from hmerctl.train.archives import SourceFile, read_files

SUFFIXES = frozenset({".inkml"})


def tar(path: Path, members: list[tuple[tarfile.TarInfo, bytes]], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for info, data in members:
            info.size = len(data) if info.isreg() else 0
            archive.addfile(info, io.BytesIO(data))
    return path


def file(name: str, data: bytes = b"ink") -> tuple[tarfile.TarInfo, bytes]:
    return tarfile.TarInfo(name), data


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def read(source: Path) -> dict[str, SourceFile]:
    return {f.name: f for f in read_files(source, SUFFIXES)}


NAMES = {"a/one.inkml": b"1", "a/b/two.InkML": b"22", "notes.txt": b"?"}


def as_folder(path: Path) -> Path:
    for name, data in NAMES.items():
        (path / "f" / name).parent.mkdir(parents=True, exist_ok=True)
        (path / "f" / name).write_bytes(data)
    return path / "f"


def as_zip(path: Path) -> Path:
    return zipped(path / "x.zip", NAMES)


def as_tar(mode: str):
    return lambda path: tar(path / "x.archive", [file(n, d) for n, d in NAMES.items()], mode)


@pytest.mark.parametrize("make", [as_folder, as_zip, *(as_tar(m) for m in ("w", "w:xz", "w:gz", "w:bz2"))])
def test_all_kinds_of_source_give_the_same_files(tmp_path: Path, make) -> None:
    files = read(make(tmp_path))
    assert {n: f.data for n, f in files.items()} == {"a/one.inkml": b"1", "a/b/two.InkML": b"22", "notes.txt": None}
    assert (files["a/b/two.InkML"].stem, files["a/b/two.InkML"].suffix) == ("two", ".inkml")
    assert not any(f.refused for f in files.values())


def link(kind: bytes) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo("link.inkml")
    info.type, info.linkname = kind, "/etc/passwd"
    return info, b""


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_in_a_tar_are_refused(tmp_path: Path, kind: bytes) -> None:
    files = read(tar(tmp_path / "x.tar", [link(kind), file("good.inkml")]))
    assert files["link.inkml"].refused == "is a link or a special file"
    assert files["good.inkml"].data == b"ink"


def test_links_in_a_zip_are_refused(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("link.inkml")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr(info, "/etc/passwd")
    assert read(tmp_path / "x.zip")["link.inkml"].refused == "is a link or a special file"


@pytest.mark.parametrize("name", ["../up.inkml", "/etc/abs.inkml", "a/../../b.inkml", "..\\w.inkml", "C:\\w.inkml"])
def test_paths_that_lead_out_are_refused(tmp_path: Path, name: str) -> None:
    for source in (tar(tmp_path / "x.tar", [file(name)]), zipped(tmp_path / "x.zip", {name: b"ink"})):
        (found,) = read(source).values()
        assert found.data is None
        assert found.refused == "its path leads out of the archive"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.tar", "x.zip"]


def test_a_large_file_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_FILE_BYTES", 1000)
    members = {"bomb.inkml": bytes(3 << 20), "good.inkml": b"ink"}
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, data in members.items():
        (folder / name).write_bytes(data)
    packed = tar(tmp_path / "x.tar.xz", [file(*m) for m in members.items()], "w:xz")
    for source in (folder, packed, zipped(tmp_path / "x.zip", members)):
        files = read(source)
        assert files["bomb.inkml"].refused == "3145728 bytes, more than 1000"
        assert files["good.inkml"].data == b"ink"


@pytest.mark.parametrize("limit", ["MAX_TOTAL_BYTES", "MAX_MEMBERS"])
def test_an_endless_archive_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(archives, limit, 10)
    members = {f"{i}.inkml": b"ink" for i in range(20)}
    packed = tar(tmp_path / "x.tar.gz", [file(*m) for m in members.items()], "w:gz")
    for source in (packed, zipped(tmp_path / "x.zip", members)):
        with pytest.raises(DataError, match="more than 10"):
            read(source)


def test_a_header_bomb_is_refused(tmp_path: Path) -> None:
    """A long-name header of any size is read into memory by tarfile; ours stops it."""
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 1 << 30
    with lzma.open(tmp_path / "x.tar.xz", "wb", preset=0) as out:
        out.write(header.tobuf())
        for _ in range(4):
            out.write(bytes(1 << 20))
    with pytest.raises(DataError, match="not a sound archive"):
        read(tmp_path / "x.tar.xz")


def test_a_truncated_archive_is_an_error_and_not_a_shorter_one(tmp_path: Path) -> None:
    members = {f"{i}.inkml": os.urandom(2000) for i in range(20)}
    for source in (
        tar(tmp_path / "x.tar", [file(*m) for m in members.items()]),
        tar(tmp_path / "x.tar.xz", [file(*m) for m in members.items()], "w:xz"),
        tar(tmp_path / "x.tar.gz", [file(*m) for m in members.items()], "w:gz"),
        zipped(tmp_path / "x.zip", members),
    ):
        source.write_bytes(source.read_bytes()[:21000])
        with pytest.raises(DataError, match="damaged after") as error:
            read(source)
        assert str(source) in str(error.value)
        assert "\n" not in str(error.value)


def test_a_zip_with_a_broken_or_encrypted_member_is_told(tmp_path: Path) -> None:
    path = zipped(tmp_path / "x.zip", {"one.inkml": b"some ink here, some ink here"})
    data = bytearray(path.read_bytes())
    path.write_bytes(data.replace(b"PK\x01\x02\x14\x03\x14\x00\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01\x00"))
    assert read(path)["one.inkml"].refused == "is encrypted"
    data[45] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(DataError, match="damaged"):
        read(path)


def test_what_is_no_archive_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.tar.xz").write_text("<html>404</html>")
    with pytest.raises(DataError, match="neither a folder nor a tar"):
        read(tmp_path / "x.tar.xz")
    with pytest.raises(DataError, match="no such folder"):
        read(tmp_path / "nothing")


def test_names_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    (shown,) = read(tar(tmp_path / "x.tar", [file("a\x1b[31m\n.inkml")]))
    assert shown == "a?[31m?.inkml"


def test_resource_forks_and_folders_are_no_inks(tmp_path: Path) -> None:
    folder = tarfile.TarInfo("dir.inkml")
    folder.type = tarfile.DIRTYPE
    files = read(tar(tmp_path / "x.tar", [(folder, b""), file("._one.inkml"), file("one.inkml")]))
    assert {n: f.data for n, f in files.items()} == {"._one.inkml": None, "one.inkml": b"ink"}


def test_unreadable_things_in_a_folder_fail_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.inkml")
    (tmp_path / "dangling.inkml").symlink_to(tmp_path / "nothing")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "one.inkml").write_bytes(b"ink")
    files = read(tmp_path)
    assert files["pipe.inkml"].refused == files["dangling.inkml"].refused == "is not a regular file"
    assert files["loop"].refused == "is a link to a folder; name that folder itself"
    assert files["one.inkml"].data == b"ink"
    assert len(files) == 4


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["x.tar", "x.tar.gz", "x.zip"]), st.data())
def test_any_damage_gives_files_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("damage") / name
    members = {"one.inkml": b"some ink" * 9, "two.inkml": b"more ink" * 9}
    if name == "x.zip":
        zipped(path, members)
    else:
        tar(path, [file(*m) for m in members.items()], "w:gz" if name.endswith("gz") else "w")
    content = bytearray(path.read_bytes())
    # Tar pads to 10 kB with zeros, where damage would mostly go unseen.
    for position in data.draw(st.lists(st.integers(0, min(len(content), 2000) - 1), min_size=1, max_size=4)):
        content[position] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        read(path)
    except DataError as error:
        assert "\n" not in str(error)
