"""Errors that no code of ours raises, full disks and the like, still end in one line and exit code 1."""

import errno
import os

import pytest
import typer
from typer.testing import CliRunner

from hmerctl.commands.common import Group


def failing(error: BaseException) -> typer.Typer:
    app = typer.Typer(cls=Group, pretty_exceptions_enable=False)

    @app.command()
    def one() -> None:
        raise error

    @app.command()
    def other() -> None: ...

    return app


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "out/x.png"), ("out/x.png", "No space", "make room")),
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES), "locked"), ("locked", "denied", "permissions")),
        (OSError(errno.EROFS, os.strerror(errno.EROFS), "cd"), ("cd", "Read-only", "can be written")),
        (NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), "a/b"), ("a/b", "Not a directory")),
        (MemoryError("Unable to allocate 1 TiB"), ("not enough memory", "1 TiB")),
    ],
)
def test_one_line(error: BaseException, words: tuple[str, ...]) -> None:
    result = CliRunner().invoke(failing(error), ["one"])
    assert result.exit_code == 1 and isinstance(result.exception, SystemExit)
    (line,) = result.stderr.splitlines()
    for word in ("hmerctl: ", *words):
        assert word in line


def test_faults_of_our_own_are_not_hidden() -> None:
    assert isinstance(CliRunner().invoke(failing(ZeroDivisionError()), ["one"]).exception, ZeroDivisionError)
