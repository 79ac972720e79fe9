"""Every MIL operation that the evaluator knows, read back from a saved package, against torch or numpy."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from typed import as_a

from hmerctl.targets.coreml.mil import MilPackage
from hmerctl.targets.coreml.operations import OPERATIONS, Arguments

pytest.importorskip("coremltools", reason="coremltools is not installed: pip install 'hmerctl[export]'")
from coremltools.converters.mil import Builder as mb  # noqa: N813

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


X, Y, P = floats(2, 3, 4), floats(2, 3, 4), np.abs(floats(2, 3, 4)) + 0.1
INT, DIVISOR = RNG.integers(-9, 9, (2, 3)).astype(np.int32), RNG.integers(1, 4, (2, 3)).astype(np.int32)
IMAGE, WEIGHT, BIAS = floats(2, 4, 7, 6), floats(6, 2, 3, 3), floats(6)
Q, K, V, MASK = floats(1, 2, 3, 4), floats(1, 2, 5, 4), floats(1, 2, 5, 4), floats(1, 1, 3, 5)
GRU_START, GRU_IH, GRU_HH = floats(2, 3), floats(9, 4), floats(9, 3)
MATRIX, VECTOR = floats(5, 4), floats(4)


def t(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(x))


def pooled(function, x, kernel, stride, pad):
    return function(F.pad(t(x), pad, value=-torch.inf if function is F.max_pool2d else 0.0), kernel, stride)


def gru(x: np.ndarray, h: np.ndarray, of_input: np.ndarray, of_state: np.ndarray) -> torch.Tensor:
    """torch's GRU without biases; MIL has its gates in the order r, n, z, torch in r, z, n."""
    order = [0, 1, 2, 6, 7, 8, 3, 4, 5]
    cell = torch.nn.GRU(4, 3, bias=False)
    cell.weight_ih_l0.data, cell.weight_hh_l0.data = t(of_input[order]), t(of_state[order])
    with torch.no_grad():
        return cell(t(x), t(h)[None])[0]


