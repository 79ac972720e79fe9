"""What a recognition gives back."""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from hmerctl.runtime.boxes import Box
from hmerctl.runtime.confidence import Decision
from hmerctl.runtime.raster import Raster


@dataclass(frozen=True)
class TokenResult:
    """One token of the result.

    Attributes:
        token: as in the vocabulary.
        log_prob: natural logarithm of its probability given the tokens before.
        box: left, top, right, bottom on the input (ink units or picture pixels); None for tokens without ink.
    """

    token: str
    log_prob: float
    box: Box | None


@dataclass(frozen=True)
class Alternative:
    """Another reading, worse than the result.

    Attributes:
        log_prob: of the whole sequence.
        score: what the search ranked by (see ``hmerctl.runtime.decode``).
        stop: why its decoding ended.
    """

    latex: str
    tokens: tuple[str, ...]
    log_prob: float
    score: float
    stop: str


@dataclass(frozen=True)
class Result:
    """The reading of one input.

    Attributes:
        id: the file's path, or what the ink is called.
        latex: the LaTeX; empty when there is nothing to read.
        tokens: its tokens.
        log_prob, score: of the sequence, eos included.
        alternatives: the other hypotheses of the beam, best first.
        confidence: probability that ``latex`` is right.
        confidence_kind: ``calibrated``, or ``raw``: the model's own probability of the sequence.
        decision, reason: what to do with the result and why.
        stop: ``eos``, ``max``, ``loop``, ``deadline``, ``cancelled``, or ``blank`` (nothing to read).
        timings: milliseconds: ``raster`` (reading and drawing the input), ``encode``, ``decode``, ``total``.
        engine: what computed it.
        bundle: ``Manifest.bundle_id``.
        raster: what the encoder saw.
        attention: float32 (tokens, rows, columns); a cell is ``stride`` x ``stride`` raster pixels.
    """

    id: str
    latex: str
    tokens: tuple[TokenResult, ...]
    log_prob: float
    score: float
    alternatives: tuple[Alternative, ...]
    confidence: float
    confidence_kind: Literal["calibrated", "raw"]
    decision: Decision
    reason: str
    stop: str
    timings: dict[str, float] = field(compare=False)
    engine: str
    bundle: str
    raster: Raster = field(compare=False, repr=False)
    attention: np.ndarray = field(compare=False, repr=False)
    stride: int

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: everything but the raster's pixels and the attention."""
        return {
            "id": self.id,
            "latex": self.latex,
            "tokens": [
                {
                    "token": t.token,
                    "log_prob": round(t.log_prob, 6),
                    "box": [round(side, 3) for side in t.box] if t.box else None,
                }
                for t in self.tokens
            ],
            "log_prob": round(self.log_prob, 6),
            "score": round(self.score, 6),
            "alternatives": [
                {
                    "latex": a.latex,
                    "tokens": list(a.tokens),
                    "log_prob": round(a.log_prob, 6),
                    "score": round(a.score, 6),
                    "stop": a.stop,
                }
                for a in self.alternatives
            ],
            "confidence": round(self.confidence, 6),
            "confidence_kind": self.confidence_kind,
            "decision": self.decision,
            "reason": self.reason,
            "stop": self.stop,
            "raster": {"height": self.raster.pixels.shape[0], "width": self.raster.pixels.shape[1]},
            "timings_ms": {stage: round(ms, 3) for stage, ms in self.timings.items()},
            "engine": self.engine,
            "bundle": self.bundle,
        }
