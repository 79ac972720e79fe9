"""PyTorch behind the runtime's engine protocol: the reference that every export is compared with."""

import numpy as np
import torch

from hmerctl.runtime.engine import Memory
from hmerctl.train.decoding import advance, zero_state
from hmerctl.train.models.parts import MAX_STEPS
from hmerctl.train.models.recognizer import Recognizer


class TorchEngine:
    """A recogniser as an engine (see ``hmerctl.runtime.engine.Engine``); fp32 on the CPU."""

    def __init__(self, model: Recognizer) -> None:
        self.model = model.eval()
        self.name = f"PyTorch {torch.__version__} CPU"
        self.threads = {"encoder": torch.get_num_threads(), "step": torch.get_num_threads()}

    @torch.inference_mode()
    def encode(self, raster: np.ndarray, size: np.ndarray) -> Memory:
        """See ``Engine.encode``."""
        memory = self.model.encode(torch.from_numpy(raster), torch.from_numpy(size))
        return {name: tensor.numpy() for name, tensor in memory.items()}

    def start(self, memory: Memory, beams: int) -> "TorchSession":
        """See ``Engine.start``."""
        return TorchSession(self.model, memory, beams)


class TorchSession:
    """The decoding of one picture (see ``hmerctl.runtime.engine.StepSession``)."""

    def __init__(self, model: Recognizer, memory: Memory, beams: int) -> None:
        self.decoder = model.decoder
        self.memory = {name: torch.from_numpy(array) for name, array in memory.items()}
        rows, columns = self.memory["memory_mask"].shape[2:]
        self.state = zero_state(self.decoder, beams, rows, columns, MAX_STEPS, self.memory["memory_mask"])
        self.position = 0

    @torch.inference_mode()
    def step(self, tokens: np.ndarray, parents: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """See ``StepSession.step``."""
        count = len(tokens)
        # At position 0 all rows are zero, so any will do.
        rows = torch.arange(count) if parents is None or not self.position else torch.as_tensor(parents)
        self.state = {name: tensor[rows] for name, tensor in self.state.items()}
        position = torch.tensor([self.position], dtype=torch.int32)
        log_probs, outputs, attention = self.decoder.step(self.memory, torch.from_numpy(tokens), position, self.state)
        advance(self.decoder, self.state, outputs, self.position)
        self.position += 1
        return log_probs.numpy(), attention.numpy()
