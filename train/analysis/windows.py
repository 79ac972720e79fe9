"""The window that each layer of a trained self-attention context needs, found on a sample of expressions.

Source: Alastruey et al. 2022 (arXiv 2204.09028), sections 3 and 4; ``hmerctl.train.locality`` has its measures. Every
expression is one map without padding, so that all of its cells count.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from hmerctl.runtime.buckets import Bucket, pad
from hmerctl.runtime.errors import ConfigError, DataError
from hmerctl.train.checkpoint import CheckpointInfo
from hmerctl.train.config import Preset
from hmerctl.train.dataset import ExpressionDataset
from hmerctl.train.locality import (
    Shape,
    axis_profile,
    by_offset,
    chosen_window,
    cumulative_diagonality,
    diagonality_curve,
    needed_by_offset,
    within,
)
from hmerctl.train.models.recognizer import Recognizer
from hmerctl.train.models.self_attention import TILE, SelfAttention, SelfAttentionLayer, contributions

Floats = npt.NDArray[np.float64]

CURVE = np.linspace(0, 1, 51)
"""Shares of both axes at which mean diagonality curves are given."""

FINE_TUNING_RATE = 0.25
"""Learning rate of the preset for fine-tuning, as a share of the rate that the checkpoint was trained with."""

THRESHOLDS = (0.015, 0.005, 0.002, 0.001)
"""For which the report says what windows they would give."""

WHOLE: Shape = (0, 0)
"""The window of a layer that keeps the whole map."""


@dataclass
class LayerLocality:
    """What one layer does with the maps of the sample; one entry for each map in every list.

    Attributes:
        areas: cumulative contribution diagonality.
        curves: diagonality at ``CURVE``.
        offsets: mean contribution by offset, as ``by_offset`` gives it: all that windows are chosen from.
        example: contribution matrix of the first map.
    """

    areas: list[float] = field(default_factory=list)
    curves: list[Floats] = field(default_factory=list)
    offsets: list[Floats] = field(default_factory=list)
    example: Floats | None = None

    def add(self, matrix: Floats, shape: Shape) -> None:
        """Take in the contributions on one map."""
        curve = diagonality_curve(matrix, shape)
        self.areas.append(cumulative_diagonality(matrix, shape))
        self.curves.append(np.interp(CURVE, np.linspace(0, 1, len(curve)), curve))
        self.offsets.append(by_offset(matrix, shape))
        if self.example is None:
            self.example = matrix

    def needed(self, threshold: float) -> list[Shape]:
        """Window of each map by Algorithm 1."""
        return [needed_by_offset(offsets, threshold) for offsets in self.offsets]

    def window(self, threshold: float) -> Shape:
        """The layer's window: mean and standard deviation of what the maps need."""
        return chosen_window(self.needed(threshold))

    def lost(self, window: Shape) -> list[float]:
        """Contribution lost with a window, for each map; 0 rows or columns are all of them."""
        return [
            1.0 - within(offsets, (window[0] or offsets.shape[0], window[1] or offsets.shape[1]))
            for offsets in self.offsets
        ]

    def profile(self, axis: int) -> Floats:
        """Mean of ``axis_profile`` over the maps that are large enough: float64 (n,) from offset 0 on, the larger of
        both directions, which is the one that Algorithm 1 asks for."""
        profiles = [axis_profile(offsets, axis) for offsets in self.offsets]
        longest = max(len(p) // 2 + 1 for p in profiles)
        sides = np.full((len(profiles), longest), np.nan)
        for row, p in zip(sides, profiles, strict=True):
            middle = len(p) // 2
            row[: middle + 1] = np.maximum(p[middle:], p[middle::-1])
        return np.nanmean(sides, 0)

    def mean_offsets(self) -> Floats:
        """Mean contribution by offset over all cells of all maps, (2 rows - 1, 2 columns - 1) of the largest."""
        rows, columns = (max(table.shape[axis] for table in self.offsets) // 2 for axis in (0, 1))
        sums, counts = np.zeros((2, 2 * rows + 1, 2 * columns + 1))
        for table in self.offsets:
            high, wide = table.shape[0] // 2, table.shape[1] // 2
            pairs = np.outer(
                high + 1 - np.abs(np.arange(-high, high + 1)), wide + 1 - np.abs(np.arange(-wide, wide + 1))
            )
            at = slice(rows - high, rows + high + 1), slice(columns - wide, columns + wide + 1)
            sums[at] += table * pairs
            counts[at] += pairs
        return np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0)


@dataclass
class Locality:
    """The analysis of a checkpoint.

    Attributes:
        layers: of the context, first to last.
        shapes: rows and columns of the maps that were looked at.
        skipped: expressions left out because their map has more cells than ``most_cells``.
        threshold: mean contribution above which a diagonal matters.
        most_lost: layers that would lose more than this share keep the whole map.
    """

    layers: list[LayerLocality]
    shapes: list[Shape]
    skipped: int
    threshold: float
    most_lost: float

    @property
    def windows(self) -> list[Shape]:
        """For each layer its window; WHOLE where that loses too much, or looks at no fewer cells than the map has."""
        return [
            window if self.looked_at(window) < 1 and np.mean(layer.lost(window)) <= self.most_lost else WHOLE
            for layer, window in zip(self.layers, self.found(), strict=True)
        ]

    def found(self, threshold: float | None = None) -> list[Shape]:
        """Window of each layer by Algorithm 1, at the threshold of the analysis or another.

        Where it has as many rows as a mean map or more, it is one of all rows (0): that looks at fewer cells.
        """
        high = float(np.mean([rows for rows, _ in self.shapes]))
        windows = [layer.window(self.threshold if threshold is None else threshold) for layer in self.layers]
        return [(0 if rows >= high else rows, columns) for rows, columns in windows]

    def looked_at(self, window: Shape) -> float:
        """Cells that local attention looks at for one cell, as a share of those of a mean map."""
        high, cells = np.mean([(rows, rows * columns) for rows, columns in self.shapes], axis=0).tolist()
        return (window[0] or high) * (TILE + window[1] - 1) / cells

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        cells = [rows * columns for rows, columns in self.shapes]
        return {
            "samples": len(self.shapes),
            "skipped": self.skipped,
            "mean_cells": float(np.mean(cells)),
            "threshold": self.threshold,
            "most_lost": self.most_lost,
            "shares": CURVE.round(4).tolist(),
            "layers": [
                {
                    "layer": number,
                    "needed_mean": np.mean(layer.needed(self.threshold), 0).round(3).tolist(),
                    "needed_std": np.std(layer.needed(self.threshold), 0).round(3).tolist(),
                    "found": list(found),
                    "window": list(window),
                    "lost_mean": float(np.mean(layer.lost(found))),
                    "lost_std": float(np.std(layer.lost(found))),
                    "ccd_mean": float(np.mean(layer.areas)),
                    "ccd_std": float(np.std(layer.areas)),
                    "diagonality": np.mean(layer.curves, 0).round(5).tolist(),
                }
                for number, (layer, found, window) in enumerate(
                    zip(self.layers, self.found(), self.windows, strict=True), 1
                )
            ],
            "thresholds": [
                {
                    "threshold": threshold,
                    "layers": [
                        {
                            "found": list(found),
                            "lost_mean": float(np.mean(layer.lost(found))),
                            "looked_at": self.looked_at(found),
                        }
                        for layer, found in zip(self.layers, self.found(threshold), strict=True)
                    ],
                }
                for threshold in THRESHOLDS
            ],
        }


def analyse(
    model: Recognizer,
    info: CheckpointInfo,
    dataset: ExpressionDataset,
    samples: int = 400,
    threshold: float = 0.015,
    most_lost: float = 0.25,
    most_cells: int = 1500,
) -> Iterator[Locality]:
    """Look at expressions drawn at random (seed 0), one after the other.

    Args:
        model: with a self-attention context that sees the whole map in every layer.
        info: its raster contract.
        dataset: where expressions come from.
        samples: how many; fewer where the dataset has no more.
        threshold, most_lost: see ``Locality``.
        most_cells: larger maps are left out; their matrices have cells^2 entries for every head.

    Yields:
        the analysis after each expression; the same object, the last being all of it.

    Raises:
        ConfigError: the context is another.
        DataError: there is no expression to look at.
    """
    layers = _layers(model)
    found = Locality([LayerLocality() for _ in layers], [], 0, threshold, most_lost)
    stride = model.encoder.stride
    for index in np.random.default_rng(0).permutation(len(dataset)).tolist():
        if len(found.shapes) == samples:
            break
        pixels = dataset[index].drawn(info.raster).pixels
        shape = -(-pixels.shape[0] // stride), -(-pixels.shape[1] // stride)
        if shape[0] * shape[1] > most_cells:
            found.skipped += 1
            continue
        bucket = Bucket(shape[0] * stride, shape[1] * stride)
        for layer, matrix in zip(found.layers, matrices(model, layers, pixels, bucket), strict=True):
            layer.add(matrix, shape)
        found.shapes.append(shape)
        yield found
    if not found.shapes:
        raise DataError(f"no expression with at most {most_cells} cells in the data; raise --most-cells")


def _layers(model: Recognizer) -> list[SelfAttentionLayer]:
    if not isinstance(model.context, SelfAttention):
        name = model.config.context.get("name")
        raise ConfigError(
            f'locality is that of [model.context] name = "self-attention"; this checkpoint has {name!r}'
        )
    layers = [layer for layer in model.context.layers if isinstance(layer, SelfAttentionLayer)]
    if any(layer.window is not None for layer in layers):
        raise ConfigError("this checkpoint has windows already; analyse the one with the whole map in every layer")
    return layers


@torch.no_grad()
def matrices(
    model: Recognizer, layers: Sequence[SelfAttentionLayer], pixels: npt.NDArray[np.uint8], bucket: Bucket
) -> list[Floats]:
    """Contribution matrix of each layer on one picture, float64 (cells, cells)."""
    seen: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def keep(layer: nn.Module, inputs: tuple[Tensor, Tensor]) -> None:
        seen[layer] = inputs

    handles = [layer.register_forward_pre_hook(keep) for layer in layers]
    try:
        model.encode(*map(torch.from_numpy, pad(pixels, bucket)))
    finally:
        for handle in handles:
            handle.remove()
    return [contributions(layer, *seen[layer])[0].double().numpy() for layer in layers]


def local_preset(preset: Preset, windows: Sequence[Shape]) -> Preset:
    """The preset of a checkpoint with windows, and with a lower learning rate, to fine-tune with."""
    context = {**preset.model.context, "windows": [list(window) for window in windows]}
    return dataclasses.replace(
        preset,
        name=f"{preset.name}-local",
        model=dataclasses.replace(preset.model, context=context),
        train=dataclasses.replace(preset.train, learning_rate=preset.train.learning_rate * FINE_TUNING_RATE),
    )
