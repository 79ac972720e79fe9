"""int8 by static quantisation, weights symmetric and per channel, as Quantize-Dequantize pairs.

The one form that onnxruntime, TensorRT (10 and 11, which dropped calibrators) and LiteRT's converters all read. Two
layouts: what TensorRT fuses, and what onnxruntime fuses, see ``QuantizeOptions``. Ranges are measured on ink with
onnxruntime's calibrators; which layers pay for it is measured too (``layer_losses``), and the worst stay in higher
precision (``leave_worst``).
"""

import contextlib
import io
import logging
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantType
from onnxruntime.quantization.calibrate import TensorsData, create_calibrator
from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

from hmerctl.export.session import cpu_session
from hmerctl.export.storage import channel_axis
from hmerctl.runtime.errors import HmerError
from hmerctl.runtime.snr import snr_db

Feeds = dict[str, np.ndarray]

METHODS = {
    "minmax": CalibrationMethod.MinMax,
    "percentile": CalibrationMethod.Percentile,
    "entropy": CalibrationMethod.Entropy,
}


class QuantizeError(HmerError):
    """A graph cannot be quantised as asked."""


@dataclass(frozen=True)
class QuantizeOptions:
    """How a graph is quantised.

    Attributes:
        method: ``minmax`` takes the whole range seen, ``percentile`` clips, ``entropy`` clips where the distribution
            of the quantised values stays nearest (Kullback-Leibler) to that of the values.
        percentile: share of values kept by ``percentile``, in percent.
        layout: ``products`` puts pairs on the inputs of products only and leaves biases float, symmetric s8s8, as
            TensorRT wants it. ``chain`` also quantises results, biases and what stands between products, which
            onnxruntime fuses; activations are uint8 with zero points, since its fast kernels on x86 are u8s8, and
            weights have 7 bits: CPUs without VNNI add two products in 16 bits, and 2 * 255 * 64 fits.
        exclude: names of nodes left as they are.
    """

    method: Literal["minmax", "percentile", "entropy"] = "percentile"
    percentile: float = 99.999
    layout: Literal["products", "chain"] = "products"
    exclude: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise QuantizeError(f"calibration method {self.method!r} is unknown; choose {', '.join(METHODS)}")
        if not 50 < self.percentile <= 100:
            raise QuantizeError(f"percentile must lie in (50, 100], not {self.percentile}")


@dataclass(frozen=True)
class LayerLoss:
    """What quantising one node alone does.

    Attributes:
        snr: lowest signal-to-noise ratio of the graph's outputs, in dB.
    """

    node: str
    op: str
    snr: float


def quantisable(model: onnx.ModelProto) -> tuple[str, ...]:
    """Names of the products with constant weights, in graph order; products of two activations are left alone."""
    weights = {t.name for t in model.graph.initializer}
    return tuple(n.name for n in model.graph.node if n.op_type in _PRODUCTS and n.input[1] in weights)


def calibrate(model: onnx.ModelProto, feeds: Iterable[Feeds], options: QuantizeOptions) -> TensorsData:
    """Measure the range of every activation that may be quantised.

    Args:
        model: float32, every node named.
        feeds: inputs of real runs; taken one at a time, so that memory does not grow with their number.

    Raises:
        QuantizeError: no feeds.
    """
    # ReduceMax and ReduceMin for min-max; histograms otherwise, over the absolute value where zero points are 0.
    extra: dict[str, object] = {"symmetric": options.layout == "products"}
    extra |= {"percentile": options.percentile} if options.method == "percentile" else {}
    with tempfile.TemporaryDirectory() as folder, _silent():
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        calibrator = create_calibrator(
            path,
            _op_types(options),
            augmented_model_path=str(Path(folder) / "augmented.onnx"),
            calibrate_method=METHODS[options.method],
            extra_options=extra,
        )
        count = 0
        for feed in feeds:
            calibrator.collect_data(_Reader(feed))
            count += 1
        if not count:
            raise QuantizeError("calibration needs at least one ink")
        return calibrator.compute_data()


def quantize(model: onnx.ModelProto, ranges: TensorsData, options: QuantizeOptions) -> onnx.ModelProto:
    """A quantised copy of a float32 graph.

    Args:
        ranges: from ``calibrate``, with the same ``options.method`` and ``options.layout``.

    Raises:
        QuantizeError: ``options.exclude`` names a node that the graph does not have.
    """
    names = {n.name for n in model.graph.node}
    if not options.exclude <= names:
        raise QuantizeError(f"no node is called {', '.join(sorted(options.exclude - names))}")
    return _quantize(model, ranges, options, exclude=sorted(options.exclude | _left_alone(model, options)))


