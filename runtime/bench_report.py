"""The latency report: one JSON file per run, and what many of them say side by side."""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, ValidationError

from hmerctl.runtime.device import Device
from hmerctl.runtime.errors import DataError
from hmerctl.runtime.files import write_bytes
from hmerctl.runtime.manifest import ParityState, Part

SCHEMA_VERSION = "1.1"


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
        inks, order: how many different ones, and whether strata took turns or the whole set was read in rounds.
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
    order: Literal["strata", "rounds"] = "strata"
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


def facts(report: BenchReport) -> list[tuple[str, str]]:
    """A report for people, figure by figure; load and first query are those of a cold start."""
    cold, peak = report.cold, report.peak_memory_bytes
    latencies = {"query": report.latency, "raster": report.raster, "encoder": report.encode, "step": report.step}
    levels = " ".join(
        level if state == "passed" else f"{level}:{state}" for level, state in report.parity_levels.items()
    )
    return [
        ("bundle", f"{report.bundle}, {report.bundle_bytes / 1e6:.1f} MB"),
        ("parity", f"{report.parity} {levels}"),
        ("device", f"{report.device.name} ({report.device.processor}), {report.device.cores} cores"),
        ("engine", f"{report.engine}, {', '.join(f'{role} {n} threads' for role, n in report.threads.items())}"),
        (
            "protocol",
            f"{report.protocol}: {report.queries} queries in {report.seconds:.0f} s, beam {report.beams}, "
            f"{report.inks} inks, {'in whole rounds' if report.order == 'rounds' else 'strata in turn'}",
        ),
        *(
            (f"{name}, ms", f"p50 {latency.p50:.2f}  p90 {latency.p90:.2f}  p99 {latency.p99:.2f}")
            for name, latency in latencies.items()
        ),
        *(
            (f"{s.name}, ms", f"p50 {s.latency.p50:.2f}  p90 {s.latency.p90:.2f}  ({s.fewest}-{s.most} tokens)")
            for s in report.strata
        ),
        ("cold start, ms", "-" if cold is None else f"load {cold.load_ms:.0f}  first query {cold.first_ms:.0f}"),
        ("peak memory", "-" if peak is None else f"{peak / 1e6:.0f} MB"),
        ("drift", "-" if report.sustained is None else f"{report.sustained.drift:+.1%}"),
    ]


HEADERS = ["bundle", "device", "p50", "p90", "p99", "encoder", "step", "load", "MB"]


def row(report: BenchReport) -> list[str]:
    """A report in one line of the table under ``HEADERS``; milliseconds, of encoder and step the median."""
    return [
        report.bundle.split("@")[0],
        report.device.name,
        f"{report.latency.p50:.1f}",
        f"{report.latency.p90:.1f}",
        f"{report.latency.p99:.1f}",
        f"{report.encode.p50:.1f}",
        f"{report.step.p50:.2f}",
        "-" if report.cold is None else f"{report.cold.load_ms:.0f}",
        f"{report.bundle_bytes / 1e6:.1f}",
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
    at = range(len(reports))
    axes.barh(at, [report.latency.p50 for report in reports], 0.6, color="#26547c", label="p50")
    axes.plot([report.latency.p90 for report in reports], at, "|", color="#f18f01", ms=16, mew=3, label="p90")
    axes.plot([report.latency.p99 for report in reports], at, "|", color="#d62839", ms=16, mew=3, label="p99")
    axes.set_yticks(at, [report.label() for report in reports])
    axes.set_ylim(len(reports) - 0.4, -0.6)
    axes.set_xlim(0)
    axes.set_xlabel("ms from ink to LaTeX")
    figure.legend(loc="outside upper right", ncols=3)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    write_bytes(path, buffer.getvalue())
