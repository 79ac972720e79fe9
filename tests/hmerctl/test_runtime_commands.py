"""recognize, inspect and bench as a user runs them."""

import json
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image, ImageDraw
from typer.testing import CliRunner, Result

from hmerctl.cli import app
from hmerctl.runtime import shipped
from hmerctl.runtime.bench import _in_rounds as in_rounds


def hmerctl(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def ink(tmp_path: Path) -> Path:
    file = tmp_path / "ink.json"
    file.write_text(json.dumps({"strokes": [[[0, 0], [30, 30]], [[30, 0], [0, 30]]]}))
    return file


def test_recognize(shared_tiny: Path, ink: Path) -> None:
    result = hmerctl("recognize", ink, "--bundle", shared_tiny)
    assert result.exit_code == 0
    path, latex, decision = result.stdout.rstrip("\n").split("\t")
    assert (path, latex) == (str(ink), "x^{2}+y")
    assert decision.split()[0] in ("accept", "review", "reject")


def test_recognize_goes_on_after_a_bad_file_and_exits_with_1(shared_tiny: Path, ink: Path, tmp_path: Path) -> None:
    result = hmerctl("recognize", tmp_path / "none.inkml", ink, "--bundle", shared_tiny)
    assert result.exit_code == 1
    assert "none.inkml" in result.stderr and len(result.stderr.splitlines()) == 1
    assert "x^{2}+y" in result.stdout
    result = hmerctl("recognize", tmp_path / "none.inkml", ink, "--bundle", shared_tiny, "--json", "--beam", 3)
    bad, good = json.loads(result.stdout)
    assert "none.inkml" in bad["error"]
    assert good["latex"] == "x^{2}+y" and len(good["alternatives"]) == 2


def test_recognize_draws_one_picture(shared_tiny: Path, ink: Path, tmp_path: Path) -> None:
    picture = tmp_path / "out.png"
    assert hmerctl("recognize", ink, "--bundle", shared_tiny, "--picture", picture).exit_code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    result = hmerctl("recognize", ink, ink, "--bundle", shared_tiny, "--picture", picture)
    assert result.exit_code == 1 and "give one file" in result.stderr


def test_a_picture_that_cannot_be_written_is_refused_before_any_reading(
    shared_tiny: Path, ink: Path, tmp_path: Path
) -> None:
    result = hmerctl("recognize", ink, "--bundle", shared_tiny, "--picture", tmp_path)
    assert result.exit_code == 1 and result.stdout == ""
    assert str(tmp_path) in result.stderr and len(result.stderr.splitlines()) == 1


def test_without_a_shipped_bundle_the_error_says_so(
    ink: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipped, "FOLDER", tmp_path)
    result = hmerctl("recognize", ink)
    assert result.exit_code == 1 and "no bundle for onnx is shipped" in result.stderr


def test_inspect(shared_tiny: Path, tiny: Path) -> None:
    result = hmerctl("inspect", shared_tiny)
    assert result.exit_code == 0 and "tiny-onnx-fp32@" in result.stdout and "encoder.onnx" in result.stdout
    assert json.loads(hmerctl("inspect", shared_tiny, "--json").stdout)["model"]["name"] == "tiny"
    assert "Manifest" in hmerctl("inspect", "--schema").stdout
    (tiny / "step.onnx").unlink()
    result = hmerctl("inspect", tiny)
    assert result.exit_code == 1 and "step.onnx is missing" in result.stderr


def test_bench_report_has_no_row_without_a_parity_report(
    shared_tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hmerctl.runtime import bench

    monkeypatch.setattr(bench, "QUICK", bench.Plan(5, 0, 0, 0))
    unverified, verified = tmp_path / "a.json", tmp_path / "b.json"
    result = hmerctl("bench", shared_tiny, "--quick", "--out", unverified)
    assert result.exit_code == 0 and "query, ms" in result.stdout
    assert "parity report missing" in result.stderr
    value = json.loads(unverified.read_text())
    verified.write_text(json.dumps({**value, "parity": "verified", "parity_levels": {"L2": "passed"}}))
    result = hmerctl("bench", "report", unverified, verified, "--json")
    assert result.exit_code == 1
    assert [row["parity"] for row in json.loads(result.stdout)] == ["verified"]
    assert "a.json: left out, parity report missing" in result.stderr
    result = hmerctl("bench", "report", verified, "--markdown")
    assert result.exit_code == 0 and result.stdout.startswith("| bundle | device |")
    result = hmerctl("bench", "report", verified, "--plot", tmp_path / "plot.png")
    assert result.exit_code == 0 and (tmp_path / "plot.png").exists()


def test_bench_schema_describes_the_reports() -> None:
    result = hmerctl("bench", "schema")
    assert result.exit_code == 0 and json.loads(result.stdout)["title"] == "BenchReport"


def test_bench_json(shared_tiny: Path, ink: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hmerctl.runtime import bench

    monkeypatch.setattr(bench, "QUICK", bench.Plan(5, 0, 0, 0))
    value = json.loads(hmerctl("bench", "run", shared_tiny, "--quick", "--json", "--inks", ink).stdout)
    assert value["queries"] >= 5 and np.isfinite(value["latency"]["p99"])


def test_bench_asks_with_the_pictures_of_a_dataset(
    shared_tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they are, so that finding their ink and drawing it by the bundle's contract is timed."""
    from hmerctl.runtime import bench
    from hmerctl.runtime.files import png
    from hmerctl.train.dataset import Expression, write_dataset

    image = Image.new("L", (120, 80), 255)
    ImageDraw.Draw(image).line([(10, 10), (100, 60)], fill=0, width=5)
    write_dataset(tmp_path / "d", [Expression("a", ("x",), picture=png(image))], {})
    rounds = Mock(wraps=in_rounds)
    monkeypatch.setattr(bench, "QUICK", bench.Plan(5, 0, 0, 0))
    monkeypatch.setattr(bench, "_in_rounds", rounds)
    value = json.loads(hmerctl("bench", "run", shared_tiny, "--quick", "--json", "--data", tmp_path / "d").stdout)
    (((name, sources),),) = (rounds.call_args.args[0].items(),)
    assert (value["inks"], value["order"], name) == (1, "rounds", "short")
    assert isinstance(sources[0], Image.Image) and np.array_equal(np.asarray(sources[0]), np.asarray(image))


@pytest.mark.parametrize(
    ("content", "problem"), [(b"\x89PNG\r\n\x1a\nxx", "not a PNG"), (None, "far more than 64 million")]
)
def test_bench_names_a_picture_that_cannot_be_read(
    content: bytes | None, problem: str, shared_tiny: Path, tmp_path: Path
) -> None:
    file = tmp_path / "odd.png"
    if content is None:
        Image.new("1", (14_000, 14_000), 1).save(file)  # refused by Pillow before its size is asked for
    else:
        file.write_bytes(content)
    result = hmerctl("bench", shared_tiny, "--quick", "--inks", file)
    assert result.exit_code == 1 and len(result.stderr.splitlines()) == 1
    assert "odd.png: " in result.stderr and problem in result.stderr and str(shared_tiny) not in result.stderr


def test_an_empty_dataset_is_told(shared_tiny: Path, tmp_path: Path) -> None:
    from hmerctl.train.dataset import write_dataset

    write_dataset(tmp_path / "none", [], {})
    for command in (("bench", "--quick"), ("eval",)):
        result = hmerctl(*command, shared_tiny, "--data", tmp_path / "none")
        assert result.exit_code == 1 and "none: holds no expressions" in result.stderr
