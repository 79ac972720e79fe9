"""Labels of the grammar: normal form, symbols with ink only, lengths and nesting as asked, the same for a seed."""

from random import Random

import pytest
from formulas import LABELS

from hmerctl.runtime.grammar import malformed
from hmerctl.train.compose.grammar import Grammar, GrammarConfig, kind_of
from hmerctl.train.latex import normalise, parse, write
from hmerctl.train.metrics.layout import nesting_depth
from hmerctl.train.symbols import drawn_symbols

TREES = [parse(label) for label in LABELS]
TOKENS = {token for label in LABELS for token in drawn_symbols(label.split())}


def draw(grammar: Grammar, count: int) -> list[tuple[str, ...]]:
    return [write(grammar.draw(Random(seed))) for seed in range(count)]


@pytest.fixture(scope="module")
def labels():
    return draw(Grammar(TREES, TOKENS), 400)


def test_labels_are_well_formed_and_in_normal_form(labels):
    for tokens in labels:
        assert normalise(tokens) == tokens
        assert malformed(tokens) is None


def test_most_labels_are_new(labels):
    known = {tuple(label.split()) for label in LABELS}
    assert sum(tokens not in known for tokens in labels) > 0.6 * len(labels)


def test_some_are_longer_than_any_real_one_and_none_is_too_long(labels):
    longest = max(len(label.split()) for label in LABELS)
    assert any(len(tokens) > longest for tokens in labels)
    config = GrammarConfig(longer=1.0, stretch=9.0, max_tokens=30)
    assert max(map(len, draw(Grammar(TREES, TOKENS, config), 200))) <= 30


def test_some_are_nested_deeper_than_any_real_one_but_not_beyond_the_limit():
    config = GrammarConfig(nest=0.5, longer=1.0, stretch=6.0, max_depth=4)
    depths = [nesting_depth(parse(tokens)) for tokens in draw(Grammar(TREES, TOKENS, config), 300)]
    assert max(nesting_depth(tree) for tree in TREES) < max(depths) <= 4


def test_symbols_without_ink_do_not_occur():
    without = TOKENS - {"\\sqrt", "n"}
    labels = draw(Grammar(TREES, without), 200)
    assert {token for tokens in labels for token in drawn_symbols(tokens)} <= without
    with pytest.raises(ValueError, match="no label"):
        Grammar(TREES, {"z"})


def test_a_seed_gives_the_same_label():
    assert draw(Grammar(TREES, TOKENS), 20) == draw(Grammar(TREES, TOKENS), 20)


def test_groups_and_commands_that_cannot_be_laid_out_are_left_out():
    trees = [parse("{ x ^ { 2 } } ^ { 3 }"), parse("\\overline { x }"), parse("a")]
    assert Grammar(trees, {"x", "2", "3", "a", "{", "\\overline"}).trees == [parse("a")]


@pytest.mark.parametrize(
    ("label", "relation", "kind"),
    [
        ("\\frac { a } { b }", "0", "\\frac 0"),
        ("\\sum _ { n }", "sub", "sub \\sum"),
        (") ^ { 2 }", "sup", "sup bracket"),
        ("x ^ { 2 }", "sup", "sup"),
        ("\\sin ^ { 2 }", "sup", "sup \\sin"),
    ],
)
def test_rows_of_one_place_are_of_one_kind(label, relation, kind):
    assert kind_of(parse(label)[0], relation) == kind
