"""The table of an ablation, for people (Markdown) and for programs."""

from collections.abc import Callable, Sequence
from statistics import mean, stdev
from typing import Any

from hmerctl.train.metrics.statistics import compare

Result = dict[str, Any]

COLUMNS: tuple[tuple[str, Callable[[Result], float], str], ...] = (
    ("ExpRate %", lambda r: 100 * r["exprate"], ".1f"),
    ("<=1 %", lambda r: 100 * r["within_1"], ".1f"),
    ("<=2 %", lambda r: 100 * r["within_2"], ".1f"),
    ("structure %", lambda r: 100 * r["stru_rate"], ".1f"),
    ("perplexity", lambda r: r["perplexity"], ".3f"),
    ("parameters M", lambda r: r["cost"]["parameters"] / 1e6, ".3f"),
    ("encoder MMAC", lambda r: r["cost"]["encoder_macs"] / 1e6, ".1f"),
    ("step MMAC", lambda r: r["cost"]["step_macs"] / 1e6, ".2f"),
    ("encoder ms", lambda r: r["cost"]["encoder_ms"], ".1f"),
    ("step ms", lambda r: r["cost"]["step_ms"], ".2f"),
    ("steps", lambda r: r["steps"], ".0f"),
    ("minutes", lambda r: r["seconds"] / 60, ".1f"),
)
"""Title, value of one result, format."""

VERSUS = "points over first (p)"

HEADERS = ["run", *(title for title, _, _ in COLUMNS), VERSUS]

PARTS = {"accuracy": [0, 1, 2, 3, 4, 5, 13], "cost": [0, 6, 7, 8, 9, 10, 11, 12]}
"""Columns of the two tables that fit a terminal."""


def rows(results: Sequence[Result]) -> list[list[str]]:
    """A row for each variant, in order: the mean over its seeds, with the standard deviation where there are several.

    The last column compares with the first variant, seed by seed: the difference in ExpRate and the p of McNemar's
    exact test, which knows the chance in the choice of expressions and nothing of that in training. It is left out
    ("-") where the seeds are several, or the pictures are not the same.
    """
    variants: dict[str, list[Result]] = {}
    for result in results:
        variants.setdefault(result["variant"], []).append(result)
    first = next(iter(variants.values()), [])
    return [
        [name, *(_cell([value(r) for r in group], spec) for _, value, spec in COLUMNS), _versus(first, group)]
        for name, group in variants.items()
    ]


def _cell(values: list[float], spec: str) -> str:
    text = format(mean(values), spec)
    return f"{text} ± {format(stdev(values), spec)}" if len(values) > 1 and stdev(values) > 0 else text


def _versus(first: list[Result], group: list[Result]) -> str:
    if group is first or len(group) > 1 or len(first) > 1 or first[0]["raster"] != group[0]["raster"]:
        return "-"
    test = compare(first[0]["right"], group[0]["right"])
    return f"{100 * test.difference:+.1f} ({test.p_mcnemar:.2g})"


def markdown(title: str, notes: Sequence[str], results: Sequence[Result]) -> str:
    """The table as a Markdown page."""
    lines = [f"# {title}", "", *(f"- {note}" for note in notes), ""]
    lines += ["| " + " | ".join(HEADERS) + " |", "|---" + "|--:" * (len(HEADERS) - 1) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows(results)]
    return "\n".join(lines) + "\n"
