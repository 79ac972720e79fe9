"""Every part of a recogniser leaves PyTorch: its graph says in onnxruntime what it says in PyTorch, at sizes that it
was not traced with unless the part declares that it serves one bucket only."""

import numpy as np
import onnxruntime
import pytest
import torch
from parts import CONTEXT_SIZES, MODELS, PartsGraph, context_options, model_of, picture, traced
from torch import Tensor
from typed import as_a

from hmerctl.train.decoding import zero_state

FORBIDDEN = {"Loop", "If", "Scan", "NonZero", "ScatterND", "Sin", "Cos", "Range", "CumSum", "RandomUniform"}


def session(what: str) -> onnxruntime.InferenceSession:
    """The exported graph, checked for forbidden operators."""
    _, model = traced(what)
    assert not FORBIDDEN & {node.op_type for node in model.graph.node}
    return onnxruntime.InferenceSession(model.SerializeToString())


def same(session: onnxruntime.InferenceSession, inputs: dict[str, Tensor], expected: list[Tensor]) -> None:
    """Outputs equal PyTorch's to 1e-4."""
    known = {value.name for value in session.get_inputs()}
    outputs = session.run(None, {name: tensor.numpy() for name, tensor in inputs.items() if name in known})
    for value, output, wanted in zip(session.get_outputs(), outputs, expected, strict=True):
        assert np.abs(output - wanted.numpy()).max() < 1e-4, value.name


@torch.no_grad()
def test_all_positions_are_constants_of_a_dynamic_graph() -> None:
    graph, exported = traced("positions")[0], session("positions")
    for height, width, batch in ((64, 128, 1), (96, 320, 3)):
        inputs = picture(height, width, batch)
        same(exported, inputs, list(graph.module(**inputs)))


@torch.no_grad()
def test_all_contexts_at_a_fixed_size() -> None:
    graph = traced("contexts")[0]
    inputs = picture(CONTEXT_SIZES["height"], CONTEXT_SIZES["width"], 1)
    same(session("contexts"), inputs, list(graph.module(**inputs)))
    parts = as_a(PartsGraph, graph.module).parts
    fixed = {name for name, part in zip(context_options(), parts, strict=True) if part.fixed_size}
    assert fixed == {"md-rnn", "md-gru", "md-lstm"}


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_models_at_sizes_they_were_not_traced_with(name: str) -> None:
    model = model_of(name)
    encoder, step = session(f"{name}-encoder"), session(f"{name}-step")
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
