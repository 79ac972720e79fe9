"""What the sources promise of position encodings: unique, relative, and good for sizes never seen."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typed import as_a

from hmerctl.runtime.errors import ConfigError
from hmerctl.train.models import relative  # noqa: F401  (it registers its part)
from hmerctl.train.models.learned_positions import (
    ConvolutionPosition,
    DynamicPosition,
    LearnedPosition,
    SumPosition,
)
from hmerctl.train.models.parts import build, names
from hmerctl.train.models.positions import rotation, sinusoid, timing_signal

CHANNELS = 16
TABLES = ["sinusoidal", "multi-scale", "timing", "learned", "hybrid", "dynamic"]
ALL = [*TABLES, "convolution", "relative", "none", "sum"]

places = st.floats(0, 200, allow_nan=False)
scales = st.floats(1, 5, allow_nan=False)


def encoding(part: torch.nn.Module, rows: int, columns: int, channels: int = CHANNELS) -> torch.Tensor:
    """The table a part adds to a map of zeros: (channels, rows, columns)."""
    x, mask = torch.zeros(1, channels, rows, columns), torch.ones(1, 1, rows, columns)
    return part(x, mask)[0]


def test_the_family_is_complete() -> None:
    assert set(ALL) <= set(names("position"))


@given(p=places, b=places, m=scales)
@settings(max_examples=50, deadline=None)
def test_a_shift_is_a_rotation_of_the_encoding(p: float, b: float, m: float) -> None:
    """Zhou 2023, eq. 4: P(p + b) = R(m b) P(p), one 2x2 rotation per pair of channels, and R does not depend on p."""
    here, there = sinusoid(torch.tensor([p, p + b], dtype=torch.float64), 32, 64, m).view(2, 16, 2)
    turned = (rotation(b, 32, 64, m) @ here[:, :, None])[:, :, 0]
    assert (turned - there).abs().max() < 1e-9
    frequency = 10000.0 ** -(torch.arange(0, 32, 2, dtype=torch.float64) / 64)
    assert torch.allclose(rotation(b, 32, 64, m)[:, 0, 0], (m * b * frequency).cos(), atol=1e-9)


@given(p=places, b=places, m=scales)
@settings(max_examples=50, deadline=None)
def test_the_product_of_two_places_tells_their_distance(p: float, b: float, m: float) -> None:
    """Zhou 2023, below eq. 4: P(p + b) . P(p) = cos(m b) per pair, b in units of the pair's wavelength."""
    here, there = sinusoid(torch.tensor([p, p + b], dtype=torch.float64), 32, 64, m).view(2, 16, 2)
    frequency = 10000.0 ** -(torch.arange(0, 32, 2, dtype=torch.float64) / 64)
    assert torch.allclose((here * there).sum(1), (m * b * frequency).cos(), atol=1e-9)


