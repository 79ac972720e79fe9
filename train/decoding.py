"""Greedy decoding of a whole batch in PyTorch, through the same step as the exported graphs."""

import torch
from torch import Tensor

from hmerctl.runtime.vocabulary import EOS, PAD, SOS
from hmerctl.train.models.parts import MAX_STEPS, Decoder
from hmerctl.train.models.recognizer import Recognizer


def zero_state(decoder: Decoder, beams: int, rows: int, columns: int, time: int, like: Tensor) -> dict[str, Tensor]:
    """The state before the first step, on the device and in the dtype of ``like``."""
    sizes = {"beam": beams, "rows": rows, "columns": columns, "time": time}
    return {
        spec.name: like.new_zeros([sizes[d] if isinstance(d, str) else d for d in spec.shape])
        for spec in decoder.state_spec()
    }


def advance(decoder: Decoder, state: dict[str, Tensor], outputs: dict[str, Tensor], position: int) -> None:
    """Carry a step's outputs into ``state``, in place, by the rule of each tensor."""
    for spec in decoder.state_spec():
        if spec.update == "replace":
            state[spec.name] = outputs[spec.name]
        else:
            state[spec.name].select(spec.shape.index("time"), position).copy_(outputs[spec.name])


@torch.no_grad()
def greedy(model: Recognizer, raster: Tensor, size: Tensor, max_steps: int = MAX_STEPS) -> list[list[int]]:
    """Most probable token at every step.

    Args:
        model: in evaluation mode.
        raster: float32 (batch, 1, height, width), see ``Encoder.forward``.
        size: int32 (batch, 2).
        max_steps: most tokens, eos included; at most MAX_STEPS.

    Returns:
        for each picture its token ids, without sos and eos.
    """
    return greedy_from(model.decoder, model.encode(raster, size), max_steps)


@torch.no_grad()
def greedy_from(decoder: Decoder, memory: dict[str, Tensor], max_steps: int = MAX_STEPS) -> list[list[int]]:
    """``greedy`` for pictures that are encoded already: ``memory`` as from ``Recognizer.encode``."""
    mask = memory["memory_mask"]
    batch, _, rows, columns = mask.shape
    state = zero_state(decoder, batch, rows, columns, max_steps, mask)
    token = torch.full((batch,), SOS, dtype=torch.int32, device=mask.device)
    finished = torch.zeros(batch, dtype=torch.bool, device=mask.device)
    chosen = []
    for position in range(max_steps):
        at = torch.tensor([position], dtype=torch.int32, device=mask.device)
        log_probs, outputs, _ = decoder.step(memory, token, at, state)
        log_probs[:, [PAD, SOS]] = -torch.inf
        token = torch.where(finished, PAD, log_probs.argmax(1)).int()
        finished |= token == EOS
        chosen.append(token)
        if bool(finished.all()):
            break
        advance(decoder, state, outputs, position)
    ids = torch.stack(chosen, dim=1).tolist()
    return [
        [i for i in row[: row.index(EOS)] if i != PAD] if EOS in row else [i for i in row if i != PAD] for row in ids
    ]
