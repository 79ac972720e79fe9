"""The script for a borrowed GPU, on a CPU: packs, trains, goes on, halves its batches, says what it reached."""

import json
import tarfile
from pathlib import Path

import pytest
import torch
from script_files import load_script
from synthetic import TINY, make_dataset

from hmerctl.train.config import load_preset
from hmerctl.train.module import TrainingModule

gpu_run = load_script("gpu_run")


@pytest.fixture(scope="module")
def packed(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    data, valid = make_dataset(folder / "mine", 40), make_dataset(folder / "other", 12, seed=1)
    out = folder / "packed.tar.xz"
    assert gpu_run.main(["pack", "--data", str(data), "--valid", str(valid), "--out", str(out)]) == 0
    return out


def run(packed: Path, out: Path, *more: str) -> int:
    settings = [part for setting in TINY for part in ("--set", setting)]
    return gpu_run.main(["run", str(packed), "--out", str(out), "--preset", "edge", *settings, *more])


def reached(out: Path) -> dict:
    return json.loads((out / "reached.json").read_text())


def test_a_run_says_what_it_reached_and_goes_on(packed, tmp_path, capsys):
    assert run(packed, tmp_path / "gpu", "--max-time", "1s") == 0
    first = reached(tmp_path / "gpu")
    assert first["figures"]["last"]["expressions"] == 12
    assert first["result"]["seconds"] >= 1
    assert first["curve"] and "loss" in {name for row in first["curve"] for name in row}
    assert first["machine"]["drawing_processes"] == 0
    assert json.loads(capsys.readouterr().out)["result"] == first["result"]
    assert gpu_run.main(["run", str(packed), "--out", str(tmp_path / "gpu"), "--max-time", "2s"]) == 0
    second = reached(tmp_path / "gpu")
    assert second["result"]["steps"] > first["result"]["steps"]
    assert len(second["curve"]) > len(first["curve"])
    assert run(packed, tmp_path / "gpu") == 1
    assert "leave out --set" in capsys.readouterr().err


def test_it_halves_its_batches_until_they_fit(packed, tmp_path, monkeypatch, capsys):
    losses = TrainingModule.losses

    def exhaust(self, batch):
        if self.settings.max_batch > 4:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return losses(self, batch)

    monkeypatch.setattr(TrainingModule, "losses", exhaust)
    assert run(packed, tmp_path / "gpu", "--max-time", "1s", "--set", "train.max_batch=16") == 0
    assert reached(tmp_path / "gpu")["preset"]["train"]["max_batch"] == 4
    assert capsys.readouterr().err.count("halved") == 2


def test_data_too_large_to_travel_are_refused(packed, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu_run, "LARGEST", 1000)
    data = make_dataset(tmp_path / "data", 10)
    out = tmp_path / "p.tar.xz"
    assert gpu_run.main(["pack", "--data", str(data), "--valid", str(data), "--out", str(out)]) == 1
    assert "take fewer expressions" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [data]


def test_other_archives_are_refused(tmp_path, capsys):
    (tmp_path / "file").write_text("x")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.add(tmp_path / "file", "../file")
    for name, reason in {"a.tar": "not packed by this script", "file": "cannot be unpacked"}.items():
        assert run(tmp_path / name, tmp_path / "out", "--max-time", "1s") == 1
        assert reason in capsys.readouterr().err
    assert not (tmp_path / "out/data").exists()


def test_the_gpu_preset_is_the_shipped_model_with_other_training():
    small, large = load_preset("edge"), load_preset("edge-gpu")
    assert (large.name, large.model, large.raster) == ("edge", small.model, small.raster)
    assert large.train.max_batch > small.train.max_batch


def test_the_clean_preset_is_the_shipped_model_too():
    small, clean = load_preset("edge"), load_preset("clean")
    assert (clean.model, clean.raster) == (small.model, small.raster)
