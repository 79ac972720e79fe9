"""The registry of MIL operations that the evaluator knows, and how an operation reads its arguments."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from hmerctl.targets.coreml.tools import CoreMlError

Arithmetic = Literal["declared", "stepwise", "fp32"]
Value = Any
"""np.ndarray (floats always float32), a list of them, str, or None for an argument that is not there."""


def tensor(x: np.ndarray) -> torch.Tensor:
    """A torch view of an array, or of a copy where it is not contiguous."""
    return torch.from_numpy(np.ascontiguousarray(x))


def to_half(x: np.ndarray) -> np.ndarray:
    """float32 rounded to the nearest float16 (ties to even, overflow to infinity), held in float32."""
    return tensor(x).half().float().numpy()


@dataclass(frozen=True)
class Arguments:
    """The evaluated inputs of one operation.

    Attributes:
        op_type, name: what the operation is, and what the package calls it.
        values: inputs by name, defaults filled in; None where an optional input is absent.
        shapes: declared shapes of the outputs.
        dtypes: declared numpy dtypes of the outputs.
        arithmetic: see ``hmerctl.targets.coreml.mil``.
    """

    op_type: str
    name: str
    values: dict[str, Value]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype, ...]
    arithmetic: Arithmetic

    def __getitem__(self, name: str) -> Value:
        """A required input. Raises CoreMlError when it is absent."""
        value = self.values.get(name)
        if value is None:
            raise self.error(f"has no input {name!r}")
        return value

    def get(self, name: str, default: Value = None) -> Value:
        """An optional input."""
        value = self.values.get(name)
        return default if value is None else value

    def number(self, name: str, default: float = 0.0) -> float:
        """An optional scalar."""
        return float(self.get(name, default))

    def integer(self, name: str, default: int = 0) -> int:
        """An optional integer scalar."""
        return int(self.get(name, default))

    def integers(self, name: str) -> list[int]:
        """A required list of integers."""
        return [int(i) for i in np.atleast_1d(self[name])]

    def flags(self, name: str, count: int) -> list[bool]:
        """An optional list of booleans, all False when absent."""
        value = self.get(name)
        return [False] * count if value is None else [bool(b) for b in np.atleast_1d(value)]

    def step(self, x: np.ndarray) -> np.ndarray:
        """The result of an inner step: rounded to float16 when evaluating a float16 operation stepwise."""
        return to_half(x) if self.stepwise and self.dtypes[0] == np.float16 else x

    @property
    def stepwise(self) -> bool:
        """Whether inner steps of composite operations are rounded."""
        return self.arithmetic == "stepwise"

    def error(self, what: str) -> CoreMlError:
        """An error that names this operation."""
        return CoreMlError(f"MIL operation {self.op_type} {self.name!r} {what}")


Operation = Callable[[Arguments], "np.ndarray | Sequence[np.ndarray]"]
OPERATIONS: dict[str, Operation] = {}
"""MIL operation type to the function that computes it; filled by elementwise, tensors, neural and compressed."""


def operation(*op_types: str) -> Callable[[Operation], Operation]:
    """Decorator: this function computes these MIL operation types."""

    def add(function: Operation) -> Operation:
        for op_type in op_types:
            OPERATIONS[op_type] = function
        return function

    return add
