"""Level L2: what left the range of float16 while the other checks ran, by name."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from hmerctl.export.parity.report import Finding, holds
from hmerctl.runtime.engine import Engine


@runtime_checkable
class Watchful(Protocol):
    """An engine that sees overflows."""

    @property
    def overflows(self) -> Sequence[object] | None:
        """Everything seen since the engine was made; ``str`` names the operation. None: it does not see them here."""


def check_overflows(engine: Engine) -> list[Finding]:
    """One finding, after everything else has run; none from an engine that does not watch.

    An overflow may hide from every comparison: behind a mask or a saturating activation it changes no result here,
    and all of them on a device that adds in another order.
    """
    seen = engine.overflows if isinstance(engine, Watchful) else None
    if seen is None:
        return []
    return [holds("L2", "nothing leaves the range of float16", not seen, "; ".join(map(str, seen[:5])))]
