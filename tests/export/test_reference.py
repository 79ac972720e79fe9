"""The reference computes as PyTorch does, or exactly, where float32's own rounding would hide whose error it is."""

import numpy as np
import torch
from tiny import tiny_source

from hmerctl.export.reference import TorchEngine


def test_the_exact_reference_is_the_same_model_without_the_rounding():
    model = tiny_source().model
    plain, exact = TorchEngine(model), TorchEngine(model, exact=True)
    raster = np.random.default_rng(0).random((1, 1, 64, 128)).astype(np.float32)
    size = np.array([[60, 120]], np.int32)
    memories = [engine.encode(raster, size) for engine in (plain, exact)]
    assert {array.dtype for name, array in memories[1].items() if name != "memory_mask"} == {np.dtype(np.float64)}
    assert next(model.parameters()).dtype == torch.float32, "the model given stays as it was"
    sessions = [engine.start(memory, 1) for engine, memory in zip((plain, exact), memories, strict=True)]
    for token in (1, 5, 9):
        (found, _), (expected, _) = (session.step(np.array([token], np.int32)) for session in sessions)
        assert expected.dtype == np.float64
        assert 0 < np.abs(found - expected).max() < 1e-5
