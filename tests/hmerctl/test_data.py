"""``hmerctl data``: the commands as a user runs them."""

import json
from pathlib import Path

import pytest
from PIL import Image
from synthetic import make_dataset
from typer.testing import CliRunner, Result

from hmerctl.cli import app
from hmerctl.train.dataset import ExpressionDataset, Origin

INKML = """<ink xmlns="http://www.w3.org/2003/InkML"><annotation type="truth">x</annotation>
<trace id="0">0 0, 30 40</trace></ink>"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["data", *map(str, arguments)])


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    (tmp_path / "ink").mkdir()
    for name in ("one", "two"):
        (tmp_path / "ink" / f"{name}.inkml").write_text(INKML)
    (tmp_path / "ink" / "bad.inkml").write_text("")
    assert run("prepare", "--ink", tmp_path / "ink", "--out", tmp_path / "d").exit_code == 0
    return tmp_path / "d"


def test_prepare_prints_its_report(dataset: Path) -> None:
    result = run("prepare", "--ink", dataset.parent / "ink", "--out", dataset, "--json")
    report = json.loads(result.stdout)
    assert (report["read"], report["written"]) == (3, 2)
    assert report["skipped"][0]["id"] == "bad"
    table = run("prepare", "--ink", dataset.parent / "ink", "--out", dataset).stdout
    assert "skipped: unreadable" in table
    assert "bad" in table


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "either --ink or --images"),
        (("--ink", "a", "--images", "b"), "either --ink or --images"),
        (("--images", "a"), "pictures need --captions"),
        (("--ink", "a", "--licence", "CC0-1.0"), "--licence goes with --name"),
    ],
)
def test_contradictory_options_are_usage_errors(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    result = run("prepare", *arguments, "--out", tmp_path / "d")
    assert result.exit_code == 2
    assert message in result.stderr


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    result = run("prepare", "--ink", tmp_path / "nothing", "--out", tmp_path / "d")
    assert result.exit_code == 1
    assert result.stderr == f"hmerctl: {tmp_path / 'nothing'}: no such folder or archive\n"


def test_show_draws_a_sheet(dataset: Path) -> None:
    out = dataset.parent / "new" / "sheet.png"
    result = run("show", dataset, "--out", out, "--count", 5)
    assert result.exit_code == 0
    assert "2 of 2 expressions" in result.stdout
    with Image.open(out) as sheet:
        both = sheet.size
    run("show", dataset, "--out", out, "--id", "two")
    with Image.open(out) as sheet:
        assert sheet.width < both[0]
    assert "has no expression three" in run("show", dataset, "--out", out, "--id", "three").stderr


def test_stats(dataset: Path) -> None:
    assert json.loads(run("stats", dataset, "--json").stdout)["symbols"] == {"x": 2}
    assert "64 x 128" in run("stats", dataset).stdout


def test_merge(dataset: Path) -> None:
    result = run("merge", dataset, dataset, "--out", dataset.parent / "all", "--json")
    report = json.loads(result.stdout)
    assert (report["read"], report["written"], len(report["skipped"])) == (4, 2, 2)


def test_take_writes_a_part(dataset: Path) -> None:
    out = dataset.parent / "part"
    result = run("take", dataset, "--out", out, "--count", 1, "--largest", "300x400")
    assert result.exit_code == 0
    assert "1 of 2 expressions" in result.stdout
    part = ExpressionDataset(out)
    assert part.ids[0] in ("one", "two")
    assert part.report == {"taken_from": "d", "seed": 0, "largest": "300x400", "min_tokens": 1}
    assert run("take", dataset, "--out", out, "--count", 1, "--largest", "300").exit_code == 2
    assert "only 0 of 2" in run("take", dataset, "--out", out, "--count", 1, "--largest", "9x9").stderr
    assert len(ExpressionDataset(out)) == 1


def test_compose_writes_a_dataset_with_symbol_groups(tmp_path: Path) -> None:
    source = make_dataset(tmp_path / "source", 20)
    result = run("compose", "--data", source, "--out", tmp_path / "new", "--count", 7, "--seed", 3)
    assert result.exit_code == 0
    composed = ExpressionDataset(tmp_path / "new")
    assert len(composed) == 7
    assert composed.report == {"composed_from": ["source"], "seed": 3}
    for expression in composed:
        assert expression.ink is not None
        assert [symbol.label for symbol in expression.ink.symbols] == list(expression.tokens)
        assert expression.symbols_match
    assert [e.tokens for e in composed] != [e.tokens for e in ExpressionDataset(source)][:7]


def test_compose_from_fonts_needs_no_data(tmp_path: Path) -> None:
    result = run("compose", "--fonts", "--out", tmp_path / "new", "--count", 5)
    assert result.exit_code == 0
    composed = ExpressionDataset(tmp_path / "new")
    assert len(composed) == 5
    assert "Hershey" in composed.origins[0].name


def test_names_and_licences_go_from_data_to_data(dataset: Path) -> None:
    ink, named = dataset.parent / "ink", dataset.parent / "named"
    assert not run("prepare", "--ink", ink, "--out", named, "--name", "our inks", "--licence", "CC0-1.0").exit_code
    assert not run("take", named, "--count", 1, "--out", dataset.parent / "part").exit_code
    assert ExpressionDataset(dataset.parent / "part").origins == (Origin("our inks", "CC0-1.0"),)
    source = make_dataset(dataset.parent / "source", 20)
    assert not run("compose", "--data", source, "--out", dataset.parent / "new", "--count", 3).exit_code
    assert ExpressionDataset(dataset.parent / "new").origins == (Origin("expressions composed from source"),)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "either --data or --fonts"),
        (("--fonts", "--data", "a"), "either --data or --fonts"),
        (("--data", "a", "--svg-font", "b"), "--svg-font goes with --fonts"),
    ],
)
def test_compose_takes_its_parts_from_one_place(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    result = run("compose", *arguments, "--out", tmp_path / "d")
    assert result.exit_code == 2
    assert message in result.stderr


def test_compose_does_not_overwrite_what_is_no_dataset(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("")
    result = run("compose", "--data", tmp_path / "none", "--out", tmp_path / "mine")
    assert result.exit_code == 1
    assert "not a dataset" in result.stderr
