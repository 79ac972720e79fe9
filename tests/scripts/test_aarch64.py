"""Comparing two machines: what is read on one, and that every difference is a fault. (A whole run needs qemu.)"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from script_files import load_script

ROOT = Path(__file__).parents[2]
aarch64 = load_script("aarch64")


@pytest.fixture(scope="module")
def lines(shared_tiny: Path) -> list:
    """What the script prints where it runs on the compared machine."""
    command = [sys.executable, ROOT / "scripts" / "aarch64.py", aarch64.READ, shared_tiny]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_it_reads_every_sample_at_every_beam_width(lines: list) -> None:
    machine, *rows = lines
    assert "onnxruntime" in machine
    assert [(row["sample"], row["beams"]) for row in rows] == [("x", 1), ("x", 5)]
    assert rows[0]["tokens"] == list("x^{2}+y") and len(rows[0]["raster"]) == 64


def test_equal_readings_are_no_fault_and_every_difference_is_one(lines: list, capsys: pytest.CaptureFixture) -> None:
    rows = [{**row, "promised": True} for row in lines[1:]]
    assert aarch64.report(rows, rows) == 0
    assert "2 of 2 readings equal" in capsys.readouterr().out
    for change, words in (
        ({"raster": "0"}, "other raster"),
        ({"tokens": ["x"]}, "reads 'x', not 'x ^ { 2 } + y'"),
        ({"promised": False}, "not what the bundle promises"),
        ({"log_prob": rows[0]["log_prob"] - 1}, "log-probability differs by 1"),
    ):
        assert aarch64.report(rows, [{**rows[0], **change}, rows[1]]) == 1
        assert words in capsys.readouterr().out
