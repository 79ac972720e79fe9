"""Batches of fixed shapes, planned ahead: one seed gives the same batches on every machine and after a resume."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hmerctl.runtime.raster import RasterSpec, draw
from hmerctl.runtime.vocabulary import EOS, PAD, SOS
from hmerctl.train.augment import Augmenter, Sample, View, draw_view
from hmerctl.train.compose.composer import Composer, Composition
from hmerctl.train.config import TrainConfig
from hmerctl.train.inks import TrainingInk
from hmerctl.train.models.parts import MAX_STEPS
from hmerctl.train.views import stretch_in_room

# A new shape compiles kernels for a quarter of a second on a CPU: few shapes, little padding.
HEIGHTS = (48, 64, 80, 96, 128, 160, 192, 256)
WIDTHS = (64, 96, 128, 160, 192, 256, 320, 384, 512, 640, 768, 1024, 1280)
LENGTH_STEP = 16


@dataclass(frozen=True)
class PlannedBatch:
    """One batch before it is drawn: bucket (height, width) and the samples' indices into the training set."""

    height: int
    width: int
    indices: tuple[int, ...]


@dataclass
class Batch:
    """Tensors of one batch.

    Attributes:
        raster: uint8 (batch, 1, height, width), ink 255 on 0: a quarter of the memory on the way from the workers.
        size: int32 (batch, 2), height and width without padding.
        inputs, targets: int64 (batch, time): label after sos, label before eos; pad 0.
        dense: int64 (batch, height / stride, width / stride): class of the ink in each cell, 0 for none or
            unknown.
        stretched: bool (batch,): drawn stretched in one direction (see train/views.py).
        tokens_in_batch: number of targets in the whole batch over all devices (the loss is a mean over it).
        epoch: (its number, number of its first batch in the stream), from where a resumed stream can be planned.
    """

    raster: Tensor
    size: Tensor
    inputs: Tensor
    targets: Tensor
    dense: Tensor
    stretched: Tensor
    tokens_in_batch: int
    epoch: tuple[int, int] = (0, 0)

    def pin_memory(self) -> "Batch":
        """A copy in memory that a GPU can fetch from by itself; the loader calls it."""
        return Batch(
            raster=self.raster.pin_memory(),
            size=self.size.pin_memory(),
            inputs=self.inputs.pin_memory(),
            targets=self.targets.pin_memory(),
            dense=self.dense.pin_memory(),
            stretched=self.stretched.pin_memory(),
            tokens_in_batch=self.tokens_in_batch,
            epoch=self.epoch,
        )


def bucket_of(height: float, width: float) -> tuple[int, int]:
    """Smallest training bucket for a raster, or the largest there is."""
    h = next((h for h in HEIGHTS if h >= height), HEIGHTS[-1])
    w = next((w for w in WIDTHS if w >= width), WIDTHS[-1])
    return h, w


