"""Checkpoints come back as they were, say what is wrong with them in one line, and are never unpickled."""

import json
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from synthetic import TINY

from hmerctl.runtime.errors import HmerError
from hmerctl.runtime.vocabulary import CROHME
from hmerctl.train.checkpoint import CheckpointError, CheckpointInfo, load_checkpoint, save_checkpoint
from hmerctl.train.config import load_preset
from hmerctl.train.models.recognizer import Recognizer
from hmerctl.train.tensor_files import TensorFilesIO, flatten


@pytest.fixture
def saved(tmp_path):
    torch.manual_seed(0)
    preset = load_preset("edge", TINY)
    model = Recognizer(preset.model, CROHME)
    save_checkpoint(tmp_path / "c", model.state_dict(), CheckpointInfo(preset, CROHME, {"steps": 3}))
    return model, tmp_path / "c"


def test_weights_preset_and_vocabulary_come_back(saved):
    model, path = saved
    loaded, info = load_checkpoint(path)
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name
    assert info.preset == load_preset("edge", TINY)
    assert info.vocabulary == CROHME and info.training == {"steps": 3}
    assert info.licence == "CC-BY-NC-SA-3.0"


def test_half_stores_rounded_matrices_and_exact_vectors(saved, tmp_path):
    model, path = saved
    _, info = load_checkpoint(path)
    save_checkpoint(tmp_path / "half", model.state_dict(), info, half=True)
    loaded, _ = load_checkpoint(tmp_path / "half")
    for name, tensor in model.state_dict().items():
        expected = tensor.half().float() if tensor.is_floating_point() and tensor.ndim > 1 else tensor
        assert torch.equal(loaded.state_dict()[name], expected), name
    assert (tmp_path / "half/model.safetensors").stat().st_size < 0.7 * (path / "model.safetensors").stat().st_size


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda p: (p / "checkpoint.json").unlink(), "no checkpoint here"),
        (lambda p: (p / "model.safetensors").unlink(), "cannot be read"),
        (lambda p: (p / "model.safetensors").write_bytes(b"x" * 40), "cannot be read"),
        (lambda p: (p / "checkpoint.json").write_text("{"), "not valid JSON"),
        (lambda p: (p / "checkpoint.json").write_text('{"format_version": 9}'), "format 9 is not 1"),
        (lambda p: edit(p, lambda d: d.pop("vocabulary")), "'vocabulary' is missing"),
        (lambda p: edit(p, lambda d: d["preset"]["model"]["decoder"].update(layers=1)), "does not fit"),
        (lambda p: edit(p, lambda d: d["preset"]["model"]["encoder"].update(name="vgg")), "unknown; choose one of"),
        (lambda p: cut(p), "does not fit"),
    ],
)
def test_a_spoilt_checkpoint_is_refused_in_one_line(saved, spoil, message):
    _, path = saved
    spoil(path)
    with pytest.raises(Exception, match=message) as caught:
        load_checkpoint(path)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, CheckpointError) or "choose" in message


def edit(path, change):
    """Change the description."""
    table = json.loads((path / "checkpoint.json").read_text())
    change(table)
    (path / "checkpoint.json").write_text(json.dumps(table))


def cut(path):
    """Leave one tensor out."""
    weights = load_file(path / "model.safetensors")
    weights.popitem()
    save_file(weights, path / "model.safetensors")


def test_a_training_state_of_any_nesting_comes_back(tmp_path):
    state: dict[Any, Any] = {
        "a": [1, (2.5, None)],
        3: {"t": torch.arange(3), "e": torch.zeros(0, 2)},
        "s": torch.tensor(1.5),
        "f": True,
    }
    TensorFilesIO().save_checkpoint(state, tmp_path / "state")
    back: dict[Any, Any] = TensorFilesIO().load_checkpoint(tmp_path / "state")
    assert list(back) == list(state) and back["a"] == [1, (2.5, None)] and back["f"] is True
    assert torch.equal(back[3]["t"], state[3]["t"]) and back[3]["e"].shape == (0, 2) and back["s"] == 1.5


def test_a_value_that_is_not_data_is_refused():
    with pytest.raises(TypeError, match="builtin_function_or_method"):
        flatten({"hook": print}, {})


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.update(decoding={"beams": "many"}),
        lambda table: table.update(calibration={"bias": "x"}),
        lambda table: table.update(vocabulary=5),
        lambda table: table.update(preset=[]),
        lambda table: table["preset"]["raster"].update(margin=-3),
    ],
)
def test_a_description_with_values_of_the_wrong_kind(saved, change):
    _, path = saved
    edit(path, change)
    with pytest.raises(HmerError, match=r"checkpoint\.json"):
        load_checkpoint(path)
