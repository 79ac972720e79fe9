"""Stand-ins for the cost of a model, which other processes can find too."""

import os
from dataclasses import dataclass

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
