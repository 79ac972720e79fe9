"""Draws ablations.svg and fills the tables of docs/ablations.md: what every run of the two shipped grids is worth.

Run from the repository: ``python docs/figures/ablations.py``. It reads ``ablation-positions.json`` and
``ablation-contexts.json``, the ``table.json`` that ``hmerctl ablate`` wrote to the folders of the runs, and replaces
what stands between ``<!-- positions: by docs/figures/ablations.py -->`` and ``<!-- end -->``, likewise contexts.
"""

import json
import sys
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hmerctl.runtime.files import write_text

FOLDER = Path(__file__).resolve().parent
PAGE = FOLDER.parent / "ablations.md"
GRIDS = ("positions", "contexts")
LEVEL = 0.05
ACCURACY = ("ExpRate % [95 %]", "<=1 %", "<=2 %", "structure %", "perplexity", "over first [95 %]", "p", "p, Holm")
COST = ("parameters M", "encoder MMAC", "step MMAC", "encoder ms", "step ms")


def accuracy(result: dict) -> list[str]:
    """Cells of a run, in the order of ACCURACY."""
    if "failed" in result:
        return ["failed", *["-"] * (len(ACCURACY) - 1)]
    low, high = result["interval"]
    return [
        f"{100 * result['exprate']:.1f} [{100 * low:.1f}, {100 * high:.1f}]",
        *(f"{100 * result[key]:.1f}" for key in ("within_1", "within_2", "stru_rate")),
        f"{result['perplexity']:.3f}",
        *versus(result.get("versus")),
    ]


def costs(result: dict) -> list[str]:
    """Cells of a run, in the order of COST."""
    if "failed" in result:
        return ["-"] * len(COST)
    cost = result["cost"]
    return [
        f"{cost['parameters'] / 1e6:.3f}",
        f"{cost['encoder_macs'] / 1e6:,.0f}",
        f"{cost['step_macs'] / 1e6:.2f}",
        f"{cost['encoder_ms']:.1f}",
        f"{cost['step_ms']:.2f}",
    ]


def versus(test: dict | None) -> list[str]:
    """Difference with its interval, McNemar's p, and Holm's."""
    if test is None:
        return ["-"] * 3
    points = [100 * value for value in (test["difference"], test["interval"]["low"], test["interval"]["high"])]
    return ["{:+.1f} [{:+.1f}, {:+.1f}]".format(*points), *(f"{test[key]:.2g}" for key in ("p_mcnemar", "p_holm"))]


def markdown(table: dict) -> str:
    """What a grid's runs read, and below it what they cost."""
    parts = []
    for headers, cells in ((ACCURACY, accuracy), (COST, costs)):
        rows = [["run", *headers], ["---", *["--:"] * len(headers)]]
        rows += [[result["name"], *cells(result)] for result in table["results"]]
        parts.append("\n".join("| " + " | ".join(row) + " |" for row in rows))
    return "\n\n".join(parts)


def draw(axes: Axes, results: list[dict]) -> None:
    """A line for each run, the first on top: difference in ExpRate, its interval; full where Holm's p is small."""
    axes.axvline(0, color="black", linewidth=0.8)
    for place, result in enumerate(results):
        if "versus" not in result:
            continue
        test = result["versus"]
        ends = [100 * test["interval"][end] for end in ("low", "high")]
        axes.plot(ends, (place, place), color="C0")
        fill = "C0" if test["p_holm"] < LEVEL else "white"
        axes.plot(100 * test["difference"], place, "o", color="C0", markerfacecolor=fill)
    names = [f"{result['name']}  {100 * result['exprate']:.1f} %" for result in results]
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel("points of ExpRate over the first row", fontsize=8)
    axes.grid(axis="x", alpha=0.3)


def main() -> None:
    """Read both tables, draw, and fill the page."""
    tables = {grid: json.loads((FOLDER / f"ablation-{grid}.json").read_text()) for grid in GRIDS}
    results = [[r for r in table["results"] if "failed" not in r] for table in tables.values()]
    figure = Figure(figsize=(7.2, 5.6), layout="constrained")
    panels = figure.subplots(len(GRIDS), 1, height_ratios=[len(good) for good in results], squeeze=False)[:, 0]
    for axes, table, good in zip(panels, tables.values(), results, strict=True):
        draw(axes, good)
        axes.set_title(table["about"], fontsize=9)
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "ablations"}):
        figure.savefig(FOLDER / "ablations.svg", metadata={"Date": None})
    sys.path.insert(0, str(FOLDER.parents[1] / "scripts"))
    from card import filled

    regions = {grid: markdown(table) for grid, table in tables.items()}
    write_text(PAGE, filled(PAGE.read_text(encoding="utf-8"), regions, "docs/figures/ablations.py"))


if __name__ == "__main__":
    main()