def batch_size(height: int, width: int, config: TrainConfig, devices: int) -> int:
    """Expressions in a batch of a bucket: a multiple of ``devices``, by the budget of padded pixels."""
    size = min(config.batch_pixels // (height * width), config.max_batch)
    return max(size // devices, 1) * devices


class BatchStream:
    """The endless stream of training batches of one process.

    Args:
        inks: the training set.
        augmenter: makes samples.
        config: seed, distortions, batch sizes.
        spec: raster contract (pen and margin).
        stride: raster pixels per cell of the dense targets.
        rank, devices: this process and how many share each batch.
        composer: composes the share ``config.composed`` of each epoch; needed if that is above 0.
    """

    def __init__(
        self,
        inks: list[TrainingInk],
        augmenter: Augmenter,
        config: TrainConfig,
        spec: RasterSpec,
        stride: int,
        rank: int = 0,
        devices: int = 1,
        composer: Composer | None = None,
    ) -> None:
        self.inks, self.augmenter, self.config, self.spec, self.stride = inks, augmenter, config, spec, stride
        self.rank, self.devices = rank, devices
        if config.composed and composer is None:
            raise ValueError("a composed share needs a composer")
        self.composer = composer
        # So many that they are the wanted share of an epoch that also has every ink once.
        self.composed = round(len(inks) * config.composed / (1 - config.composed)) if composer else 0
        self._compositions: tuple[int, list[Composition]] = (-1, [])

    def compositions(self, epoch: int) -> list[Composition]:
        """All composed expressions of an epoch: index i of the epoch is composition i - number of inks.

        They are kept until an epoch has others: about half a millisecond each to compose, points not yet computed.
        """
        block = epoch // self.config.composed_epochs
        if self._compositions[0] != block:
            seeds = ((self.config.seed, block, i) for i in range(self.composed))
            self._compositions = (block, [self.composer.compose(seed) for seed in seeds] if self.composer else [])
        return self._compositions[1]

    def view(self, epoch: int, index: int) -> View:
        """The distortion of a real or composed ink in an epoch."""
        view = draw_view(self.augmenter.config, (self.config.seed, epoch, index), self.spec.pen_width)
        if self.config.views is None:
            return view
        room = np.array([WIDTHS[-1], HEIGHTS[-1]], np.float64) - self._border
        extent = view.extent(self._part(epoch, index).size)
        return view.stretch(stretch_in_room(self.config.views, epoch, index, extent, room))

    def plan(self, epoch: int) -> list[PlannedBatch]:
        """All batches of an epoch, in order. Every ink is seen once; a few again to fill last batches.

        Indices from the number of inks on are composed expressions.

        A bucket's samples that do not fill a batch go up to the next larger bucket.
        """
        rng = np.random.default_rng((self.config.seed, epoch))
        waiting: dict[tuple[int, int], list[int]] = {}
        for index in rng.permutation(len(self.inks) + len(self.compositions(epoch))).tolist():
            width, height = self.view(epoch, index).extent(self._part(epoch, index).size) + self._border
            waiting.setdefault(bucket_of(height, width), []).append(index)
        batches: list[PlannedBatch] = []
        buckets = sorted(((h, w) for h in HEIGHTS for w in WIDTHS), key=lambda b: (b[0] * b[1], b))
        for position, (h, w) in enumerate(buckets):
            members = waiting.pop((h, w), [])
            size = batch_size(h, w, self.config, self.devices)
            whole = len(members) - len(members) % size
            batches += [PlannedBatch(h, w, tuple(members[i : i + size])) for i in range(0, whole, size)]
            rest = members[whole:]
            if not rest:
                continue
            larger = next((b for b in buckets[position + 1 :] if b[0] >= h and b[1] >= w), None)
            if larger is not None:
                waiting[larger] = rest + waiting.get(larger, [])
            else:
                fill = rng.integers(len(self.inks), size=size - len(rest)).tolist()
                batches.append(PlannedBatch(h, w, (*rest, *fill)))
        return [batches[i] for i in rng.permutation(len(batches))]

    def batches(self, start: int = 0, stride: int = 1, known: tuple[int, int] = (0, 0)) -> Iterator[Batch]:
        """Batches number start, start + stride, ... of the stream, counted over epochs.

        Args:
            start: number of the first batch.
            stride: so many workers take turns.
            known: an epoch up to ``start`` and the number of its first batch (``Batch.epoch``); those before it are
                not planned. The planning of a long run's epochs takes minutes.
        """
        (epoch, first), wanted = known, start
        while True:
            plan = self.plan(epoch)
            while wanted < first + len(plan):
                batch = self.draw(plan[wanted - first], epoch)
                batch.epoch = (epoch, first)
                yield batch
                wanted += stride
            first += len(plan)
            epoch += 1

    def draw(self, planned: PlannedBatch, epoch: int) -> Batch:
        """Draw this process's part of a planned batch."""
        mine = planned.indices[self.rank :: self.devices]
        samples = [self.augmenter(self.ink(epoch, i), self.view(epoch, i)) for i in mine]
        lengths = [len(self._part(epoch, i).tokens) for i in planned.indices]
        counted = sum(lengths) + len(lengths)
        return collate(samples, planned.height, planned.width, max(lengths), self.spec, self.stride, counted)

    def ink(self, epoch: int, index: int) -> TrainingInk:
        """A real or composed ink by its index in an epoch."""
        if index < len(self.inks):
            return self.inks[index]
        assert self.composer is not None
        return self.composer.ink(self.compositions(epoch)[index - len(self.inks)])

    def _part(self, epoch: int, index: int) -> TrainingInk | Composition:
        """What is known of an ink by its index in an epoch before it is composed."""
        return self.inks[index] if index < len(self.inks) else self.compositions(epoch)[index - len(self.inks)]

    @property
    def _border(self) -> int:
        """Pixels of a raster's width and height beside its ink's extent."""
        return 2 * self.spec.margin + 2


def collate(
    samples: list[Sample], height: int, width: int, longest: int, spec: RasterSpec, stride: int, counted: int
) -> Batch:
    """Draw samples into one bucket; a sample that its distortion made too large is scaled down to fit."""
    time = min(-(-(longest + 1) // LENGTH_STEP) * LENGTH_STEP, MAX_STEPS)
    raster = np.zeros((len(samples), 1, height, width), np.uint8)
    size = np.zeros((len(samples), 2), np.int32)
    inputs = np.full((len(samples), time), PAD, np.int64)
    targets = np.full((len(samples), time), PAD, np.int64)
    dense = np.zeros((len(samples), height // stride, width // stride), np.int64)
    for i, sample in enumerate(samples):
        strokes = fit(sample.strokes, height, width, spec.margin)
        pixels = draw(strokes, sample.pen, spec.margin)
        size[i] = pixels.shape
        raster[i, 0, : size[i, 0], : size[i, 1]] = pixels
        n = len(sample.tokens)
        inputs[i, 0], inputs[i, 1 : n + 1] = SOS, sample.tokens[: time - 1]
        targets[i, :n], targets[i, n] = sample.tokens[:time], EOS
        mark_cells(dense[i], strokes, sample.classes, spec.margin, stride)
    stretched = np.array([sample.stretched for sample in samples])
    return Batch(
        raster=torch.from_numpy(raster),
        size=torch.from_numpy(size),
        inputs=torch.from_numpy(inputs),
        targets=torch.from_numpy(targets),
        dense=torch.from_numpy(dense),
        stretched=torch.from_numpy(stretched),
        tokens_in_batch=counted,
    )


def fit(strokes: list[np.ndarray], height: int, width: int, margin: int) -> list[np.ndarray]:
    """Strokes from the origin on, scaled down where they would not fit a bucket with its margins."""
    lengths = np.cumsum([len(s) for s in strokes])[:-1]
    points = np.concatenate(strokes)
    points = points - points.min(0)
    room = np.array([width, height]) - 2 * margin - 2
    scale = min(1.0, float((room / np.maximum(points.max(0), 1e-6)).min()))
    return np.split(points * scale, lengths)


def mark_cells(cells: np.ndarray, strokes: list[np.ndarray], classes: np.ndarray, margin: int, stride: int) -> None:
    """Write into each cell (rows, columns) the class of the ink that crosses it; the last stroke wins.

    Long segments are sampled every half stride so that a straight bar marks every cell it crosses.
    """
    for stroke, token in zip(strokes, classes.tolist(), strict=True):
        if token:
            steps = np.abs(np.diff(stroke, axis=0)).max(1, initial=0.0) if len(stroke) > 1 else np.zeros(0)
            if len(steps) and steps.max() > stride / 2:
                counts = np.maximum(np.ceil(steps * 2 / stride).astype(int), 1)
                owner = np.repeat(np.arange(len(counts)), counts)
                part = (np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)) / counts[owner]
                between = stroke[owner] + (stroke[owner + 1] - stroke[owner]) * part[:, None]
                stroke = np.concatenate([between, stroke[-1:]])
            column, row = ((stroke + margin) // stride).astype(int).T
            cells[np.minimum(row, len(cells) - 1), np.minimum(column, cells.shape[1] - 1)] = token
