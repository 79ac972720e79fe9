"""Draws attention_cost.svg and writes attention_cost.csv: what full and local self-attention cost on growing maps.

Run from the repository: ``python docs/figures/attention_cost.py [--repeats 7]``; one thread, about half a minute.
Full attention grows with the square of the cells, a window with their number, in PyTorch and in the exported graph.
"""

import argparse
import csv
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import matplotlib
import onnxruntime
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.export import Dim

from hmerctl.train.models.self_attention import SelfAttentionConfig, SelfAttentionLayer

FOLDER = Path(__file__).parent
CHANNELS, HEADS = 192, 6
WINDOWS = {"whole map": (0, 0), "window 3 x 7": (3, 7), "window 5 x 15": (5, 15), "all rows x 15": (0, 15)}
MAPS = ((4, 16), (8, 16), (8, 32), (8, 48), (16, 48), (16, 96), (24, 96), (32, 96))


class Attend(nn.Module):
    """Projections and attention of one layer, without feed-forward."""

    def __init__(self, window: tuple[int, int]) -> None:
        super().__init__()
        self.layer = SelfAttentionLayer(SelfAttentionConfig(layers=1, heads=HEADS, inner=1), CHANNELS, window)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x (1, rows, columns, channels), mask (1, rows, columns, 1)."""
        return self.layer.out(self.layer.attend(x, mask))


def exported(module: Attend) -> onnxruntime.InferenceSession:
    """The module in onnxruntime, rows and columns dynamic, one thread."""
    example = torch.zeros(1, 4, 9, CHANNELS), torch.ones(1, 4, 9, 1)
    axes = {1: Dim("rows", min=1, max=64), 2: Dim("columns", min=1, max=256)}
    program = torch.onnx.export(module, example, dynamo=True, dynamic_shapes=(axes, axes), verbose=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        program.save(f"{folder}/attend.onnx")
        return onnxruntime.InferenceSession(f"{folder}/attend.onnx", options)


def fastest(run: Callable[[], object], repeats: int) -> float:
    """Milliseconds of processor time of the fastest of several runs, after one to warm up.

    Processor time, which on one thread is what the clock shows on an idle machine, and right on a busy one too.
    """
    times = []
    for _ in range(repeats + 1):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times[1:]) * 1000


@torch.no_grad()
def measure(repeats: int) -> list[dict[str, object]]:
    """One row for each window, engine and map."""
    rows: list[dict[str, object]] = []
    for name, window in WINDOWS.items():
        module = Attend(window).eval()
        session = exported(module)
        inputs = [value.name for value in session.get_inputs()]
        for height, width in MAPS:
            x, mask = torch.randn(1, height, width, CHANNELS), torch.ones(1, height, width, 1)
            feed = dict(zip(inputs, (x.numpy(), mask.numpy()), strict=True))
            for engine, run in (
                ("PyTorch", lambda x=x, mask=mask, module=module: module(x, mask)),
                ("onnxruntime", lambda feed=feed, session=session: session.run(None, feed)),
            ):
                cells = height * width
                figures = {"attention": name, "engine": engine, "rows": height, "columns": width, "cells": cells}
                rows.append({**figures, "milliseconds": round(fastest(run, repeats), 3)})
    return rows


def draw(rows: list[dict]) -> None:
    """Time against cells, both axes logarithmic: a straight line's slope is the power."""
    figure = Figure(figsize=(6.4, 4.2))
    axes = figure.subplots()
    for colour, name in zip(("C3", "C0", "C2", "C1"), WINDOWS, strict=True):
        for style, engine in (("-o", "PyTorch"), ("--s", "onnxruntime")):
            points = [
                (r["cells"], r["milliseconds"]) for r in rows if (r["attention"], r["engine"]) == (name, engine)
            ]
            axes.loglog(*zip(*points, strict=True), style, color=colour, markersize=4, label=f"{name}, {engine}")
    axes.set_xlabel("cells of the map")
    axes.set_ylabel("milliseconds of processor time, one thread")
    axes.grid(True, which="both", alpha=0.3)
    axes.legend(fontsize=8)
    figure.tight_layout()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "attention_cost"}):
        figure.savefig(FOLDER / "attention_cost.svg", metadata={"Date": None})


def main() -> None:
    """Measure, write, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    torch.set_num_threads(1)
    rows = measure(parser.parse_args().repeats)
    with (FOLDER / "attention_cost.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    draw(rows)


if __name__ == "__main__":
    main()
