"""Figures of a layout are found again in inks that were drawn with them."""

import math

import numpy as np
import pytest
from formulas import GAP, HEIGHTS, LABELS, SCRIPT, UNIT, formula, training_set
from typed import as_a

from hmerctl.runtime.vocabulary import CROHME
from hmerctl.train.compose.alignment import drawn_nodes, place, symbol_boxes
from hmerctl.train.compose.statistics import LayoutStatistics, measure
from hmerctl.train.latex import parse
from hmerctl.train.symbols import drawn_symbols


@pytest.fixture(scope="module")
def figures() -> LayoutStatistics:
    return measure(training_set(30), CROHME)


def test_sizes_of_classes_against_each_other(figures):
    for name in ("b", "1", "+"):
        against_x = figures.size[name].middle - figures.size["x"].middle
        assert against_x == pytest.approx(math.log(HEIGHTS[name] / HEIGHTS["x"]), abs=0.12)


def test_offsets_of_classes_that_all_stand_on_the_axis(figures):
    assert all(abs(figures.offset[name].middle) < 0.08 for name in "a x b 1 2 + =".split())


def test_scripts_are_as_small_and_as_high_as_they_were_drawn(figures):
    assert figures.relation["sup size"].middle == pytest.approx(math.log(SCRIPT), abs=0.15)
    assert figures.relation["sub size"].middle == pytest.approx(math.log(SCRIPT), abs=0.15)
    assert figures.relation["sup rise"].middle == pytest.approx(0.0, abs=0.1)
    assert figures.relation["numerator size"].middle == pytest.approx(math.log(0.9), abs=0.12)


def test_gaps_and_limits(figures):
    assert figures.gap.middle == pytest.approx(GAP / UNIT, abs=0.12)
    assert figures.stacked["\\sum"] > 0.95


def test_without_inks_general_figures_stand_in():
    assert measure([], CROHME) == LayoutStatistics()


def test_boxes_are_those_of_the_strokes_of_a_symbol():
    ink = formula("x = 1", np.random.default_rng(0))
    boxes = symbol_boxes(ink)
    owner = np.repeat(ink.stroke_symbol, ink.lengths)
    for symbol, box in enumerate(boxes):
        mine = ink.points[owner == symbol]
        assert box.tolist() == [*mine.min(0), *mine.max(0)]


def test_equal_symbols_are_told_apart_by_their_order_unless_something_is_stacked():
    boxes = np.array([(20.0, 0, 25, 9), (0, 0, 5, 9), (10, 0, 15, 9)])
    line = place(parse("x + x"), ["x", "x", "+"], boxes)
    assert [as_a(tuple, placed.box)[0] for placed in line] == [0, 10, 20]
    fraction = place(parse("\\frac { x } { x }"), ["\\frac", "x", "x"], boxes)
    assert fraction[0].box is not None
    assert fraction[0].rows["0"][0].box is None


@pytest.mark.parametrize("label", [*LABELS, "\\sqrt [ 3 ] { x }"])
def test_drawn_nodes_are_the_symbols_of_the_label(label):
    names = [node.symbol for node in drawn_nodes(parse(label))]
    assert sorted(names) == sorted(drawn_symbols(label.split()).elements())
