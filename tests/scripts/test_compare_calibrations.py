"""The tables of the calibration study."""

import sys
from pathlib import Path

from hmerctl.export.quantize import LayerLoss

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))  # scripts import their neighbours as they do when they are run

import compare_calibrations as study  # noqa: E402


def test_the_reference_has_nothing_to_be_compared_with() -> None:
    rows = [study.Row("float32", 200.0, 9, 50.0, 0, 0, 1.0), study.Row("minmax, 64 inks", 27.9, 8, 49.5, 2, 1, 0.75)]
    text = study.described(rows, "edge-onnx-fp32@1", 9, "valid")
    assert "`edge-onnx-fp32@1`, 9 expressions of `valid`" in text
    assert "| float32 |  | 9 | 50.00 |  |  |  |" in text
    assert "| minmax, 64 inks | 27.9 | 8 | 49.50 | 2 | 1 | 0.75 |" in text


def test_layers_are_listed_worst_first_with_what_leaving_them_gives() -> None:
    losses = [LayerLoss(f"node_{i}", "Conv", 30.0 + i) for i in range(20)]
    text = study.layers(losses, [(0, 28.04), (1, 30.5)])
    assert "| `node_0` | Conv | 30.0 |" in text and "node_19" not in text
    assert text.endswith("0 left: 28.0 dB, 1 left: 30.5 dB.")


def test_the_page_has_its_regions() -> None:
    page = (ROOT / "docs" / "precision.md").read_text(encoding="utf-8")
    for name in ("calibrations", "layers"):
        assert f"<!-- {name}: by scripts/compare_calibrations.py -->" in page
