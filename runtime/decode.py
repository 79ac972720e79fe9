r"""Greedy and beam search over an engine's steps, in numpy.

A sequence of n tokens, eos included, scores ``log-probability / n ** length_power`` (0: plain probability, 1: mean
per token). Greedy decoding is beam search of width 1. The search is deterministic: candidates of equal probability
are taken in the order of their parent's rank, then of their id.

At each step the ``beams`` best continuations are looked at: those that end with eos leave the beam, and the beam is
filled up again from the next best. The search ends when ``beams`` sequences have ended and no live one scores better
at its present length than the worst of them, when none is live any more, or at ``max_steps``.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np

from hmerctl.runtime.engine import StepSession
from hmerctl.runtime.errors import EngineError
from hmerctl.runtime.vocabulary import EOS, PAD, SOS

Stop = Literal["eos", "max", "loop", "deadline", "cancelled"]

LOOP_REPEATS = 4
LOOP_TOKENS = 20
LOOP_PERIOD = 16
"""A sequence loops when its last piece of at most LOOP_PERIOD tokens stands there LOOP_REPEATS times or more in a
row, over at least LOOP_TOKENS tokens. No label of CROHME does."""


class Constraint(Protocol):
    """Restricts which token may follow a prefix; its states are values, so that hypotheses can share them."""

    def start(self) -> Any:
        """The state of the empty prefix."""

    def allowed(self, state: Any) -> np.ndarray:
        """bool (vocabulary,): ids that may come next; at least one."""

    def advance(self, state: Any, token: int) -> Any:
        """The state after one more id (never eos)."""


@dataclass(frozen=True)
class DecodeOptions:
    """How to search.

    Attributes:
        beams: width of the beam; 1 is greedy.
        length_power: see the module.
        prune: continuations less than this share as probable as the step's best, or as the best sequence that has
            ended, are dropped; 0 keeps all.
        floor: continuations of at most this log-probability are dropped, impossible ones with any floor: no sequence
            can gain what it has lost.
        max_steps: most tokens of a sequence, eos included.
        constraint: what may follow what; None for no constraint.
        reread: a reading less probable than this is read again at another size, see ``runtime.reading``; 0 never.
        reread_extents: symbol and stroke extent of that size, pixels, see ``RasterSpec``.
        reread_work: but only after a first reading of at most this work, its raster's pixels times its tokens, eos
            included; 0 for any.
        deadline: ``time.monotonic()`` after which no further step begins.
        cancelled: asked before each step; True ends the search.
    """

    beams: int = 1
    length_power: float = 1.0
    prune: float = 0.0
    floor: float = -math.inf
    max_steps: int = 208
    constraint: Constraint | None = None
    reread: float = 0.0
    reread_extents: tuple[int, int] = (23, 20)
    reread_work: int = 0
    deadline: float | None = None
    cancelled: Callable[[], bool] | None = None


@dataclass(frozen=True)
class Hypothesis:
    """A decoded sequence.

    Attributes:
        ids: token ids, without sos and eos.
        log_probs: natural log-probability of each id, and at the end that of eos where ``stop`` is "eos".
        score: total log-probability / len(log_probs) ** length_power.
        stop: why it ended; "loop": the repeated piece was cut off but for its first copy.
        attention: float32 (len(log_probs), rows * columns).
    """

    ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    score: float
    stop: Stop
    attention: np.ndarray = field(compare=False, repr=False)

    @property
    def log_prob(self) -> float:
        """Log-probability of the whole sequence."""
        return sum(self.log_probs)


@dataclass(frozen=True)
class _Path:
    """A hypothesis in the making; ``rows[t]`` is its row among the hypotheses of step t."""

    ids: tuple[int, ...] = ()
    log_probs: tuple[float, ...] = ()
    rows: tuple[int, ...] = ()
    total: float = 0.0
    state: Any = None


def search(session: StepSession, options: DecodeOptions | None = None) -> list[Hypothesis]:
    """Decode one picture.

    Args:
        session: a fresh session with at least ``options.beams`` hypotheses.

    Returns:
        up to ``beams`` sequences, best first; those that ended with eos come before all others. None only if all
        were dropped for ``options.floor``.

    Raises:
        EngineError: a log-probability is not a number, or none is above minus infinity.
    """
    options = options or DecodeOptions()
    live = [_Path(state=options.constraint.start() if options.constraint else None)]
    ended: list[tuple[_Path, Stop]] = []
    attentions: list[np.ndarray] = []
    tokens, parents = np.array([SOS], np.int32), None
    stop: Stop = "max"
    for _ in range(options.max_steps):
        interrupted = _interrupted(options)
        if interrupted:
            stop = interrupted
            break
        log_probs, attention = session.step(tokens, parents)
        attentions.append(attention.astype(np.float32))  # a copy: the engine may reuse its buffer
        best_ended = max((path.total for path, reason in ended if reason == "eos"), default=-math.inf)
        live, finished = _extend(live, log_probs, options, best_ended)
        ended += [(path, "eos") for path in finished]
        ended += [(path, "loop") for path in live if loop_period(path.ids)]
        live = [path for path in live if not loop_period(path.ids)]
        if _decided(live, ended, options):
            live = []
        if not live:
            break
        tokens = np.array([path.ids[-1] for path in live], np.int32)
        parents = np.array([path.rows[-1] for path in live])
    ended += [(path, stop) for path in live]
    hypotheses = [_finish(path, reason, attentions, options.length_power) for path, reason in ended]
    return sorted(hypotheses, key=lambda h: (h.stop != "eos", -h.score))[: options.beams]


def _interrupted(options: DecodeOptions) -> Literal["deadline", "cancelled"] | None:
    if options.cancelled is not None and options.cancelled():
        return "cancelled"
    if options.deadline is not None and time.monotonic() > options.deadline:
        return "deadline"
    return None


def _extend(
    live: list[_Path], log_probs: np.ndarray, options: DecodeOptions, best_ended: float
) -> tuple[list[_Path], list[_Path]]:
    """One step of the search: the new live paths, best first, and those that ended with eos.

    ``best_ended`` is the log-probability of the best sequence that has ended with eos before.
    """
    if np.isnan(log_probs).any():
        raise EngineError(
            f"the decoder gave NaN at step {len(live[0].ids)}; run hmerctl verify or use a bundle of higher precision"
        )
    totals = log_probs.astype(np.float64) + np.array([[path.total] for path in live])
    totals[:, [PAD, SOS]] = -np.inf
    if options.constraint is not None:
        for row, path in enumerate(live):
            totals[row, ~options.constraint.allowed(path.state)] = -np.inf
    following: list[_Path] = []
    finished: list[_Path] = []
    best = totals.max()
    if best == -np.inf:
        raise EngineError(f"no token is possible at step {len(live[0].ids)}: every log-probability is minus infinity")
    lowest = max(best, best_ended) + math.log(options.prune) if options.prune else -math.inf
    # Of 2 * beams candidates at most one per live path is eos, so that at least ``beams`` others are among them.
    for rank, flat in enumerate(np.argsort(-totals, axis=None, kind="stable")[: 2 * options.beams]):
        row, token = divmod(int(flat), totals.shape[1])
        total = float(totals[row, token])
        if total < lowest or total <= options.floor or len(following) == options.beams:
            break
        if token == EOS and rank >= options.beams:
            continue
        path = live[row]
        path = _Path(
            ids=(*path.ids, token),
            log_probs=(*path.log_probs, float(log_probs[row, token])),
            rows=(*path.rows, row),
            total=total,
            state=path.state,
        )
        if token == EOS:
            finished.append(path)
        elif options.constraint is not None:
            following.append(replace(path, state=options.constraint.advance(path.state, token)))
        else:
            following.append(path)
    return following, finished


def _score(path: _Path, length_power: float) -> float:
    return path.total / max(len(path.log_probs), 1) ** length_power


def _decided(live: list[_Path], ended: list[tuple[_Path, Stop]], options: DecodeOptions) -> bool:
    """Whether enough sequences have ended and no live one is better than the worst of them."""
    scores = sorted((_score(path, options.length_power) for path, stop in ended if stop == "eos"), reverse=True)
    if len(scores) < options.beams:
        return False
    return all(_score(path, options.length_power) <= scores[options.beams - 1] for path in live)


def loop_period(ids: tuple[int, ...]) -> int:
    """Length of the piece that a sequence keeps repeating at its end, by the rule above; 0 if it does not."""
    for period in range(1, min(LOOP_PERIOD, len(ids) // LOOP_REPEATS) + 1):
        repeats = max(LOOP_REPEATS, -(-LOOP_TOKENS // period))
        if len(ids) >= period * repeats and ids[-period * repeats :] == ids[-period:] * repeats:
            return period
    return 0


def _finish(path: _Path, stop: Stop, attentions: list[np.ndarray], length_power: float) -> Hypothesis:
    """A hypothesis from a path: eos taken off, a loop cut to its first copy, the attention of its own rows."""
    kept = len(path.ids)
    if stop == "loop":
        period = loop_period(path.ids)
        while kept > period and path.ids[kept - 1] == path.ids[kept - 1 - period]:
            kept -= 1
    path = replace(
        path,
        ids=path.ids[:kept],
        log_probs=path.log_probs[:kept],
        rows=path.rows[:kept],
        total=sum(path.log_probs[:kept]),
    )
    attention = [attentions[step][row] for step, row in enumerate(path.rows)]
    return Hypothesis(
        ids=path.ids[:-1] if stop == "eos" else path.ids,
        log_probs=path.log_probs,
        score=_score(path, length_power),
        stop=stop,
        attention=np.stack(attention) if attention else np.zeros((0, 0), np.float32),
    )
