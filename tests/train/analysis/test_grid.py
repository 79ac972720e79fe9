"""Grid files: every shipped one is a list of models that can be built, and mistakes are told in one line."""

from pathlib import Path

import pytest

from hmerctl.runtime.errors import ConfigError
from hmerctl.runtime.vocabulary import CROHME
from hmerctl.train.analysis.grid import GRIDS, read_grid
from hmerctl.train.models.parts import names
from hmerctl.train.models.recognizer import Recognizer

TEXT = """
preset = "edge"
set = ["model.decoder.layers=1"]
seeds = [3, 4]
bucket = [64, 128]
[[run]]
name = "plain"
[[run]]
name = "wide"
set = ["model.decoder.width=96"]
"""


@pytest.mark.parametrize("name", [path.stem for path in GRIDS.glob("*.toml")])
def test_shipped_grids_are_models(name: str) -> None:
    grid = read_grid(name)
    for cell in grid.cells:
        Recognizer(cell.preset.model, CROHME)
    assert len(grid.variants) == len(grid.cells)


@pytest.mark.parametrize(("grid", "kind"), [("positions", "position"), ("contexts", "context")])
def test_shipped_grids_have_every_part_of_their_kind(grid: str, kind: str) -> None:
    used = {getattr(cell.preset.model, kind)["name"] for cell in read_grid(grid).cells}
    assert used == set(names(kind))


def test_every_run_is_trained_with_every_seed(tmp_path: Path) -> None:
    (tmp_path / "g.toml").write_text(TEXT)
    grid = read_grid(str(tmp_path / "g.toml"))
    assert [c.name for c in grid.cells] == ["plain-seed3", "wide-seed3", "plain-seed4", "wide-seed4"]
    assert [c.preset.train.seed for c in grid.cells] == [3, 3, 4, 4]
    assert all(c.preset.model.decoder["layers"] == 1 for c in grid.cells)
    assert grid.cells[1].preset.model.decoder["width"] == 96 and grid.bucket == (64, 128)
    assert grid.variants == ["plain", "wide"]
    assert grid.cells[1].parts()[2:] == [
        "none",
        "transformer, layers 1, heads 6, width 96, inner 512, refinement 32, refinement_rank 16",
    ]


def test_the_command_line_goes_over_the_file_and_a_run_over_both(tmp_path: Path) -> None:
    (tmp_path / "g.toml").write_text(f'init = "first"\ninit_parts = ["encoder"]\n{TEXT}')
    grid = read_grid(str(tmp_path / "g.toml"))
    assert (grid.init, grid.init_parts) == (tmp_path / "first", ("encoder",))
    grid = read_grid(str(tmp_path / "g.toml"), ["model.decoder.layers=2", "model.decoder.width=48"], Path("other"))
    assert (grid.init, grid.init_parts) == (Path("other"), ())
    assert [c.preset.model.decoder["layers"] for c in grid.cells[:2]] == [2, 2]
    assert [c.preset.model.decoder["width"] for c in grid.cells[:2]] == [48, 96]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("[[run]]", "[[row]]"), "unknown key 'row'"),
        (('"wide"', '"plain"'), "needs a name of its own"),
        (('"wide"', '"../wide"'), "use letters, digits"),
        (("seeds = [3, 4]", "seeds = 3"), "list of whole numbers"),
        (("bucket = [64, 128]", "bucket = 64"), "height, width"),
        (('"model.decoder.width=96"', '"train.rate=1"'), "unknown key 'rate'"),
        (('preset = "edge"', 'preset = "edgy"'), "preset 'edgy' not found"),
        (("seeds", "="), "not valid TOML"),
        (("seeds", "init = 1\nseeds"), "path of a checkpoint"),
        (("seeds", 'init = "a"\ninit_parts = ["head"]\nseeds'), "a list of encoder, position"),
        (("seeds", 'init_parts = ["encoder"]\nseeds'), "with init, a list"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    (tmp_path / "g.toml").write_text(TEXT.replace(*change))
    with pytest.raises(ConfigError, match=message) as error:
        read_grid(str(tmp_path / "g.toml"))
    assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match="choose one of contexts, positions"):
        read_grid("nothing")
