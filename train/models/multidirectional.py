"""Contexts `md-rnn`, `md-gru` and `md-lstm`: recurrent in two dimensions, from all four corners.

Source: Graves, Fernandez and Schmidhuber, arXiv 0705.2011: ``H_xy = sigma(W_i I_xy + W_x H_{x-1,y} + W_y
H_{x,y-1})``, outputs linear in H, 2^2 directions with small hidden layers; the LSTM cell after Graves and
Schmidhuber, NIPS 2008. Any order of visits is fine where both predecessors are ready, so all cells of an
anti-diagonal take one step together: rows + columns - 1 batched steps instead of rows * columns.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hmerctl.train.models.contexts import Context
from hmerctl.train.models.parts import register

DIRECTIONS = 4
"""Scans from the top left, top right, bottom left and bottom right corner."""

State = tuple[Tensor, ...]
"""What a cell hands on: the output first, then what only cells see; each (DIRECTIONS, cells, hidden)."""


class MDCell(nn.Module):
    """One step of all directions, each with its own weights.

    Attributes:
        gates: vectors of ``hidden`` numbers that the input gives a cell.
        recurrent: vectors of ``hidden`` numbers that each predecessor gives a cell.
        states: tensors in the state.
    """

    gates: ClassVar[int]
    recurrent: ClassVar[int]
    states: ClassVar[int] = 1

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        shape = DIRECTIONS, hidden, self.recurrent * hidden
        # Two predecessors: half the variance of a plain recurrent layer from each.
        self.across = nn.Parameter(torch.randn(shape) * (2 * hidden) ** -0.5)
        self.down = nn.Parameter(torch.randn(shape) * (2 * hidden) ** -0.5)

    def forward(self, given: Tensor, left: State, above: State) -> State:
        """One step.

        Args:
            given: ``W_i I + b`` (DIRECTIONS, cells, gates * hidden).
            left: state of the cell before in the row, as seen from the corner; zero outside the map.
            above: state of the cell before in the column.
        """
        raise NotImplementedError

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        """(..., n * hidden) -> n times (..., hidden)."""
        return x.split([self.hidden] * (x.shape[-1] // self.hidden), dim=-1)


class MDRNNCell(MDCell):
    """``h = tanh(W_i I + b + W_x h_left + W_y h_above)`` (arXiv 0705.2011, with tanh for sigma **(reading)**)."""

    gates, recurrent = 1, 1

    def forward(self, given: Tensor, left: State, above: State) -> State:
        """See ``MDCell.forward``."""
        return ((given + left[0] @ self.across + above[0] @ self.down).tanh(),)


class MDGRUCell(MDCell):
    """A GRU of two predecessors **(reading: the source has no GRU; this is the GRU for a chain of cells)**.

    ``(z, z_x, z_y) = softmax`` of three gates, so that the state stays a mean of what it may keep;
    ``n = tanh(W_n I + b + r_x * (U_x h_left) + r_y * (U_y h_above))``; ``h = z n + z_x h_left + z_y h_above``.
    """

    gates, recurrent = 6, 6

    def forward(self, given: Tensor, left: State, above: State) -> State:
        """See ``MDCell.forward``."""
        h = self.hidden
        from_left, from_above = left[0] @ self.across, above[0] @ self.down
        gates = given[..., : 5 * h] + from_left[..., : 5 * h] + from_above[..., : 5 * h]
        new, keep_left, keep_above = gates[..., : 3 * h].unflatten(-1, (3, h)).softmax(-2).unbind(-2)
        reset_left, reset_above = self.split(gates[..., 3 * h :].sigmoid())
        fresh = given[..., 5 * h :] + reset_left * from_left[..., 5 * h :] + reset_above * from_above[..., 5 * h :]
        return (new * fresh.tanh() + keep_left * left[0] + keep_above * above[0],)


class MDLSTMCell(MDCell):
    """MDLSTM without peepholes (Graves and Schmidhuber, NIPS 2008): a forget gate for each predecessor.

    ``c = i g + f_x c_left + f_y c_above``, ``h = o tanh(c)``. Gates start at one half, so what is kept of the two
    predecessors together starts at their mean.
    """

    gates, recurrent, states = 5, 5, 2

    def forward(self, given: Tensor, left: State, above: State) -> State:
        """See ``MDCell.forward``."""
        h = self.hidden
        gates = given + left[0] @ self.across + above[0] @ self.down
        enter, keep_left, keep_above, leave = self.split(gates[..., : 4 * h].sigmoid())
        inner = enter * gates[..., 4 * h :].tanh() + keep_left * left[1] + keep_above * above[1]
        return leave * inner.tanh(), inner


@dataclass(frozen=True)
class MDConfig:
    """Sizes of the context.

    Attributes:
        hidden: width of each of the four layers; 0 for a quarter of the channels.
        residual: add the cells' own features to the output (the source does not).
    """

    hidden: int = 0
    residual: bool = True


class MultiDirectional(Context):
    """Four scans over the map, one from each corner, and an output linear in their states."""

    fixed_size = "a scan of a two-dimensional map is unrolled over its rows + columns - 1 diagonals"
    cell_type: ClassVar[type[MDCell]]

    def __init__(self, config: MDConfig, channels: int) -> None:
        super().__init__()
        hidden = config.hidden or channels // 4
        self.residual = config.residual
        self.cell = self.cell_type(hidden)
        self.given = nn.Linear(channels, DIRECTIONS * self.cell.gates * hidden)
        self.output = nn.Linear(DIRECTIONS * hidden, channels)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """See ``Context.forward``."""
        cells, valid = x.permute(0, 2, 3, 1), mask.permute(0, 2, 3, 1)
        batch, rows, columns = cells.shape[:3]
        given = self.given(cells).unflatten(3, (DIRECTIONS, -1)).permute(3, 0, 1, 2, 4)
        valid = skew(face_corners(valid[None].expand(DIRECTIONS, -1, -1, -1, -1)).flatten(0, 1))
        given = skew(face_corners(given).flatten(0, 1))
        state = tuple(given.new_zeros(DIRECTIONS, batch * rows, self.cell.hidden) for _ in range(self.cell.states))
        outputs = []
        for step, inside in zip(given.unbind(2), valid.unbind(2), strict=True):
            above = tuple(self._one_row_down(part, rows) for part in state)
            state = self.cell(step.reshape(DIRECTIONS, batch * rows, -1), state, above)
            # Outside the map, and in padding, the state is zero: scans that start in padding start as at the border.
            state = tuple(part * inside.reshape(DIRECTIONS, batch * rows, 1) for part in state)
            outputs.append(state[0])
        hidden = torch.stack(outputs, dim=2).unflatten(1, (batch, rows)).flatten(0, 1)
        hidden = face_corners(unskew(hidden, columns).unflatten(0, (DIRECTIONS, batch)))
        mixed = self.output(hidden.permute(1, 2, 3, 0, 4).flatten(3)).permute(0, 3, 1, 2) * mask
        return x + mixed if self.residual else mixed

    @staticmethod
    def _one_row_down(state: Tensor, rows: int) -> Tensor:
        """Hand every row's state to the row below: (DIRECTIONS, batch * rows, hidden), zero in the first row."""
        grid = state.unflatten(1, (-1, rows))
        return F.pad(grid[:, :, :-1], (0, 0, 1, 0)).flatten(1, 2)


