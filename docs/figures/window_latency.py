"""Prints what the encoder graphs of several bundles cost side by side, on small and on large rasters.

Run from the repository: ``python docs/figures/window_latency.py whole.hmer windows.hmer [--repeats 9]``. The bundles
take turns on every raster, so what else the machine does meets all of them; processor time on one thread.
"""

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
import onnxruntime

RASTERS = ((64, 128), (96, 256), (96, 512), (128, 768), (192, 1024), (256, 1280))


def session(bundle: Path) -> onnxruntime.InferenceSession:
    """The bundle's encoder on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(bundle / "encoder.onnx", options)


def measure(sessions: list[onnxruntime.InferenceSession], repeats: int, raster: tuple[int, int]) -> list[float]:
    """Median milliseconds of processor time of each, after one run to warm up."""
    picture = np.zeros((1, 1, *raster), np.float32)
    picture[:, :, ::7, ::3] = 1
    feed = {"raster": picture, "size": np.array([raster], np.int32)}
    times: list[list[float]] = [[] for _ in sessions]
    for _ in range(repeats + 1):
        for encoder, taken in zip(sessions, times, strict=True):
            start = time.process_time()
            encoder.run(None, feed)
            taken.append(time.process_time() - start)
    return [statistics.median(taken[1:]) * 1000 for taken in times]


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundles", nargs="+", type=Path)
    parser.add_argument("--repeats", type=int, default=9)
    given = parser.parse_args()
    sessions = [session(bundle) for bundle in given.bundles]
    print("| raster | cells at stride 8 | " + " | ".join(f"{b.stem}, ms" for b in given.bundles) + " |")
    print("|---|--:" + "|--:" * len(sessions) + "|")
    for height, width in RASTERS:
        figures = measure(sessions, given.repeats, (height, width))
        cells = f"{height // 8 * (width // 8):,}"
        print(f"| {height} x {width} | {cells} | " + " | ".join(f"{ms:.1f}" for ms in figures) + " |", flush=True)


if __name__ == "__main__":
    main()
