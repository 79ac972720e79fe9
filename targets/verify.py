"""A bundle up the parity ladder, and the report into the bundle."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from hmerctl.export.bundle import tool_versions
from hmerctl.export.parity.ladder import Evidence, climb
from hmerctl.export.parity.pictures import pictures_of_dataset, pictures_of_samples
from hmerctl.export.parity.report import Finding, summarise
from hmerctl.export.parity.sequences import Progress
from hmerctl.export.source import Source
from hmerctl.runtime.bundle import Bundle, open_bundle, write_manifest
from hmerctl.runtime.errors import HmerError
from hmerctl.runtime.files import write_text
from hmerctl.runtime.manifest import ParityReport
from hmerctl.targets.base import find

REPORT_FILE = "parity.json"
"""Every single finding; the manifest holds the summary. Not a listed file: it is written after the bundle."""


class ParityError(HmerError):
    """A bundle cannot be verified against what it was given."""


@dataclass(frozen=True)
class Verification:
    """What the ladder found.

    Attributes:
        bundle: its id.
        engine: what ran it.
        findings: every check.
        report: the summary.
    """

    bundle: str
    engine: str
    findings: tuple[Finding, ...]
    report: ParityReport

    @property
    def verified(self) -> bool:
        """See ``ParityReport.verified``."""
        return self.report.verified


def verify_bundle(
    path: Path,
    source: Source | None = None,
    data: Path | None = None,
    progress: Progress = lambda pictures, _: pictures,
    missing: str = "no checkpoint given",
    limit: int | None = None,
) -> Verification:
    """Climb the ladder.

    Args:
        path: the bundle.
        source: the checkpoint it was made from; without one the levels from L1 to L4 cannot run.
        data: a dataset folder to compare on; None for the bundle's own samples.
        progress: draws a bar.
        missing: why there is no ``source``.
        limit: compare on about so many expressions of ``data`` only; the report counts them.

    Raises:
        ParityError: the bundle was made from another checkpoint.
        HmerError: the bundle or its engine cannot be loaded.
    """
    bundle = open_bundle(path)
    _same_checkpoint(bundle, source)
    target = find(bundle.manifest.target.name)
    engine = target.load(bundle)
    spec = bundle.manifest.preprocessing
    pictures = pictures_of_dataset(data, spec, limit) if data is not None else pictures_of_samples(bundle)
    evidence = Evidence(source.model if source else None, pictures, data is not None, missing)
    findings = target.check(bundle) + climb(
        bundle, engine, evidence, target.tolerance(bundle.manifest.target.precision), target.stand_in(), progress
    )
    tools = tool_versions() | {
        "compared on": f"{len(pictures)} expressions of {data.name if data else 'its samples'}"
    }
    report = summarise(findings, bundle.manifest.files_sha256, engine.name, tools)
    return Verification(bundle.manifest.bundle_id, engine.name, tuple(findings), report)


def write_report(path: Path, verification: Verification) -> None:
    """Put the report into the bundle at ``path``: every finding into ``parity.json``, the summary into the manifest.

    Raises:
        ParityError: the bundle is a zip, or has changed since it was verified.
    """
    if not path.is_dir():
        raise ParityError(f"{path}: is not a folder, so the report cannot be written into it; unpack it first")
    manifest = open_bundle(path).manifest
    if manifest.files_sha256 != verification.report.files_sha256:
        raise ParityError(f"{path}: has changed while it was verified; verify it again")
    rows = {"bundle": verification.bundle, "findings": [asdict(f) for f in verification.findings]}
    write_text(path / REPORT_FILE, json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
    write_manifest(path, manifest.model_copy(update={"parity": verification.report}))


def _same_checkpoint(bundle: Bundle, source: Source | None) -> None:
    made_from = bundle.manifest.model.checkpoint_sha256
    if source is not None and made_from is not None and source.sha256 != made_from:
        raise ParityError(
            f"{bundle.name}: was made from another checkpoint (sha256 {made_from[:12]}, not "
            f"{(source.sha256 or 'unsaved')[:12]}); export it anew or name its own with --checkpoint"
        )
