"""What a model costs at one raster size: parameters, multiply-accumulates, and latency of the exported graphs."""

import time
from dataclasses import dataclass
from statistics import median

import numpy as np
import onnxruntime
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from hmerctl.export.graphs import Graph, take_apart
from hmerctl.export.onnx import to_onnx
from hmerctl.export.session import cpu_session
from hmerctl.runtime.buckets import Bucket
from hmerctl.train.models.recognizer import Recognizer

CACHE_ROWS = 64
"""Length of the decoder's caches in the step that is measured; few labels are longer."""


@dataclass(frozen=True)
class Cost:
    """Figures of one model.

    Attributes:
        parameters: all of the recogniser's.
        height, width: the bucket.
        cache_rows: see ``CACHE_ROWS``.
        encoder_macs, step_macs: multiply-accumulates of matrix products and convolutions, of one picture and of one
            step with one beam; element-wise work is not counted.
        encoder_ms, step_ms: median latency of the ONNX graphs, exported for exactly this size.
        engine: what ran them.
        threads: of the engine.
    """

    parameters: int
    height: int
    width: int
    cache_rows: int
    encoder_macs: int
    step_macs: int
    encoder_ms: float
    step_ms: float
    engine: str
    threads: int


def measure(model: Recognizer, bucket: Bucket, threads: int = 1, seconds: float = 2.0) -> Cost:
    """Export both graphs for one size and measure them.

    Args:
        model: put into evaluation mode.
        bucket: sides in pixels, multiples of the model's stride.
        threads: of onnxruntime.
        seconds: how long to run each graph; at least 10 runs.

    Raises:
        ExportError: a part cannot be exported.
    """
    encoder, step = take_apart(model)
    sizes = {"batch": 1, "height": bucket.height, "width": bucket.width, "beam": 1, "time": CACHE_ROWS}
    latency = [_latency(graph, sizes, threads, seconds) for graph in (encoder, step)]
    return Cost(
        parameters=sum(p.numel() for p in model.parameters()),
        height=bucket.height,
        width=bucket.width,
        cache_rows=CACHE_ROWS,
        encoder_macs=macs(encoder, sizes),
        step_macs=macs(step, sizes),
        encoder_ms=latency[0],
        step_ms=latency[1],
        engine=f"onnxruntime {onnxruntime.__version__} CPU",
        threads=threads,
    )


@torch.no_grad()
def macs(graph: Graph, sizes: dict[str, int]) -> int:
    """Multiply-accumulates of one run: half the operations that ``torch.utils.flop_counter`` counts."""
    # The counter knows matrix products, not the fused attention of CPUs.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        graph.module(*graph.example(sizes))
    return counter.get_total_flops() // 2


def _latency(graph: Graph, sizes: dict[str, int], threads: int, seconds: float) -> float:
    """Median milliseconds of a run."""
    axes = {axis for spec in graph.inputs for axis in spec.shape}
    if graph.role == "step":  # its map is given in cells
        axes |= {"height", "width"}
    session = cpu_session(to_onnx(graph, {axis: length for axis, length in sizes.items() if axis in axes}), threads)
    known = {value.name for value in session.get_inputs()}
    tensors = zip(graph.inputs, graph.example(sizes), strict=True)
    inputs = {spec.name: tensor.numpy() for spec, tensor in tensors if spec.name in known}
    return _time(session, inputs, seconds)


def _time(session: onnxruntime.InferenceSession, inputs: dict[str, np.ndarray], seconds: float) -> float:
    for _ in range(3):
        session.run(None, inputs)
    taken: list[float] = []
    while len(taken) < 10 or sum(taken) < seconds:
        began = time.perf_counter()
        session.run(None, inputs)
        taken.append(time.perf_counter() - began)
    return 1000 * median(taken)


def describe(cost: Cost) -> str:
    """One line on how the figures were measured."""
    return (
        f"MACs and latency: one {cost.height} x {cost.width} raster, one beam, {cost.cache_rows} rows of decoder "
        f"cache; median of {cost.engine}, {cost.threads} thread(s), graphs exported for this size."
    )