CASES: dict[str, tuple[tuple[np.ndarray, ...], Callable, Callable]] = {
    # operation, and a word for the variant: inputs, MIL, the same in numpy or torch
    "abs": ((X,), lambda x: mb.abs(x=x), np.abs),
    "ceil": ((X,), lambda x: mb.ceil(x=x), np.ceil),
    "exp": ((X,), lambda x: mb.exp(x=x), np.exp),
    "floor": ((X,), lambda x: mb.floor(x=x), np.floor),
    "identity": ((X,), lambda x: mb.identity(x=x), lambda x: x),
    "relu": ((X,), lambda x: mb.relu(x=x), lambda x: F.relu(t(x))),
    "round": ((X,), lambda x: mb.round(x=x), lambda x: torch.round(t(x))),
    "sign": ((X,), lambda x: mb.sign(x=x), np.sign),
    "sqrt": ((P,), lambda x: mb.sqrt(x=x), np.sqrt),
    "square": ((X,), lambda x: mb.square(x=x), np.square),
    "tanh": ((X,), lambda x: mb.tanh(x=x), np.tanh),
    "erf": ((X,), lambda x: mb.erf(x=x), lambda x: torch.erf(t(x))),
    "sigmoid": ((X,), lambda x: mb.sigmoid(x=x), lambda x: torch.sigmoid(t(x))),
    "silu": ((X,), lambda x: mb.silu(x=x), lambda x: F.silu(t(x))),
    "softplus": ((X,), lambda x: mb.softplus(x=x), lambda x: F.softplus(t(x))),
    "gelu": ((X,), lambda x: mb.gelu(x=x), lambda x: F.gelu(t(x))),
    "gelu tanh": (
        (X,),
        lambda x: mb.gelu(x=x, mode="TANH_APPROXIMATION"),
        lambda x: F.gelu(t(x), approximate="tanh"),
    ),
    "gelu sigmoid": (
        (X,),
        lambda x: mb.gelu(x=x, mode="SIGMOID_APPROXIMATION"),
        lambda x: x * torch.sigmoid(1.702 * t(x)).numpy(),
    ),
    "log": ((P,), lambda x: mb.log(x=x), np.log),
    "rsqrt": ((P,), lambda x: mb.rsqrt(x=x, epsilon=0.5), lambda x: 1 / np.sqrt(x + 0.5)),
    "inverse": ((P,), lambda x: mb.inverse(x=x, epsilon=0.5), lambda x: 1 / (x + 0.5)),
    "clip": ((X,), lambda x: mb.clip(x=x, alpha=-0.5, beta=0.25), lambda x: np.clip(x, -0.5, 0.25)),
    "leaky_relu": ((X,), lambda x: mb.leaky_relu(x=x, alpha=0.1), lambda x: F.leaky_relu(t(x), 0.1)),
    "add": ((X, Y[:, :1]), lambda x, y: mb.add(x=x, y=y), np.add),
    "sub": ((X, Y), lambda x, y: mb.sub(x=x, y=y), np.subtract),
    "mul": ((X, Y[:1]), lambda x, y: mb.mul(x=x, y=y), np.multiply),
    "real_div": ((X, P), lambda x, y: mb.real_div(x=x, y=y), np.divide),
    "maximum": ((X, Y), lambda x, y: mb.maximum(x=x, y=y), np.maximum),
    "minimum": ((X, Y), lambda x, y: mb.minimum(x=x, y=y), np.minimum),
    "pow": ((P, Y), lambda x, y: mb.pow(x=x, y=y), np.power),
    "floor_div": ((INT, DIVISOR), lambda x, y: mb.floor_div(x=x, y=y), np.floor_divide),
    "mod": ((INT, DIVISOR), lambda x, y: mb.mod(x=x, y=y), np.mod),
    "select": (
        (X, Y),
        lambda x, y: mb.select(cond=mb.greater(x=x, y=y), a=x, b=mb.mul(x=y, y=2.0)),
        lambda x, y: np.where(x > y, x, 2 * y),
    ),
    "cast": (
        (X,),
        lambda x: mb.cast(x=mb.mul(x=x, y=9.0), dtype="int32"),
        lambda x: np.trunc(9 * x).astype(np.int32),
    ),
    "reduce_sum": (
        (X,),
        lambda x: mb.reduce_sum(x=x, axes=[0, 2], keep_dims=True),
        lambda x: x.sum((0, 2), keepdims=True),
    ),
    "reduce_mean": ((X,), lambda x: mb.reduce_mean(x=x, axes=[-1], keep_dims=False), lambda x: x.mean(-1)),
    "reduce_max": ((X,), lambda x: mb.reduce_max(x=x, axes=[1], keep_dims=False), lambda x: x.max(1)),
    "reduce_min": ((X,), lambda x: mb.reduce_min(x=x, axes=[1], keep_dims=False), lambda x: x.min(1)),
    "reduce_sum_square": (
        (X,),
        lambda x: mb.reduce_sum_square(x=x, axes=[1], keep_dims=False),
        lambda x: (x * x).sum(1),
    ),
    "reduce_log_sum_exp": (
        (30 * X,),
        lambda x: mb.reduce_log_sum_exp(x=x, axes=[1], keep_dims=False),
        lambda x: torch.logsumexp(t(x), 1),
    ),
    "reduce_argmax": ((X,), lambda x: mb.reduce_argmax(x=x, axis=2, keep_dims=False), lambda x: x.argmax(2)),
    "reshape": ((X,), lambda x: mb.reshape(x=x, shape=[0, 4, -1]), lambda x: x.reshape(2, 4, 3)),
    "transpose": ((X,), lambda x: mb.transpose(x=x, perm=[2, 0, 1]), lambda x: x.transpose(2, 0, 1)),
    "expand_dims": ((X,), lambda x: mb.expand_dims(x=x, axes=[0, 2]), lambda x: x[None, :, None]),
    "squeeze": ((X[:1],), lambda x: mb.squeeze(x=x, axes=[0]), lambda x: x[0]),
    "concat": ((X, Y), lambda x, y: mb.concat(values=[x, y], axis=1), lambda x, y: np.concatenate([x, y], 1)),
    "stack": ((X, Y), lambda x, y: mb.stack(values=[x, y], axis=1), lambda x, y: np.stack([x, y], 1)),
    "split": ((X,), lambda x: mb.split(x=x, split_sizes=[1, 3], axis=2)[1], lambda x: x[..., 1:]),
    "split even": ((X,), lambda x: mb.split(x=x, num_splits=2, axis=2)[1], lambda x: x[..., 2:]),
    "tile": ((X,), lambda x: mb.tile(x=x, reps=[1, 2, 3]), lambda x: np.tile(x, (1, 2, 3))),
    "reverse": ((X,), lambda x: mb.reverse(x=x, axes=[1]), lambda x: x[:, ::-1]),
    "fill": ((X,), lambda x: mb.add(x=x, y=mb.fill(shape=[2, 3, 4], value=0.5)), lambda x: x + 0.5),
    "pad": (
        (X,),
        lambda x: mb.pad(x=x, pad=[1, 0, 0, 2], mode="constant", constant_val=3.0),
        lambda x: np.pad(x, ((0, 0), (1, 0), (0, 2)), constant_values=3),
    ),
    "pad replicate": (
        (X,),
        lambda x: mb.pad(x=x, pad=[1, 2], mode="replicate"),
        lambda x: np.pad(x, ((0, 0), (0, 0), (1, 2)), mode="edge"),
    ),
    "pad reflect": (
        (X,),
        lambda x: mb.pad(x=x, pad=[1, 2], mode="reflect"),
        lambda x: np.pad(x, ((0, 0), (0, 0), (1, 2)), mode="reflect"),
    ),
    "slice_by_index": (
        (X,),
        lambda x: mb.slice_by_index(
            x=x,
            begin=[1, 0, -3],
            end=[0, 2, 0],
            stride=[1, 1, 2],
            end_mask=[False, False, True],
            squeeze_mask=[True, False, False],
        ),
        lambda x: x[1, :2, -3::2],
    ),
    "slice_by_size": (
        (X,),
        lambda x: mb.slice_by_size(x=x, begin=[0, 1, 1], size=[2, -1, 2]),
        lambda x: x[:, 1:, 1:3],
    ),
    "gather": (
        (X, np.array([2, 0, 2], np.int32)),
        lambda x, y: mb.gather(x=x, indices=y, axis=1, validate_indices=False),
        lambda x, y: x[:, y],
    ),
    "gather_along_axis": (
        (X, np.array([[[2, 0], [1, 1], [3, 0]]] * 2, np.int32)),
        lambda x, y: mb.gather_along_axis(x=x, indices=y, axis=2, validate_indices=False),
        lambda x, y: np.take_along_axis(x, y.astype(np.int64), 2),
    ),
    "gather_nd": (
        (X, np.array([[1, 2], [0, 0]], np.int32)),
        lambda x, y: mb.gather_nd(x=x, indices=y, validate_indices=False),
        lambda x, y: x[y[:, 0], y[:, 1]],
    ),
    "linear": (
        (X,),
        lambda x: mb.linear(x=x, weight=MATRIX, bias=MATRIX[:, 0]),
        lambda x: x @ MATRIX.T + MATRIX[:, 0],
    ),
    "matmul": (
        (Q, K),
        lambda x, y: mb.matmul(x=x, y=y, transpose_y=True),
        lambda x, y: x @ y.swapaxes(-1, -2),
    ),
    "matmul both": (
        (floats(3, 4, 2), floats(3, 5, 4)),
        lambda x, y: mb.matmul(x=x, y=y, transpose_x=True, transpose_y=True),
        lambda x, y: x.swapaxes(-1, -2) @ y.swapaxes(-1, -2),
    ),
    "einsum": (
        (floats(2, 3, 4), floats(4, 3, 5)),
        lambda x, y: mb.einsum(values=(x, y), equation="chw,whr->chr"),
        lambda x, y: np.einsum("chw,whr->chr", x, y),
    ),
    "softmax": ((X,), lambda x: mb.softmax(x=x, axis=1), lambda x: torch.softmax(t(x), 1)),
    "scaled_dot_product_attention": (
        (Q, K, V, MASK),
        lambda x, y, z, w: mb.scaled_dot_product_attention(query=x, key=y, value=z, attn_mask=w),
        lambda x, y, z, w: F.scaled_dot_product_attention(t(x), t(y), t(z), t(w)),
    ),
    "layer_norm": (
        (X,),
        lambda x: mb.layer_norm(x=x, axes=[-1], gamma=VECTOR, beta=2 * VECTOR, epsilon=1e-3),
        lambda x: F.layer_norm(t(x), [4], t(VECTOR), t(2 * VECTOR), 1e-3),
    ),
    "batch_norm": (
        (IMAGE,),
        lambda x: mb.batch_norm(x=x, mean=VECTOR, variance=VECTOR**2, gamma=VECTOR, beta=VECTOR, epsilon=1e-3),
        lambda x: F.batch_norm(t(x), t(VECTOR), t(VECTOR**2), t(VECTOR), t(VECTOR), eps=1e-3),
    ),
    "conv": (
        (IMAGE,),
        lambda x: mb.conv(
            x=x, weight=WEIGHT, bias=BIAS, strides=[2, 1], pad_type="custom", pad=[1, 0, 2, 1], groups=2
        ),
        lambda x: F.conv2d(F.pad(t(x), (2, 1, 1, 0)), t(WEIGHT), t(BIAS), (2, 1), groups=2),
    ),
    "conv same": (
        (IMAGE,),
        lambda x: mb.conv(x=x, weight=WEIGHT[:, :, :, :2], strides=[2, 2], pad_type="same", groups=2),
        lambda x: F.conv2d(F.pad(t(x), (0, 0, 1, 1)), t(WEIGHT[:, :, :, :2]), None, 2, groups=2),
    ),
    "conv one axis": (
        (X,),
        lambda x: mb.conv(x=x, weight=WEIGHT[:, :1, 0], pad_type="valid", groups=3, dilations=[1]),
        lambda x: F.conv1d(t(x), t(WEIGHT[:, :1, 0]), groups=3),
    ),
    "gru": (
        (floats(5, 2, 4),),
        lambda x: mb.gru(x=x, initial_h=GRU_START, weight_ih=GRU_IH, weight_hh=GRU_HH, output_sequence=True)[0],
        lambda x: gru(x, GRU_START, GRU_IH, GRU_HH),
    ),
    "max_pool": (
        (IMAGE,),
        lambda x: mb.max_pool(x=x, kernel_sizes=[3, 2], strides=[2, 2], pad_type="custom", pad=[1, 1, 0, 0]),
        lambda x: pooled(F.max_pool2d, x, (3, 2), 2, (0, 0, 1, 1)),
    ),
    "avg_pool": (
        (IMAGE,),
        lambda x: mb.avg_pool(x=x, kernel_sizes=[2, 2], strides=[2, 2], pad_type="valid"),
        lambda x: F.avg_pool2d(t(x), 2),
    ),
    "avg_pool without padding": (
        (IMAGE,),
        lambda x: mb.avg_pool(
            x=x,
            kernel_sizes=[2, 2],
            strides=[2, 2],
            pad_type="custom",
            pad=[1, 0, 0, 0],
            exclude_padding_from_average=True,
        ),
        lambda x: F.avg_pool2d(F.pad(t(x), (0, 0, 1, 0)), 2) * torch.tensor([2.0, 1, 1, 1])[:, None],
    ),
}
for name in ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal"):
    CASES[name] = (
        (INT, DIVISOR),
        lambda x, y, name=name: mb.cast(x=getattr(mb, name)(x=x, y=y), dtype="fp32"),
        lambda x, y, name=name: getattr(np, name)(x, y).astype(np.float32),
    )
