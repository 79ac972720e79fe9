"""An ablation trains every model alike, does nothing twice, and its table says what the runs were worth."""

import dataclasses
import json
import re
import time
from pathlib import Path

import pytest
import torch
from costs import FakeCost, cost, learns_positions, linger, refuse
from safetensors.torch import load_file
from synthetic import TINY, make_dataset

from hmerctl.runtime.errors import ConfigError, StoppedError
from hmerctl.train.analysis import ablation
from hmerctl.train.analysis.ablation import Task, measure_grid, run_grid
from hmerctl.train.analysis.grid import Grid, read_grid
from hmerctl.train.analysis.jobs import places, run_apart
from hmerctl.train.analysis.table import HEADERS, PARTS, budget, markdown, plain, rows
from hmerctl.train.models.recognizer import Recognizer


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
        if learns_positions(model):
            raise KeyboardInterrupt
        return cost(model)

    with pytest.raises(ConfigError, match="no finished run to measure"):
        measure_grid(grid, task, cost)
    with pytest.raises(KeyboardInterrupt):
        run_grid(grid, task, stop)
    assert (tmp_path / "out/none/result.json").is_file() and not (tmp_path / "out/learned/result.json").exists()
    with pytest.raises(ConfigError, match="--resume"):
        run_grid(grid, task, cost)
    for asked in tmp_path.glob("out/*/asked.json"):  # as written before there was such a setting
        asked.write_text(re.sub(r'"composed_epochs": 1,', "", asked.read_text()))
    monkeypatch.setattr(ablation, "fit", None)  # both are trained: only the second has still to be scored
    seen = []
    results = run_grid(grid, task, cost, resume=True, done=lambda cell, so_far: seen.append((cell.name, len(so_far))))
    assert seen == [("none", 1), ("learned", 2)]
    assert [r["steps"] for r in results] == [2, 2] and {r["expressions"] for r in results} == {6}
    assert results[1]["cost"]["parameters"] > results[0]["cost"]["parameters"]
    assert all(len(r["right"]) == 6 and sum(r["right"]) == 6 * r["exprate"] for r in results)
    with pytest.raises(ConfigError, match=r"asked.json: this run had another preset, start, budget or data"):
        run_grid(grid, Task((data,), data, tmp_path / "out", max_steps=3, limit=6), cost, resume=True)
    again = measure_grid(grid, task, lambda model: dataclasses.replace(cost(model), step_ms=0.25))
    assert [r["cost"]["step_ms"] for r in again] == [0.25, 0.25]
    assert [r["right"] for r in again] == [r["right"] for r in results]


def test_several_at_a_time_are_as_one_after_the_other_and_failures_are_rows(
    data: Path, grid: Grid, tmp_path: Path
) -> None:
    task = Task((data,), data, tmp_path / "two", max_steps=1, limit=4)
    ended: set[str] = set()
    failed = run_grid(grid, task, refuse, where=[None, None], done=lambda cell, so_far: ended.add(cell.name))
    assert ended == {"none", "learned"}
    assert [r["name"] for r in failed] == ["none", "learned"]
    assert [r["failed"] for r in failed] == ["its process ended with code 9", "ValueError: not to be measured"]
    assert [row[:3] for row in rows(failed)] == [["none", "failed", "-"], ["learned", "failed", "-"]]
    assert markdown("T", [], failed).endswith("- learned failed: ValueError: not to be measured\n")
    # What failed is tried again; here only the scoring is left to do.
    results = run_grid(grid, task, cost, resume=True, where=[None, None])
    alone = run_grid(grid, Task((data,), data, tmp_path / "one", max_steps=1, limit=4), cost)
    assert not list(tmp_path.glob("two/*/failed.json"))
    for one, two in zip(alone, results, strict=True):
        assert {**one, "seconds": 0} == {**two, "seconds": 0}


def test_a_failure_keeps_no_other_run_from_its_turn(data: Path, grid: Grid, tmp_path: Path) -> None:
    def no_learned(model: Recognizer) -> FakeCost:
        if not learns_positions(model):
            raise ConfigError("cannot be exported")
        return cost(model)

    results = run_grid(grid, Task((data,), data, tmp_path / "out", max_steps=1, limit=4), no_learned)
    assert results[0]["failed"] == "cannot be exported" and "exprate" in results[1]
    (first, second) = rows(results)
    assert first[1] == "failed" and second[-1] == "-"


def test_a_run_that_is_told_to_stop_has_not_failed(
    data: Path, grid: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object) -> None:
        raise StoppedError("state saved")

    monkeypatch.setattr(ablation, "fit", stopped)
    with pytest.raises(StoppedError, match="state saved"):
        run_grid(grid, Task((data,), data, tmp_path / "out", max_steps=1), cost)
    assert not list(tmp_path.glob("out/*/failed.json"))


