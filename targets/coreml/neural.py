"""MIL operations with weights: convolution, matrix products, norms, pooling, attention.

Products and sums of one operation are kept in float32 and rounded once, at its end, as the evaluator's documentation
says; composite operations round their inner steps too when asked to (``Arguments.step``).
"""

import math

import numpy as np
import torch
import torch.nn.functional as F

from hmerctl.targets.coreml.operations import Arguments, operation, tensor, to_half


@operation("linear")
def linear(a: Arguments) -> np.ndarray:
    bias = a.get("bias")
    return F.linear(tensor(a["x"]), tensor(a["weight"]), None if bias is None else tensor(bias)).numpy()


@operation("matmul")
def matmul(a: Arguments) -> np.ndarray:
    x, y = tensor(a["x"]), tensor(a["y"])
    if bool(a.get("transpose_x", False)):
        x = x.transpose(-1, -2)
    if bool(a.get("transpose_y", False)):
        y = y.transpose(-1, -2)
    return torch.matmul(x, y).numpy()


@operation("einsum")
def einsum(a: Arguments) -> np.ndarray:
    return torch.einsum(str(a["equation"]), *map(tensor, a["values"])).numpy()


@operation("scaled_dot_product_attention")
def scaled_dot_product_attention(a: Arguments) -> np.ndarray:
    query, key, value = (tensor(a[name]) for name in ("query", "key", "value"))
    scores = a.step((query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])).numpy())
    mask = a.get("attn_mask")
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else a.step(scores + mask)
    weights = a.step(_softmax(a, scores, -1))
    return (tensor(weights) @ value).numpy()


def _softmax(a: Arguments, x: np.ndarray, axis: int) -> np.ndarray:
    shifted = a.step(x - np.max(x, axis=axis, keepdims=True))
    powers = a.step(np.exp(shifted))
    return powers / a.step(np.sum(powers, axis=axis, keepdims=True))


@operation("softmax")
def softmax(a: Arguments) -> np.ndarray:
    return _softmax(a, a["x"], a.integer("axis", -1))


@operation("layer_norm")
def layer_norm(a: Arguments) -> np.ndarray:
    x, axes = a["x"], tuple(a.integers("axes"))
    mean = a.step(np.mean(x, axis=axes, keepdims=True))
    centred = a.step(x - mean)
    # The square of a deviation beyond 255 is infinite in float16: this is where a float16 layer norm breaks.
    variance = a.step(np.mean(a.step(np.square(centred)), axis=axes, keepdims=True))
    y = a.step(centred / a.step(np.sqrt(variance + np.float32(a.number("epsilon", 1e-5)))))
    gamma, beta = a.get("gamma"), a.get("beta")
    y = y if gamma is None else a.step(y * gamma)
    return y if beta is None else y + beta


@operation("batch_norm")
def batch_norm(a: Arguments) -> np.ndarray:
    x = a["x"]
    shape = (1, -1, *([1] * (x.ndim - 2)))
    scale = 1 / np.sqrt(a["variance"] + np.float32(a.number("epsilon", 1e-5)))
    if a.get("gamma") is not None:
        scale = scale * a["gamma"]
    shift = -a["mean"] * scale
    if a.get("beta") is not None:
        shift = shift + a["beta"]
    return x * scale.reshape(shape) + shift.reshape(shape)


def _padded(a: Arguments, x: torch.Tensor, kernel: list[int], strides: list[int], value: float) -> torch.Tensor:
    """The input with the operation's own padding put around it."""
    kind, rank = str(a["pad_type"]), len(kernel)
    dilations = a.integers("dilations") if a.get("dilations") is not None else [1] * rank
    if kind == "valid":
        return x
    if kind == "custom":
        amounts = a.integers("pad")
    elif kind in ("same", "same_lower"):
        amounts = []
        for size, k, stride, dilation in zip(x.shape[2:], kernel, strides, dilations, strict=True):
            total = max((math.ceil(size / stride) - 1) * stride + (k - 1) * dilation + 1 - size, 0)
            small, large = total // 2, total - total // 2
            amounts += [small, large] if kind == "same" else [large, small]
    else:
        raise a.error(f"has the unknown pad_type {kind!r}")
    # torch lists the last axis first.
    pairs = [amounts[2 * i : 2 * i + 2] for i in reversed(range(rank))]
    return F.pad(x, [n for pair in pairs for n in pair], value=value)


@operation("conv")
def conv(a: Arguments) -> np.ndarray:
    weight = tensor(a["weight"])
    kernel = list(weight.shape[2:])
    rank = len(kernel)
    if rank not in (1, 2):
        raise a.error(f"has {rank} spatial axes; the evaluator takes 1 or 2")
    strides = a.integers("strides") if a.get("strides") is not None else [1] * rank
    dilations = a.integers("dilations") if a.get("dilations") is not None else [1] * rank
    x = _padded(a, tensor(a["x"]), kernel, strides, 0.0)
    bias = a.get("bias")
    function = F.conv1d if rank == 1 else F.conv2d
    bias = None if bias is None else tensor(bias)
    return function(x, weight, bias, strides, 0, dilations, a.integer("groups", 1)).numpy()


@operation("max_pool", "avg_pool")
def pool(a: Arguments) -> np.ndarray:
    kernel = a.integers("kernel_sizes")
    strides = a.integers("strides") if a.get("strides") is not None else list(kernel)
    if len(kernel) != 2:
        raise a.error(f"pools over {len(kernel)} axes; the evaluator takes 2")
    if bool(a.get("ceil_mode", False)):
        raise a.error("rounds its output size up, which the evaluator does not define")
    x = tensor(a["x"])
    if a.op_type == "max_pool":
        return F.max_pool2d(_padded(a, x, kernel, strides, -math.inf), kernel, strides).numpy()
    padded = F.avg_pool2d(_padded(a, x, kernel, strides, 0.0), kernel, strides)
    if bool(a.get("exclude_padding_from_average", False)):
        padded = padded / F.avg_pool2d(_padded(a, torch.ones_like(x), kernel, strides, 0.0), kernel, strides)
    return padded.numpy()


@operation("gru")
def gru(a: Arguments) -> list[np.ndarray]:
    """A scan over the first axis; the state is kept in the declared type from step to step."""
    if a.get("direction", "forward") != "forward" or a.get("bias") is not None:
        raise a.error("has a bias or runs backwards, which the evaluator does not define")
    if (a.get("recurrent_activation"), a.get("activation")) != ("sigmoid", "tanh"):
        raise a.error("has other activations than sigmoid and tanh")
    inputs = a.step(F.linear(tensor(a["x"]), tensor(a["weight_ih"])).numpy())
    state, weight = a["initial_h"], np.ascontiguousarray(a["weight_hh"].T)
    half = a.dtypes[0] == np.float16
    states = []
    for row in inputs:
        of_input, of_state = np.split(row, 3, axis=1), np.split(a.step(state @ weight), 3, axis=1)
        reset = a.step(1 / (1 + np.exp(-(of_input[0] + of_state[0]))))
        new = a.step(np.tanh(of_input[1] + a.step(reset * of_state[1])))
        update = a.step(1 / (1 + np.exp(-(of_input[2] + of_state[2]))))
        state = (1 - update) * new + update * state
        state = to_half(state) if half and a.arithmetic != "fp32" else state
        states.append(state)
    sequence = np.stack(states) if bool(a.get("output_sequence", False)) else state[None]
    return [sequence, state]
