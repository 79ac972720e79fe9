"""The table of an ablation, for people (Markdown) and for programs (JSON)."""

import dataclasses
from collections.abc import Callable, Sequence
from statistics import mean, stdev

from hmerctl.runtime.files import write_text
from hmerctl.train.analysis.ablation import Result, Task
from hmerctl.train.analysis.grid import Grid
from hmerctl.train.config import to_json
from hmerctl.train.metrics.statistics import PairedTest, compare, holm


def _figure(value: Callable[[Result], float], spec: str) -> Callable[[Sequence[Result]], str]:
    """The mean over seeds, with the standard deviation where there are several."""

    def text(group: Sequence[Result]) -> str:
        values = [value(result) for result in group]
        deviation = f" ± {format(stdev(values), spec)}" if len(values) > 1 and stdev(values) > 0 else ""
        return format(mean(values), spec) + deviation

    return text


def _interval(group: Sequence[Result]) -> str:
    """Of the choice of expressions; none for several seeds."""
    return "{:.1f} to {:.1f}".format(*(100 * end for end in group[0]["interval"])) if len(group) == 1 else "-"


COLUMNS: tuple[tuple[str, Callable[[Sequence[Result]], str]], ...] = (
    ("ExpRate %", _figure(lambda r: 100 * r["exprate"], ".1f")),
    ("95 %", _interval),
    ("<=1 %", _figure(lambda r: 100 * r["within_1"], ".1f")),
    ("<=2 %", _figure(lambda r: 100 * r["within_2"], ".1f")),
    ("structure %", _figure(lambda r: 100 * r["stru_rate"], ".1f")),
    ("perplexity", _figure(lambda r: r["perplexity"], ".3f")),
    ("parameters M", _figure(lambda r: r["cost"]["parameters"] / 1e6, ".3f")),
    ("encoder MMAC", _figure(lambda r: r["cost"]["encoder_macs"] / 1e6, ".1f")),
    ("step MMAC", _figure(lambda r: r["cost"]["step_macs"] / 1e6, ".2f")),
    ("encoder ms", _figure(lambda r: r["cost"]["encoder_ms"], ".1f")),
    ("step ms", _figure(lambda r: r["cost"]["step_ms"], ".2f")),
    ("steps", _figure(lambda r: r["steps"], ".0f")),
    ("minutes", _figure(lambda r: r["seconds"] / 60, ".1f")),
)
"""Title, and what stands in it for the results of one variant."""

VERSUS = "points over first [95 %] (p; Holm)"

HEADERS = ["run", *(title for title, _ in COLUMNS), VERSUS]

PARTS = {"accuracy": [0, 1, 2, 3, 4, 5, 6, 14], "cost": [0, 7, 8, 9, 10, 11, 12, 13]}
"""Columns of the two tables that fit a terminal."""


def rows(results: Sequence[Result]) -> list[list[str]]:
    """A row for each variant, in order: the mean over the seeds that did not fail, and what ``versus`` says."""
    good = _variants(results)
    compared = versus(results)
    return [
        [name, *(text(group) for _, text in COLUMNS), _compared(compared.get(name))]
        if group
        else [name, "failed", *["-"] * len(COLUMNS)]
        for name, group in good.items()
    ]


def versus(results: Sequence[Result]) -> dict[str, tuple[PairedTest, float]]:
    """Variants compared with the first one, expression by expression.

    Returns:
        for each variant the test of its ExpRate (McNemar's exact test, bootstrap interval of the difference), and
        McNemar's p adjusted for the number of variants by ``holm``. They know the chance in the choice of expressions
        and nothing of that in training. Variants of several seeds, or with other pictures, are left out.
    """
    variants = _variants(results)
    first = next(iter(variants.values()), [])
    tests = {
        name: compare(first[0]["right"], group[0]["right"])
        for name, group in variants.items()
        if group is not first and len(group) == len(first) == 1 and first[0]["raster"] == group[0]["raster"]
    }
    adjusted = holm([test.p_mcnemar for test in tests.values()])
    return {name: (test, p) for (name, test), p in zip(tests.items(), adjusted, strict=True)}


def _variants(results: Sequence[Result]) -> dict[str, list[Result]]:
    """The runs of each variant that did not fail, in the order of the grid; all of its seeds may have."""
    variants: dict[str, list[Result]] = {result["variant"]: [] for result in results}
    for result in results:
        if "failed" not in result:
            variants[result["variant"]].append(result)
    return variants


def _compared(found: tuple[PairedTest, float] | None) -> str:
    if found is None:
        return "-"
    test, adjusted = found
    points = [100 * value for value in (test.difference, test.interval.low, test.interval.high)]
    return "{:+.1f} [{:+.1f}, {:+.1f}] ({:.2g}; {:.2g})".format(*points, test.p_mcnemar, adjusted)


def budget(grid: Grid, task: Task) -> str:
    """One line on what every run got."""
    limits = [f"{task.max_steps} steps"] if task.max_steps else []
    limits += [f"{task.max_seconds / 60:g} minutes of training"] if task.max_seconds else []
    sets = ", ".join(folder.name for folder in task.data)
    start = ""
    if grid.init:
        start = f", {' and '.join(grid.init_parts) or 'all that fits'} from the checkpoint {grid.init.name}"
    frozen = sorted({part for cell in grid.cells for part in cell.preset.train.frozen})
    kept = f" ({', '.join(frozen)} frozen)" if frozen else ""
    scored = f"{task.limit} random expressions" if task.limit else "all"
    trained = f"{' or '.join(limits)}, trained on {sets}{start}{kept}"
    return f"Budget of each run: {trained}; scored on {scored} of {task.valid.name}."


def markdown(title: str, notes: Sequence[str], results: Sequence[Result]) -> str:
    """The table as a Markdown page."""
    lines = [f"# {title}", "", *(f"- {note}" for note in notes), ""]
    lines += ["| " + " | ".join(HEADERS) + " |", "|---" + "|--:" * (len(HEADERS) - 1) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows(results)]
    failed = [f"- {result['name']} failed: {result['failed']}" for result in results if "failed" in result]
    return "\n".join([*lines, *([""] if failed else []), *failed]) + "\n"


def plain(results: Sequence[Result]) -> list[Result]:
    """Results for programs: ``versus`` in place of the verdict on every single expression."""
    compared = {
        name: {"versus": {**dataclasses.asdict(test), "p_holm": adjusted}}
        for name, (test, adjusted) in versus(results).items()
    }
    return [
        {key: value for key, value in result.items() if key != "right"} | compared.get(result["variant"], {})
        for result in results
    ]


def write_table(grid: Grid, task: Task, results: Sequence[Result], notes: Sequence[str]) -> None:
    """Write ``table.md`` and ``table.json`` to the folder of the runs.

    Args:
        grid: what was asked.
        task: and with which budget.
        results: so far.
        notes: lines over the table, besides the budget.
    """
    lines = [budget(grid, task), *notes]
    table = {"grid": grid.name, "about": grid.about, "notes": lines, "results": plain(results)}
    write_text(task.out / "table.json", to_json(table) + "\n")
    write_text(task.out / "table.md", markdown(grid.about or grid.name, lines, results))
