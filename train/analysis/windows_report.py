"""The analysis of locality for people: the table of windows, and the pictures of Alastruey et al. 2022."""

import io

import numpy as np

from hmerctl.train.analysis.windows import CURVE, THRESHOLDS, WHOLE, Locality
from hmerctl.train.locality import Shape

HEADERS = ["layer", "rows needed", "columns needed", "window found", "CL", "CCD", "window used"]


def rows(found: Locality) -> list[list[str]]:
    """A row for each layer: needed sides as mean and standard deviation, window, contribution lost, area."""
    table = []
    chosen = zip(found.layers, found.found(), found.windows, strict=True)
    for number, (layer, best, window) in enumerate(chosen, 1):
        sides = layer.needed(found.threshold)
        mean, deviation = np.mean(sides, 0), np.std(sides, 0)
        needed = [f"{m:.2f} ± {d:.2f}" for m, d in zip(mean, deviation, strict=True)]
        lost, areas = (f"{np.mean(v):.3f} ± {np.std(v):.3f}" for v in (layer.lost(best), layer.areas))
        table.append([str(number), *needed, _named(best), lost, areas, _named(window)])
    return table


def threshold_rows(found: Locality) -> list[list[str]]:
    """A row for each threshold: for each layer the window, what it loses, and the cells it looks at."""
    return [
        [
            f"{threshold:g}",
            *(
                f"{_named(window)}: {np.mean(layer.lost(window)):.2f}, {found.looked_at(window):.0%}"
                for layer, window in zip(found.layers, found.found(threshold), strict=True)
            ),
        ]
        for threshold in THRESHOLDS
    ]


def notes(found: Locality) -> list[str]:
    """How the table came to be."""
    cells = np.mean([height * width for height, width in found.shapes])
    text = f"{len(found.shapes)} maps of {cells:.0f} cells on average"
    return [
        text + (f"; {found.skipped} larger ones left out" if found.skipped else ""),
        f"a diagonal matters above a mean contribution of {found.threshold}; the walk ends after a tenth of the axis",
        f"the whole map stays where a window loses more than {found.most_lost:.0%} or saves no work on a mean map",
    ]


def markdown(title: str, found: Locality) -> str:
    """Notes and table as a Markdown page."""
    lines = [f"# {title}", "", *(f"- {note}" for note in notes(found)), ""]
    lines += _table(HEADERS, rows(found))
    lines += ["", "Other thresholds: window, CL, and the cells looked at as a share of a mean map", ""]
    headers = ["threshold", *(f"layer {number + 1}" for number in range(len(found.layers)))]
    return "\n".join(lines + _table(headers, threshold_rows(found))) + "\n"


def _table(headers: list[str], content: list[list[str]]) -> list[str]:
    head = ["| " + " | ".join(headers) + " |", "|--:" * len(headers) + "|"]
    return head + ["| " + " | ".join(row) + " |" for row in content]


def draw_curves(found: Locality) -> bytes:
    """Diagonality over windows and its area for each layer (figures 2 and 3 of the source), as PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    for number, layer in enumerate(found.layers, 1):
        left.plot(CURVE, np.mean(layer.curves, 0), label=f"layer {number}")
    left.set(xlabel="reach of the window, share of both axes", ylabel="diagonality D", ylim=(0, 1.02))
    left.legend(fontsize=8)
    left.grid(alpha=0.3)
    means, deviations = ([f(layer.areas) for layer in found.layers] for f in (np.mean, np.std))
    numbers = np.arange(1, len(means) + 1)
    right.errorbar(numbers, means, deviations, marker="o", capsize=3)
    right.set(xlabel="layer", ylabel="CCD (area under D)", xticks=numbers)
    right.grid(alpha=0.3)
    return _png(figure)


def draw_profiles(found: Locality) -> bytes:
    """The most that any offset adds to D, along rows and along columns, with the threshold, as PNG: what Algorithm 1
    looks at."""
    from matplotlib.figure import Figure

    cells = np.mean([rows * columns for rows, columns in found.shapes])
    figure = Figure(figsize=(10, 4), layout="constrained")
    for axis, (panel, name) in enumerate(zip(figure.subplots(1, 2), ("rows", "columns"), strict=True)):
        for number, layer in enumerate(found.layers, 1):
            panel.semilogy(layer.profile(axis), marker=".", label=f"layer {number}")
        panel.axhline(found.threshold, color="black", linewidth=0.8, label=f"threshold {found.threshold:g}")
        panel.axhline(1 / cells, color="grey", linestyle=":", label=f"even attention, {cells:.0f} cells")
        panel.set(xlabel=f"offset, {name}", ylabel="largest mean contribution")
        panel.legend(fontsize=8)
        panel.grid(alpha=0.3)
    return _png(figure)


def draw_contributions(found: Locality) -> bytes:
    """For each layer the matrix of one map (figure 4) and the mean by offset with the window, as PNG.

    The main diagonal, most of all contributions, is hidden to let the rest be seen, as in the source.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    count = len(found.layers)
    figure = Figure(figsize=(4.2 * count, 7.5), layout="constrained")
    axes = figure.subplots(2, count, squeeze=False, height_ratios=(3, 2))
    shape = found.shapes[0]
    for number, (layer, window) in enumerate(zip(found.layers, found.windows, strict=True)):
        assert layer.example is not None
        matrix = layer.example.copy()
        np.fill_diagonal(matrix, 0)
        above, below = axes[0, number], axes[1, number]
        above.imshow(matrix, cmap="magma", vmax=max(float(np.quantile(matrix, 0.995)), 1e-9), interpolation="nearest")
        above.set(title=f"layer {number + 1}: one map, {shape[0]} x {shape[1]} cells", xlabel="from", ylabel="to")
        offsets = layer.mean_offsets()
        high, wide = offsets.shape[0] // 2, offsets.shape[1] // 2
        offsets[high, wide] = 0
        extent = (-wide - 0.5, wide + 0.5, high + 0.5, -high - 0.5)
        below.imshow(offsets, cmap="magma", extent=extent, interpolation="nearest")
        below.set(title=f"mean by offset, window {_named(window)}", xlabel="columns", ylabel="rows")
        if window != WHOLE:
            height = window[0] or 2 * high + 1
            corner = (-window[1] / 2, -height / 2)
            below.add_patch(Rectangle(corner, window[1], height, fill=False, edgecolor="cyan"))
    return _png(figure)


def _png(figure: "object") -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)  # type: ignore[attr-defined]
    return buffer.getvalue()


def _named(window: Shape) -> str:
    return "whole map" if window == WHOLE else f"{window[0] or 'all'} x {window[1]}"
