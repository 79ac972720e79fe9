"""Proof on the device itself: an engine against onnxruntime on the same graphs, with the inks of the bundle.

The rungs of the parity ladder that need neither PyTorch nor a checkpoint: L2 (tensors), L3 (free-running tokens) and
L5 (rasters and tokens that the bundle promises). ``hmerctl verify`` climbs all of it where the export extra is
installed.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from hmerctl.runtime.bundle import Bundle
from hmerctl.runtime.engine import Engine, Memory
from hmerctl.runtime.load import load_raster
from hmerctl.runtime.manifest import ParityLevel
from hmerctl.runtime.recognizer import read_tokens
from hmerctl.runtime.snr import snr_db

LOWEST_SNR = {"fp32": 80.0, "fp16": 40.0, "int8": 30.0}
"""Decibels that two engines must agree to on the same graph; quantisation itself is in both."""

TIE = 0.05
"""Nats: tokens that close are equally probable, either may come first."""

LOWEST_TOP1 = 0.998
"""Share of teacher-forced steps whose most probable token must be the same, ties apart."""

BEAMS = 3
"""Width of the teacher-forced comparison: more than one, so that a mix-up of beams would show."""


@dataclass
class _Sums:
    """Running signal and noise of one tensor."""

    signal: float = 0.0
    noise: float = 0.0

    def add(self, right: np.ndarray, mine: np.ndarray) -> None:
        wide = right.astype(np.float64)
        self.signal += float(np.square(wide).sum())
        self.noise += float(np.square(wide - mine).sum())

    @property
    def snr(self) -> float:
        """Decibels; -inf where something is not a number, 300 for equality."""
        return min(300.0, snr_db(self.signal, self.noise))


def prove(bundle: Bundle, engine: Engine, reference: Engine) -> tuple[ParityLevel, ...]:
    """Levels L2, L3 and L5 of an engine on this device.

    Args:
        bundle: with sample inks.
        engine: what is to be proven.
        reference: ``OnnxEngine`` on the same bundle.
    """
    rasters = {
        s.file: load_raster(bundle.file(s.file), bundle.manifest.preprocessing) for s in bundle.manifest.samples
    }
    if not rasters:
        levels: tuple[ParityLevel, ...] = tuple(
            ParityLevel(level=level, status="not-run", engine=engine.name, detail="the bundle holds no sample inks")
            for level in ("L2", "L3", "L5")
        )
        return levels
    pictures = [raster.pixels for raster in rasters.values()]
    mine = [read_tokens(bundle, engine, bundle.file(file)) for file in rasters]
    right = [read_tokens(bundle, reference, bundle.file(file)) for file in rasters]
    same = sum(a == b for a, b in zip(mine, right, strict=True))
    samples = bundle.manifest.samples
    other_bits = [
        sample.file
        for sample, pixels in zip(samples, pictures, strict=True)
        if sample.raster_sha256 not in (None, hashlib.sha256(pixels.tobytes()).hexdigest())
    ]
    other_tokens = [s.file for s, tokens in zip(samples, mine, strict=True) if tokens != s.tokens]
    promised = len(samples) - len({*other_bits, *other_tokens})
    return (
        _tensors(bundle, engine, reference, zip(pictures, right, strict=True)),
        ParityLevel(
            level="L3",
            status="passed" if same == len(pictures) else "failed",
            engine=engine.name,
            detail=f"{same} of {len(pictures)} samples give the tokens that {reference.name} gives",
        ),
        ParityLevel(
            level="L5",
            status="passed" if promised == len(samples) else "failed",
            engine=engine.name,
            detail=f"{promised} of {len(samples)} samples give the raster and tokens that the bundle promises"
            + "".join(f"; {file}: other raster" for file in other_bits)
            + "".join(f"; {file}: other tokens" for file in other_tokens),
        ),
    )


def _encode(bundle: Bundle, engine: Engine, pixels: np.ndarray) -> Memory:
    return engine.encode(*bundle.padding().pad(pixels))


def _tensors(
    bundle: Bundle, engine: Engine, reference: Engine, pictures: Iterable[tuple[np.ndarray, tuple[str, ...]]]
) -> ParityLevel:
    """Encoder outputs, and log-probabilities and attention along the reference's tokens, as three shifted beams."""
    sums: dict[str, _Sums] = {}
    steps = agreed = 0
    for pixels, tokens in pictures:
        ours, theirs = _encode(bundle, engine, pixels), _encode(bundle, reference, pixels)
        for name, right in theirs.items():
            sums.setdefault(name, _Sums()).add(right, ours[name])
        sessions = engine.start(ours, BEAMS), reference.start(theirs, BEAMS)
        ids = [bundle.manifest.decoder.sos, *bundle.vocabulary.encode(tokens)]
        parents = np.arange(BEAMS)
        for position in range(len(ids)):
            fed = np.array([ids[max(position - shift, 0)] for shift in range(BEAMS)], np.int32)
            (a, a_attention), (b, b_attention) = (session.step(fed, parents) for session in sessions)
            sums.setdefault("log_probs", _Sums()).add(b, a)
            sums.setdefault("attention", _Sums()).add(b_attention, a_attention)
            steps += BEAMS
            agreed += int((b[np.arange(BEAMS), a.argmax(1)] >= b.max(1) - TIE).sum())
            parents = np.roll(np.arange(BEAMS), position % 2)
    worst = min(sums, key=lambda name: sums[name].snr)
    bound = LOWEST_SNR.get(bundle.manifest.target.precision, LOWEST_SNR["int8"])
    top1 = agreed / steps
    passed = sums[worst].snr >= bound and top1 >= LOWEST_TOP1
    return ParityLevel(
        level="L2",
        status="passed" if passed else "failed",
        engine=engine.name,
        detail=f"against {reference.name}: worst is {worst}, {steps} teacher-forced steps",
        figures={"snr_db": sums[worst].snr, "snr_db_bound": bound, "top1": top1, "top1_bound": LOWEST_TOP1},
    )
