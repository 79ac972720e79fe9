"""From a checkpoint to a bundle for a target, and from a bundle to its parity report."""

from collections.abc import Sequence
from pathlib import Path

from hmerctl.export.bundle import write_bundle
from hmerctl.export.source import Source
from hmerctl.runtime.ink import Ink
from hmerctl.runtime.manifest import Manifest, TargetInfo
from hmerctl.targets.base import Plan, Target, TargetError, require

SUFFIX = ".hmer"


def make_plan(source: Source, target: Target, precision: str | None = None) -> Plan:
    """The plan for a precision (None: the target's default).

    Raises:
        TargetError: unknown precision.
    """
    return target.plan(source, target.choose_precision(precision))


def bundle_path(out: Path, source: Source, plan: Plan) -> Path:
    """Where a bundle goes: ``out`` itself if it is named ``*.hmer``, else a folder of the usual name in it."""
    name = f"{source.info.name}-{plan.target}-{plan.precision}{SUFFIX}"
    return out if out.suffix == SUFFIX else out / name


def export_bundle(source: Source, target: Target, plan: Plan, path: Path, samples: Sequence[Ink]) -> Manifest:
    """Build a plan into a bundle at ``path``.

    Raises:
        TargetError: the target refuses the model, or something that it needs to build is missing.
        HmerError: the build failed.
    """
    if plan.refusal:
        raise TargetError(f"{plan.target} {plan.precision} cannot take {source.info.name}: {plan.refusal}")
    require(target.requirements(), "build")
    info = TargetInfo(
        name=plan.target, precision=plan.precision, opset=plan.opset, minimum_runtime=plan.minimum_runtime
    )
    return write_bundle(path, source, info, lambda folder: target.build(source, plan, folder), plan.padding, samples)
