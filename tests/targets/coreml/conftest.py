"""Small Core ML packages made on the spot, and packages broken on purpose."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hmerctl.targets.coreml.convert import quiet
from hmerctl.targets.coreml.tools import coremltools

pytest.importorskip("coremltools", reason="coremltools is not installed: pip install 'hmerctl[export]'")


@pytest.fixture(scope="session")
def save_program() -> Callable[..., Path]:
    """``save_program(path, inputs, body, ios=18)``: save a MIL program just as it is written, without graph passes.

    ``inputs`` are example arrays by name; ``body`` takes the inputs by name and returns the outputs by name.
    """
    ct = coremltools()
    from coremltools.converters.mil import Builder as mb  # noqa: N813
    from coremltools.converters.mil.mil import Function, Program, types

    kinds = {"float32": types.fp32, "float16": types.fp16, "int32": types.int32}

    def save(path: Path, inputs: dict[str, np.ndarray], body: Callable[..., dict], ios: int = 18) -> Path:
        target = getattr(ct.target, f"iOS{ios}")
        placeholders = {name: mb.placeholder(shape=x.shape, dtype=kinds[str(x.dtype)]) for name, x in inputs.items()}
        program = Program()
        with Function(placeholders, opset_version=target) as function:
            results = body(**function.inputs)
            function.set_outputs([mb.identity(x=var, name=name) for name, var in results.items()])
        program.add_function("main", function)
        with quiet():
            model = ct.convert(
                program,
                convert_to="mlprogram",
                minimum_deployment_target=target,
                compute_precision=ct.precision.FLOAT32,
                pass_pipeline=ct.PassPipeline.EMPTY,
                skip_model_load=True,
            )
        model.save(str(path))
        return path

    return save


@pytest.fixture(scope="session")
def edit() -> Callable[[Path, Callable[[Any], None]], None]:
    """``edit(package, change)``: read a saved package's specification, change it in place, write it back."""
    coremltools()
    from coremltools.proto import Model_pb2

    def run(package: Path, change: Callable[[Any], None]) -> None:
        file = package / "Data" / "com.apple.CoreML" / "model.mlmodel"
        spec = Model_pb2.Model()
        spec.ParseFromString(file.read_bytes())
        change(spec)
        file.write_bytes(spec.SerializeToString())

    return run
