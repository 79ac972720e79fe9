"""Training curves from the logs: parts of a resumed run are joined, and what did not count is left out."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hmerctl.cli import app
from hmerctl.runtime.errors import DataError
from hmerctl.train.analysis.curves import read_run, running_mean

HEADER = "epoch,loss,step,valid_bleu4,valid_edit_distance,valid_edit_similarity,valid_exprate,valid_perplexity\n"


def log(run: Path, part: int, losses: dict[int, float], rates: dict[int, float]) -> None:
    folder = run / f"logs/part-{part}"
    folder.mkdir(parents=True)
    rows = [f"0,{loss},{step},,,,,\n" for step, loss in losses.items()]
    rows += [f"0,,{step},0.5,2.5,80.0,{rate},1.9\n" for step, rate in rates.items()]
    (folder / "metrics.csv").write_text(HEADER + "".join(rows))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Stopped after step 60, its last state saved at step 40; the tenth part comes after the second."""
    log(tmp_path / "run", 2, {20: 3.0, 40: 2.0, 60: 9.0}, {40: 10.0, 60: 99.0})
    log(tmp_path / "run", 10, {50: 1.5, 70: 1.0}, {70: 30.0})
    return tmp_path / "run"


def test_parts_are_joined_where_the_run_went_on(run: Path) -> None:
    read = read_run(run)
    assert read.curves["loss"] == [(20, 3.0), (40, 2.0), (50, 1.5), (70, 1.0)]
    assert read.curves["valid_exprate"] == [(40, 10.0), (70, 30.0)]
    assert read.best() == (70, 30.0)


def test_all_figures_of_several_runs_are_drawn(run: Path, tmp_path: Path) -> None:
    log(tmp_path / "other", 0, {20: 5.0}, {})
    command = ["analyze", "curves", str(run), str(tmp_path / "other"), "--out", str(tmp_path / "a.png"), "--json"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    first, second = json.loads(result.stdout)
    assert set(first["curves"]) == {
        "loss",
        "valid_bleu4",
        "valid_edit_distance",
        "valid_edit_similarity",
        "valid_exprate",
        "valid_perplexity",
    }
    assert second == {"name": "other", "curves": {"loss": [[20, 5.0]]}}
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    table = CliRunner().invoke(app, command[:-1]).output
    assert "30.000 (70)" in table and "other" in table


def test_errors_name_the_file(run: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere: no logs/part-\*/metrics.csv here"):
        read_run(tmp_path / "nowhere")
    (run / "logs/part-10/metrics.csv").write_text("step,loss\nx,y\n")
    with pytest.raises(DataError, match=r"part-10/metrics.csv: cannot be read as a training log"):
        read_run(run)
    assert CliRunner().invoke(app, ["analyze", "curves", str(run), "--out", "a.jpg"]).exit_code == 1


def test_a_running_mean_starts_as_the_mean() -> None:
    assert running_mean([1, 3, 5], weight=0.1) == [1, 2, 3]
    assert running_mean([0] * 50 + [1], weight=0.1)[-1] == pytest.approx(0.1)
