"""An evaluator for saved Core ML packages: reads a .mlpackage back and computes its MIL program op by op.

Off a Mac this stands in for Core ML. It reads what an app would ship (the specification and the weight file, not the
converter's memory), so it proves the graph and the weights; it does not prove Apple's runtime.

Arithmetic:
    ``declared``: every operation reads its inputs in their declared type, computes in float32, and its result is
        rounded to the declared type once: a float16 operation has float16 inputs, sums in float32 and gives float16,
        overflow becoming infinity.
    ``stepwise``: the same, and composite operations (layer_norm, softmax, gelu, means, attention) also round each of
        their inner steps: the most pessimistic reading of a float16 unit, for overflow checks.
    ``fp32``: float16 declarations are read as float32, so that only the rounding of weights is left.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hmerctl.targets.coreml import compressed, elementwise, neural, tensors  # noqa: F401  (they register operations)
from hmerctl.targets.coreml.operations import OPERATIONS, Arguments, Arithmetic, Value, to_half
from hmerctl.targets.coreml.tools import CoreMlError, coremltools, one_line

MINIMUM_IOS = {6: "15", 7: "16", 8: "17", 9: "18"}
"""Specification version of a package to the first iOS that loads it (coremltools' AvailableTarget)."""


@dataclass(frozen=True)
class TensorType:
    """Shape and numpy dtype of an input or output, as declared."""

    shape: tuple[int, ...]
    dtype: np.dtype


@dataclass(frozen=True)
class OperationInfo:
    """One operation of a function as declared.

    Attributes:
        op_type, name: what it is, and what the package calls it.
        reads: types of the tensors it reads by argument name, constants included; lists by their elements.
        constants: which of ``reads`` are constants.
        gives: types of its results.
    """

    op_type: str
    name: str
    reads: tuple[tuple[str, TensorType], ...]
    constants: frozenset[str]
    gives: tuple[TensorType, ...]


class MilPackage:
    """A saved .mlpackage.

    Attributes:
        path: the package folder.
        specification: its specification version (see MINIMUM_IOS).
        functions: names of its functions, in order.
        metadata: the strings that its maker left in it.
    """

    def __init__(self, path: Path) -> None:
        """Read the specification; weights are read when a function is.

        Raises:
            CoreMlError: not a package, or not an ML program.
        """
        self.path = Path(path)
        model = self.path / "Data" / "com.apple.CoreML" / "model.mlmodel"
        if not model.is_file():
            raise CoreMlError(f"{self.path}: not a Core ML package (no {model.name} in it); export it again")
        coremltools()
        from coremltools.proto import Model_pb2

        # Parsed here: coremltools' own reader writes to the package that it reads (it renews Manifest.json).
        self._spec = Model_pb2.Model()
        try:
            self._spec.ParseFromString(model.read_bytes())
        except Exception as error:
            raise CoreMlError(f"{model}: unreadable ({one_line(error)}); export it again") from error
        if self._spec.WhichOneof("Type") != "mlProgram":
            raise CoreMlError(f"{model}: not an ML program but {self._spec.WhichOneof('Type')}; export it again")
        self._weights = model.parent / "weights"
        self.specification: int = self._spec.specificationVersion
        self.metadata: dict[str, str] = dict(self._spec.description.metadata.userDefined)
        described = [function.name for function in self._spec.description.functions]
        self.functions: tuple[str, ...] = tuple(described or self._spec.mlProgram.functions)

    def function(self, name: str | None = None, arithmetic: Arithmetic = "declared") -> "MilFunction":
        """A function, ready to be computed.

        Args:
            name: one of ``functions``; may be left out when there is only one.
            arithmetic: see the module's documentation.

        Raises:
            CoreMlError: no such function, a weight that is missing, a shape that does not fit, or an operation that
                the evaluator does not know.
        """
        if name is None and len(self.functions) == 1:
            name = self.functions[0]
        if name not in self._spec.mlProgram.functions:
            raise CoreMlError(f"{self.path}: no function {name!r}; it has {', '.join(self.functions)}")
        coremltools()
        from coremltools.converters.mil.frontend.milproto.load import load_mil_proto
        from coremltools.proto import MIL_pb2

        # Only the function that is asked for: all of them would hold their weights as often.
        program = MIL_pb2.Program(version=self._spec.mlProgram.version)
        program.functions[name].CopyFrom(self._spec.mlProgram.functions[name])
        try:
            loaded = load_mil_proto(program, self.specification, str(self._weights)).functions[name]
        except Exception as error:
            raise CoreMlError(f"{self.path}: function {name!r} does not load: {one_line(error)}") from error
        return MilFunction(f"{self.path.name}:{name}", loaded, arithmetic)


class MilFunction:
    """One function of a package.

    Attributes:
        inputs, outputs: declared types by name, in order.
        operations: every operation but constants and weights, in order.
        largest: by name, the largest magnitude of each constant of floats.
        overflows: operations of the last call whose result is not finite although what they read was.
    """

    def __init__(self, label: str, function: Any, arithmetic: Arithmetic) -> None:
        self.label, self.arithmetic = label, arithmetic
        self.inputs = {name: _type(var) for name, var in function.inputs.items()}
        self.outputs = {var.name: _type(var) for var in function.outputs}
        self.overflows: list[str] = []
        self._constants: dict[str, Value] = {}
        self._steps: list[_Step] = []
        for op in function.operations:
            self._add(op)
        self.operations = tuple(step.info for step in self._steps)
        self.largest = {
            name: float(np.abs(value).max())
            for name, value in self._constants.items()
            if isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.size
        }
        self._free_early()

    def _add(self, op: Any) -> None:
        if op.op_type == "const":
            self._constants[op.outputs[0].name] = _constant(op.outputs[0].val)
            return
        if op.op_type not in OPERATIONS or op.blocks:
            raise CoreMlError(f"{self.label}: MIL operation {op.op_type} {op.name!r} is not one the evaluator knows")
        step = _Step(op, self._constants)
        if op.op_type.startswith("constexpr_"):
            # Weights unfold once, at load, in float32; Core ML too gives them in the declared type.
            self._constants.update(self._results(step, self._constants))
        else:
            self._steps.append(step)

    def _free_early(self) -> None:
        """Note after which step each intermediate value is last read."""
        kept = set(self.outputs)
        seen: set[str] = set()
        for step in reversed(self._steps):
            step.names = tuple({name for names in step.reads.values() for name in names} - set(self._constants))
            step.last = tuple(set(step.names) - seen - kept)
            seen |= set(step.names)

    def __call__(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Compute.

        Args:
            inputs: every declared input by name, in its declared shape; floats in any float dtype.

        Returns:
            outputs by name, floats as float32 whatever their declared type.

        Raises:
            CoreMlError: an input is missing, unknown or of the wrong shape; a result has not its declared shape.
        """
        values: dict[str, Value] = {}
        self.overflows = []
        if set(inputs) != set(self.inputs):
            raise CoreMlError(f"{self.label} takes {sorted(self.inputs)}, not {sorted(inputs)}")
        for name, declared in self.inputs.items():
            values[name] = self._fit(f"input {name!r}", np.asarray(inputs[name]), declared)
        with np.errstate(all="ignore"):
            for step in self._steps:
                results = self._results(step, values)
                if not all(_finite(x) for x in results.values()) and all(_finite(values.get(n)) for n in step.names):
                    self.overflows.append(f"{step.op_type} {step.name!r}")
                values.update(results)
                for name in step.last:
                    values.pop(name, None)
        found = {name: values.get(name, self._constants.get(name)) for name in self.outputs}
        return {name: np.ascontiguousarray(value) for name, value in found.items()}

    def _results(self, step: "_Step", values: dict[str, Value]) -> dict[str, Value]:
        def read(name: str) -> Value:
            return values[name] if name in values else self._constants[name]

        arguments: dict[str, Value] = {
            key: [read(name) for name in names] if key in step.lists else read(names[0])
            for key, names in step.reads.items()
        }
        call = Arguments(step.op_type, step.name, arguments, step.shapes, step.dtypes, self.arithmetic)
        try:
            results = OPERATIONS[step.op_type](call)
        except (ValueError, RuntimeError) as error:
            raise CoreMlError(f"{self.label}: {step.op_type} {step.name!r} fails: {one_line(error)}") from error
        several = results if isinstance(results, list) else [results]
        if len(several) != len(step.outputs):
            raise CoreMlError(f"{self.label}: {step.op_type} {step.name!r} gives {len(several)} results")
        return {
            name: self._fit(f"{step.op_type} {step.name!r}", np.asarray(result), TensorType(shape, dtype))
            for name, result, shape, dtype in zip(step.outputs, several, step.shapes, step.dtypes, strict=True)
        }

    def _fit(self, what: str, value: np.ndarray, declared: TensorType) -> np.ndarray:
        """The value in its declared shape and precision."""
        if value.shape != declared.shape:
            raise CoreMlError(f"{self.label}: {what} has shape {value.shape}, declared {declared.shape}")
        if declared.dtype.kind == "f":
            value = value.astype(np.float32, copy=False)
            return to_half(value) if declared.dtype == np.float16 and self.arithmetic != "fp32" else value
        if declared.dtype.kind in "iu" and value.dtype != declared.dtype and value.size:
            limits = np.iinfo(declared.dtype)
            if value.min() < limits.min or value.max() > limits.max:
                raise CoreMlError(f"{self.label}: {what} does not fit {declared.dtype}")
        return value.astype(declared.dtype, copy=False)


class _Step:
    """One operation: what it reads and what it declares to give.

    ``names`` are the values it reads that are not constants; ``last`` those that no later operation reads.
    """

    def __init__(self, op: Any, constants: dict[str, Value]) -> None:
        self.op_type, self.name = op.op_type, op.name
        self.reads: dict[str, list[str]] = {}
        self.lists: set[str] = set()
        for key, var in op.inputs.items():
            if isinstance(var, list | tuple):
                self.lists.add(key)
            self.reads[key] = [v.name for v in var] if key in self.lists else [var.name]
        types = [_type(var) for var in op.outputs]
        variables = [(key, v) for key, var in op.inputs.items() for v in (var if key in self.lists else [var])]
        self.info = OperationInfo(
            op.op_type,
            op.name,
            tuple((key, _type(var)) for key, var in variables if var.dtype is not _string()),
            frozenset(key for key, var in variables if var.name in constants),
            tuple(types),
        )
        self.outputs = [var.name for var in op.outputs]
        self.shapes = tuple(t.shape for t in types)
        self.dtypes = tuple(t.dtype for t in types)
        self.names: tuple[str, ...] = ()
        self.last: tuple[str, ...] = ()


def _string() -> Any:
    from coremltools.converters.mil.mil import types

    return types.str


def _type(var: Any) -> TensorType:
    from coremltools.converters.mil.mil import types

    if any(not isinstance(size, int | np.integer) for size in var.shape):
        raise CoreMlError(f"{var.name!r} has a shape that is not fixed: {var.shape}")
    return TensorType(tuple(int(n) for n in var.shape), np.dtype(types.nptype_from_builtin(var.dtype)))


def _constant(value: Value) -> Value:
    """A constant as operations read it: floats in float32, strings and integers as they are."""
    if isinstance(value, str):
        return value
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype.kind == "f" else array


def _finite(value: Value) -> bool:
    return not isinstance(value, np.ndarray) or value.dtype.kind != "f" or bool(np.isfinite(value).all())
