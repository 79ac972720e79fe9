"""A setting of the wrong kind ends in one line before any training."""

import pytest

from hmerctl.runtime.errors import ConfigError
from hmerctl.runtime.vocabulary import CROHME
from hmerctl.train.config import PRESETS, load_preset, preset_from_dict
from hmerctl.train.models.recognizer import Recognizer


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("train=1", "train = 1 is a value"),
        ("train.learning_rate=abc", "learning_rate = 'abc'"),
        ("train.max_batch=true", "max_batch = True"),
        ("train.betas=5", "betas = 5"),
        ("train.batch_pixels=-1", "batch_pixels = -1"),
        ("train.validate_every=0", "validate_every = 0"),
        ("train.seed=-1", "seed = -1"),
        ("train.augment.warp=much", "warp = 'much'"),
        ("train.augment.rotation=nan", "rotation = nan"),
        ("train.augment.scale_low=3", "scale_low must be above 0 and not above train.augment.scale_high"),
        ("train.augment=3", "augment = 3"),
        ("train.learning_rate=nan", "learning_rate = nan"),
        ("train.ema=1", "ema = 1"),
        ("train.betas=[2, 0.9]", "betas"),
        ("train.views.x_scale=0.5", "at least 1"),
        ("train.views.z_scale=2.0", "unknown key 'z_scale'"),
        ("raster.margin=-3", "margin = -3"),
        ("raster=5", "raster = 5"),
    ],
)
def test_a_wrong_setting_is_named(setting: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        load_preset("edge", [setting])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("model.decoder=3", "expected a table"),
        ("model.decoder.heads=0", "heads = 0; expected a whole number of at least 1"),
        ("model.decoder.heads=1.5", "heads = 1.5"),
        ("model.decoder.layers=0", "layers = 0; expected a whole number of at least 1"),
        ("model.decoder.layers=true", "layers = True"),
        ("model.decoder.refinement=-1", "refinement = -1; expected a whole number of at least 0"),
        ("model.decoder.dropout=nan", "dropout = nan"),
        ('model.encoder.top="a"', "top = 'a'"),
        ('model.position={name="timing", min_scale=0}', "division"),
        ('model.position={name="sum", parts=[3]}', "expected a table"),
        ('model.context={name="self-attention", heads=7}', "7 heads"),
    ],
)
def test_a_model_that_cannot_be_built_is_named(setting: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        Recognizer(load_preset("edge", [setting]).model, CROHME)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [path.stem for path in PRESETS.glob("*.toml")])
def test_shipped_presets_pass(name: str) -> None:
    assert load_preset(name, ["train.learning_rate=1"]).name


def test_zhou2023_has_stepwise_views_with_the_scales_of_its_positions() -> None:
    preset = load_preset("zhou2023")
    assert preset.train.views is not None
    assert preset.train.views.x_scale == preset.model.position["x_scale"]
    assert preset.train.views.y_scale == preset.model.position["y_scale"]
    assert load_preset("zhou2023", ["train.views=false"]).train.views is None
    assert preset_from_dict(preset.to_dict()) == preset


def test_views_of_the_picture_and_of_the_positions_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="one can be chosen"):
        load_preset("zhou2023", ["model.position.stepwise=true"])
