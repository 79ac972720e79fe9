"""MIL operations that work element by element, and reductions."""

from collections.abc import Callable

import numpy as np
import torch

from hmerctl.targets.coreml.operations import OPERATIONS, Arguments, operation, tensor

_UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "abs": np.abs,
    "ceil": np.ceil,
    "exp": np.exp,
    "floor": np.floor,
    "identity": lambda x: x,
    "logical_not": np.logical_not,
    "relu": lambda x: np.maximum(x, 0),
    "round": np.round,
    "sign": np.sign,
    "sqrt": np.sqrt,
    "square": np.square,
    "tanh": np.tanh,
}

_BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add,
    "equal": np.equal,
    "floor_div": np.floor_divide,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "mod": np.mod,
    "mul": np.multiply,
    "not_equal": np.not_equal,
    "pow": np.power,
    "sub": np.subtract,
}


def _unary(function: Callable[[np.ndarray], np.ndarray]) -> Callable[[Arguments], np.ndarray]:
    return lambda a: function(a["x"])


def _binary(function: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[[Arguments], np.ndarray]:
    return lambda a: function(a["x"], a["y"])


OPERATIONS.update({name: _unary(function) for name, function in _UNARY.items()})
OPERATIONS.update({name: _binary(function) for name, function in _BINARY.items()})


@operation("real_div")
def real_div(a: Arguments) -> np.ndarray:
    if not np.issubdtype(a["x"].dtype, np.floating):
        raise a.error("divides integers, which the evaluator does not define")
    return a["x"] / a["y"]


@operation("log")
def log(a: Arguments) -> np.ndarray:
    # The default epsilon is the least positive float32, which is nothing in float16: log(0) is then -inf.
    epsilon = a.number("epsilon")
    if a.dtypes[0] == np.float16:
        epsilon = float(np.float16(epsilon))
    return np.log(a["x"] + np.float32(epsilon))


@operation("rsqrt")
def rsqrt(a: Arguments) -> np.ndarray:
    return 1 / a.step(np.sqrt(a["x"] + np.float32(a.number("epsilon"))))


@operation("inverse")
def inverse(a: Arguments) -> np.ndarray:
    return 1 / (a["x"] + np.float32(a.number("epsilon")))


@operation("clip")
def clip(a: Arguments) -> np.ndarray:
    return np.clip(a["x"], a["alpha"], a["beta"])


@operation("leaky_relu")
def leaky_relu(a: Arguments) -> np.ndarray:
    return np.where(a["x"] >= 0, a["x"], a["x"] * np.float32(a["alpha"]))


@operation("sigmoid")
def sigmoid(a: Arguments) -> np.ndarray:
    return _sigmoid(a["x"])


@operation("silu")
def silu(a: Arguments) -> np.ndarray:
    return a["x"] * a.step(_sigmoid(a["x"]))


@operation("softplus")
def softplus(a: Arguments) -> np.ndarray:
    return np.logaddexp(a["x"], np.float32(0))


@operation("erf")
def erf(a: Arguments) -> np.ndarray:
    return torch.erf(tensor(a["x"])).numpy()


@operation("gelu")
def gelu(a: Arguments) -> np.ndarray:
    x, mode = a["x"], a.get("mode", "EXACT")
    if mode == "EXACT":
        inner = torch.erf(tensor(x / np.float32(2**0.5))).numpy()
        return 0.5 * x * (1 + a.step(inner))
    if mode == "TANH_APPROXIMATION":
        return 0.5 * x * (1 + a.step(np.tanh(np.float32((2 / np.pi) ** 0.5) * (x + np.float32(0.044715) * x**3))))
    if mode == "SIGMOID_APPROXIMATION":
        return x * a.step(_sigmoid(np.float32(1.702) * x))
    raise a.error(f"has the unknown mode {mode!r}")


@operation("select")
def select(a: Arguments) -> np.ndarray:
    return np.where(a["cond"], a["a"], a["b"])


@operation("cast")
def cast(a: Arguments) -> np.ndarray:
    x = a["x"]
    # Core ML truncates floats towards zero on the way to integers; the evaluator checks the range afterwards.
    return np.trunc(x) if np.issubdtype(x.dtype, np.floating) and a.dtypes[0].kind in "iu" else x


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return torch.sigmoid(tensor(x)).numpy()


def _axes(a: Arguments) -> tuple[int, ...] | None:
    return None if a.get("axes") is None else tuple(a.integers("axes"))


_REDUCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "reduce_max": np.max,
    "reduce_min": np.min,
    "reduce_sum": np.sum,
}


def _reduction(function: Callable[..., np.ndarray]) -> Callable[[Arguments], np.ndarray]:
    return lambda a: function(a["x"], axis=_axes(a), keepdims=bool(a.get("keep_dims", False)))


OPERATIONS.update({name: _reduction(function) for name, function in _REDUCTIONS.items()})


@operation("reduce_mean")
def reduce_mean(a: Arguments) -> np.ndarray:
    x, axes, keep = a["x"], _axes(a), bool(a.get("keep_dims", False))
    total = a.step(np.sum(x, axis=axes, keepdims=keep))
    return total / np.float32(x.size // max(total.size, 1))


@operation("reduce_sum_square")
def reduce_sum_square(a: Arguments) -> np.ndarray:
    return np.sum(a.step(np.square(a["x"])), axis=_axes(a), keepdims=bool(a.get("keep_dims", False)))


@operation("reduce_log_sum_exp")
def reduce_log_sum_exp(a: Arguments) -> np.ndarray:
    """Stepwise, this takes exp(x) unshifted, as the Neural Engine was measured to do (apple/coremltools#2690)."""
    x, axes, keep = a["x"], _axes(a), bool(a.get("keep_dims", False))
    if a.stepwise:
        return np.log(a.step(np.sum(a.step(np.exp(x)), axis=axes, keepdims=keep)))
    largest = np.max(x, axis=axes, keepdims=True)
    total = np.log(np.sum(np.exp(x - largest), axis=axes, keepdims=keep))
    return total + (largest if keep else largest.reshape(total.shape))


@operation("reduce_argmax")
def reduce_argmax(a: Arguments) -> np.ndarray:
    return np.argmax(a["x"], axis=a.integer("axis", -1), keepdims=bool(a.get("keep_dims", True)))
