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
    set_: list[str] = typer.Option(
        [], "--set", metavar="KEY=VALUE", help="Change one value of every run's preset (repeat)."
    ),
    init: Path | None = typer.Option(None, help="Checkpoint that every run starts from, instead of the grid's."),
    init_parts: list[str] = typer.Option([], help="Part to start from it, e.g. encoder (repeat)."),
    resume: bool = typer.Option(False, "--resume", help="Go on in --out: finished runs are not repeated."),
    jobs: int | None = typer.Option(None, min=1, help="Runs at a time; one for each GPU, or one on a CPU."),
    limit: int | None = typer.Option(None, min=1, help="Score on so many expressions only, the same for all runs."),
    threads: int = typer.Option(1, min=1, help="Threads of onnxruntime when latency is measured."),
    measure: bool = typer.Option(
        False, "--measure", help="Measure the cost of the finished runs anew; train nothing."
    ),
    dry_run: bool = typer.Option(False, "--dry-run", help="Print the runs with their presets, and train nothing."),
    json_: bool = typer.Option(False, "--json", help="Print the results as JSON."),
) -> None:
    """Train every model of a grid with the same data, seeds and budget, and compare them in one table.

    The table has ExpRate (token convention), within one and two errors, structure rate, perplexity, parameters,
    multiply-accumulates, and latency of the exported encoder and decoder step. It is written anew after each run. A
    run that fails is a row that says so. Latency is what the machine gave: with --measure, on an idle machine,
    all finished runs are measured anew, one right after the other. Example:

    hmerctl ablate positions --data data/train --valid data/valid2014 --out runs/positions --max-steps 2000
    """
    import functools
    import sys

    from hmerctl.commands.train import seconds
    from hmerctl.train.analysis.grid import PARTS, read_grid

    if init_parts and init is None:
        raise ConfigError("--init-parts says what to take from a checkpoint: give it with --init")
    chosen = read_grid(grid, set_, init, init_parts)
    if dry_run:
        print_json(chosen) if json_ else print_table(
            ["run", "seed", *PARTS], ([cell.name, str(cell.seed), *cell.parts()] for cell in chosen.cells)
        )
        return
    if max_steps is None and max_time is None:
        raise ConfigError("give each run a budget: --max-steps (equal work) or --max-time (e.g. 20m)")

    from hmerctl.export.cost import Cost, describe
    from hmerctl.export.cost import measure as cost
    from hmerctl.train.analysis import table
    from hmerctl.train.analysis.ablation import Task, measure_grid, run_grid
    from hmerctl.train.analysis.jobs import places

    task = Task(tuple(data), valid, out, max_steps, seconds(max_time) if max_time else None, limit)
    command = " ".join(["hmerctl", *sys.argv[1:]])

    def write(cell: Any, results: list[dict[str, Any]]) -> None:
        costs = [describe(Cost(**result["cost"])) for result in results if "cost" in result]
        table.write_table(chosen, task, results, [f"Command: `{command}`", *costs[:1]])
        (now,) = (result for result in results if result["name"] == cell.name)
        figure = f"failed: {now['failed']}" if "failed" in now else f"ExpRate {100 * now['exprate']:.1f} %"
        console().print(f"{len(results)} of {len(chosen.cells)}: {cell.name}, {figure}")

    of_model = functools.partial(cost, bucket=chosen.bucket, threads=threads)
    if measure:
        results = measure_grid(chosen, task, of_model, write)
    else:
        results = run_grid(chosen, task, of_model, resume, write, where=places(jobs))
    if json_:
        print_json(table.plain(results))
    else:
        shown = table.rows(results)
        for title, columns in table.PARTS.items():
            print_table([table.HEADERS[i] for i in columns], ([row[i] for i in columns] for row in shown), title)
        console().print(f"written: {out / 'table.md'}, {out / 'table.json'}")
    if any("failed" in result for result in results):
        raise typer.Exit(1)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("ablate")(ablate)
