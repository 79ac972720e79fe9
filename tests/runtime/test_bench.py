"""The latency harness: enough queries and seconds, strata in turn, encoder and steps apart, fresh processes."""

from pathlib import Path

import numpy as np
import pytest

from hmerctl.runtime import bench
from hmerctl.runtime.bench import Plan, measure
from hmerctl.runtime.bench_report import HEADERS, BenchReport, Latency, facts, plot, read_report, row
from hmerctl.runtime.bundle import read_manifest, write_manifest
from hmerctl.runtime.errors import BundleError, DataError
from hmerctl.runtime.ink import Ink

SHORT = Plan(queries=20, seconds=0.1, warm_up=2, cold_starts=0)


@pytest.fixture(scope="module")
def report(shared_tiny: Path) -> BenchReport:
    return measure(shared_tiny, SHORT)


def test_percentiles_are_nearest_ranks() -> None:
    latency = Latency.of([float(i) for i in range(100, 0, -1)])
    assert (latency.p50, latency.p90, latency.p99, latency.worst) == (50, 90, 99, 100)
    assert (latency.count, latency.mean) == (100, 50.5)
    one = Latency.of([7.0])
    assert (one.p50, one.p99, one.count) == (7, 7, 1)
    assert Latency.of([1.0, 2.0, 3.0]).p50 == 2


def test_the_run_ends_when_both_queries_and_seconds_are_reached(shared_tiny: Path, report: BenchReport) -> None:
    assert report.queries >= 20 and report.seconds >= 0.1
    many = measure(shared_tiny, Plan(queries=300, seconds=0, warm_up=0, cold_starts=0))
    assert many.queries == 300 == many.latency.count == many.encode.count == many.raster.count


def test_a_query_is_the_sum_of_its_parts(report: BenchReport) -> None:
    # The tiny bundle writes seven tokens and eos.
    assert report.tokens_per_query == 8 and report.step.count == 8 * report.queries
    parts = report.raster.mean + report.encode.mean + 8 * report.step.mean
    assert 0.3 * report.latency.mean < parts < report.latency.mean
    assert report.engine.startswith("onnxruntime") and report.threads["step"] == 1
    assert report.parity == "missing" and report.protocol == "quick"
    assert [s.name for s in report.strata] == ["short"]
    assert report.strata[0].latency.count == report.queries
    assert report.device.cores >= 1


def test_strata_take_turns() -> None:
    turns = bench._in_turn({"long": ["l"], "short": ["a", "b", "c"]})
    assert [next(turns) for _ in range(6)] == [
        ("short", "a"),
        ("long", "l"),
        ("short", "b"),
        ("long", "l"),
        ("short", "c"),
        ("long", "l"),
    ]


def test_a_whole_set_is_read_in_rounds(shared_tiny: Path) -> None:
    inks = [Ink((np.array([[0.0, 0.0], [9.0, 9.0 * i]]),), id=str(i)) for i in range(1, 4)]
    report = measure(shared_tiny, Plan(queries=4, seconds=0, warm_up=0, cold_starts=0), whole=[*inks, Ink(())])
    assert (report.inks, report.queries, report.order) == (3, 6, "rounds")
    rounds = bench._in_rounds({"long": ["a"], "short": ["b", "c"]})
    first, second = ([next(rounds) for _ in range(3)] for _ in range(2))
    assert first == second and sorted(first) == [("long", "a"), ("short", "b"), ("short", "c")]


def test_a_cold_start_is_a_fresh_process(shared_tiny: Path) -> None:
    cold = measure(shared_tiny, Plan(queries=1, seconds=0, warm_up=0, cold_starts=1)).cold
    assert cold is not None
    assert cold.import_ms > 20 and cold.load_ms > 0 and cold.first_ms > 0
    assert cold.peak_memory_bytes is None or cold.peak_memory_bytes > 10e6


def test_a_sustained_run_shows_drift(shared_tiny: Path) -> None:
    sustained = measure(shared_tiny, Plan(1, 0, 0, 0, sustained_seconds=0.4)).sustained
    assert sustained is not None and len(sustained.windows) >= 2
    first, last = sustained.windows[0].latency.p50, sustained.windows[-1].latency.p50
    assert sustained.drift == pytest.approx(last / first - 1)


def test_without_samples_inks_must_be_named(tiny: Path) -> None:
    write_manifest(tiny, read_manifest(tiny, "tiny").model_copy(update={"samples": ()}))
    with pytest.raises(BundleError, match=r"no samples .*--inks"):
        measure(tiny, SHORT)
    assert measure(tiny, SHORT, inks=[tiny / "samples/x.json"]).inks == 1


def test_reports_survive_the_file_and_strangers_are_refused(report: BenchReport, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(report.model_dump_json())
    assert read_report(tmp_path / "a.json") == report
    for text in ("", "{}", "[]", '{"schema_version": "2.0"}', "\x00"):
        (tmp_path / "b.json").write_text(text)
        with pytest.raises(DataError, match=r"b\.json: not a latency report"):
            read_report(tmp_path / "b.json")
    with pytest.raises(DataError, match=r"none\.json: cannot be read"):
        read_report(tmp_path / "none.json")


def test_rows_and_plot(report: BenchReport, tmp_path: Path) -> None:
    cells = row(report)
    assert len(cells) == len(HEADERS)
    assert cells[0] == "tiny-onnx-fp32" and f"{report.latency.p50:.1f}" in cells
    lines = dict(facts(report))
    assert lines["bundle"].startswith(report.bundle) and "beam 1" in lines["protocol"]
    assert f"p90 {report.step.p90:.2f}" in lines["step, ms"]
    plot([report, report.model_copy(update={"bundle": "other-onnx-int8@0"})], tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
