"""Where symbols go: fractions, scripts, limits, roots and brackets, on many draws of a sloppy hand."""

from random import Random

import numpy as np
import pytest
from formulas import training_set

from hmerctl.runtime.vocabulary import CROHME
from hmerctl.train.compose.alignment import drawn_nodes
from hmerctl.train.compose.hands import Glyph, Hands, hands_of
from hmerctl.train.compose.layout import Layout, Placement
from hmerctl.train.compose.statistics import measure
from hmerctl.train.inks import InkBank
from hmerctl.train.latex import parse

DRAWS = range(40)


@pytest.fixture(scope="module")
def lay_out():
    inks = training_set()
    hands, statistics = Hands(InkBank(inks), CROHME), measure(inks, CROHME)

    def placements(label: str, seed: int, stacked: float = 1.0) -> list[Placement]:
        rng = Random(seed)
        statistics.stacked["\\sum"] = stacked
        return Layout(statistics, hands.draw(rng), rng).expression(parse(label), 20.0).placements

    return placements


def middle(p: Placement) -> tuple[float, float]:
    return (p.left + p.right) / 2, (p.top + p.bottom) / 2


@pytest.mark.parametrize("seed", DRAWS)
def test_placements_come_in_the_order_of_the_label(lay_out, seed):
    label = "\\frac { a + 1 } { b _ { 2 } } = \\sqrt { x } + ( \\sum _ { n = 1 } ^ { 2 } x ^ { 2 } )"
    expected = [node.symbol for node in drawn_nodes(parse(label))]
    assert [p.name for p in lay_out(label, seed)] == expected


@pytest.mark.parametrize("seed", DRAWS)
def test_a_numerator_stands_above_its_bar_and_a_denominator_below(lay_out, seed):
    bar, *parts = lay_out("\\frac { a + 1 } { b }", seed)
    for p in parts[:3]:
        assert p.bottom < bar.top
    assert parts[3].top > bar.bottom
    assert bar.left <= min(p.left for p in parts[:3])
    assert bar.right >= max(p.right for p in parts[:3])


@pytest.mark.parametrize("seed", DRAWS)
def test_scripts_stand_right_of_their_base_higher_and_lower(lay_out, seed):
    base, sub, sup = lay_out("x _ { 1 } ^ { 2 }", seed)
    assert middle(sup)[1] < middle(base)[1] < middle(sub)[1]
    assert sup.bottom < sub.top
    assert min(middle(sub)[0], middle(sup)[0]) > base.right


def test_scripts_stand_on_average_as_high_as_in_the_inks(lay_out):
    """There, a superscript's middle is as high as the top of its base."""
    heights = []
    for seed in DRAWS:
        base, sup = lay_out("b ^ { a }", seed)
        heights.append(middle(sup)[1] - base.top)
    assert abs(np.median(heights)) < 2.0


@pytest.mark.parametrize("seed", DRAWS)
def test_limits_stand_below_and_above_their_operator(lay_out, seed):
    operator, *below, above, x = lay_out("\\sum _ { n = 1 } ^ { 2 } x", seed)
    assert min(p.top for p in below) > operator.bottom
    assert above.bottom < operator.top
    assert x.left > operator.right


@pytest.mark.parametrize("seed", DRAWS)
def test_a_hand_may_write_limits_beside_their_operator(lay_out, seed):
    operator, below, above, _ = lay_out("\\sum _ { n } ^ { 2 } x", seed, stacked=0.0)
    assert min(middle(below)[0], middle(above)[0]) > operator.right


@pytest.mark.parametrize("seed", DRAWS)
def test_a_root_covers_what_it_holds(lay_out, seed):
    root, *inner = lay_out("\\sqrt { \\frac { x } { b } + 1 }", seed)
    assert root.top < min(p.top for p in inner)
    assert root.left < min(p.left for p in inner)
    assert root.right > max(middle(p)[0] for p in inner)
    assert root.hook < 0.5 * (root.right - root.left)


@pytest.mark.parametrize("seed", DRAWS)
def test_brackets_grow_with_a_fraction(lay_out, seed):
    left, *inner, right = lay_out("( \\frac { x } { b } )", seed)
    held = max(p.bottom for p in inner) - min(p.top for p in inner)
    for bracket in (left, right):
        assert bracket.bottom - bracket.top > 0.8 * held
    assert left.right < right.left


@pytest.mark.parametrize("seed", DRAWS)
def test_neighbours_keep_their_order(lay_out, seed):
    lefts = [p.left for p in lay_out("a + b = x + n + 1", seed)]
    assert lefts == sorted(lefts)


def test_a_glyph_fills_its_box_and_a_root_keeps_its_hook(lay_out):
    for p in lay_out("\\sqrt { a + b + x + n + 1 } + 2", 3):
        points = p.points()
        np.testing.assert_allclose(points.min(0), (p.left, p.top), atol=1e-9)
        np.testing.assert_allclose(points.max(0), (p.right, p.bottom), atol=1e-9)


def test_only_the_bar_of_a_root_is_stretched(lay_out):
    root = lay_out("\\sqrt { a + b + x + n + 1 }", 3)[0]
    corner = root.points()[2]  # the third of the four points with which the ink draws a root
    assert corner[0] == pytest.approx(root.left + root.hook, abs=0.5)
    assert root.hook < 0.2 * (root.right - root.left)


def test_a_glyph_without_width_is_placed_too():
    dot = Glyph(np.zeros((1, 2)), (1,), 0.0, 0.0)
    assert Placement(".", dot, 3.0, 4.0, 3.0, 4.0).points().tolist() == [[3.0, 4.0]]


def test_hands_are_told_by_their_ids():
    hands = hands_of(["65_carlos", "66_carlos", "form03-equation01", "form03-equation02", "form04-equation01"])
    assert hands["65_carlos"] == hands["66_carlos"]
    assert hands["form03-equation01"] == hands["form03-equation02"] != hands["form04-equation01"]
    many = hands_of([f"db{i}" for i in range(400)])
    assert many["db0"] == many["db39"] != many["db40"]


def test_a_writer_keeps_to_one_hand_where_it_has_the_symbol():
    inks = training_set()
    hands = Hands(InkBank(inks), CROHME)
    writer = hands.draw(Random(1))
    own = {id(glyph) for glyph in writer.glyphs("x")}
    assert {id(writer.draw("x")) for _ in range(50)} <= own
    assert len(own) < len(hands.all["x"])
