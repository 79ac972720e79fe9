"""The tensors that the host of a decoder carries from step to step."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class StateSpec:
    """One tensor that the host carries from decoder step to decoder step.

    Attributes:
        name: input name in the step graph; the output is called ``next_<name>``.
        shape: ints or the symbols "beam" (always axis 0), "rows" and "columns" (encoder cells), "time" (rows of
            a cache, at most the decoder's longest output).
        update: "replace": the output is the next input. "append": the output has no "time" axis; the host
            writes it at index ``position`` of that axis.
        The initial value is always zero.
    """

    name: str
    shape: tuple[int | str, ...]
    update: Literal["replace", "append"]
