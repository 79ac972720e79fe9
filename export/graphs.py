"""A recogniser taken apart into the two graphs of a bundle: the encoder, run once, and the decoder step, repeated.

Both are plain modules with positional tensors in and a tuple of tensors out, and come with the names and symbolic
shapes of those tensors; every target converts these and nothing else.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from hmerctl.runtime.errors import ConfigError
from hmerctl.runtime.manifest import TensorSpec
from hmerctl.train.models.recognizer import Recognizer

_DTYPES: dict[torch.dtype, Literal["float32", "int32"]] = {torch.float32: "float32", torch.int32: "int32"}
_TORCH_DTYPES: dict[str, torch.dtype] = {name: dtype for dtype, name in _DTYPES.items()}


class EncoderGraph(nn.Module):
    """(raster, size) -> the memory tensors, in the order of ``Decoder.memory``."""

    def __init__(self, model: Recognizer) -> None:
        super().__init__()
        self.model = model

    def forward(self, raster: Tensor, size: Tensor) -> tuple[Tensor, ...]:
        """See ``Recognizer.encode``."""
        return tuple(self.model.encode(raster, size).values())


class StepGraph(nn.Module):
    """(token, position, memory..., state...) -> (log_probs, attention, next state...)."""

    def __init__(self, model: Recognizer, memory: tuple[str, ...]) -> None:
        super().__init__()
        self.decoder = model.decoder
        self.memory = memory
        self.state = tuple(spec.name for spec in model.decoder.state_spec())

    def forward(self, token: Tensor, position: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        """See ``Decoder.step``."""
        memory = dict(zip(self.memory, tensors, strict=False))
        state = dict(zip(self.state, tensors[len(self.memory) :], strict=True))
        log_probs, following, attention = self.decoder.step(memory, token, position, state)
        return log_probs, attention, *(following[name] for name in self.state)


@dataclass(frozen=True)
class Graph:
    """A module to convert, with what goes in and comes out, in order.

    Attributes:
        role: ``encoder`` or ``step``.
        module: in evaluation mode, on the CPU.
        inputs, outputs: symbolic axes are ``batch``, ``height``, ``width``, ``beam``, ``rows``, ``columns``,
            ``cells``, ``time``; a step always has the memory of one picture, shared by its beams.
        stride: raster pixels per cell.
    """

    role: Literal["encoder", "step"]
    module: nn.Module
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    stride: int

    def example(self, sizes: Mapping[str, int]) -> tuple[Tensor, ...]:
        """Inputs of the right shape for a converter to trace with; ``sizes`` gives every symbolic axis."""
        sizes = complete_sizes(sizes, self.stride)
        tensors = [
            torch.zeros(
                [sizes.get(d, 0) if isinstance(d, str) else d for d in spec.shape], dtype=_TORCH_DTYPES[spec.dtype]
            )
            for spec in self.inputs
        ]
        if self.role == "encoder":
            tensors[1][:] = torch.tensor([sizes["height"], sizes["width"]])
        else:
            tensors[0][:] = 1
            tensors[1][:] = 1
        return tuple(tensors)


def take_apart(model: Recognizer) -> tuple[Graph, Graph]:
    """The encoder graph and the step graph of a model, which is put into evaluation mode.

    Raises:
        ConfigError: the decoder's memory has an axis that is neither constant nor one of the symbols.
    """
    model.eval()
    memory = _memory_specs(model)
    vocabulary = len(model.vocabulary)
    states = model.decoder.state_spec()
    encoder = Graph(
        "encoder",
        EncoderGraph(model).eval(),
        (
            TensorSpec(name="raster", dtype="float32", shape=("batch", 1, "height", "width")),
            TensorSpec(name="size", dtype="int32", shape=("batch", 2)),
        ),
        memory,
        model.encoder.stride,
    )
    shared = tuple(spec.model_copy(update={"shape": (1, *spec.shape[1:])}) for spec in memory)
    step = Graph(
        "step",
        StepGraph(model, tuple(spec.name for spec in memory)).eval(),
        (
            TensorSpec(name="token", dtype="int32", shape=("beam",)),
            TensorSpec(name="position", dtype="int32", shape=(1,)),
            *shared,
            *(TensorSpec(name=s.name, dtype="float32", shape=s.shape) for s in states),
        ),
        (
            TensorSpec(name="log_probs", dtype="float32", shape=("beam", vocabulary)),
            TensorSpec(name="attention", dtype="float32", shape=("beam", "cells")),
            *(
                TensorSpec(
                    name=f"next_{s.name}",
                    dtype="float32",
                    shape=s.shape if s.update == "replace" else tuple(d for d in s.shape if d != "time"),
                )
                for s in states
            ),
        ),
        model.encoder.stride,
    )
    return encoder, step


def complete_sizes(sizes: Mapping[str, int], stride: int) -> dict[str, int]:
    """``sizes`` with the axes that follow from others: rows and columns from height and width, or the other way
    round, and cells from both."""
    full = dict(sizes)
    for pixels, cells in (("height", "rows"), ("width", "columns")):
        if pixels in full:
            full[cells] = full[pixels] // stride
        elif cells in full:
            full[pixels] = full[cells] * stride
    if "rows" in full and "columns" in full:
        full["cells"] = full["rows"] * full["columns"]
    return full


def fixed(specs: tuple[TensorSpec, ...], sizes: Mapping[str, int], stride: int) -> tuple[TensorSpec, ...]:
    """``specs`` with the axes of ``sizes``, and those that follow from them, made constant."""
    full = complete_sizes(sizes, stride)
    return tuple(
        spec.model_copy(update={"shape": tuple(full.get(d, d) if isinstance(d, str) else d for d in spec.shape)})
        for spec in specs
    )


_PROBES = ({"batch": 2, "rows": 4, "columns": 11}, {"batch": 3, "rows": 6, "columns": 7})
"""Two sizes in which every symbol, cells included, differs: an axis is named by the pair of its lengths."""


@torch.no_grad()
def _memory_specs(model: Recognizer) -> tuple[TensorSpec, ...]:
    """Names and symbolic shapes of the memory, found by encoding two blank rasters of different size."""
    probes = [complete_sizes(probe, model.encoder.stride) for probe in _PROBES]
    symbols = {tuple(p[s] for p in probes): s for s in ("batch", "rows", "columns", "cells")}
    first, second = (
        model.encode(
            torch.zeros(p["batch"], 1, p["height"], p["width"]),
            torch.tensor([[p["height"], p["width"]]] * p["batch"], dtype=torch.int32),
        )
        for p in probes
    )
    specs = []
    for name, tensor in first.items():
        lengths = list(zip(tensor.shape, second[name].shape, strict=True))
        shape = tuple(symbols.get(pair, pair[0]) for pair in lengths)
        if any(pair not in symbols and pair[0] != pair[1] for pair in lengths):
            raise ConfigError(f"memory tensor {name} has an axis that is not batch, rows, columns, cells or constant")
        specs.append(TensorSpec(name=name, dtype=_DTYPES[tensor.dtype], shape=shape))
    return tuple(specs)
