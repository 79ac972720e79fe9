"""All rungs in order. Every check gives a finding: what could not run says so, and is no pass."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hmerctl.export.parity.device import check_samples
from hmerctl.export.parity.overflows import check_overflows
from hmerctl.export.parity.pictures import Picture
from hmerctl.export.parity.report import Finding, Tolerance, not_run
from hmerctl.export.parity.rewrites import check_rewrites
from hmerctl.export.parity.sequences import Progress, check_accuracy, check_sequences, decode_both
from hmerctl.export.parity.tensors import check_tensors
from hmerctl.export.reference import TorchEngine
from hmerctl.runtime.bundle import Bundle
from hmerctl.runtime.engine import Engine
from hmerctl.runtime.manifest import Level
from hmerctl.train.models.recognizer import Recognizer

_FROM_L1: tuple[Level, ...] = ("L1", "L2", "L3", "L4")


@dataclass(frozen=True)
class Evidence:
    """What the ladder compares with, and on what.

    Attributes:
        model: the checkpoint that the bundle was made from; None where it is not at hand.
        pictures: real ink.
        labelled: whether their tokens are the truth.
        missing: why ``model`` is None.
    """

    model: Recognizer | None
    pictures: Sequence[Picture] = field(default=(), repr=False)
    labelled: bool = False
    missing: str = "no checkpoint given"


def climb(
    bundle: Bundle,
    engine: Engine,
    evidence: Evidence,
    tolerance: Tolerance,
    stand_in: bool = False,
    progress: Progress = lambda pictures, _: pictures,
) -> list[Finding]:
    """Levels L1 to L5; L0 is the target's own.

    Args:
        bundle: what is verified.
        engine: runs it.
        tolerance: what its precision may cost.
        stand_in: whether ``engine`` is weaker than the device's own: what passes then says so.
        progress: draws a bar.
    """
    findings = check_samples(bundle, engine)
    padding = bundle.padding()
    if evidence.model is None or not evidence.pictures:
        reason = evidence.missing if evidence.model is None else "no ink to compare on: give a dataset with --data"
        findings += [not_run(level, "comparison with PyTorch", reason) for level in _FROM_L1]
    else:
        model, pictures = evidence.model.eval(), evidence.pictures
        findings += check_rewrites(model, pictures, padding.buckets)
        findings += check_tensors(
            TorchEngine(model),
            engine,
            pictures,
            padding,
            bundle.manifest.decoder.max_steps,
            tolerance,
            batched=all(component.inputs[0].shape[0] == "batch" for component in bundle.components("encoder")),
        )
        sequences = decode_both(model, engine, pictures, padding, bundle.manifest.decoder.max_steps, progress)
        findings.append(check_sequences(model, sequences, padding, tolerance))
        findings.append(check_accuracy(model, sequences, evidence.labelled, tolerance))
        findings += check_overflows(engine)
    if stand_in:
        findings = [
            replace(f, status="stand-in") if f.status == "passed" and f.level != "L1" else f for f in findings
        ]
    return sorted(findings, key=lambda f: f.level)
