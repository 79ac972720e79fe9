"""The runtime and the ONNX graphs of bundles on an emulated aarch64, against the machine at hand, on the sample inks.

    sudo apt-get install qemu-user-static
    python scripts/aarch64.py [BUNDLE ...]

On Debian, as any user. The first run puts an arm64 Python (Debian's own packages) and the aarch64 wheels of the
runtime into build/aarch64, about 250 MB, by ``apt-get`` and ``pip`` as they are set up; nothing is installed into the
system. Then every sample ink of every bundle (default: the shipped one; any whose graphs are ONNX) is read greedily
and with a beam of 5, here and under qemu. Rasters must be equal to the bit, tokens must be equal, and what the bundle
promises for the sample must come out; anything else is exit code 1. Emulation says nothing about speed.
"""

import argparse
import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ONNXRUNTIME = "1.23.2"
"""Newer ones crashed under qemu; JetPack 6 has this one too."""

BEAMS = (1, 5)
CLOSE = 1e-2
"""Nats a sequence: graphs in float16 are rounded by other kernels on aarch64, those in float32 agree to 1e-4."""

READ = "--read"
"""First argument of this script where it runs on the compared machine."""


def main() -> None:
    """See the module."""
    if sys.argv[1:2] == [READ]:
        for line in readings([Path(bundle) for bundle in sys.argv[2:]]):
            print(json.dumps(line))
        return
    from hmerctl.runtime.shipped import shipped_bundle

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path, nargs="*", help="default: the shipped one")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "aarch64", help="where arm64 packages are kept")
    chosen = parser.parse_args()
    bundles = [path.resolve() for path in chosen.bundle] or [shipped_bundle()]
    here = read_by([sys.executable], bundles, dict(os.environ))
    machine = prepare(chosen.work.resolve())
    start = time.monotonic()
    environment = {"PYTHONPATH": str(chosen.work.resolve() / "site"), "PYTHONDONTWRITEBYTECODE": "1"}
    there = read_by(machine, bundles, environment)
    print(f"{here[0]} against {there[0]}, {time.monotonic() - start:.0f} s under emulation")
    sys.exit(1 if report(here[1:], there[1:]) else 0)


def readings(bundles: list[Path]) -> Iterator[Any]:
    """What this machine is, then what it reads in every sample of every bundle at every beam width."""
    import platform

    import onnxruntime

    from hmerctl.runtime.bundle import open_bundle
    from hmerctl.runtime.engines.onnx import OnnxEngine
    from hmerctl.runtime.load import load_raster
    from hmerctl.runtime.recognizer import read_file, read_tokens

    yield f"{platform.machine()}, Python {platform.python_version()}, onnxruntime {onnxruntime.__version__}"
    for path in bundles:
        bundle = open_bundle(path)
        manifest = bundle.manifest
        if any(component.format != "onnx" for component in manifest.components):
            sys.exit(f"{path}: its graphs are not ONNX; name bundles of other targets")
        engine = OnnxEngine(bundle, encoder_threads=1)
        for sample in manifest.samples:
            file = bundle.file(sample.file)
            pixels = load_raster(file, manifest.preprocessing).pixels
            row = {"bundle": manifest.bundle_id, "sample": Path(sample.file).stem}
            row["raster"] = hashlib.sha256(pixels.tobytes()).hexdigest()
            promised = row["raster"] == sample.raster_sha256 and read_tokens(bundle, engine, file) == sample.tokens
            for beams in BEAMS:
                best = read_file(bundle, engine, file, beams=beams).best
                tokens, score = bundle.vocabulary.decode(best.ids), sum(best.log_probs)
                yield {**row, "promised": promised, "beams": beams, "tokens": tokens, "log_prob": score}


