"""What all commands share: errors in one line, a progress bar, JSON on stdout."""

import errno
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup

from hmerctl.runtime.errors import HmerError

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")

EXTRAS = {
    **dict.fromkeys(("torch", "lightning", "pyarrow", "safetensors", "sacrebleu", "scipy", "tomli"), "train"),
    **dict.fromkeys(("matplotlib", "tensorboard"), "train"),
    **dict.fromkeys(("onnx", "onnxscript", "onnxsim", "coremltools"), "export"),
    "cuda": "jetson",
}
"""Modules that the base install lacks, and the extra that brings them."""

EXPORTING = {"export", "verify", "doctor", "eval", "ablate"}
"""Commands that come to need a module of the extra ``export`` too: better asked for at once."""


BeamOption = Annotated[int | None, typer.Option("--beam", min=1, max=64, help="Beam width; 1 is greedy.")]
LengthOption = Annotated[
    float | None, typer.Option("--length-power", min=0, max=2, help="Scores are log-probability / length ** this.")
]
PruneOption = Annotated[
    float | None,
    typer.Option("--prune", min=0, max=1, help="Follow what is at least this share as probable as the best; 0: all."),
]
GrammarOption = Annotated[
    bool | None, typer.Option("--grammar/--no-grammar", help="Allow only balanced braces and arguments.")
]
RereadOption = Annotated[
    float | None,
    typer.Option("--reread", min=0, max=1, help="Read again at another size what is less probable; 0: never."),
]
"""How to decode; what is left out is as the model says."""


class Group(TyperGroup):
    """A command group in which a ``HmerError`` ends the program: its message on stderr, exit code 1, no traceback.

    So do errors of the file system (a full disk, a folder that may not be written) and of memory, and a package that
    the base install lacks: the message names the extra that brings it.
    """

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except HmerError as error:
            fail(error)
            raise typer.Exit(error.exit_code) from error
        except OSError as error:
            if error.errno == errno.EPIPE:  # the reader of our output has seen enough; click ends quietly
                raise
            fail(_describe(error))
            raise typer.Exit(1) from error
        except MemoryError as error:
            fail(f"not enough memory ({error}); give less input at once")
            raise typer.Exit(1) from error
        except ModuleNotFoundError as error:
            module = (error.name or "").partition(".")[0]
            if module not in EXTRAS:
                raise
            extra = "export" if ctx.invoked_subcommand in EXPORTING else EXTRAS[module]
            fail(f"this needs {module}, which is not installed: pip install 'hmerctl[{extra}]'")
            raise typer.Exit(1) from error


def _describe(error: OSError) -> str:
    """One line about an error of the file system: the file, what is wrong, the fix."""
    where = f"{error.filename}: " if error.filename else ""
    fixes = {
        errno.ENOSPC: "make room or name another folder",
        errno.EROFS: "name a folder that can be written",
        errno.EACCES: "name a place you may use, or change its permissions",
        errno.EPERM: "name a place you may use, or change its permissions",
    }
    return f"{where}{error.strerror or error}; {fixes.get(error.errno or 0, 'check the path')}"


class DefaultRun(Group):
    """A group whose command ``run`` may be left out: ``hmerctl bench BUNDLE`` is ``hmerctl bench run BUNDLE``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["run", *args]
        return super().parse_args(ctx, args)


def fail(error: object) -> None:
    """Print one line about an error on stderr; the program goes on."""
    typer.echo("hmerctl: " + " ".join(str(error).split()), err=True)


def console() -> "Console":
    """A console on stderr, so that stdout holds results only."""
    from rich.console import Console

    return Console(stderr=True)


def print_table(headers: list[str], rows: Iterable[Iterable[object]], title: str | None = None) -> None:
    """Print a table on stdout, for people; numbers should come formatted. No headers where all are empty."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text  # text as it is: LaTeX and package extras have brackets, which rich would swallow

    name = None if title is None else Text(title, "italic")
    table = Table(title=name, title_justify="left", show_header=any(headers))
    for header in headers:
        table.add_column(Text(header), overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    Console().print(table)


def progress(items: Iterable[T], label: str, total: int | None = None) -> Iterator[T]:
    """Pass ``items`` on while a progress bar runs on stderr (only on a terminal; ``total`` where there is no len)."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, TimeRemainingColumn(), console=console(), disable=not sys.stderr.isatty())
    with bar:
        yield from bar.track(items, total=total, description=label)


def print_json(value: Any) -> None:
    """Print a dataclass, a pydantic model, or plain data as JSON on stdout."""
    typer.echo(json.dumps(value, default=_plain, ensure_ascii=False, indent=2))


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # numpy arrays and scalars, without importing numpy
        return value.tolist()
    raise TypeError(f"not JSON: {type(value).__name__}")