def face_corners(cells: Tensor) -> Tensor:
    """Turn each direction's map so that its corner is the top left one; doing it twice gives the map back.

    cells (DIRECTIONS, batch, rows, columns, width) -> the same shape.
    """
    first, second, third, fourth = cells.unbind(0)
    return torch.stack([first, second.flip(2), third.flip(1), fourth.flip(1, 2)])


def skew(cells: Tensor) -> Tensor:
    """Row i moved i places to the right, so that anti-diagonals become columns, zero elsewhere.

    cells (n, rows, columns, width) -> (n, rows, rows + columns - 1, width).
    """
    rows, columns = cells.shape[1], cells.shape[2]
    flat = F.pad(cells, (0, 0, 0, rows)).flatten(1, 2)[:, : rows * (rows + columns - 1)]
    return flat.unflatten(1, (rows, rows + columns - 1))


def unskew(cells: Tensor, columns: int) -> Tensor:
    """The inverse of ``skew``: (n, rows, rows + columns - 1, width) -> (n, rows, columns, width)."""
    rows = cells.shape[1]
    flat = F.pad(cells.flatten(1, 2), (0, 0, 0, rows))
    return flat.unflatten(1, (rows, rows + columns))[:, :, :columns]


@register("context", "md-rnn", MDConfig)
class MDRNN(MultiDirectional):
    """See ``MDRNNCell``."""

    cell_type = MDRNNCell


@register("context", "md-gru", MDConfig)
class MDGRU(MultiDirectional):
    """See ``MDGRUCell``."""

    cell_type = MDGRUCell


@register("context", "md-lstm", MDConfig)
class MDLSTM(MultiDirectional):
    """See ``MDLSTMCell``."""

    cell_type = MDLSTMCell
