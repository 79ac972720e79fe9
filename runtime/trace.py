"""Strokes from a binary picture: thinning to one-pixel lines, then following them.

A picture shows how thick its pen was and little else that ink does not; the centre lines, drawn with our own pen,
give the recogniser what it was trained on.
"""

import numpy as np

_NEIGHBOURS = ((-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1))
"""Row and column steps, clockwise from the north; neighbour i is bit i of a pixel's code."""


def _deletable_codes() -> np.ndarray:
    """bool (256,): codes of pixels whose removal keeps the topology and that are no line's end.

    Simple points by Yokoi's 8-connectivity number being one, with at least two neighbours.
    """
    bits = (np.arange(256)[:, None] >> np.arange(8)) & 1
    empty = 1 - bits
    number = sum(empty[:, k] - empty[:, k] * empty[:, k + 1] * empty[:, (k + 2) % 8] for k in (0, 2, 4, 6))
    return (number == 1) & (bits.sum(1) >= 2)


_DELETABLE = _deletable_codes()


def thin(binary: np.ndarray) -> np.ndarray:
    """Centre lines of a bool picture, bool of the same shape.

    Parallel thinning in four directions (Rosenfeld 1975): border pixels of the north, south, west and east in
    turn, where they are deletable. Keeps 8-connected components and their holes.
    """
    padded = np.pad(np.ascontiguousarray(binary), 1)
    flat = padded.reshape(-1)
    stride = padded.shape[1]
    steps = [dy * stride + dx for dy, dx in _NEIGHBOURS]
    while True:
        before = np.count_nonzero(flat)
        for side in (0, 4, 6, 2):
            pixels = np.flatnonzero(flat)
            pixels = pixels[~flat[pixels + steps[side]]]
            code = np.zeros(len(pixels), np.uint8)
            for bit, step in enumerate(steps):
                code |= flat[pixels + step].view(np.uint8) << np.uint8(bit)
            flat[pixels[_DELETABLE[code]]] = False
        if np.count_nonzero(flat) == before:
            return padded[1:-1, 1:-1]


def trace(lines: np.ndarray, spur: float) -> list[np.ndarray]:
    """Polylines of a thinned picture.

    Args:
        lines: bool (height, width), one pixel wide.
        spur: side branches up to this length (pixels) are left out: thinning makes them from bumps.

    Returns:
        float64 (points, 2) each, x and y of pixel centres (the first pixel's centre is 0.5, 0.5), smoothed.
    """
    pixels, steps, linked = _adjacency(lines)
    ends = linked.sum(1) != 2
    neighbours: dict[int, list[int]] = {pixel: [] for pixel in pixels[ends].tolist()}
    row, step = np.nonzero(linked[ends])
    owner = pixels[ends][row]
    for pixel, near in zip(owner.tolist(), (owner + steps[step]).tolist(), strict=True):
        neighbours[pixel].append(near)
    # Of a pixel between two others: their sum, so that less the one it is the other.
    between = dict(zip(pixels.tolist(), (2 * pixels + linked @ steps).tolist(), strict=True))
    nodes = set(pixels[ends].tolist())
    paths: list[list[int]] = [[pixel] for pixel in nodes if not neighbours[pixel]]
    seen: set[tuple[int, int]] = set()
    used: set[int] = set()
    for node in nodes:
        for first in neighbours[node]:
            if (node, first) in seen:
                continue
            path = _follow(node, first, between, nodes)
            seen.update([(path[0], path[1]), (path[-1], path[-2])])
            used.update(path)
            is_branch = {len(neighbours[path[0]]), len(neighbours[path[-1]])} > {1}
            if not (is_branch and len(path) - 1 <= spur):
                paths.append(path)
    for start in between.keys() - nodes - used:
        if start in used:
            continue
        first = start + int(steps[linked[np.searchsorted(pixels, start)].argmax()])
        path = _follow(start, first, between, {start})
        used.update(path)
        paths.append(path)
    stride = lines.shape[1] + 2
    out = []
    for path in paths:
        index = np.array(path)
        points = np.stack([index % stride - 0.5, index // stride - 0.5], axis=1)
        out.append(_smooth(points))
    return out


def _follow(start: int, first: int, between: dict[int, int], ends: set[int]) -> list[int]:
    """The pixels from ``start`` by way of ``first`` to one of ``ends``."""
    path = [start, first]
    before, here = start, first
    while here not in ends:
        before, here = here, between[here] - before
        path.append(here)
    return path


def _adjacency(lines: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Line pixels and their neighbours.

    Diagonal neighbours count only where no pixel joins both at right angles, so that a staircase is a path.

    Returns:
        the line pixels (flat index in the picture padded by one pixel), int64 (pixels,) in order; the steps from a
        pixel to its eight neighbours, int64 (8,); which of them it is linked to, bool (pixels, 8).
    """
    stride = lines.shape[1] + 2
    flat = np.pad(lines, 1).reshape(-1)
    pixels = np.flatnonzero(flat)
    steps = (1, stride, stride + 1, stride - 1)
    linked = np.empty((len(pixels), 8), bool)
    forwards = np.zeros(len(flat), bool)
    for i, step in enumerate(steps):
        joined = flat[pixels + step]
        if step > stride:
            joined = joined & ~flat[pixels + 1] & ~flat[pixels + stride]
        elif step == stride - 1:
            joined = joined & ~flat[pixels - 1] & ~flat[pixels + stride]
        forwards[pixels] = joined
        linked[:, 2 * i], linked[:, 2 * i + 1] = forwards[pixels - step], joined
    return pixels, np.array([sign * step for step in steps for sign in (-1, 1)]), linked


def _smooth(points: np.ndarray) -> np.ndarray:
    """Take the pixel steps out of a path: three passes of a (1, 2, 1) / 4 filter; ends stay, rings are closed."""
    ring = len(points) > 3 and bool((points[0] == points[-1]).all())
    for _ in range(3):
        inner = (points[:-2] + 2 * points[1:-1] + points[2:]) / 4
        if ring:
            joint = (points[-2] + 2 * points[0] + points[1])[None] / 4
            points = np.concatenate([joint, inner, joint])
        else:
            points = np.concatenate([points[:1], inner, points[-1:]])[: len(points)]
    return points
