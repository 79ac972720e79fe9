"""The bundle that comes with the package."""

from pathlib import Path

import hmerctl
from hmerctl.runtime.errors import BundleError

FOLDER = Path(hmerctl.__file__).parent / "shipped"


def shipped_bundle(target: str = "onnx") -> Path:
    """The shipped bundle for a target.

    Raises:
        BundleError: none is shipped for it.
    """
    found = sorted(FOLDER.glob(f"*-{target}-*.hmer"))
    if not found:
        raise BundleError(
            f"no bundle for {target} is shipped with this package; name one, or make one with hmerctl export"
        )
    return found[0]
