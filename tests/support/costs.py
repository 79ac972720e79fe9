"""Stand-ins for the cost of a model and other work, which other processes can find too."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from hmerctl.train.models.recognizer import Recognizer


@dataclass
class FakeCost:
    parameters: int
    encoder_macs: int = 2_000_000
    step_macs: int = 1_000_000
    encoder_ms: float = 3.0
    step_ms: float = 0.5


def cost(model: Recognizer) -> FakeCost:
    return FakeCost(sum(p.numel() for p in model.parameters()))


def learns_positions(model: Recognizer) -> bool:
    return any("position" in name for name, _ in model.named_parameters())


def refuse(model: Recognizer) -> FakeCost:
    """An error for a model that learns positions; the process of any other ends."""
    if learns_positions(model):
        raise ValueError("not to\nbe measured")
    os._exit(9)


def linger(file: Path) -> None:
    """Stop at once, or wait to be told by a signal and write so."""
    from hmerctl.runtime.errors import StoppedError

    if file.name == "quick":
        raise StoppedError("stopped")

    def told(*_: object) -> None:
        file.write_text("told")
        os._exit(0)

    signal.signal(signal.SIGTERM, told)
    file.touch()
    time.sleep(60)