for name in ("logical_and", "logical_or", "logical_xor"):
    CASES[name] = (
        (INT, DIVISOR),
        lambda x, y, name=name: mb.cast(x=getattr(mb, name)(x=mb.less(x=x, y=0), y=mb.less(x=y, y=2)), dtype="fp32"),
        lambda x, y, name=name: getattr(np, name)(x < 0, y < 2).astype(np.float32),
    )
CASES["logical_not"] = (
    (INT,),
    lambda x: mb.cast(x=mb.logical_not(x=mb.less(x=x, y=0)), dtype="fp32"),
    lambda x: (x >= 0).astype(np.float32),
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, save_program: Callable[..., Path]) -> dict[str, np.ndarray]:
    """All cases in one package, computed once."""
    inputs: dict[str, np.ndarray] = {}
    used: dict[str, list[str]] = {}
    for case, (given, _, _) in CASES.items():
        used[case] = [f"in_{len(inputs) + i}" for i in range(len(given))]
        inputs.update(zip(used[case], given, strict=True))

    def body(**given):
        return {
            f"out_{i}": build(*(given[name] for name in used[case]))
            for i, (case, (_, build, _)) in enumerate(CASES.items())
        }

    package = save_program(tmp_path_factory.mktemp("operations") / "all.mlpackage", inputs, body)
    outputs = MilPackage(package).function()(inputs)
    return {case: outputs[f"out_{i}"] for i, case in enumerate(CASES)}


