"""One PyTorch graph of fixed shapes to one Core ML function, in the precision asked for."""

import contextlib
import logging
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from hmerctl.targets.coreml.lowering import lowering
from hmerctl.targets.coreml.palette import palettise
from hmerctl.targets.coreml.tools import CoreMlError, coremltools, one_line


@dataclass(frozen=True)
class Precision:
    """How a package stores and computes.

    Attributes:
        half: compute in float16, with float16 inputs and outputs where they are large.
        weights: ``full``; ``int8``: linear, symmetric, a scale an output channel; ``palette``: 64 values a weight.
            See ``convert``'s ``memory`` for the exception.
        note: for people.
    """

    half: bool
    weights: Literal["full", "int8", "palette"]
    note: str


PRECISIONS = {
    "fp16": Precision(True, "full", "float16 throughout; sums carried from step to step in float32"),
    "fp32": Precision(False, "full", "float32 throughout; never on the Neural Engine"),
    "int8": Precision(True, "int8", "float16 with 8-bit weights, linear, symmetric, per output channel"),
    "pal6": Precision(True, "palette", "float16 with 6-bit palettes as weights; the encoder's projections in 8 bits"),
}

COMPRESSED = ("conv", "linear", "matmul")
"""Operations whose weights are compressed. Tables (positions, embedding) are not: they are small and their error
would add to every token."""

LEAST_COMPRESSED = 2048
"""Weights of fewer elements stay whole; compressing them saves nothing."""


def convert(
    module: nn.Module,
    inputs: Mapping[str, Tensor],
    outputs: Sequence[str],
    precision: Precision,
    minimum_ios: int,
    wide: frozenset[str] = frozenset(),
    memory: bool = False,
) -> Any:
    """Convert.

    Args:
        module: takes the inputs in order, gives a tensor or a tuple in the order of ``outputs``.
        inputs: example tensors by name; their shapes become the function's, int32 and float32.
        outputs: names.
        precision: see PRECISIONS.
        minimum_ios: 16, 17 or 18.
        wide: inputs and outputs that stay float32 in float16 packages. An addition to a wide input is computed in
            float32 too: a sum of hundreds of terms loses digits in float16.
        memory: whether this is the graph whose results every step reads, the encoder. With palettes its products
            without a kernel, which end in keys and values, then get 8 bits: they lose most (docs/precision.md).

    Returns:
        coremltools' MLModel, not yet saved.

    Raises:
        CoreMlError: coremltools cannot convert the graph; its own words are in the message.
    """
    ct = coremltools()
    half = precision.half

    def kind(name: str, integer: bool = False) -> type:
        if integer:
            return np.int32
        return np.float16 if half and name not in wide else np.float32

    with torch.no_grad(), quiet():
        traced = torch.jit.trace(module.eval(), tuple(inputs.values()), check_trace=False)

    def to_half(op: Any) -> bool:
        return op.op_type != "add" or not any(var.name in wide for var in (op.x, op.y))

    try:
        with quiet(), lowering():
            model = ct.convert(
                traced,
                inputs=[
                    ct.TensorType(name, tuple(x.shape), dtype=kind(name, not x.is_floating_point()))
                    for name, x in inputs.items()
                ],
                outputs=[ct.TensorType(name, dtype=kind(name)) for name in outputs],
                convert_to="mlprogram",
                minimum_deployment_target=getattr(ct.target, f"iOS{minimum_ios}"),
                compute_precision=ct.transform.FP16ComputePrecision(to_half) if half else ct.precision.FLOAT32,
                skip_model_load=True,
            )
            return _compress(model, precision, memory)
    except Exception as error:
        raise CoreMlError(f"coremltools cannot convert {type(module).__name__}: {one_line(error)}") from error


def _compress(model: Any, precision: Precision, memory: bool) -> Any:
    if precision.weights == "full":
        return model
    import coremltools.optimize.coreml as optimize

    eight = optimize.OpLinearQuantizerConfig(mode="linear_symmetric", dtype="int8", weight_threshold=LEAST_COMPRESSED)
    in_eight = optimize.OptimizationConfig(op_type_configs=dict.fromkeys(COMPRESSED, eight))
    if precision.weights == "int8":
        return optimize.linear_quantize_weights(model, in_eight)
    palette = optimize.OpPalettizerConfig(mode="custom", lut_function=palettise, weight_threshold=LEAST_COMPRESSED)
    weights = optimize.get_weights_metadata(model, weight_threshold=LEAST_COMPRESSED) if memory else {}
    left = [name for name, weight in weights.items() if math.prod(weight.val.shape[2:]) == 1]
    config = optimize.OptimizationConfig(
        op_type_configs=dict.fromkeys(COMPRESSED, palette), op_name_configs=dict.fromkeys(left)
    )
    model = optimize.palettize_weights(model, config)
    return optimize.linear_quantize_weights(model, in_eight) if left else model  # palettes stay as they are


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Work without warnings of the tracer, and without coremltools' progress bars, which it draws with tqdm."""
    import tqdm

    logger, level = logging.getLogger("coremltools"), logging.getLogger("coremltools").level
    original = tqdm.tqdm.__init__

    def silent(self: Any, *args: Any, **options: Any) -> None:
        original(self, *args, **{**options, "disable": True})

    logger.setLevel(logging.CRITICAL)  # what fails is raised as well
    tqdm.tqdm.__init__ = silent
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        tqdm.tqdm.__init__ = original
        logger.setLevel(level)
