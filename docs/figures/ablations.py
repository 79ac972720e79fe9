"""Draws ablations.svg: what every run of the two shipped grids gains or loses against the first run of its grid.

Run from the repository: ``python docs/figures/ablations.py``. It reads ``ablation-positions.json`` and
``ablation-contexts.json``, the ``table.json`` of the runs that docs/ablations.md is about.
"""

import json
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

FOLDER = Path(__file__).parent
GRIDS = ("positions", "contexts")
LEVEL = 0.05


def draw(axes: Axes, table: dict) -> None:
    """A line for each run, the first on top: difference in ExpRate, its interval; full where Holm's p is small."""
    first, *others = table["results"]
    axes.axvline(0, color="black", linewidth=0.8)
    for place, result in enumerate(others, 1):
        test = result["versus"]
        low, middle, high = (
            100 * value for value in (test["interval"]["low"], test["difference"], test["interval"]["high"])
        )
        sure = test["p_holm"] < LEVEL
        axes.plot((low, high), (place, place), color="C0")
        axes.plot(middle, place, "o", color="C0", markerfacecolor="C0" if sure else "white")
    names = [f"{result['name']}  {100 * result['exprate']:.1f} %" for result in (first, *others)]
    axes.plot(0, 0, "|", color="black", markersize=10)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("points of ExpRate over the first row")
    axes.grid(axis="x", alpha=0.3)


def main() -> None:
    """Read both tables, draw, write."""
    tables = [json.loads((FOLDER / f"ablation-{grid}.json").read_text()) for grid in GRIDS]
    figure = Figure(figsize=(7.2, 5.6), layout="constrained")
    heights = [len(table["results"]) for table in tables]
    for axes, table in zip(figure.subplots(len(tables), 1, height_ratios=heights), tables, strict=True):
        draw(axes, table)
        axes.set_title(table["about"], fontsize=9)
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "ablations"}):
        figure.savefig(FOLDER / "ablations.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
