"""A grid of models to compare: a TOML file that names variants of presets.

::

    about = "Position encodings on the edge preset"    # one line over the table
    preset = "edge"                                    # for all runs that name no other
    set = ["train.batch_pixels=300_000"]               # for all runs
    seeds = [1]                                        # every run is trained with each
    bucket = [96, 256]                                 # raster whose cost is measured, pixels
    init = "../first/last"                             # checkpoint to start from, found from this file's folder
    init_parts = ["encoder"]                           # what of it; without: all that fits

    [[run]]
    name = "sinusoidal"
    set = ['model.position={name="sinusoidal"}']

The first run is the one that the others are compared with.
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hmerctl.runtime.buckets import Bucket
from hmerctl.runtime.errors import ConfigError
from hmerctl.train.config import Preset, load_preset
from hmerctl.train.models.recognizer import PARTS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

GRIDS = Path(__file__).parent.parent / "grids"

_KEYS = {"about", "preset", "set", "seeds", "bucket", "init", "init_parts", "run"}
_RUN_KEYS = {"name", "preset", "set"}


@dataclass(frozen=True)
class Cell:
    """One model to train: a variant with a seed.

    Attributes:
        name: of its folder.
        variant: the row of the table that it counts for.
        seed: of weights, order and distortions.
        preset: what is trained.
    """

    name: str
    variant: str
    seed: int
    preset: Preset

    def parts(self) -> list[str]:
        """What the model is made of, each part with its options."""
        parts = [getattr(self.preset.model, part) for part in PARTS]
        return [
            ", ".join([str(part["name"]), *(f"{key} {value}" for key, value in part.items() if key != "name")])
            for part in parts
        ]


@dataclass(frozen=True)
class Grid:
    """What a grid file holds.

    Attributes:
        name: of the file.
        about: one line.
        bucket: raster size whose cost is measured.
        cells: in the order in which they are trained: all variants with the first seed, then with the next.
        init: checkpoint that every cell starts from, or None.
        init_parts: see ``RunOptions``.
    """

    name: str
    about: str
    bucket: Bucket
    cells: tuple[Cell, ...]
    init: Path | None = None
    init_parts: tuple[str, ...] = ()

    @property
    def variants(self) -> list[str]:
        """Names of the table's rows, in order."""
        return list(dict.fromkeys(cell.variant for cell in self.cells))


def read_grid(
    name: str, settings: Sequence[str] = (), init: Path | None = None, init_parts: Sequence[str] = ()
) -> Grid:
    """Read a grid file.

    Args:
        name: a shipped grid's name, or the path of a TOML file; presets named by path are looked for beside it.
        settings: ``key=value`` each, for all runs; a run's own go before.
        init, init_parts: instead of those of the file.

    Raises:
        ConfigError: no such file, or something in it is not valid, naming what.
    """
    path = Path(name) if name.endswith(".toml") else GRIDS / f"{name}.toml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in GRIDS.glob("*.toml")))
        raise ConfigError(f"grid {name!r} not found; choose one of {known}, or give the path of a .toml file")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    _only(table, _KEYS, str(path))
    runs, seeds = table.get("run", []), table.get("seeds", [1])
    if not isinstance(runs, list) or not runs or not all(isinstance(run, dict) for run in runs):
        raise ConfigError(f"{path}: has no [[run]]; each model to compare is one")
    if not isinstance(seeds, list) or not seeds or not all(isinstance(seed, int) for seed in seeds):
        raise ConfigError(f"{path}: seeds = {seeds!r}; give a list of whole numbers")
    table["set"] = [*_settings(table, str(path)), *settings]
    cells = tuple(_cell(path, table, run, seed, len(seeds) > 1) for seed in seeds for run in runs)
    if len({cell.name for cell in cells}) < len(cells):
        raise ConfigError(f"{path}: two runs (or seeds) are the same; every run needs a name of its own")
    bucket = _bucket(path, table.get("bucket", [96, 256]))
    if init is None:
        init, init_parts = _init(path, table)
    return Grid(path.stem, str(table.get("about", "")), bucket, cells, init, tuple(init_parts))


def _cell(path: Path, table: dict[str, Any], run: dict[str, Any], seed: int, several: bool) -> Cell:
    name = run.get("name", "")
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise ConfigError(f"{path}: run name {name!r}; use letters, digits, dots, hyphens")
    where = f"{path} run {name!r}"
    _only(run, _RUN_KEYS, where)
    base = str(run.get("preset", table.get("preset", "edge")))
    if base.endswith(".toml"):
        base = str(path.parent / base)
    settings = [*_settings(table, str(path)), *_settings(run, where), f"train.seed={seed}"]
    try:
        preset = load_preset(base, [*settings, f'name="{name}"'])
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    return Cell(f"{name}-seed{seed}" if several else name, name, seed, preset)


def _settings(table: dict[str, Any], where: str) -> list[str]:
    settings = table.get("set", [])
    if not isinstance(settings, list) or not all(isinstance(setting, str) for setting in settings):
        raise ConfigError(f'{where}: set must be a list of "key=value" texts')
    return settings


def _init(path: Path, table: dict[str, Any]) -> tuple[Path | None, list[str]]:
    init, parts = table.get("init"), table.get("init_parts", [])
    if init is not None and not isinstance(init, str):
        raise ConfigError(f"{path}: init = {init!r}; give the path of a checkpoint folder")
    if not isinstance(parts, list) or not all(part in PARTS for part in parts) or (parts and init is None):
        raise ConfigError(f"{path}: init_parts = {parts!r}; with init, a list of {', '.join(PARTS)}")
    return (None if init is None else path.parent / init), parts


def _bucket(path: Path, sides: Any) -> Bucket:
    if not isinstance(sides, list) or len(sides) != 2 or not all(isinstance(s, int) and s > 0 for s in sides):
        raise ConfigError(f"{path}: bucket = {sides!r}; give [height, width] in pixels")
    return Bucket(*sides)


def _only(table: dict[str, Any], known: set[str], where: str) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(f"{where}: unknown key {key!r}; known are {', '.join(sorted(known))}")
