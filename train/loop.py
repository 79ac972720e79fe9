"""The training run: data, Lightning's trainer, budget, resume and the checkpoints a run leaves."""

import dataclasses
import json
import logging
import os
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

from hmerctl.runtime.errors import ConfigError, HmerError, StoppedError
from hmerctl.runtime.files import recover_folder, write_text
from hmerctl.runtime.vocabulary import CROHME, Vocabulary
from hmerctl.train.checkpoint import CheckpointInfo, joint_licence, load_checkpoint, read_info, save_checkpoint
from hmerctl.train.config import Preset, preset_from_dict, to_json
from hmerctl.train.dataset import ExpressionDataset
from hmerctl.train.interrupt import Interrupt
from hmerctl.train.models.recognizer import PARTS
from hmerctl.train.module import TrainingModule
from hmerctl.train.progress import BudgetBar
from hmerctl.train.run_data import RunData
from hmerctl.train.tensor_files import TensorFilesIO

STATE, BEST, LAST = "state", "best", "last"
RUN_FILE = "run.json"


class MemoryExceededError(HmerError):
    """A batch did not fit into the GPU's memory."""


@dataclass(frozen=True)
class RunOptions:
    """What is asked of one run.

    Attributes:
        data: dataset folders to train on.
        valid: dataset folder to validate on.
        out: run folder.
        max_seconds, max_steps: budget, whichever ends first; None for no limit.
        resume: go on with the run in ``out``.
        init: checkpoint folder to start from, or None.
        init_parts: parts of the model that start from it, and must fit; none named: all, as far as they fit.
        devices, nodes: processes per machine and machines (DDP when more than one).
        save_seconds: time between saved states.
    """

    data: tuple[Path, ...]
    valid: Path
    out: Path
    max_seconds: float | None = None
    max_steps: int | None = None
    resume: bool = False
    init: Path | None = None
    init_parts: tuple[str, ...] = ()
    devices: int = 1
    nodes: int = 1
    save_seconds: float = 300.0

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as it stands in the run folder."""
        paths = {"data": [str(p) for p in self.data], "valid": str(self.valid), "out": str(self.out)}
        return {**dataclasses.asdict(self), **paths, "init": str(self.init) if self.init else None}


def read_run(out: Path) -> tuple[Preset, RunOptions]:
    """Preset and options of an earlier run, to resume it.

    Raises:
        ConfigError: there is none in ``out``.
    """
    file = out / RUN_FILE
    try:
        table = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: no run to resume here ({error}); start without --resume") from error
    options = dict(table["options"])
    options["data"] = tuple(Path(p) for p in options["data"])
    options["valid"], options["out"] = Path(options["valid"]), out
    options["init"] = Path(options["init"]) if options["init"] else None
    options["init_parts"] = tuple(options.get("init_parts", ()))
    return preset_from_dict(table["preset"], str(file)), RunOptions(**{**options, "resume": True})


class Budget(pl.Callback):
    """Counts training time over all resumed parts of a run, stops at the budget or a signal, and saves on the way."""

    def __init__(self, options: RunOptions, save: Any, interrupt: Interrupt) -> None:
        self.options, self.save, self.interrupt = options, save, interrupt
        self.seconds, self.step, self.samples, self.best = 0.0, 0, 0, -1.0
        self.epoch = (0, 0)
        self.last = self.last_save = time.monotonic()

    def progress(self) -> float:
        """Part of the budget that is used, 0 to 1."""
        o = self.options
        parts = [self.seconds / o.max_seconds] if o.max_seconds else []
        parts += [self.step / o.max_steps] if o.max_steps else []
        return min(max(parts, default=0.0), 1.0)

    def state_dict(self) -> dict[str, Any]:
        """Saved with the training state."""
        counted = {"seconds": self.seconds, "step": self.step, "samples": self.samples, "best": self.best}
        return {**counted, "epoch": list(self.epoch)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on counting from a saved state."""
        self.seconds, self.step = state["seconds"], state["step"]
        self.samples, self.best = state["samples"], state["best"]
        number, first = state.get("epoch", (0, 0))  # older states do not say
        self.epoch = (number, first)

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """The clock runs from the first batch."""
        self.last = self.last_save = time.monotonic()

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count, then stop or save when it is time; all processes decide alike."""
        now = time.monotonic()
        self.seconds += now - self.last
        self.last, self.step = now, trainer.global_step
        self.samples += len(batch.raster) * trainer.world_size
        self.epoch = batch.epoch
        ends = self.interrupt.wanted or self.progress() >= 1.0
        if trainer.strategy.reduce_boolean_decision(ends, all=False):
            if trainer.strategy.reduce_boolean_decision(self.interrupt.wanted, all=False):
                self._save_all(trainer)
                raise StoppedError(
                    f"{self.options.out}: stopped after {self.step} steps, state saved; --resume goes on"
                )
            trainer.should_stop = True  # Lightning validates before it leaves
        elif trainer.strategy.reduce_boolean_decision(now - self.last_save > self.options.save_seconds, all=False):
            self.last_save = now
            self._save_all(trainer)

    def _save_all(self, trainer: pl.Trainer) -> None:
        trainer.save_checkpoint(self.options.out / STATE)
        self.save(LAST)

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Keep the best weights; validation is not training time."""
        rate = trainer.callback_metrics.get("valid_exprate")
        if rate is not None and float(rate) > self.best:
            self.best = float(rate)
            self.save(BEST)
        self.last = time.monotonic()


