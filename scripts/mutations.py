"""The table of faults that the parity ladder catches, into docs/export.md.

    python scripts/mutations.py

Exports a small random model, puts each fault of tests/support/faults.py into a copy of the bundle, climbs the
ladder, and writes which levels failed between ``<!-- mutations: by scripts/mutations.py -->`` and ``<!-- end -->``,
by the bounds of fp32 and by those of fp16 and int8. A fault that nothing catches by the bounds of fp32 is exit code
1. Minutes of one core.
"""

import sys
import tempfile
from pathlib import Path

from card import filled

from hmerctl.export.parity.report import failed
from hmerctl.runtime.bundle import open_bundle
from hmerctl.runtime.files import write_text
from hmerctl.targets.base import find
from hmerctl.targets.build import export_bundle, make_plan

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "export.md"


def main() -> None:
    """See the module."""
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    from faults import MUTATIONS, PRECISIONS, findings_of, mutated_bundle, row
    from tiny import tiny_ink, tiny_source

    source, target = tiny_source(), find("onnx")
    inks = [tiny_ink(1, 2), tiny_ink(2, 4), tiny_ink(3, 7)]
    rows, missed = [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "right.hmer"
        export_bundle(source, target, make_plan(source, target), path, inks)
        for i, mutation in enumerate(MUTATIONS):
            mutated = mutated_bundle(open_bundle(path), Path(folder) / f"{i}.hmer", mutation)
            findings = {precision: findings_of(mutated, source, precision) for precision in PRECISIONS}
            rows.append(row(mutation, findings))
            print(rows[-1], flush=True)
            if not failed(findings["fp32"]):
                missed.append(mutation.what)
    header = "| fault | failed levels | first check that failed | by the bounds of fp16 | of int8 |"
    table = "\n".join([header, "|---|---|---|---|---|", *rows])
    write_text(PAGE, filled(PAGE.read_text(encoding="utf-8"), {"mutations": table}, "scripts/mutations.py"))
    if missed:
        sys.exit(f"not caught: {', '.join(missed)}")


if __name__ == "__main__":
    main()
