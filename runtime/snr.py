"""The signal-to-noise ratio by which engines, precisions and calibrations are compared."""

import math


def snr_db(signal: float, noise: float) -> float:
    """Decibels from the energies (sums of squares) of a signal and of the difference to it.

    Infinite where there is no difference; minus infinity where one is not finite, or where there is no signal.
    """
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal and math.isfinite(noise) else -math.inf
