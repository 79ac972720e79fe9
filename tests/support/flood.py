"""Connected components by their plain definition, for tests to compare with."""

import numpy as np


def flood_fill(binary: np.ndarray) -> list[list[tuple[int, int]]]:
    """The pixels (y, x) of each 8-connected component of what is True, in no particular order."""
    left_over = {(int(y), int(x)) for y, x in np.argwhere(binary)}
    components = []
    while left_over:
        todo = [left_over.pop()]
        found = []
        while todo:
            y, x = todo.pop()
            found.append((y, x))
            near = {(y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)} & left_over
            left_over -= near
            todo.extend(near)
        components.append(found)
    return components
