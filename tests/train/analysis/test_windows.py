"""Windows from a checkpoint: the analysis sees what attention does, and its preset starts from the same weights."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from synthetic import TINY, make_dataset
from typed import as_a
from typer.testing import CliRunner, Result

from hmerctl.cli import app
from hmerctl.runtime.errors import ConfigError
from hmerctl.runtime.raster import RasterSpec
from hmerctl.runtime.vocabulary import CROHME
from hmerctl.train.analysis.windows import WHOLE, LayerLocality, Locality, analyse
from hmerctl.train.analysis.windows_report import draw_contributions, markdown
from hmerctl.train.checkpoint import CheckpointInfo, save_checkpoint
from hmerctl.train.config import Preset, load_preset, to_toml
from hmerctl.train.dataset import ExpressionDataset
from hmerctl.train.locality import axis_profile
from hmerctl.train.models.recognizer import Recognizer
from hmerctl.train.models.self_attention import SelfAttention, SelfAttentionLayer

CONTEXT = 'model.context={name="self-attention", layers=2, heads=2, inner=16}'


def checkpoint(path: Path, *settings: str) -> Path:
    """A tiny model whose second layer attends to nothing but the cell itself: its values are zero."""
    preset = load_preset("edge", [*TINY, CONTEXT, *settings])
    torch.manual_seed(0)
    model = Recognizer(preset.model, CROHME)
    if preset.model.context["name"] == "self-attention":
        first, layer = (as_a(SelfAttentionLayer, part) for part in as_a(SelfAttention, model.context).layers)
        layer.qkv.weight.data[2 * 16 :] = 0
        layer.qkv.bias.data[2 * 16 :] = 0
        first.qkv.weight.data *= 3
    save_checkpoint(path, model.state_dict(), CheckpointInfo(preset, CROHME))
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dataset(tmp_path_factory.mktemp("data") / "set", 8)


def locality(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["analyze", "locality", *map(str, arguments)])


def test_a_layer_without_attention_needs_one_cell(data: Path, tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "checkpoint")
    result = locality(path, "--data", data, "--out", tmp_path / "out", "--samples", 5, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    first, second = found["layers"]
    assert found["samples"] == 5 and found["skipped"] == 0
    assert second["window"] == [1, 1] and second["lost_mean"] == pytest.approx(0, abs=1e-6)
    assert second["ccd_mean"] == pytest.approx(1) and first["ccd_mean"] < 0.99
    assert first["diagonality"][-1] == pytest.approx(1, abs=1e-5)
    assert json.loads((tmp_path / "out/locality.json").read_text()) == found
    for name in ("diagonality.png", "contributions.png", "profiles.png"):
        assert (tmp_path / "out" / name).read_bytes().startswith(b"\x89PNG")
    assert "| 2 | 1.00 ± 0.00 | 1.00 ± 0.00 | 1 x 1 |" in (tmp_path / "out/locality.md").read_text()

    preset, before = load_preset(str(tmp_path / "out/local.toml")), load_preset("edge", [*TINY, CONTEXT])
    assert preset.name == "edge-local" and preset.model.context["windows"] == [
        layer["window"] for layer in found["layers"]
    ]
    assert {**preset.model.context, "windows": None} == {**before.model.context, "windows": None}
    assert (preset.raster, preset.train.augment) == (before.raster, before.train.augment)
    assert preset.train.learning_rate == before.train.learning_rate / 4
    known = Recognizer(before.model, CROHME).state_dict()
    assert {k: v.shape for k, v in Recognizer(preset.model, CROHME).state_dict().items()} == {
        k: v.shape for k, v in known.items()
    }


def test_larger_maps_are_left_out_and_told(data: Path, tmp_path: Path) -> None:
    path = checkpoint(tmp_path / "checkpoint")
    sizes = sorted(np.prod(-(-np.array(e.drawn(RasterSpec()).pixels.shape) // 8)) for e in ExpressionDataset(data))
    result = locality(path, "--data", data, "--out", tmp_path / "out", "--most-cells", sizes[4], "--json")
    found = json.loads(result.stdout)
    assert (found["samples"], found["skipped"]) == (
        sum(s <= sizes[4] for s in sizes),
        sum(s > sizes[4] for s in sizes),
    )
    result = locality(path, "--data", data, "--out", tmp_path / "out", "--most-cells", 2)
    assert result.exit_code == 1 and "raise --most-cells" in result.stderr


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.context.windows=[[3, 5], [3, 5]]", "has windows already"),
        ('model.context={name="none"}', "this checkpoint has 'none'"),
    ],
)
def test_only_attention_to_the_whole_map_is_analysed(setting: str, message: str, data: Path) -> None:
    preset = load_preset("edge", [*TINY, CONTEXT, setting])
    info = CheckpointInfo(preset, CROHME)
    with pytest.raises(ConfigError, match=message):
        next(analyse(Recognizer(preset.model, CROHME), info, ExpressionDataset(data)))


def layer_of(reach: int, shape: tuple[int, int]) -> LayerLocality:
    """Every cell takes equal parts from the cells within reach."""
    y, x = np.divmod(np.arange(shape[0] * shape[1]), shape[1])
    near = (np.abs(y - y[:, None]) <= reach) & (np.abs(x - x[:, None]) <= reach)
    layer = LayerLocality()
    layer.add(near / near.sum(1, keepdims=True), shape)
    return layer


def test_a_window_is_used_where_it_loses_little_and_saves_work() -> None:
    shape = (10, 24)
    layers = [layer_of(1, shape), layer_of(9, shape)]
    # What is spread over nearly the whole map is nowhere above the threshold; its window loses almost everything.
    assert [layer.window(0.015) for layer in layers] == [(3, 3), (1, 1)]
    assert Locality(layers, [shape], 0, 0.015, most_lost=0.25).windows == [(3, 3), WHOLE]
    # Nine cells have a ninth each; none is above a half.
    assert layers[0].lost((1, 1)) == pytest.approx([0.87], abs=0.02)
    assert Locality(layers, [shape], 0, 0.5, most_lost=0.25).windows == [WHOLE, WHOLE]
    assert Locality(layers, [shape], 0, 0.5, most_lost=0.9).windows == [(1, 1), WHOLE]


def test_a_window_as_high_as_the_maps_is_one_of_all_their_rows() -> None:
    """Each cell takes from cells up to 5 rows and columns away: 11 rows are needed, the maps have 6."""
    shape = (6, 60)
    found = Locality([layer_of(5, shape)], [shape], 0, 0.001, most_lost=0.25)
    assert found.layers[0].window(0.001) == (11, 11)
    assert found.windows == [(0, 11)]
    assert found.looked_at((0, 11)) == pytest.approx(6 * 18 / 360)
    assert found.layers[0].lost((0, 11)) == pytest.approx([0], abs=1e-9)
    assert "all x 11" in markdown("title", found)
    draw_contributions(found)


def test_other_thresholds_are_told_with_what_they_lose_and_save() -> None:
    shape = (10, 30)
    found = Locality([layer_of(1, shape)], [shape], 0, 0.5, most_lost=0.25)
    rows = found.to_dict()["thresholds"]
    assert [row["layers"][0]["found"] for row in rows] == [[3, 3]] * len(rows)
    assert rows[0]["layers"][0]["lost_mean"] == pytest.approx(0, abs=1e-9)
    assert rows[0]["layers"][0]["looked_at"] == pytest.approx(3 * 10 / 300)
    assert "| 0.015 | 3 x 3: 0.00, 10% |" in markdown("title", found)


def test_the_profile_of_an_axis_is_the_mean_over_maps_that_have_the_offset() -> None:
    layer = layer_of(1, (2, 3))
    layer.offsets += layer_of(1, (4, 5)).offsets
    assert layer.profile(1).shape == (5,)
    assert layer.profile(1)[3:] == pytest.approx(0)
    narrow, wide = (axis_profile(table, 1) for table in layer.offsets)
    assert layer.profile(1)[1] == pytest.approx((narrow[3] + wide[5]) / 2)


def test_offsets_of_maps_of_different_size_are_averaged_over_their_cells() -> None:
    layer = layer_of(1, (2, 3))
    other = layer_of(1, (4, 5))
    layer.offsets += other.offsets
    table = layer.mean_offsets()
    assert table.shape == (7, 9)
    middle = (6 * layer.offsets[0][1, 2] + 20 * layer.offsets[1][3, 4]) / 26
    assert table[3, 4] == pytest.approx(middle) and table[0, 0] == 0


def test_any_preset_is_written_so_that_it_reads_back(tmp_path: Path) -> None:
    settings = [
        "train.augment=false",
        'model.position={name="sum", parts=[{name="none"}, {name="learned", on="keys"}]}',
    ]
    for name in ("edge", "zhou2023"):
        preset: Preset = load_preset(name, settings)
        table = preset.to_dict()
        (tmp_path / "p.toml").write_text(to_toml(table))
        assert load_preset(str(tmp_path / "p.toml")) == preset
    with pytest.raises(TypeError, match="not TOML"):
        to_toml({"a": None})
