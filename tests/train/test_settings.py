"""A setting of the wrong kind ends in one line before any training."""

import pytest

from hmerctl.runtime.errors import ConfigError
from hmerctl.train.config import PRESETS, load_preset, preset_from_dict


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
