"""A doubtful reading is read again at another size, and the more probable of both is taken."""

import math
from typing import Any

import numpy as np
import pytest

from hmerctl.runtime.buckets import Padding
from hmerctl.runtime.decode import DecodeOptions
from hmerctl.runtime.engine import Memory
from hmerctl.runtime.errors import InkError
from hmerctl.runtime.raster import Raster, RasterSpec
from hmerctl.runtime.reading import Look, read, second_spec
from hmerctl.runtime.vocabulary import EOS

A, B = 3, 4
SPEC = RasterSpec()


class ScriptedEngine:
    """Reads one token into a raster, with a probability that depends on its width; then eos, or never."""

    def __init__(self, by_width: dict[int, tuple[int, float]], endless: frozenset[int] = frozenset()) -> None:
        self.by_width, self.endless, self.seen = by_width, endless, list[int]()
        self.name = "script"
        self.threads: dict[str, int] = {}
        self.sessions: list[ScriptedSession] = []

    def encode(self, raster: np.ndarray, size: np.ndarray) -> dict[str, np.ndarray]:
        self.seen.append(int(size[0, 1]))
        return {"width": size[:, 1]}

    def start(self, memory: Memory, beams: int) -> "ScriptedSession":
        width = int(memory["width"][0])
        self.sessions.append(ScriptedSession(*self.by_width[width], width in self.endless))
        return self.sessions[-1]


class ScriptedSession:
    def __init__(self, token: int, probability: float, endless: bool) -> None:
        self.token, self.probability, self.endless, self.steps = token, probability, endless, 0

    def step(self, tokens: np.ndarray, parents: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        log_probs = np.full((len(tokens), 5), -30.0, np.float32)
        first = self.steps == 0
        log_probs[:, self.token if first or self.endless else EOS] = math.log(self.probability) if first else 0.0
        self.steps += 1
        return log_probs, np.zeros((len(tokens), 1), np.float32)


def draw(spec: RasterSpec) -> Raster:
    """A raster as wide as the symbol extent."""
    return Raster(np.full((8, spec.symbol_extent), 255, np.uint8), 1.0, (0.0, 0.0))


def look(engine: ScriptedEngine, reread: float, **options: Any) -> Look:
    return read(engine, draw, SPEC, Padding(step=8), DecodeOptions(reread=reread, **options))


@pytest.mark.parametrize(("reread", "seen"), [(0.0, [20]), (0.5, [20]), (0.7, [20, 23]), (1.0, [20, 23])])
def test_only_a_reading_less_probable_than_asked_for_is_read_again(reread: float, seen: list[int]) -> None:
    engine = ScriptedEngine({20: (A, 0.6), 23: (B, 0.5)})
    assert look(engine, reread).best.ids == (A,)
    assert engine.seen == seen


def test_the_more_probable_reading_is_taken_with_its_raster_and_padding() -> None:
    found = look(ScriptedEngine({20: (A, 0.6), 26: (B, 0.7)}), 0.9, reread_extents=(26, 22))
    assert found.best.ids == (B,) and math.exp(found.best.log_prob) == pytest.approx(0.7)
    assert found.raster.pixels.shape == (8, 26) and found.padded == (8, 32)
    assert set(found.seconds) == {"raster", "encode", "decode"}
    assert second_spec(SPEC, DecodeOptions(reread_extents=(26, 22))) == RasterSpec(symbol_extent=26, stroke_extent=22)


def test_a_second_look_is_taken_only_after_a_first_of_little_work() -> None:
    # A raster of 8 x 20 pixels, read as one token and eos: work 320.
    for limit, seen in ((0, [20, 23]), (320, [20, 23]), (319, [20])):
        engine = ScriptedEngine({20: (A, 0.6), 23: (B, 0.7)})
        assert look(engine, 1.0, reread_work=limit).best.ids == ((B,) if len(seen) == 2 else (A,))
        assert engine.seen == seen


def test_a_second_search_ends_where_it_cannot_win() -> None:
    engine = ScriptedEngine({20: (A, 0.6), 23: (B, 0.5)})
    assert look(engine, 1.0).best.ids == (A,)
    assert engine.sessions[1].steps == 1


def test_a_reading_that_ended_comes_before_a_more_probable_one_that_did_not() -> None:
    engine = ScriptedEngine({20: (A, 0.6), 23: (B, 0.9)}, endless=frozenset({23}))
    assert look(engine, 1.0, max_steps=4).best.ids == (A,)


def test_an_input_of_one_size_is_read_once() -> None:
    engine, only = ScriptedEngine({20: (A, 0.1)}), draw(SPEC)
    read(engine, lambda spec: only, SPEC, Padding(step=8), DecodeOptions(reread=1.0))
    assert engine.seen == [20]


def test_what_was_cancelled_is_not_read_again() -> None:
    engine = ScriptedEngine({20: (A, 0.6), 23: (B, 0.9)})
    assert look(engine, 1.0, cancelled=lambda: True).best.stop == "cancelled"
    assert engine.seen == [20]


def test_the_first_reading_stands_where_the_second_raster_cannot_be_drawn() -> None:
    engine = ScriptedEngine({20: (A, 0.1)})

    def drawn_once(spec: RasterSpec) -> Raster:
        if engine.seen:
            raise InkError("holds far more ink than an expression")
        return draw(spec)

    assert read(engine, drawn_once, SPEC, Padding(step=8), DecodeOptions(reread=1.0)).best.ids[0] == A
    assert engine.seen == [20]
