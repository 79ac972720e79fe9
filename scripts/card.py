"""The shipped model's figures, from the reports that scripts/ship.py leaves, into README.md and docs/model-card.md.

    python scripts/card.py

Replaces what stands between ``<!-- NAME: by scripts/card.py -->`` and ``<!-- end -->``, and nothing else; and draws
docs/figures/reading.png. A report that is not there leaves out its figures; two of them are made by hand, on an idle
machine and from the pictures of 2014::

    hmerctl bench hmerctl/shipped/edge-onnx-int8.hmer --data data/valid2014 --out docs/figures/edge-bench.json
    (cd images_2014 && hmerctl recognize *.bmp) | cut -f 1,2 | sed 's|\\.bmp||' > picture.txt
    hmerctl score caption_2014.txt picture.txt --json > docs/figures/edge-pictures.json
"""

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hmerctl.runtime.bench_report import facts, read_report
from hmerctl.runtime.bundle import open_bundle
from hmerctl.runtime.files import png, write_bytes, write_text
from hmerctl.runtime.recognizer import Recognizer
from hmerctl.runtime.shipped import shipped_bundle
from hmerctl.runtime.show import draw_result

ROOT = Path(__file__).parent.parent
FIGURES = ROOT / "docs" / "figures"
CONFUSIONS = 12
KINDS = {
    "pytorch": "ink, PyTorch",
    "onnx-fp32": "ink, onnx fp32",
    "onnx-fp16": "ink, onnx fp16",
    "onnx-int8": "ink, onnx int8",
    "pictures": "pictures (BMP), shipped bundle",
}
"""Reports of ``hmerctl eval`` and ``hmerctl score``, by the end of their file's name."""


def main() -> None:
    """See the module."""
    bundle = open_bundle(shipped_bundle())
    name = bundle.manifest.model.name
    reports = {kind: report(f"{name}-{kind}.json") for kind in KINDS}
    checkpoint = json.loads((bundle.path.parent / name / "checkpoint.json").read_text(encoding="utf-8"))
    precision = bundle.manifest.target.precision
    weights = (bundle.path.parent / name / "model.safetensors").stat().st_size
    sizes = [
        ("parameters", f"{bundle.manifest.model.parameters:,}"),
        ("size", f"onnx {precision} bundle {bundle.total_bytes() / 1e6:.1f} MB, checkpoint {weights / 1e6:.1f} MB"),
        ("bundle", f"`{bundle.manifest.bundle_id}`, parity {bundle.manifest.parity_state}"),
    ]
    if reports[f"onnx-{precision}"] is None:
        sys.exit(f"card.py: {FIGURES / f'{name}-onnx-{precision}.json'} is missing; run scripts/ship.py")
    speed = FIGURES / f"{name}-bench.json"
    latency = [("latency", latency_of(speed))] if speed.is_file() else []
    headline = ("", "CROHME 2014, validation")
    regions = {
        "reading": reading(Recognizer(bundle)),
        "summary": table(headline, [*rates(reports), *sizes, *latency]),
        "sizes": table(("", ""), sizes),
        "training": table(("", ""), training(checkpoint["training"])),
        "figures": "\n\n".join(figures(reports, f"onnx-{precision}", checkpoint["training"], latency)),
    }
    for page in (ROOT / "README.md", ROOT / "docs" / "model-card.md"):
        write_text(page, filled(page.read_text(encoding="utf-8"), regions))


def reading(recognizer: Recognizer) -> str:
    """What ``hmerctl recognize`` prints of the samples; draws the picture of one of them."""
    files = [path.relative_to(ROOT) for path in sorted((ROOT / "runtime" / "samples").glob("*.json"))]
    results = [recognizer.recognize(ROOT / file) for file in files]
    lines = [f"{f}\t{r.latex}\t{r.decision} ({r.reason})" for f, r in zip(files, results, strict=True)]
    write_bytes(FIGURES / "reading.png", png(draw_result(results[0])))
    return "\n".join(["```", "$ hmerctl recognize runtime/samples/*.json", *lines, "```"])


def filled(page: str, regions: dict[str, str], script: str = "scripts/card.py") -> str:
    """A page with the marked regions of a script replaced."""

    def replaced(match: re.Match[str]) -> str:
        return f"{match[1]}\n{regions[match[2]]}\n{match[3]}"

    return re.sub(rf"(<!-- (\w+): by {script} -->).*?(<!-- end -->)", replaced, page, flags=re.DOTALL)


