"""Edit distance between token sequences, the alignment behind it, and the confusions it shows."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Pair = tuple[str | None, str | None]
"""A target token and the predicted one aligned with it; None: the token was missed, or was added."""


@dataclass(frozen=True)
class Confusion:
    """A kind of token error and how often it happened.

    Attributes:
        target: the token of the target, or None for a token that was added.
        predicted: what was predicted for it, or None for a token that was missed.
        count: number of times, over all expressions.
    """

    target: str | None
    predicted: str | None
    count: int


def edit_distance(target: Sequence[str], predicted: Sequence[str]) -> int:
    """Smallest number of substitutions, deletions and insertions of tokens that turns one sequence into the other."""
    return int(_distances(target, predicted)[-1, -1])


def align(target: Sequence[str], predicted: Sequence[str]) -> list[Pair]:
    """An alignment with as many errors as the edit distance.

    Of several with the same number, the one that, read from the end, prefers a pair of tokens to a missed token, and
    a missed token to an added one.
    """
    table = _distances(target, predicted)
    i, j = len(target), len(predicted)
    pairs: list[Pair] = []
    while i or j:
        if i and j and table[i, j] == table[i - 1, j - 1] + (target[i - 1] != predicted[j - 1]):
            i, j = i - 1, j - 1
            pairs.append((target[i], predicted[j]))
        elif i and table[i, j] == table[i - 1, j] + 1:
            i -= 1
            pairs.append((target[i], None))
        else:
            j -= 1
            pairs.append((None, predicted[j]))
    return pairs[::-1]


def confusions(alignments: Iterable[Iterable[Pair]]) -> list[Confusion]:
    """All differing pairs of the alignments, the most frequent first (ties in the order of the tokens)."""
    counts = Counter(pair for pairs in alignments for pair in pairs if pair[0] != pair[1])
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0][0] or "", item[0][1] or ""))
    return [Confusion(target, predicted, count) for (target, predicted), count in ordered]


def _distances(target: Sequence[str], predicted: Sequence[str]) -> npt.NDArray[np.int32]:
    """Edit distances of all pairs of prefixes, shape (len(target) + 1, len(predicted) + 1).

    Row by row: with c[j] the best way into cell j from the row above, the cheapest chain of insertions along the row
    is min over k <= j of c[k] + (j - k), a running minimum.
    """
    ids = {token: number for number, token in enumerate(dict.fromkeys((*target, *predicted)))}
    row = np.array([ids[token] for token in predicted], dtype=np.int32)
    steps = np.arange(len(predicted) + 1, dtype=np.int32)
    table = np.empty((len(target) + 1, len(predicted) + 1), dtype=np.int32)
    table[0] = steps
    for i, token in enumerate(target):
        above = table[i]
        best = above + 1
        np.minimum(best[1:], above[:-1] + (row != ids[token]), out=best[1:])
        table[i + 1] = np.minimum.accumulate(best - steps) + steps
    return table
