"""The proof on the device sees an engine that computes otherwise, whatever it gets wrong."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hmerctl.runtime.bundle import open_bundle
from hmerctl.runtime.engine import Engine, Memory
from hmerctl.runtime.engines.onnx import OnnxEngine
from hmerctl.runtime.prove import prove


class Wrong:
    """onnxruntime with one thing changed."""

    def __init__(self, engine: OnnxEngine, fault: str) -> None:
        self.engine, self.fault = engine, fault
        self.name, self.threads = f"wrong {fault}", engine.threads

    def encode(self, raster: np.ndarray, size: np.ndarray) -> Memory:
        if self.fault == "polarity":
            raster = 1 - raster
        memory = dict(self.engine.encode(raster, size))
        if self.fault == "noise":
            memory["ink"] = memory["ink"] + np.float32(0.01)
        if self.fault == "nan":
            memory["ink"] = memory["ink"] * np.float32(np.nan)
        return memory

    def start(self, memory: Memory, beams: int) -> Any:
        session = self.engine.start(memory, beams)
        fault = self.fault

        class Session:
            def step(self, tokens: np.ndarray, parents: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
                if fault == "parents":
                    parents = None
                log_probs, attention = session.step(tokens, parents)
                if fault == "token":
                    log_probs = np.roll(log_probs, 1, axis=1)
                return log_probs, attention

        return Session()


def levels(bundle: Path, fault: str) -> dict[str, str]:
    opened = open_bundle(bundle)
    reference = OnnxEngine(opened)
    engine: Engine = Wrong(reference, fault)
    return {level.level: level.status for level in prove(opened, engine, reference)}


def test_an_equal_engine_passes_every_level(shared_tiny: Path) -> None:
    assert levels(shared_tiny, "nothing") == {"L2": "passed", "L3": "passed", "L5": "passed"}


@pytest.mark.parametrize("fault", ["polarity", "noise", "nan", "parents", "token"])
def test_every_fault_fails_the_tensors(shared_tiny: Path, fault: str) -> None:
    assert levels(shared_tiny, fault)["L2"] == "failed"


def test_other_tokens_fail_sequences_and_samples(shared_tiny: Path) -> None:
    found = levels(shared_tiny, "token")
    assert found["L3"] == found["L5"] == "failed"