def test_processes_are_told_to_end_when_the_caller_stops(tmp_path: Path) -> None:
    pieces = run_apart(linger, [tmp_path / "quick", tmp_path / "slow"], [None, None])
    assert next(pieces) == (tmp_path / "quick", 1)
    while not (tmp_path / "slow").exists():
        time.sleep(0.05)
    pieces.close()
    assert (tmp_path / "slow").read_text() == "told"


def test_each_gpu_is_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    assert places() == [None] and places(3) == [None, None, None]
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    assert places() == ["0", "1", "2"] and places(2) == ["0", "1"]
    with pytest.raises(ConfigError, match="there are 3 GPUs"):
        places(4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert places() == ["5", "7"]


def test_every_run_starts_from_the_checkpoint_of_the_grid(data: Path, grid: Grid, tmp_path: Path) -> None:
    first = Task((data,), data, tmp_path / "first", max_steps=1, limit=1)
    run_grid(grid, first, cost)
    text = Path(tmp_path / "more.toml")
    settings = [*TINY, "train.augment=false", 'train.frozen=["encoder"]']
    head = f'set = {json.dumps(settings)}\ninit = "first/none/last"\ninit_parts = ["encoder"]\n'
    text.write_text(head + '[[run]]\nname = "a"\nset = ["model.position.name=learned"]\n')
    more = read_grid(str(text))
    run_grid(more, Task((data,), data, tmp_path / "more", max_steps=1, limit=1), cost)
    before, after = (load_file(tmp_path / f"{run}/last/model.safetensors") for run in ("first/none", "more/a"))
    same = {name for name in before if torch.equal(before[name], after[name])}
    assert {name for name in before if name.startswith("encoder.")} <= same
    assert not any(name.startswith("decoder.layers.0.self_qkv") for name in same)
    assert "encoder from the checkpoint last (encoder frozen)" in budget(more, first)
    other = dataclasses.replace(more, init_parts=("decoder",))
    with pytest.raises(ConfigError, match=r"run 'a': train.frozen: encoder would stay random"):
        run_grid(other, Task((data,), data, tmp_path / "other", max_steps=1), cost)
    assert not (tmp_path / "other").exists()


def test_a_model_that_cannot_be_built_is_told_before_any_is_trained(data: Path, tmp_path: Path) -> None:
    (tmp_path / "g.toml").write_text(
        '[[run]]\nname = "good"\n[[run]]\nname = "bad"\nset = ["model.position.name=nowhere"]\n'
    )
    with pytest.raises(ConfigError, match=r"run 'bad': \[model.position\] name = 'nowhere' is unknown"):
        run_grid(read_grid(str(tmp_path / "g.toml")), Task((data,), data, tmp_path / "out", 1), cost)
    assert not (tmp_path / "out").exists()


def result(variant: str, right: list[bool], seed: int = 1) -> dict:
    share = sum(right) / len(right)
    figures = {
        "exprate": share,
        "interval": [0.0, share],
        "within_1": share,
        "within_2": 1.0,
        "stru_rate": 1.0,
        "perplexity": 1.5,
    }
    run = {"variant": variant, "seed": seed, "steps": 10, "seconds": 90.0, "raster": {}, "right": right}
    return {**run, **figures, "cost": FakeCost(1_500_000).__dict__}


def test_the_table_compares_with_the_first_run() -> None:
    ten = [result("a", [True] * 2 + [False] * 8), result("b", [True] * 10)]
    first, second = rows(ten)
    assert dict(zip(HEADERS, first, strict=True)) == {
        "run": "a",
        "ExpRate %": "20.0",
        "95 %": "0.0 to 20.0",
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
        "points over first [95 %] (p; Holm)": "-",
    }
    assert re.fullmatch(r"\+80\.0 \[\+50\.0, \+100\.0\] \(0\.0078; 0\.0078\)", second[-1])
    assert sorted({column for part in PARTS.values() for column in part}) == list(range(len(HEADERS)))
    text = markdown("Title", ["a note"], ten)
    assert text.startswith("# Title\n\n- a note\n\n| run | ExpRate % |") and text.count("\n|") == 4


def test_the_more_comparisons_the_larger_p() -> None:
    results = [result("a", [True] * 2 + [False] * 8), *(result(name, [True] * 10) for name in "bc")]
    assert [row[-1].partition("(")[2] for row in rows(results)] == ["", "0.0078; 0.016)", "0.0078; 0.016)"]
    first, second, _ = plain(results)
    assert "versus" not in first and "right" not in second
    assert second["versus"]["p_holm"] == 2 * second["versus"]["p_mcnemar"] == pytest.approx(4 / 2**8)


def test_several_seeds_are_a_mean_with_its_deviation() -> None:
    both = [result("a", [True, False]), result("a", [True, True], seed=2)]
    (row,) = rows(both)
    assert row[1] == "75.0 ± 35.4" and row[2] == "-" and row[7] == "1.500" and row[-1] == "-"
