"""Put a trained checkpoint into the package: rounded weights, calibrated confidence, bundle, figures, model card.

For maintainers, see CONTRIBUTING.md:  python scripts/ship.py RUN/best --data data/valid2014
The commands it calls can be run one by one; it only keeps them in order and stops at the first that fails.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from hmerctl.runtime.files import write_text
from hmerctl.train.checkpoint import load_checkpoint, read_info, save_checkpoint, save_info

ROOT = Path(__file__).parent.parent
SHIPPED = ROOT / "hmerctl" / "shipped"


def run(*arguments: object, output: Path | None = None) -> str:
    """Run one hmerctl command; its output goes to the terminal, or as JSON to a file."""
    command = [sys.executable, "-m", "hmerctl", *map(str, arguments)]
    print("$ hmerctl", *arguments, flush=True)
    done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE if output else None)
    if output is not None:
        write_text(output, done.stdout)
    return done.stdout or ""


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="validation dataset, CROHME 2014")
    parser.add_argument("--figures", type=Path, default=ROOT / "docs" / "figures", help="where the JSON reports go")
    chosen = parser.parse_args()
    model, info = load_checkpoint(chosen.checkpoint)
    shipped = SHIPPED / info.name
    save_checkpoint(shipped, model.state_dict(), info, half=True)
    run("calibrate", shipped, "--data", chosen.data)
    report = chosen.figures / f"{info.name}-pytorch.json"
    predictions = [chosen.figures.parent.parent / "build" / f"{info.name}-{kind}.txt" for kind in ("pytorch", "onnx")]
    run("eval", shipped, "--data", chosen.data, "--json", "--predictions", predictions[0], output=report)
    scores = json.loads(report.read_text())
    info = read_info(shipped)
    figures = {"exprate": scores["token"]["exact"], "expressions": scores["expressions"], "data": chosen.data.name}
    save_info(shipped, replace(info, training={**info.training, "figures": figures}))
    run("export", shipped, "--target", "onnx", "--out", SHIPPED)
    bundle = SHIPPED / f"{info.name}-onnx-fp32.hmer"
    run("verify", bundle, "--checkpoint", shipped, "--data", chosen.data)
    report = chosen.figures / f"{info.name}-onnx-fp32.json"
    run("eval", bundle, "--data", chosen.data, "--json", "--predictions", predictions[1], output=report)
    equal = [a == b for a, b in zip(*(p.read_text().splitlines() for p in predictions), strict=True)]
    print(f"equal token sequences, PyTorch and bundle: {sum(equal)} of {len(equal)}")
    if not all(equal):
        sys.exit("the bundle reads otherwise than the checkpoint")
    subprocess.run([sys.executable, ROOT / "scripts" / "card.py"], check=True)


if __name__ == "__main__":
    main()
