"""Where the decoder looks at each step, over the picture (Zhou 2023, figure 7): a strip and a web page."""

import base64
import html
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from hmerctl.runtime.buckets import TO_BUCKETS, Padding
from hmerctl.runtime.decode import DecodeOptions, search
from hmerctl.runtime.engine import Engine
from hmerctl.runtime.errors import DataError
from hmerctl.runtime.files import png
from hmerctl.runtime.latex import detokenise
from hmerctl.runtime.raster import Raster
from hmerctl.runtime.show import attention_panel, in_rows
from hmerctl.runtime.vocabulary import Vocabulary

END = "end"
"""Shown for the step that ends the formula."""

_GAP = 12
_PANEL_WIDTH = 320
"""Small rasters are enlarged to about so many pixels."""


@dataclass(frozen=True)
class Trace:
    """One decoding, step by step.

    Attributes:
        pixels: uint8 (height, width), ink 255 on 0: what the encoder saw.
        stride: raster pixels per cell.
        tokens: what each step wrote; the last is END if decoding ended by itself.
        probabilities: of each of them, given those before.
        attention: float32 (steps, rows, columns): the cells that the raster touches; padding is cut off.
        stop: why decoding ended (``hmerctl.runtime.decode.Stop``).
    """

    pixels: np.ndarray
    stride: int
    tokens: tuple[str, ...]
    probabilities: tuple[float, ...]
    attention: np.ndarray
    stop: str

    @property
    def latex(self) -> str:
        """What was read."""
        return detokenise([token for token in self.tokens if token != END])

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        steps = zip(self.tokens, self.probabilities, self.attention, strict=True)
        return {
            "latex": self.latex,
            "stop": self.stop,
            "stride": self.stride,
            "height": self.pixels.shape[0],
            "width": self.pixels.shape[1],
            "steps": [
                {"token": token, "probability": round(p, 6), "attention": np.round(weights.astype(float), 6).tolist()}
                for token, p, weights in steps
            ],
        }


