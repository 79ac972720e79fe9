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
    padded = np.pad(binary, 1)
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
    neighbours = _adjacency(lines)
    nodes = {pixel for pixel, near in neighbours.items() if len(near) != 2}
    paths: list[list[int]] = [[pixel] for pixel in nodes if not neighbours[pixel]]
    seen: set[tuple[int, int]] = set()
    used: set[int] = set()
    for node in nodes:
        for first in neighbours[node]:
            if (node, first) in seen:
                continue
            path = [node, first]
            while path[-1] not in nodes:
                a, b = neighbours[path[-1]]
                path.append(b if a == path[-2] else a)
            seen.update([(path[0], path[1]), (path[-1], path[-2])])
            used.update(path)
            is_branch = {len(neighbours[path[0]]), len(neighbours[path[-1]])} > {1}
            if not (is_branch and len(path) - 1 <= spur):
                paths.append(path)
    for start in neighbours.keys() - nodes - used:
        if start in used:
            continue
        path = [start, neighbours[start][0]]
        while path[-1] != start:
            a, b = neighbours[path[-1]]
            path.append(b if a == path[-2] else a)
        used.update(path)
        paths.append(path)
    stride = lines.shape[1] + 2
    out = []
    for path in paths:
        index = np.array(path)
        points = np.stack([index % stride - 0.5, index // stride - 0.5], axis=1)
        out.append(_smooth(points))
    return out


def _adjacency(lines: np.ndarray) -> dict[int, list[int]]:
    """Neighbours of every line pixel (flat index in the picture padded by one pixel).

    Diagonal neighbours count only where no pixel joins both at right angles, so that a staircase is a path.
    """
    stride = lines.shape[1] + 2
    flat = np.pad(lines, 1).reshape(-1)
    pixels = np.flatnonzero(flat)
    links: dict[int, list[int]] = {p: [] for p in pixels.tolist()}
    for step in (1, stride, stride + 1, stride - 1):
        joined = flat[pixels + step]
        if step > stride:
            joined = joined & ~flat[pixels + 1] & ~flat[pixels + stride]
        elif step == stride - 1:
            joined = joined & ~flat[pixels - 1] & ~flat[pixels + stride]
        for a in pixels[joined].tolist():
            links[a].append(a + step)
            links[a + step].append(a)
    return links


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
