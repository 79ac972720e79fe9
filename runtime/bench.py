"""Latency by the single-stream rule of MLPerf: one query after the other, and the percentiles of all of them.

The queries are a fixed set of inks in memory, taken in turn from each stratum of length, so that short formulas do
not drown long ones; or a set that stands for what users write, read in whole rounds, so that a percentile of the
queries is one of the set. A query is the whole way from strokes or picture to LaTeX. Cold start is measured in fresh
processes. The harness needs the runtime alone and is the same on every device.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from statistics import median

import numpy as np
from PIL import Image

from hmerctl.runtime.bench_report import BenchReport, Cold, Latency, Stratum, Sustained, Window
from hmerctl.runtime.bundle import open_bundle
from hmerctl.runtime.device import describe_device, peak_memory, temperature
from hmerctl.runtime.engine import Engine, Memory, StepSession
from hmerctl.runtime.engines import load_engine
from hmerctl.runtime.errors import BundleError
from hmerctl.runtime.load import load_ink, sniff
from hmerctl.runtime.picture import read_grey
from hmerctl.runtime.recognizer import Recognizer, Source

STRATA = (("short", 1, 10), ("medium", 11, 20), ("long", 21, 4096))
"""Name, fewest and most tokens of the result."""

WINDOW_SECONDS = 10.0
"""A sustained run is judged window by window."""


@dataclass(frozen=True)
class Plan:
    """How long to measure.

    Attributes:
        queries, seconds: the run ends when both are reached.
        warm_up: queries before it that do not count, beside one of every ink.
        cold_starts: fresh processes; the median counts.
        sustained_seconds: length of a second run that shows drift; 0 for none.
    """

    queries: int = 1024
    seconds: float = 60.0
    warm_up: int = 32
    cold_starts: int = 3
    sustained_seconds: float = 0.0


QUICK = Plan(queries=128, seconds=10.0, warm_up=8, cold_starts=1)


@dataclass
class TimedEngine:
    """An engine that notes how long each call takes, in milliseconds."""

    engine: Engine
    encode_ms: list[float] = field(default_factory=list)
    step_ms: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name, self.threads = self.engine.name, self.engine.threads

    def encode(self, raster: np.ndarray, size: np.ndarray) -> Memory:
        """See ``Engine.encode``."""
        started = time.perf_counter()
        memory = self.engine.encode(raster, size)
        self.encode_ms.append(1000 * (time.perf_counter() - started))
        return memory

    def start(self, memory: Memory, beams: int) -> StepSession:
        """See ``Engine.start``."""
        return _TimedSession(self.engine.start(memory, beams), self.step_ms)


@dataclass
class _TimedSession:
    session: StepSession
    step_ms: list[float]

    def step(self, tokens: np.ndarray, parents: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        started = time.perf_counter()
        answer = self.session.step(tokens, parents)
        self.step_ms.append(1000 * (time.perf_counter() - started))
        return answer


def measure(
    path: Path,
    plan: Plan | None = None,
    *,
    inks: Sequence[Path] = (),
    whole: Sequence[Source] = (),
    beams: int | None = None,
    threads: int | None = None,
    tick: Callable[[str, float], None] = lambda stage, share: None,
) -> BenchReport:
    """Measure a bundle on this machine.

    Args:
        path: the bundle.
        plan: how long; the full protocol if left out.
        inks: ink or picture files to ask with; the bundle's samples if left out.
        whole: inks or rasters to read in whole rounds instead; blank ones are left out.
        beams, threads: as for ``Recognizer``.
        tick: told the stage and how much of it is done, from 0 to 1.

    Raises:
        BundleError: the bundle cannot be used, or holds no samples and no inks were given.
        InkError, PictureError: one of ``inks`` cannot be read.
    """
    plan = plan or Plan()
    bundle = open_bundle(path)
    files = list(inks) or [bundle.file(sample.file) for sample in bundle.manifest.samples]
    if not files:
        raise BundleError(f"{path}: holds no samples to measure with; name ink files with --inks")
    sources = whole or [_in_memory(file) for file in files]  # first of all: a broken file is not the bundle's fault
    cold = _cold_starts(path, files[0], plan.cold_starts, beams, threads, tick)
    engine = TimedEngine(load_engine(bundle, threads))
    recognizer = Recognizer(bundle, engine=engine, beams=beams)
    strata = _stratify(recognizer, sources)
    queries = _in_rounds(strata) if whole else _in_turn(strata)
    round_length = sum(map(len, strata.values())) if whole else 1
    for _ in range(plan.warm_up):
        recognizer.recognize(next(queries)[1])
    engine.encode_ms.clear()
    engine.step_ms.clear()
    before = temperature()
    run = _run(recognizer, queries, plan, round_length, tick)
    after = temperature()
    sustained = _sustain(recognizer, queries, plan.sustained_seconds, tick) if plan.sustained_seconds else None
    return BenchReport(
        bundle=bundle.manifest.bundle_id,
        target=bundle.manifest.target.name,
        precision=bundle.manifest.target.precision,
        bundle_bytes=bundle.total_bytes(),
        parity=bundle.manifest.parity_state,
        parity_levels={} if bundle.manifest.parity is None else bundle.manifest.parity.summary(),
        engine=engine.name,
        threads=engine.threads,
        beams=recognizer.options.beams,
        device=describe_device(),
        protocol="full" if plan.queries >= Plan.queries and plan.seconds >= Plan.seconds else "quick",
        inks=sum(map(len, strata.values())),
        order="rounds" if whole else "strata",
        queries=len(run.total),
        seconds=run.seconds,
        tokens_per_query=len(engine.step_ms[: run.steps]) / len(run.total),
        cold=cold,
        latency=Latency.of(run.total),
        raster=Latency.of(run.raster),
        encode=Latency.of(engine.encode_ms[: run.looks]),
        step=Latency.of(engine.step_ms[: run.steps]),
        strata=tuple(
            Stratum(name=name, fewest=fewest, most=most, latency=Latency.of(run.by_stratum[name]))
            for name, fewest, most in STRATA
            if name in run.by_stratum
        ),
        peak_memory_bytes=peak_memory(),
        temperature_before=before,
        temperature_after=after,
        sustained=sustained,
    )


def _in_memory(file: Path) -> Source:
    """The ink or picture of a file; reading files is no part of a query."""
    with file.open("rb") as opened:
        if sniff(opened.read(256)) != "picture":
            return load_ink(file)
    return Image.fromarray(read_grey(file))


def _stratify(recognizer: Recognizer, sources: Sequence[Source]) -> dict[str, list[Source]]:
    """The inks by the length of what is read in them; those that are blank are left out."""
    strata: dict[str, list[Source]] = {}
    for source in sources:
        length = len(recognizer.recognize(source).tokens)
        for name, fewest, most in STRATA:
            if fewest <= length <= most:
                strata.setdefault(name, []).append(source)
    if not strata:
        raise BundleError(f"{recognizer.bundle.name}: reads nothing in any of the inks; measure with others (--inks)")
    return strata


def _in_turn(strata: dict[str, list[Source]]) -> Iterator[tuple[str, Source]]:
    """Without end: one ink of each stratum in turn."""
    turns = {name: cycle(strata[name]) for name, _, _ in STRATA if name in strata}
    while True:
        for name, sources in turns.items():
            yield name, next(sources)


def _in_rounds(strata: dict[str, list[Source]]) -> Iterator[tuple[str, Source]]:
    """Without end: all inks, again and again, in an order that mixes the lengths and never changes."""
    named = [(name, source) for name, sources in strata.items() for source in sources]
    return cycle([named[i] for i in np.random.default_rng(0).permutation(len(named))])


@dataclass
class _Run:
    """Milliseconds of every query; ``looks`` runs of the encoder and ``steps`` of the decoder in all."""

    total: list[float] = field(default_factory=list)
    raster: list[float] = field(default_factory=list)
    by_stratum: dict[str, list[float]] = field(default_factory=dict)
    seconds: float = 0.0
    looks: int = 0
    steps: int = 0


def _run(
    recognizer: Recognizer,
    queries: Iterator[tuple[str, Source]],
    plan: Plan,
    round_length: int,
    tick: Callable[[str, float], None],
) -> _Run:
    """Query until the plan is fulfilled and the last round is whole."""
    run = _Run()
    started = time.perf_counter()
    while len(run.total) < plan.queries or run.seconds < plan.seconds or len(run.total) % round_length:
        stratum, source = next(queries)
        asked = time.perf_counter()
        result = recognizer.recognize(source)
        answered = time.perf_counter()
        run.total.append(1000 * (answered - asked))
        run.raster.append(result.timings["raster"])
        run.by_stratum.setdefault(stratum, []).append(run.total[-1])
        run.seconds = answered - started
        if len(run.total) % 16 == 0:
            tick("measure", min(len(run.total) / plan.queries, run.seconds / max(plan.seconds, 1e-9), 1.0))
    if isinstance(recognizer.engine, TimedEngine):
        run.looks, run.steps = len(recognizer.engine.encode_ms), len(recognizer.engine.step_ms)
    return run


def _sustain(
    recognizer: Recognizer,
    queries: Iterator[tuple[str, Source]],
    seconds: float,
    tick: Callable[[str, float], None],
) -> Sustained:
    """Query without a pause, and compare the last window with the first."""
    windows: list[Window] = []
    started = time.perf_counter()
    length = min(WINDOW_SECONDS, seconds / 2)
    while time.perf_counter() - started < seconds:
        opened, latencies = time.perf_counter(), []
        while time.perf_counter() - opened < length:
            asked = time.perf_counter()
            recognizer.recognize(next(queries)[1])
            latencies.append(1000 * (time.perf_counter() - asked))
        windows.append(Window(second=opened - started, latency=Latency.of(latencies), temperature=temperature()))
        tick("sustained", min(1.0, (time.perf_counter() - started) / seconds))
    drift = windows[-1].latency.p50 / windows[0].latency.p50 - 1
    return Sustained(seconds=time.perf_counter() - started, drift=drift, windows=tuple(windows))


def _cold_starts(
    path: Path, ink: Path, count: int, beams: int | None, threads: int | None, tick: Callable[[str, float], None]
) -> Cold | None:
    """Median over fresh processes of ``hmerctl.runtime.cold``; None if none are wanted."""
    answers = []
    for i in range(count):
        tick("cold start", i / count)
        arguments = json.dumps({"bundle": str(path), "ink": str(ink), "beams": beams, "threads": threads})
        command = [sys.executable, "-m", "hmerctl.runtime.cold", arguments]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if answer.returncode:
            last = (answer.stderr.strip().splitlines() or ["no message"])[-1]
            raise BundleError(f"{path}: a fresh process could not use it ({last}); try hmerctl recognize")
        answers.append(json.loads(answer.stdout))
    if not answers:
        return None
    peaks = [answer["peak_memory_bytes"] for answer in answers]
    return Cold(
        import_ms=median(answer["import_ms"] for answer in answers),
        load_ms=median(answer["load_ms"] for answer in answers),
        first_ms=median(answer["first_ms"] for answer in answers),
        peak_memory_bytes=None if None in peaks else int(median(peaks)),
    )
