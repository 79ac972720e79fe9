"""Level L1: the forms that are exported equal the forms that were trained, in PyTorch."""

from collections.abc import Sequence

import numpy as np
import torch

from hmerctl.export.parity.pictures import Picture, batch
from hmerctl.export.parity.report import Finding, at_most
from hmerctl.runtime.buckets import Bucket, smallest_bucket
from hmerctl.runtime.vocabulary import SOS
from hmerctl.train.decoding import advance, zero_state
from hmerctl.train.models.recognizer import Recognizer

BOUND = 1e-5
"""Largest difference of log-probabilities and of features, relative to the largest number where that exceeds 1."""

STEPS = 24


@torch.no_grad()
def check_rewrites(model: Recognizer, pictures: Sequence[Picture], buckets: Sequence[Bucket]) -> list[Finding]:
    """All L1 checks on a few pictures.

    Args:
        model: in evaluation mode.
        pictures: at least one; the first five are used.
        buckets: ordered as in ``hmerctl.runtime.buckets``.
    """
    pictures = pictures[:5]
    return [
        _step_against_forward(model, pictures, buckets),
        _padded_against_tight(model, pictures, buckets),
        _batch_against_single(model, pictures, buckets),
    ]


def _common_bucket(pictures: Sequence[Picture], buckets: Sequence[Bucket]) -> Bucket:
    height, width = (max(p.pixels.shape[axis] for p in pictures) for axis in (0, 1))
    return smallest_bucket(height, width, buckets)


def _step_against_forward(model: Recognizer, pictures: Sequence[Picture], buckets: Sequence[Bucket]) -> Finding:
    """Steps with carried state give the log-probabilities of the parallel form, on tokens drawn at random."""
    bucket = _common_bucket(pictures, buckets)
    raster, size = map(torch.from_numpy, batch(pictures, bucket))
    tokens = torch.from_numpy(random_tokens(len(pictures), STEPS, len(model.vocabulary)))
    expected = model(raster, size, tokens.long()).log_softmax(2)
    memory = model.encode(raster, size)
    rows, columns = bucket.height // model.encoder.stride, bucket.width // model.encoder.stride
    state = zero_state(model.decoder, len(pictures), rows, columns, STEPS, raster)
    worst, where = 0.0, ""
    for position in range(STEPS):
        at = torch.tensor([position], dtype=torch.int32)
        log_probs, outputs, _ = model.decoder.step(memory, tokens[:, position], at, state)
        advance(model.decoder, state, outputs, position)
        difference = _relative(log_probs, expected[:, position])
        if not difference <= worst:
            worst, where = difference, f"worst at position {position}"
    return at_most("L1", "decoder step equals teacher forcing", worst, BOUND, where)


def _padded_against_tight(model: Recognizer, pictures: Sequence[Picture], buckets: Sequence[Bucket]) -> Finding:
    """A bucket's padding changes nothing: the raster padded to whole cells only gives the same log-probabilities."""
    worst, where = 0.0, ""
    stride = model.encoder.stride
    for picture in pictures:
        tight = Bucket(*(-(-side // stride) * stride for side in picture.pixels.shape))
        bucket = smallest_bucket(tight.height, tight.width, buckets)
        difference = _relative(_first_steps(model, picture, bucket), _first_steps(model, picture, tight))
        if not difference <= worst:
            worst, where = difference, f"worst for {picture.id} in {bucket.height}x{bucket.width}"
    return at_most("L1", "padding changes nothing", worst, BOUND, where)


def _batch_against_single(model: Recognizer, pictures: Sequence[Picture], buckets: Sequence[Bucket]) -> Finding:
    """A batch gives the memory that its pictures give alone."""
    bucket = _common_bucket(pictures, buckets)
    together = model.encode(*map(torch.from_numpy, batch(pictures, bucket)))
    worst, where = 0.0, ""
    for i, picture in enumerate(pictures):
        alone = model.encode(*map(torch.from_numpy, batch([picture], bucket)))
        for name, tensor in alone.items():
            difference = _relative(tensor, together[name][i : i + 1])
            if not difference <= worst:
                worst, where = difference, f"worst for {picture.id}, {name}"
    return at_most("L1", "batch equals singles", worst, BOUND, where)


def _first_steps(model: Recognizer, picture: Picture, bucket: Bucket) -> torch.Tensor:
    """Log-probabilities (steps, vocabulary) on tokens drawn at random, from a raster padded to ``bucket``."""
    raster, size = map(torch.from_numpy, batch([picture], bucket))
    tokens = torch.from_numpy(random_tokens(1, 8, len(model.vocabulary))).long()
    return model(raster, size, tokens).log_softmax(2)[0]


def _relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).abs().max() / max(1.0, float(expected.abs().max())))


def random_tokens(count: int, steps: int, vocabulary: int) -> np.ndarray:
    """int32 (count, steps): sos, then ids drawn at random, the same in every run."""
    tokens = np.random.default_rng(7).integers(SOS + 2, vocabulary, (count, steps), dtype=np.int32)
    tokens[:, 0] = SOS
    return tokens
