"""MD-RNNs: the diagonal scan equals a scan cell by cell, from all four corners, whatever the padding."""

import time

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from typed import as_a

from hmerctl.train.models.multidirectional import DIRECTIONS, MultiDirectional, skew, unskew
from hmerctl.train.models.parts import build

CHANNELS = 8
NAMES = ["md-rnn", "md-gru", "md-lstm"]


def context(name: str, **options: object) -> MultiDirectional:
    torch.manual_seed(0)
    return as_a(MultiDirectional, build("context", {"name": name, **options}, channels=CHANNELS)).eval()


def cell_by_cell(part: MultiDirectional, x: Tensor) -> Tensor:
    """The definition: visit every cell of one map (1, channels, rows, columns) in order, from each corner."""
    rows, columns = x.shape[2:]
    hidden = part.cell.hidden
    out = torch.zeros(DIRECTIONS, rows, columns, hidden)
    given = part.given(x[0].permute(1, 2, 0)).unflatten(2, (DIRECTIONS, -1))
    for direction in range(DIRECTIONS):
        ys = range(rows) if direction < 2 else range(rows - 1, -1, -1)
        xs = range(columns) if direction % 2 == 0 else range(columns - 1, -1, -1)
        dy, dx = ys.step, xs.step
        states: dict[tuple[int, int], tuple[Tensor, ...]] = {}
        nothing = tuple(torch.zeros(DIRECTIONS, 1, hidden) for _ in range(part.cell.states))
        for y in ys:
            for x0 in xs:
                own = torch.zeros(DIRECTIONS, 1, given.shape[3])
                own[direction, 0] = given[y, x0, direction]
                left, above = states.get((y, x0 - dx), nothing), states.get((y - dy, x0), nothing)
                states[y, x0] = part.cell(own, left, above)
                out[direction, y, x0] = states[y, x0][0][direction, 0]
    mixed = part.output(out.permute(1, 2, 0, 3).flatten(2)).permute(2, 0, 1)[None]
    return x + mixed if part.residual else mixed


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [(1, 1), (1, 6), (5, 1), (3, 7), (6, 4)])
def test_diagonals_equal_a_scan_cell_by_cell(name: str, size: tuple[int, int]) -> None:
    part, x = context(name), torch.randn(1, CHANNELS, *size)
    with torch.no_grad():
        assert (part(x, torch.ones(1, 1, *size)) - cell_by_cell(part, x)).abs().max() < 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_diagonals_are_several_times_faster(name: str) -> None:
    """27 steps instead of 640; ``pytest -s`` shows the processor time."""
    part, x = context(name), torch.randn(1, CHANNELS, 8, 20)
    mask = torch.ones(1, 1, 8, 20)
    with torch.no_grad():
        part(x, mask)
        times = []
        for scan in (lambda: part(x, mask), lambda: cell_by_cell(part, x)):
            start = time.process_time()
            scan()
            times.append(time.process_time() - start)
    print(f"{name}, 8 x 20 cells: {1000 * times[0]:.1f} ms by diagonals, {1000 * times[1]:.1f} ms cell by cell")
    assert times[0] < times[1] / 3


def test_the_plain_cell_is_the_formula() -> None:
    """H_xy = tanh(W_i I_xy + b + W_x H_{x-1,y} + W_y H_{x,y-1}); the output is linear in H."""
    part = context("md-rnn", residual=False)
    x = torch.randn(1, CHANNELS, 2, 2)
    given = part.given(x[0].permute(1, 2, 0))[..., :2]  # the first direction has the first two of eight
    h = torch.zeros(3, 3, 2)
    for y, x0 in ((0, 0), (0, 1), (1, 0), (1, 1)):
        total = given[y, x0] + h[y + 1, x0] @ part.cell.across[0] + h[y, x0 + 1] @ part.cell.down[0]
        h[y + 1, x0 + 1] = total.tanh()
    states: list[Tensor] = []
    part.output.register_forward_hook(lambda module, inputs, output: states.append(inputs[0]))
    part(x, torch.ones(1, 1, 2, 2))
    assert torch.allclose(states[0][0, :, :, :2], h[1:, 1:], atol=1e-6)


def test_a_gru_state_is_a_mean_of_what_it_may_keep() -> None:
    cell = context("md-gru").cell
    left, above = torch.rand(DIRECTIONS, 5, 2) * 2 - 1, torch.rand(DIRECTIONS, 5, 2) * 2 - 1
    (h,) = cell(torch.randn(DIRECTIONS, 5, 12) * 3, (left,), (above,))
    assert h.abs().max() <= 1
    keep_left = torch.zeros(DIRECTIONS, 5, 12)
    keep_left[..., 2:4] = 100
    assert torch.allclose(cell(keep_left, (left,), (above,))[0], left)


def test_an_lstm_forgets_each_predecessor_by_a_gate_of_its_own() -> None:
    cell = context("md-lstm").cell
    zero, left, above = (torch.zeros(DIRECTIONS, 3, 2), *torch.randn(2, DIRECTIONS, 3, 2))
    given = torch.zeros(DIRECTIONS, 3, 10)
    given[..., 0:2], given[..., 2:4], given[..., 4:6], given[..., 6:8] = -100, 100, -100, 100
    h, c = cell(given, (zero, left), (zero, above))
    assert torch.allclose(c, left) and torch.allclose(h, left.tanh())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("valid", [(3, 5), (1, 5), (4, 1)])
def test_padding_is_neutral(name: str, valid: tuple[int, int]) -> None:
    """Scans from the far corners start in padding; it leaves no trace."""
    part, x = context(name), torch.randn(1, CHANNELS, *valid)
    padding = (0, 7 - valid[1], 0, 6 - valid[0])
    mask = F.pad(torch.ones(1, 1, *valid), padding)
    padded = part(F.pad(x, padding), mask)
    assert (padded[:, :, : valid[0], : valid[1]] - part(x, torch.ones(1, 1, *valid))).abs().max() < 1e-6
    assert not (padded * (1 - mask)).any()


@pytest.mark.parametrize("name", NAMES)
def test_maps_of_a_batch_do_not_mix(name: str) -> None:
    part, x = context(name), torch.randn(3, CHANNELS, 4, 5)
    alone = torch.cat([part(one[None], torch.ones(1, 1, 4, 5)) for one in x])
    assert (part(x, torch.ones(3, 1, 4, 5)) - alone).abs().max() < 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_every_cell_hears_every_other(name: str) -> None:
    part, x = context(name), torch.randn(1, CHANNELS, 4, 5, requires_grad=True)
    part(x, torch.ones(1, 1, 4, 5))[0, :, 2, 2].sum().backward()
    assert (as_a(Tensor, x.grad).abs().sum(1) > 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_it_trains_and_says_that_its_graph_has_a_fixed_size(name: str) -> None:
    part, x = context(name).train(), torch.randn(2, CHANNELS, 4, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = part(x, torch.ones(2, 1, 4, 5))
    out.float().square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in part.parameters())
    assert "unrolled" in part.fixed_size


def test_skew_makes_columns_of_diagonals() -> None:
    cells = torch.arange(1, 13).reshape(1, 3, 4, 1)
    skewed = skew(cells)[0, :, :, 0]
    assert skewed.tolist() == [[1, 2, 3, 4, 0, 0], [0, 5, 6, 7, 8, 0], [0, 0, 9, 10, 11, 12]]
    assert torch.equal(unskew(skew(cells), 4), cells)
