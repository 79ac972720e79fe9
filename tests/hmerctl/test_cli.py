"""The command line's frame: help at once, errors in one line."""

import subprocess
import sys

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
    code = f"""
import sys, time, hmerctl.cli
print([m for m in {HEAVY!r} if m in sys.modules], time.process_time())
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded, seconds = out.stdout.rsplit(maxsplit=1)
    assert loaded == "[]"
    assert float(seconds) < 1  # of computing; about 0.15, and more on a machine that others use


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


def test_a_package_of_an_extra_is_asked_for_by_the_name_of_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("coremltools", "torch"):
        monkeypatch.setitem(sys.modules, module, None)
    failing = typer.Typer(cls=Group, pretty_exceptions_enable=False)

    @failing.command()
    def convert() -> None:
        import coremltools  # noqa: F401

    @failing.command()
    def teach() -> None:
        import torch  # noqa: F401

    @failing.command()
    def verify() -> None:
        import torch  # noqa: F401

    @failing.command()
    def other() -> None:
        import nothing_of_this_name  # noqa: F401

    result = CliRunner().invoke(failing, ["convert"])
    assert result.exit_code == 1
    assert result.output == "hmerctl: this needs coremltools, which is not installed: pip install 'hmerctl[export]'\n"
    assert "hmerctl[train]" in CliRunner().invoke(failing, ["teach"]).output
    assert "hmerctl[export]" in CliRunner().invoke(failing, ["verify"]).output  # needs onnx in its next line
    assert isinstance(CliRunner().invoke(failing, ["other"]).exception, ModuleNotFoundError)


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