@pytest.mark.parametrize("case", CASES)
def test_operation_agrees_with_torch(case: str, results: dict[str, np.ndarray]) -> None:
    given, _, expected = CASES[case]
    want = np.asarray(expected(*given))
    assert results[case].shape == want.shape
    np.testing.assert_allclose(results[case], want, rtol=2e-5, atol=2e-5)


def test_every_known_operation_is_tried() -> None:
    tried = {case.split()[0] for case in CASES}
    assert {name for name in OPERATIONS if not name.startswith("constexpr_")} == tried


def compressed(op_type: str, **values: np.ndarray | np.integer) -> np.ndarray:
    arguments = Arguments(op_type, "w", dict(values), (), (np.dtype(np.float16),), "declared")
    return as_a(np.ndarray, OPERATIONS[op_type](arguments))


def test_affine_dequantize_by_hand() -> None:
    data = np.array([[-128, 0, 127], [1, 2, 3]], np.int8)
    got = compressed(
        "constexpr_affine_dequantize",
        quantized_data=data,
        scale=np.array([0.5, 2.0]),
        zero_point=np.array([0, 1], np.int8),
        axis=np.int32(0),
    )
    assert got.tolist() == [[-64.0, 0.0, 63.5], [0.0, 2.0, 4.0]]


def test_blockwise_shift_scale_by_hand() -> None:
    got = compressed(
        "constexpr_blockwise_shift_scale",
        data=np.arange(8, dtype=np.int8).reshape(2, 4),
        scale=np.array([[1.0, 10.0], [100.0, 1000.0]]),
        offset=np.array([[1, 0], [0, 7]], np.int8),
    )
    assert got.tolist() == [[-1, 0, 20, 30], [400, 500, -1000, 0]]


def test_palettes_by_hand() -> None:
    # Two bits an index, the first element in the lowest bits: 0b11_10_01_00 and 0b00_00_00_01.
    packed = compressed(
        "constexpr_lut_to_dense",
        lut=np.array([0.0, 1.5, -2.0, 4.0]),
        indices=np.array([0b11100100, 0b00000001], np.uint8),
        shape=np.array([5], np.uint32),
    )
    assert packed.tolist() == [0.0, 1.5, -2.0, 4.0, 1.5]
    # A palette for each pair of rows.
    grouped = compressed(
        "constexpr_lut_to_dense",
        lut=np.array([[[[5.0], [6.0]]], [[[7.0], [8.0]]]]),
        indices=np.array([[0, 1], [1, 1], [0, 1], [0, 0]], np.uint8),
    )
    assert grouped.tolist() == [[5, 6], [6, 6], [7, 8], [7, 7]]


def test_constexpr_cast_keeps_the_values() -> None:
    assert compressed("constexpr_cast", source_val=np.array([0.5, 2.0], np.float16)).tolist() == [0.5, 2.0]
