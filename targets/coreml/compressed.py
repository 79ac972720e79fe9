"""MIL's constexpr operations: weights that are stored small and unfolded when the model is loaded."""

import math

import numpy as np

from hmerctl.targets.coreml.operations import Arguments, operation


@operation("constexpr_affine_dequantize")
def affine_dequantize(a: Arguments) -> np.ndarray:
    """iOS 16: ``scale * (quantized_data - zero_point)``, scale and zero point per tensor or along ``axis``."""
    data = np.asarray(a["quantized_data"])
    shape = [1] * data.ndim
    shape[a.integer("axis")] = -1
    scale, zero = (np.asarray(a[name], np.float32) for name in ("scale", "zero_point"))
    scale, zero = (value.reshape(shape) if value.ndim else value for value in (scale, zero))
    return scale * (data.astype(np.float32) - zero)


@operation("constexpr_blockwise_shift_scale")
def blockwise_shift_scale(a: Arguments) -> np.ndarray:
    """iOS 18: ``scale * (data - offset)``; each scale serves a block of the data, offset 0 when absent."""
    data = np.asarray(a["data"]).astype(np.float32)
    offset = a.get("offset")
    if offset is not None:
        data = data - _spread(a, np.asarray(offset, np.float32), data.shape)
    return _spread(a, np.asarray(a["scale"], np.float32), data.shape) * data


def _spread(a: Arguments, x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Repeat each element of ``x`` over its block of ``shape``."""
    if x.ndim != len(shape) or any(size % blocks for size, blocks in zip(shape, x.shape, strict=True)):
        raise a.error(f"has blocks {x.shape} that do not divide its data {shape}")
    for axis, (size, blocks) in enumerate(zip(shape, x.shape, strict=True)):
        # A single block broadcasts by itself.
        x = x if blocks in (1, size) else np.repeat(x, size // blocks, axis)
    return x


@operation("constexpr_lut_to_dense")
def lut_to_dense(a: Arguments) -> np.ndarray:
    """A palette and an index an element. iOS 16 packs the indices in bytes, iOS 18 has palettes per block."""
    lut, indices = np.asarray(a["lut"], np.float32), np.asarray(a["indices"])
    if a.get("shape") is not None:
        shape = a.integers("shape")
        bits = int(math.log2(lut.size))
        unpacked = np.unpackbits(indices.reshape(-1), bitorder="little")[: math.prod(shape) * bits]
        return lut[unpacked.reshape(-1, bits) @ (1 << np.arange(bits))].reshape(shape)
    if lut.shape[-1] != 1:
        raise a.error("has vector palettes, which the evaluator does not define")
    palettes = lut[..., 0]
    blocks, count = palettes.shape[:-1], palettes.shape[-1]
    which = np.arange(math.prod(blocks)).reshape(blocks)
    for axis, size in enumerate(indices.shape):
        if size % blocks[axis]:
            raise a.error(f"has palettes {blocks} that do not divide its indices {indices.shape}")
        which = np.repeat(which, size // blocks[axis], axis)
    return palettes.reshape(-1, count)[which, indices]


@operation("constexpr_cast")
def constexpr_cast(a: Arguments) -> np.ndarray:
    return np.asarray(a["source_val"])
