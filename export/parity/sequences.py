"""Levels L3 and L4: what an engine reads, free-running, against PyTorch and against the truth."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hmerctl.export.parity.pictures import Picture
from hmerctl.export.parity.report import Finding, Tolerance, at_least, at_most, not_run
from hmerctl.export.reference import greedy_ids, margin
from hmerctl.runtime.buckets import Bucket, Padding, bucket_for
from hmerctl.runtime.engine import Engine
from hmerctl.runtime.vocabulary import EOS, PAD, SOS
from hmerctl.train.metrics.statistics import compare
from hmerctl.train.models.recognizer import Recognizer

Progress = Callable[[Iterable[Picture], str], Iterable[Picture]]


@dataclass(frozen=True)
class Sequences:
    """Greedy token ids, without sos and eos, in the order of the pictures."""

    pictures: Sequence[Picture]
    expected: list[list[int]]
    found: list[list[int]]


def decode_both(
    model: Recognizer,
    engine: Engine,
    pictures: Sequence[Picture],
    padding: Padding,
    max_steps: int,
    progress: Progress,
) -> Sequences:
    """Greedy decoding by PyTorch, in batches of one bucket, and by the engine, one by one as on the device.

    Args:
        max_steps: at which the engine stops; PyTorch goes as far as the decoder knows.
    """
    groups: dict[Bucket, list[int]] = {}
    for i, picture in enumerate(pictures):
        groups.setdefault(bucket_for(picture.pixels, padding.buckets), []).append(i)
    expected: list[list[int]] = [[] for _ in pictures]
    for bucket, members in groups.items():
        ids = greedy_ids(model, [pictures[i].pixels for i in members], bucket)
        for i, sequence in zip(members, ids, strict=True):
            expected[i] = sequence
    found = [engine_greedy(engine, picture.pixels, padding, max_steps) for picture in progress(pictures, "Decoding")]
    return Sequences(pictures, expected, found)


def engine_greedy(engine: Engine, pixels: np.ndarray, padding: Padding, max_steps: int = 208) -> list[int]:
    """The most probable token at every step, just as ``hmerctl.train.decoding.greedy``: no search, no loop rule."""
    session = engine.start(engine.encode(*padding.pad(pixels)), 1)
    ids: list[int] = []
    token = SOS
    for _ in range(max_steps):
        log_probs, _ = session.step(np.array([token], np.int32))
        log_probs[0, [PAD, SOS]] = -np.inf
        token = int(log_probs[0].argmax())
        if token == EOS:
            break
        ids.append(token)
    return ids


def check_sequences(model: Recognizer, sequences: Sequences, padding: Padding, tolerance: Tolerance) -> Finding:
    """Level L3. The detail names expressions that differ, with PyTorch's own margin at the first differing token:
    a margin near zero is a tie that rounding decided, a large one is an error."""
    differing = [i for i, (a, b) in enumerate(zip(sequences.expected, sequences.found, strict=True)) if a != b]
    total = len(sequences.pictures)
    details = [f"{total - len(differing)} of {total} equal"]
    for i in differing[:5]:
        picture, expected, found = sequences.pictures[i], sequences.expected[i], sequences.found[i]
        at = next(
            (n for n, (a, b) in enumerate(zip(expected, found, strict=False)) if a != b),
            min(len(expected), len(found)),
        )
        ahead = margin(model, picture.pixels, padding, [SOS, *expected[:at]])
        details.append(f"{picture.id} differs at token {at} (margin {ahead:.2g})")
    share = 1 - len(differing) / total
    return at_least("L3", "free-running greedy tokens", share, tolerance.sequences, "; ".join(details))


def loss_bound(exprate: float, expressions: int) -> float:
    """Points of ExpRate that may be lost: ``exprate``, but where anything may be, one expression, for fewer cannot
    be told apart."""
    return max(exprate, 100 / expressions) if exprate else 0.0


def check_accuracy(model: Recognizer, sequences: Sequences, labelled: bool, tolerance: Tolerance) -> Finding:
    """Level L4: loss of ExpRate against PyTorch, in points, with a paired test.

    Args:
        labelled: whether the pictures' tokens are the truth.
    """
    check = "loss of ExpRate, points"
    if not labelled:
        return not_run("L4", check, "needs labelled expressions: give a dataset with --data")
    decode = model.vocabulary.decode
    expected, found = (
        [tuple(decode(ids)) == picture.tokens for ids, picture in zip(side, sequences.pictures, strict=True)]
        for side in (sequences.expected, sequences.found)
    )
    test = compare(expected, found)
    detail = (
        f"ExpRate {100 * test.first:.2f} in PyTorch, {100 * test.second:.2f} in the bundle, "
        f"{test.expressions} expressions; {test.only_first} right only in PyTorch, {test.only_second} only in the "
        f"bundle, McNemar p = {test.p_mcnemar:.3g}"
    )
    return at_most("L4", check, -100 * test.difference, loss_bound(tolerance.exprate, test.expressions), detail)
