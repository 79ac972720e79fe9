"""One training run on a GPU, from packed data to figures: when a large card is there for a quarter of an hour.

    python scripts/gpu_run.py pack --data data/train_all --valid data/valid2014 --out packed.tar.xz
    python scripts/gpu_run.py run packed.tar.xz --out runs/gpu --max-time 12m

``run`` again with the same --out goes on where it stopped, to the end of its budget or of a longer --max-time. Out of
memory, it halves the batches and goes on by itself. It leaves ``run/`` (as hmerctl train does) and ``reached.json``:
device, settings, curve, figures on the whole validation set, where the time went. docs/gpu.md says what to expect.
"""

import argparse
import csv
import json
import platform
import sys
import tarfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from hmerctl.commands.train import seconds
from hmerctl.runtime.device import available_cores
from hmerctl.runtime.errors import ConfigError, DataError, HmerError
from hmerctl.runtime.files import replaced_folder, write_text
from hmerctl.train.checkpoint import load_checkpoint
from hmerctl.train.config import Preset, load_preset, to_json
from hmerctl.train.dataset import ARROW_FILE, JSON_FILE, ExpressionDataset
from hmerctl.train.loop import BEST, LAST, RUN_FILE, MemoryExceededError, RunOptions, fit, read_run
from hmerctl.train.run_data import read_all, worker_count
from hmerctl.train.validation import figures

LARGEST = 60_000_000
"""Bytes of a packed dataset: what a borrowed machine takes in without ado."""

PARTS = ("train", "valid")
SAVE_SECONDS = 60.0
_HALVINGS = 4


def pack(data: Path, valid: Path, out: Path) -> int:
    """Put a training and a validation dataset into one archive (tar.xz); returns its size in bytes."""
    for path in (data, valid):
        ExpressionDataset(path)
    partial = out.with_name(out.name + ".partial")
    with tarfile.open(partial, "w:xz") as archive:
        for part, path in zip(PARTS, (data, valid), strict=True):
            for file in (ARROW_FILE, JSON_FILE):
                archive.add(path / file, f"{part}/{file}")
    size = partial.stat().st_size
    if size > LARGEST:
        partial.unlink()
        raise DataError(f"{out}: {size / 1e6:.1f} MB packed, more than {LARGEST / 1e6:.0f}; take fewer expressions")
    partial.replace(out)
    return size


def unpack(packed: Path, folder: Path) -> tuple[Path, Path]:
    """The datasets of an archive, unpacked into ``folder`` unless they are there; or those of a folder as it is."""
    if packed.is_dir():
        folder = packed
    elif not folder.is_dir():
        wanted = {f"{part}/{file}" for part in PARTS for file in (ARROW_FILE, JSON_FILE)}
        try:
            with tarfile.open(packed) as archive, replaced_folder(folder) as partial:
                members = [m for m in archive.getmembers() if m.isfile() and m.name in wanted]
                if len(members) != len(wanted):
                    raise DataError(f"{packed}: not packed by this script; make it with 'gpu_run.py pack'")
                archive.extractall(partial, members, filter="data")
        except (OSError, tarfile.TarError) as error:
            raise DataError(f"{packed}: cannot be unpacked ({error})") from error
    return folder / PARTS[0], folder / PARTS[1]


def train(preset: Preset, options: RunOptions) -> tuple[Preset, dict[str, Any]]:
    """Train to the end of the budget, with smaller batches where the memory does not hold them.

    Returns:
        the preset that went through, and what ``fit`` returns.
    """
    for _ in range(_HALVINGS):
        try:
            return preset, fit(preset, options)
        except MemoryExceededError as error:
            print(f"{error} ... done: halved", file=sys.stderr)
        torch.cuda.empty_cache()
        pixels, most = preset.train.batch_pixels // 2, max(preset.train.max_batch // 2, 1)
        preset = replace(preset, train=replace(preset.train, batch_pixels=pixels, max_batch=most))
        options = replace(options, resume=True)
    raise ConfigError(f"{options.out}: out of memory with train.batch_pixels = {preset.train.batch_pixels} too")


