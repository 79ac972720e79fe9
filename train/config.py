"""Presets: TOML files that say which parts a model has and how it is trained."""

import dataclasses
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hmerctl.runtime.errors import ConfigError
from hmerctl.runtime.raster import RasterSpec
from hmerctl.train.models.recognizer import PARTS, ModelConfig

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PRESETS = Path(__file__).parent / "presets"


@dataclass(frozen=True)
class AugmentConfig:
    """Distortions drawn anew for every sample; see train/augment.py.

    Attributes:
        rotation: standard deviation, degrees.
        slant: standard deviation of the shear.
        aspect: standard deviation of the log of the aspect ratio.
        scale_low, scale_high: range of the size, drawn evenly in its logarithm.
        warp: amplitude of a smooth displacement, pixels.
        jitter: standard deviation of each symbol's size (log) and shift (of its own size).
        pen_low, pen_high: range of the pen width, pixels.
        replace: probability that a symbol's ink is replaced by another ink of its class.
        relabel: probability that an expression has some of its symbol classes exchanged.
    """

    rotation: float = 3.0
    slant: float = 0.12
    aspect: float = 0.12
    scale_low: float = 0.75
    scale_high: float = 1.35
    warp: float = 1.0
    jitter: float = 0.08
    pen_low: float = 1.2
    pen_high: float = 3.0
    replace: float = 0.25
    relabel: float = 0.5

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if not 0 <= value < math.inf:
                raise ConfigError(f"train.augment.{name} = {value!r}: must be a finite number, not negative")
        for name in ("replace", "relabel"):
            if getattr(self, name) > 1:
                raise ConfigError(f"train.augment.{name} = {getattr(self, name)!r}: a probability, from 0 to 1")
        for low, high in (("scale_low", "scale_high"), ("pen_low", "pen_high")):
            if not 0 < getattr(self, low) <= getattr(self, high):
                raise ConfigError(f"train.augment.{low} must be above 0 and not above train.augment.{high}")


@dataclass(frozen=True)
class ViewsConfig:
    """Stepwise training views (Zhou 2023); see train/views.py.

    Attributes:
        x_scale, y_scale: how far a picture is stretched in x at one moment, in y at another (m and n), at least 1.
    """

    x_scale: float = 3.0
    y_scale: float = 2.0

    def __post_init__(self) -> None:
        if self.x_scale < 1 or self.y_scale < 1:
            raise ValueError(f"scales must be at least 1, not {self.x_scale} and {self.y_scale}")


