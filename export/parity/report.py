"""Findings of the parity ladder: what was checked, what came out, and what it may be at most."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hmerctl.runtime.manifest import Level, ParityLevel, ParityReport, Status

LEVELS: tuple[Level, ...] = ("L0", "L1", "L2", "L3", "L4", "L5")


@dataclass(frozen=True)
class Finding:
    """One check.

    Attributes:
        level: rung of the ladder.
        check: what was compared, in a few words; unique within its level.
        status: ``stand-in``: passed on something weaker than the device's own engine; ``not-run`` is no pass.
        value, bound: the measured number and its limit, where the check has one.
        detail: one line: which element is worst, why it failed, or why it did not run.
    """

    level: Level
    check: str
    status: Status
    value: float | None = None
    bound: float | None = None
    detail: str = ""


@dataclass(frozen=True)
class Tolerance:
    """What a precision may cost; None: not asked of it.

    Attributes:
        max_abs: largest difference of any number (L2).
        snr_db: lowest signal-to-noise ratio, decibels (L2).
        beyond_db: lowest signal-to-noise ratio of steps after a label's end, where a decoder says nothing that is
            kept, but which show whether its tables and caches are right to the last row (L2).
        top1: lowest share of teacher-forced steps with the same most probable token (L2).
        sequences: lowest share of expressions with the same greedy tokens (L3).
        exprate: largest loss of ExpRate, points (L4).
    """

    max_abs: float | None = None
    snr_db: float | None = None
    beyond_db: float | None = None
    top1: float = 1.0
    sequences: float = 1.0
    exprate: float = 0.0


TOLERANCES = {
    "fp32": Tolerance(max_abs=1e-4),
    "fp16": Tolerance(snr_db=40.0, beyond_db=20.0, top1=0.998, sequences=0.98, exprate=0.1),
    "int8": Tolerance(snr_db=15.0, top1=0.98, sequences=0.9, exprate=0.5),
}
"""By precision; a target may have its own, see ``Target.tolerance``."""


def at_most(level: Level, check: str, value: float, bound: float, detail: str = "") -> Finding:
    """Passed if ``value <= bound``; a value that is not a number fails."""
    return Finding(level, check, "passed" if value <= bound else "failed", value, bound, detail)


def at_least(level: Level, check: str, value: float, bound: float, detail: str = "") -> Finding:
    """Passed if ``value >= bound``; a value that is not a number fails."""
    return Finding(level, check, "passed" if value >= bound else "failed", value, bound, detail)


def holds(level: Level, check: str, right: bool, detail: str = "") -> Finding:
    """Passed if ``right``."""
    return Finding(level, check, "passed" if right else "failed", detail=detail)


def not_run(level: Level, check: str, reason: str) -> Finding:
    """A check that could not run here, and why."""
    return Finding(level, check, "not-run", detail=reason)


def failed(findings: Iterable[Finding]) -> list[Finding]:
    """The findings that failed."""
    return [finding for finding in findings if finding.status == "failed"]


def summarise(
    findings: Sequence[Finding], files_sha256: str, engine: str, tools: dict[str, str] | None = None
) -> ParityReport:
    """The report for a manifest: one entry a level, in order.

    A level fails with any of its checks; it is a stand-in if any check was; it is ``not-run`` where no check ran.

    Args:
        findings: of all levels.
        files_sha256: see ``ParityReport``.
        engine: what computed the levels from L2 on.
        tools: versions by name.
    """
    levels = tuple(_level(level, [f for f in findings if f.level == level], engine) for level in LEVELS)
    return ParityReport(files_sha256=files_sha256, levels=levels, tools=tools or {})


def _level(level: Level, findings: list[Finding], engine: str) -> ParityLevel:
    by_status = {status: [f for f in findings if f.status == status] for status in ("failed", "stand-in", "passed")}
    ran = sum(len(group) for group in by_status.values())
    skipped = [f for f in findings if f.status == "not-run"]
    order: tuple[Status, ...] = ("failed", "stand-in", "passed")
    status: Status = next((status for status in order if by_status[status]), "not-run")
    parts = [f"{ran} checks"] if ran else []
    parts += [f"FAILED {f.check}: {f.detail}".rstrip(": ") for f in by_status["failed"][:3]]
    parts += [f"not run: {f.check} ({f.detail})" for f in skipped]
    figures: dict[str, float] = {}
    for finding in findings:
        if finding.value is not None:
            figures[finding.check] = finding.value
        if finding.bound is not None:
            figures[f"{finding.check}, bound"] = finding.bound
    return ParityLevel(
        level=level,
        status=status,
        engine=engine if level not in ("L0", "L1") else {"L0": "graph inspection", "L1": "PyTorch"}[level],
        detail="; ".join(parts) or "no check of this level",
        figures=figures,
    )
