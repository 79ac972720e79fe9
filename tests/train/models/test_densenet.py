"""The DenseNet encoder of the reference model: the paper's channel counts, and padding that changes nothing."""

import pytest
import torch
from typed import as_a

from hmerctl.runtime.errors import ConfigError
from hmerctl.train.models.densenet import DenseBlock, DenseLayer, DenseNetConfig, DenseNetEncoder, Transition
from hmerctl.train.models.parts import build

TINY = {"name": "densenet", "blocks": [2, 2, 2], "growth": 8, "stem": 16, "bottleneck": 2}


def tiny() -> DenseNetEncoder:
    """A tiny encoder whose batch norms turn zero into something else, as trained ones do."""
    torch.manual_seed(0)
    encoder = as_a(DenseNetEncoder, build("encoder", TINY))
    for module in encoder.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.bias, 0.2, 1.0)
            torch.nn.init.uniform_(as_a(torch.Tensor, module.running_mean), -0.5, 0.5)
    return encoder.eval()


def test_the_paper_has_128_256_and_512_channels_and_a_14_x_14_map() -> None:
    """(64 + 6 * 32) / 2, (128 + 12 * 32) / 2, (256 + 24 * 32) / 2; 224 x 224 pixels give 14 x 14 cells."""
    encoder = DenseNetEncoder(DenseNetConfig()).eval()
    assert [as_a(Transition, t).conv.out_channels for t in encoder.transitions] == [128, 256, 512]
    assert (encoder.channels, encoder.stride) == (512, 16)
    with torch.no_grad():
        features, mask = encoder(torch.zeros(1, 1, 224, 224), torch.tensor([[224, 224]], dtype=torch.int32))
    assert features.shape == (1, 512, 14, 14) and mask.shape == (1, 1, 14, 14)


@pytest.mark.parametrize("size", [(64, 96), (50, 71), (33, 90), (17, 16), (1, 1)])
def test_features_do_not_depend_on_the_bucket(size: tuple[int, int]) -> None:
    """Padding is neutral to 1e-5 (sums in another order), and zero in the result."""
    encoder, ink = tiny(), torch.rand(1, 1, *size)
    small, large = torch.zeros(1, 1, 64, 96), torch.zeros(1, 1, 128, 256)
    small[..., : size[0], : size[1]], large[..., : size[0], : size[1]] = ink, ink
    sizes = torch.tensor([size], dtype=torch.int32)
    with torch.no_grad():
        (a, mask), (b, wide) = encoder(small, sizes), encoder(large, sizes)
    assert (a - b[:, :, :4, :6]).abs().max() < 1e-5
    assert a.abs().max() > 0.01
    rows, columns = -(-size[0] // 16), -(-size[1] // 16)
    assert mask.sum() == wide.sum() == rows * columns
    assert not (b * (1 - wide)).any() and not b[:, :, 4:].any() and not b[:, :, :, 6:].any()


def test_whatever_looks_at_neighbours_finds_zero_in_the_padding() -> None:
    """The first block's input, each 3x3 convolution's input, and what the pools average."""
    encoder, seen = tiny(), []

    def watch(module: torch.nn.Module) -> None:
        module.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))

    watch(encoder.blocks[0])
    for block in encoder.blocks:
        for layer in as_a(DenseBlock, block).layers:
            watch(as_a(DenseLayer, layer).second)
    for transition in encoder.transitions:
        transition.register_forward_hook(lambda _, inputs, output: seen.append(output))
    size = torch.tensor([[21, 50]], dtype=torch.int32)
    with torch.no_grad():
        encoder(torch.nn.functional.pad(torch.rand(1, 1, 21, 50), (0, 46, 0, 43)), size)
    assert len(seen) == 10
    for x in seen:
        stride = 64 // x.shape[2]
        outside = x.clone()
        outside[:, :, : -(-21 // stride), : -(-50 // stride)] = 0
        assert x.any() and not outside.any()


def test_a_dense_layer_appends_what_it_finds() -> None:
    layer = as_a(DenseBlock, tiny().blocks[0]).layers[1]
    x, mask = torch.rand(2, 24, 5, 6), torch.ones(2, 1, 5, 6)
    out = layer(x, mask)
    assert out.shape == (2, 32, 5, 6) and torch.equal(out[:, :24], x)


def test_it_trains() -> None:
    encoder = tiny().train()
    features, _ = encoder(torch.rand(2, 1, 64, 96), torch.tensor([[64, 96], [40, 50]], dtype=torch.int32))
    features.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in encoder.parameters())


def test_three_blocks_are_needed() -> None:
    with pytest.raises(ConfigError, match="three numbers of layers"):
        build("encoder", {"name": "densenet", "blocks": [6, 12]})
