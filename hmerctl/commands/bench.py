"""``hmerctl bench``: how fast a bundle is on this machine, and the figures of many machines side by side."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hmerctl.commands.common import BeamOption, DefaultRun, console, fail, print_json, print_table
from hmerctl.runtime.errors import ConfigError, DataError

if TYPE_CHECKING:
    from hmerctl.runtime.recognizer import Source

bench = typer.Typer(
    cls=DefaultRun,
    help="Measure the latency of a bundle on this machine (run), compare measurements (report), or print their JSON "
    "Schema (schema). "
    "`hmerctl bench BUNDLE` is `hmerctl bench run BUNDLE`.",
)


@bench.command()
def run(
    bundle: Path | None = typer.Argument(None, help="Bundle folder; the shipped one if left out."),
    quick: bool = typer.Option(False, "--quick", help="128 queries and 10 s instead of 1,024 and 60 s."),
    sustained: float | None = typer.Option(
        None, min=1, help="Go on for so many seconds to show drift; 300 is the protocol's."
    ),
    inks: list[Path] | None = typer.Option(
        None, help="Ink or picture to ask with (repeat); else the bundle's samples."
    ),
    data: Path | None = typer.Option(
        None, help="Dataset folder to ask with, every expression equally often (needs the train extra)."
    ),
    beam: BeamOption = None,
    threads: int | None = typer.Option(None, min=1, max=256, help="Threads of the encoder."),
    json: bool = typer.Option(False, "--json", help="Print the report as JSON."),
    out: Path | None = typer.Option(None, help="Write the report to this JSON file."),
) -> None:
    """Measure: one query after the other, p50/p90/p99, cold start, encoder and decoder step apart.

    With --data the percentiles are those of a whole set, read in rounds: 'hmerctl bench --data data/valid2014'.
    """
    from dataclasses import replace

    from rich.progress import Progress

    from hmerctl.runtime.bench import QUICK, Plan, measure
    from hmerctl.runtime.bench_report import facts
    from hmerctl.runtime.files import check_writable, write_text
    from hmerctl.runtime.shipped import shipped_bundle

    if inks and data is not None:
        raise ConfigError("--inks and --data exclude each other; give one of them")
    check_writable(out)
    plan = replace(QUICK if quick else Plan(), sustained_seconds=sustained or 0.0)
    with Progress(console=console(), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("load", total=1.0)
        report = measure(
            bundle or shipped_bundle(),
            plan,
            inks=inks or (),
            whole=() if data is None else _expressions(data),
            beams=beam,
            threads=threads,
            tick=lambda stage, share: bar.update(task, description=stage, completed=share),
        )
    if out is not None:
        write_text(out, report.model_dump_json(indent=2) + "\n")
    if json:
        print_json(report)
    else:
        print_table(["", ""], facts(report))
    if report.parity != "verified":
        fail(f"{report.bundle}: parity report {report.parity}; no row in a table before hmerctl verify has passed")


def _expressions(data: Path) -> list["Source"]:
    """The inks and decoded pictures of a dataset."""
    from hmerctl.train.dataset import ExpressionDataset

    expressions: list[Source] = [expression.source() for expression in ExpressionDataset(data)]
    if not expressions:
        raise DataError(f"{data}: holds no expressions to ask with")
    return expressions


@bench.command("report")
def compare(
    files: list[Path] = typer.Argument(help="JSON files written by hmerctl bench --out."),
    plot: Path | None = typer.Option(None, help="Also draw the latencies into this PNG (needs matplotlib)."),
    markdown: bool = typer.Option(False, "--markdown", help="Print the table as Markdown."),
    json: bool = typer.Option(False, "--json", help="Print the reports as a JSON array."),
) -> None:
    """Compare measurements in one table, fastest first. No row without a parity report that passed."""
    from hmerctl.runtime import bench_report

    reports = [bench_report.read_report(file) for file in files]
    refused = [(file, report) for file, report in zip(files, reports, strict=True) if report.parity != "verified"]
    for file, report in refused:
        fail(f"{file}: left out, parity report {report.parity}; run hmerctl verify on the bundle and measure again")
    rows = sorted((report for report in reports if report.parity == "verified"), key=lambda r: r.latency.p50)
    if json:
        print_json(rows)
    elif rows and markdown:
        for cells in (bench_report.HEADERS, ["---"] * len(bench_report.HEADERS), *map(bench_report.row, rows)):
            typer.echo(f"| {' | '.join(cells)} |")
    elif rows:
        print_table(bench_report.HEADERS, map(bench_report.row, rows), "milliseconds, warm; load is cold")
    if plot is not None and rows:
        bench_report.plot(rows, plot)
    if refused:
        raise typer.Exit(1)


@bench.command()
def schema() -> None:
    """Print the JSON Schema of the reports that run writes."""
    from hmerctl.runtime.bench_report import bench_schema

    print_json(bench_schema())


def register(app: typer.Typer) -> None:
    """Add the command group."""
    app.add_typer(bench, name="bench")
