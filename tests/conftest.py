"""Fixtures that many tests share."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def crohme() -> Path:
    """The folder with the CROHME archives and captions; tests that need it skip where HMERCTL_CROHME is unset."""
    folder = os.environ.get("HMERCTL_CROHME")
    if not folder:
        pytest.skip("HMERCTL_CROHME is not set: it must name the folder with the CROHME archives and captions")
    return Path(folder)