def read_by(python: list[str], bundles: list[Path], environment: dict[str, str]) -> list[Any]:
    """``readings`` by another Python."""
    command = [*python, str(Path(__file__).resolve()), READ, *map(str, bundles)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{python[0]} ended with {done.returncode} while it read the samples; see above")
    return [json.loads(line) for line in done.stdout.splitlines()]


def report(here: list[dict[str, Any]], there: list[dict[str, Any]]) -> int:
    """Print one line a bundle, and one for every sample that differs; the number of these."""
    wrong = 0
    for bundle in dict.fromkeys(row["bundle"] for row in here):
        pairs = [(a, b) for a, b in zip(here, there, strict=True) if a["bundle"] == bundle]
        faults = [(b, fault(a, b)) for a, b in pairs if fault(a, b)]
        largest = max(abs(a["log_prob"] - b["log_prob"]) for a, b in pairs)
        print(
            f"{bundle}: {len(pairs) - len(faults)} of {len(pairs)} readings equal, log-probabilities to {largest:.1e}"
        )
        for row, what in faults:
            print(f"  {row['sample']}, beam {row['beams']}: {what}")
        wrong += len(faults)
    return wrong


def fault(here: dict[str, Any], there: dict[str, Any]) -> str:
    """How two readings of one sample differ; empty if they do not."""
    if here["raster"] != there["raster"]:
        return "other raster"
    if here["tokens"] != there["tokens"]:
        return f"reads {' '.join(there['tokens'])!r}, not {' '.join(here['tokens'])!r}"
    if not there["promised"]:
        return "is not what the bundle promises"
    difference = abs(here["log_prob"] - there["log_prob"])
    return "" if difference <= CLOSE else f"log-probability differs by {difference:.2g}"


def prepare(work: Path) -> list[str]:
    """The command of an arm64 Python under qemu; fetches what is not in ``work`` yet, and copies the runtime anew."""
    qemu = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    if qemu is None:
        sys.exit("qemu-aarch64-static is not here: apt-get install qemu-user-static")
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            sys.exit(f"{tool} is not here: this script fetches its arm64 Python as Debian's packages")
    root, site = work / "root", work / "site"
    if not root.is_dir():
        unpack_debian(work, root)
    python = next(path for path in sorted((root / "usr/bin").glob("python3.*")) if path.name[8:].isdigit())
    if not (site / "onnxruntime").is_dir():
        install_wheels(site, python.name.removeprefix("python"))
    shutil.rmtree(site / "hmerctl", ignore_errors=True)
    for folder, place in (("hmerctl", site / "hmerctl"), ("runtime", site / "hmerctl" / "runtime")):
        shutil.copytree(ROOT / folder, place, ignore=shutil.ignore_patterns("__pycache__", "shipped"))
    return [qemu, "-L", str(root), str(python)]


def unpack_debian(work: Path, root: Path) -> None:
    """python3 for arm64 with all that it depends on, by an apt of its own that leaves the system's alone."""
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (work / "apt" / folder).mkdir(parents=True, exist_ok=True)
    (work / "apt" / "status").touch()
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "Dir::State": work / "apt" / "state",
        "Dir::State::status": work / "apt" / "status",
        "Dir::Cache": work / "apt" / "cache",
        "Debug::NoLocking": "1",
        "APT::Sandbox::User": "root",
    }
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in settings.items())]
    subprocess.run([*apt, "update"], stdout=subprocess.DEVNULL, check=True)
    wanted = ["--download-only", "--no-install-recommends", "--yes", "python3", "libstdc++6"]
    subprocess.run([*apt, "install", *wanted], stdout=subprocess.DEVNULL, check=True)
    partial = root.with_suffix(".partial")
    for archive in sorted((work / "apt/cache/archives").glob("*.deb")):
        subprocess.run(["dpkg-deb", "--extract", archive, partial], check=True)
    partial.rename(root)


def install_wheels(site: Path, version: str) -> None:
    """The runtime's dependencies as aarch64 wheels for a version of Python, all but onnxruntime as they are here."""
    same = [f"{name}=={importlib.metadata.version(name)}" for name in ("numpy", "pillow", "pydantic")]
    tags = [f"manylinux_2_{minor}_aarch64" for minor in (28, 27, 17)] + ["manylinux2014_aarch64"]
    platforms = [option for tag in tags for option in ("--platform", tag)]
    options = ["--only-binary=:all:", "--implementation", "cp", "--python-version", version, "--target", site]
    pip("install", *options, *platforms, f"onnxruntime=={ONNXRUNTIME}", *same)


def pip(*arguments: object) -> None:
    """Run pip, or stop."""
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"pip {arguments[0]}: {done.stderr.strip().splitlines()[-1]}")


if __name__ == "__main__":
    main()