def fit(preset: Preset, options: RunOptions, vocabulary: Vocabulary = CROHME) -> dict[str, Any]:
    """Train a model.

    Leaves in ``options.out``: ``state`` (to resume), ``last`` and ``best`` (checkpoints of the averaged weights),
    ``run.json`` (what was asked), ``logs`` (CSV) and ``tensorboard``.

    Returns:
        steps, samples, seconds and the best validation figure.

    Raises:
        ConfigError: the run folder is in use, or there is nothing to resume.
        MemoryExceededError: the batches are too large for the GPU.
        StoppedError: by a signal, with the state saved.
    """
    state = options.out / STATE
    for name in (STATE, BEST, LAST):
        recover_folder(options.out / name)
    if options.resume and not (options.out / RUN_FILE).is_file():
        raise ConfigError(f"{options.out}: nothing to resume here; start without --resume")
    # A run that was killed before its first state was saved begins anew.
    goes_on = options.resume and state.is_dir()
    if not options.resume and state.exists():
        raise ConfigError(f"{options.out}: holds a run already; give --resume, or another --out")
    options.out.mkdir(parents=True, exist_ok=True)
    write_text(options.out / RUN_FILE, to_json({"preset": preset.to_dict(), "options": options.to_dict()}))
    # Kernels are compiled per shape; the default cache is smaller than buckets times layers.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "20000")
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=r".*LeafSpec.* is deprecated")  # between Lightning and PyTorch
    # The averaged copy is in evaluation mode on purpose.
    warnings.filterwarnings("ignore", message=r"Found \d+ module\(s\) in eval mode")
    if torch.cuda.is_available():
        torch.set_float32_matmul_precision("high")  # what is not bf16 goes through the TF32 units
    pl.seed_everything(preset.train.seed, verbose=False)

    def save(name: str) -> None:
        if trainer.is_global_zero:
            done = {
                "steps": budget.step,
                "samples": budget.samples,
                "seconds": round(budget.seconds, 1),
                "best_valid_exprate": round(budget.best, 2),
                "data": [origin.name for origin in origins],
                "init": earlier,
                "init_parts": list(options.init_parts),
            }
            weights = module.averaged.state_dict()
            save_checkpoint(options.out / name, weights, CheckpointInfo(preset, vocabulary, done, licence))

    # Where the weights come from is part of what they cost.
    before = read_info(options.init) if options.init else None
    earlier = before.training if before else None
    origins = [origin for path in options.data for origin in ExpressionDataset(path).origins]
    licence = joint_licence([*(origin.licence for origin in origins), *([before.licence] if before else [])])
    interrupt = Interrupt()
    budget = Budget(options, save, interrupt)
    module = TrainingModule(preset, vocabulary, budget.progress)
    if not goes_on:
        start(module, options.init, options.init_parts)
    # Loggers do not append: every resumed part of the run has its own files.
    part = f"part-{len(list(options.out.glob('logs/part-*')))}"
    data = RunData(preset, options.data, options.valid, vocabulary, module.model.encoder.stride, lambda: budget.epoch)
    trainer = pl.Trainer(
        default_root_dir=options.out,
        accelerator="gpu" if torch.cuda.is_available() else "cpu",
        devices=options.devices,
        num_nodes=options.nodes,
        strategy="ddp" if options.devices * options.nodes > 1 else "auto",
        precision="bf16-mixed" if mixed_precision(preset.train.precision) else "32-true",
        max_steps=options.max_steps or -1,
        max_epochs=-1,
        val_check_interval=preset.train.validate_every,
        check_val_every_n_epoch=None,
        gradient_clip_val=preset.train.clip,
        logger=[CSVLogger(options.out, "logs", part), TensorBoardLogger(options.out, "tensorboard", part)],
        log_every_n_steps=preset.train.log_every,
        callbacks=[interrupt, budget, BudgetBar(budget.progress)],
        plugins=[TensorFilesIO()],
        enable_checkpointing=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
    )
    try:
        trainer.fit(module, data, ckpt_path=state if goes_on else None)
    except torch.OutOfMemoryError as error:
        t = preset.train
        raise MemoryExceededError(
            f"{options.out}: out of GPU memory with train.batch_pixels = {t.batch_pixels} and train.max_batch = "
            f"{t.max_batch}; halve both in {options.out / RUN_FILE}, then --resume"
        ) from error
    trainer.save_checkpoint(state)
    save(LAST)
    return {"steps": budget.step, "samples": budget.samples, "seconds": budget.seconds, "best_exprate": budget.best}


def start(module: TrainingModule, init: Path | None, parts: tuple[str, ...] = ()) -> None:
    """Give a new run its first weights.

    Args:
        module: with random weights.
        init: checkpoint to start from, or None.
        parts: as in ``RunOptions.init_parts``.

    Raises:
        ConfigError: no such part, a part that must come from the checkpoint does not fit, or a frozen part would
            stay random.
    """
    for part in parts:
        if part not in PARTS:
            raise ConfigError(f"--init-parts {part!r} is no part of a model; choose from {', '.join(PARTS)}")
    if parts and init is None:
        raise ConfigError("--init-parts says what to take from a checkpoint: give it with --init")
    fresh = list(module.model.state_dict())
    if init is not None:
        source, _ = load_checkpoint(init)
        fresh = module.load_weights(source.state_dict(), parts or PARTS)
    for name in fresh:
        part = name.partition(".")[0]
        if part in parts:
            raise ConfigError(
                f"{init}: its {part} is not that of the preset ({name}); name only parts that are alike"
            )
        if part in module.settings.frozen:
            raise ConfigError(
                f"train.frozen: {part} would stay random ({name}); start it from a checkpoint by --init"
            )


def mixed_precision(wanted: str) -> bool:
    """Whether to compute in bf16: if asked for, or by "auto" where a GPU or the CPU has instructions for it."""
    if wanted != "auto":
        return wanted == "bf16"
    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported()
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
