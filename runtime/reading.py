"""From a raster to its reading: once, or a second time at another size where the first reading is doubtful.

A model reads symbols of some sizes better than others, and which ones depends on the hand: the more probable of two
readings is right more often than either (docs/experiments.md). ``DecodeOptions`` says when to look again.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from hmerctl.runtime.buckets import Padding
from hmerctl.runtime.decode import DecodeOptions, Hypothesis, search
from hmerctl.runtime.engine import Engine, Memory
from hmerctl.runtime.errors import InkError
from hmerctl.runtime.raster import Raster, RasterSpec


@dataclass(frozen=True)
class Look:
    """A raster and what was read in it.

    Attributes:
        raster: without padding.
        padded: height and width that the encoder saw, pixels.
        memory: outputs of the encoder.
        hypotheses: best first, at least one unless all were dropped for ``DecodeOptions.floor``.
        seconds: spent in the stages ``raster`` (drawing it), ``encode`` and ``decode``, all looks together.
    """

    raster: Raster
    padded: tuple[int, int]
    memory: Memory = field(repr=False)
    hypotheses: list[Hypothesis]
    seconds: dict[str, float] = field(compare=False)

    @property
    def best(self) -> Hypothesis:
        """The best hypothesis."""
        return self.hypotheses[0]


def second_spec(spec: RasterSpec, options: DecodeOptions) -> RasterSpec:
    """The raster contract of the second look."""
    symbol, stroke = options.reread_extents
    return replace(spec, symbol_extent=symbol, stroke_extent=stroke)


def read(
    engine: Engine,
    draw: Callable[[RasterSpec], Raster],
    spec: RasterSpec,
    padding: Padding,
    options: DecodeOptions,
    first: Raster | None = None,
) -> Look:
    """Read one input.

    Args:
        engine: runs the model.
        draw: gives the input's raster by a contract; the same raster again if it has no other size.
        spec: the model's contract.
        padding: what the engine takes.
        options: how to search, and when to look again.
        first: what ``draw(spec)`` gives, where that is known.

    Returns:
        the look whose best hypothesis is more probable; one that ended with eos comes before one that did not. The
        second look is given up as soon as it cannot be the one.
    """
    started = time.perf_counter()
    raster = draw(spec) if first is None else first
    look = _look(engine, raster, padding, options, started)
    if look.best.stop == "cancelled" or not _again(look, options):
        return look
    started = time.perf_counter()
    try:
        other = draw(second_spec(spec, options))
    except InkError:  # at the larger size it is too much to draw; the first reading stands
        return look
    if other is raster or other.blank is not None:
        return look
    floor = look.best.log_prob if look.best.stop == "eos" else options.floor
    again = _look(engine, other, padding, replace(options, floor=floor), started)
    seconds = {stage: look.seconds[stage] + again.seconds[stage] for stage in look.seconds}
    read_anew = again.hypotheses and _rank(again) > _rank(look)
    return replace(again if read_anew else look, seconds=seconds)


def _rank(look: Look) -> tuple[bool, float]:
    """What orders looks: whether the best hypothesis ended with eos, then its log-probability."""
    return look.best.stop == "eos", look.best.log_prob


def _again(look: Look, options: DecodeOptions) -> bool:
    """Whether a first look is doubtful, and short enough to afford a second."""
    if not options.reread or look.best.log_prob >= math.log(options.reread):
        return False
    work = look.raster.pixels.size * len(look.best.log_probs)
    return not options.reread_work or work <= options.reread_work


def _look(engine: Engine, raster: Raster, padding: Padding, options: DecodeOptions, started: float) -> Look:
    drawn = time.perf_counter()
    inputs, size = padding.pad(raster.pixels)
    memory = engine.encode(inputs, size)
    encoded = time.perf_counter()
    hypotheses = search(engine.start(memory, options.beams), options)
    seconds = {"raster": drawn - started, "encode": encoded - drawn, "decode": time.perf_counter() - encoded}
    return Look(raster, (inputs.shape[2], inputs.shape[3]), memory, hypotheses, seconds)
