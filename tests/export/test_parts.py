"""Every part of a recogniser leaves PyTorch: its graph says in onnxruntime what it says in PyTorch, at sizes that it
was not traced with unless the part declares that it serves one bucket only."""

from collections.abc import Mapping

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from hmerctl.export.graphs import Graph, take_apart
from hmerctl.export.onnx import to_onnx
from hmerctl.runtime.manifest import TensorSpec
from hmerctl.runtime.vocabulary import Vocabulary
from hmerctl.train.decoding import zero_state
from hmerctl.train.models.parts import CellMask, build, names
from hmerctl.train.models.recognizer import ModelConfig, Recognizer

FORBIDDEN = {"Loop", "If", "Scan", "NonZero", "ScatterND", "Sin", "Cos", "Range", "CumSum", "RandomUniform"}
CHANNELS, STRIDE = 16, 16
EDGE = {"name": "edge", "stem": 4, "middle": 4, "middle_blocks": 1, "top": 8, "top_blocks": 1, "channels": CHANNELS}
DENSENET = {"name": "densenet", "blocks": [1, 1, 1], "growth": 16, "stem": 16, "bottleneck": 1}
TRANSFORMER = {"name": "transformer", "layers": 2, "heads": 2, "width": 8, "inner": 8}
GRU = {"name": "attention-gru", "width": 10, "embedding": 8, "attention": 6, "coverage": 3, "coverage_kernel": 3}
ATTENTION = {"name": "self-attention", "layers": 2, "heads": 2, "inner": 8, "windows": [[3, 5], [0, 0]]}


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


def session(graph: Graph, sizes: Mapping[str, int] | None = None) -> onnxruntime.InferenceSession:
    """The exported graph, checked for forbidden operators."""
    model = to_onnx(graph, sizes)
    assert not FORBIDDEN & {node.op_type for node in model.graph.node}
    return onnxruntime.InferenceSession(model.SerializeToString())


def picture(height: int, width: int, batch: int) -> dict[str, Tensor]:
    """Noise in a bucket, the first picture smaller than it."""
    size = torch.tensor([[height - 20, width - 37], *[[height, width]] * (batch - 1)], dtype=torch.int32)
    raster = torch.zeros(batch, 1, height, width)
    for i, (h, w) in enumerate(size.tolist()):
        raster[i, :, :h, :w] = torch.rand(1, h, w)
    return {"raster": raster, "size": size}


def same(session: onnxruntime.InferenceSession, inputs: dict[str, Tensor], expected: list[Tensor]) -> None:
    """Outputs equal PyTorch's to 1e-4."""
    known = {value.name for value in session.get_inputs()}
    outputs = session.run(None, {name: tensor.numpy() for name, tensor in inputs.items() if name in known})
    for value, output, wanted in zip(session.get_outputs(), outputs, expected, strict=True):
        assert np.abs(output - wanted.numpy()).max() < 1e-4, value.name


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


@torch.no_grad()
def test_all_positions_are_constants_of_a_dynamic_graph() -> None:
    options: dict[str, dict] = {name: {} for name in names("position")}
    graph = parts_graph("position", options)
    exported = session(graph)
    for height, width, batch in ((64, 128, 1), (96, 320, 3)):
        inputs = picture(height, width, batch)
        same(exported, inputs, list(graph.module(**inputs)))


@torch.no_grad()
def test_all_contexts_at_a_fixed_size() -> None:
    options: dict[str, dict] = {name: {} for name in names("context")}
    options["self-attention"] = {key: value for key, value in ATTENTION.items() if key != "name"}
    graph = parts_graph("context", options)
    exported = session(graph, {"batch": 1, "height": 32, "width": 64})
    inputs = picture(32, 64, 1)
    same(exported, inputs, list(graph.module(**inputs)))
    fixed = {name for name, part in zip(options, graph.module.parts, strict=True) if part.fixed_size}
    assert fixed == {"md-rnn", "md-gru", "md-lstm"}


MODELS = {
    "zhou2023": ModelConfig(DENSENET, {"name": "multi-scale"}, {"name": "bigru"}, GRU),
    "relative": ModelConfig(EDGE, {"name": "relative"}, ATTENTION, TRANSFORMER),
}


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_models_at_sizes_they_were_not_traced_with(name: str) -> None:
    torch.manual_seed(0)
    model = Recognizer(MODELS[name], Vocabulary(("a", "b", "c", "d", "e"))).eval()
    for parameter in model.parameters():
        if not parameter.any():
            nn.init.normal_(parameter)
    encoder, step = map(session, take_apart(model))
    for height, width, batch, beams in ((64, 128, 1, 1), (96, 160, 2, 3)):
        inputs = picture(height, width, batch)
        memory = model.encode(**inputs)
        same(encoder, inputs, list(memory.values()))
        memory = {key: tensor[:1] for key, tensor in memory.items()}
        rows, columns = height // model.encoder.stride, width // model.encoder.stride
        state = zero_state(model.decoder, beams, rows, columns, 16, inputs["raster"])
        state = {key: torch.rand_like(tensor) for key, tensor in state.items()}
        token, position = torch.arange(beams, dtype=torch.int32) + 3, torch.tensor([5], dtype=torch.int32)
        log_probs, following, attention = model.decoder.step(memory, token, position, state)
        expected = [log_probs, attention, *(following[spec.name] for spec in model.decoder.state_spec())]
        same(step, {"token": token, "position": position, **memory, **state}, expected)
