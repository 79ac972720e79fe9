"""How sure a result is, and what to do with it: accept, review, reject."""

import math
from typing import Literal

from hmerctl.runtime.decode import Hypothesis
from hmerctl.runtime.manifest import Calibration, DecodingDefaults

Decision = Literal["accept", "review", "reject"]


def features(hypothesis: Hypothesis) -> dict[str, float]:
    """What a calibration may weigh, all from the token log-probabilities (eos included; natural logarithm).

    ``log_prob`` their sum, ``mean_log_prob`` their mean, ``min_log_prob`` the smallest, ``length`` their number.
    """
    log_probs = hypothesis.log_probs or (0.0,)
    return {
        "log_prob": sum(log_probs),
        "mean_log_prob": sum(log_probs) / len(log_probs),
        "min_log_prob": min(log_probs),
        "length": float(len(hypothesis.log_probs)),
    }


def confidence(hypothesis: Hypothesis, calibration: Calibration | None) -> float:
    """Probability that the sequence is right: calibrated, or without a calibration the model's own probability."""
    values = features(hypothesis)
    if calibration is None:
        return min(1.0, math.exp(values["log_prob"]))
    logit = calibration.bias + sum(weight * values[name] for name, weight in calibration.weights.items())
    return 1 / (1 + math.exp(-max(-700.0, min(700.0, logit))))


def decide(stop: str, fault: str | None, sure: float, defaults: DecodingDefaults) -> tuple[Decision, str]:
    """The decision and its reason.

    Args:
        stop: why decoding ended.
        fault: why the LaTeX is not well-formed, or None.
        sure: the confidence.
        defaults: with the two thresholds.
    """
    if stop != "eos":
        reasons = {
            "max": "the result is longer than the decoder can write",
            "loop": "the decoder repeats itself",
            "deadline": "the deadline passed before the result was complete",
            "cancelled": "recognition was cancelled",
        }
        return "reject", reasons[stop]
    if sure < defaults.reject:
        return "reject", f"confidence {sure:.3f} is below {defaults.reject:g}"
    if fault is not None:
        return "review", f"the LaTeX is malformed: {fault}"
    if sure < defaults.accept:
        return "review", f"confidence {sure:.3f} is below {defaults.accept:g}"
    return "accept", f"confidence {sure:.3f} is at least {defaults.accept:g}"
