"""The training run: data, Lightning's trainer, budget, resume and the checkpoints a run leaves."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.callbacks import RichProgressBar
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from hmerctl.runtime.errors import ConfigError, DataError
from hmerctl.runtime.raster import RasterSpec, rasterise_ink
from hmerctl.runtime.vocabulary import CROHME, Vocabulary
from hmerctl.train.augment import Augmenter
from hmerctl.train.batches import Batch, BatchStream, bucket_of
from hmerctl.train.checkpoint import CheckpointInfo, load_checkpoint, save_checkpoint
from hmerctl.train.config import Preset
from hmerctl.train.dataset import Expression, ExpressionDataset
from hmerctl.train.inks import InkBank, Relabeller, TrainingInk, prepare
from hmerctl.train.models.parts import MAX_STEPS
from hmerctl.train.module import TrainingModule, ValidationBatch
from hmerctl.train.tensor_files import TensorFilesIO

STATE, BEST, LAST = "state", "best", "last"


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
    devices: int = 1
    nodes: int = 1
    save_seconds: float = 300.0


class Budget(pl.Callback):
    """Counts training time over all resumed parts of a run, stops at the budget, and saves on the way."""

    def __init__(self, options: RunOptions, save: Any) -> None:
        self.options, self.save = options, save
        self.seconds, self.step, self.samples = 0.0, 0, 0
        self.last = self.last_save = time.monotonic()

    def progress(self) -> float:
        """Part of the budget that is used, 0 to 1."""
        o = self.options
        parts = [self.seconds / o.max_seconds] if o.max_seconds else []
        parts += [self.step / o.max_steps] if o.max_steps else []
        return min(max(parts, default=0.0), 1.0)

    def state_dict(self) -> dict[str, Any]:
        """Saved with the training state."""
        return {"seconds": self.seconds, "step": self.step, "samples": self.samples}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on counting from a saved state."""
        self.seconds, self.step, self.samples = state["seconds"], state["step"], state["samples"]

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """The clock runs from the first batch."""
        self.last = self.last_save = time.monotonic()

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, *_: Any) -> None:
        """Count, then stop or save when it is time; all processes decide alike."""
        now = time.monotonic()
        self.seconds += now - self.last
        self.last, self.step = now, trainer.global_step
        self.samples += len(_[1].raster) * trainer.world_size
        if trainer.strategy.reduce_boolean_decision(self.progress() >= 1.0, all=False):
            trainer.should_stop = True
        elif trainer.strategy.reduce_boolean_decision(now - self.last_save > self.options.save_seconds, all=False):
            self.last_save = now
            trainer.save_checkpoint(self.options.out / STATE)
            self.save(LAST)

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Keep the best weights; validation is not training time."""
        rate = trainer.callback_metrics.get("valid_exprate")
        if rate is not None and not trainer.sanity_checking:
            self.save(BEST, float(rate))
        self.last = time.monotonic()


class Stream(IterableDataset):
    """The batch stream from the trainer's current step on; workers take turns, so the order stays."""

    def __init__(self, stream: BatchStream, start: int) -> None:
        self.stream, self.start = stream, start

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        skip, stride = (worker.id, worker.num_workers) if worker else (0, 1)
        return self.stream.batches(self.start + skip, stride)


class RunData(pl.LightningDataModule):
    """Training stream and validation batches of a run."""

    def __init__(self, preset: Preset, options: RunOptions, vocabulary: Vocabulary, stride: int) -> None:
        super().__init__()
        self.preset, self.stride = preset, stride
        self.inks = load_inks(options.data, vocabulary, preset.raster)
        self.valid = load_validation(options.valid, vocabulary, preset)

    def train_dataloader(self) -> DataLoader:
        """Lightning's hook; called after a saved state is restored, so the global step says where to go on."""
        assert self.trainer is not None
        bank = InkBank(self.inks)
        augmenter = Augmenter(self.preset.train.augment, bank, Relabeller(CROHME, bank))
        stream = BatchStream(
            self.inks,
            augmenter,
            self.preset.train,
            self.preset.raster,
            self.stride,
            self.trainer.global_rank,
            self.trainer.world_size,
        )
        # On a CPU a worker would take threads from the training itself.
        workers = min(os.cpu_count() or 1, 12) // max(self.trainer.num_devices, 1) if torch.cuda.is_available() else 0
        return DataLoader(
            Stream(stream, self.trainer.global_step),
            batch_size=None,
            num_workers=workers,
            pin_memory=workers > 0,
            prefetch_factor=8 if workers else None,
        )

    def val_dataloader(self) -> DataLoader:
        """Lightning's hook: this process's share of the validation batches."""
        assert self.trainer is not None
        return DataLoader(self.valid[self.trainer.global_rank :: self.trainer.world_size], batch_size=None)  # type: ignore[arg-type]


def load_inks(folders: tuple[Path, ...], vocabulary: Vocabulary, spec: RasterSpec) -> list[TrainingInk]:
    """All inks of the dataset folders, scaled to raster pixels.

    Raises:
        DataError: a folder without inks.
    """
    inks = []
    for folder in folders:
        before = len(inks)
        for expression in ExpressionDataset(folder):
            if expression.ink is not None and expression.ink.strokes and len(expression.tokens) + 2 <= MAX_STEPS:
                inks.append(prepare(expression.ink, expression.tokens, vocabulary, spec))
        if len(inks) == before:
            raise DataError(f"{folder}: no inks to train on; prepare it from InkML with 'hmerctl data prepare --ink'")
    return inks


