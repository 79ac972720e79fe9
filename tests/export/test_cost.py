"""What a model costs: multiply-accumulates by hand, and both graphs run at one size."""

import pytest
import torch
from torch import Tensor, nn

from hmerctl.export.cost import describe, macs, measure
from hmerctl.export.graphs import Graph
from hmerctl.export.source import Source
from hmerctl.runtime.buckets import Bucket
from hmerctl.runtime.manifest import TensorSpec


class Small(nn.Module):
    """A convolution, a GRU over its columns, attention among them."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.gru = nn.Conv2d(1, 4, 3, padding=1), nn.GRU(4, 5, bidirectional=True)

    def forward(self, raster: Tensor, size: Tensor) -> tuple[Tensor]:
        x, _ = self.gru(self.convolution(raster).mean(2).permute(2, 0, 1))
        return (nn.functional.scaled_dot_product_attention(*[x.transpose(0, 1)[:, None]] * 3),)


def test_macs_are_those_counted_by_hand() -> None:
    inputs = (
        TensorSpec(name="raster", dtype="float32", shape=("batch", 1, "height", "width")),
        TensorSpec(name="size", dtype="int32", shape=("batch", 2)),
    )
    graph = Graph("encoder", Small().eval(), inputs, (), stride=1)
    convolution, gru, attention = 9 * 4 * 8 * 16, 2 * 16 * 3 * 5 * (4 + 5), 2 * 16 * 16 * 10
    assert macs(graph, {"batch": 1, "height": 8, "width": 16}) == convolution + gru + attention


def test_a_model_is_measured(source: Source) -> None:
    torch.set_num_threads(1)
    found = measure(source.model, Bucket(64, 128), seconds=0.01)
    assert found.parameters == sum(p.numel() for p in source.model.parameters())
    assert found.encoder_macs > found.step_macs > 0
    assert found.encoder_ms > 0 and found.step_ms > 0
    assert "64 x 128 raster" in describe(found)
    wider = macs_of_encoder(source, 256)
    assert wider == pytest.approx(2 * found.encoder_macs, rel=0.01)


def macs_of_encoder(source: Source, width: int) -> int:
    from hmerctl.export.graphs import take_apart

    return macs(take_apart(source.model)[0], {"batch": 1, "height": 64, "width": width})
