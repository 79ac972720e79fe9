"""The evaluator behind the interface that devices use: runs a bundle's float16 or int8 ONNX graphs as they state."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from hmerctl.export.evaluate16 import Evaluator, Overflow
from hmerctl.runtime.bundle import Bundle
from hmerctl.runtime.engines.onnx import OnnxEngine
from hmerctl.runtime.manifest import Component

_TYPES: dict[int, str] = {onnx.TensorProto.FLOAT: "tensor(float)", onnx.TensorProto.FLOAT16: "tensor(float16)"}
_TYPES |= {onnx.TensorProto.INT32: "tensor(int32)"}


@dataclass(frozen=True)
class Port:
    """An input or output, as onnxruntime describes it."""

    name: str
    type: str
    shape: list[int | str]


class EvaluatorSession:
    """``Evaluator`` with the three methods of ``onnxruntime.InferenceSession`` that engines use.

    Attributes:
        overflows: of all runs, the first of each tensor.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.evaluator = Evaluator(model)
        self.overflows: dict[str, Overflow] = {}
        self._inputs = [_port(value) for value in model.graph.input]
        self._outputs = [_port(value) for value in model.graph.output]

    def get_inputs(self) -> list[Port]:
        """Inputs in graph order."""
        return self._inputs

    def get_outputs(self) -> list[Port]:
        """Outputs in graph order."""
        return self._outputs

    def run(self, names: list[str] | None, feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Outputs by name, or all of them."""
        results = self.evaluator.run(feed)
        for overflow in self.evaluator.overflows:
            self.overflows.setdefault(overflow.tensor, overflow)
        return [results[name] for name in names or results]


class EvaluatorEngine(OnnxEngine):
    """See ``hmerctl.runtime.engine.Engine``. Slow; one thread at a time."""

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle, encoder_threads=1, step_threads=1)
        self.name = "hmerctl float16 evaluator"

    def _load(self, component: Component) -> Any:
        return EvaluatorSession(onnx.load(self.bundle.file(component.file), load_external_data=False))

    @property
    def overflows(self) -> list[Overflow]:
        """Everything that left the range of float16 since the engine was made."""
        return [o for session in self._sessions.values() for o in session.overflows.values()]


def _port(value: onnx.ValueInfoProto) -> Port:
    tensor = value.type.tensor_type
    shape = [d.dim_param or d.dim_value for d in tensor.shape.dim]
    return Port(value.name, _TYPES.get(tensor.elem_type, str(tensor.elem_type)), shape)
