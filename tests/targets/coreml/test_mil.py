"""The evaluator: what it reads from a saved package, its arithmetic, and packages broken on purpose."""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hmerctl.targets.coreml.convert import PRECISIONS, convert
from hmerctl.targets.coreml.mil import MINIMUM_IOS, MilPackage
from hmerctl.targets.coreml.tools import CoreMlError

pytest.importorskip("coremltools", reason="coremltools is not installed: pip install 'hmerctl[export]'")
from coremltools.converters.mil import Builder as mb  # noqa: N813


class Small(nn.Module):
    """A convolution, a linear layer large enough to be compressed, and a sum."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.linear = nn.Linear(4 * 8, 64)

    def forward(self, x: torch.Tensor, kept: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.linear(torch.relu(self.conv(x)).transpose(1, 2).flatten(2))
        return y, kept + y.sum(1)


INPUTS = {"x": torch.linspace(-1, 1, 64).reshape(1, 1, 8, 8), "kept": torch.linspace(0, 9, 64)[None]}
ARRAYS = {name: x.numpy() for name, x in INPUTS.items()}


@pytest.fixture(scope="module")
def small() -> Small:
    return Small().eval()


@pytest.fixture(scope="module")
def saved(small: Small, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The small graph in every precision, for iOS 16 and 18."""
    folder = tmp_path_factory.mktemp("small")
    paths = {}
    for name, precision in PRECISIONS.items():
        for ios in (16, 18):
            paths[f"{name}-{ios}"] = folder / f"{name}-{ios}.mlpackage"
            model = convert(small, INPUTS, ("y", "sum"), precision, ios, frozenset({"kept", "sum"}))
            model.save(str(paths[f"{name}-{ios}"]))
    return paths


def error(package: Path, small: Small, **options: Any) -> float:
    """Largest error of the first output, relative to its largest value."""
    with torch.no_grad():
        want = small(*INPUTS.values())[0].numpy()
    return float(np.abs(MilPackage(package).function(**options)(ARRAYS)["y"] - want).max() / np.abs(want).max())


@pytest.mark.parametrize("ios", [16, 18])
@pytest.mark.parametrize(("precision", "bound"), [("fp32", 1e-6), ("fp16", 2e-3), ("int8", 1e-2), ("pal6", 5e-2)])
def test_every_precision_is_read_back(
    precision: str, bound: float, ios: int, saved: dict[str, Path], small: Small
) -> None:
    found = error(saved[f"{precision}-{ios}"], small)
    assert found < bound and (precision == "fp32" or found > bound / 1000)
    assert MINIMUM_IOS[MilPackage(saved[f"{precision}-{ios}"]).specification] == str(ios)


@pytest.mark.parametrize("ios", [16, 18])
def test_in_an_encoder_of_palettes_what_has_no_kernel_gets_8_bits(ios: int, tmp_path: Path) -> None:
    torch.manual_seed(1)
    kernel, point, linear = nn.Conv2d(1, 256, 3, padding=1), nn.Conv2d(256, 32, 1), nn.Linear(256, 16)
    layers = nn.Sequential(kernel, point, nn.Flatten(2), linear)
    found = {}
    for memory in (False, True):
        package = tmp_path / f"{memory}.mlpackage"
        inputs = {"x": torch.linspace(-1, 1, 256).reshape(1, 1, 16, 16)}
        convert(layers, inputs, ("y",), PRECISIONS["pal6"], ios, memory=memory).save(str(package))
        function = next(iter(MilPackage(package)._spec.mlProgram.functions.values()))
        operations = function.block_specializations[function.opset].operations
        stored = Counter(op.type for op in operations if op.type.startswith("constexpr_"))
        with torch.no_grad():
            want = layers(*inputs.values()).numpy()
        got = MilPackage(package).function()({name: x.numpy() for name, x in inputs.items()})["y"]
        found[memory] = stored, float(np.square(got - want).mean())
    eight = "constexpr_affine_dequantize" if ios == 16 else "constexpr_blockwise_shift_scale"
    assert found[False][0] == {"constexpr_lut_to_dense": 3}
    assert found[True][0] == {"constexpr_lut_to_dense": 1, eight: 2}
    assert found[True][1] < found[False][1] / 2


