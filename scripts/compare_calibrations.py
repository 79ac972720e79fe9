"""How int8 is best calibrated: methods, clipping, counts of inks, layouts, and which layers pay for it.

    python scripts/compare_calibrations.py --calibration data/train --data data/valid2014

Quantises the encoder of the shipped checkpoint as ``onnx`` does in every way, and as ``jetson-trt`` does in its own
default, reads the same expressions greedily with each, and writes docs/figures/<model>-calibrations.json and the
marked tables of docs/precision.md. The float32 bundle comes from ``--work``, where scripts/precision_costs.py leaves
one too. What the chosen way costs every target on the whole set is that script.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from card import filled, table
from precision_costs import exported

from hmerctl.export.calibration import encoder_feeds
from hmerctl.export.parity.pictures import Picture, pictures_of_dataset
from hmerctl.export.quantize import (
    LayerLoss,
    QuantizeOptions,
    calibrate,
    layer_losses,
    leave_worst,
    lowest_snr,
    quantize,
)
from hmerctl.export.session import cpu_session
from hmerctl.export.source import load_source, shipped_checkpoint
from hmerctl.runtime.bundle import Bundle, open_bundle
from hmerctl.runtime.decode import DecodeOptions, search
from hmerctl.runtime.engines.onnx import OnnxSession
from hmerctl.runtime.files import write_text
from hmerctl.train.metrics.statistics import compare

ROOT = Path(__file__).parent.parent
DEFAULT = QuantizeOptions(layout="chain")
METHODS = (
    replace(DEFAULT, method="minmax"),
    replace(DEFAULT, method="entropy"),
    replace(DEFAULT, percentile=99.9),
    replace(DEFAULT, percentile=99.99),
    DEFAULT,
)
SNR_INKS = 16
JUDGES = 8
"""Inks, of those that are read, that judge layers."""

SHOWN = 8
"""Layers in the table, the worst first."""


@dataclass(frozen=True)
class Row:
    """One way to quantise the encoder; ``lost`` and ``won``: right only in float32, only here."""

    name: str
    snr: float
    same: int
    exprate: float
    lost: int
    won: int
    p: float


class Study:
    """Pictures, the float32 results on them, and a row for every other encoder."""

    def __init__(self, bundle: Bundle, pictures: list[Picture]) -> None:
        self.bundle, self.pictures = bundle, pictures
        self.encoder = onnx.load(bundle.file("encoder.onnx"))
        self.step = cpu_session(onnx.load(bundle.file("step.onnx")))
        self.feeds = list(encoder_feeds([p.pixels for p in pictures], bundle.padding()))
        self.snr_feeds = self.feeds[:: max(1, len(self.feeds) // SNR_INKS)]
        self.reference = self.outputs(cpu_session(self.encoder))
        self.tokens = self.read(cpu_session(self.encoder))
        self.rows = [self.row("float32", self.encoder)]

    def outputs(self, encoder: Any) -> list[dict[str, np.ndarray]]:
        names = [o.name for o in encoder.get_outputs()]
        return [dict(zip(names, encoder.run(None, feed), strict=True)) for feed in self.snr_feeds]

    def read(self, encoder: Any) -> list[tuple[str, ...]]:
        """Greedy tokens of every picture; the step is always float32."""
        decoder, names = self.bundle.manifest.decoder, [o.name for o in encoder.get_outputs()]
        tokens = []
        for feed in self.feeds:
            memory = dict(zip(names, encoder.run(None, feed), strict=True))
            session = OnnxSession(self.step, decoder.state, memory, 1, decoder.max_steps)
            tokens.append(tuple(self.bundle.vocabulary.decode(search(session, DecodeOptions())[0].ids)))
        return tokens

    def row(self, name: str, encoder: onnx.ModelProto) -> Row:
        session = cpu_session(encoder)
        tokens = self.read(session)
        expected, right = (
            [t == p.tokens for t, p in zip(side, self.pictures, strict=True)] for side in (self.tokens, tokens)
        )
        paired = compare(expected, right)
        return Row(
            name=name,
            snr=round(lowest_snr(self.reference, self.outputs(session)), 1),
            same=int(np.sum([a == b for a, b in zip(tokens, self.tokens, strict=True)])),
            exprate=round(100 * paired.second, 2),
            lost=paired.only_first,
            won=paired.only_second,
            p=round(paired.p_mcnemar, 3),
        )

    def add(self, name: str, encoder: onnx.ModelProto) -> None:
        self.rows.append(self.row(name, encoder))
        print(self.rows[-1], flush=True)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, default=shipped_checkpoint(), help="default: the shipped one")
    parser.add_argument("--calibration", type=Path, required=True, help="dataset whose inks set the ranges")
    parser.add_argument("--data", type=Path, required=True, help="labelled dataset that is read")
    parser.add_argument("--counts", type=int, nargs="+", default=[16, 64, 256], help="inks to calibrate on")
    parser.add_argument("--expressions", type=int, default=160, help="about so many, evenly spread")
    parser.add_argument("--target-snr", type=float, default=30.0, help="dB wanted of the mixed encoder")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "precisions", help="for the float32 bundle")
    parser.add_argument("--figures", type=Path, default=ROOT / "docs" / "figures")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "precision.md")
    chosen = parser.parse_args()
    source = load_source(chosen.checkpoint)
    bundle = open_bundle(exported(source, "onnx", "fp32", chosen.work, chosen.calibration))
    spec, most = bundle.manifest.preprocessing, max(chosen.counts)
    study = Study(bundle, pictures_of_dataset(chosen.data, spec, chosen.expressions))
    inks = [p.pixels for p in pictures_of_dataset(chosen.calibration, spec, most)]

    def ranges(options: QuantizeOptions, count: int) -> Any:
        return calibrate(study.encoder, encoder_feeds(inks[:: max(1, len(inks) // count)][:count]), options)

    for options in METHODS:
        label = options.method + (f" {options.percentile}" if options.method == "percentile" else "")
        for count in chosen.counts if options == DEFAULT else [most]:
            name = f"{label}, {count} inks" + (" (default)" if (options, count) == (DEFAULT, most) else "")
            study.add(name, quantize(study.encoder, ranges(options, count), options))
    products = replace(DEFAULT, layout="products")
    study.add(
        "the default in products only, as for jetson-trt", quantize(study.encoder, ranges(products, most), products)
    )

    measured, judges = ranges(DEFAULT, most), study.snr_feeds[:JUDGES]
    losses = layer_losses(study.encoder, measured, judges, DEFAULT)
    mixed, tries = leave_worst(study.encoder, measured, judges, DEFAULT, chosen.target_snr, at_most=6)
    if mixed.exclude:
        study.add(f"the default, {len(mixed.exclude)} layers left", quantize(study.encoder, measured, mixed))
    report = {
        "bundle": bundle.manifest.bundle_id,
        "data": chosen.data.name,
        "expressions": len(study.pictures),
        "calibration": chosen.calibration.name,
        "rows": [asdict(row) for row in study.rows],
        "layers": [asdict(loss) for loss in losses],
        "tries": tries,
    }
    name = bundle.manifest.model.name
    write_text(chosen.figures / f"{name}-calibrations.json", json.dumps(report, indent=1) + "\n")
    regions = {
        "calibrations": described(study.rows, bundle.manifest.bundle_id, len(study.pictures), chosen.data.name),
        "layers": layers(losses, tries),
    }
    page = filled(chosen.page.read_text(encoding="utf-8"), regions, "scripts/compare_calibrations.py")
    write_text(chosen.page, page)


def described(rows: Sequence[Row], bundle: str, expressions: int, data: str) -> str:
    """The table of all ways, with a sentence on what it was measured on."""
    header = ("encoder", "SNR, dB", "same tokens", "ExpRate", "lost", "won", "p")
    first, *others = rows
    lines: list[tuple[object, ...]] = [(first.name, "", first.same, f"{first.exprate:.2f}", "", "", "")]
    lines += [(r.name, r.snr, r.same, f"{r.exprate:.2f}", r.lost, r.won, r.p) for r in others]
    return f"`{bundle}`, {expressions} expressions of `{data}`.\n\n{table(header, lines)}"


def layers(losses: Sequence[LayerLoss], tries: Sequence[tuple[int, float]]) -> str:
    """The layers that lose most alone, and what leaving the worst in higher precision gives."""
    worst = table(("layer", "", "alone, dB"), [(f"`{x.node}`", x.op, f"{x.snr:.1f}") for x in losses[:SHOWN]])
    left = ", ".join(f"{count} left: {snr:.1f} dB" for count, snr in tries)
    return f"{worst}\n\nWith the worst layers left in higher precision: {left}."


if __name__ == "__main__":
    main()
