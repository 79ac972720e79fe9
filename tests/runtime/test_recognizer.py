"""From ink or picture to a result, with the tiny bundle that reads "x^{2}+y" into anything."""

import importlib.metadata
import json
import math
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from hmerctl.runtime.bundle import open_bundle, read_manifest, write_manifest
from hmerctl.runtime.confidence import features
from hmerctl.runtime.decode import DecodeOptions, Hypothesis
from hmerctl.runtime.engines import load_engine
from hmerctl.runtime.errors import BundleError, EngineError, InkError
from hmerctl.runtime.ink import Ink
from hmerctl.runtime.manifest import Calibration, DecodingDefaults, Feature
from hmerctl.runtime.raster import rasterise_ink
from hmerctl.runtime.recognizer import Recognizer, decode_options
from hmerctl.runtime.vocabulary import CROHME, EOS

READS = ["x", "^", "{", "2", "}", "+", "y"]


def cross(size: float = 30.0, x: float = 100.0) -> Ink:
    strokes = (np.array([[x, 50], [x + size, 50 + size]]), np.array([[x + size, 50], [x, 50 + size]]))
    return Ink(strokes, id="cross")


@pytest.fixture(scope="module")
def recognizer(shared_tiny: Path) -> Recognizer:
    return Recognizer(shared_tiny)


def test_every_default_of_a_model_reaches_the_search() -> None:
    again = {"reread": 0.4, "reread_extents": (30, 26), "reread_work": 9}
    values = {"beams": 3, "length_power": 0.5, "prune": 0.2, **again}
    assert set(values) == {*DecodingDefaults.model_fields} - {"grammar", "accept", "reject"}
    options = decode_options(DecodingDefaults().but(**values, grammar=True), CROHME, 50)
    assert values.items() <= {field.name: getattr(options, field.name) for field in fields(DecodeOptions)}.items()
    assert options.constraint is not None and options.max_steps == 50


def test_ink_to_latex(recognizer: Recognizer) -> None:
    result = recognizer.recognize(cross())
    assert result.latex == "x^{2}+y"
    assert [t.token for t in result.tokens] == READS
    assert (result.id, result.stop) == ("cross", "eos")
    assert result.engine.startswith("onnxruntime")
    assert result.bundle == recognizer.bundle.manifest.bundle_id
    assert set(result.timings) == {"raster", "encode", "decode", "total"}
    assert result.timings["total"] == pytest.approx(
        sum(result.timings[s] for s in ("raster", "encode", "decode")), rel=0.2
    )
    assert result.confidence_kind == "raw"
    assert result.confidence == pytest.approx(math.exp(result.log_prob))


def test_every_kind_of_input(recognizer: Recognizer, tmp_path: Path) -> None:
    picture = Image.new("L", (120, 90), 255)
    ImageDraw.Draw(picture).line((20, 20, 90, 70), fill=0, width=5)
    picture.save(tmp_path / "line.png")
    (tmp_path / "ink.json").write_text(json.dumps([[[0, 0], [9, 9]]]))
    for source in (picture, tmp_path / "line.png", str(tmp_path / "ink.json"), rasterise_ink(cross())):
        assert recognizer.recognize(source).latex == "x^{2}+y"
    assert recognizer.recognize(tmp_path / "ink.json").id == str(tmp_path / "ink.json")


def test_boxes_lie_on_the_ink_in_the_units_of_the_input(recognizer: Recognizer) -> None:
    for token in recognizer.recognize(cross()).tokens:
        if token.token in "^{}":
            assert token.box is None
        else:
            assert token.box is not None
            left, top, right, bottom = token.box
            assert 95 < left < right < 135 and 45 < top < bottom < 85


