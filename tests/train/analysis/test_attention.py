"""Attention step by step: every step is there, in order, and looks at cells of the picture."""

import base64
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typed import as_a
from typer.testing import CliRunner

from hmerctl.cli import app
from hmerctl.export.reference import TorchEngine
from hmerctl.export.source import Source
from hmerctl.runtime.bundle import Bundle
from hmerctl.runtime.errors import DataError
from hmerctl.runtime.ink import Ink
from hmerctl.runtime.raster import Raster
from hmerctl.runtime.strokes import format_strokes
from hmerctl.train.analysis.attention import END, Trace, page, strip, trace
from hmerctl.train.checkpoint import save_checkpoint

READS = ["x", "^", "{", "2", "}", "+", "y", END]


@pytest.fixture
def ink(inks: list[Ink], tmp_path: Path) -> Path:
    file = tmp_path / "<ink>.json"
    file.write_text(format_strokes(inks[1]))
    return file


def analyse(*arguments: object) -> dict:
    result = CliRunner().invoke(app, ["analyze", "attention", *map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_bundle_s_steps_are_drawn_in_order(shared_tiny: Path, ink: Path, tmp_path: Path) -> None:
    read = analyse(shared_tiny, ink, "--out", tmp_path / "out")
    assert [step["token"] for step in read["steps"]] == READS
    assert (read["latex"], read["stop"]) == ("x^{2}+y", "eos")
    rows, columns = np.shape(read["steps"][0]["attention"])
    assert (rows, columns) == (-(-read["height"] // 8), -(-read["width"] // 8))
    assert json.loads((tmp_path / "out/attention.json").read_text()) == read
    with Image.open(tmp_path / "out/attention.png") as picture:
        assert picture.width >= read["width"]


def test_the_page_stands_alone_and_says_what_the_steps_say(shared_tiny: Path, ink: Path, tmp_path: Path) -> None:
    read = analyse(shared_tiny, ink, "--out", tmp_path / "out")
    text = (tmp_path / "out/attention.html").read_text()
    assert not re.findall(r'(?:src|href)\s*=\s*"(?!data:)', text) and "http" not in text
    assert "&lt;ink&gt;.json" in text and "<ink>" not in text
    data = json.loads(as_a(re.Match, re.search(r"const data = (.*);\n", text))[1].replace("<\\/", "</"))
    assert [step["token"] for step in data["steps"]] == READS
    first = np.array(read["steps"][0]["attention"])
    np.testing.assert_allclose(np.array(data["steps"][0]["cells"]) / 255, first / first.max(), atol=1 / 255)
    for encoded in re.findall(r"data:image/png;base64,([A-Za-z0-9+/=]+)", text):
        assert base64.b64decode(encoded).startswith(b"\x89PNG")


def test_a_checkpoint_and_its_bundle_look_at_the_same_cells(
    source: Source, bundle: Bundle, ink: Path, tmp_path: Path
) -> None:
    save_checkpoint(tmp_path / "checkpoint", source.model.state_dict(), source.info)
    ours = analyse(tmp_path / "checkpoint", ink, "--out", tmp_path / "a")
    theirs = analyse(bundle.path, ink, "--out", tmp_path / "b")
    assert [s["token"] for s in ours["steps"]] == [s["token"] for s in theirs["steps"]]
    for mine, other in zip(ours["steps"], theirs["steps"], strict=True):
        np.testing.assert_allclose(mine["attention"], other["attention"], atol=1e-4)
        assert np.sum(mine["attention"]) == pytest.approx(1, abs=1e-3)


def test_the_strip_is_red_where_a_step_looks() -> None:
    attention = np.zeros((2, 2, 4), np.float32)
    attention[0, 0, 0] = attention[1, 1, 3] = 1
    read = Trace(np.zeros((16, 32), np.uint8), 8, ("a", END), (0.5, 0.5), attention, "eos")
    green = np.asarray(strip(read))[:, :, 1].astype(int)
    panel = green[12 + 20 :, 12 : 12 + 320]
    assert panel[10, 10] < 150 and panel[150, 310] == 255
    second = green[12 + 20 :, 12 + 320 + 12 :]
    assert second[10, 10] == 255 and second[150, 310] < 150
    assert "</script" not in page(read, "t").split("const data")[1].split(";\n")[0]


def test_a_blank_picture_is_refused(source: Source) -> None:
    engine, vocabulary = TorchEngine(source.model), source.info.vocabulary
    with pytest.raises(DataError, match="nothing to read in the input: blank"):
        trace(engine, Raster(np.zeros((16, 16), np.uint8), 1.0, (0, 0), blank="blank"), vocabulary)
