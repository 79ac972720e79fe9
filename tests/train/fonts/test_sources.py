"""Stroke fonts: Hershey's, and SVG fonts of straight lines, in one measure."""

import numpy as np
import pytest

from hmerctl.runtime.errors import ConfigError, DataError
from hmerctl.train.fonts.sources import CAPITAL, hershey_glyphs, svg_glyphs

FONT = """<svg xmlns="http://www.w3.org/2000/svg"><defs><font><font-face units-per-em="1000"/>
<glyph unicode=" "/>
<glyph unicode="H" d="M 0 0 L 0 500 M 300 0 L 300 500 M 0 250 L 300 250"/>
<glyph unicode="{" d="m 100 0 l 50 50 v 100 h -50 z"/>
<glyph unicode="é" d="M 0 0 L 1 1"/>
</font></defs></svg>"""


def test_capitals_of_the_hershey_fonts_stand_on_the_base_line():
    glyphs = hershey_glyphs()
    for token in "AHMX":
        points = np.concatenate(glyphs[token][0])
        np.testing.assert_allclose((points[:, 1].min(), points[:, 1].max()), (0, CAPITAL))
    small = np.concatenate(glyphs["x"][0])
    assert 4 < small[:, 1].min() < 10
    assert abs(small[:, 1].max() - CAPITAL) < 0.5


def test_the_fonts_have_letters_digits_and_mathematics():
    glyphs = hershey_glyphs()
    assert set("abcxyz0189+-=()") <= set(glyphs)
    assert {"\\alpha", "\\pi", "\\sum", "\\int", "\\infty", "\\in", "\\{", "\\}"} <= set(glyphs)
    assert all(ways and all(len(way) for way in ways) for ways in glyphs.values())


def test_without_the_package_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "HersheyFonts", None)
    with pytest.raises(ConfigError, match=r"hmerctl\[fonts\]"):
        hershey_glyphs()


def test_svg_fonts_are_turned_over_and_brought_to_the_same_measure(tmp_path):
    (tmp_path / "a.svg").write_text(FONT, encoding="utf-8")
    for place in (tmp_path, tmp_path / "a.svg"):
        glyphs = svg_glyphs([place])
        assert set(glyphs) == {"H", "\\{"}
        (first, second, bar), *_ = glyphs["H"]
        np.testing.assert_allclose(first, [[0, 20], [0, 0]])
        np.testing.assert_allclose(second, [[12, 20], [12, 0]])
        np.testing.assert_allclose(bar, [[0, 10], [12, 10]])
        np.testing.assert_allclose(glyphs["\\{"][0][0], [[4, 20], [6, 18], [6, 14], [4, 14], [4, 20]])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no xml", "not readable"),
        ("<svg/>", "no glyphs"),
        ('<svg><glyph unicode="H" d="M 0 0 L 0 0"/></svg>', "no height"),
        ('<svg><glyph unicode="H" d="M 0 0 C 1 1 2 2 3 3"/></svg>', "curves"),
    ],
)
def test_other_files_are_refused_by_name(tmp_path, text, reason):
    (tmp_path / "bad.svg").write_text(text)
    with pytest.raises(DataError, match=rf"bad\.svg.*{reason}"):
        svg_glyphs([tmp_path / "bad.svg"])


def test_a_folder_without_fonts_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"no \.svg font"):
        svg_glyphs([tmp_path])
