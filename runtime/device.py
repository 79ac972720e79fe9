"""What a latency depends on and a device tells about itself. Whatever it does not tell is None."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from hmerctl.runtime.manifest import Part


class Device(Part):
    """The machine and the state it is in.

    Attributes:
        name: the board or product, else the processor.
        cores: that this process may use.
        governor: of the first core's frequency.
        power_mode: of a Jetson (``nvpmodel``).
    """

    name: str
    system: str
    machine: str
    processor: str
    cores: int
    governor: str | None
    power_mode: str | None
    python: str


def describe_device() -> Device:
    """Look the facts up."""
    processor = _processor()
    return Device(
        name=_read("/proc/device-tree/model") or _read("/sys/class/dmi/id/product_name") or processor,
        system=f"{platform.system()} {platform.release()}",
        machine=platform.machine(),
        processor=processor,
        cores=available_cores(),
        governor=_read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        power_mode=_power_mode(),
        python=platform.python_version(),
    )


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def temperature() -> float | None:
    """The hottest thermal zone, degrees Celsius."""
    zones = [_read(str(zone)) for zone in Path("/sys/class/thermal").glob("thermal_zone*/temp")]
    values = [int(zone) / 1000 for zone in zones if zone is not None and zone.lstrip("-").isdigit()]
    return max((value for value in values if value > 0), default=None)


def peak_memory() -> int | None:
    """Largest resident size of this process so far, bytes."""
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _processor() -> str:
    for line in (_read("/proc/cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "Hardware"):
            return value.strip()
    return platform.processor() or platform.machine()


def _power_mode() -> str | None:
    if shutil.which("nvpmodel") is None:
        return None
    answer = subprocess.run(["nvpmodel", "-q"], capture_output=True, text=True, timeout=10, check=False)
    lines = [line.strip() for line in answer.stdout.splitlines() if line.strip()]
    return lines[0] if lines else None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(errors="replace").strip("\0 \n") or None
    except OSError:
        return None
