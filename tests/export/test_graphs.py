"""A recogniser taken apart: names, symbolic shapes, and the same numbers as the model itself."""

import pytest
import torch
from torch import Tensor

from hmerctl.export.graphs import Graph, complete_sizes, fixed, take_apart
from hmerctl.export.source import Source
from hmerctl.runtime.errors import ConfigError


@pytest.fixture(scope="module")
def graphs(source: Source) -> tuple[Graph, Graph]:
    return take_apart(source.model)


def shapes(specs: tuple) -> dict[str, tuple]:
    return {spec.name: (spec.dtype, spec.shape) for spec in specs}


def test_the_encoder_gives_the_memory_with_symbolic_axes(graphs: tuple[Graph, Graph]) -> None:
    encoder, _ = graphs
    assert shapes(encoder.inputs) == {
        "raster": ("float32", ("batch", 1, "height", "width")),
        "size": ("int32", ("batch", 2)),
    }
    assert shapes(encoder.outputs) == {
        "keys_0": ("float32", ("batch", 2, 8, "cells")),
        "values_0": ("float32", ("batch", 2, "cells", 8)),
        "keys_1": ("float32", ("batch", 2, 8, "cells")),
        "values_1": ("float32", ("batch", 2, "cells", 8)),
        "memory_mask": ("float32", ("batch", 1, "rows", "columns")),
    }


def test_the_step_takes_the_memory_of_one_picture_and_gives_what_the_state_needs(graphs: tuple[Graph, Graph]) -> None:
    _, step = graphs
    assert [spec.name for spec in step.inputs] == [
        *("token", "position", "keys_0", "values_0", "keys_1", "values_1", "memory_mask"),
        *("self_keys_0", "self_values_0", "self_keys_1", "self_values_1", "spent_1"),
    ]
    inputs, outputs = shapes(step.inputs), shapes(step.outputs)
    assert inputs["token"] == ("int32", ("beam",))
    assert inputs["position"] == ("int32", (1,))
    assert inputs["keys_0"] == ("float32", (1, 2, 8, "cells"))
    assert inputs["self_keys_0"] == ("float32", ("beam", 2, "time", 8))
    assert outputs["log_probs"] == ("float32", ("beam", 20))
    assert outputs["attention"] == ("float32", ("beam", "cells"))
    assert outputs["next_self_keys_0"] == ("float32", ("beam", 2, 8))  # one row: the host writes it into its cache
    assert outputs["next_spent_1"] == inputs["spent_1"]


def test_modules_give_what_the_model_gives(source: Source, graphs: tuple[Graph, Graph]) -> None:
    encoder, step = graphs
    raster, size = torch.rand(2, 1, 64, 96), torch.tensor([[64, 90], [50, 96]], dtype=torch.int32)
    with torch.no_grad():
        memory = source.model.encode(raster, size)
        found: tuple[Tensor, ...] = encoder.module(raster, size)
        assert all(torch.equal(a, b) for a, b in zip(memory.values(), found, strict=True))
        inputs = list(step.example({"beam": 3, "height": 64, "width": 96, "time": 16}))
        inputs[2 : 2 + len(memory)] = [tensor[:1] for tensor in memory.values()]
        log_probs, attention, *following = step.module(*inputs)
    assert log_probs.shape == (3, 20)
    torch.testing.assert_close(attention.sum(1), torch.ones(3))
    assert [tuple(t.shape) for t in following] == [(3, 2, 8)] * 4 + [(3, 4, 8, 12)]


def test_sizes_that_follow_from_others_are_completed() -> None:
    assert complete_sizes({"height": 64, "width": 128}, 8) == {
        **{"height": 64, "width": 128, "rows": 8, "columns": 16},
        "cells": 128,
    }
    assert complete_sizes({"rows": 3}, 8) == {"rows": 3, "height": 24}


def test_fixed_makes_only_the_given_axes_constant(graphs: tuple[Graph, Graph]) -> None:
    _, step = graphs
    inputs = shapes(fixed(step.inputs, {"height": 64, "width": 128}, step.stride))
    assert inputs["keys_0"][1] == (1, 2, 8, 128)
    assert inputs["spent_1"][1] == ("beam", 4, 8, 16)
    assert inputs["self_keys_0"][1] == ("beam", 2, "time", 8)


def test_a_memory_axis_without_a_name_is_refused(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        source.model.decoder, "memory", lambda features, positioned, mask: {"half": features[:, :, :, ::2]}
    )
    with pytest.raises(ConfigError, match="memory tensor half has an axis"):
        take_apart(source.model)
