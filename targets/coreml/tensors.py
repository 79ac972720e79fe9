"""MIL operations that move, cut and join tensors."""

import numpy as np

from hmerctl.targets.coreml.operations import Arguments, operation


@operation("reshape")
def reshape(a: Arguments) -> np.ndarray:
    x, shape = a["x"], a.integers("shape")
    if 0 in shape and len(shape) != x.ndim:
        raise a.error(f"copies sizes of an input of rank {x.ndim} to {shape}, which the evaluator does not define")
    return x.reshape(
        [old if new == 0 else new for old, new in zip(x.shape, shape, strict=True)] if 0 in shape else shape
    )


@operation("transpose")
def transpose(a: Arguments) -> np.ndarray:
    return a["x"].transpose(a.integers("perm"))


@operation("expand_dims")
def expand_dims(a: Arguments) -> np.ndarray:
    return np.expand_dims(a["x"], tuple(a.integers("axes")))


@operation("squeeze")
def squeeze(a: Arguments) -> np.ndarray:
    return np.squeeze(a["x"], None if a.get("axes") is None else tuple(a.integers("axes")))


@operation("concat")
def concat(a: Arguments) -> np.ndarray:
    if bool(a.get("interleave", False)):
        raise a.error("interleaves, which the evaluator does not define")
    return np.concatenate(a["values"], axis=a.integer("axis"))


@operation("stack")
def stack(a: Arguments) -> np.ndarray:
    return np.stack(a["values"], axis=a.integer("axis"))


@operation("split")
def split(a: Arguments) -> list[np.ndarray]:
    x, axis = a["x"], a.integer("axis")
    if a.get("split_sizes") is None:
        return np.split(x, a.integer("num_splits"), axis)
    sizes = a.integers("split_sizes")
    if sum(sizes) != x.shape[axis]:
        raise a.error(f"splits {x.shape[axis]} into {sizes}")
    return np.split(x, np.cumsum(sizes)[:-1], axis)


@operation("tile")
def tile(a: Arguments) -> np.ndarray:
    return np.tile(a["x"], a.integers("reps"))


@operation("reverse")
def reverse(a: Arguments) -> np.ndarray:
    return np.flip(a["x"], None if a.get("axes") is None else tuple(a.integers("axes")))


@operation("fill")
def fill(a: Arguments) -> np.ndarray:
    return np.full(a.integers("shape"), a["value"])


@operation("pad")
def pad(a: Arguments) -> np.ndarray:
    """``pad`` lists (before, after) for the last axes."""
    x, amounts = a["x"], a.integers("pad")
    widths = [(0, 0)] * (x.ndim - len(amounts) // 2) + list(zip(amounts[::2], amounts[1::2], strict=True))
    mode = a.get("mode", "constant")
    if mode == "constant":
        return np.pad(x, widths, constant_values=a.get("constant_val", 0))
    if mode in ("reflect", "replicate"):
        return np.pad(x, widths, mode="reflect" if mode == "reflect" else "edge")
    raise a.error(f"has the unknown mode {mode!r}")


@operation("slice_by_index")
def slice_by_index(a: Arguments) -> np.ndarray:
    """Python's slices, one an axis; a masked bound is open, a squeezed axis is indexed by ``begin``."""
    x = a["x"]
    begin, end = a.integers("begin"), a.integers("end")
    stride = [1] * x.ndim if a.get("stride") is None else a.integers("stride")
    no_begin, no_end = a.flags("begin_mask", x.ndim), a.flags("end_mask", x.ndim)
    squeezed = a.flags("squeeze_mask", x.ndim)
    index: list[int | slice] = []
    for i in range(x.ndim):
        if squeezed[i]:
            index.append(begin[i])
        else:
            index.append(slice(None if no_begin[i] else begin[i], None if no_end[i] else end[i], stride[i]))
    try:
        return x[tuple(index)]
    except IndexError as error:
        raise a.error(f"cuts outside its input: {error}") from error


@operation("slice_by_size")
def slice_by_size(a: Arguments) -> np.ndarray:
    x, begin, size = a["x"], a.integers("begin"), a.integers("size")
    index = tuple(slice(b, None if s == -1 else b + s) for b, s in zip(begin, size, strict=True))
    return x[index]


@operation("gather")
def gather(a: Arguments) -> np.ndarray:
    x, indices, axis = a["x"], np.asarray(a["indices"]), a.integer("axis")
    if a.integer("batch_dims"):
        raise a.error("gathers in batches, which the evaluator does not define")
    _check_range(a, indices, x.shape[axis])
    return np.take(x, indices, axis)


@operation("gather_along_axis")
def gather_along_axis(a: Arguments) -> np.ndarray:
    x, indices, axis = a["x"], np.asarray(a["indices"]), a.integer("axis")
    _check_range(a, indices, x.shape[axis])
    return np.take_along_axis(x, indices.astype(np.int64), axis)


@operation("gather_nd")
def gather_nd(a: Arguments) -> np.ndarray:
    x, indices = a["x"], np.asarray(a["indices"])
    if a.integer("batch_dims"):
        raise a.error("gathers in batches, which the evaluator does not define")
    for i in range(indices.shape[-1]):
        _check_range(a, indices[..., i], x.shape[i])
    return x[tuple(np.moveaxis(indices.astype(np.int64), -1, 0))]


def _check_range(a: Arguments, indices: np.ndarray, size: int) -> None:
    """Core ML's behaviour on an index outside is undefined, so it is an error here."""
    if indices.size and (indices.min() < -size or indices.max() >= size):
        raise a.error(f"reads index {int(indices.max())} (least {int(indices.min())}) of an axis of {size}")