@pytest.mark.parametrize("ios", [16, 18])
def test_8_bit_weights_are_within_half_a_step(ios: int, tmp_path: Path) -> None:
    """A step is the largest weight of an output channel, divided by 127."""
    torch.manual_seed(2)
    linear, eye = nn.Linear(64, 48, bias=False), torch.eye(64)
    convert(linear, {"x": eye}, ("y",), PRECISIONS["int8"], ios).save(str(tmp_path / "p.mlpackage"))
    weight = linear.weight.detach().numpy().T
    step = np.abs(weight).max(0) / 127
    found = (
        MilPackage(tmp_path / "p.mlpackage").function(arithmetic="fp32")({"x": eye.numpy()})["y"] - weight
    ) / step
    assert 0.45 < np.abs(found).max() < 0.65


def test_the_small_graph_has_no_operation_of_its_own(saved: dict[str, Path]) -> None:
    kinds = {operation.op_type for operation in MilPackage(saved["int8-18"]).function().operations}
    assert kinds == {"conv", "relu", "transpose", "reshape", "linear", "reduce_sum", "cast", "add"}


def test_carried_sums_stay_in_float32(saved: dict[str, Path]) -> None:
    """2049 + 1 is 2048 in float16: a sum carried over hundreds of steps must not be."""
    function = MilPackage(saved["fp16-18"]).function()
    assert str(function.inputs["x"].dtype) == "float16" and str(function.inputs["kept"].dtype) == "float32"
    kept = np.full((1, 64), 2049.0, np.float32)
    without = function({**ARRAYS, "kept": np.zeros_like(kept)})["sum"]
    np.testing.assert_allclose(function({**ARRAYS, "kept": kept})["sum"], kept + without, atol=1e-3)


def test_arithmetic_fp32_leaves_only_the_rounding_of_weights(saved: dict[str, Path], small: Small) -> None:
    whole, weights_only = (error(saved["fp16-18"], small, arithmetic=kind) for kind in ("declared", "fp32"))
    assert 0 < weights_only < whole


HALF = np.float16(1)


def test_every_result_is_rounded_to_float16_once(tmp_path: Path, save_program: Callable[..., Path]) -> None:
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal((64, 64)).astype(np.float16) * HALF for _ in range(2))
    package = save_program(
        tmp_path / "p.mlpackage",
        {"x": x, "y": y},
        lambda x, y: {"sum": mb.add(x=mb.mul(x=x, y=y), y=x), "product": mb.matmul(x=x, y=y)},
    )
    got = MilPackage(package).function()({"x": x, "y": y})
    assert got["sum"].tolist() == (x * y + x).tolist()
    exact = x.astype(np.float64) @ y.astype(np.float64)
    # Summed in float32, so within one rounding of the exact product.
    assert np.all(np.abs(got["product"] - exact) <= np.spacing(np.abs(exact).astype(np.float16)).astype(np.float64))


def test_overflow_shows_and_is_named(tmp_path: Path, save_program: Callable[..., Path]) -> None:
    x = np.full((1, 4), 300.0, np.float16)
    x[0, 0] = -300
    body = {"square": lambda x: mb.square(x=x, name="squared"), "norm": lambda x: mb.layer_norm(x=x, axes=[-1])}
    package = save_program(tmp_path / "p.mlpackage", {"x": x}, lambda x: {k: f(x) for k, f in body.items()})
    declared, stepwise = (MilPackage(package).function(arithmetic=kind) for kind in ("declared", "stepwise"))
    got = declared({"x": x})
    assert np.isinf(got["square"]).all() and declared.overflows == ["square 'squared'"]
    np.testing.assert_allclose(got["norm"][0], [-1.732, 0.577, 0.577, 0.577], atol=1e-3)
    # A unit that squares deviations in float16 has infinite variance here, and gives zeros.
    assert stepwise({"x": x})["norm"].tolist() == [[0, 0, 0, 0]] or stepwise.overflows
    assert not MilPackage(package).function(arithmetic="fp32")({"x": x})["square"].max() < 9e4


