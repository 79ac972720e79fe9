"""Level L0 for Core ML bundles: operations, limits, and that the packages are those of the manifest."""

import math
from collections import Counter

from hmerctl.export.parity.description import expected_metadata, metadata_fault, ports_fault
from hmerctl.export.parity.report import Finding, holds, not_run
from hmerctl.export.precision import FLOAT16_MAX
from hmerctl.runtime.bundle import Bundle
from hmerctl.runtime.manifest import Component, TensorSpec
from hmerctl.targets.coreml.engine import on_a_mac
from hmerctl.targets.coreml.mil import MINIMUM_IOS, MilFunction, MilPackage, TensorType
from hmerctl.targets.coreml.neural_engine import RULES, Estimate, estimate
from hmerctl.targets.coreml.placement import placement
from hmerctl.targets.coreml.tools import CoreMlError

HIGHEST_RANK = 5
"""Of any tensor in an ML program."""


def check_bundle(bundle: Bundle) -> list[Finding]:
    """All checks on all components; a component that cannot be read fails with the reader's words."""
    findings: list[Finding] = []
    estimates: dict[str, tuple[float, Component, Estimate]] = {}
    for component in bundle.manifest.components:
        try:
            package = MilPackage(bundle.file(component.file))
            function = package.function(component.function or "main")
        except CoreMlError as error:
            findings.append(holds("L0", f"{component.name}: readable, known operations", False, str(error)))
            continue
        findings += check_function(bundle, component, package, function)
        found = estimate(function)
        share = found.eligible_work / max(found.work, 1)
        if component.role not in estimates or share < estimates[component.role][0]:
            estimates[component.role] = share, component, found
    return findings + [_placement(bundle, component, found) for _, component, found in estimates.values()]


def _placement(bundle: Bundle, component: Component, found: Estimate) -> Finding:
    """What runs where: asked of Core ML on a Mac, elsewhere an estimate, which is no pass."""
    check = f"{component.role} placement"
    if not on_a_mac():
        return not_run("L0", check, f"no Core ML here; estimate for {component.name}: {found}")
    try:
        units = placement(bundle.file(component.file), component.function)
    except CoreMlError as error:
        return holds("L0", check, False, str(error))
    counts = ", ".join(f"{count} on {unit}" for unit, count in sorted(units.items()))
    return holds("L0", check, True, f"{component.name} by Core ML's plan: {counts} (estimated before: {found})")


def check_function(bundle: Bundle, component: Component, package: MilPackage, function: MilFunction) -> list[Finding]:
    """The checks on one component."""
    checks = [
        ("operations", _operations(function)),
        (f"rank at most {HIGHEST_RANK}", _ranks(function)),
        ("inputs as in the manifest", ports_fault(_specs(function.inputs), component.inputs)),
        ("outputs as in the manifest", ports_fault(_specs(function.outputs), component.outputs)),
        ("constants finite and within float16", _constants(function)),
        ("oldest system as in the manifest", _system(package, bundle.manifest.target.minimum_runtime)),
        ("metadata as in the manifest", metadata_fault(package.metadata, expected_metadata(bundle, component))),
    ]
    return [holds("L0", f"{component.name}: {check}", not fault, fault) for check, fault in checks]


def _operations(function: MilFunction) -> str:
    other = Counter(op.op_type for op in function.operations if op.op_type not in RULES)
    return ", ".join(f"{count} x {name}" for name, count in sorted(other.items()))


def _ranks(function: MilFunction) -> str:
    high = [
        f"{op.op_type} {op.name!r} has rank {len(tensor.shape)}"
        for op in function.operations
        for tensor in op.gives
        if len(tensor.shape) > HIGHEST_RANK
    ]
    return ", ".join(high[:3])


def _specs(tensors: dict[str, TensorType]) -> list[TensorSpec]:
    """Inputs or outputs as a manifest describes them."""
    return [TensorSpec.model_construct(name=n, dtype=t.dtype.name, shape=t.shape) for n, t in tensors.items()]


def _constants(function: MilFunction) -> str:
    faults = [f"{name} reaches {value}" for name, value in function.largest.items() if not value <= FLOAT16_MAX]
    return ", ".join(faults[:3])


def _system(package: MilPackage, minimum: dict[str, str]) -> str:
    needs = MINIMUM_IOS.get(package.specification, "a later one")
    promised = minimum.get("iOS", str(math.inf))
    return "" if needs == promised else f"specification {package.specification} needs iOS {needs}, not {promised}"
