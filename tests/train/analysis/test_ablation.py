"""An ablation trains every model alike, does nothing twice, and its table says what the runs were worth."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from synthetic import TINY, make_dataset

from hmerctl.runtime.errors import ConfigError
from hmerctl.train.analysis import ablation
from hmerctl.train.analysis.ablation import Task, run_grid
from hmerctl.train.analysis.grid import Grid, read_grid
from hmerctl.train.analysis.table import HEADERS, PARTS, markdown, rows
from hmerctl.train.models.recognizer import Recognizer


@dataclass
class FakeCost:
    parameters: int
    encoder_macs: int = 2_000_000
    step_macs: int = 1_000_000
    encoder_ms: float = 3.0
    step_ms: float = 0.5


def cost(model: Recognizer) -> FakeCost:
    return FakeCost(sum(p.numel() for p in model.parameters()))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dataset(tmp_path_factory.mktemp("data") / "train", 12)


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Grid:
    path = tmp_path_factory.mktemp("grid") / "two.toml"
    settings = [*TINY, "train.augment=false", "train.dense_weight=0.0"]
    runs = "".join(f'[[run]]\nname = "{n}"\nset = [\'model.position.name="{n}"\']\n' for n in ("none", "learned"))
    path.write_text(f"set = {json.dumps(settings)}\n{runs}")
    return read_grid(str(path))


def test_finished_runs_are_not_repeated_and_stopped_ones_go_on(
    data: Path, grid: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Task((data,), data, tmp_path / "out", max_steps=2, limit=6)

    def stop(model: Recognizer) -> FakeCost:
        if any("position" in name for name, _ in model.named_parameters()):
            raise KeyboardInterrupt
        return cost(model)

    with pytest.raises(KeyboardInterrupt):
        run_grid(grid, task, stop)
    assert (tmp_path / "out/none/result.json").is_file() and not (tmp_path / "out/learned/result.json").exists()
    with pytest.raises(ConfigError, match="--resume"):
        run_grid(grid, task, cost)
    monkeypatch.setattr(ablation, "fit", None)  # both are trained: only the second has still to be scored
    seen = []
    results = run_grid(grid, task, cost, resume=True, done=lambda cell, so_far: seen.append((cell.name, len(so_far))))
    assert seen == [("none", 1), ("learned", 2)]
    assert [r["steps"] for r in results] == [2, 2] and {r["expressions"] for r in results} == {6}
    assert results[1]["cost"]["parameters"] > results[0]["cost"]["parameters"]
    assert all(len(r["right"]) == 6 and sum(r["right"]) == 6 * r["exprate"] for r in results)
    with pytest.raises(ConfigError, match=r"asked.json: this run had another preset, budget or data"):
        run_grid(grid, Task((data,), data, tmp_path / "out", max_steps=3, limit=6), cost, resume=True)


def test_a_model_that_cannot_be_built_is_told_before_any_is_trained(data: Path, tmp_path: Path) -> None:
    (tmp_path / "g.toml").write_text(
        '[[run]]\nname = "good"\n[[run]]\nname = "bad"\nset = ["model.position.name=nowhere"]\n'
    )
    with pytest.raises(ConfigError, match=r"run 'bad': \[model.position\] name = 'nowhere' is unknown"):
        run_grid(read_grid(str(tmp_path / "g.toml")), Task((data,), data, tmp_path / "out", 1), cost)
    assert not (tmp_path / "out").exists()


def result(variant: str, right: list[bool], seed: int = 1) -> dict:
    share = sum(right) / len(right)
    figures = {"exprate": share, "within_1": share, "within_2": 1.0, "stru_rate": 1.0, "perplexity": 1.5}
    run = {"variant": variant, "seed": seed, "steps": 10, "seconds": 90.0, "raster": {}, "right": right}
    return {**run, **figures, "cost": FakeCost(1_500_000).__dict__}


def test_the_table_compares_with_the_first_run() -> None:
    ten = [result("a", [True] * 2 + [False] * 8), result("b", [True] * 10)]
    first, second = rows(ten)
    assert dict(zip(HEADERS, first, strict=True)) == {
        "run": "a",
        "ExpRate %": "20.0",
        "<=1 %": "20.0",
        "<=2 %": "100.0",
        "structure %": "100.0",
        "perplexity": "1.500",
        "parameters M": "1.500",
        "encoder MMAC": "2.0",
        "step MMAC": "1.00",
        "encoder ms": "3.0",
        "step ms": "0.50",
        "steps": "10",
        "minutes": "1.5",
        "points over first (p)": "-",
    }
    assert second[-1] == "+80.0 (0.0078)"
    assert sorted({column for part in PARTS.values() for column in part}) == list(range(len(HEADERS)))
    text = markdown("Title", ["a note"], ten)
    assert text.startswith("# Title\n\n- a note\n\n| run | ExpRate % |") and text.count("\n|") == 4


def test_several_seeds_are_a_mean_with_its_deviation() -> None:
    both = [result("a", [True, False]), result("a", [True, True], seed=2)]
    (row,) = rows(both)
    assert row[1] == "75.0 ± 35.4" and row[6] == "1.500" and row[-1] == "-"