def layer_losses(
    model: onnx.ModelProto, ranges: TensorsData, feeds: Sequence[Feeds], options: QuantizeOptions
) -> list[LayerLoss]:
    """Quantise each product alone and measure what it does to the outputs; worst first."""
    reference = _outputs(model, feeds)
    candidates, losses = quantisable(model), []
    ops = {n.name: n.op_type for n in model.graph.node}
    alone = replace(options, layout="products")
    for node in candidates:
        if node in options.exclude:
            continue
        others = sorted({*candidates, *_left_alone(model, alone)} - {node})
        quantised = _quantize(model, ranges, alone, others)
        losses.append(LayerLoss(node, ops[node], lowest_snr(reference, _outputs(quantised, feeds))))
    return sorted(losses, key=lambda loss: loss.snr)


def leave_worst(
    model: onnx.ModelProto,
    ranges: TensorsData,
    feeds: Sequence[Feeds],
    options: QuantizeOptions,
    target_snr: float,
    at_most: int,
) -> tuple[QuantizeOptions, list[tuple[int, float]]]:
    """Take the worst products out of quantisation, one after the other, until the outputs are good enough.

    Args:
        feeds: other inks than those of the calibration, if the result is to say something about new ink.
        target_snr: wanted ratio, dB.
        at_most: how many products may stay in higher precision.

    Returns:
        The options with the longer ``exclude``, and (products left out, SNR in dB) for every try. Where the target
        is not reached, the best try.
    """
    reference = _outputs(model, feeds)
    snr = lowest_snr(reference, _outputs(quantize(model, ranges, options), feeds))
    tries: list[tuple[int, float]] = [(0, snr)]
    if snr >= target_snr or not at_most:
        return options, tries
    order = [loss.node for loss in layer_losses(model, ranges, feeds, options)]
    for count in range(1, min(at_most, len(order)) + 1):
        chosen = replace(options, exclude=options.exclude | frozenset(order[:count]))
        snr = lowest_snr(reference, _outputs(quantize(model, ranges, chosen), feeds))
        tries.append((count, snr))
        if snr >= target_snr:
            return chosen, tries
    best = max(tries, key=lambda t: t[1])[0]
    return replace(options, exclude=options.exclude | frozenset(order[:best])), tries


@dataclass(frozen=True)
class Care:
    """How much is left in higher precision.

    Attributes:
        target_snr: wanted of the outputs on ink that was not calibrated on, dB.
        at_most: products left at most.
        judges: inks, taken evenly from those given, that judge instead of calibrating.
    """

    target_snr: float = 30.0
    at_most: int = 4
    judges: int = 8


