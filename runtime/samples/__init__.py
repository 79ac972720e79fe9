"""Six inks to try the recogniser on, drawn for this project; each holds the LaTeX it should give as ``truth``."""

from pathlib import Path


def sample_paths() -> list[Path]:
    """The strokes JSON files, sorted by name."""
    return sorted(Path(__file__).parent.glob("*.json"))
