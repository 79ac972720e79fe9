"""PyTorch operations that coremltools would translate badly, translated here instead while a graph is converted."""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from hmerctl.targets.coreml.tools import coremltools


@contextlib.contextmanager
def lowering() -> Iterator[None]:
    """Within this context coremltools translates ``log_softmax``, ``gru`` and ``matmul`` as this module says."""
    coremltools()
    from coremltools.converters.mil.frontend.torch.torch_op_registry import _TORCH_OPS_REGISTRY

    ours = {"log_softmax": _log_softmax, "gru": _gru, "matmul": _matmul}
    original = {name: _TORCH_OPS_REGISTRY.get_func(name) for name in ours}
    for name, function in ours.items():
        _TORCH_OPS_REGISTRY.set_func_by_name(function, name)
    try:
        yield
    finally:
        for name, function in original.items():
            _TORCH_OPS_REGISTRY.set_func_by_name(function, name)


def _log_softmax(context: Any, node: Any) -> None:
    """``x - max - log(sum(exp(x - max)))``.

    coremltools writes log(softmax(x)), which is -inf in float16 for probabilities below 6e-8. MIL's
    reduce_log_sum_exp overflows on the Neural Engine from x = 7.6 on (apple/coremltools#2690).
    """
    from coremltools.converters.mil import Builder as mb  # noqa: N813
    from coremltools.converters.mil.frontend.torch.ops import _get_inputs

    inputs = _get_inputs(context, node, min_expected=2)
    x, axes = inputs[0], [int(inputs[1].val)]
    shifted = mb.sub(x=x, y=mb.reduce_max(x=x, axes=axes, keep_dims=True))
    total = mb.log(x=mb.reduce_sum(x=mb.exp(x=shifted), axes=axes, keep_dims=True))
    context.add(mb.sub(x=shifted, y=total, name=node.name))


def _matmul(context: Any, node: Any) -> None:
    """A matrix times a vector as a matrix of one column, which coremltools does not do by itself."""
    from coremltools.converters.mil import Builder as mb  # noqa: N813
    from coremltools.converters.mil.frontend.torch.ops import _get_inputs, matmul

    x, y = _get_inputs(context, node, expected=2)
    if y.rank > 1 or x.rank < 2:
        matmul(context, node)
        return
    column = mb.matmul(x=x, y=mb.expand_dims(x=y, axes=[1]))
    context.add(mb.squeeze(x=column, axes=[x.rank - 1], name=node.name))


HOLD = 100.0
"""sigmoid(100) is 1 in float16 and float32: an update gate that never lets go."""


def _gru(context: Any, node: Any) -> None:
    """MIL's native ``gru``; coremltools unfolds a while_loop because the two differ in one bias.

    PyTorch's new gate is ``tanh(W_in x + b_in + r * (W_hn h + b_hn))``; MIL's has no bias within the brackets, and
    its documents do not say plainly where the other one stands. So there are no biases at all here: the input gets
    an element that is always 1, and so does the state, whose update gate is held at 1. The weights' extra columns
    are the biases. One layer, one direction, as the models' scans are.
    """
    from coremltools.converters.mil import Builder as mb  # noqa: N813
    from coremltools.converters.mil.frontend.torch.ops import _get_inputs

    inputs = _get_inputs(context, node, expected=9)
    x, start, weights = inputs[0], inputs[1], [weight.val for weight in inputs[2]]
    has_bias, layers, bidirectional, batch_first = (inputs[i].val for i in (3, 4, 7, 8))
    if not has_bias or layers != 1 or bidirectional or batch_first or start.val is None or np.any(start.val):
        raise ValueError("a GRU must have biases, one layer, one direction, cells first, and start at zero")
    of_input, of_state, input_bias, state_bias = weights
    length, batch, width = x.shape[0], x.shape[1], of_state.shape[1]

    def gates(matrix: np.ndarray, bias: np.ndarray, rows: int) -> np.ndarray:
        """Gates in MIL's order r, n, z, the bias as last column, and ``rows`` further rows of zeros each."""
        whole = np.concatenate([matrix, bias[:, None]], axis=1)
        reset, update, new = (np.pad(part, ((0, rows), (0, 0))) for part in np.split(whole, 3))
        return np.concatenate([reset, new, update])

    weight_ih, weight_hh = gates(of_input, input_bias, 1), gates(of_state, state_bias, 1)
    weight_hh[-1, -1] = HOLD  # update gate of the state's constant element, which it reads itself
    ones = mb.fill(shape=[length, batch, 1], value=1.0)
    states, last = mb.gru(
        x=mb.concat(values=[x, ones], axis=2),
        initial_h=np.pad(np.zeros((batch, width), np.float32), ((0, 0), (0, 1)), constant_values=1.0),
        weight_ih=weight_ih.astype(np.float32),
        weight_hh=weight_hh.astype(np.float32),
        output_sequence=True,
    )
    context.add(mb.slice_by_size(x=states, begin=[0, 0, 0], size=[-1, -1, width], name=node.outputs[0]))
    kept = mb.slice_by_size(x=last, begin=[0, 0], size=[-1, width])
    context.add(mb.expand_dims(x=kept, axes=[0], name=node.outputs[1]), node.outputs[1])
