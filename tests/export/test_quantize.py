"""int8: pairs around products with weights, ranges from data, the worst layers left out."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from hmerctl.export.evaluate16 import Evaluator
from hmerctl.export.precision import HalfPolicy, precision_of, to_half
from hmerctl.export.quantize import (
    METHODS,
    Care,
    QuantizeError,
    QuantizeOptions,
    calibrate,
    layer_losses,
    leave_worst,
    lowest_snr,
    quantisable,
    quantize,
    quantize_with_care,
)

ENCODER = """
<ir_version: 8, opset_import: ["" : 17]>
encoder (float[1,1,8,width] raster) => (float[1,6,8,width] keys)
{
  stem = Conv <pads = [1,1,1,1]> (raster, stem_weight, stem_bias)
  stem_on = Relu (stem)
  inner = Conv <pads = [1,1,1,1]> (stem_on, inner_weight, inner_bias)
  joined = Add (raster, inner)
  on = Relu (joined)
  by_pixel = Transpose <perm = [0, 2, 3, 1]> (on)
  mixed = MatMul (by_pixel, mix_weight)
  by_pixel_turned = Transpose <perm = [0, 1, 3, 2]> (by_pixel)
  square = MatMul (mixed, by_pixel_turned)
  attended = MatMul (square, by_pixel)
  keys = Transpose <perm = [0, 3, 1, 2]> (attended)
}
"""


def encoder(outlier: float = 1.0) -> onnx.ModelProto:
    """A small network; ``outlier`` blows up one input channel of the second convolution, and with it the range."""
    model = onnx.parser.parse_model(ENCODER)
    rng = np.random.default_rng(0)
    stem = rng.standard_normal((6, 1, 3, 3), dtype=np.float32)
    inner = rng.standard_normal((6, 6, 3, 3), dtype=np.float32) * 0.2
    stem[0] *= outlier
    inner[:, 0] /= outlier
    weights = {
        "stem_weight": stem,
        "stem_bias": rng.standard_normal(6, dtype=np.float32),
        "inner_weight": inner,
        "inner_bias": rng.standard_normal(6, dtype=np.float32),
        "mix_weight": rng.standard_normal((6, 6), dtype=np.float32) * 0.1,
    }
    model.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in weights.items())
    for node in model.graph.node:
        node.name = node.output[0]
    return model


def pictures(count: int, seed: int = 0) -> list[dict[str, np.ndarray]]:
    """Thin ink on nothing."""
    rng = np.random.default_rng(seed)
    return [{"raster": (rng.random((1, 1, 8, 20)) > 0.85).astype(np.float32)} for _ in range(count)]


def results(model: onnx.ModelProto, feeds: list[dict[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
    evaluator = Evaluator(model)
    return [evaluator.run(feed) for feed in feeds]


def pairs(model: onnx.ModelProto) -> set[str]:
    """Tensors that pass a QuantizeLinear."""
    return {n.input[0] for n in model.graph.node if n.op_type == "QuantizeLinear"}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_a_graph_near_the_original(method: Any) -> None:
    options = QuantizeOptions(method=method)
    ranges = calibrate(encoder(), pictures(8), options)
    quantised = quantize(encoder(), ranges, options)
    test = pictures(4, seed=9)
    assert lowest_snr(results(encoder(), test), results(quantised, test)) > 25


def test_layout_products_quantises_inputs_of_products_with_weights_only() -> None:
    options = QuantizeOptions(method="minmax")
    quantised = quantize(encoder(), calibrate(encoder(), pictures(4), options), options)
    assert quantisable(encoder()) == ("stem", "inner", "mixed")
    assert pairs(quantised) == {"raster", "stem_on", "by_pixel"}
    biases = [n.input[2] for n in quantised.graph.node if n.op_type == "Conv"]
    assert biases == ["stem_bias", "inner_bias"]


def test_layout_chain_also_quantises_results_and_biases_up_to_the_last_product() -> None:
    options = QuantizeOptions(method="minmax", layout="chain")
    quantised = quantize(encoder(), calibrate(encoder(), pictures(4), options), options)
    assert {"raster", "stem", "stem_on", "inner", "joined", "on", "mixed"} <= pairs(quantised)
    assert "attended" not in pairs(quantised) and "square" not in pairs(quantised)


def zero_points(layout: Any) -> dict[str, np.ndarray]:
    """Zero points of the quantised encoder, without those of biases."""
    options = QuantizeOptions(method="minmax", layout=layout)
    quantised = quantize(encoder(), calibrate(encoder(), pictures(4), options), options)
    points = [t for t in quantised.graph.initializer if "zero_point" in t.name and t.data_type != TensorProto.INT32]
    return {t.name: numpy_helper.to_array(t) for t in points}


def test_in_products_zero_points_are_zero_and_everything_is_int8() -> None:
    points = zero_points("products")
    assert points and all(p.dtype == np.int8 and not p.any() for p in points.values())


def test_in_a_chain_activations_are_uint8_and_what_is_never_negative_begins_at_zero() -> None:
    points = zero_points("chain")
    assert {name for name, p in points.items() if p.dtype == np.int8} == {
        "stem_weight_zero_point",
        "inner_weight_zero_point",
        "mix_weight_zero_point",
    }
    assert points["on_zero_point"] == 0 and 0 < points["inner_zero_point"] < 255


def test_what_a_chain_does_not_compute_it_does_not_round() -> None:
    """A mask is quantised for the products that it multiplies; a float output made of the mask keeps the mask."""
    model = encoder()
    model.graph.node.extend(
        [
            helper.make_node("Sign", ["raster"], ["mask"], "mask"),
            helper.make_node("Mul", ["on", "mask"], ["masked"], "masked"),
            helper.make_node("Conv", ["masked", "inner_weight"], ["last"], "last", pads=[1, 1, 1, 1]),
            helper.make_node("Neg", ["mask"], ["outside"], "outside"),
        ]
    )
    model.graph.output.extend(helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("last", "outside"))
    options = QuantizeOptions(method="minmax", layout="chain")
    quantised = quantize(model, calibrate(model, pictures(4), options), options)
    assert "mask" in pairs(quantised)
    reads = {n.name: list(n.input) for n in quantised.graph.node}
    assert reads["outside"] == ["mask"] and reads["masked"][1] != "mask"


def test_two_products_of_a_chain_fit_into_16_bits() -> None:
    # Else vpmaddubsw, which CPUs without VNNI use, saturates: 2 * 255 * code must stay below 2 ** 15.
    options = QuantizeOptions(layout="chain")
    quantised = quantize(encoder(), calibrate(encoder(), pictures(4), options), options)
    codes = [numpy_helper.to_array(t) for t in quantised.graph.initializer if t.name.endswith("weight_quantized")]
    assert len(codes) == 3
    assert {int(np.abs(code.astype(int)).max()) for code in codes} == {64} and 2 * 255 * 64 < 2**15


def test_weights_have_a_scale_per_output_channel() -> None:
    options = QuantizeOptions()
    quantised = quantize(encoder(), calibrate(encoder(), pictures(4), options), options)
    scales = {t.name: numpy_helper.to_array(t).shape for t in quantised.graph.initializer if t.name.endswith("scale")}
    assert scales["stem_weight_scale"] == (6,) and scales["mix_weight_scale"] == (6,)
    assert scales["raster_scale"] == ()


def test_clipping_a_rare_large_value_is_the_percentiles_doing() -> None:
    feeds = pictures(4)
    feeds[0]["raster"][0, 0, 0, 0] = 50.0

    def scale(options: QuantizeOptions) -> float:
        quantised = quantize(encoder(), calibrate(encoder(), feeds, options), options)
        return float(next(numpy_helper.to_array(t) for t in quantised.graph.initializer if t.name == "raster_scale"))

    assert scale(QuantizeOptions(method="minmax")) == pytest.approx(50 / 127.5, rel=0.01)
    assert scale(QuantizeOptions(percentile=99.0)) < 2 / 127


def test_calibration_takes_feeds_one_at_a_time() -> None:
    taken: list[int] = []

    def feeds() -> Iterator[dict[str, np.ndarray]]:
        for feed in pictures(3):
            taken.append(len(taken))
            yield feed

    options = QuantizeOptions(method="minmax")
    lazily = calibrate(encoder(), feeds(), options)
    assert taken == [0, 1, 2]
    together = calibrate(encoder(), pictures(3), options)
    assert np.array_equal(lazily["stem_on"].range_value, together["stem_on"].range_value)


def test_the_layer_with_an_outlier_is_the_worst_and_is_left_out() -> None:
    model, options = encoder(outlier=60.0), QuantizeOptions(method="minmax")
    ranges = calibrate(model, pictures(8), options)
    test = pictures(4, seed=5)
    losses = layer_losses(model, ranges, test, options)
    assert losses[0].node == "inner" and losses[0].snr < losses[-1].snr - 5
    chosen, tries = leave_worst(model, ranges, test, options, target_snr=losses[0].snr + 5, at_most=2)
    assert "inner" in chosen.exclude and tries[0][0] == 0
    assert tries[-1][1] > tries[0][1] + 5
    quantised = quantize(model, ranges, chosen)
    assert "inner_weight" in {t.name for t in quantised.graph.initializer}


def test_leave_worst_stops_at_its_limit_with_the_best_try() -> None:
    model, options = encoder(outlier=60.0), QuantizeOptions(method="minmax")
    ranges = calibrate(model, pictures(4), options)
    chosen, tries = leave_worst(model, ranges, pictures(2, seed=5), options, target_snr=500.0, at_most=1)
    assert [count for count, _ in tries] == [0, 1] and chosen.exclude == {"inner"}


def test_with_care_the_judges_are_not_calibrated_on() -> None:
    feeds = pictures(12)
    feeds[0]["raster"][0, 0, 0, 0] = 50.0  # every third ink judges: were it calibrated on, the range would be huge
    quantised, left = quantize_with_care(encoder(), feeds, QuantizeOptions(method="minmax"), Care(-99.0, 1, 4))
    scales = {
        t.name: float(numpy_helper.to_array(t)) for t in quantised.graph.initializer if t.name == "raster_scale"
    }
    assert scales["raster_scale"] < 0.1 and left == frozenset()
    _, left = quantize_with_care(encoder(60.0), pictures(12), QuantizeOptions(method="minmax"), Care(500.0, 1, 4))
    assert left == {"inner"}


def test_int8_with_float16_around_it() -> None:
    """Quantised products stay float32, so that nothing stands between them and their pairs; the rest is float16."""
    options = QuantizeOptions(method="minmax", exclude=frozenset({"mixed"}))
    quantised = quantize(encoder(), calibrate(encoder(), pictures(4), options), options)
    both = to_half(quantised, HalfPolicy(frozenset({"keys"})))
    kinds = precision_of(both)
    assert kinds["stem"] == kinds["inner"] == "int8" and kinds["mixed"] == kinds["square"] == "float16"
    test = pictures(2, seed=3)
    assert lowest_snr(results(quantised, test), results(both, test)) > 50


def test_errors() -> None:
    with pytest.raises(QuantizeError, match="at least one"):
        calibrate(encoder(), [], QuantizeOptions())
    with pytest.raises(QuantizeError, match="unknown"):
        QuantizeOptions(method="guess")  # type: ignore[arg-type]
    with pytest.raises(QuantizeError, match="percentile"):
        QuantizeOptions(percentile=20)
    options = QuantizeOptions(exclude=frozenset({"nowhere"}))
    with pytest.raises(QuantizeError, match="nowhere"):
        quantize(encoder(), calibrate(encoder(), pictures(1), options), options)


def test_lowest_snr_is_the_worst_outputs() -> None:
    a = [{"x": np.array([1.0, 0.0]), "y": np.array([2.0])}]
    b = [{"x": np.array([1.0, 0.1]), "y": np.array([2.0])}]
    assert lowest_snr(a, b) == pytest.approx(20)
    assert lowest_snr(a, a) == 200
