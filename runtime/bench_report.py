"""The latency report: one JSON file per run, and what many of them say side by side."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, ValidationError

from hmerctl.runtime.device import Device
from hmerctl.runtime.errors import DataError
from hmerctl.runtime.manifest import ParityState, Part

SCHEMA_VERSION = "1.0"


class Latency(Part):
    """Milliseconds; a percentile is the smallest value that at least that share of the queries does not exceed."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    worst: float

    @classmethod
    def of(cls, milliseconds: Sequence[float]) -> "Latency":
        """Summarise at least one value."""
        values = np.sort(np.asarray(milliseconds, np.float64))

        def rank(percent: int) -> float:
            return float(values[-(-percent * len(values) // 100) - 1])

        return cls(
            count=len(values),
            mean=float(values.mean()),
            p50=rank(50),
            p90=rank(90),
            p99=rank(99),
            worst=float(values[-1]),
        )


class Cold(Part):
    """A fresh process: import of the runtime, verifying and loading the bundle, first query."""

    import_ms: float
    load_ms: float
    first_ms: float
    peak_memory_bytes: int | None


class Stratum(Part):
    """Queries whose result has ``fewest`` to ``most`` tokens."""

    name: str
    fewest: int
    most: int
    latency: Latency


class Window(Part):
    """A piece of the sustained run, beginning at ``second``."""

    second: float
    latency: Latency
    temperature: float | None


class Sustained(Part):
    """A run without a pause; ``drift`` is the last window's p50 over the first's, minus one."""

    seconds: float
    drift: float
    windows: tuple[Window, ...]


class BenchReport(Part):
    """Everything a row of the latency table needs.

    Attributes:
        parity: ``Manifest.parity_state`` of the bundle; only ``verified`` makes a row.
        parity_levels: status by level.
        engine, threads: what really ran.
        latency: whole queries, warm; ``raster`` and ``encode`` are parts of it, ``step`` is one decoder step.
    """

    schema_version: Annotated[str, Field(pattern=r"^1\.[0-9]+$")] = SCHEMA_VERSION
    bundle: str
    target: str
    precision: str
    bundle_bytes: int
    parity: ParityState
    parity_levels: dict[str, str]
    engine: str
    threads: dict[str, int]
    beams: int
    device: Device
    protocol: Literal["full", "quick"]
    inks: int
    queries: int
    seconds: float
    tokens_per_query: float
    cold: Cold | None
    latency: Latency
    raster: Latency
    encode: Latency
    step: Latency
    strata: tuple[Stratum, ...]
    peak_memory_bytes: int | None
    temperature_before: float | None
    temperature_after: float | None
    sustained: Sustained | None

    def label(self) -> str:
        """A short name for tables and plots."""
        return f"{self.bundle.split('@')[0]} on {self.device.name}"


def bench_schema() -> dict[str, Any]:
    """The JSON Schema of a latency report."""
    return BenchReport.model_json_schema()


def read_report(path: Path) -> BenchReport:
    """Read a latency report. Raises DataError for anything else."""
    try:
        return BenchReport.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except ValidationError as error:
        first = error.errors()[0]
        at = ".".join(str(part) for part in first["loc"])
        raise DataError(f"{path}: not a latency report of hmerctl bench ({at}: {first['msg']})") from error
    except ValueError as error:
        raise DataError(f"{path}: not a latency report of hmerctl bench ({error})") from error


HEADERS = [
    "bundle",
    "device",
    "engine",
    "threads",
    "protocol",
    "p50 ms",
    "p90 ms",
    "p99 ms",
    "encoder",
    "step",
    "load",
    "first",
    "memory MB",
    "bundle MB",
    "drift",
    "parity",
]


def row(report: BenchReport) -> list[str]:
    """The cells of a report under ``HEADERS``; encoder and step are medians, load and first from a cold start."""
    cold, peak = report.cold, report.peak_memory_bytes
    return [
        report.bundle,
        report.device.name,
        report.engine,
        "+".join(str(count) for count in report.threads.values()),
        report.protocol,
        f"{report.latency.p50:.2f}",
        f"{report.latency.p90:.2f}",
        f"{report.latency.p99:.2f}",
        f"{report.encode.p50:.2f}",
        f"{report.step.p50:.3f}",
        "-" if cold is None else f"{cold.load_ms:.0f}",
        "-" if cold is None else f"{cold.first_ms:.0f}",
        "-" if peak is None else f"{peak / 1e6:.0f}",
        f"{report.bundle_bytes / 1e6:.1f}",
        "-" if report.sustained is None else f"{report.sustained.drift:+.1%}",
        " ".join(
            level if status == "passed" else f"{level}:{status}" for level, status in report.parity_levels.items()
        ),
    ]


def plot(reports: Sequence[BenchReport], path: Path) -> None:
    """Draw p50, p90 and p99 of each report as a bar with two marks.

    Raises:
        DataError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise DataError(f"{path}: drawing needs matplotlib; pip install matplotlib") from error
    figure = Figure(figsize=(9, 1.6 + 0.5 * len(reports)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    names = [report.label() for report in reports]
    axes.barh(names, [report.latency.p50 for report in reports], color="#26547c", label="p50")
    axes.plot([report.latency.p90 for report in reports], names, "|", color="#f18f01", ms=16, mew=3, label="p90")
    axes.plot([report.latency.p99 for report in reports], names, "|", color="#d62839", ms=16, mew=3, label="p99")
    axes.invert_yaxis()
    axes.set_xlabel("ms from ink to LaTeX")
    axes.legend(loc="lower right")
    figure.savefig(path, format="png", dpi=150)
