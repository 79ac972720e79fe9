"""Files and folders are there as a whole or not at all, whatever happens to their writer."""

import errno
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hmerctl.runtime import files
from hmerctl.runtime.files import check_writable, recover_folder, replaced_folder, write_bytes, write_text


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "no room")


def test_a_file_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "new" / "a.txt"
    write_text(file, "one")
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match=r"No space left on device: .*a\.txt'"):
        write_bytes(file, b"two")
    assert file.read_text() == "one" and names(tmp_path / "new") == ["a.txt"]


def test_what_cannot_be_written_is_known_beforehand(tmp_path: Path) -> None:
    check_writable(None, tmp_path / "new" / "a.txt")
    assert names(tmp_path / "new") == []
    with pytest.raises(IsADirectoryError, match="new"):
        check_writable(tmp_path / "new")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match=r"file/a\.txt"):
        check_writable(tmp_path / "file" / "a.txt")


def fill(path: Path, text: str) -> None:
    with replaced_folder(path) as folder:
        (folder / "a").write_text(text)
        (folder / "b").write_text(text)


def test_a_folder_is_replaced_as_a_whole(tmp_path: Path) -> None:
    fill(tmp_path / "f", "one")
    with pytest.raises(ZeroDivisionError), replaced_folder(tmp_path / "f") as folder:
        (folder / "a").write_text("half")
        _ = 1 / 0
    assert (tmp_path / "f/a").read_text() == "one"
    fill(tmp_path / "f", "two")
    assert (tmp_path / "f/b").read_text() == "two" and names(tmp_path) == ["f"]


def test_the_old_folder_is_put_back_when_the_new_one_cannot_be_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "f", "one")
    move = Path.rename
    monkeypatch.setattr(Path, "rename", lambda self, to: full() if self.suffix == ".partial" else move(self, to))
    with pytest.raises(OSError, match="no room"):
        fill(tmp_path / "f", "two")
    assert (tmp_path / "f/a").read_text() == "one" and names(tmp_path) == ["f"]


def test_writers_of_one_folder_do_not_mix(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: fill(tmp_path / "f", str(i)), range(200)))
    assert (tmp_path / "f/a").read_text() == (tmp_path / "f/b").read_text()
    assert names(tmp_path) == ["f"]


class KilledError(BaseException):
    """Stands for kill -9: nothing of the writer runs any more."""


def test_a_writer_killed_at_the_worst_moment_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "f", "one")
    move = Path.rename

    def die(self: Path, to: Path) -> Path:
        if self.suffix == ".partial":
            raise KilledError
        return move(self, to)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", die)
        patch.setattr(files.shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(KilledError):
            fill(tmp_path / "f", "two")
    assert "f" not in names(tmp_path)
    recover_folder(tmp_path / "f")
    assert (tmp_path / "f/a").read_text() == "one" and names(tmp_path) == ["f"]
