"""Ink or picture to LaTeX: the whole way, on the device.

>>> Recognizer().recognize("formula.inkml").latex  # doctest: +SKIP
'\\frac{a}{b}'
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
from PIL import Image

from hmerctl.runtime.boxes import WITHOUT_INK, TokenBoxes
from hmerctl.runtime.bundle import Bundle, open_bundle
from hmerctl.runtime.confidence import confidence, decide
from hmerctl.runtime.decode import DecodeOptions, Hypothesis
from hmerctl.runtime.engine import Engine
from hmerctl.runtime.engines import load_engine
from hmerctl.runtime.grammar import GrammarConstraint, malformed
from hmerctl.runtime.ink import Ink
from hmerctl.runtime.latex import detokenise
from hmerctl.runtime.load import drawer
from hmerctl.runtime.manifest import DecodingDefaults
from hmerctl.runtime.picture import picture_drawer
from hmerctl.runtime.raster import Raster, RasterSpec, rasterise_ink
from hmerctl.runtime.reading import Look, read
from hmerctl.runtime.result import Alternative, Result, TokenResult
from hmerctl.runtime.shipped import shipped_bundle
from hmerctl.runtime.vocabulary import Vocabulary

Source: TypeAlias = Ink | Image.Image | Raster | Path | str


def decode_options(
    decoding: DecodingDefaults, vocabulary: Vocabulary, max_steps: int = DecodeOptions.max_steps
) -> DecodeOptions:
    """How a model wants to be decoded, within the steps that its decoder knows."""
    return DecodeOptions(
        beams=decoding.beams,
        length_power=decoding.length_power,
        prune=decoding.prune,
        max_steps=max_steps,
        constraint=GrammarConstraint(vocabulary) if decoding.grammar else None,
        reread=decoding.reread,
        reread_extents=decoding.reread_extents,
        reread_work=decoding.reread_work,
    )


def bundle_options(bundle: Bundle, **changes: object) -> DecodeOptions:
    """``decode_options`` of a bundle; changes that are not None take the place of its ``DecodingDefaults``."""
    manifest = bundle.manifest
    return decode_options(manifest.decoding.but(**changes), bundle.vocabulary, manifest.decoder.max_steps)


def read_file(bundle: Bundle, engine: Engine, path: Path, **changes: object) -> Look:
    """What an engine reads in an ink or picture file, decoded as ``bundle_options`` says."""
    options = bundle_options(bundle, **changes)
    return read(engine, drawer(path), bundle.manifest.preprocessing, bundle.padding(), options)


def read_tokens(bundle: Bundle, engine: Engine, path: Path) -> tuple[str, ...]:
    """The tokens of ``read_file``."""
    return tuple(bundle.vocabulary.decode(read_file(bundle, engine, path).best.ids))


class Recognizer:
    """Reads handwriting with one bundle. May be used from several threads at once.

    Args:
        bundle: an opened bundle, or its path; None for the one that is shipped.
        engine: what runs it; None for the engine of its target.
        beams, length_power, prune, grammar, reread: see ``DecodingDefaults``; None for what the bundle says.
        threads: for the encoder; None for the engine's default.

    Raises:
        BundleError, EngineError: the bundle or its engine cannot be used.
    """

    def __init__(
        self,
        bundle: Bundle | Path | str | None = None,
        *,
        engine: Engine | None = None,
        beams: int | None = None,
        length_power: float | None = None,
        prune: float | None = None,
        grammar: bool | None = None,
        reread: float | None = None,
        threads: int | None = None,
    ) -> None:
        self.bundle = bundle if isinstance(bundle, Bundle) else open_bundle(bundle or shipped_bundle())
        self.engine = engine or load_engine(self.bundle, threads)
        self.options = bundle_options(
            self.bundle, beams=beams, length_power=length_power, prune=prune, grammar=grammar, reread=reread
        )
        self._padding = self.bundle.padding()

    def recognize(
        self, source: Source, *, deadline: float | None = None, cancelled: Callable[[], bool] | None = None
    ) -> Result:
        """Read one expression.

        Args:
            source: ink, an opened picture, a raster, or the path of an ink or picture file.
            deadline: seconds from now after which no further step begins; the result says so.
            cancelled: asked before each step; True ends the decoding.

        Raises:
            InkError, PictureError: the file cannot be read.
        """
        started = time.perf_counter()
        options = replace(
            self.options, cancelled=cancelled, deadline=None if deadline is None else time.monotonic() + deadline
        )
        spec = self.bundle.manifest.preprocessing
        draw = self._drawer(source)
        raster = draw(spec)
        drawn = time.perf_counter()
        name = source.id if isinstance(source, Ink) else str(source) if isinstance(source, str | Path) else ""
        if raster.blank is not None:
            return self._blank(name, raster, {"raster": drawn - started, "total": drawn - started})
        look = read(self.engine, draw, spec, self._padding, options, raster)
        timings = {**look.seconds, "raster": look.seconds["raster"] + drawn - started}
        return self._result(name, look, {**timings, "total": time.perf_counter() - started})

    def recognize_many(self, sources: Iterable[Source]) -> Iterator[Result]:
        """Read expressions one after the other: exactly what ``recognize`` gives for each.

        They are not batched: padding to a common size could change a result in its last digits.
        """
        return (self.recognize(source) for source in sources)

    @staticmethod
    def _drawer(source: Source) -> Callable[[RasterSpec], Raster]:
        if isinstance(source, Raster):
            return lambda spec: source
        if isinstance(source, Ink):
            return partial(rasterise_ink, source)
        if isinstance(source, Image.Image):
            return picture_drawer(source)
        return drawer(Path(source))

    def _result(self, name: str, look: Look, timings: dict[str, float]) -> Result:
        manifest, raster, best = self.bundle.manifest, look.raster, look.best
        cells = [side // manifest.decoder.stride for side in look.padded]
        words = self.bundle.vocabulary.decode(best.ids)
        attention = best.attention[: len(words)].reshape(len(words), *cells)
        boxes = TokenBoxes(raster, manifest.decoder.stride)
        tokens = tuple(
            TokenResult(word, log_prob, None if word in WITHOUT_INK else boxes.box(weights))
            for word, log_prob, weights in zip(words, best.log_probs, attention, strict=False)
        )
        sure = confidence(best, manifest.calibration)
        decision, reason = decide(best.stop, malformed(words), sure, manifest.decoding)
        return Result(
            id=name,
            latex=detokenise(words),
            tokens=tokens,
            log_prob=best.log_prob,
            score=best.score,
            alternatives=tuple(self._alternative(h) for h in look.hypotheses[1:]),
            confidence=sure,
            confidence_kind="raw" if manifest.calibration is None else "calibrated",
            decision=decision,
            reason=reason,
            stop=best.stop,
            timings={stage: 1000 * seconds for stage, seconds in timings.items()},
            engine=self.engine.name,
            bundle=manifest.bundle_id,
            raster=raster,
            attention=attention,
            stride=manifest.decoder.stride,
        )

    def _alternative(self, hypothesis: Hypothesis) -> Alternative:
        words = tuple(self.bundle.vocabulary.decode(hypothesis.ids))
        return Alternative(detokenise(words), words, hypothesis.log_prob, hypothesis.score, hypothesis.stop)

    def _blank(self, name: str, raster: Raster, timings: dict[str, float]) -> Result:
        """The empty result of an input that holds nothing to read."""
        return Result(
            id=name,
            latex="",
            tokens=(),
            log_prob=0.0,
            score=0.0,
            alternatives=(),
            confidence=0.0,
            confidence_kind="raw" if self.bundle.manifest.calibration is None else "calibrated",
            decision="reject",
            reason=f"nothing to read: {raster.blank}",
            stop="blank",
            timings={stage: 1000 * seconds for stage, seconds in timings.items()},
            engine=self.engine.name,
            bundle=self.bundle.manifest.bundle_id,
            raster=raster,
            attention=np.zeros((0, 0, 0), np.float32),
            stride=self.bundle.manifest.decoder.stride,
        )
