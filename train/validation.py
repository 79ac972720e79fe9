"""Reading a validation set in batches, and its figures for the training log (Zhou 2023, figure 6)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hmerctl.runtime.vocabulary import EOS, PAD, SOS
from hmerctl.train.decoding import greedy_from
from hmerctl.train.metrics.alignment import edit_distance
from hmerctl.train.metrics.scores import Scores, bleu4, perplexity, score
from hmerctl.train.models.parts import MAX_STEPS
from hmerctl.train.models.recognizer import Recognizer


@dataclass
class ValidationBatch:
    """Pictures of one bucket with their labels: raster float32 (batch, 1, h, w), size int32 (batch, 2)."""

    raster: Tensor
    size: Tensor
    labels: list[list[int]]


@dataclass(frozen=True)
class Read:
    """One expression as the model read it.

    Attributes:
        target, tokens: what it is, and what greedy decoding read.
        log_probs: natural log-probability of each target token, then of eos, given the target before it.
    """

    target: tuple[str, ...]
    tokens: tuple[str, ...]
    log_probs: tuple[float, ...]


@torch.no_grad()
def read_batch(model: Recognizer, batch: ValidationBatch) -> list[Read]:
    """Decode a batch, and force its labels through the decoder; both from one run of the encoder.

    Args:
        model: in evaluation mode.
        batch: on the model's device.
    """
    memory = model.encode(batch.raster, batch.size)
    decoded = greedy_from(model.decoder, memory)
    forced = _forced(model, memory, batch.labels)
    words = model.vocabulary.decode
    return [
        Read(tuple(words(label)), tuple(words(ids)), tuple(log_probs))
        for label, ids, log_probs in zip(batch.labels, decoded, forced, strict=True)
    ]


def _forced(model: Recognizer, memory: dict[str, Tensor], labels: Sequence[Sequence[int]]) -> list[list[float]]:
    longest = min(max(map(len, labels)) + 1, MAX_STEPS)
    fill = [PAD] * longest
    inputs = [[SOS, *label, *fill][:longest] for label in labels]
    targets = [[*label, EOS, *fill][:longest] for label in labels]
    device = memory["memory_mask"].device
    log_probs = model.decoder(memory, torch.tensor(inputs, device=device)).float().log_softmax(2)
    chosen = log_probs.gather(2, torch.tensor(targets, device=device)[:, :, None])[:, :, 0].tolist()
    return [row[: len(label) + 1] for row, label in zip(chosen, labels, strict=True)]


def figures(read: Sequence[Read]) -> dict[str, float]:
    """Cheap figures for the log, on the tokens as they are (labels are in normal form; no trees are parsed).

    Returns:
        exprate, within_1, within_2: percent of expressions with 0, at most 1, at most 2 token errors; perplexity;
        bleu4: 0 to 1; edit_distance: mean token errors of an expression; edit_similarity: percent, see
        ``Scores.edit_similarity``.
    """
    distances = [edit_distance(r.target, r.tokens) for r in read]
    longest = sum(max(len(r.target), len(r.tokens)) for r in read)
    shares = [100 * sum(d <= k for d in distances) / len(read) for k in range(3)]
    return {
        "exprate": shares[0],
        "within_1": shares[1],
        "within_2": shares[2],
        "perplexity": perplexity(r.log_probs for r in read),
        "bleu4": bleu4([r.target for r in read], [r.tokens for r in read]),
        "edit_distance": sum(distances) / len(read),
        "edit_similarity": 100 * (1 - sum(distances) / max(longest, 1)),
    }


def scores(read: Iterable[Read]) -> Scores:
    """All scores of what was read, in normal form and as trees."""
    named = {str(i): r for i, r in enumerate(read)}
    return score(
        {name: r.target for name, r in named.items()},
        {name: r.tokens for name, r in named.items()},
        [r.log_probs for r in named.values()],
    )
