"""Confidence is fitted on results, judged on results it has not seen, and travels with the checkpoint."""

import numpy as np
import pytest
from synthetic import TINY

from hmerctl.runtime.errors import DataError
from hmerctl.runtime.manifest import DecodingDefaults
from hmerctl.runtime.vocabulary import CROHME
from hmerctl.train.calibrate import calibrate, with_calibration
from hmerctl.train.checkpoint import CheckpointInfo, load_checkpoint, save_checkpoint
from hmerctl.train.config import load_preset
from hmerctl.train.evaluate import Reading
from hmerctl.train.models.recognizer import Recognizer


def readings(count: int, seed: int = 0) -> list[Reading]:
    """Results whose log-probability is worth more than it says: right with probability exp(log_prob / 3)."""
    rng = np.random.default_rng(seed)
    out = []
    for i in range(count):
        log_prob = -rng.exponential(2.0)
        right = rng.random() < np.exp(log_prob / 3)
        features = {"log_prob": log_prob, "mean_log_prob": log_prob / 5, "min_log_prob": log_prob / 2, "length": 5.0}
        out.append(Reading(f"e{i}", ("x",), ("x" if right else "y",), features, (), "eos"))
    return out


def test_an_underconfident_model_becomes_calibrated():
    result = calibrate(readings(3000), "made up", DecodingDefaults(), risk=0.1)
    assert result.ece_raw > 0.15
    assert result.ece < 0.06  # the truth here is not quite logistic
    assert 0.1 < result.coverage < 0.6
    assert result.risk <= 0.1


def test_thresholds_hold_on_new_results_of_the_same_kind():
    result = calibrate(readings(3000), "made up", DecodingDefaults(), risk=0.1)
    weights = result.calibration.weights
    fresh = readings(3000, seed=1)
    logits = [result.calibration.bias + sum(weight * r.features[k] for k, weight in weights.items()) for r in fresh]
    accepted = 1 / (1 + np.exp(-np.array(logits))) >= result.decoding.accept
    wrong = np.array([r.tokens != r.target for r in fresh])
    assert wrong[accepted].mean() < 0.14


def test_too_few_results_are_refused():
    with pytest.raises(DataError, match="too few"):
        calibrate(readings(20), "made up", DecodingDefaults())


def test_the_calibration_is_saved_with_the_checkpoint(tmp_path):
    preset = load_preset("edge", TINY)
    result = calibrate(readings(300), "made up", DecodingDefaults(beams=3))
    info = with_calibration(CheckpointInfo(preset, CROHME, {"steps": 1}), result)
    save_checkpoint(tmp_path / "c", Recognizer(preset.model, CROHME).state_dict(), info)
    _, loaded = load_checkpoint(tmp_path / "c")
    assert loaded.calibration == result.calibration
    assert loaded.decoding == result.decoding and loaded.decoding.beams == 3
    assert loaded.training["steps"] == 1 and loaded.training["confidence"]["results"] == 300
