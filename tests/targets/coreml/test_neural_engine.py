"""The estimate of what the Neural Engine could take."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hmerctl.targets.coreml.mil import MilFunction, MilPackage
from hmerctl.targets.coreml.neural_engine import RULES, estimate
from hmerctl.targets.coreml.operations import OPERATIONS

pytest.importorskip("coremltools", reason="coremltools is not installed: pip install 'hmerctl[export]'")
from coremltools.converters.mil import Builder as mb  # noqa: N813


@pytest.fixture
def function(tmp_path: Path, save_program: Callable[..., Path]) -> Callable[..., MilFunction]:
    def make(inputs: dict[str, np.ndarray], body: Callable[..., dict]) -> MilFunction:
        return MilPackage(save_program(tmp_path / "p.mlpackage", inputs, body)).function()

    return make


def test_the_table_and_the_evaluator_know_the_same_operations() -> None:
    assert set(RULES) == {name for name in OPERATIONS if not name.startswith("constexpr_")}


def test_every_rule_names_its_source() -> None:
    assert all(rule.source.startswith("https://") for rule in RULES.values())
    assert all(rule.note for rule in RULES.values() if not rule.eligible)


def test_float16_is_eligible_and_float32_is_not(function: Callable) -> None:
    x = np.zeros((2, 8), np.float16)
    weight = np.zeros((4, 8))
    body = lambda dtype: lambda x: {"y": mb.linear(x=x, weight=weight.astype(dtype))}  # noqa: E731
    half = estimate(function({"x": x}, body(np.float16)))
    assert (half.eligible, half.work, half.eligible_work, half.off) == (2, 2 * 4 * 8, 2 * 4 * 8, {})
    full = estimate(function({"x": x.astype(np.float32)}, body(np.float32)))
    assert (full.eligible, full.eligible_work) == (0, 0)
    assert full.off == {"linear: float32": 1, "identity: float32": 1}


def test_work_of_products_and_convolutions(function: Callable) -> None:
    x, y = np.zeros((1, 4, 6, 6), np.float16), np.zeros((1, 4, 6, 5), np.float16)

    def body(x, y):
        weight = np.zeros((8, 2, 3, 3), np.float16)
        return {
            "conv": mb.conv(x=x, weight=weight, groups=2, pad_type="valid"),
            "product": mb.matmul(x=x, y=y),
            "turned": mb.matmul(x=y, y=x, transpose_x=True),
        }

    assert estimate(function({"x": x, "y": y}, body)).work == 8 * 4 * 4 * 18 + 4 * 6 * 5 * 6 + 4 * 5 * 6 * 6


def test_integers_gathers_and_long_axes_fall_off(function: Callable) -> None:
    x, i = np.zeros((4, 3), np.float16), np.zeros((2,), np.int32)
    long = np.zeros((1, 20000), np.float16)

    def body(x, i, long):
        return {"rows": mb.gather(x=x, indices=mb.add(x=i, y=1), axis=0), "long": mb.relu(x=long)}

    off = estimate(function({"x": x, "i": i, "long": long}, body)).off
    assert off["add: integers"] == 1 and off["relu: an axis longer than 16384"] == 1
    assert any(reason.startswith("gather: seen on the CPU alone") for reason in off)
    assert "gather" in str(estimate(function({"x": x, "i": i, "long": long}, body)))