@pytest.fixture
def broken(saved: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of the float32 package, to be broken."""
    return shutil.copytree(saved["fp32-18"], tmp_path / "broken.mlpackage")


def operations(spec) -> dict:
    body = spec.mlProgram.functions["main"]
    return {operation.type: operation for operation in body.block_specializations[body.opset].operations}


def test_a_changed_weight_is_found(broken: Path, small: Small) -> None:
    file = broken / "Data" / "com.apple.CoreML" / "weights" / "weight.bin"
    data = bytearray(file.read_bytes())
    place = data.find(small.linear.weight.detach().numpy().tobytes())
    assert place > 0
    data[place + 4 * 20 + 3] ^= 0x80  # the sign of one of 2048 weights
    file.write_bytes(data)
    assert error(broken, small) > 1e-2


def test_a_swapped_operation_is_found(broken: Path, small: Small, edit: Callable) -> None:
    edit(broken, lambda spec: setattr(operations(spec)["relu"], "type", "tanh"))
    assert error(broken, small) > 1e-2


def test_a_cut_shape_is_found(broken: Path, edit: Callable) -> None:
    def cut(spec) -> None:
        operations(spec)["linear"].outputs[0].type.tensorType.dimensions[2].constant.size = 63

    edit(broken, cut)
    with pytest.raises(CoreMlError, match=r"broken\.mlpackage: function 'main' does not load"):
        MilPackage(broken).function()


def test_an_unknown_operation_is_refused_by_name(tmp_path: Path, save_program: Callable[..., Path]) -> None:
    x = np.zeros((2, 2), np.float32)
    package = save_program(
        tmp_path / "p.mlpackage", {"x": x}, lambda x: {"y": mb.cumsum(x=x, axis=1, name="running")}
    )
    with pytest.raises(CoreMlError, match=r"p\.mlpackage:main: MIL operation cumsum 'running' is not one"):
        MilPackage(package).function()


def test_reading_leaves_a_package_as_it_was(saved: dict[str, Path]) -> None:
    def state() -> dict:
        files = [path for path in saved["fp16-18"].rglob("*") if path.is_file()]
        return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}

    before = state()
    MilPackage(saved["fp16-18"]).function()(ARRAYS)
    assert state() == before


def test_missing_and_cut_weight_files_are_refused(broken: Path) -> None:
    file = broken / "Data" / "com.apple.CoreML" / "weights" / "weight.bin"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(CoreMlError, match="does not load"):
        MilPackage(broken).function()
    file.unlink()
    with pytest.raises(CoreMlError, match="does not load"):
        MilPackage(broken).function()


def test_a_folder_that_is_no_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CoreMlError, match="not a Core ML package"):
        MilPackage(tmp_path)
    model = tmp_path / "Data" / "com.apple.CoreML" / "model.mlmodel"
    model.parent.mkdir(parents=True)
    model.write_bytes(b"no protobuf at all")
    with pytest.raises(CoreMlError, match="export it again"):
        MilPackage(tmp_path)


def test_inputs_are_checked_by_name_and_shape(saved: dict[str, Path]) -> None:
    function = MilPackage(saved["fp32-18"]).function()
    with pytest.raises(CoreMlError, match="takes"):
        function({"x": ARRAYS["x"]})
    with pytest.raises(CoreMlError, match=r"input 'x' has shape \(1, 8, 8\), declared \(1, 1, 8, 8\)"):
        function({**ARRAYS, "x": ARRAYS["x"][0]})


def test_an_index_outside_its_table_is_refused(tmp_path: Path, save_program: Callable[..., Path]) -> None:
    x, i = np.zeros((3, 2), np.float32), np.array([2], np.int32)
    package = save_program(
        tmp_path / "p.mlpackage", {"x": x, "i": i}, lambda x, i: {"y": mb.gather(x=x, indices=i, axis=0)}
    )
    function = MilPackage(package).function()
    assert function({"x": x, "i": i})["y"].shape == (1, 2)
    with pytest.raises(CoreMlError, match="reads index 3"):
        function({"x": x, "i": i + 1})