def trace(
    engine: Engine,
    raster: Raster,
    vocabulary: Vocabulary,
    options: DecodeOptions | None = None,
    padding: Padding = TO_BUCKETS,
) -> Trace:
    """Decode a raster and keep the attention of the best reading's steps.

    Raises:
        DataError: there is nothing on the raster.
    """
    if raster.blank is not None:
        raise DataError(f"nothing to read in the input: {raster.blank}; give one with ink")
    options = options or DecodeOptions()
    height, width = raster.pixels.shape
    inputs, size = padding.pad(raster.pixels)
    memory = engine.encode(inputs, size)
    best = search(engine.start(memory, options.beams), options)[0]
    # Cells are square and cover the padded raster, so their number gives the stride.
    rows, columns = inputs.shape[2:]
    stride = round((rows * columns / best.attention.shape[1]) ** 0.5)
    cells = best.attention.reshape(-1, rows // stride, columns // stride)
    words = [*vocabulary.decode(best.ids), END][: len(best.log_probs)]
    return Trace(
        raster.pixels,
        stride,
        tuple(words),
        tuple(float(np.exp(p)) for p in best.log_probs[: len(words)]),
        cells[: len(words), : -(-height // stride), : -(-width // stride)],
        best.stop,
    )


def strip(read: Trace) -> Image.Image:
    """All steps in order, row by row: the raster tinted where the step looks, its token and probability above."""
    scale = max(1, _PANEL_WIDTH // read.pixels.shape[1])
    steps = enumerate(zip(read.tokens, read.probabilities, read.attention, strict=True), 1)
    panels = [
        attention_panel(read.pixels, weights, read.stride, f"{i}: {token}  {probability:.2f}", scale)
        for i, (token, probability, weights) in steps
    ]
    rows = in_rows(panels)
    width = max(row.width for row in rows) + 2 * _GAP
    page = Image.new("RGB", (width, _GAP + sum(row.height + _GAP for row in rows)), (255, 255, 255))
    top = _GAP
    for row in rows:
        page.paste(row, (_GAP, top))
        top += row.height + _GAP
    return page


def page(read: Trace, title: str) -> str:
    """One HTML page without any other file: the picture, its steps to click through, and the strip."""
    peaks = read.attention.max((1, 2), keepdims=True)
    # Exactly what is drawn: 8 bits of opacity for each cell, relative to the step's peak.
    levels = np.rint(255 * read.attention / np.maximum(peaks, 1e-9)).astype(np.uint8).tolist()
    data = {
        "stride": read.stride,
        "steps": [
            {"token": token, "probability": round(probability, 4), "peak": round(float(peak), 4), "cells": cells}
            for token, probability, peak, cells in zip(
                read.tokens, read.probabilities, peaks.ravel(), levels, strict=True
            )
        ],
    }
    height, width = read.pixels.shape
    return _PAGE.format(
        title=html.escape(title),
        latex=html.escape(read.latex or "(nothing)"),
        stop=html.escape(read.stop),
        width=width,
        height=height,
        zoom=max(1, min(4, 1200 // width)),
        picture=_data_url(Image.fromarray(255 - read.pixels)),
        strip=_data_url(strip(read)),
        data=json.dumps(data, separators=(",", ":")).replace("</", "<\\/"),
    )


def _data_url(image: Image.Image) -> str:
    return "data:image/png;base64," + base64.b64encode(png(image)).decode()


_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 24px; color: #141414; background: #fff }}
code {{ font-size: 20px }}
#view {{ border: 1px solid #ccc; width: calc({width}px * {zoom}); max-width: 100%; image-rendering: auto }}
#steps {{ display: flex; flex-wrap: wrap; gap: 4px; margin: 12px 0 }}
#steps button {{ font: 16px ui-monospace, monospace; padding: 4px 8px; border: 1px solid #aaa; background: #f6f6f6 }}
#steps button[aria-pressed=true] {{ background: #d62839; color: #fff; border-color: #d62839 }}
#strip {{ max-width: 100% }}
</style>
<h1>{title}</h1>
<p><code>{latex}</code> (decoding ended: {stop})</p>
<canvas id="view" width="{width}" height="{height}" role="img" aria-label="Attention of the chosen step"></canvas>
<p id="about"></p>
<div id="steps"></div>
<p>Choose a step, or move with the arrow keys. Red marks where the step looks, fullest at its peak.</p>
<img id="strip" src="{strip}" alt="All steps, one picture each">
<script>
const data = {data};
const picture = new Image(), canvas = document.getElementById("view"), pen = canvas.getContext("2d");
const buttons = data.steps.map((step, i) => {{
  const button = document.createElement("button");
  button.textContent = step.token;
  button.onclick = () => show(i);
  document.getElementById("steps").append(button);
  return button;
}});
let now = 0;
function show(i) {{
  now = Math.min(Math.max(i, 0), data.steps.length - 1);
  const step = data.steps[now], small = document.createElement("canvas");
  small.width = step.cells[0].length;
  small.height = step.cells.length;
  const heat = small.getContext("2d").createImageData(small.width, small.height);
  step.cells.flat().forEach((level, cell) => heat.data.set([214, 40, 57, level * 0.6], 4 * cell));
  small.getContext("2d").putImageData(heat, 0, 0);
  pen.clearRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(picture, 0, 0);
  pen.drawImage(small, 0, 0, small.width * data.stride, small.height * data.stride);
  buttons.forEach((button, k) => button.setAttribute("aria-pressed", k === now));
  document.getElementById("about").textContent = `Step ${{now + 1}} of ${{data.steps.length}}: ${{step.token}}, ` +
    `probability ${{step.probability}}, peak attention ${{step.peak}}`;
}}
document.onkeydown = event => {{
  const move = {{ArrowLeft: -1, ArrowRight: 1}}[event.key];
  if (move) {{ show(now + move); event.preventDefault(); }}
}};
picture.onload = () => show(0);
picture.src = "{picture}";
</script>
</html>
"""
