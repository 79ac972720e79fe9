"""A result as one picture: the ink with a box per token, the LaTeX, and the attention step by step."""

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from hmerctl.runtime.result import Result

_WIDTH = 1280
_INK_HEIGHT = 400
_GAP = 12
_PAPER, _GREY, _TEXT = (255, 255, 255), (110, 110, 110), (20, 20, 20)
_HEAT = np.array((214, 40, 57), np.float32)
_COLOURS = ((38, 84, 124), (6, 167, 125), (214, 40, 57), (241, 143, 1), (122, 59, 150))


def draw_result(result: Result) -> Image.Image:
    """Draw ink, boxes, LaTeX and attention. Boxes are drawn on the raster, which is what the encoder saw."""
    height, width = result.raster.pixels.shape
    ink = _ink(result, max(1, min(_WIDTH // width, _INK_HEIGHT // height)))
    shown = [i for i, token in enumerate(result.tokens) if token.box is not None]
    scale = 2 if 2 * len(shown) * width <= 3 * _WIDTH else 1
    rows = in_rows([_panel(result, i, scale) for i in shown])
    lines = [
        (result.latex or "(nothing)", _TEXT, ImageFont.load_default(size=24)),
        (f"{result.decision}: {result.reason}", _GREY, ImageFont.load_default(size=16)),
    ]
    widths = [ink.width, *(int(font.getlength(text)) for text, _, font in lines), *(r.width for r in rows)]
    page = Image.new(
        "RGB", (max(widths) + 2 * _GAP, ink.height + 3 * _GAP + 72 + sum(r.height + _GAP for r in rows)), _PAPER
    )
    pen = ImageDraw.Draw(page)
    page.paste(ink, (_GAP, _GAP))
    y = ink.height + 2 * _GAP
    for text, colour, font in lines:
        pen.text((_GAP, y), text, colour, font)
        y += 36
    for row in rows:
        page.paste(row, (_GAP, y))
        y += row.height + _GAP
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


def _panel(result: Result, index: int, scale: int) -> Image.Image:
    """The raster tinted where a token looks, with the token above it."""
    token = result.tokens[index]
    label = f"{token.token}  {np.exp(token.log_prob):.2f}"
    return attention_panel(result.raster.pixels, result.attention[index], result.stride, label, scale)


def attention_panel(pixels: np.ndarray, weights: np.ndarray, stride: int, label: str, scale: int = 1) -> Image.Image:
    """A raster tinted where attention lies, darkest at its peak, under a line of text.

    Args:
        pixels: uint8 (height, width), ink 255 on 0.
        weights: float (rows, columns), a cell being ``stride`` x ``stride`` pixels; may reach beyond the raster.
        label: the line above.
        scale: enlarges the raster.
    """
    height, width = pixels.shape
    heat = Image.fromarray(np.uint8(255 * weights / max(float(weights.max()), 1e-9)))
    heat = heat.resize((weights.shape[1] * stride, weights.shape[0] * stride), Image.Resampling.BILINEAR)
    strength = np.asarray(heat.crop((0, 0, width, height)), np.float32)[:, :, None] / 255 * 0.6
    paper = np.repeat(255 - pixels[:, :, None].astype(np.float32), 3, axis=2)
    tinted = Image.fromarray(np.uint8(paper * (1 - strength) + _HEAT * strength))
    tinted = tinted.resize((width * scale, height * scale), Image.Resampling.BICUBIC)
    panel = Image.new("RGB", (max(tinted.width, 100), tinted.height + 20), _PAPER)
    panel.paste(tinted, (0, 20))
    ImageDraw.Draw(panel).text((0, 0), label, _TEXT, ImageFont.load_default(size=14))
    return panel


def in_rows(panels: list[Image.Image]) -> list[Image.Image]:
    """Panels of one size set in rows."""
    if not panels:
        return []
    width, height = panels[0].size
    each = max(1, (_WIDTH + _GAP) // (width + _GAP))
    rows = []
    for begin in range(0, len(panels), each):
        group = panels[begin : begin + each]
        row = Image.new("RGB", (len(group) * (width + _GAP) - _GAP, height), _PAPER)
        for i, panel in enumerate(group):
            row.paste(panel, (i * (width + _GAP), 0))
        rows.append(row)
    return rows
