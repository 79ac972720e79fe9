"""``hmerctl ablate``: a grid of models at an equal budget, and the table that compares them."""

from pathlib import Path
from typing import Any

import typer

from hmerctl.commands.common import console, print_json, print_table
from hmerctl.runtime.errors import ConfigError


def ablate(
    grid: str = typer.Argument(help="Shipped grid (positions, contexts) or a .toml file."),
    data: list[Path] = typer.Option(..., help="Dataset folder to train on, made by 'hmerctl data prepare' (repeat)."),
    valid: Path = typer.Option(..., help="Dataset folder to score on."),
    out: Path = typer.Option(..., help="Folder for the runs, table.md and table.json."),
    max_steps: int | None = typer.Option(None, min=1, help="Budget of each run in steps of the optimiser."),
    max_time: str | None = typer.Option(None, help="Budget of each run in training time, e.g. 20m."),
    resume: bool = typer.Option(False, "--resume", help="Go on in --out: finished runs are not repeated."),
    limit: int | None = typer.Option(None, min=1, help="Score on so many expressions only, the same for all runs."),
    threads: int = typer.Option(1, min=1, help="Threads of onnxruntime when latency is measured."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Print the runs with their presets, and train nothing."),
    json_: bool = typer.Option(False, "--json", help="Print the results as JSON."),
) -> None:
    """Train every model of a grid with the same data, seeds and budget, and compare them in one table.

    One process at a time. The table has ExpRate (token convention), within one and two errors, structure rate,
    perplexity, parameters, multiply-accumulates, and latency of the exported encoder and decoder step. It is written
    anew after each run. Compare on an idle machine: latency, and steps under --max-time, are what the machine gave.
    Example:

    hmerctl ablate positions --data data/train --valid data/valid2014 --out runs/positions --max-steps 2000
    """
    import sys

    from hmerctl.commands.train import seconds
    from hmerctl.train.analysis.grid import read_grid

    chosen = read_grid(grid)
    if dry_run:
        print_json(chosen) if json_ else print_table(
            ["run", "seed", "encoder", "position", "context", "decoder"], [_parts(cell) for cell in chosen.cells]
        )
        return
    if max_steps is None and max_time is None:
        raise ConfigError("give each run a budget: --max-steps (equal work) or --max-time (e.g. 20m)")

    from hmerctl.export.cost import measure
    from hmerctl.runtime.files import write_text
    from hmerctl.train.analysis.ablation import Task, run_grid
    from hmerctl.train.analysis.table import HEADERS, PARTS, markdown, rows
    from hmerctl.train.config import to_json

    task = Task(tuple(data), valid, out, max_steps, seconds(max_time) if max_time else None, limit)
    command = " ".join(["hmerctl", *sys.argv[1:]])

    def write(cell: Any, results: list[dict[str, Any]]) -> None:
        plain = [{key: value for key, value in r.items() if key != "right"} for r in results]
        table = {"grid": chosen.name, "about": chosen.about, "command": command, **task.to_dict(), "results": plain}
        write_text(out / "table.json", to_json(table) + "\n")
        notes = [_budget(max_steps, max_time, results, data, valid), f"Command: `{command}`", _measured(results)]
        write_text(out / "table.md", markdown(chosen.about or chosen.name, notes, results))
        console().print(
            f"{len(results)} of {len(chosen.cells)}: {cell.name}, ExpRate {100 * results[-1]['exprate']:.1f} %"
        )

    results = run_grid(chosen, task, lambda model: measure(model, chosen.bucket, threads), resume, write)
    if json_:
        print_json([{key: value for key, value in r.items() if key != "right"} for r in results])
    else:
        table = rows(results)
        for title, columns in PARTS.items():
            print_table([HEADERS[i] for i in columns], ([row[i] for i in columns] for row in table), title)
        console().print(f"written: {out / 'table.md'}, {out / 'table.json'}")


def _parts(cell: Any) -> tuple[str, ...]:
    model = cell.preset.model
    parts = (model.encoder, model.position, model.context, model.decoder)
    named = (
        ", ".join([str(part["name"]), *(f"{key} {value}" for key, value in part.items() if key != "name")])
        for part in parts
    )
    return (cell.name, str(cell.seed), *named)


def _budget(
    max_steps: int | None, max_time: str | None, results: list[dict[str, Any]], data: list[Path], valid: Path
) -> str:
    budget = " or ".join(
        text
        for text in (f"{max_steps} steps" if max_steps else "", f"{max_time} of training" if max_time else "")
        if text
    )
    sets = ", ".join(folder.name for folder in data)
    return f"Budget of each run: {budget}, trained on {sets}, scored on {results[0]['expressions']} of {valid.name}."


def _measured(results: list[dict[str, Any]]) -> str:
    from hmerctl.export.cost import Cost, describe

    return describe(Cost(**results[0]["cost"]))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("ablate")(ablate)
