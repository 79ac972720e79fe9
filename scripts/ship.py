"""Put a trained checkpoint into the package: rounded weights, calibrated confidence, bundle, figures, model card.

For maintainers, see CONTRIBUTING.md:

    python scripts/ship.py RUN/last --data data/valid2014 --calibration data/train

Every precision of ``onnx`` is made and read; int8 is the one that goes into the package. The commands it calls can be
run one by one; it only keeps them in order, says how long each took, and stops at the first that fails.
"""

import argparse
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from hmerctl.runtime.files import write_text
from hmerctl.runtime.manifest import DecodingDefaults
from hmerctl.train.checkpoint import CheckpointInfo, load_checkpoint, read_info, save_checkpoint, save_info

ROOT = Path(__file__).parent.parent
SHIPPED, BUILD = ROOT / "hmerctl" / "shipped", ROOT / "build"

EXTENTS = (23, 20)
"""Symbol and stroke extent that the shipped model reads at, where it reads best."""

DECODING = DecodingDefaults(
    beams=4, length_power=0.0, prune=0.1, grammar=True, reread=0.5, reread_extents=(26, 22), reread_work=250_000
)
"""What the shipped model is decoded with; docs/experiments.md has the measurements of both."""

SHIPPED_PRECISION = "int8"
"""A quarter of the size, an encoder three times as fast, and ExpRate within the noise: docs/precision.md."""

VERIFIED = {"fp32": (), "fp16": ("--limit", 60), "int8": ("--limit", 60)}
"""Every precision, and on how many expressions its bundle climbs the ladder; the evaluation reads all of them."""


def run(*arguments: object, output: Path | None = None) -> None:
    """Run one hmerctl command; its output goes to the terminal, or as JSON to a file."""
    command = [sys.executable, "-m", "hmerctl", *map(str, arguments)]
    print("$ hmerctl", *arguments, flush=True)
    started = time.monotonic()
    done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE if output else None)
    if output is not None:
        write_text(output, done.stdout)
    print(f"  {time.monotonic() - started:.0f} s", flush=True)


def lines(path: Path) -> list[str]:
    """What was read, expression by expression."""
    return path.read_text(encoding="utf-8").splitlines()


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="validation dataset, CROHME 2014")
    parser.add_argument("--figures", type=Path, default=ROOT / "docs" / "figures", help="where the JSON reports go")
    parser.add_argument("--calibration", type=Path, required=True, help="dataset whose inks set the ranges of int8")
    parser.add_argument("--beam", type=int, default=DECODING.beams)
    parser.add_argument("--length-power", type=float, default=DECODING.length_power)
    parser.add_argument("--prune", type=float, default=DECODING.prune)
    parser.add_argument("--grammar", action=argparse.BooleanOptionalAction, default=DECODING.grammar)
    parser.add_argument("--reread", type=float, default=DECODING.reread)
    parser.add_argument("--reread-extents", type=int, nargs=2, default=DECODING.reread_extents)
    parser.add_argument("--reread-work", type=int, default=DECODING.reread_work)
    parser.add_argument("--extents", type=int, nargs=2, default=EXTENTS, help="symbol and stroke extent to read at")
    chosen = parser.parse_args()
    started = time.monotonic()

    model, info = load_checkpoint(chosen.checkpoint)
    info = info.decoded(
        beams=chosen.beam,
        length_power=chosen.length_power,
        prune=chosen.prune,
        grammar=chosen.grammar,
        reread=chosen.reread,
        reread_extents=tuple(chosen.reread_extents),
        reread_work=chosen.reread_work,
    )
    info = read_at(info, *chosen.extents)
    shipped, name = SHIPPED / info.name, info.name
    save_checkpoint(shipped, model.state_dict(), info, half=True)
    readings, report = BUILD / f"{name}-readings.jsonl", chosen.figures / f"{name}-pytorch.json"
    evaluated = ("--data", chosen.data, "--json", "--predictions")
    read = {kind: BUILD / f"{name}-{kind}.txt" for kind in ("pytorch", *VERIFIED)}
    run("eval", shipped, *evaluated, read["pytorch"], "--readings", readings, output=report)
    run("calibrate", shipped, "--data", chosen.data, "--readings", readings)
    scores = json.loads(report.read_text())
    info = read_info(shipped)
    figures = {"exprate": scores["token"]["exact"], "expressions": scores["expressions"], "data": chosen.data.name}
    save_info(shipped, replace(info, training={**info.training, "figures": figures}))

    for precision, limit in VERIFIED.items():
        bundle = (SHIPPED if precision == SHIPPED_PRECISION else BUILD) / f"{name}-onnx-{precision}.hmer"
        made = ("--precision", precision, "--calibration", chosen.calibration, "--out", bundle)
        run("export", shipped, "--target", "onnx", *made)
        run("verify", bundle, "--checkpoint", shipped, "--data", chosen.data, *limit)
        run("eval", bundle, *evaluated, read[precision], output=chosen.figures / f"{name}-onnx-{precision}.json")
        equal = [a == b for a, b in zip(lines(read["pytorch"]), lines(read[precision]), strict=True)]
        print(f"equal token sequences, PyTorch and {precision}: {sum(equal)} of {len(equal)}")
        if precision == "fp32" and not all(equal):
            sys.exit("the bundle reads otherwise than the checkpoint")
    subprocess.run([sys.executable, ROOT / "scripts" / "card.py"], check=True)
    print(f"shipped in {time.monotonic() - started:.0f} s", flush=True)


def read_at(info: CheckpointInfo, symbol: int, stroke: int) -> CheckpointInfo:
    """The description with other extents in its raster contract; those of training are kept beside the figures."""
    trained = info.training.get(
        "trained_at", {"symbol": info.raster.symbol_extent, "stroke": info.raster.stroke_extent}
    )
    raster = replace(info.raster, symbol_extent=symbol, stroke_extent=stroke)
    training = {**info.training, "trained_at": trained}
    return replace(info, preset=replace(info.preset, raster=raster), training=training)


if __name__ == "__main__":
    main()
