"""Self-attention contexts: the window is full attention with a mask, padding is neutral, cost is linear."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from typed import as_a

from hmerctl.runtime.errors import ConfigError
from hmerctl.train.models.parts import build
from hmerctl.train.models.relative import RelativeBias
from hmerctl.train.models.self_attention import TILE, SelfAttention, SelfAttentionLayer, contributions

CHANNELS = 12
WINDOWS = [(1, 1), (3, 5), (5, 3), (1, 9), (3, 23), (0, 1), (0, 5), (0, 23)]
MAPS = [(4, 8), (3, 13), (1, 5), (6, 24)]


def context(windows: list | None = None, layers: int = 1, relative: bool = False) -> SelfAttention:
    torch.manual_seed(0)
    options = {"name": "self-attention", "layers": layers, "heads": 3, "inner": 10, "dropout": 0.0}
    part = as_a(SelfAttention, build("context", {**options, "windows": windows or []}, channels=CHANNELS))
    if relative:
        part.add_relative_bias((2, 3))
        for i in range(layers):
            torch.nn.init.normal_(bias_of(part, i).table)
    return part.eval()


def layer_of(part: SelfAttention, index: int = 0) -> SelfAttentionLayer:
    return as_a(SelfAttentionLayer, part.layers[index])


def bias_of(part: SelfAttention, index: int = 0) -> RelativeBias:
    return as_a(RelativeBias, layer_of(part, index).relative)


def map_of(rows: int, columns: int, batch: int = 2) -> tuple[Tensor, Tensor]:
    """Cells and mask; in the second map the last row and column are padding."""
    mask = torch.ones(batch, 1, rows, columns)
    if rows > 1:
        mask[1:, :, -1:], mask[1:, :, :, -1:] = 0, 0
    return torch.randn(batch, CHANNELS, rows, columns) * mask, mask


def window_mask(rows: int, columns: int, window: tuple[int, int]) -> Tensor:
    """1 where a cell sees another: (cells, cells)."""
    y, x = (t.flatten() for t in torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij"))
    near = (y[:, None] - y).abs() <= (window[0] // 2 if window[0] else rows), (x[:, None] - x).abs() <= window[1] // 2
    return (near[0] & near[1]).float()


def dense(layer: SelfAttentionLayer, x: Tensor, mask: Tensor, window: tuple[int, int]) -> Tensor:
    """Full attention of a layer with everything outside the window masked, before W_O."""
    cells, valid = x.permute(0, 2, 3, 1), mask.permute(0, 2, 3, 1)
    query, key, value = (part.flatten(2, 3) for part in layer.project(cells))
    scores = query @ key.transpose(2, 3) * query.shape[3] ** -0.5
    if layer.relative is not None:
        scores = scores + layer.relative.between_cells(*x.shape[2:])
    seen = window_mask(x.shape[2], x.shape[3], window) * mask.flatten(2)
    mixed = (scores + (1 - seen[:, None]) * -1e9).softmax(3) @ value
    return (mixed.unflatten(2, x.shape[2:]).permute(0, 2, 3, 1, 4).flatten(3) * valid).permute(0, 3, 1, 2)


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize(("window", "size"), list(itertools.product(WINDOWS, MAPS)))
def test_a_window_is_full_attention_that_sees_no_further(
    window: tuple[int, int], size: tuple[int, int], relative: bool
) -> None:
    layer = layer_of(context([window], relative=relative))
    x, mask = map_of(*size)
    local = layer.attend(x.permute(0, 2, 3, 1), mask.permute(0, 2, 3, 1)).permute(0, 3, 1, 2) * mask
    assert (local - dense(layer, x, mask, window)).abs().max() < 1e-5


def test_a_window_over_the_whole_map_is_full_attention_with_the_same_weights() -> None:
    full, local = context(relative=True), context([(9, 17)], relative=True)
    local.load_state_dict(full.state_dict())
    x, mask = map_of(4, 8)
    assert (full(x, mask) - local(x, mask)).abs().max() < 1e-5


def test_nothing_outside_the_window_matters() -> None:
    part = context([(3, 5)])
    x = torch.randn(1, CHANNELS, 7, 20, requires_grad=True)
    part(x, torch.ones(1, 1, 7, 20))[0, :, 3, 9].square().sum().backward()
    touched = as_a(Tensor, x.grad)[0].abs().sum(0) > 0
    expected = torch.zeros(7, 20, dtype=torch.bool)
    expected[2:5, 7:12] = True
    assert torch.equal(touched, expected)


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("windows", [None, [(3, 5), (5, 9)], [(0, 0), (3, 3)], [(0, 3), (0, 9)]])
def test_padding_is_neutral(windows: list | None, relative: bool) -> None:
    part = context(windows, layers=2, relative=relative)
    x, mask = map_of(4, 9)
    padded = part(F.pad(x, (0, 6, 0, 3)), F.pad(mask, (0, 6, 0, 3)))
    assert (padded[:, :, :4, :9] - part(x, mask)).abs().max() < 1e-5
    assert not (padded * (1 - F.pad(mask, (0, 6, 0, 3)))).any()


@pytest.mark.parametrize("windows", [None, [(3, 5), (5, 9)], [(0, 5), (0, 9)]])
def test_it_trains(windows: list | None) -> None:
    part = context(windows, layers=2, relative=True).train()
    x, mask = map_of(4, 9)
    (part(x, mask) * torch.randn_like(x)).sum().backward()
    for name, parameter in part.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


def test_a_relative_bias_starts_at_nothing_and_depends_on_the_offset_alone() -> None:
    plain, biased = context(), context()
    biased.add_relative_bias((2, 3))
    x, mask = map_of(4, 8)
    assert torch.allclose(plain(x, mask), biased(x, mask), atol=1e-6)
    relative = bias_of(biased)
    torch.nn.init.normal_(relative.table)
    bias = relative.between_cells(5, 9).unflatten(2, (5, 9)).unflatten(1, (5, 9))
    for (y, x0), (dy, dx) in itertools.product([(1, 2), (3, 5)], [(-1, -2), (0, 3), (1, 1)]):
        assert torch.equal(bias[:, y, x0, y + dy, x0 + dx], relative.table[:, 2 + dy, 3 + dx])
    assert torch.equal(bias[:, 0, 0, 4, 8], relative.table[:, 4, 6])  # beyond the reach: the outermost entry
    assert torch.equal(bias[:, 1:, 1:, 1:, 1:], bias[:, :-1, :-1, :-1, :-1])


def test_a_bias_around_a_point_is_the_table_between_its_entries() -> None:
    """Seen from a cell it is the bias of that cell; seen from halfway between two it is the mean of theirs."""
    relative = bias_of(context(relative=True))
    cells = relative.between_cells(4, 6).unflatten(1, (4, 6))
    seen = relative.around(torch.tensor([[1.0, 2.0], [3.0, 0.0], [1.0, 2.5], [1.5, 2.0]]), 4, 6)
    assert torch.allclose(seen[0], cells[:, 1, 2], atol=1e-6) and torch.allclose(seen[1], cells[:, 3, 0], atol=1e-6)
    assert torch.allclose(seen[2], (cells[:, 1, 2] + cells[:, 1, 3]) / 2, atol=1e-6)
    assert torch.allclose(seen[3], (cells[:, 1, 2] + cells[:, 2, 2]) / 2, atol=1e-6)


def test_the_centre_of_attention_is_its_mean_place() -> None:
    relative = bias_of(context(relative=True))
    attention = torch.zeros(2, 3, 4)
    attention[0, 2, 1], attention[1, 0, 0], attention[1, 2, 3] = 1.0, 0.5, 0.5
    assert relative.centre(attention.flatten(1), 3, 4).tolist() == [[2.0, 1.0], [1.0, 1.5]]


def test_local_attention_multiplies_in_proportion_to_the_cells() -> None:
    """Four times the cells: four times the products in a window (up to the last tile), sixteen in full attention."""

    def products(part: SelfAttention, rows: int, columns: int) -> int:
        count = 0

        class Counter(torch.utils._python_dispatch.TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                nonlocal count
                if func == torch.ops.aten.bmm.default:
                    count += args[0].shape[0] * args[0].shape[1] * args[0].shape[2] * args[1].shape[2]
                return func(*args, **(kwargs or {}))

        with torch.no_grad(), Counter(), torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            layer_of(part).attend(torch.randn(1, rows, columns, CHANNELS), torch.ones(1, rows, columns, 1))
        return count

    window = (3, 9)
    small, large = (products(context([window]), rows, 4 * TILE) for rows in (4, 16))
    assert large == 4 * small
    assert small <= 2 * 4 * 4 * TILE * CHANNELS * 3 * (TILE + 9 - 1)
    small, large = (products(context(), rows, 4 * TILE) for rows in (4, 16))
    assert large == 16 * small


def test_contributions_are_the_norms_of_what_each_cell_adds() -> None:
    """Alastruey et al. 2022, eq. 3-5, against a direct sum over heads; and the parts add up to the output."""
    layer = layer_of(context())
    x, mask = map_of(3, 4)
    cells, valid = x.permute(0, 2, 3, 1), mask.permute(0, 2, 3, 1)
    query, key, value = (part.flatten(2, 3) for part in layer.project(cells))
    scores = query @ key.transpose(2, 3) / 2 + (1 - mask.flatten(2)[:, None]) * -1e9
    attention = scores.softmax(3)
    moved = [value[:, h] @ layer.out.weight[:, 4 * h : 4 * h + 4].T for h in range(3)]
    parts = sum(attention[:, h, :, :, None] * moved[h][:, None] for h in range(3))
    own = torch.eye(12)[None, :, :, None] * cells.flatten(1, 2)[:, None]
    output = cells + layer.out(layer.attend(cells, valid)) - layer.out.bias
    assert torch.allclose((parts + own).sum(2), output.flatten(1, 2), atol=1e-5)
    norms = (parts + own).norm(dim=3) * mask.flatten(2)
    found = contributions(layer, cells, valid)
    assert torch.allclose(found, norms / norms.sum(2, keepdim=True), atol=1e-5)
    assert torch.allclose(found.sum(2), torch.ones(2, 12), atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"windows": [[3, 5]]}, "1 windows for 2 layers"),
        ({"windows": [[3, 4], [3, 3]]}, "odd"),
        ({"windows": [[3, 0], [3, 3]]}, "rows may be 0"),
        ({"heads": 5}, "not a multiple of 5 heads"),
    ],
)
def test_wrong_options_are_refused_in_one_line(options: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build("context", {"name": "self-attention", "heads": 3, "layers": 2, **options}, channels=CHANNELS)
