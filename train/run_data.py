"""Data of a training run: the stream of training batches and the fixed batches for validation."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import lightning.pytorch as pl
import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from hmerctl.runtime.buckets import Bucket, pad_all
from hmerctl.runtime.device import available_cores
from hmerctl.runtime.errors import DataError
from hmerctl.runtime.raster import RasterSpec
from hmerctl.runtime.vocabulary import Vocabulary
from hmerctl.train.augment import Augmenter
from hmerctl.train.batches import Batch, BatchStream, bucket_of
from hmerctl.train.compose.composer import learned_composer
from hmerctl.train.config import Preset
from hmerctl.train.dataset import ExpressionDataset
from hmerctl.train.inks import InkBank, Relabeller, TrainingInk, prepare
from hmerctl.train.models.parts import MAX_STEPS
from hmerctl.train.models.recognizer import Recognizer
from hmerctl.train.validation import Read, ValidationBatch, read_batch


class Stream(IterableDataset):
    """The batch stream from the trainer's current step on; workers take turns, so the order stays."""

    def __init__(self, stream: BatchStream, start: int, known: tuple[int, int] = (0, 0)) -> None:
        self.stream, self.start, self.known = stream, start, known

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        skip, stride = (worker.id, worker.num_workers) if worker else (0, 1)
        return self.stream.batches(self.start + skip, stride, self.known)


class RunData(pl.LightningDataModule):
    """Training stream and validation batches of a run.

    Args:
        preset, data, valid, vocabulary: of the run.
        stride: raster pixels per cell of the encoder.
        epoch: tells the epoch that the run is in, as ``Batch.epoch``.
    """

    def __init__(
        self,
        preset: Preset,
        data: tuple[Path, ...],
        valid: Path,
        vocabulary: Vocabulary,
        stride: int,
        epoch: Callable[[], tuple[int, int]] = lambda: (0, 0),
    ) -> None:
        super().__init__()
        self.preset, self.vocabulary, self.stride, self.epoch = preset, vocabulary, stride, epoch
        self.inks = load_inks(data, vocabulary, preset.raster)
        self.valid = load_validation(valid, vocabulary, preset)

    def train_dataloader(self) -> DataLoader:
        """Lightning's hook; called after a saved state is restored, so the global step says where to go on."""
        assert self.trainer is not None
        bank = InkBank(self.inks)
        augmenter = Augmenter(self.preset.train.augment, bank, Relabeller(self.vocabulary, bank))
        composed = self.preset.train.composed > 0
        composer = learned_composer(self.inks, bank, self.vocabulary, self.preset.raster) if composed else None
        stream = BatchStream(
            self.inks,
            augmenter,
            self.preset.train,
            self.preset.raster,
            self.stride,
            self.trainer.global_rank,
            self.trainer.world_size,
            composer,
        )
        workers = worker_count(self.trainer.num_devices)
        return DataLoader(
            Stream(stream, self.trainer.global_step, self.epoch()),
            batch_size=None,
            num_workers=workers,
            pin_memory=workers > 0,
            prefetch_factor=4 if workers else None,
        )

    def val_dataloader(self) -> DataLoader:
        """Lightning's hook: this process's share of the validation batches."""
        assert self.trainer is not None
        return DataLoader(self.valid[self.trainer.global_rank :: self.trainer.world_size], batch_size=None)  # type: ignore[arg-type]


def worker_count(devices: int) -> int:
    """Processes that draw for each of so many devices: all cores but one where GPUs train.

    On a CPU there are none: they would take threads from the training itself.
    """
    if not torch.cuda.is_available():
        return 0
    return max((available_cores() - 1) // max(devices, 1), 1)


def load_inks(folders: tuple[Path, ...], vocabulary: Vocabulary, spec: RasterSpec) -> list[TrainingInk]:
    """All inks of the dataset folders, scaled to raster pixels.

    Raises:
        DataError: a folder without inks.
    """
    inks: list[TrainingInk] = []
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
        pixels = expression.drawn(preset.raster).pixels
        groups.setdefault(bucket_of(*pixels.shape), []).append((pixels, vocabulary.encode(expression.tokens)))
    batches = []
    for (height, width), members in sorted(groups.items()):
        for start in range(0, len(members), 16):
            part = members[start : start + 16]
            raster, size = map(torch.from_numpy, pad_all([pixels for pixels, _ in part], Bucket(height, width)))
            batches.append(ValidationBatch(raster, size, [label for _, label in part]))
    return batches


def read_all(model: Recognizer, folder: Path, preset: Preset, limit: int | None = None) -> list[Read]:
    """What a model reads in a dataset by greedy decoding, in batches, on a GPU where there is one.

    Args:
        model: in evaluation mode; it is on the CPU afterwards.
        preset: of the raster contract.
        limit: read so many expressions only, the same random ones for every model; None for all.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train = replace(preset.train, validate_samples=limit or sys.maxsize)
    read: list[Read] = []
    model.to(device)
    for batch in load_validation(folder, model.vocabulary, replace(preset, train=train)):
        batch.raster, batch.size = batch.raster.to(device), batch.size.to(device)
        read += read_batch(model, batch)
    model.cpu()
    return read
