"""What each step down the line costs: PyTorch, then every target in every precision, on the same expressions.

    python scripts/precision_costs.py --calibration data/train --data data/valid2014 --jobs 2

Exports the shipped checkpoint to every target and precision, reads the whole dataset greedily with each bundle's own
engine or stand-in, compares with PyTorch expression by expression, and writes docs/figures/<model>-precisions.json
and the marked table of docs/precision.md. Exit code 1 if a bound of ExpRate is missed. Bundles and readings stay in
``--work`` and are taken up again where a run was stopped; readings belong to one bundle id, a bundle to one
checkpoint: after a change of the code, delete that folder.
"""

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from card import filled, table

from hmerctl.commands.export import CALIBRATION_INKS
from hmerctl.export.parity.pictures import Picture, pictures_of_dataset
from hmerctl.export.parity.sequences import engine_greedy, loss_bound
from hmerctl.export.quantize import lowest_snr
from hmerctl.export.reference import TorchEngine
from hmerctl.export.source import Source, load_source, shipped_checkpoint
from hmerctl.runtime.buckets import TO_BUCKETS, Padding
from hmerctl.runtime.bundle import open_bundle
from hmerctl.runtime.engine import Engine
from hmerctl.runtime.errors import BundleError
from hmerctl.runtime.files import write_text
from hmerctl.runtime.samples import sample_paths
from hmerctl.runtime.strokes import read_strokes
from hmerctl.targets.base import find
from hmerctl.targets.build import bundle_path, export_bundle, make_plan
from hmerctl.train.metrics.statistics import compare

ROOT = Path(__file__).parent.parent
TARGETS = ("onnx", "jetson-trt", "coreml")
SNR_INKS = 16
"""Inks, evenly spread, on which the encoder's outputs are compared."""


@dataclass(frozen=True)
class Options:
    """What is measured, and where."""

    checkpoint: Path
    data: Path
    calibration: Path
    work: Path
    expressions: int | None


@dataclass(frozen=True)
class Step:
    """One step down the line and what it read.

    Attributes:
        target: None for PyTorch.
        engine: what ran it, stand-ins by their own names.
        bound: points of ExpRate that the precision may cost.
        snr: lowest ratio of the encoder's outputs to their difference from PyTorch's, dB.
        ids: greedy token ids of every expression.
        right: which are exactly the label.
    """

    target: str | None
    precision: str
    bundle: str
    engine: str
    bytes: int
    bound: float
    snr: float
    ids: list[list[int]]
    right: list[bool]


@dataclass(frozen=True)
class Cost:
    """A step against PyTorch; ``lost`` and ``won``: right only there, right only here."""

    step: str
    bundle: str
    engine: str
    bytes: int
    snr: float
    same: int
    exprate: float
    difference: float
    low: float
    high: float
    lost: int
    won: int
    p: float
    bound: float
    held: bool


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, default=shipped_checkpoint(), help="default: the shipped one")
    parser.add_argument("--data", type=Path, required=True, help="labelled dataset, CROHME 2014")
    parser.add_argument("--calibration", type=Path, required=True, help="dataset whose inks set the ranges of int8")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "precisions")
    parser.add_argument("--expressions", type=int, help="only about so many, evenly spread; the table says how many")
    parser.add_argument("--only", nargs="+", metavar="TARGET-PRECISION", help="only these, and so the table")
    parser.add_argument("--jobs", type=int, default=1, help="steps that are measured at the same time")
    parser.add_argument("--figures", type=Path, default=ROOT / "docs" / "figures")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "precision.md")
    chosen = parser.parse_args()
    options = Options(chosen.checkpoint, chosen.data, chosen.calibration, chosen.work, chosen.expressions)
    wanted = [(target, precision) for target in TARGETS for precision in in_order(find(target).precisions)]
    wanted = [step for step in wanted if chosen.only is None or "-".join(step) in chosen.only]
    order = [(None, "fp32"), *wanted]
    with ProcessPoolExecutor(chosen.jobs, multiprocessing.get_context("spawn")) as pool:
        # The last targets take longest: begun first, they are not waited for at the end by one process alone.
        running = {step: pool.submit(measure, options, *step) for step in reversed(order)}
        steps = [running[step].result() for step in order]
    costs = [cost_of(step, steps[0]) for step in steps]
    source = load_source(options.checkpoint)
    report = {
        "checkpoint_sha256": source.sha256,
        "data": options.data.name,
        "expressions": len(steps[0].ids),
        "calibration": f"{CALIBRATION_INKS} inks of {options.calibration.name}",
        "steps": [asdict(cost) for cost in costs],
    }
    write_text(chosen.figures / f"{source.info.name}-precisions.json", json.dumps(report, indent=1) + "\n")
    text = described(costs, len(steps[0].ids), options.data.name, source.sha256 or "")
    page = filled(chosen.page.read_text(encoding="utf-8"), {"costs": text}, "scripts/precision_costs.py")
    write_text(chosen.page, page)
    print(text)
    missed = [cost.step for cost in costs if not cost.held]
    if missed:
        sys.exit(f"more than the bound is lost in {', '.join(missed)}")


def in_order(precisions: Sequence[str]) -> list[str]:
    """From the most exact to the least."""
    ranks = ("fp32", "fp16", "int8")
    return sorted(precisions, key=lambda p: (ranks.index(p) if p in ranks else len(ranks), p))