def quantize_with_care(
    model: onnx.ModelProto, feeds: Sequence[Feeds], options: QuantizeOptions, care: Care | None = None
) -> tuple[onnx.ModelProto, frozenset[str]]:
    """Calibrate, find the worst products, leave as many as needed, quantise the rest.

    Args:
        feeds: inputs of real runs; with fewer than 4 all calibrate and all judge.

    Returns:
        The quantised graph and the names of the products left in higher precision.
    """
    care = care or Care()
    every = max(2, -(-len(feeds) // care.judges))
    judging = feeds[::every] if len(feeds) >= 4 else feeds
    calibrating = [f for i, f in enumerate(feeds) if i % every] if len(feeds) >= 4 else feeds
    ranges = calibrate(model, calibrating, options)
    chosen, _ = leave_worst(model, ranges, judging, options, care.target_snr, care.at_most)
    return quantize(model, ranges, chosen), chosen.exclude - options.exclude


def lowest_snr(reference: Sequence[Feeds], other: Sequence[Feeds]) -> float:
    """Signal-to-noise ratio in dB of each output over all runs; the lowest of them. Identical outputs give 200."""
    worst = 200.0
    for name in reference[0]:
        signal = sum(float(np.square(r[name], dtype=np.float64).sum()) for r in reference)
        noise = sum(
            float(np.square(r[name].astype(np.float64) - o[name]).sum())
            for r, o in zip(reference, other, strict=True)
        )
        if signal > 0:
            worst = min(worst, snr_db(signal, noise))
    return worst


_PRODUCTS = ("Conv", "Gemm", "MatMul")
_ELEMENTWISE = ("Relu", "Mul", "Add")
_CARRIERS = ("Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Concat", "Pad", "MaxPool")


def _op_types(options: QuantizeOptions) -> list[str]:
    return [*_PRODUCTS, *(_ELEMENTWISE if options.layout == "chain" else ())]


def _left_alone(model: onnx.ModelProto, options: QuantizeOptions) -> set[str]:
    """Products of two activations; and, in a chain, elementwise nodes that do not stand between two products."""
    candidates = set(quantisable(model))
    alone = {n.name for n in model.graph.node if n.op_type in _PRODUCTS} - candidates
    if options.layout == "chain":
        readers: dict[str, list[onnx.NodeProto]] = {}
        for node in model.graph.node:
            for name in node.input:
                readers.setdefault(name, []).append(node)
        leads: dict[str, bool] = {}
        for node in reversed(model.graph.node):
            following = [r for name in node.output for r in readers.get(name, [])]
            leads[node.name] = any(
                r.name in candidates or (r.op_type in (*_ELEMENTWISE, *_CARRIERS) and leads[r.name])
                for r in following
            )
        alone |= {n.name for n in model.graph.node if n.op_type in _ELEMENTWISE and not leads[n.name]}
    return alone


def _quantize(
    model: onnx.ModelProto, ranges: TensorsData, options: QuantizeOptions, exclude: list[str]
) -> onnx.ModelProto:
    chain = options.layout == "chain"
    inferred = onnx.shape_inference.infer_shapes(model)
    with _silent():
        quantizer = QDQQuantizer(
            inferred,
            per_channel=True,
            reduce_range=False,
            weight_qType=QuantType.QInt8,
            activation_qType=QuantType.QUInt8 if chain else QuantType.QInt8,
            tensors_range=ranges,
            nodes_to_quantize=[],
            nodes_to_exclude=exclude,
            op_types_to_quantize=_op_types(options),
            extra_options={
                "ActivationSymmetric": not chain,
                "WeightSymmetric": True,
                "QuantizeBias": chain,
                "OpTypesToExcludeOutputQuantization": [] if chain else [*_PRODUCTS],
                "QDQKeepRemovableActivations": True,
                "TensorQuantOverrides": _seven_bits(inferred, exclude) if chain else {},
            },
        )
        quantizer.quantize_model()
        quantizer.model.topological_sort()
    result = quantizer.model.model
    if chain:
        _spare(result, {n.name for n in model.graph.node if n.op_type in _op_types(options)} - set(exclude))
    del result.graph.value_info[:]
    result.producer_name = model.producer_name
    onnx.checker.check_model(result)
    return result


def _spare(model: onnx.ModelProto, quantised: set[str]) -> None:
    """Let nodes that compute in float32 read in float32 what was computed so: the quantised mask is for the chain.

    Args:
        model: changed in place.
        quantised: names of the nodes that compute in int8.
    """
    makers = {name: node for node in model.graph.node for name in node.output}
    exact: dict[str, str] = {}
    for node in model.graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in makers:
            pair = makers[node.input[0]]
            maker = makers.get(pair.input[0])
            if pair.op_type == "QuantizeLinear" and (maker is None or maker.name not in quantised):
                exact[node.output[0]] = pair.input[0]
    for node in model.graph.node:
        if node.name not in quantised and node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
            for i, name in enumerate(node.input):
                node.input[i] = exact.get(name, name)


def _seven_bits(model: onnx.ModelProto, exclude: list[str]) -> dict[str, list[dict[str, object]]]:
    """onnxruntime's overrides that give the weights of products 7 bits, per output channel."""
    overrides: dict[str, list[dict[str, object]]] = {}
    products = set(quantisable(model)) - set(exclude)
    ranks = {t.name: len(t.dims) for t in model.graph.initializer}
    for node in model.graph.node:
        if node.name in products:
            axis = channel_axis(node, 1, ranks[node.input[1]])
            seven = {"quant_type": QuantType.QInt8, "symmetric": True, "reduce_range": True, "axis": axis}
            overrides[node.input[1]] = [seven]
    return overrides


class _Reader(CalibrationDataReader):
    """One feed."""

    def __init__(self, feed: Feeds) -> None:
        self._left = [feed]

    def get_next(self) -> Feeds | None:
        return self._left.pop() if self._left else None


def _outputs(model: onnx.ModelProto, feeds: Sequence[Feeds]) -> list[Feeds]:
    """The float outputs, computed without fusions: quantised values are rounded exactly where the graph says."""
    session = cpu_session(model, optimised=False)
    names = [o.name for o in session.get_outputs()]
    return [dict(zip(names, session.run(None, feed), strict=True)) for feed in feeds]


@contextlib.contextmanager
def _silent():
    """onnxruntime's calibrators print; what they say is of no use to the user."""
    root, level = logging.getLogger(), logging.getLogger().level
    root.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        root.setLevel(level)
