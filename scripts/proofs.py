"""The tables of docs/targets/README.md: what proves which target at which level, and what a target refuses.

    python scripts/proofs.py

Each target says itself what stands in for its device (``hmerctl.targets.base.Target.stand_ins``), and tests compare
that with what ``hmerctl verify`` reports; the refusals are those of ``hmerctl.targets.refusals``. Replaces what
stands between ``<!-- NAME: by scripts/proofs.py -->`` and ``<!-- end -->``.
"""

from collections.abc import Sequence
from pathlib import Path

from hmerctl.export.parity.report import LEVELS
from hmerctl.runtime.files import write_text
from hmerctl.targets.base import Target, find
from hmerctl.targets.refusals import LIMITS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "targets" / "README.md"
END = "<!-- end -->"
OURS = ("onnx", "jetson-trt", "coreml", "coreml-ios16")


def main() -> None:
    """See the module."""
    page = PAGE.read_text(encoding="utf-8")
    for name, text in tables().items():
        begin = f"<!-- {name}: by scripts/proofs.py -->\n"
        before, _, rest = page.partition(begin)
        page = f"{before}{begin}{text}{END}{rest.partition(END)[2]}"
    write_text(PAGE, page)


def tables() -> dict[str, str]:
    """Markdown by name."""
    return {"proofs": proofs([find(name) for name in OURS]), "refusals": refusals()}


def refusals() -> str:
    """What is refused, by whom, and where that is known from."""
    rows = [("model", "refused by", "source"), ("---",) * 3]
    rows += [(limit.what, ", ".join(f"`{name}`" for name in limit.targets), limit.source) for limit in LIMITS]
    return markdown(rows)


def proofs(targets: list[Target]) -> str:
    """What proves which level, a row for each target and precision."""
    rows: list[tuple[str, ...]] = [
        ("target", "precision", *LEVELS, "engine of the device"),
        ("---",) * (3 + len(LEVELS)),
    ]
    for target in targets:
        for precision in target.precisions:
            device = f"{target.engine}: {target.device if target.device != 'not run' else '**not run**'}"
            rows.append((f"`{target.name}`", precision, *map(target.proof, LEVELS), device))
    return markdown(rows)


def markdown(rows: Sequence[tuple[str, ...]]) -> str:
    """Rows as a table, a line each."""
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    main()