def figures_of(checkpoint: Path, valid: Path) -> dict[str, float]:
    """Figures of a checkpoint on a whole validation set, decoded greedily in batches."""
    model, info = load_checkpoint(checkpoint)
    read = read_all(model, valid, info.preset)
    return {"expressions": len(read), **figures(read)}


def curve(run: Path) -> list[dict[str, float]]:
    """Logged figures of all parts of a run, by step: losses as logged, ExpRate where it was validated."""
    rows: list[dict[str, float]] = []
    for file in sorted(run.glob("logs/part-*/metrics.csv"), key=lambda f: int(f.parent.name.rpartition("-")[2])):
        with file.open(newline="") as lines:
            for row in csv.DictReader(lines):
                rows.append({name: float(value) for name, value in row.items() if value})
    return rows


def describe(device: torch.device) -> dict[str, Any]:
    """The machine, as far as it explains the figures."""
    about: dict[str, Any] = {"python": platform.python_version(), "torch": torch.__version__}
    about["cores"] = available_cores()
    about["drawing_processes"] = worker_count(1)
    about["device"] = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu"
    if device.type == "cuda":
        about["peak_memory_gb"] = round(torch.cuda.max_memory_allocated(device) / 1e9, 2)
    return about


def run(packed: Path, out: Path, preset_name: str, settings: list[str], budget: str, init: Path | None) -> dict:
    """Unpack, train or go on, evaluate, and write ``reached.json``; returns its content."""
    start = time.monotonic()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data, valid = unpack(packed, out / "data")
    folder = out / "run"
    limit = seconds(budget)
    if (folder / RUN_FILE).is_file():
        if settings:
            raise ConfigError(f"{folder}: goes on with the settings it has; leave out --set, or give a new --out")
        preset, options = read_run(folder)
        options = replace(options, max_seconds=limit)
    else:
        preset = load_preset(preset_name, settings)
        options = RunOptions((data,), valid, folder, limit, init=init, save_seconds=SAVE_SECONDS)
    unpacked = time.monotonic()
    preset, result = train(preset, options)
    trained = time.monotonic()
    kept = [name for name in (BEST, LAST) if (folder / name).is_dir()]
    read = {name: figures_of(folder / name, valid) for name in kept}
    reached = {
        "machine": describe(device),
        "result": {**result, "samples_per_second": round(result["samples"] / max(result["seconds"], 1e-9), 1)},
        "figures": read,
        "wall_seconds": {
            "unpack": round(unpacked - start, 1),
            "train_and_validate": round(trained - unpacked, 1),
            "evaluate": round(time.monotonic() - trained, 1),
        },
        "data": [asdict(origin) for origin in ExpressionDataset(data).origins],
        "preset": preset.to_dict(),
        "curve": curve(folder),
    }
    write_text(out / "reached.json", to_json(reached) + "\n")
    return reached


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("pack", help="datasets into one archive")
    one.add_argument("--data", type=Path, required=True, help="training dataset")
    one.add_argument("--valid", type=Path, required=True, help="validation dataset")
    one.add_argument("--out", type=Path, required=True, help="archive to write, .tar.xz")
    two = commands.add_parser("run", help="train and evaluate; again to go on")
    two.add_argument("packed", type=Path, help="archive made by 'pack', or a folder with train/ and valid/")
    two.add_argument("--out", type=Path, required=True, help="folder for everything that comes of it")
    two.add_argument("--max-time", default="12m", help="training time of all parts together (default 12m)")
    two.add_argument("--preset", default="edge-gpu", help="shipped preset or .toml file (default edge-gpu)")
    two.add_argument("--set", action="append", default=[], dest="settings", metavar="KEY=VALUE")
    two.add_argument("--init", type=Path, help="checkpoint to start the weights from")
    chosen = parser.parse_args(arguments)
    try:
        if chosen.command == "pack":
            print(f"{chosen.out}: {pack(chosen.data, chosen.valid, chosen.out) / 1e6:.1f} MB")
            return 0
        reached = run(chosen.packed, chosen.out, chosen.preset, chosen.settings, chosen.max_time, chosen.init)
    except HmerError as error:
        print(f"gpu_run: {error}", file=sys.stderr)
        return 1
    print(json.dumps({key: reached[key] for key in ("machine", "result", "figures", "wall_seconds")}, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