@dataclass(frozen=True)
class TrainConfig:
    """How a model is trained.

    Attributes:
        seed: of the weights, the order of samples and every distortion.
        learning_rate, betas, weight_decay, clip: AdamW and the gradient clip (global norm).
        warmup_steps: linear warm-up.
        decay: last part of the budget (time or steps) over which the rate falls to zero: 1 is a cosine over
            the whole budget, 0.3 holds the rate for 70 % of it.
        smoothing: label smoothing of the token loss.
        dense_weight: weight of the dense symbol loss (0: no head).
        dense_blank: weight of cells without ink in the dense loss.
        ema: decay of the averaged weights, which are validated and shipped.
        batch_pixels: padded pixels of a batch, over all devices.
        max_batch: most expressions in a batch, over all devices.
        precision: "auto" (bf16 where the machine has it), "bf16" or "fp32".
        frozen: parts of the model (encoder, position, context, decoder) that stay as the checkpoint of ``--init`` has
            them. With the encoder, the dense symbol loss is left out: it has nothing else to teach.
        freeze_norm: batch norm keeps the statistics it starts with, for fine-tuning with small batches.
        log_every: steps between logged figures.
        validate_every: steps between validations by decoding.
        validate_samples: expressions drawn at random for them.
        composed: share of an epoch's expressions that are composed from parts of the training set, 0 to below 1
            (see train/compose); the real ones are all seen once besides.
        composed_epochs: epochs in a row that share their composed expressions, distorted anew in each. Composing
            costs half a millisecond an expression at the start of an epoch, in every process that draws batches.
        augment: distortions; false in a preset for none.
        views: stepwise views, in which a picture is stretched in x, stretched in y and plain in turn; false in a
            preset for none.
    """

    seed: int = 1
    learning_rate: float = 1.2e-3
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.02
    clip: float = 1.0
    warmup_steps: int = 400
    decay: float = 1.0
    smoothing: float = 0.08
    dense_weight: float = 0.5
    dense_blank: float = 0.05
    ema: float = 0.999
    batch_pixels: int = 400_000
    max_batch: int = 48
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    frozen: tuple[str, ...] = ()
    freeze_norm: bool = False
    log_every: int = 20
    validate_every: int = 1000
    validate_samples: int = 200
    composed: float = 0.0
    composed_epochs: int = 1
    augment: AugmentConfig | None = field(default_factory=AugmentConfig)
    views: ViewsConfig | None = None

    def __post_init__(self) -> None:
        if self.precision not in ("auto", "bf16", "fp32"):
            raise ConfigError(f"train.precision = {self.precision!r}: choose auto, bf16 or fp32")
        for name in ("batch_pixels", "max_batch", "log_every", "validate_every", "validate_samples"):
            if getattr(self, name) < 1:
                raise ConfigError(f"train.{name} = {getattr(self, name)}: must be at least 1")
        for part in self.frozen:
            if part not in PARTS:
                raise ConfigError(f"train.frozen: {part!r} is no part of a model; choose from {', '.join(PARTS)}")
        if self.seed < 0:
            raise ConfigError(f"train.seed = {self.seed}: must not be negative")
        if not 0 <= self.composed <= 0.95:
            raise ConfigError(f"train.composed = {self.composed}: a share of each epoch, from 0 to 0.95")
        if self.composed_epochs < 1:
            raise ConfigError(f"train.composed_epochs = {self.composed_epochs}: must be at least 1")
        for name in ("learning_rate", "clip", "weight_decay", "dense_weight", "dense_blank"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"train.{name} = {getattr(self, name)!r}: must be a finite number, not negative")
        for name in ("ema", "smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"train.{name} = {getattr(self, name)!r}: from 0 to below 1")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ConfigError(f"train.betas = {list(self.betas)}: two numbers from 0 to below 1")
        if not 0 <= self.decay <= 1:
            raise ConfigError(f"train.decay = {self.decay}: a part of the budget, from 0 to 1")


@dataclass(frozen=True)
class Preset:
    """A named model with its training and raster settings."""

    name: str
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    raster: RasterSpec = field(default_factory=RasterSpec)

    def __post_init__(self) -> None:
        if self.train.views is not None and self.model.position.get("stepwise"):
            raise ConfigError(
                "train.views stretches pictures, model.position.stepwise the positions of plain ones: "
                "two forms of the same views, of which one can be chosen"
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as it stands in a checkpoint; as a preset file may have it: false where there is none."""
        table = dataclasses.asdict(self)
        table["train"] = {key: False if value is None else value for key, value in table["train"].items()}
        return table


def load_preset(name: str, settings: list[str] | None = None) -> Preset:
    """Read a preset and override single values.

    Args:
        name: a shipped preset's name, or the path of a TOML file.
        settings: ``key=value`` each; dotted keys as in the file, e.g. ``train.learning_rate=1e-3`` or
            ``model.decoder.layers=4``; values as in TOML, anything else is taken as a string.

    Raises:
        ConfigError: unknown preset, key or value.
    """
    path = Path(name) if name.endswith(".toml") else PRESETS / f"{name}.toml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in PRESETS.glob("*.toml")))
        raise ConfigError(f"preset {name!r} not found; choose one of {known}, or give the path of a .toml file")
    try:
        table = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    for setting in settings or []:
        _set(table, setting)
    return preset_from_dict({"name": path.stem, **table}, str(path))


def preset_from_dict(table: dict[str, Any], where: str = "preset") -> Preset:
    """Build a preset from plain data (a parsed TOML file, or what a checkpoint holds)."""
    table = dict(table)
    for key in ("model", "train", "raster"):
        if not isinstance(table.get(key, {}), dict):
            raise ConfigError(f"{where}: {key} = {table[key]!r} is a value, not a table")
    train = dict(table.pop("train", {}))
    ranges = train.pop("augment", {})
    if ranges is not False and not isinstance(ranges, dict):
        raise ConfigError(f"{where} [train]: augment = {ranges!r}; expected a table, or false for no distortions")
    augment = _build(AugmentConfig, ranges, f"{where} [train.augment]") if isinstance(ranges, dict) else None
    scales = train.pop("views", None)
    views = _build(ViewsConfig, scales, f"{where} [train.views]") if isinstance(scales, dict) else None
    if "betas" in train:
        betas = train["betas"]
        if not isinstance(betas, list | tuple) or len(betas) != 2:
            raise ConfigError(f"{where} [train]: betas = {betas!r}; expected two numbers, as in [0.9, 0.98]")
        train["betas"] = tuple(betas)
    if "frozen" in train:
        frozen = train["frozen"]
        if not isinstance(frozen, list | tuple):
            raise ConfigError(f'{where} [train]: frozen = {frozen!r}; expected a list, as in ["encoder"]')
        train["frozen"] = tuple(frozen)
    parts = {
        "model": _build(ModelConfig, table.pop("model", {}), f"{where} [model]"),
        "train": _build(TrainConfig, {**train, "augment": augment, "views": views}, f"{where} [train]"),
        "raster": _build(RasterSpec, table.pop("raster", {}), f"{where} [raster]"),
    }
    return _build(Preset, {**table, **parts}, where)


_KINDS: dict[type, tuple[type, ...]] = {bool: (bool,), int: (int,), float: (int, float), str: (str,)}
"""Types that a value may have, by the type of its default."""


def _build(cls: type, values: dict[str, Any], where: str) -> Any:
    known = {f.name for f in dataclasses.fields(cls)}
    for key in values:
        if key not in known:
            raise ConfigError(f"{where}: unknown key {key!r}; known are {', '.join(sorted(known))}")
    for field_ in dataclasses.fields(cls):
        value, default = values.get(field_.name, field_.default), field_.default
        kinds = _KINDS.get(type(default), ())
        if kinds and (not isinstance(value, kinds) or isinstance(value, bool) != isinstance(default, bool)):
            raise ConfigError(f"{where}: {field_.name} = {value!r}; expected a value such as {default!r}")
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where}: {error}") from error


def _set(table: dict[str, Any], setting: str) -> None:
    key, equals, text = setting.partition("=")
    if not equals:
        raise ConfigError(f"--set {setting!r}: write key=value, e.g. train.learning_rate=1e-3")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    *parents, last = key.strip().split(".")
    for name in parents:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise ConfigError(f"--set {setting!r}: {name!r} is a value, not a table")
    table[last] = value


def to_json(value: Any) -> str:
    """Readable JSON of plain data or dataclasses."""
    plain = dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value
    return json.dumps(plain, indent=2, ensure_ascii=False)


def to_toml(table: Mapping[str, Any], prefix: str = "") -> str:
    """A TOML document of plain data, as ``load_preset`` reads it: numbers, texts, booleans, lists, tables."""
    plain = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    lines = [f"[{prefix}]"] if prefix and plain else []
    lines += [f"{key} = {_toml_value(value)}" for key, value in plain.items()]
    text = "\n".join(lines) + ("\n\n" if lines else "")
    for key, value in table.items():
        if isinstance(value, Mapping):
            text += to_toml(value, f"{prefix}.{key}" if prefix else key)
    return text


def _toml_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_toml_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    if isinstance(value, bool | str):
        return json.dumps(value)
    if isinstance(value, int | float):
        return repr(value)
    raise TypeError(f"not TOML: {value!r}")
