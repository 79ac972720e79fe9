"""A run learns, resumes exactly, and several processes share a batch as one would compute it."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from synthetic import TINY, make_dataset

from hmerctl.runtime.errors import ConfigError, StoppedError
from hmerctl.runtime.vocabulary import CROHME
from hmerctl.train.batches import BatchStream
from hmerctl.train.checkpoint import load_checkpoint, read_info
from hmerctl.train.config import load_preset
from hmerctl.train.dataset import ExpressionDataset, Origin, write_dataset
from hmerctl.train.loop import MemoryExceededError, RunOptions, fit, read_run, start
from hmerctl.train.module import TrainingModule, rate_factor
from hmerctl.train.run_data import worker_count


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_dataset(tmp_path_factory.mktemp("data") / "train", 40)


@pytest.fixture(scope="module")
def first(data, tmp_path_factory):
    """A run to start others from."""
    run = tmp_path_factory.mktemp("first") / "run"
    fit(load_preset("edge", TINY), options(data, run, 1))
    return run


def options(data: Path, out: Path, steps: int, **more) -> RunOptions:
    return RunOptions((data,), data, out, max_steps=steps, **more)


def column(run: Path, name: str) -> list[float]:
    """The logged values of one figure, in order."""
    rows = [row.split(",") for row in (run / "logs/part-0/metrics.csv").read_text().splitlines()]
    at = rows[0].index(name)
    return [float(row[at]) for row in rows[1:] if row[at]]


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "last" / "model.safetensors")


def assert_equal(found: Path, expected: Path, atol: float = 1e-6) -> None:
    """Two runs ended with the same weights."""
    ours, theirs = weights(found), weights(expected)
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, rtol=0, atol=atol, msg=name)


def test_a_run_learns_and_leaves_a_checkpoint_that_decodes(data, tmp_path):
    preset = load_preset("edge", [*TINY, "train.augment=false", "train.learning_rate=4e-3", "train.warmup_steps=10"])
    fit(preset, options(data, tmp_path / "run", 100))
    losses = column(tmp_path / "run", "loss")
    assert losses[-1] < 0.8 * losses[0]
    model, info = load_checkpoint(tmp_path / "run/last")
    assert info.training["steps"] == 100
    assert not model.training
    assert len(column(tmp_path / "run", "valid_exprate")) == 1, "validated once, at the end"


@pytest.mark.parametrize("views", ["false", "{x_scale=3.0, y_scale=2.0}"])
def test_a_resumed_run_ends_with_the_weights_of_an_unbroken_one(data, tmp_path, views):
    preset = load_preset("edge", [*TINY, "model.decoder.dropout=0.0", "train.decay=0.0", f"train.views={views}"])
    fit(preset, options(data, tmp_path / "whole", 6))
    fit(preset, options(data, tmp_path / "parts", 3))
    _, resumed = read_run(tmp_path / "parts")
    fit(preset, RunOptions(**{**resumed.__dict__, "max_steps": 6}))
    assert_equal(tmp_path / "parts", tmp_path / "whole")


def test_a_resumed_run_plans_no_epoch_that_it_has_left(data, tmp_path, monkeypatch):
    preset = load_preset("edge", [*TINY, "train.max_batch=8"])
    fit(preset, options(data, tmp_path / "run", 12))
    planned: list[int] = []
    plan = BatchStream.plan

    def watched(self, epoch):
        planned.append(epoch)
        return plan(self, epoch)

    monkeypatch.setattr(BatchStream, "plan", watched)
    fit(preset, options(data, tmp_path / "run", 14, resume=True))
    assert min(planned) > 0


def test_too_large_batches_say_what_to_do(data, tmp_path, monkeypatch):
    def exhaust(self, batch):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(TrainingModule, "losses", exhaust)
    with pytest.raises(MemoryExceededError, match=r"train\.batch_pixels = \d+ .*run\.json, then --resume"):
        fit(load_preset("edge", TINY), options(data, tmp_path / "run", 2))


@pytest.mark.filterwarnings("ignore::UserWarning")  # there is no GPU to pin memory for
def test_drawing_processes_change_nothing_in_a_run(data, tmp_path, monkeypatch):
    preset = load_preset("edge", [*TINY, "model.decoder.dropout=0.0", "train.decay=0.0"])
    fit(preset, options(data, tmp_path / "one", 5))
    monkeypatch.setattr("hmerctl.train.run_data.worker_count", lambda devices: 2)
    fit(preset, options(data, tmp_path / "two", 5))
    assert_equal(tmp_path / "two", tmp_path / "one")


def test_workers_draw_on_all_cores_but_one_where_a_gpu_trains(monkeypatch):
    assert worker_count(1) == 0
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(16)), raising=False)
    assert (worker_count(1), worker_count(4), worker_count(32)) == (15, 3, 1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_a_run_between_two_steps_and_nothing_is_lost(data, tmp_path, monkeypatch, number):
    preset = load_preset("edge", [*TINY, "model.decoder.dropout=0.0", "train.decay=0.0"])
    fit(preset, options(data, tmp_path / "whole", 4))
    before, step = signal.getsignal(number), TrainingModule.training_step

    def interrupted(self, batch, index):
        if self.global_step == 1:
            signal.raise_signal(number)
        return step(self, batch, index)

    monkeypatch.setattr(TrainingModule, "training_step", interrupted)
    with pytest.raises(StoppedError, match="after 2 steps, state saved; --resume"):
        fit(preset, options(data, tmp_path / "parts", 4))
    assert signal.getsignal(number) == before
    assert load_checkpoint(tmp_path / "parts/last")[1].training["steps"] == 2
    chosen, resumed = read_run(tmp_path / "parts")
    fit(chosen, resumed)
    assert_equal(tmp_path / "parts", tmp_path / "whole")


def test_a_checkpoint_says_what_it_was_trained_on_and_under_which_licence(data, tmp_path):
    preset = load_preset("edge", TINY)
    fit(preset, options(data, tmp_path / "unnamed", 1))
    info = read_info(tmp_path / "unnamed/last")
    assert (info.training["data"], info.licence) == (["train"], "CC-BY-NC-SA-3.0")
    rows = list(ExpressionDataset(data))
    write_dataset(tmp_path / "mine", rows, {}, [Origin("my inks", "CC0-1.0")])
    fit(preset, options(tmp_path / "mine", tmp_path / "named", 1))
    info = read_info(tmp_path / "named/last")
    assert (info.training["data"], info.licence) == (["my inks"], "CC0-1.0")
    fit(preset, options(tmp_path / "mine", tmp_path / "after", 1, init=tmp_path / "unnamed/last"))
    assert read_info(tmp_path / "after/last").licence == "CC0-1.0 AND CC-BY-NC-SA-3.0"


def test_two_processes_learn_as_one_on_the_same_global_batches(data, tmp_path):
    """Batch norm is frozen (its statistics are per process) and dropout off; all else must agree."""
    settings = [*TINY, "model.decoder.dropout=0.0", "train.freeze_norm=true", "train.dense_weight=0.0"]
    settings.append("train.log_every=1")
    # Every bucket's batch is eight, which two processes can share: both runs plan the same batches.
    arguments = ["--data", str(data), "--valid", str(data), "--max-steps", "3"]
    for setting in [*settings, "train.batch_pixels=4_000_000", "train.max_batch=8"]:
        arguments += ["--set", setting]
    for devices in (1, 2):
        command = [sys.executable, "-m", "hmerctl", "train", "--out", str(tmp_path / str(devices)), *arguments]
        done = subprocess.run(
            [*command, "--devices", str(devices)], capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
    losses = [column(tmp_path / str(devices), "loss") for devices in (1, 2)]
    assert len(losses[0]) == 3
    assert losses[1] == pytest.approx(losses[0], abs=1e-5)
    assert_equal(tmp_path / "2", tmp_path / "1", atol=1e-5)


def test_a_run_folder_is_not_overwritten(data, tmp_path):
    preset = load_preset("edge", TINY)
    fit(preset, options(data, tmp_path / "run", 1))
    with pytest.raises(ConfigError, match="--resume"):
        fit(preset, options(data, tmp_path / "run", 1))
    with pytest.raises(ConfigError, match="no run to resume"):
        read_run(tmp_path / "other")


def test_a_run_killed_before_its_first_state_begins_anew(data, tmp_path):
    preset = load_preset("edge", TINY)
    fit(preset, options(data, tmp_path / "run", 1))
    (tmp_path / "run/state").rename(tmp_path / "elsewhere")
    chosen, again = read_run(tmp_path / "run")
    assert fit(chosen, again)["steps"] == 1
    # Killed while the state was being replaced: the old one is found.
    (tmp_path / "run/state").rename(tmp_path / "run/.state.0123abcd.old")
    assert fit(chosen, RunOptions(**{**again.__dict__, "max_steps": 2}))["steps"] == 2
    assert not list((tmp_path / "run").glob(".*"))


@pytest.mark.parametrize(
    ("progress", "step", "expected"),
    [(0.0, 0, 0.1), (0.0, 9, 1.0), (0.5, 100, 1.0), (0.75, 100, 0.5), (1.0, 100, 0.0)],
)
def test_the_learning_rate_warms_up_holds_and_falls_over_the_last_half(progress, step, expected):
    assert rate_factor(progress, step, warmup_steps=10, decay=0.5) == pytest.approx(expected)


def changed(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> set[str]:
    """Parts of which two models have different weights under one name."""
    return {n.partition(".")[0] for n in before.keys() & after.keys() if not torch.equal(before[n], after[n])}


def test_frozen_parts_stay_as_the_checkpoint_has_them_and_cost_no_gradient(data, first, tmp_path):
    frozen = load_preset("edge", [*TINY, 'train.frozen=["encoder"]', "model.position.name=learned"])
    start_from = {"init": first / "last", "init_parts": ("encoder",)}
    fit(frozen, options(data, tmp_path / "second", 2, **start_from))
    assert changed(weights(first), weights(tmp_path / "second")) == {"decoder"}
    _, resumed = read_run(tmp_path / "second")
    assert resumed.init_parts == ("encoder",)
    fit(frozen, RunOptions(**{**resumed.__dict__, "max_steps": 3}))
    assert changed(weights(first), weights(tmp_path / "second")) == {"decoder"}
    module = TrainingModule(frozen, CROHME)
    assert module.dense is None and not module.model.encoder.training and module.model.decoder.training
    assert not module.model.features(torch.zeros(1, 1, 64, 64), torch.tensor([[64, 64]]))[0].requires_grad


def test_only_the_named_parts_start_from_a_checkpoint(first):
    given = weights(first)
    module = TrainingModule(load_preset("edge", [*TINY, "train.seed=5"]), CROHME)
    own = {name: value.clone() for name, value in module.model.state_dict().items()}
    start(module, first / "last", ("encoder",))
    taken = module.averaged.state_dict()
    assert changed(given, taken) == {"decoder"} and changed(own, taken) == {"encoder"}
    start(module, first / "last")
    assert changed(given, module.model.state_dict()) == set()


def test_separated_refinement_kernels_start_from_whole_ones():
    whole, separated = (
        TrainingModule(load_preset("edge", [*TINY, f"model.decoder.refinement_rank={rank}"]), CROHME)
        for rank in (0, 3)
    )
    assert any(name.endswith("refinement.spread.weight") for name in whole.model.state_dict())
    assert separated.load_weights(whole.model.state_dict()) == [], "none stays random"


@pytest.mark.parametrize(
    ("settings", "parts", "init", "message"),
    [
        ([], ("head",), True, "'head' is no part of a model; choose from encoder"),
        ([], ("encoder",), False, "give it with --init"),
        (["model.decoder.inner=64"], ("decoder",), True, "its decoder is not that of the preset"),
        (['train.frozen=["encoder"]'], (), False, "encoder would stay random"),
        (['train.frozen=["encoder"]'], ("decoder",), True, "encoder would stay random"),
        (['train.frozen=["encoder", "position", "context", "decoder"]'], (), True, "leaves nothing to train"),
        (['train.frozen=["head"]'], (), True, "'head' is no part of a model"),
        (["train.frozen=encoder"], (), True, r'expected a list, as in \["encoder"\]'),
    ],
)
def test_parts_that_cannot_start_or_stay_are_named(first, settings, parts, init, message):
    with pytest.raises(ConfigError, match=message) as error:
        module = TrainingModule(load_preset("edge", [*TINY, *settings]), CROHME)
        start(module, first / "last" if init else None, parts)
    assert "\n" not in str(error.value)