def load_validation(folder: Path, vocabulary: Vocabulary, preset: Preset) -> list[ValidationBatch]:
    """A fixed random part of a dataset as batches of equal buckets."""
    dataset = ExpressionDataset(folder)
    count = min(preset.train.validate_samples, len(dataset))
    chosen = np.random.default_rng(0).permutation(len(dataset))[:count]
    groups: dict[tuple[int, int], list[tuple[np.ndarray, list[int]]]] = {}
    for index in chosen.tolist():
        expression = dataset[index]
        pixels = pixels_of(expression, preset.raster)
        groups.setdefault(bucket_of(*pixels.shape), []).append((pixels, vocabulary.encode(expression.tokens)))
    batches = []
    for (height, width), members in sorted(groups.items()):
        for start in range(0, len(members), 16):
            part = members[start : start + 16]
            raster = np.zeros((len(part), 1, height, width), np.float32)
            for i, (pixels, _) in enumerate(part):
                raster[i, 0, : pixels.shape[0], : pixels.shape[1]] = pixels / np.float32(255)
            size = np.array([pixels.shape for pixels, _ in part], np.int32)
            labels = [label for _, label in part]
            batches.append(ValidationBatch(torch.from_numpy(raster), torch.from_numpy(size), labels))
    return batches


def pixels_of(expression: Expression, spec: RasterSpec) -> np.ndarray:
    """The normalised picture of an expression, uint8 (height, width)."""
    if expression.raster is not None:
        return expression.raster.pixels
    if expression.ink is None:
        raise DataError(f"{expression.id}: neither ink nor picture in the dataset")
    return rasterise_ink(expression.ink, spec).pixels


def fit(preset: Preset, options: RunOptions, vocabulary: Vocabulary = CROHME) -> dict[str, Any]:
    """Train a model.

    Leaves in ``options.out``: ``state`` (to resume), ``last`` and ``best`` (checkpoints of the averaged weights),
    ``metrics.csv`` and TensorBoard logs.

    Returns:
        steps, samples, seconds and the best validation figure.

    Raises:
        ConfigError: the run folder is in use, or there is nothing to resume.
    """
    state = options.out / STATE
    if options.resume and not state.is_dir():
        raise ConfigError(f"{options.out}: nothing to resume here; start without --resume")
    if not options.resume and state.exists():
        raise ConfigError(f"{options.out}: holds a run already; give --resume, or another --out")
    options.out.mkdir(parents=True, exist_ok=True)
    # Kernels are compiled per shape; the default cache is smaller than buckets times layers.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "20000")
    pl.seed_everything(preset.train.seed, verbose=False)
    best = {"rate": -1.0}

    def save(name: str, rate: float | None = None) -> None:
        if not trainer.is_global_zero or (rate is not None and rate < best["rate"]):
            return
        if rate is not None:
            best["rate"] = rate
        done = {"steps": budget.step, "samples": budget.samples, "seconds": round(budget.seconds, 1)}
        if rate is not None:
            done["valid_exprate"] = round(rate, 2)
        done["data"] = [str(p.name) for p in options.data]
        done["init"] = options.init.name if options.init else None
        save_checkpoint(options.out / name, module.averaged.state_dict(), CheckpointInfo(preset, vocabulary, done))

    budget = Budget(options, save)
    module = TrainingModule(preset, vocabulary, budget.progress)
    if options.init is not None and not options.resume:
        source, _ = load_checkpoint(options.init)
        module.load_weights(source.state_dict())
    data = RunData(preset, options, vocabulary, module.model.encoder.stride)
    trainer = pl.Trainer(
        default_root_dir=options.out,
        accelerator="gpu" if torch.cuda.is_available() else "cpu",
        devices=options.devices,
        num_nodes=options.nodes,
        strategy="ddp" if options.devices * options.nodes > 1 else "auto",
        precision="bf16-mixed" if mixed_precision() else "32-true",
        max_steps=options.max_steps or -1,
        val_check_interval=preset.train.validate_every,
        check_val_every_n_epoch=None,
        gradient_clip_val=preset.train.clip,
        logger=[CSVLogger(options.out, "logs", ""), TensorBoardLogger(options.out, "tensorboard", "")],
        log_every_n_steps=20,
        callbacks=[budget, RichProgressBar(refresh_rate=20)],
        plugins=[TensorFilesIO()],
        enable_checkpointing=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
    )
    trainer.fit(module, data, ckpt_path=state if options.resume else None)
    trainer.save_checkpoint(state)
    trainer.validate(module, data, verbose=False)
    save(LAST)
    return {"steps": budget.step, "samples": budget.samples, "seconds": budget.seconds, "best_exprate": best["rate"]}


def mixed_precision() -> bool:
    """Whether bf16 is faster here: a GPU that has it, or a CPU with bf16 instructions."""
    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported()
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
