"""Every interchangeable part in float16: read by the operator tables and TensorRT-RTX, computed by the evaluator."""

import numpy as np
import onnx
import onnxruntime
import pytest
from parts import CONTEXT_SIZES, GRAPHS, STRIDE, model_of, traced

from hmerctl.export.evaluate16 import Evaluator
from hmerctl.export.graphs import complete_sizes
from hmerctl.export.precision import HalfPolicy, half_interface, to_half
from hmerctl.export.quantize import lowest_snr
from hmerctl.runtime.buckets import Bucket
from hmerctl.runtime.engines.tensorrt_build import Profile
from hmerctl.targets.jetson import rtx
from hmerctl.targets.jetson.jetpacks import operator_faults
from hmerctl.targets.jetson.profiles import make_profiles

BUCKETS = (Bucket(64, 128), Bucket(96, 256))


def policy(what: str) -> HalfPolicy:
    """What the target makes float16 of the interface."""
    graph, _ = traced(what)
    if what in ("positions", "contexts"):
        return HalfPolicy(frozenset(spec.name for spec in graph.outputs))
    name = what.rsplit("-", 1)[0]
    encoder, _ = traced(f"{name}-encoder")
    return HalfPolicy(half_interface([o.name for o in encoder.outputs], model_of(name).decoder.state_spec()))


def profiles(what: str) -> tuple[Profile, ...]:
    """The target's ranged profiles; one size for what serves one size."""
    graph, _ = traced(what)
    buckets = [Bucket(CONTEXT_SIZES["height"], CONTEXT_SIZES["width"])] if what == "contexts" else BUCKETS
    both = make_profiles(graph.inputs, graph.inputs, buckets, graph.stride, 24)
    return both.ranged.step if graph.role == "step" else both.ranged.encoder


def values(what: str, model: onnx.ModelProto) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The same inputs as the float32 and as the float16 graph take them."""
    rng, stride = np.random.default_rng(0), traced(what)[0].stride
    sizes = {"batch": 1, "height": 64, "width": 128, "beam": 3, "time": 24}
    sizes = complete_sizes(CONTEXT_SIZES if what == "contexts" else sizes, stride)
    single, half = {}, {}
    for value in model.graph.input:
        shape = [d.dim_value or sizes[d.dim_param] for d in value.type.tensor_type.shape.dim]
        if value.name == "size":
            array = np.array([[sizes["height"] - 9, sizes["width"] - STRIDE - 3]], np.int32)
        elif value.name in ("token", "position"):
            array = np.full(shape, 2, np.int32)
        elif value.name == "memory_mask":
            array = np.zeros(shape, np.float32)
            array[..., -1] = -1e4
        else:
            array = rng.random(shape).astype(np.float16).astype(np.float32)
        is_half = value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16
        single[value.name], half[value.name] = array, array.astype(np.float16) if is_half else array
    return single, half


@pytest.mark.parametrize("what", GRAPHS)
def test_every_part_is_taken_in_float16(what: str) -> None:
    _, model = traced(what)
    half = to_half(model, policy(what))
    assert list(operator_faults(model)) == [] and list(operator_faults(half)) == []
    single_feed, half_feed = values(what, half)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    names = [output.name for output in session.get_outputs()]
    expected = dict(zip(names, session.run(None, single_feed), strict=True))
    exact = Evaluator(model).run(single_feed)
    assert all(np.abs(exact[name] - expected[name]).max() < 1e-5 for name in names)
    evaluator = Evaluator(half)
    got = evaluator.run(half_feed)
    assert evaluator.overflows == []
    for name in names:
        assert lowest_snr([{name: expected[name]}], [{name: got[name]}]) > 45, name


@pytest.mark.skipif(rtx.load_rtx() is None, reason=f"TensorRT-RTX is not installed: {rtx.HOW}")
@pytest.mark.parametrize("what", GRAPHS)
def test_tensorrt_rtx_builds_every_part(what: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("parts") / f"{what}.onnx"
    onnx.save(to_half(traced(what)[1], policy(what)), path)
    finding = rtx.check_with_rtx(what, path, profiles(what))
    assert finding.status == "stand-in", finding.detail
