"""The command line's frame: help at once, errors in one line."""

import subprocess
import sys
import time

import pytest
import typer
from typer.testing import CliRunner

from hmerctl import __version__
from hmerctl.cli import app
from hmerctl.commands.common import DefaultRun, Group, print_json, print_table
from hmerctl.runtime.errors import BundleError

HEAVY = ("torch", "onnx", "onnxruntime", "numpy", "lightning", "matplotlib", "PIL", "pydantic")


def test_help_and_version() -> None:
    assert "recognise" in CliRunner().invoke(app, ["--help"]).output
    assert CliRunner().invoke(app, ["--version"]).output.strip() == __version__


def test_the_command_line_imports_nothing_heavy() -> None:
    code = f"import sys, hmerctl.cli; print([m for m in {HEAVY!r} if m in sys.modules])"
    started = time.monotonic()
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
    assert time.monotonic() - started < 2  # 0.15 s on an idle machine; tests may share it


def test_errors_are_one_line_and_exit_code_1() -> None:
    failing = typer.Typer(cls=Group, pretty_exceptions_enable=False)

    @failing.command()
    def one() -> None:
        raise BundleError("x.hmer: no such folder;\nexport one")

    @failing.command()
    def two() -> None:
        print_json({"a": 1})

    result = CliRunner().invoke(failing, ["one"])
    assert result.exit_code == 1 and isinstance(result.exception, SystemExit)  # no traceback
    assert result.output == "hmerctl: x.hmer: no such folder; export one\n"
    assert CliRunner().invoke(failing, ["two"]).output == '{\n  "a": 1\n}\n'
    assert CliRunner().invoke(failing, ["two", "--nonsense"]).exit_code == 2


def test_run_may_be_left_out() -> None:
    group = typer.Typer(cls=DefaultRun)

    @group.command()
    def run(name: str = "default") -> None:
        print("run", name)

    @group.command()
    def report() -> None:
        print("report")

    assert CliRunner().invoke(group, ["--name", "x"]).output == "run x\n"
    assert CliRunner().invoke(group, []).output == "run default\n"
    assert CliRunner().invoke(group, ["report"]).output == "report\n"
    assert "report" in CliRunner().invoke(group, ["--help"]).output


def test_tables_show_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["needs [a]", "how"], [("x", "pip install 'hmerctl[jetson]'")], title="\\sqrt[3]{x}")
    out = capsys.readouterr().out
    assert "hmerctl[jetson]" in out and "[a]" in out and "\\sqrt[3]{x}" in out
