"""Graphs of every interchangeable part at small sizes, and their float32 ONNX form, traced once a session."""

import functools

import onnx
import torch
from torch import Tensor, nn

from hmerctl.export.graphs import Graph, take_apart
from hmerctl.export.onnx import to_onnx
from hmerctl.runtime.manifest import TensorSpec
from hmerctl.runtime.vocabulary import Vocabulary
from hmerctl.train.models.parts import CellMask, build, names
from hmerctl.train.models.recognizer import ModelConfig, Recognizer

CHANNELS, STRIDE = 16, 16
EDGE = {"name": "edge", "stem": 4, "middle": 4, "middle_blocks": 1, "top": 8, "top_blocks": 1, "channels": CHANNELS}
DENSENET = {"name": "densenet", "blocks": [1, 1, 1], "growth": 16, "stem": 16, "bottleneck": 1}
TRANSFORMER = {"name": "transformer", "layers": 2, "heads": 2, "width": 8, "inner": 8}
GRU = {"name": "attention-gru", "width": 10, "embedding": 8, "attention": 6, "coverage": 3, "coverage_kernel": 3}
ATTENTION = {"name": "self-attention", "layers": 3, "heads": 2, "inner": 8, "windows": [[3, 5], [0, 5], [0, 0]]}

MODELS = {
    "zhou2023": ModelConfig(DENSENET, {"name": "multi-scale"}, {"name": "bigru"}, GRU),
    "relative": ModelConfig(EDGE, {"name": "relative"}, ATTENTION, TRANSFORMER),
    "relative-gru": ModelConfig(EDGE, {"name": "relative"}, {"name": "none"}, GRU),
    "dense-transformer": ModelConfig(DENSENET, {"name": "learned"}, ATTENTION, {**TRANSFORMER, "refinement": 4}),
}
"""Whole models in which every encoder meets every decoder, and both decoders meet relative positions. Together with
the graphs of all positions and all contexts they are the grid: tests/targets/test_grid.py."""

GRAPHS = ("positions", "contexts", *(f"{name}-{role}" for name in MODELS for role in ("encoder", "step")))


class PartsGraph(nn.Module):
    """A convolution in the encoder's place, then each of some positions or contexts on its map."""

    def __init__(self, parts: list[nn.Module]) -> None:
        super().__init__()
        self.cells, self.mask, self.parts = (
            nn.Conv2d(1, CHANNELS, STRIDE, STRIDE),
            CellMask(STRIDE),
            nn.ModuleList(parts),
        )

    def forward(self, raster: Tensor, size: Tensor) -> tuple[Tensor, ...]:
        """One map for each part."""
        mask = self.mask(size, raster.shape[2] // STRIDE, raster.shape[3] // STRIDE)
        x = self.cells(raster) * mask
        return tuple(part(x, mask) for part in self.parts)


def picture(height: int, width: int, batch: int) -> dict[str, Tensor]:
    """Noise in a bucket, the first picture smaller than it."""
    size = torch.tensor([[height - 20, width - 37], *[[height, width]] * (batch - 1)], dtype=torch.int32)
    raster = torch.zeros(batch, 1, height, width)
    for i, (h, w) in enumerate(size.tolist()):
        raster[i, :, :h, :w] = torch.rand(1, h, w)
    return {"raster": raster, "size": size}


def parts_graph(kind: str, options: dict[str, dict]) -> Graph:
    """A graph of several parts of a kind, with random weights where they start at zero."""
    torch.manual_seed(0)
    parts = [build(kind, {"name": name, **more}, channels=CHANNELS) for name, more in options.items()]
    for parameter in (p for part in parts for p in part.parameters()):
        if not parameter.any():
            nn.init.normal_(parameter)
    outputs = [TensorSpec(name=n, dtype="float32", shape=("batch", CHANNELS, "rows", "columns")) for n in options]
    inputs = (
        TensorSpec(name="raster", dtype="float32", shape=("batch", 1, "height", "width")),
        TensorSpec(name="size", dtype="int32", shape=("batch", 2)),
    )
    return Graph("encoder", PartsGraph(parts).eval(), inputs, tuple(outputs), STRIDE)


def position_options() -> dict[str, dict]:
    """Every position encoding with its defaults."""
    return {name: {} for name in names("position")}


def context_options() -> dict[str, dict]:
    """Every context with its defaults, attention small."""
    options: dict[str, dict] = {name: {} for name in names("context")}
    options["self-attention"] = {key: value for key, value in ATTENTION.items() if key != "name"}
    return options


CONTEXT_SIZES = {"batch": 1, "height": 32, "width": 64}
"""Contexts that scan in two dimensions are unrolled: they serve one size."""


@functools.cache
def model_of(name: str) -> Recognizer:
    """One of ``MODELS``, every weight random."""
    torch.manual_seed(0)
    model = Recognizer(MODELS[name], Vocabulary(("a", "b", "c", "d", "e"))).eval()
    for parameter in model.parameters():
        if not parameter.any():
            nn.init.normal_(parameter)
    return model


@functools.cache
def traced(what: str) -> tuple[Graph, onnx.ModelProto]:
    """One of ``GRAPHS`` and its ONNX form; do not change it."""
    if what == "positions":
        graph = parts_graph("position", position_options())
        return graph, to_onnx(graph)
    if what == "contexts":
        graph = parts_graph("context", context_options())
        return graph, to_onnx(graph, CONTEXT_SIZES)
    name, role = what.rsplit("-", 1)
    graph = next(g for g in take_apart(model_of(name)) if g.role == role)
    return graph, to_onnx(graph)
