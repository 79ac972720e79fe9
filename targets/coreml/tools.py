"""coremltools, imported late and quietly, with the errors a user can act on."""

import functools
import logging
import warnings
from types import ModuleType

from hmerctl.runtime.errors import HmerError

REQUIREMENT = "coremltools==9.0"


class CoreMlError(HmerError):
    """A Core ML package or its conversion is at fault, or coremltools is missing."""


def one_line(error: Exception) -> str:
    """What coremltools says, which may be pages, on one line and cut off."""
    return " ".join(str(error).split())[:300]


@functools.cache
def coremltools() -> ModuleType:
    """The coremltools module.

    Off a Mac it warns about each of Apple's libraries that it cannot load, and about a PyTorch newer than the one
    it was tested with; neither matters here (parity is measured), so both are silenced.

    Raises:
        CoreMlError: it is not installed.
    """
    logging.getLogger("coremltools").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import coremltools
    except ImportError as error:
        raise CoreMlError(f"coremltools cannot be imported ({error}): pip install '{REQUIREMENT}'") from error
    return coremltools
