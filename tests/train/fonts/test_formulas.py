"""Labels by rules: well formed, in normal form, varied, decided by the seed."""

from collections import Counter
from random import Random

import numpy as np

from hmerctl.runtime.vocabulary import CROHME
from hmerctl.train.fonts.formulas import FormulaConfig, Formulas
from hmerctl.train.latex import normalise, write

STRUCTURE = {"{", "}", "^", "_", "\\limits"}


def labels(count: int, config: FormulaConfig | None = None) -> list[tuple[str, ...]]:
    formulas = Formulas(config)
    return [write(formulas.draw(Random(seed))) for seed in range(count)]


def test_labels_are_in_normal_form():
    for tokens in labels(300):
        assert normalise(tokens) == tokens


def test_all_symbols_of_the_vocabulary_are_drawn_and_no_others():
    counts = Counter(token for tokens in labels(4000) for token in tokens)
    assert set(counts) == set(CROHME.tokens) - {"\\limits"}
    assert min(counts[token] for token in set(CROHME.tokens) - STRUCTURE) >= 5


def test_lengths_follow_the_configuration():
    assert 9 <= np.median([len(tokens) for tokens in labels(1000)]) <= 17
    longer = labels(300, FormulaConfig(median=30.0))
    assert np.median([len(tokens) for tokens in longer]) > 20
    assert max(len(tokens) for tokens in labels(300, FormulaConfig(max_tokens=25))) <= 25


def test_nesting_ends_at_the_configured_depth():
    def depth(row) -> int:
        return max((1 + depth(r) for n in row for r in (*n.arguments, n.index, n.sub, n.sup) if r), default=0)

    formulas = Formulas(FormulaConfig(median=60.0, max_depth=2))
    # A row at the deepest level may still have plain scripts.
    assert max(depth(formulas.draw(Random(seed))) for seed in range(300)) <= 4


def test_equal_seeds_give_equal_labels_and_others_do_not():
    assert labels(20) == labels(20)
    assert len(set(labels(200))) > 180
