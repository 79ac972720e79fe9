"""On a Mac: where Core ML would run each operation, by its own compute plan."""

import shutil
from collections import Counter
from pathlib import Path

from hmerctl.targets.coreml.tools import CoreMlError, coremltools, one_line

UNITS = {
    "MLCPUComputeDevice": "CPU",
    "MLGPUComputeDevice": "GPU",
    "MLNeuralEngineComputeDevice": "Neural Engine",
}


def placement(package: Path, function: str | None) -> dict[str, int]:
    """Operations of a function by the compute unit that Core ML prefers for them, all units allowed.

    Constants, which have no unit, are not counted.

    Raises:
        CoreMlError: Core ML cannot compile the package, or this is not a Mac.
    """
    ct = coremltools()
    try:
        compiled = ct.utils.compile_model(str(package))
        try:
            plan = ct.models.compute_plan.MLComputePlan.load_from_path(compiled, compute_units=ct.ComputeUnit.ALL)
            operations = plan.model_structure.program.functions[function or "main"].block.operations
            usages = [plan.get_compute_device_usage_for_mlprogram_operation(operation) for operation in operations]
        finally:
            shutil.rmtree(compiled, ignore_errors=True)
    except Exception as error:
        raise CoreMlError(
            f"{package.name}: Core ML gives no compute plan ({one_line(error)}); see the limits page"
        ) from error
    names = [type(usage.preferred_compute_device).__name__ for usage in usages if usage is not None]
    return dict(Counter(UNITS.get(name, name) for name in names))
