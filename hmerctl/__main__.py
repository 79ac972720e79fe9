"""``python -m hmerctl``."""

from hmerctl.cli import app

app(prog_name="hmerctl")