def test_a_padding_step_gives_the_encoder_whole_cells_only_and_the_same_result(tiny: Path) -> None:
    bucketed = Recognizer(tiny).recognize(cross())
    stepped = Recognizer(with_manifest(tiny, padding_step=8)).recognize(cross())
    height, width = stepped.raster.pixels.shape
    assert stepped.attention.shape[1:] == (-(-height // 8), -(-width // 8)) < bucketed.attention.shape[1:]
    assert (stepped.latex, stepped.log_prob) == (bucketed.latex, bucketed.log_prob)
    assert [t.box for t in stepped.tokens] == [t.box for t in bucketed.tokens]


def test_a_doubtful_ink_is_read_again_and_the_result_is_of_one_raster(tiny: Path) -> None:
    recognizer = Recognizer(tiny, reread=1.0)
    result = recognizer.recognize(cross())
    assert result.latex == "x^{2}+y"
    height, width = result.raster.pixels.shape
    assert result.attention.shape[1:] == (64 // 8, 128 // 8) and height <= 64 and width <= 128
    assert result.timings["total"] == pytest.approx(
        sum(result.timings[s] for s in ("raster", "encode", "decode")), rel=0.2
    )
    assert recognizer.recognize(result.raster).log_prob == Recognizer(tiny).recognize(result.raster).log_prob


def test_many_gives_what_singles_give(recognizer: Recognizer) -> None:
    sources = [cross(size, x) for size, x in ((30, 0), (5, 10), (400, -70), (30, 0))]
    many = list(recognizer.recognize_many(sources))
    assert many == [recognizer.recognize(source) for source in sources]
    assert many[0] == many[3]


def test_blank_input_gives_an_empty_result_with_its_reason(recognizer: Recognizer) -> None:
    for source in (Ink(()), Image.new("L", (50, 50), 255)):
        result = recognizer.recognize(source)
        assert (result.latex, result.tokens, result.stop, result.decision) == ("", (), "blank", "reject")
        assert result.reason.startswith("nothing to read: ")
        json.dumps(result.to_dict())


def test_a_beam_gives_alternatives(shared_tiny: Path) -> None:
    result = Recognizer(shared_tiny, beams=4, length_power=0.0).recognize(cross())
    assert result.latex == "x^{2}+y"
    assert len(result.alternatives) == 3
    scores = [result.score, *(a.score for a in result.alternatives)]
    assert scores == sorted(scores, reverse=True)
    assert len({result.latex, *(a.latex for a in result.alternatives)}) == 4


def test_deadline_and_cancel(recognizer: Recognizer) -> None:
    late = recognizer.recognize(cross(), deadline=0.0)
    assert (late.stop, late.decision, late.latex) == ("deadline", "reject", "")
    assert "deadline" in late.reason
    calls = iter([False, False, True])
    cancelled = recognizer.recognize(cross(), cancelled=lambda: next(calls))
    assert (cancelled.stop, cancelled.latex) == ("cancelled", "x^")
    assert recognizer.recognize(cross(), deadline=60.0).stop == "eos"


def with_manifest(folder: Path, **changes: object) -> Path:
    write_manifest(folder, read_manifest(folder, "tiny").model_copy(update=changes))
    return folder


def test_the_manifest_says_how_to_decode_unless_the_caller_does(tiny: Path) -> None:
    with_manifest(tiny, decoding=DecodingDefaults(beams=3, length_power=0.5, prune=1e-9, grammar=True))
    recognizer = Recognizer(tiny)
    assert len(recognizer.recognize(cross()).alternatives) == 2
    options = recognizer.options
    assert (options.length_power, options.prune, options.max_steps) == (0.5, 1e-9, 100)
    assert options.constraint is not None
    options = Recognizer(tiny, beams=1, length_power=0.0, prune=0.0, grammar=False).options
    assert (options.beams, options.length_power, options.prune, options.constraint) == (1, 0.0, 0.0, None)


@pytest.mark.parametrize(
    ("accept", "reject", "decision", "reason"),
    [
        (0.5, 0.1, "accept", "is at least 0.5"),
        (1.0, 0.1, "review", "is below 1"),
        (1.0, 0.999, "reject", "is below 0.999"),
    ],
)
def test_decision(tiny: Path, accept: float, reject: float, decision: str, reason: str) -> None:
    with_manifest(tiny, decoding=DecodingDefaults(accept=accept, reject=reject))
    result = Recognizer(tiny).recognize(cross())
    assert result.decision == decision and reason in result.reason


def test_calibration(tiny: Path) -> None:
    weights: dict[Feature, float] = {"mean_log_prob": 2.0, "length": -0.5}
    with_manifest(tiny, calibration=Calibration(bias=1.0, weights=weights, fitted_on="paper"))
    result = Recognizer(tiny).recognize(cross())
    logit = 1 + 2 * result.log_prob / 8 - 0.5 * 8
    assert result.confidence == pytest.approx(1 / (1 + math.exp(-logit)))
    assert result.confidence_kind == "calibrated"


def test_features() -> None:
    hypothesis = Hypothesis((3, 4), (-1.0, -2.0, -0.5), 0.0, "eos", np.zeros((3, 1)))
    assert features(hypothesis) == {
        "log_prob": -3.5,
        "mean_log_prob": pytest.approx(-3.5 / 3),
        "min_log_prob": -2.0,
        "length": 3.0,
    }


def test_malformed_latex_is_for_review(tiny: Path) -> None:
    class Crooked:
        """An engine that opens a brace and stops."""

        name, threads = "scripted", {"step": 1}

        def encode(self, raster: np.ndarray, size: np.ndarray) -> dict[str, np.ndarray]:
            return {}

        def start(self, memory: object, beams: int) -> "Crooked":
            self.position = -1
            return self

        def step(self, tokens: np.ndarray, parents: object = None) -> tuple[np.ndarray, np.ndarray]:
            self.position += 1
            log_probs = np.full((1, len(bundle.vocabulary)), -30.0, np.float32)
            log_probs[0, EOS if self.position else bundle.vocabulary.ids["{"]] = 0
            log_probs[0, bundle.vocabulary.ids["x" if self.position < 2 else "}"]] = -1
            return log_probs, np.ones((1, 8 * 16), np.float32)

    bundle = open_bundle(tiny)
    result = Recognizer(bundle, engine=Crooked()).recognize(cross())
    assert (result.latex, result.decision) == ("{", "review")
    assert result.reason == "the LaTeX is malformed: a brace or bracket is left open"
    assert Recognizer(bundle, engine=Crooked(), grammar=True).recognize(cross()).latex == "{x}"


def test_json_holds_everything_but_pixels(recognizer: Recognizer) -> None:
    value = json.loads(json.dumps(recognizer.recognize(cross()).to_dict()))
    assert value["latex"] == "x^{2}+y" and value["tokens"][0]["token"] == "x"
    assert value["tokens"][1]["box"] is None and len(value["tokens"][0]["box"]) == 4
    assert value["raster"]["height"] > 12 and "attention" not in value


def test_errors_name_the_file(recognizer: Recognizer, tmp_path: Path) -> None:
    with pytest.raises(InkError, match=r"none\.inkml"):
        recognizer.recognize(tmp_path / "none.inkml")
    with pytest.raises(BundleError, match=r"none\.hmer"):
        Recognizer(tmp_path / "none.hmer")


def test_a_bundle_for_another_device_is_refused(tiny: Path) -> None:
    manifest = read_manifest(tiny, "tiny")
    with_manifest(tiny, target=manifest.target.model_copy(update={"name": "toaster"}))
    with pytest.raises(EngineError, match=r"made for toaster, which does not run here; this runtime runs .*onnx"):
        load_engine(open_bundle(tiny))


def test_another_package_names_the_engine_of_its_target(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = read_manifest(tiny, "tiny")
    with_manifest(tiny, target=manifest.target.model_copy(update={"name": "toaster"}))
    place = ["hmerctl.runtime.engines.onnx:OnnxEngine"]
    entries = lambda group: [importlib.metadata.EntryPoint("toaster", place[0], group)]  # noqa: E731
    monkeypatch.setattr(importlib.metadata, "entry_points", entries)
    assert load_engine(open_bundle(tiny)).name.startswith("onnxruntime")
    place[0] = "no_such_module:Engine"
    with pytest.raises(
        EngineError, match=r"engine toaster \(no_such_module:Engine\) cannot be loaded: .*; reinstall"
    ):
        load_engine(open_bundle(tiny))
