"""A result as one picture: the ink with a box per token, the LaTeX, and the attention step by step."""

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from hmerctl.runtime.result import Result

_SCALE = 3
_WIDTH = 1280
_GAP = 10
_PAPER, _GREY, _TEXT = (255, 255, 255), (110, 110, 110), (20, 20, 20)
_HEAT = np.array((214, 40, 57), np.float32)
_COLOURS = ((38, 84, 124), (6, 167, 125), (214, 40, 57), (241, 143, 1), (122, 59, 150))


def draw_result(result: Result) -> Image.Image:
    """Draw ink, boxes, LaTeX and attention. Boxes are drawn on the raster, which is what the encoder saw."""
    ink = _ink(result, _SCALE)
    panels = [
        _panel(result, i) for i, token in enumerate(result.tokens) if token.box is not None and result.attention.size
    ]
    width = max(_WIDTH, ink.width + 2 * _GAP)
    rows = _rows(panels, width)
    height = ink.height + 2 * _GAP + 70 + sum(max(p.height for p in row) + _GAP for row in rows)
    page = Image.new("RGB", (width, height), _PAPER)
    page.paste(ink, (_GAP, _GAP))
    pen = ImageDraw.Draw(page)
    y = ink.height + 2 * _GAP
    pen.text((_GAP, y), result.latex or "(nothing)", _TEXT, ImageFont.load_default(size=24))
    pen.text((_GAP, y + 36), f"{result.decision}: {result.reason}", _GREY, ImageFont.load_default(size=16))
    y += 70
    for row in rows:
        x = _GAP
        for panel in row:
            page.paste(panel, (x, y))
            x += panel.width + _GAP
        y += max(panel.height for panel in row) + _GAP
    return page


def _ink(result: Result, scale: int) -> Image.Image:
    """The raster as dark ink on white, with the boxes of the tokens."""
    pixels = Image.fromarray(255 - result.raster.pixels)
    image = pixels.resize((pixels.width * scale, pixels.height * scale), Image.Resampling.BICUBIC).convert("RGB")
    pen = ImageDraw.Draw(image)
    x0, y0 = result.raster.origin
    factor = result.raster.scale * scale
    for i, token in enumerate(result.tokens):
        if token.box is not None:
            left, top, right, bottom = token.box
            corners = ((left - x0) * factor, (top - y0) * factor, (right - x0) * factor, (bottom - y0) * factor)
            pen.rectangle(corners, outline=_COLOURS[i % len(_COLOURS)], width=2)
    return image


def _panel(result: Result, index: int) -> Image.Image:
    """The raster tinted where a token looks, with the token above it."""
    height, width = result.raster.pixels.shape
    weights = result.attention[index]
    heat = Image.fromarray(np.uint8(255 * weights / max(float(weights.max()), 1e-9)))
    stride = result.stride
    heat = heat.resize((weights.shape[1] * stride, weights.shape[0] * stride), Image.Resampling.BILINEAR)
    strength = np.asarray(heat.crop((0, 0, width, height)), np.float32)[:, :, None] / 255 * 0.6
    paper = np.repeat(255 - result.raster.pixels[:, :, None].astype(np.float32), 3, axis=2)
    tinted = Image.fromarray(np.uint8(paper * (1 - strength) + _HEAT * strength))
    panel = Image.new("RGB", (width, height + 20), _PAPER)
    panel.paste(tinted, (0, 20))
    token = result.tokens[index]
    ImageDraw.Draw(panel).text(
        (0, 0), f"{token.token}  {np.exp(token.log_prob):.2f}", _TEXT, ImageFont.load_default(size=14)
    )
    return panel


def _rows(panels: list[Image.Image], width: int) -> list[list[Image.Image]]:
    """Panels of one size set in rows."""
    if not panels:
        return []
    each = max(1, (width - _GAP) // (panels[0].width + _GAP))
    return [panels[i : i + each] for i in range(0, len(panels), each)]