@given(m=scales, n=scales, x=st.integers(0, 30), y=st.integers(0, 15))
@settings(max_examples=25, deadline=None)
def test_multi_scale_table_is_the_formula(m: float, n: float, x: int, y: int) -> None:
    """x in the first half of the channels with scale m, y in the second with scale n (Zhou 2023, eq. 2-3)."""
    table = encoding(
        build("position", {"name": "multi-scale", "x_scale": m, "y_scale": n}, channels=CHANNELS), 16, 31
    )
    for start, place, scale in ((0, x, m), (CHANNELS // 2, y, n)):
        for i in range(CHANNELS // 4):
            angle = scale * place * math.exp(2 * i * -math.log(10000) / CHANNELS)
            pair = table[start + 2 * i : start + 2 * i + 2, y, x]
            assert pair.tolist() == pytest.approx([math.sin(angle), math.cos(angle)], abs=1e-6)


def test_multi_scale_of_a_picture_is_the_plain_table_of_the_stretched_picture() -> None:
    scaled = encoding(build("position", {"name": "multi-scale", "x_scale": 3.0, "y_scale": 2.0}, channels=16), 5, 6)
    plain = encoding(build("position", {"name": "multi-scale", "x_scale": 1.0, "y_scale": 1.0}, channels=16), 10, 18)
    assert torch.allclose(scaled, plain[:, ::2, ::3], atol=1e-6)


@pytest.mark.parametrize("name", ["sinusoidal", "multi-scale", "hybrid"])
def test_axes_are_added_bit_for_bit_as_the_joined_table(name: str) -> None:
    part = build("position", {"name": name}, channels=CHANNELS)
    x, mask = torch.randn(2, CHANNELS, 5, 7), (torch.rand(2, 1, 5, 7) > 0.3).float()
    assert torch.equal(part(x, mask), x + part.table(5, 7)[None] * mask)  # type: ignore[operator]


def test_stepwise_training_shows_one_stretch_at_a_time_and_inference_both() -> None:
    part = build("position", {"name": "multi-scale", "stepwise": True}, channels=16)
    both = encoding(build("position", {"name": "multi-scale"}, channels=16), 4, 7)
    wide = encoding(build("position", {"name": "multi-scale", "x_scale": 3.0, "y_scale": 1.0}, channels=16), 4, 7)
    tall = encoding(build("position", {"name": "multi-scale", "x_scale": 1.0, "y_scale": 2.0}, channels=16), 4, 7)
    torch.manual_seed(0)
    seen = part.train()(torch.zeros(32, 16, 4, 7), torch.ones(32, 1, 4, 7))
    kinds = {tuple(torch.equal(one, table) for table in (wide, tall)) for one in seen}
    assert kinds == {(True, False), (False, True)}
    assert torch.equal(encoding(part.eval(), 4, 7), both)


def test_a_symbol_has_the_same_place_in_the_plain_and_in_the_stretched_picture() -> None:
    """Zhou 2023, figure 4 and equations 2-3: cell m x of the picture stretched in x is cell x of the plain one."""
    part = build("position", {"name": "multi-scale", "x_scale": 3.0, "y_scale": 2.0}, channels=16)
    stretched = torch.tensor([False, True])
    seen = part.in_views(torch.zeros(2, 16, 8, 21), torch.ones(2, 1, 8, 21), stretched)  # type: ignore[operator]
    plain, other = seen
    assert torch.equal(plain, encoding(part, 8, 21))
    assert torch.allclose(plain[:8, :, :7], other[:8, :, ::3], atol=1e-6)
    assert torch.allclose(plain[8:, :4], other[8:, ::2], atol=1e-6)


def test_sinusoidal_has_rows_first_and_the_frequencies_of_half_the_channels() -> None:
    """Paper 2, section 3.2: ``position_encoding(row_pos, dim // 2)`` and the same for columns."""
    table = encoding(build("position", {"name": "sinusoidal"}, channels=16), 6, 9)
    for i in range(4):
        angle = 5 / 10000 ** (2 * i / 8)
        assert table[2 * i, 5, 8].item() == pytest.approx(math.sin(angle), abs=1e-6)
        angle = 8 / 10000 ** (2 * i / 8)
        assert table[8 + 2 * i + 1, 5, 8].item() == pytest.approx(math.cos(angle), abs=1e-6)


@pytest.mark.parametrize("shape", [(50,), (7, 9), (3, 4, 5), (2, 3, 2, 3)])
def test_timing_signal_of_any_rank(shape: tuple[int, ...]) -> None:
    """Every cell has its own signal, which is the sum of what each axis says alone (add_timing_signal_nd)."""
    channels = 8 * len(shape) + 1
    signal = timing_signal(shape, channels, 1.0, 1e4)
    assert signal.shape == (channels, *shape) and signal.dtype == torch.float64
    cells = signal.flatten(1).T
    assert len(np.unique(cells.numpy().round(9), axis=0)) == math.prod(shape)
    assert not signal[8 * len(shape) :].any()
    last = tuple(length - 1 for length in shape)
    for axis, place in enumerate(last):
        own = signal[8 * axis : 8 * axis + 8].flatten(1)[:, -1]
        wave = place * torch.tensor([1e4 ** (-i / 3) for i in range(4)], dtype=torch.float64)
        assert torch.allclose(own, torch.cat([wave.sin(), wave.cos()]), atol=1e-12)


def test_timing_signal_refuses_too_few_channels() -> None:
    with pytest.raises(ValueError, match="at least 8 channels"):
        timing_signal((4, 4), 7)


@pytest.mark.parametrize("name", TABLES)
def test_every_cell_of_the_largest_map_has_its_own_encoding(name: str) -> None:
    """Unique (paper 2, section 3.1): no two of 32 x 160 cells are closer than 1e-3."""
    table = encoding(build("position", {"name": name}, channels=64).eval(), 32, 160, 64).flatten(1).T.detach()
    distances = torch.cdist(table, table)
    distances.fill_diagonal_(1)
    assert distances.min() > 1e-3


@pytest.mark.parametrize("name", [*TABLES, "sum"])
def test_a_smaller_map_has_a_part_of_the_larger_table(name: str) -> None:
    """Any size up to the table's has an encoding, and a cell keeps its own when the map grows."""
    part = build("position", {"name": name}, channels=CHANNELS)
    if name == "sum":
        convolution = as_a(ConvolutionPosition, as_a(SumPosition, part).parts[1])
        for weight in convolution.depthwise.parameters():
            torch.nn.init.zeros_(weight)
    assert torch.equal(encoding(part, 3, 5), encoding(part, 30, 150)[:, :3, :5])


@pytest.mark.parametrize("name", ["sinusoidal", "multi-scale", "timing", "hybrid", "dynamic"])
def test_sizes_never_seen_need_no_new_weights(name: str) -> None:
    """Extendable: the formula, not a trained entry, places the cells beyond the training sizes."""
    part = build("position", {"name": name}, channels=CHANNELS)
    weights = list(part.parameters())
    if name in ("sinusoidal", "multi-scale", "timing"):
        assert not weights and not part.state_dict()
        return
    before = encoding(part, 20, 40).detach()
    part(torch.randn(2, CHANNELS, 4, 6), torch.ones(2, 1, 4, 6)).square().sum().backward()
    with torch.no_grad():
        for weight in weights:
            weight.sub_(as_a(torch.Tensor, weight.grad), alpha=0.1)
    after = encoding(part, 20, 40)
    moved = (after - before).abs().amax(0)
    if name == "hybrid":
        assert moved[:4, :6].min() > 0 and not moved[4:, 6:].any()
    else:
        # One gate for all cells without content: what the training cells taught holds for every other cell.
        dynamic = as_a(DynamicPosition, part)
        gate = as_a(torch.Tensor, dynamic.gate.bias).sigmoid()[:, None, None]
        assert moved[:, 5:].min() > 0 and torch.allclose(after, gate * dynamic.table(20, 40), atol=1e-6)


def test_learned_entries_beyond_the_training_sizes_are_untrained() -> None:
    """What the learned table cannot promise: only rows and columns that training showed move."""
    part = as_a(LearnedPosition, build("position", {"name": "learned"}, channels=CHANNELS))
    part(torch.zeros(1, CHANNELS, 4, 6), torch.ones(1, 1, 4, 6)).square().sum().backward()
    rows, columns = (as_a(torch.Tensor, table.grad) for table in (part.rows, part.columns))
    assert rows[:, :4].abs().min() > 0 and not rows[:, 4:].any()
    assert columns[:, :6].abs().min() > 0 and not columns[:, 6:].any()


def test_the_tables_are_rounded_once_from_float64() -> None:
    table = encoding(build("position", {"name": "multi-scale"}, channels=64), 32, 160, 64).double()
    angles = 3.0 * np.arange(160)[:, None] * np.exp(np.arange(0, 32, 2) * -math.log(10000) / 64)
    assert np.abs(table[0:32:2, 0].T.numpy() - np.sin(angles)).max() < 6e-8


@pytest.mark.parametrize("name", ALL)
def test_padding_stays_zero_and_changes_no_cell(name: str) -> None:
    part = build("position", {"name": name}, channels=CHANNELS)
    x = torch.randn(2, CHANNELS, 5, 9)
    padded = torch.nn.functional.pad(x, (0, 4, 0, 3))
    mask = torch.nn.functional.pad(torch.ones(2, 1, 5, 9), (0, 4, 0, 3))
    out = part.eval()(padded, mask)
    assert torch.allclose(out[:, :, :5, :9], part(x, torch.ones(2, 1, 5, 9)), atol=1e-6)
    assert not out[:, :, 5:].any() and not out[:, :, :, 9:].any()


def test_a_dynamic_gate_depends_on_the_content() -> None:
    part = as_a(DynamicPosition, build("position", {"name": "dynamic"}, channels=CHANNELS))
    x, mask = torch.randn(1, CHANNELS, 4, 4), torch.ones(1, 1, 4, 4)
    torch.nn.init.normal_(part.gate.weight)
    gate = ((part(x, mask) - x) / part.table(4, 4))[0, 1::2]  # the cosines, which are far from zero here
    assert gate.min() > 0 and gate.max() < 1 + 1e-5 and gate.std() > 0.1


def test_a_position_convolution_sees_the_border_and_is_relative_inside() -> None:
    """Equal cells can be told apart within half a kernel of the border; away from it a shift changes nothing."""
    part = build("position", {"name": "convolution", "kernel": 5}, channels=CHANNELS)
    table = part(torch.ones(1, CHANNELS, 12, 12), torch.ones(1, 1, 12, 12))[0]
    assert torch.allclose(table[:, 2:10, 2:10], table[:, 5:6, 5:6].expand(-1, 8, 8), atol=1e-5)
    corner = table[:, :3, :3].flatten(1).T
    assert torch.pdist(corner.detach()).min() > 1e-3
    x = torch.zeros(1, CHANNELS, 12, 12)
    x[:, :, 5, 5] = 1
    mask = torch.ones(1, 1, 12, 12)
    assert torch.allclose(
        part(x, mask).roll((1, 2), (2, 3))[..., 3:9, 3:9], part(x.roll((1, 2), (2, 3)), mask)[..., 3:9, 3:9]
    )


@pytest.mark.parametrize("name", ALL)
def test_every_part_passes_gradients_on(name: str) -> None:
    part = build("position", {"name": name}, channels=CHANNELS)
    x = torch.randn(2, CHANNELS, 4, 6, requires_grad=True)
    (part(x, torch.ones(2, 1, 4, 6)) * torch.randn(2, CHANNELS, 4, 6)).sum().backward()
    assert as_a(torch.Tensor, x.grad).abs().sum() > 0
    for parameter in part.parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "multi-scale", "x_scale": 0.5}, "at least 1"),
        ({"name": "multi-scale", "on": "values"}, 'choose "features" or "keys"'),
        ({"name": "convolution", "kernel": 4}, "odd"),
        ({"name": "relative", "reach_rows": 0}, "at least 1"),
        ({"name": "sum", "parts": [{"name": "nothing"}]}, "choose one of"),
        ({"name": "multi-scale", "rows": 9}, "unknown option 'rows'; known are max_columns, max_rows, on, "),
    ],
)
def test_wrong_options_are_refused_in_one_line(options: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build("position", options, channels=CHANNELS)


@pytest.mark.parametrize("name", ["sinusoidal", "multi-scale", "learned", "hybrid", "dynamic"])
def test_channels_must_hold_whole_pairs(name: str) -> None:
    with pytest.raises(ConfigError, match="multiple of 4"):
        build("position", {"name": name}, channels=18)
