"""Level L2: encoder and step of an engine against PyTorch, on real ink, in every bucket and for several batches."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hmerctl.export.parity.pictures import Picture, batch, fitting
from hmerctl.export.parity.report import Finding, Tolerance, at_least, at_most, not_run
from hmerctl.export.parity.rewrites import random_tokens
from hmerctl.export.reference import TorchEngine
from hmerctl.runtime.buckets import Bucket, Padding, bucket_for
from hmerctl.runtime.engine import Engine, Memory
from hmerctl.runtime.snr import snr_db
from hmerctl.runtime.vocabulary import SOS

BATCHES = (1, 2, 5)
"""Pictures in an encoder batch, and beams of a step."""

STEPS = 16
"""Steps that are compared in every bucket; one more run goes through every position."""

TURN = 5
"""At this step the beams are reversed, as a search may do, so that every state tensor has to follow."""


@dataclass
class Worst:
    """The worst agreement so far over many pairs of arrays.

    Attributes:
        max_abs: largest absolute difference; NaN as soon as there is one.
        snr_db: lowest signal-to-noise ratio of an array, decibels.
        agreeing, steps: decoder steps with the same most probable token, and all steps.
        max_at, snr_at: where the worst ones were.
    """

    max_abs: float = 0.0
    snr_db: float = math.inf
    agreeing: int = 0
    steps: int = 0
    max_at: str = ""
    snr_at: str = ""

    def add(self, where: str, expected: np.ndarray, found: np.ndarray) -> None:
        """Compare two arrays of one shape; other shapes count as an infinite difference."""
        if expected.shape != found.shape:
            self.max_abs, self.snr_db = math.inf, -math.inf
            self.max_at = self.snr_at = f"{where}: shape {found.shape}, not {expected.shape}"
            return
        difference = found.astype(np.float64) - expected
        largest = float(np.abs(difference).max())
        if not largest <= self.max_abs and not math.isnan(self.max_abs):
            self.max_abs, self.max_at = largest, where
        noise, signal = float(np.square(difference).sum()), float(np.square(expected.astype(np.float64)).sum())
        ratio = snr_db(signal, noise)
        if ratio < self.snr_db:
            self.snr_db, self.snr_at = ratio, where

    def add_log_probs(self, where: str, expected: np.ndarray, found: np.ndarray) -> None:
        """Compare log-probabilities (beam, vocabulary), the most probable token included."""
        self.add(where, expected, found)
        self.steps += len(expected)
        if expected.shape == found.shape:
            self.agreeing += int((expected.argmax(1) == found.argmax(1)).sum())

    def findings(self, check: str, tolerance: Tolerance) -> list[Finding]:
        """What the tolerance asks of these numbers."""
        result = []
        if tolerance.max_abs is not None:
            result.append(at_most("L2", f"{check}: max abs", self.max_abs, tolerance.max_abs, self.max_at))
        if tolerance.snr_db is not None:
            result.append(at_least("L2", f"{check}: SNR dB", min(self.snr_db, 999.0), tolerance.snr_db, self.snr_at))
            if self.steps:
                share = self.agreeing / self.steps
                result.append(at_least("L2", f"{check}: top-1 agreement", share, tolerance.top1))
        return result


def check_tensors(
    reference: TorchEngine,
    engine: Engine,
    pictures: Sequence[Picture],
    padding: Padding,
    max_steps: int,
    tolerance: Tolerance,
    batched: bool,
) -> list[Finding]:
    """All L2 checks.

    Args:
        pictures: real ink; each bucket gets the largest ones that it holds.
        padding: the bundle's. With a step, the sizes that it gives are compared beside the buckets.
        max_steps: positions that the decoder knows.
        batched: whether the engine's encoder takes more than one picture.
    """
    findings: list[Finding] = []
    encoder = {count: Worst() for count in BATCHES}
    step = {beams: Worst() for beams in BATCHES}
    padded = Worst()
    empty = [bucket for bucket in padding.buckets if not fitting(pictures, bucket, 1)]
    for bucket in padding.buckets:
        if bucket in empty:
            continue
        chosen = fitting(pictures, bucket, max(BATCHES))
        for count in BATCHES if batched else BATCHES[:1]:
            _compare_memory(reference, engine, chosen[:count], bucket, encoder[count])
        for beams in BATCHES:
            tokens = _tokens(reference, chosen[0], beams, STEPS, tolerance)
            _compare_steps(reference, engine, chosen[0], bucket, tokens, step[beams])
        if padding.step is not None:
            tight, tokens = padding.size(chosen[0].pixels), _tokens(reference, chosen[0], 1, STEPS, tolerance)
            _compare_memory(reference, engine, chosen[:1], tight, encoder[1])
            _compare_steps(reference, engine, chosen[0], tight, tokens, step[1])
            _compare_padding(engine, chosen[0], (bucket, tight), tokens, padded)
    long, check, beyond = Worst(), f"step, all {max_steps} positions", Worst()
    bucket = next(b for b in padding.buckets if b not in empty)
    picture, label, steps = fitting(pictures, bucket, 1)[0], max_steps, max_steps
    if tolerance.max_abs is None:
        inside = [p for p in pictures if any(fitting([p], b, 1) for b in padding.buckets)]
        picture = max(inside, key=lambda p: len(p.tokens))
        bucket = bucket_for(picture.pixels, padding.buckets)
        label = min(len(picture.tokens) + 1, max_steps)
        check = f"step, {label} positions of the longest label"
        steps = label if tolerance.beyond_db is None else max_steps
    # Over so many steps PyTorch's own rounding in float32 can exceed the bound: the reference is float64 here.
    tokens = _tokens(reference, picture, 2, steps, tolerance)
    exact = TorchEngine(reference.model, exact=True)
    _compare_steps(exact, engine, picture, bucket, tokens, *[long] * label, *[beyond] * (steps - label))
    for count in BATCHES:
        if batched or count == 1:
            findings += encoder[count].findings(f"encoder, batch {count}", tolerance)
    for beams in BATCHES:
        findings += step[beams].findings(f"step, {beams} beams", tolerance)
    if padding.step is not None:
        findings += padded.findings(f"padding to {padding.step} pixels, against buckets", tolerance)
    findings += long.findings(check, tolerance)
    if steps > label and tolerance.beyond_db is not None:
        ratio, check = min(beyond.snr_db, 999.0), "step, all further positions: SNR dB"
        findings.append(at_least("L2", check, ratio, tolerance.beyond_db, beyond.snr_at))
    if empty:
        findings.append(
            not_run("L2", "some buckets", f"no ink fits into {', '.join(f'{b[0]}x{b[1]}' for b in empty)}")
        )
    return findings


def _tokens(reference: TorchEngine, picture: Picture, beams: int, steps: int, tolerance: Tolerance) -> np.ndarray:
    """What both sides are forced to write: int32 (beams, steps).

    Rounding errors are asked of any tokens. What a lower precision costs is asked where a model is used: on the
    picture's label, over and over, of which every beam but the first has one token replaced, as in a search.
    """
    vocabulary = reference.model.vocabulary
    random = random_tokens(beams, steps, len(vocabulary))
    if tolerance.max_abs is not None:
        return random
    tokens = np.tile(np.resize(np.array([SOS, *vocabulary.encode(picture.tokens)], np.int32), steps), (beams, 1))
    for beam in range(1, beams):
        tokens[beam, 1 + beam % (steps - 1)] = random[beam, 1]
    return tokens


def _compare_memory(
    reference: TorchEngine, engine: Engine, pictures: Sequence[Picture], bucket: Bucket, worst: Worst
) -> None:
    expected = reference.encode(*batch(pictures, bucket))
    found = engine.encode(*batch(pictures, bucket))
    for name, tensor in expected.items():
        worst.add(f"{name} at {bucket.height}x{bucket.width}", tensor, found[name])


def _compare_steps(
    reference: TorchEngine, engine: Engine, picture: Picture, bucket: Bucket, tokens: np.ndarray, *worst: Worst
) -> None:
    """Teacher forcing on both sides, each with its own memory, tokens int32 (beams, steps); ``worst`` is one for all
    steps, or one a step."""
    beams, steps = tokens.shape
    sessions = [side.start(_memory(side, picture, bucket), beams) for side in (reference, engine)]
    turned = np.arange(beams)[::-1].copy()
    for position, at in enumerate(worst * steps if len(worst) == 1 else worst):
        # All beams begin as one: the first step has a single sos, the second parts them.
        column = tokens[:1, 0] if position == 0 else tokens[:, position]
        parents = np.zeros(beams, np.int64) if position == 1 else turned if position == TURN else None
        (log_probs, attention), (found_probs, found_attention) = (s.step(column, parents) for s in sessions)
        where = f"{bucket.height}x{bucket.width}, position {position}"
        at.add_log_probs(f"log_probs at {where}", log_probs, found_probs)
        at.add(f"attention at {where}", attention, found_attention)


def _compare_padding(
    engine: Engine, picture: Picture, sizes: tuple[Bucket, Bucket], tokens: np.ndarray, worst: Worst
) -> None:
    """Teacher forcing by one engine, tokens int32 (1, steps), on one picture padded to two sizes."""
    sessions = [engine.start(_memory(engine, picture, size), 1) for size in sizes]
    for position in range(tokens.shape[1]):
        (expected, _), (found, _) = (session.step(tokens[:, position]) for session in sessions)
        where = f"log_probs at {sizes[1].height}x{sizes[1].width}, position {position}"
        worst.add_log_probs(where, expected, found)


def _memory(engine: Engine, picture: Picture, bucket: Bucket) -> Memory:
    return engine.encode(*batch([picture], bucket))
