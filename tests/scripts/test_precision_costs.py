"""The table of what each precision costs: paired against PyTorch, taken up again where it was stopped."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hmerctl.export.parity.pictures import Picture
from hmerctl.runtime.buckets import TO_BUCKETS

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))  # scripts import their neighbours as they do when they are run

import precision_costs as costs  # noqa: E402

PICTURES = [Picture(name, np.zeros((8, 8), np.uint8), ("x",)) for name in "abcd"]


def step(ids: list[list[int]], right: list[bool], precision: str = "int8", bound: float = 0.5) -> costs.Step:
    return costs.Step("jetson-trt", precision, "edge@1", "evaluator", 6_200_000, bound, 30.04, ids, right)


REFERENCE = step([[3], [4], [5], [6]], [True, True, False, True], "fp32", 0.0)


def test_a_step_is_compared_with_pytorch_expression_by_expression() -> None:
    cost = costs.cost_of(step([[3], [9], [5], [6, 6]], [True, False, False, False]), REFERENCE)
    assert (cost.same, cost.lost, cost.won) == (2, 2, 0)
    assert (cost.exprate, cost.difference, cost.p) == (25.0, -50.0, 0.5)
    assert not cost.held


def test_one_expression_may_be_lost_where_anything_may() -> None:
    one = [[3], [9], [5], [6]], [True, False, False, True]
    assert costs.cost_of(step(*one), REFERENCE).held
    assert not costs.cost_of(step(*one, precision="fp32", bound=0.0), REFERENCE).held


def test_a_gain_never_misses_the_bound() -> None:
    cost = costs.cost_of(step([[3], [4], [7], [6]], [True] * 4, bound=0.0), REFERENCE)
    assert (cost.difference, cost.won, cost.held) == (25.0, 1, True)


def test_the_table_shows_what_is_missed_and_what_is_exact() -> None:
    worse = costs.cost_of(step([[3], [9], [5], [9]], [True, False, False, False]), REFERENCE)
    exact = costs.cost_of(costs.Step("onnx", "fp32", "e@2", "ort", 1, 0.0, 200.0, *_of(REFERENCE)), REFERENCE)
    text = costs.described([worse, exact], 4, "valid", "0123456789abcdef")
    assert "`0123456789ab`, 4 expressions of `valid`" in text
    assert "| jetson-trt int8 | 6.2 | 30.0 | 2 | 25.00 | -50.00 (" in text
    assert "**missed: 0.5**" in text and "| onnx fp32 | 0.0 | exact | 4 | 75.00 | +0.00 (" in text


def _of(other: costs.Step) -> tuple[list[list[int]], list[bool]]:
    return other.ids, other.right


def test_precisions_come_from_the_most_exact_to_the_least() -> None:
    assert costs.in_order(("int8", "pal6", "fp16", "fp32")) == ["fp32", "fp16", "int8", "pal6"]


def test_readings_go_on_after_the_last_whole_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def greedy(engine: object, pixels: np.ndarray, padding: object) -> list[int]:
        read.append("")
        return [len(read)]

    monkeypatch.setattr(costs, "engine_greedy", greedy)
    kept = tmp_path / "work" / "edge.jsonl"
    engine = SimpleNamespace()
    assert costs.readings(engine, PICTURES[:2], TO_BUCKETS, kept) == [[1], [2]]
    kept.write_text(kept.read_text() + '["c", [7')  # stopped while writing
    assert costs.readings(engine, PICTURES, TO_BUCKETS, kept) == [[1], [2], [3], [4]]
    assert [json.loads(line)[0] for line in kept.read_text().splitlines()] == list("abcd")


def test_the_page_has_its_region() -> None:
    page = (ROOT / "docs" / "precision.md").read_text(encoding="utf-8")
    assert "<!-- costs: by scripts/precision_costs.py -->" in page
