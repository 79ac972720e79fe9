"""Search worked out on paper, on a scripted engine: a table from prefix to the probabilities of the next token.

The alphabet is a, b, c with the ids 3, 4, 5; 2 is eos. What a table leaves out has probability 1e-9.
"""

import itertools
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmerctl.runtime.decode import DecodeOptions, Hypothesis, loop_period, search
from hmerctl.runtime.errors import EngineError
from hmerctl.runtime.vocabulary import EOS, PAD, SOS

A, B, C = 3, 4, 5
WIDTH = 6
Table = Callable[[tuple[int, ...]], dict[int, float]]


class ScriptedSession:
    """Follows parents like a real engine; its attention holds the step and the last id."""

    def __init__(self, table: Table) -> None:
        self.table, self.prefixes, self.steps = table, [()], 0

    def step(self, tokens: np.ndarray, parents: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        assert tokens.dtype == np.int32
        if self.steps:
            rows = range(len(tokens)) if parents is None else parents
            self.prefixes = [(*self.prefixes[row], int(token)) for row, token in zip(rows, tokens, strict=True)]
        else:
            assert tokens.tolist() == [SOS]
        probabilities = np.full((len(tokens), WIDTH), 1e-9)
        for row, prefix in enumerate(self.prefixes):
            for token, probability in self.table(prefix).items():
                probabilities[row, token] = probability
        attention = np.array([[self.steps, prefix[-1] if prefix else SOS] for prefix in self.prefixes], np.float32)
        self.steps += 1
        return np.log(probabilities).astype(np.float32), attention


def run(table: Table | dict[tuple[int, ...], dict[int, float]], **options: Any) -> list[Hypothesis]:
    lookup = (lambda prefix: table.get(prefix, {EOS: 1.0})) if isinstance(table, dict) else table
    return search(ScriptedSession(lookup), DecodeOptions(**options))


GARDEN_PATH = {
    # The best first token leads to nothing better than 0.6 * 0.4; "b c" has 0.4 * 0.9.
    (): {A: 0.6, B: 0.4},
    (A,): {A: 0.4, B: 0.3, EOS: 0.3},
    (B,): {C: 0.9, EOS: 0.1},
}


def test_greedy_takes_the_garden_path_and_a_beam_of_two_does_not() -> None:
    assert [h.ids for h in run(GARDEN_PATH)] == [(A, A)]
    best, second = run(GARDEN_PATH, beams=2, length_power=0.0)
    assert (best.ids, second.ids) == ((B, C), (A, A))
    assert math.exp(best.log_prob) == pytest.approx(0.36)
    assert np.exp(best.log_probs) == pytest.approx([0.4, 0.9, 1.0])
    assert best.stop == "eos"


def test_a_pruned_beam_is_wide_only_in_doubt() -> None:
    # b is two thirds as probable as a: a share of 0.6 keeps it, one of 0.7 leaves the greedy path. After the second
    # token "b c" has 0.36 and the best of a only 0.18.
    table = {**GARDEN_PATH, (A,): {A: 0.3, B: 0.2, C: 0.2, EOS: 0.2}}
    assert [h.ids for h in run(table, beams=2, length_power=0.0, prune=0.6)] == [(B, C)]
    assert [h.ids for h in run(table, beams=2, length_power=0.0, prune=0.7)] == [(A, A)]
    widths = []

    class Measured(ScriptedSession):
        def step(self, tokens: np.ndarray, parents: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
            widths.append(len(tokens))
            return super().step(tokens, parents)

    session = Measured(lambda prefix: table.get(prefix, {EOS: 1.0}))
    search(session, DecodeOptions(beams=2, prune=0.6, length_power=0.0))
    assert widths == [1, 2, 1]


@given(st.integers(0, 2**32 - 1), st.integers(2, 5))
def test_pruning_at_one_is_greedy_and_at_nothing_is_the_whole_beam(seed: int, beams: int) -> None:
    rng = np.random.default_rng(seed)
    tables = [rng.dirichlet(np.ones(4)) for _ in range(40)]

    def table(prefix: tuple[int, ...]) -> dict[int, float]:
        return dict(zip((A, B, C, EOS), tables[hash(prefix) % 40], strict=True)) if len(prefix) < 6 else {EOS: 1.0}

    assert run(table, beams=beams, prune=1.0)[0] == run(table)[0]
    assert run(table, beams=beams, prune=1e-300) == run(table, beams=beams)


def test_an_ended_sequence_prunes_the_live_ones() -> None:
    # "a" ends with 0.8; what follows b has at most 0.2 and would go on for three more tokens.
    table = {(): {A: 0.8, B: 0.2}, (A,): {EOS: 1.0}, (B,): {C: 1.0}, (B, C): {C: 1.0}, (B, C, C): {EOS: 1.0}}
    steps: list[int] = []

    class Measured(ScriptedSession):
        def step(self, tokens: np.ndarray, parents: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
            steps.append(len(tokens))
            return super().step(tokens, parents)

    for prune, expected in ((0.3, [(A,)]), (0.2, [(A,), (B, C, C)])):
        steps.clear()
        session = Measured(lambda prefix: table.get(prefix, {EOS: 1.0}))
        found = search(session, DecodeOptions(beams=2, prune=prune, length_power=0.0))
        assert [h.ids for h in found] == expected
        assert len(steps) == (2 if prune == 0.3 else 4)


@given(st.integers(0, 10_000), st.integers(1, 4), st.floats(-8.0, 0.0))
def test_a_floor_takes_away_what_lies_below_it_and_nothing_else(seed: int, beams: int, floor: float) -> None:
    table = random_table(seed)
    whole = run(table, beams=beams, length_power=0.0, max_steps=12)
    above = run(table, beams=beams, length_power=0.0, max_steps=12, floor=floor)
    assert above == [h for h in whole if h.log_prob > floor]


def test_length_power_prefers_longer_sequences() -> None:
    # "a": probability 0.5 in 2 tokens; "b c c": 0.4 in 4. Per token 0.707 and 0.795.
    table = {(): {A: 0.5, B: 0.4}, (A,): {EOS: 1.0}, (B,): {C: 1.0}, (B, C): {C: 1.0}, (B, C, C): {EOS: 1.0}}
    assert run(table, beams=2, length_power=0.0)[0].ids == (A,)
    best, second = run(table, beams=2, length_power=1.0)
    assert (best.ids, second.ids) == ((B, C, C), (A,))
    assert best.score == pytest.approx(math.log(0.4) / 4)
    assert second.score == pytest.approx(math.log(0.5) / 2)


def test_equal_probabilities_are_taken_in_the_order_of_rank_and_id() -> None:
    table: dict[tuple[int, ...], dict[int, float]] = {(): {A: 0.25, B: 0.25, C: 0.25, EOS: 0.25}}
    assert [h.ids for h in run(table, beams=4, length_power=0.0)] == [(), (A,), (B,), (C,)]
    assert run(table)[0].ids == ()


def test_an_ended_sequence_leaves_its_place_to_the_next_best() -> None:
    # eos, a, b are the three best; a beam of two must still follow both a and b.
    table = {(): {EOS: 0.5, A: 0.3, B: 0.2}, (A,): {C: 0.6, EOS: 0.1}, (B,): {EOS: 1.0}}
    assert [h.ids for h in run(table, beams=2, length_power=0.0)] == [(), (B,)]


def test_the_search_goes_on_while_a_live_sequence_beats_the_worst_that_ended() -> None:
    # After two steps "" (0.5) and "b" (0.05) have ended, and "a c" (0.3) is under way.
    table = {(): {EOS: 0.5, A: 0.3, B: 0.2}, (A,): {C: 1.0}, (B,): {EOS: 0.25}, (A, C): {EOS: 1.0}}
    assert [h.ids for h in run(table, beams=2, length_power=0.0)] == [(), (A, C)]


def test_pad_and_sos_are_never_written() -> None:
    assert run({(): {PAD: 0.5, SOS: 0.4, A: 0.1}})[0].ids == (A,)


def test_attention_and_log_probs_follow_the_path_and_not_the_row() -> None:
    # "b" overtakes "a" after the first step, so the rows cross.
    table = {(): {A: 0.55, B: 0.45}, (A,): {A: 0.2, C: 0.2}, (B,): {C: 0.9}, (B, C): {A: 0.9}, (B, C, A): {EOS: 1.0}}
    best = run(table, beams=2, length_power=0.0)[0]
    assert best.ids == (B, C, A)
    assert best.attention.tolist() == [[0, SOS], [1, B], [2, C], [3, A]]


def test_max_steps() -> None:
    (only,) = run(lambda prefix: {A + len(prefix) % 3 if len(prefix) % 7 else C: 0.9, EOS: 0.1}, max_steps=5)
    assert only.stop == "max" and len(only.ids) == len(only.log_probs) == len(only.attention) == 5


def test_an_ended_sequence_comes_before_a_better_one_that_was_cut_off() -> None:
    table = {(): {A: 0.9, B: 0.1}, (B,): {EOS: 1.0}, (A,): {B: 1.0}, (A, B): {A: 0.5, C: 0.5}}
    assert [(h.ids, h.stop) for h in run(table, beams=2, max_steps=3)] == [((B,), "eos"), ((A, B, A), "max")]


def test_a_loop_is_noticed_and_cut_to_its_first_copy() -> None:
    (single,) = run(lambda prefix: {C: 1.0} if not prefix else {A: 1.0})
    assert (single.ids, single.stop) == ((C, A), "loop")
    cycle = (A, B, C)
    (triple,) = run(lambda prefix: {B: 1.0} if len(prefix) < 2 else {cycle[len(prefix) % 3]: 1.0})
    assert (triple.ids, triple.stop) == ((B, B, C, A), "loop")
    assert len(triple.log_probs) == len(triple.attention) == len(triple.ids)


@pytest.mark.parametrize(
    ("ids", "period"),
    [
        ((A,) * 19, 0),
        ((A,) * 20, 1),
        ((A, B) * 9, 0),
        ((C,) + (A, B) * 10, 2),
        ((A, B, C, A, A) * 4, 5),
        (tuple(range(3, 20)) * 4, 0),  # a period of 17 is too long to be called a loop
        ((), 0),
    ],
)
def test_loop_rule(ids: tuple[int, ...], period: int) -> None:
    assert loop_period(ids) == period


def test_deadline_and_cancel_end_the_search_between_steps() -> None:
    def endless(prefix: tuple[int, ...]) -> dict[int, float]:
        return {A + len(prefix) ** 2 % 3: 1.0}

    answers: Iterator[bool] = itertools.chain([False] * 3, itertools.repeat(True))
    (cancelled,) = run(endless, cancelled=lambda: next(answers))
    assert (cancelled.stop, len(cancelled.ids)) == ("cancelled", 3)
    (late,) = run(endless, deadline=time.monotonic() - 1)
    assert (late.stop, late.ids, late.score) == ("deadline", (), 0.0)


def test_not_a_number_is_an_error() -> None:
    with pytest.raises(EngineError, match="NaN at step 1"):
        run({(): {A: 1.0}, (A,): {B: math.nan}})


class NoTwice:
    """A constraint: no id twice in a row."""

    def start(self) -> int:
        return -1

    def allowed(self, state: int) -> np.ndarray:
        return np.arange(WIDTH) != state

    def advance(self, state: int, token: int) -> int:
        return token


def test_a_constraint_masks_tokens() -> None:
    table = {(): {A: 0.9, B: 0.1}, (A,): {A: 0.8, B: 0.2}, (A, B): {B: 0.9, EOS: 0.1}}
    assert run(table)[0].ids == (A, A)
    best = run(table, constraint=NoTwice())[0]
    assert best.ids == (A, B)
    # Log-probabilities stay those of the model, they are not renormalised.
    assert np.exp(best.log_probs) == pytest.approx([0.9, 0.2, 0.1])


def random_table(seed: int) -> Table:
    def table(prefix: tuple[int, ...]) -> dict[int, float]:
        generator = np.random.default_rng([seed, *prefix])
        weights = generator.dirichlet(np.full(4, 0.5))
        return {token: float(weight) + 1e-6 for token, weight in zip((EOS, A, B, C), weights, strict=True)}

    return table


@given(st.integers(0, 10_000))
def test_width_one_is_greedy(seed: int) -> None:
    table = random_table(seed)
    prefix: tuple[int, ...] = ()
    while len(prefix) < 12:
        token = max(table(prefix).items(), key=lambda item: (np.float32(np.log(item[1])), -item[0]))[0]
        if token == EOS:
            break
        prefix = (*prefix, token)
    assert run(table, max_steps=12)[0].ids == prefix


@given(st.integers(0, 10_000))
def test_a_wide_beam_finds_the_best_sequence_of_all(seed: int) -> None:
    table, limit = random_table(seed), 4
    best: tuple[float, tuple[int, ...]] = (-math.inf, ())
    for ids in itertools.chain.from_iterable(itertools.product((A, B, C), repeat=n) for n in range(limit)):
        steps = [math.log(table(ids[:i])[token]) for i, token in enumerate((*ids, EOS))]
        best = max(best, (sum(steps), ids))
    found = run(table, beams=40, length_power=0.0, max_steps=limit)[0]
    assert found.ids == best[1]
    assert found.log_prob == pytest.approx(best[0], abs=1e-5)
