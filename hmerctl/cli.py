"""The command line: every module of ``hmerctl.commands`` that has a ``register`` adds its command to ``app``."""

import importlib
import inspect
import pkgutil

import typer

from hmerctl import __version__, commands
from hmerctl.commands.common import Group

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def main(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Handwritten mathematics to LaTeX: train a recogniser, export it, prove it says the same, measure it."""


for _module in sorted(info.name for info in pkgutil.iter_modules(commands.__path__)):
    _register = getattr(importlib.import_module(f"{commands.__name__}.{_module}"), "register", None)
    if _register is not None:
        _register(app)


def _flow(group: typer.Typer) -> None:
    """Let the help of commands fill the terminal's width: its lines end where the docstring's do otherwise."""
    for command in group.registered_commands:
        paragraphs = inspect.cleandoc(getattr(command.callback, "__doc__", None) or "").split("\n\n")
        command.help = command.help or "\n\n".join(" ".join(text.split()) for text in paragraphs)
    for part in group.registered_groups:
        if part.typer_instance is not None:
            _flow(part.typer_instance)


_flow(app)