def report(file: str) -> dict[str, Any] | None:
    """The JSON of one ``hmerctl eval``, or None."""
    path = FIGURES / file
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def table(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A table in Markdown."""
    lines = [list(header), *(list(map(str, row)) for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def code(token: str | None) -> str:
    """A token as code in a table; None is an added or missed one."""
    return "(none)" if token is None else f"`{token}`".replace("|", "\\|")


def percent(share: float) -> str:
    """60.42 %."""
    return f"{100 * share:.2f} %"


def rates(reports: dict[str, Any]) -> list[tuple[str, str]]:
    """ExpRate, within 1 and within 2 of each report, by tokens."""
    rows = []
    for kind, result in reports.items():
        if result is not None:
            r = result["token"]
            low, high = (percent(r["interval"][end]) for end in ("low", "high"))
            value = f"{percent(r['exact'])} ({low} to {high}), {percent(r['within_1'])}, {percent(r['within_2'])}"
            beams = result.get("beams")  # ``score`` is not told how the readings came to be
            search = "as shipped" if beams is None else "greedy" if beams == 1 else f"beam {beams}"
            rows.append((f"{KINDS[kind]}, {search}: ExpRate (95 %), within 1, within 2", value))
    return rows


def training(done: dict[str, Any]) -> list[tuple[str, object]]:
    """What the checkpoint says of its training, the runs it started from last."""
    rows: list[tuple[str, object]] = [
        ("steps", f"{done['steps']:,}"),
        ("samples", f"{done['samples']:,}"),
        ("time", f"{done['seconds'] / 3600:.1f} h"),
        ("data", ", ".join(done["data"])),
    ]
    if done.get("init"):
        rows += [(f"before: {name}", value) for name, value in training(done["init"])]
    return rows


def figures(
    reports: dict[str, Any], shipped: str, done: dict[str, Any], latency: list[tuple[str, str]]
) -> Iterable[str]:
    """The tables of the model card; details are those of the report ``shipped``."""
    main_report = reports[shipped]
    yield table(("token convention", f"{main_report['expressions']} expressions"), rates(reports))
    tree = main_report["tree"]
    yield table(
        ("other figures", ""),
        [
            ("ExpRate, within 1, within 2, by trees", ", ".join(map(percent, (tree[k] for k in TREE)))),
            ("StruRate", percent(main_report["stru_rate"])),
            ("structure rate, by expression", percent(main_report["structure_rate"])),
            ("structure rate, by symbol", percent(main_report["structural_symbol_rate"])),
            ("BLEU-4", f"{main_report['bleu4']:.4f}"),
            ("perplexity", f"{main_report['perplexity']:.3f}"),
            ("token error rate", percent(main_report["token_error_rate"])),
            *latency,
        ],
    )
    for kind in ("length", "structure"):
        rows = ((g["name"], g["expressions"], percent(g["token"])) for g in main_report[f"by_{kind}"])
        yield table((f"by {kind}", "expressions", "ExpRate, token"), rows)
    confused = main_report["confusions"][:CONFUSIONS]
    errors = [(code(c["target"]), code(c["predicted"]), c["count"]) for c in confused]
    yield table(("target", "read", "times"), errors)
    if "confidence" in done:
        sure = done["confidence"]
        yield (
            f"Confidence, cross-validated on {sure['results']} results: calibration error {sure['ece']:.3f} (before: "
            f"{sure['ece_raw']:.3f}), area under the risk-coverage curve {sure['aurc']:.3f}. Accepted are "
            f"{percent(sure['coverage'])} of the results, of which {percent(sure['risk'])} are wrong."
        )


TREE = ("exact", "within_1", "within_2")


def latency_of(path: Path) -> str:
    """p50 and p90 of a measurement, and what it was measured on."""
    measured = read_report(path)
    device = measured.device
    return (
        f"p50 {measured.latency.p50:.1f} ms, p90 {measured.latency.p90:.1f} ms a formula "
        f"({dict(facts(measured))['engine']}, {device.cores} cores of {device.processor})"
    )


if __name__ == "__main__":
    main()
