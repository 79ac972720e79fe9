r"""``hmerctl score``: the figures of two text files."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hmerctl.cli import app

TARGETS = "a\tx ^ { 2 }\nb\t\\frac { b } { 2 }\nc\ty\n"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["score", *map(str, arguments)], env={"COLUMNS": "160"})


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Three targets; of the predictions one is right in other words, one has b for 6, one is missing, one unknown."""
    reference, prediction = tmp_path / "reference.txt", tmp_path / "prediction.txt"
    reference.write_text(TARGETS)
    prediction.write_bytes(b"\xef\xbb\xbfb\t\\frac{6}{2}\r\na\t$x^2$\r\nz\tx\r\n")
    return reference, prediction


def test_json_holds_all_figures(files: tuple[Path, Path]) -> None:
    result = run(*files, "--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert report["expressions"] == 3
    assert report["token"]["exact"] == report["tree"]["exact"] == pytest.approx(1 / 3)
    assert report["token"]["within_1"] == report["tree"]["within_1"] == pytest.approx(2 / 3)
    assert report["missing"] == ["c"]
    assert report["unknown"] == ["z"]
    assert report["confusions"] == [{"target": "b", "predicted": "6", "count": 1}]


def test_people_get_tables_that_name_the_convention_and_the_missing_ids(files: tuple[Path, Path]) -> None:
    output = run(*files).output
    assert "ExpRate, token" in output
    assert "tree: symbol layout trees equal" in output
    assert "no prediction, counted as wrong (1): c" in output
    assert "predicted, but not in the targets (1): z" in output
    assert "most frequent token errors" in output
    assert "most frequent token errors" not in run(*files, "--confusions", 0).output


def test_two_outputs_are_compared(files: tuple[Path, Path]) -> None:
    reference, prediction = files
    test = json.loads(run(reference, prediction, "--versus", reference, "--json").stdout)["versus"]
    assert (test["only_first"], test["only_second"], test["second"]) == (0, 2, 1)
    assert "McNemar" in run(reference, prediction, "--versus", reference).output


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\tx\nno tab here\n", ":2: expected 'id TAB label'"),
        (b"a\tx\na\ty\n", ":2: a has a caption already"),
        (b"a\tx\n\xff\n", ":2: not UTF-8"),
        (b"", "holds no captions"),
        (None, "cannot read"),
    ],
)
def test_a_malformed_file_is_one_line_that_names_file_and_line(
    files: tuple[Path, Path], content: bytes | None, message: str
) -> None:
    reference, prediction = files
    prediction.unlink()
    if content is not None:
        prediction.write_bytes(content)
    result = run(reference, prediction)
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert str(prediction) in result.stderr
    assert message in result.stderr


def test_an_empty_prediction_is_allowed_and_an_empty_target_is_not(files: tuple[Path, Path]) -> None:
    reference, prediction = files
    prediction.write_text("a\t\n")
    assert run(reference, prediction).exit_code == 0
    result = run(prediction, reference)
    assert (result.exit_code, "prediction.txt:1" in result.stderr) == (1, True)
