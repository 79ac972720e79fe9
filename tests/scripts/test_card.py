"""The figures in the README and the model card come from the reports and stay where they belong."""

import json
from pathlib import Path

import pytest
from script_files import load_script

from hmerctl.train.metrics.scores import Scores, score

ROOT = Path(__file__).parents[2]
card = load_script("card")

CONFIDENCE = {"results": 986, "ece": 0.021, "ece_raw": 0.1, "aurc": 0.2, "coverage": 0.3, "risk": 0.05}


@pytest.fixture
def report() -> dict:
    """What ``hmerctl eval --json`` prints: two right, one with a | read as 1."""
    targets = {"a": ["x"], "b": ["|", "y"], "c": ["\\frac", "{", "1", "}", "{", "2", "}"]}
    scores: Scores = score(targets, {**targets, "b": ["1", "y"]}, log_probs=[[-0.1, -0.2]])
    return json.loads(json.dumps({"beams": 1, **scores.to_dict()}))


def test_only_marked_regions_change() -> None:
    page = "before\n<!-- a: by scripts/card.py -->\nold\n\nold\n<!-- end -->\nbetween {{a}} <!-- end -->\n"
    assert card.filled(page, {"a": "new"}) == page.replace("old\n\nold", "new")
    assert card.filled(card.filled(page, {"a": "1\\g<0>"}), {"a": "new"}) == page.replace("old\n\nold", "new")


def test_both_pages_have_their_regions() -> None:
    readme, page = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/model-card.md"))
    assert all(f"<!-- {name}: by scripts/card.py -->" in readme for name in ("reading", "summary"))
    assert all(f"<!-- {name}: by scripts/card.py -->" in page for name in ("sizes", "training", "figures"))


def test_figures_of_a_report(report: dict) -> None:
    reports = {"pytorch": None, "onnx-fp32": report, "pictures": None}
    text = "\n\n".join(card.figures(reports, "onnx-fp32", {"confidence": CONFIDENCE}, [("latency", "p50 1 ms")]))
    assert "| token convention | 3 expressions |" in text
    assert "| ink, onnx fp32, greedy: ExpRate (95 %), within 1, within 2 | 66.67 % (" in text
    assert "| 1-5 | 2 | 50.00 % |" in text and "| fraction | 1 | 100.00 % |" in text
    assert "| `\\|` | `1` | 1 |" in text  # a bar in a cell would end it
    assert "| latency | p50 1 ms |" in text and "calibration error 0.021 (before: 0.100)" in text


def test_a_missing_report_leaves_out_its_row(report: dict) -> None:
    assert len(card.rates({"pytorch": report, "onnx-fp32": report, "pictures": None})) == 2


def test_without_the_shipped_report_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card, "FIGURES", tmp_path)
    with pytest.raises(SystemExit, match=r"edge-onnx-\w+\.json is missing; run scripts/ship\.py"):
        card.main()
    assert not list(tmp_path.iterdir())
