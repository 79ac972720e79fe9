"""A setting of the wrong kind ends in one line before any training."""

import pytest

from hmerctl.runtime.errors import ConfigError
from hmerctl.train.config import PRESETS, load_preset


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
