"""Reading a whole dataset with any engine, and what the scores need of it."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from hmerctl.runtime.buckets import TO_BUCKETS, Padding
from hmerctl.runtime.confidence import features
from hmerctl.runtime.decode import DecodeOptions
from hmerctl.runtime.engine import Engine, Memory
from hmerctl.runtime.errors import DataError
from hmerctl.runtime.files import write_text
from hmerctl.runtime.raster import RasterSpec
from hmerctl.runtime.reading import read
from hmerctl.runtime.vocabulary import EOS, SOS, Vocabulary
from hmerctl.train.dataset import Expression, ExpressionDataset
from hmerctl.train.latex import normalise_prediction
from hmerctl.train.metrics.scores import Scores, score


@dataclass(frozen=True)
class Reading:
    """One expression as an engine read it.

    Attributes:
        id: its name in the dataset.
        target, tokens: what it is, what was read.
        features: what confidence is computed from (``hmerctl.runtime.confidence.features``).
        target_log_probs: natural log-probability of each target token, then of eos, given the target before it and
            the raster whose reading was taken.
        stop: why decoding ended.
    """

    id: str
    target: tuple[str, ...]
    tokens: tuple[str, ...]
    features: dict[str, float]
    target_log_probs: tuple[float, ...]
    stop: str


def read_dataset(
    engine: Engine,
    dataset: ExpressionDataset | Sequence[Expression],
    vocabulary: Vocabulary,
    spec: RasterSpec,
    options: DecodeOptions | None = None,
    padding: Padding = TO_BUCKETS,
    forced: bool = True,
) -> Iterator[Reading]:
    """Read every expression, one after the other, as a device would.

    Args:
        engine: PyTorch or any bundle's engine.
        dataset: inks or pictures with labels.
        vocabulary: what the engine's ids mean.
        spec: raster contract.
        options: beam width and the like; greedy by default.
        padding: raster sizes the engine takes; buckets if left out.
        forced: also compute ``target_log_probs``, which costs about as much time again; of targets that the model
            could write: with tokens that it knows, and no more than its decoder takes.
    """
    options = options or DecodeOptions()
    for index in range(len(dataset)):
        expression = dataset[index]
        look = read(engine, expression.drawer(), spec, padding, options)
        known = [token for token in expression.tokens if token in vocabulary.ids]
        log_probs: tuple[float, ...] = ()
        if forced and len(known) == len(expression.tokens) and len(known) < options.max_steps:
            log_probs = target_log_probs(engine, look.memory, vocabulary.encode(known))
        yield Reading(
            expression.id,
            expression.tokens,
            tuple(vocabulary.decode(look.best.ids)),
            features(look.best),
            log_probs,
            look.best.stop,
        )


def save_readings(path: Path, readings: Iterable[Reading]) -> None:
    """Write readings as JSON lines."""
    write_text(path, "".join(json.dumps(asdict(reading)) + "\n" for reading in readings))


def load_readings(path: Path, dataset: ExpressionDataset) -> list[Reading]:
    """Read what ``save_readings`` wrote of a dataset.

    Raises:
        DataError: it is something else, or of other expressions.
    """
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        readings = [
            Reading(
                **{**row, **{name: tuple(row[name]) for name in ("target", "tokens", "target_log_probs")}},
            )
            for row in rows
        ]
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(f"{path}: not readings as hmerctl eval --readings writes them ({error})") from error
    if [reading.id for reading in readings] != dataset.ids:
        raise DataError(f"{path}: holds readings of other data; make it with hmerctl eval --readings on all of it")
    return readings


def target_log_probs(engine: Engine, memory: Memory, ids: Sequence[int]) -> tuple[float, ...]:
    """Teacher forcing through the step graph: log-probability of each id, then of eos."""
    session = engine.start(memory, 1)
    out = []
    for previous, wanted in zip((SOS, *ids), (*ids, EOS), strict=True):
        log_probs, _ = session.step(np.array([previous], np.int32))
        out.append(float(log_probs[0, wanted]))
    return tuple(out)


def score_readings(readings: Sequence[Reading]) -> Scores:
    """All scores of a dataset's readings."""
    forced = [r.target_log_probs for r in readings if r.target_log_probs]
    return score({r.id: r.target for r in readings}, {r.id: r.tokens for r in readings}, forced or None)


def is_right(reading: Reading) -> bool:
    """Whether the tokens are equal in normal form (the token scorer's ExpRate counts these)."""
    return normalise_prediction(reading.tokens) == normalise_prediction(reading.target)
