"""PyTorch operations that are translated by this project instead of coremltools."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hmerctl.targets.coreml.convert import PRECISIONS, convert
from hmerctl.targets.coreml.mil import MilFunction, MilPackage
from hmerctl.targets.coreml.operations import Arithmetic
from hmerctl.targets.coreml.tools import CoreMlError

pytest.importorskip("coremltools", reason="coremltools is not installed: pip install 'hmerctl[export]'")


class Scan(nn.Module):
    """A GRU as the context parts call it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.gru = nn.GRU(3, 4)
        self.start: Tensor
        self.register_buffer("start", torch.zeros(1, 2, 4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        weights: list[Tensor] = [*self.gru.parameters()]  # W_ih, W_hh, b_ih, b_hh
        return torch.gru(x, self.start, weights, True, 1, 0.0, False, False, False)


class LogSoftmax(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.log_softmax(1)


class TimesVector(nn.Module):
    def forward(self, x: Tensor, v: Tensor) -> Tensor:
        return x @ v


def converted(
    folder: Path, module: nn.Module, precision: str, outputs: tuple[str, ...], **inputs: Tensor
) -> MilFunction:
    convert(module, inputs, outputs, PRECISIONS[precision], 18, frozenset(outputs)).save(str(folder / "p.mlpackage"))
    return MilPackage(folder / "p.mlpackage").function()


@pytest.mark.parametrize(("precision", "bound"), [("fp32", 1e-6), ("fp16", 3e-3)])
def test_a_gru_becomes_the_native_one_and_says_the_same(precision: str, bound: float, tmp_path: Path) -> None:
    scan, x = Scan(), torch.randn(9, 2, 3, generator=torch.Generator().manual_seed(1))
    function = converted(tmp_path, scan, precision, ("states", "last"), x=x)
    assert [op.op_type for op in function.operations].count("gru") == 1
    found = function({"x": x.numpy()})
    with torch.no_grad():
        states, last = scan(x)
    assert np.abs(found["states"] - states.numpy()).max() < bound
    assert np.abs(found["last"] - last.numpy()).max() < bound


def test_a_gru_that_cannot_be_native_is_refused(tmp_path: Path) -> None:
    scan = Scan()
    scan.start += 1
    with pytest.raises(CoreMlError, match="start at zero"):
        converted(tmp_path, scan, "fp32", ("states", "last"), x=torch.zeros(2, 2, 3))


@pytest.mark.parametrize("arithmetic", ["declared", "stepwise"])
def test_log_softmax_in_float16_is_finite_and_does_not_overflow(arithmetic: Arithmetic, tmp_path: Path) -> None:
    x = torch.tensor([[60.0, 0.0, -900.0, 12.5], [9.0, 9.0, 9.0, 9.0]])
    converted(tmp_path, LogSoftmax(), "fp16", ("y",), x=x)
    function = MilPackage(tmp_path / "p.mlpackage").function(arithmetic=arithmetic)
    found = function({"x": x.numpy()})["y"]
    assert not function.overflows
    np.testing.assert_allclose(found, x.log_softmax(1).numpy(), rtol=2e-3, atol=2e-3)


def test_a_matrix_times_a_vector(tmp_path: Path) -> None:
    x, v = torch.randn(2, 3, 4), torch.randn(4)
    found = converted(tmp_path, TimesVector(), "fp32", ("y",), x=x, v=v)({"x": x.numpy(), "v": v.numpy()})
    np.testing.assert_allclose(found["y"], (x @ v).numpy(), atol=1e-6)


def test_coremltools_is_left_as_it_was(tmp_path: Path) -> None:
    from coremltools.converters.mil.frontend.torch.torch_op_registry import _TORCH_OPS_REGISTRY

    before = _TORCH_OPS_REGISTRY.get_func("gru")
    converted(tmp_path, LogSoftmax(), "fp32", ("y",), x=torch.zeros(1, 2))
    assert _TORCH_OPS_REGISTRY.get_func("gru") is before
