"""The TensorRT engine and builder on fakes that are strict about call order, types and shapes, and really compute."""

import gc
from pathlib import Path

import numpy as np
import onnx
import pytest
from fake_tensorrt import FakeCuda, FakeTensorRT, with_profiles
from onnx import helper

from hmerctl.runtime.bundle import Bundle, open_bundle
from hmerctl.runtime.engines import tensorrt_build
from hmerctl.runtime.engines.cuda import Cuda
from hmerctl.runtime.engines.onnx import OnnxEngine
from hmerctl.runtime.engines.tensorrt import DeviceMemory, TensorRTEngine
from hmerctl.runtime.engines.tensorrt_build import build_engines, build_plan, cache_key, read_profiles
from hmerctl.runtime.errors import BundleError, EngineError

MASK_BYTES = 8 * 16 * 4
"""Of ``memory_mask`` for a raster of 64 x 128."""


@pytest.fixture(scope="module")
def jetson_bundle(shared_tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The tiny bundle with profiles for TensorRT."""
    return with_profiles(shared_tiny, tmp_path_factory.mktemp("jetson") / "tiny-jetson-trt-fp32.hmer")


class Device:
    """A fake device with the engines of a bundle."""

    def __init__(self, bundle: Bundle, cache: Path, version: str = "10.3.0", which: str = "ranged") -> None:
        self.api = FakeCuda()
        self.trt = FakeTensorRT(self.api, version)
        self.bundle, self.cache = bundle, cache
        build_engines(bundle, which, cache, self.trt, Cuda(self.api))  # type: ignore[arg-type]

    def engine(self) -> TensorRTEngine:
        return TensorRTEngine(self.bundle, cache=self.cache, trt=self.trt, cuda=Cuda(self.api))


@pytest.fixture(params=["10.3.0", "11.4.1"])
def device(request: pytest.FixtureRequest, jetson_bundle: Bundle, tmp_path: Path) -> Device:
    return Device(jetson_bundle, tmp_path, request.param)


def inputs(height: int = 64, width: int = 128, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    raster = np.random.default_rng(seed).random((1, 1, height, width), np.float32)
    return raster, np.array([[height - 3, width - 5]], np.int32)


def test_encoder_gives_what_onnxruntime_gives(device: Device) -> None:
    engine, reference = device.engine(), OnnxEngine(device.bundle)
    for height, width in ((64, 128), (256, 1280), (96, 384), (64, 128)):
        memory = engine.encode(*inputs(height, width))
        for name, value in reference.encode(*inputs(height, width)).items():
            np.testing.assert_allclose(memory[name], value, atol=1e-6)
            assert memory[name].dtype == value.dtype


@pytest.mark.parametrize("beams", [1, 3, 8])
def test_steps_give_what_onnxruntime_gives(device: Device, beams: int) -> None:
    """Beams appear, die and cross; the state follows its hypothesis."""
    engine, reference = device.engine(), OnnxEngine(device.bundle)
    mine = engine.start(engine.encode(*inputs()), beams)
    right = reference.start(reference.encode(*inputs()), beams)
    generator = np.random.default_rng(3)
    count, tokens, parents = 1, np.array([1], np.int32), None
    for _ in range(30):
        for a, b in zip(mine.step(tokens, parents), right.step(tokens, parents), strict=True):
            assert a.shape == b.shape and a.dtype == np.float32
            np.testing.assert_allclose(a, b, atol=1e-5)
        parents = generator.integers(0, count, generator.integers(1, beams + 1))
        if generator.random() < 0.3:
            parents = np.arange(count)
        count = len(parents)
        tokens = generator.integers(3, 11, count).astype(np.int32)


def test_a_step_is_one_graph_launch_and_one_wait(device: Device) -> None:
    session = device.engine().start(device.engine().encode(*inputs()), 2)
    launches, waits = device.api.launches, device.api.synchronisations
    for _ in range(5):
        session.step(np.array([4, 5], np.int32))
    assert device.api.launches - launches == 5 and device.api.synchronisations - waits == 5


def test_cross_attention_memory_moves_once_per_picture_and_never_per_step(device: Device) -> None:
    engine = device.engine()
    memory = engine.encode(*inputs())
    assert isinstance(memory, DeviceMemory)
    device.api.copies.clear()
    session = engine.start(memory, 1)
    to_host = [size for kind, size, _ in device.api.copies if kind == 2]
    assert to_host == [], "the memory took a way over the host"
    moved = [target for kind, size, target in device.api.copies if kind == 3 and size >= MASK_BYTES]
    assert len(moved) == 2  # ink and memory_mask
    device.api.copies.clear()
    for token in (1, 3, 4):
        session.step(np.array([token], np.int32))
    assert not {target for _, _, target in device.api.copies} & set(moved)
    up = sum(size for kind, size, _ in device.api.copies if kind == 1)
    assert up == 3 * 8  # token and position


def test_buffers_and_graph_are_used_again_for_the_next_picture(device: Device) -> None:
    engine = device.engine()
    session = engine.start(engine.encode(*inputs()), 2)
    first = [session.step(np.array([1], np.int32))[0].copy() for _ in range(3)]
    graphs, held = device.api.graphs, len(device.api.memory)
    del session
    gc.collect()
    session = engine.start(engine.encode(*inputs()), 2)
    assert device.api.graphs == graphs == 1
    again = [session.step(np.array([1], np.int32))[0].copy() for _ in range(3)]
    np.testing.assert_array_equal(first, again)  # the state begins at zero again
    gc.collect()
    assert len(device.api.memory) <= held


def test_sessions_do_not_disturb_each_other(device: Device) -> None:
    engine = device.engine()
    first = engine.start(engine.encode(*inputs(seed=1)), 1)
    second = engine.start(engine.encode(*inputs(seed=2)), 1)
    one, two = np.array([1], np.int32), np.array([5], np.int32)
    first.step(one)
    second.step(two)
    second.step(two)
    alone = engine.start(engine.encode(*inputs(seed=1)), 1)
    alone.step(one)
    np.testing.assert_array_equal(first.step(two)[1].copy(), alone.step(two)[1])


def test_memory_from_elsewhere_is_uploaded(device: Device) -> None:
    """The parity ladder may feed the step with another engine's memory."""
    engine, reference = device.engine(), OnnxEngine(device.bundle)
    memory = reference.encode(*inputs())
    token = np.array([1], np.int32)
    np.testing.assert_allclose(
        engine.start(memory, 1).step(token)[0], reference.start(memory, 1).step(token)[0], atol=1e-6
    )


def test_where_a_graph_cannot_be_captured_the_step_is_queued_piece_by_piece(
    jetson_bundle: Bundle, tmp_path: Path
) -> None:
    device = Device(jetson_bundle, tmp_path)
    device.trt.capturable = False
    engine, reference = device.engine(), OnnxEngine(jetson_bundle)
    mine, right = (e.start(e.encode(*inputs()), 1) for e in (engine, reference))
    for token in (1, 4, 4):
        tokens = np.array([token], np.int32)
        np.testing.assert_allclose(mine.step(tokens)[0], right.step(tokens)[0], atol=1e-5)
    assert device.api.launches == 0


def test_exact_profiles_round_the_number_of_beams_up(jetson_bundle: Bundle, tmp_path: Path) -> None:
    device = Device(jetson_bundle, tmp_path, which="exact")
    engine, reference = device.engine(), OnnxEngine(jetson_bundle)
    mine, right = (e.start(e.encode(*inputs(96, 192)), 3) for e in (engine, reference))
    tokens = np.array([3, 4, 5], np.int32)
    np.testing.assert_allclose(mine.step(tokens)[0], right.step(tokens)[0], atol=1e-5)
    with pytest.raises(EngineError, match="9 beams"):
        engine.start(engine.encode(*inputs()), 9)


def test_too_many_steps_or_tokens_are_refused(device: Device) -> None:
    engine = device.engine()
    session = engine.start(engine.encode(*inputs()), 1)
    with pytest.raises(EngineError, match="beyond"):
        session.step(np.array([1, 2], np.int32))
    for _ in range(100):
        session.step(np.array([1], np.int32))
    with pytest.raises(EngineError, match="step 100"):
        session.step(np.array([1], np.int32))


def test_it_says_what_runs(device: Device) -> None:
    assert device.engine().name == f"TensorRT {device.trt.__version__} sm87"


def test_all_device_memory_is_given_back(jetson_bundle: Bundle, tmp_path: Path) -> None:
    device = Device(jetson_bundle, tmp_path)
    engine = device.engine()
    session = engine.start(engine.encode(*inputs()), 2)
    session.step(np.array([1], np.int32))
    del engine, session
    gc.collect()
    assert device.api.memory == {} and device.api.graphs == 0


def test_engines_are_built_once_per_graph_version_gpu_and_shapes(jetson_bundle: Bundle, tmp_path: Path) -> None:
    said: list[str] = []

    def build(version: str = "10.3.0", capability: tuple[int, int] = (8, 7), which: str = "ranged") -> int:
        api = FakeCuda(capability)
        trt = FakeTensorRT(api, version)
        build_engines(jetson_bundle, which, tmp_path, trt, Cuda(api), said.append)  # type: ignore[arg-type]
        return trt.builds

    assert build() == 2 and build() == 0
    assert "in the cache" in said[-1]
    assert build(version="10.7.0") == 2
    assert build(capability=(11, 0)) == 2
    assert build(which="exact") == 2
    assert build() == 0
    keys = {cache_key(d * 64, "10.3.0", (8, 7), read_profiles(jetson_bundle).ranged.step) for d in "ab"}
    assert len(keys) == 2


def test_timings_are_kept_between_builds(jetson_bundle: Bundle, tmp_path: Path) -> None:
    Device(jetson_bundle, tmp_path)
    (timings,) = tmp_path.glob("timing-*")
    assert timings.name == "timing-10.3.0-sm87.cache" and timings.read_bytes() == b"7"  # 5 heights, 2 beam widths


def test_without_a_build_the_engine_says_what_to_do(jetson_bundle: Bundle, tmp_path: Path) -> None:
    api = FakeCuda()
    with pytest.raises(EngineError, match=r"no engine for TensorRT 10\.3\.0 .* run hmerctl build-engine"):
        TensorRTEngine(jetson_bundle, cache=tmp_path, trt=FakeTensorRT(api), cuda=Cuda(api))


def test_an_engine_of_another_device_is_not_loaded(jetson_bundle: Bundle, tmp_path: Path) -> None:
    Device(jetson_bundle, tmp_path)
    api = FakeCuda((7, 2))
    with pytest.raises(EngineError, match="no engine"):
        TensorRTEngine(jetson_bundle, cache=tmp_path, trt=FakeTensorRT(api), cuda=Cuda(api))


def test_a_damaged_engine_is_named(jetson_bundle: Bundle, tmp_path: Path) -> None:
    device = Device(jetson_bundle, tmp_path)
    for plan in tmp_path.glob("*.plan"):
        plan.write_bytes(b"damaged")
    with pytest.raises(EngineError, match="delete it and run hmerctl build-engine"):
        device.engine()


def test_an_operator_that_the_parser_refuses_is_named(jetson_bundle: Bundle, tmp_path: Path) -> None:
    model = onnx.load(jetson_bundle.file("step.onnx"))
    model.graph.node.append(helper.make_node("DynamicQuantizeLinear", ["ink"], ["a", "b", "c"], name="quantise_ink"))
    onnx.save(model, tmp_path / "step.onnx")
    trt = FakeTensorRT(FakeCuda())
    with pytest.raises(EngineError, match=r"step\.onnx: .*DynamicQuantizeLinear quantise_ink: no importer"):
        build_plan(trt, tmp_path / "step.onnx", read_profiles(jetson_bundle).ranged.step)


def test_profiles_that_do_not_fit_the_graph_are_refused(jetson_bundle: Bundle) -> None:
    profiles = read_profiles(jetson_bundle).ranged
    trt = FakeTensorRT(FakeCuda())
    with pytest.raises(EngineError, match="other inputs"):
        build_plan(trt, jetson_bundle.file("step.onnx"), profiles.encoder)
    (first, *_) = profiles.encoder
    wrong = first.model_copy(update={"typical": {**first.typical, "raster": (1, 3, 64, 128)}})
    with pytest.raises(EngineError, match=r"builds no engine: shape \(1, 3, 64, 128\)"):
        build_plan(trt, jetson_bundle.file("encoder.onnx"), (wrong,))


def test_missing_libraries_are_named_with_the_way_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(tensorrt_build.importlib, "import_module", absent)
    with pytest.raises(EngineError, match="JetPack brings it"):
        tensorrt_build.load_tensorrt()
    with pytest.raises(EngineError, match=r"pip install 'hmerctl\[jetson\]'"):
        Cuda()


def test_a_cuda_error_becomes_one_line() -> None:
    api = FakeCuda()
    cuda = Cuda(api)
    api.cudaMalloc = lambda size: (2, 0)  # type: ignore[method-assign]
    with pytest.raises(EngineError, match="cudaMalloc failed: fake error 2"):
        cuda.allocate(10)


def test_profiles_of_a_bundle_for_another_target_are_missed(shared_tiny: Path) -> None:
    with pytest.raises(BundleError, match=r"profiles\.json .* export it for jetson-trt"):
        read_profiles(open_bundle(shared_tiny))
