"""Decoder `attention-gru`: one GRU that looks at the picture by additive attention (Zhou 2023, eq. 5 and 7)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hmerctl.train.models.parts import MASKED, Decoder, StateSpec, register
from hmerctl.train.models.relative import Reach, RelativeBias


class GRUCell(nn.Module):
    """A GRU cell of two linear layers, as every export target takes it; equal to ``torch.nn.GRUCell``.

    Zhou 2023, eq. 5: ``r = sigma(W_r [h, x] + b_r)``, ``z = sigma(W_z [h, x] + b_z)``, then
    ``n = tanh(W_n x + b_n + r * (U_n h + c_n))`` and ``h' = (1 - z) * n + z * h`` (Cho et al. 2014).
    """

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.input_gates, self.hidden_gates = nn.Linear(inputs, 3 * hidden), nn.Linear(hidden, 3 * hidden)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        """x (batch, inputs), hidden (batch, hidden) -> (batch, hidden)."""
        h = self.hidden
        reset, update, new = self.input_gates(x).split([h, h, h], dim=1)
        old_reset, old_update, old_new = self.hidden_gates(hidden).split([h, h, h], dim=1)
        update = (update + old_update).sigmoid()
        new = (new + (reset + old_reset).sigmoid() * old_new).tanh()
        return new + update * (hidden - new)


@dataclass(frozen=True)
class AttentionGRUConfig:
    """Sizes of the decoder.

    Attributes:
        width: of the GRU's state d and of what the symbol is read from.
        embedding: width of a token.
        attention: width of u_t.
        dropout: on the input of the output layer.
        coverage: channels of the map of attention already spent, which enters u_t; 0 for none.
        coverage_kernel: side of its convolution, cells, odd.
    """

    width: int = 256
    embedding: int = 256
    attention: int = 256
    dropout: float = 0.2
    coverage: int = 0
    coverage_kernel: int = 11

    def __post_init__(self) -> None:
        if self.coverage_kernel % 2 == 0:
            raise ValueError(f"coverage_kernel must be odd, not {self.coverage_kernel}")


@register("decoder", "attention-gru", AttentionGRUConfig)
class AttentionGRUDecoder(Decoder):
    """GRU with additive attention over the cells of the map.

    With h_t the cells, y the tokens and d the state (a step has one index i, cells have the index t):

    - ``d_{i-1} = GRU([E y_{i-1}; s_{i-1}], d_{i-2})``, s_0 = d_{-1} = 0 **(reading: the state that has read the
      previous symbol asks for the next)**
    - ``u_t = tanh(W h_t + U d_{i-1} + b)``, ``a_t = softmax_t(u_t^T u_w)``, ``s_i = sum_t a_t h_t`` (eq. 7)
    - symbol i from s_i, d_{i-1} and y_{i-1}: ``softmax(O tanh(W_s s_i + W_d d_{i-1} + W_y E y_{i-1}))``

    Keys ``W h_t + b`` are computed once per picture. With coverage, ``u_t`` also adds ``F c_t``, where c is a
    convolution of the attention spent so far (Zhang et al. 2017, WAP).
    """

    def __init__(self, config: AttentionGRUConfig, channels: int, vocabulary: int) -> None:
        super().__init__()
        c = self.config = config
        self.channels = channels
        self.embed = nn.Embedding(vocabulary, c.embedding)
        nn.init.normal_(self.embed.weight, std=0.1)
        self.cell = GRUCell(c.embedding + channels, c.width)
        self.key = nn.Linear(channels, c.attention)
        self.query = nn.Linear(c.width, c.attention, bias=False)
        self.score = nn.Linear(c.attention, 1, bias=False)
        self.spread: nn.Conv2d | None = None
        if c.coverage:
            self.spread = nn.Conv2d(1, c.coverage, c.coverage_kernel, padding=c.coverage_kernel // 2)
            self.spent_key = nn.Linear(c.coverage, c.attention, bias=False)
        self.relative: RelativeBias | None = None
        self.from_glimpse = nn.Linear(channels, c.width)
        self.from_state = nn.Linear(c.width, c.width, bias=False)
        self.from_token = nn.Linear(c.embedding, c.width, bias=False)
        self.dropout = nn.Dropout(c.dropout)
        self.output = nn.Linear(c.width, vocabulary)

    def add_relative_bias(self, reach: Reach) -> None:
        """Let the scores depend on where a cell lies from the centre of the last step's attention."""
        self.relative = RelativeBias(1, reach)

    def state_spec(self) -> tuple[StateSpec, ...]:
        """``hidden`` d, ``glimpse`` s; with coverage ``spent``, with a relative bias ``centre`` (row, column)."""
        specs = [
            StateSpec("hidden", ("beam", self.config.width), "replace"),
            StateSpec("glimpse", ("beam", self.channels), "replace"),
        ]
        if self.config.coverage:
            specs.append(StateSpec("spent", ("beam", 1, "rows", "columns"), "replace"))
        if self.relative is not None:
            specs.append(StateSpec("centre", ("beam", 2), "replace"))
        return tuple(specs)

    def memory(self, features: Tensor, positioned: Tensor, mask: Tensor) -> dict[str, Tensor]:
        """``keys_0`` (batch, cells, attention) and ``values_0`` (batch, cells, channels); ``memory_mask`` float32
        (batch, 1, rows, columns): 0 on valid cells, MASKED on padding."""
        return {
            "keys_0": self.key(positioned.flatten(2).transpose(1, 2)),
            "values_0": features.flatten(2).transpose(1, 2).contiguous(),
            "memory_mask": (1.0 - mask.float()) * MASKED,
        }

    def forward(self, memory: dict[str, Tensor], tokens: Tensor) -> Tensor:
        """See ``Decoder.forward``; one step after the other, for the attention needs the state before."""
        batch = len(tokens)
        rows, columns = memory["memory_mask"].shape[2:]
        sizes: dict[int | str, int] = {"beam": batch, "rows": rows, "columns": columns}
        like = memory["keys_0"]
        state = {
            spec.name: like.new_zeros([size if isinstance(size, int) else sizes[size] for size in spec.shape])
            for spec in self.state_spec()
        }
        read = []
        for embedded in self.embed(tokens).unbind(1):
            mixed, state, _ = self._advance(memory, embedded, state)
            read.append(mixed)
        return self.output(self.dropout(torch.stack(read, dim=1)))

    def step(
        self, memory: dict[str, Tensor], token: Tensor, position: Tensor, state: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        """See ``Decoder.step``; ``position`` is not used: the state knows where it is."""
        mixed, following, attention = self._advance(memory, self.embed(token), state)
        return self.output(mixed).log_softmax(1), following, attention

    def _advance(
        self, memory: dict[str, Tensor], embedded: Tensor, state: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        """Read one token (beam, embedding): what the next symbol is read from (beam, width), the state after it
        and the attention (beam, cells)."""
        hidden = self.cell(torch.cat([embedded, state["glimpse"]], dim=1), state["hidden"])
        pictures, _, rows, columns = memory["memory_mask"].shape
        # (pictures, beams of a picture, cells, attention): the beams of one picture share its keys and values.
        inner = self.query(hidden).reshape(pictures, -1, 1, self.config.attention) + memory["keys_0"][:, None]
        if self.spread is not None:
            spent = self.spent_key(self.spread(state["spent"]).flatten(2).transpose(1, 2))
            inner = inner + spent.reshape(pictures, -1, rows * columns, self.config.attention)
        scores = self.score(inner.tanh()).squeeze(3).float() + memory["memory_mask"].flatten(2)
        if self.relative is not None:
            seen = self.relative.around(state["centre"], rows, columns)
            scores = scores + seen.reshape(pictures, -1, rows * columns)
        attention = scores.softmax(2)
        glimpse = (attention.to(memory["values_0"].dtype) @ memory["values_0"]).reshape(-1, self.channels)
        attention = attention.reshape(-1, rows * columns)
        following = {"hidden": hidden, "glimpse": glimpse}
        if self.spread is not None:
            following["spent"] = state["spent"] + attention.reshape(-1, 1, rows, columns)
        if self.relative is not None:
            following["centre"] = self.relative.centre(attention, rows, columns)
        mixed = (self.from_glimpse(glimpse) + self.from_state(hidden) + self.from_token(embedded)).tanh()
        return mixed, following, attention
