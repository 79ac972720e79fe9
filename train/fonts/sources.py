"""Stroke fonts: the Hershey fonts, and SVG fonts whose glyphs are lines. Their glyphs by LaTeX token.

All glyphs come in one measure: y down, capitals from 0 to 20, the base line at 20.
"""

import re
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from hmerctl.runtime.errors import ConfigError, DataError

Strokes = list[np.ndarray]
"""A glyph: float64 (points, 2) each."""

CAPITAL = 20.0
"""Height of capitals and digits in the measure of all glyphs."""

_PLAIN = "abcdefghijklmnopqrstuvwxyz0123456789ABCEFGHILMNPRSTVXY!()+,-./<=>[]|"
_NAMES = {**{c: c for c in _PLAIN}, "{": "\\{", "}": "\\}"}

_HERSHEY: dict[str, dict[str, str]] = {
    "futural": _NAMES,
    "cursive": {c: c for c in "abcdefghijklmnopqrstuvwxyzABCEFGHILMNPRSTVXY"},
    "greeks": {
        **{"a": "\\alpha", "b": "\\beta", "c": "\\gamma", "h": "\\theta", "k": "\\lambda", "l": "\\mu"},
        **{"p": "\\pi", "r": "\\sigma", "u": "\\phi", "D": "\\Delta", "P": "\\Pi"},
    },
    "mathlow": {
        **{"!": "\\pm", "#": "\\times", "$": "\\cdot", ":": "\\Pi", ";": "\\sum", "?": "\\neq", "_": "\\infty"},
        **{"h": "\\in", "i": "\\rightarrow", "v": "\\exists", "x": "\\div", "p": "\\int"},
    },
}
"""Character of a font to the token that it draws; ``futural`` is Roman simplex, ``cursive`` script simplex."""

_PATH = re.compile(r"([MLHVZmlhvz])|([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|([A-Za-z])")


def hershey_glyphs() -> dict[str, list[Strokes]]:
    """The Hershey fonts' glyphs by token; see docs/fonts.md for their source and conditions.

    Raises:
        ConfigError: the package with the fonts is not installed.
    """
    try:
        from HersheyFonts import HersheyFonts
    except ImportError as error:
        raise ConfigError("the Hershey fonts are not installed: pip install 'hmerctl[fonts]'") from error
    glyphs: dict[str, list[Strokes]] = defaultdict(list)
    for name, tokens in _HERSHEY.items():
        font = HersheyFonts()
        font.load_default_font(name)
        for character, token in tokens.items():
            glyph = font.all_glyphs[character]
            # Capitals stand from -12 to 9 in all of these fonts.
            strokes = [(np.array(s, float) + np.array((0.0, 12.0))) * (CAPITAL / 21) for s in glyph.strokes if len(s)]
            glyphs[token].append(strokes)
    return glyphs


def svg_glyphs(paths: Iterable[Path]) -> dict[str, list[Strokes]]:
    """Glyphs by token of SVG fonts (``.svg`` files, or folders with some) whose paths are straight lines.

    Raises:
        DataError: a file is not such a font.
    """
    glyphs: dict[str, list[Strokes]] = defaultdict(list)
    for path in paths:
        for file in svg_files(path):
            for token, strokes in _svg_font(file).items():
                glyphs[token].append(strokes)
    return glyphs


def svg_files(path: Path) -> list[Path]:
    """The SVG files that ``path`` stands for: itself, or those in the folder.

    Raises:
        DataError: a folder without any.
    """
    files = sorted(path.glob("*.svg")) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{path}: no .svg font in this folder")
    return files


def _svg_font(file: Path) -> dict[str, Strokes]:
    try:
        root = ET.parse(file).getroot()
    except (OSError, ET.ParseError) as error:
        raise DataError(f"{file}: not readable as an SVG font ({error})") from error
    found: dict[str, Strokes] = {}
    for element in root.iter():
        token = _NAMES.get(element.get("unicode", "")) if element.tag.rpartition("}")[2] == "glyph" else None
        if token is not None and element.get("d"):
            found[token] = _lines(element.get("d", ""), file)
    if "H" not in found:
        raise DataError(f"{file}: no glyphs of an SVG font here; give a font with <glyph unicode=... d=...>")
    height = max(float(s[:, 1].max()) for s in found["H"])
    if height <= 0:
        raise DataError(f"{file}: its H has no height above the base line")
    scale = CAPITAL / height
    return {
        token: [s * np.array((scale, -scale)) + np.array((0.0, CAPITAL)) for s in strokes]
        for token, strokes in found.items()
    }


def _lines(path: str, file: Path) -> Strokes:
    """The strokes of a path of moves and straight lines."""
    tokens = _PATH.findall(path)
    strokes: list[list[tuple[float, float]]] = []
    x = y = 0.0
    command, i = "", 0
    while i < len(tokens):
        letter, _, other = tokens[i]
        if other:
            raise DataError(f"{file}: a glyph has curves ({other}); only fonts of straight lines can be read")
        if letter:
            command = letter
            i += 1
            if letter in "Zz" and strokes:
                strokes[-1].append(strokes[-1][0])
            continue
        values = [float(n) for _, n, _ in tokens[i : i + (1 if command in "HhVv" else 2)]]
        i += len(values)
        dx, dy = (x, y) if command.islower() else (0.0, 0.0)
        if command in "Hh":
            x = values[0] + dx
        elif command in "Vv":
            y = values[0] + dy
        elif len(values) == 2:
            x, y = values[0] + dx, values[1] + dy
        if command in "Mm":
            strokes.append([])
            command = "l" if command == "m" else "L"
        if strokes:
            strokes[-1].append((x, y))
    return [np.array(s) for s in strokes if s]