def measure(options: Options, target: str | None, precision: str) -> Step:
    """Export (unless that was done), read everything, compare the encoders."""
    torch.set_num_threads(1)
    started = time.monotonic()
    source = load_source(options.checkpoint)
    pictures = pictures_of_dataset(options.data, source.info.raster, options.expressions)
    reference = TorchEngine(source.model)
    engine: Engine = reference
    name, size, bound, padding = f"pytorch-{(source.sha256 or '')[:12]}", 0, 0.0, TO_BUCKETS
    if target is not None:
        bundle = open_bundle(exported(source, target, precision, options.work, options.calibration))
        engine = find(target).load(bundle)
        name, size, padding = bundle.manifest.bundle_id, bundle.total_bytes(), bundle.padding()
        bound = find(target).tolerance(precision).exprate
    ready = time.monotonic()
    snr = encoder_snr(reference, engine, pictures, padding)
    kept = options.work / f"{name.replace('@', '-')}-{options.data.name}.jsonl"
    ids = readings(engine, pictures, padding, kept)
    decode = source.info.vocabulary.decode
    right = [tuple(decode(i)) == picture.tokens for i, picture in zip(ids, pictures, strict=True)]
    spent = f"{ready - started:.0f} s to export, {time.monotonic() - ready:.0f} s to read"
    print(f"{name}: {sum(right)} of {len(right)} right; {spent}", flush=True)
    return Step(target, precision, name, engine.name, size, bound, snr, ids, right)


def exported(source: Source, target: str, precision: str, work: Path, calibration: Path) -> Path:
    """The bundle of this checkpoint in the folder ``work``: the one of an earlier run, or a new one."""
    chosen = find(target)
    path = bundle_path(work, source, make_plan(source, chosen, precision))
    try:
        if open_bundle(path).manifest.model.checkpoint_sha256 == source.sha256:
            return path
    except BundleError:
        pass
    if precision == "int8":
        inks = pictures_of_dataset(calibration, source.info.raster, CALIBRATION_INKS)
        source = replace(source, rasters=[ink.pixels for ink in inks])
    samples = [read_strokes(file) for file in sample_paths()]
    export_bundle(source, chosen, make_plan(source, chosen, precision), path, samples)
    return path


def encoder_snr(reference: Engine, engine: Engine, pictures: Sequence[Picture], padding: Padding) -> float:
    """See ``Step.snr``."""
    chosen = pictures[:: max(1, len(pictures) // SNR_INKS)]
    feeds = [padding.pad(p.pixels) for p in chosen]
    expected, found = ([dict(side.encode(*feed)) for feed in feeds] for side in (reference, engine))
    return lowest_snr(expected, found)


def readings(engine: Engine, pictures: Sequence[Picture], padding: Padding, path: Path) -> list[list[int]]:
    """Greedy token ids, those of an earlier run taken from ``path`` and new ones added there one by one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.is_file() else []
    known = dict(json.loads(line) for line in lines if line.endswith("\n"))
    write_text(path, "".join(line for line in lines if line.endswith("\n")))  # without the line a stop has cut
    with path.open("a", encoding="utf-8") as file:
        for picture in pictures:
            if picture.id not in known:
                known[picture.id] = engine_greedy(engine, picture.pixels, padding)
                file.write(json.dumps([picture.id, known[picture.id]]) + "\n")
    return [known[picture.id] for picture in pictures]


def cost_of(step: Step, reference: Step) -> Cost:
    """A step against the first, PyTorch."""
    paired = compare(reference.right, step.right)
    difference = 100 * paired.difference
    return Cost(
        step=f"{step.target or 'PyTorch'} {step.precision}",
        bundle=step.bundle,
        engine=step.engine,
        bytes=step.bytes,
        snr=round(step.snr, 1),
        same=int(np.sum([a == b for a, b in zip(step.ids, reference.ids, strict=True)])),
        exprate=round(100 * paired.second, 2),
        difference=round(difference, 2),
        low=round(100 * paired.interval.low, 2),
        high=round(100 * paired.interval.high, 2),
        lost=paired.only_first,
        won=paired.only_second,
        p=round(paired.p_mcnemar, 3),
        bound=step.bound,
        held=-difference <= loss_bound(step.bound, paired.expressions),
    )


def described(costs: Sequence[Cost], expressions: int, data: str, sha256: str) -> str:
    """The table with a sentence on what it was measured on."""
    header = ("", "MB", "SNR, dB", "same tokens", "ExpRate", "difference (95 %)", "lost", "won", "p", "bound")
    rows: list[tuple[object, ...]] = []
    for cost in costs:
        if cost.bytes:
            apart = (f"{cost.difference:+.2f} ({cost.low:+.2f} to {cost.high:+.2f})", cost.lost, cost.won, cost.p)
            bound = f"{cost.bound:g}" if cost.held else f"**missed: {cost.bound:g}**"
            snr = "exact" if cost.snr >= 150 else cost.snr
            rows.append((cost.step, f"{cost.bytes / 1e6:.1f}", snr, cost.same, f"{cost.exprate:.2f}", *apart, bound))
        else:
            rows.append((cost.step, "", "", cost.same, f"{cost.exprate:.2f}", *[""] * 5))
    return f"Checkpoint `{sha256[:12]}`, {expressions} expressions of `{data}`.\n\n{table(header, rows)}"


if __name__ == "__main__":
    main()
