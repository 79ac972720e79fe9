"""How runs went: loss, recognition rate, perplexity, BLEU-4 and edit distance over training (Zhou 2023, figure 6)."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hmerctl.runtime.errors import DataError

Curve = list[tuple[int, float]]
"""Step and value, steps rising."""

PANELS = {
    "loss": "training loss",
    "valid_exprate": "ExpRate, %",
    "valid_perplexity": "perplexity",
    "valid_bleu4": "BLEU-4",
    "valid_edit_distance": "edit distance, tokens",
    "valid_edit_similarity": "edit similarity, %",
}
"""Logged figure to title; all but the first are of the validation sample."""

_LOGARITHMIC = ("valid_perplexity",)


@dataclass(frozen=True)
class RunCurves:
    """What a run logged.

    Attributes:
        name: of the run folder.
        curves: by logged figure; an early run may lack some.
    """

    name: str
    curves: Mapping[str, Curve]

    def best(self) -> tuple[int, float] | None:
        """Step and value of the best ExpRate."""
        return max(self.curves.get("valid_exprate", []), key=lambda at: at[1], default=None)


def read_run(run: Path) -> RunCurves:
    """The curves of a run folder, joined over its resumed parts.

    A part goes on from the last saved state: what the part before it logged after that state did not count, and is
    left out.

    Raises:
        DataError: there are no logs, or they are damaged.
    """
    files = sorted(run.glob("logs/part-*/metrics.csv"), key=lambda file: int(file.parent.name.removeprefix("part-")))
    if not files:
        raise DataError(f"{run}: no logs/part-*/metrics.csv here; give the --out folder of a 'hmerctl train'")
    curves: dict[str, Curve] = {}
    for file in files:
        part = _read_part(file)
        start = min((curve[0][0] for curve in part.values()), default=0)
        for name in curves:
            curves[name] = [at for at in curves[name] if at[0] < start]
        for name, curve in part.items():
            curves.setdefault(name, []).extend(curve)
    return RunCurves(run.resolve().name, {name: curve for name, curve in curves.items() if curve})


def _read_part(file: Path) -> dict[str, Curve]:
    part: dict[str, Curve] = {}
    try:
        with file.open(newline="", encoding="utf-8") as opened:
            for row in csv.DictReader(opened):
                for name in PANELS:
                    if row.get(name):
                        part.setdefault(name, []).append((int(row["step"]), float(row[name])))
    except (OSError, ValueError, KeyError, csv.Error) as error:
        raise DataError(f"{file}: cannot be read as a training log ({error!r}); copy the run again") from error
    return part


def draw(runs: Sequence[RunCurves]) -> bytes:
    """One panel for each figure that any run has, one colour for each run, as PNG.

    The training loss, noisy from batch to batch, is drawn with its running mean.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = [name for name in PANELS if any(name in run.curves for run in runs)]
    columns = min(3, max(len(shown), 1))
    rows = math.ceil(max(len(shown), 1) / columns)
    figure = Figure(figsize=(5 * columns, 3.4 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    for at, name in enumerate(shown, 1):
        axes = figure.add_subplot(rows, columns, at)
        axes.set_title(PANELS[name])
        axes.set_xlabel("steps")
        axes.grid(alpha=0.3)
        if name in _LOGARITHMIC:
            axes.set_yscale("log")
        for colour, run in enumerate(runs):
            curve = run.curves.get(name, [])
            if not curve:
                continue
            steps, values = zip(*curve, strict=True)
            if name == "loss":
                axes.plot(steps, values, color=f"C{colour}", alpha=0.25, linewidth=0.8)
                values = tuple(running_mean(values))
            axes.plot(steps, values, color=f"C{colour}", marker="." if len(steps) < 3 else None, label=run.name)
        if at == 1:
            axes.legend(fontsize=8)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return buffer.getvalue()


def running_mean(values: Sequence[float], weight: float = 0.1) -> list[float]:
    """Exponential mean that gives each new value ``weight``, and the first ones equal parts."""
    means: list[float] = []
    for i, value in enumerate(values):
        part = max(weight, 1 / (i + 1))
        means.append(value * part + (means[-1] * (1 - part) if means else 0.0))
    return means
