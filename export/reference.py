"""PyTorch behind the interface that devices use: what every other engine is compared with."""

import copy
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from hmerctl.runtime.buckets import Bucket, Padding, pad_all
from hmerctl.runtime.engine import Memory
from hmerctl.train.decoding import advance, greedy, zero_state
from hmerctl.train.models.parts import MAX_STEPS
from hmerctl.train.models.recognizer import Recognizer

BATCH_PIXELS = 1_000_000
"""Padded pixels of a batch that ``greedy_ids`` encodes at once."""


class TorchEngine:
    """See ``hmerctl.runtime.engine.Engine``; on the CPU.

    Args:
        model: put into evaluation mode.
        exact: compute in float64, so that what is left of a difference is the other engine's. Memory is float64 then.
    """

    def __init__(self, model: Recognizer, exact: bool = False) -> None:
        self.model = copy.deepcopy(model).double().eval() if exact else model.eval()
        self._dtype = torch.float64 if exact else torch.float32
        self.name = f"PyTorch {torch.__version__} CPU"
        self.threads = {"encoder": torch.get_num_threads(), "step": torch.get_num_threads()}

    @torch.no_grad()
    def encode(self, raster: np.ndarray, size: np.ndarray) -> Memory:
        """See ``Engine.encode``; any batch."""
        memory = self.model.encode(torch.from_numpy(raster).to(self._dtype), torch.from_numpy(size))
        return {name: tensor.numpy() for name, tensor in memory.items()}

    def start(self, memory: Memory, beams: int) -> "TorchSession":
        """See ``Engine.start``."""
        return TorchSession(self.model, memory, beams)


class TorchSession:
    """See ``hmerctl.runtime.engine.StepSession``."""

    def __init__(self, model: Recognizer, memory: Memory, beams: int) -> None:
        self._decoder = model.decoder
        self._memory = {name: torch.from_numpy(value) for name, value in memory.items()}
        mask = self._memory["memory_mask"]
        rows, columns = mask.shape[-2:]
        like = next(model.decoder.parameters())
        self._state = zero_state(model.decoder, beams, rows, columns, MAX_STEPS, like)
        self._position = 0

    @torch.no_grad()
    def step(self, tokens: np.ndarray, parents: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """See ``StepSession.step``."""
        if parents is None or not self._position:
            self._state = {name: tensor[: len(tokens)] for name, tensor in self._state.items()}
        else:
            rows = torch.from_numpy(parents).long()
            self._state = {name: tensor[rows] for name, tensor in self._state.items()}
        position = torch.tensor([self._position], dtype=torch.int32)
        log_probs, outputs, attention = self._decoder.step(
            self._memory, torch.from_numpy(tokens), position, self._state
        )
        advance(self._decoder, self._state, outputs, self._position)
        self._position += 1
        return log_probs.numpy(), attention.numpy()


def greedy_ids(model: Recognizer, rasters: Sequence[np.ndarray], bucket: Bucket) -> list[list[int]]:
    """Greedy tokens of rasters of one bucket, decoded in batches.

    Args:
        rasters: uint8 (height, width) each, at most as large as ``bucket``.

    Returns:
        token ids without sos and eos, as many lists as rasters.
    """
    count = max(1, BATCH_PIXELS // (bucket.height * bucket.width))
    ids: list[list[int]] = []
    for begin in range(0, len(rasters), count):
        raster, size = map(torch.from_numpy, pad_all(rasters[begin : begin + count], bucket))
        ids += greedy(model, raster, size)
    return ids


@torch.no_grad()
def margin(model: Recognizer, pixels: np.ndarray, padding: Padding, prefix: Sequence[int]) -> float:
    """How far the most probable next token is ahead of the second, in log-probability.

    Args:
        prefix: token ids from sos on.
    """
    raster, size = map(torch.from_numpy, padding.pad(pixels))
    logits: Tensor = model(raster, size, torch.tensor([list(prefix)]))[0, -1]
    first, second = logits.log_softmax(0).topk(2).values.tolist()
    return first - second
