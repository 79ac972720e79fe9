"""What int8 and float16 cost on real ink: calibration methods, clipping, counts, layers, and the evaluator's float16.

For maintainers. Works on the float32 graphs of an ``onnx`` bundle:

    python scripts/compare_precisions.py BUNDLE --calibration data/train --data data/valid2014 --out figures.json

Every row is decoded greedily by the same search; ``exprate`` is exact agreement with the labels, ``p`` that of
McNemar's exact test against the float32 row, ``snr`` the lowest of the outputs of the encoder, in decibels.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from hmerctl.export.calibration import encoder_feeds
from hmerctl.export.half_engine import EvaluatorSession
from hmerctl.export.parity.pictures import Picture, pictures_of_dataset
from hmerctl.export.precision import HalfPolicy, half_interface, to_half
from hmerctl.export.quantize import QuantizeOptions, calibrate, layer_losses, leave_worst, lowest_snr, quantize
from hmerctl.export.session import cpu_session
from hmerctl.runtime.bundle import Bundle, open_bundle
from hmerctl.runtime.decode import DecodeOptions, search
from hmerctl.runtime.engines.onnx import OnnxSession
from hmerctl.runtime.files import write_text
from hmerctl.train.metrics.statistics import compare

METHODS = (
    QuantizeOptions(method="minmax"),
    QuantizeOptions(method="entropy"),
    QuantizeOptions(method="percentile", percentile=99.9),
    QuantizeOptions(method="percentile", percentile=99.99),
    QuantizeOptions(method="percentile", percentile=99.999),
)


class Study:
    """Pictures, the float32 results on them, and rows of figures."""

    def __init__(self, bundle: Bundle, pictures: list[Picture], snr_inks: int) -> None:
        self.bundle, self.pictures = bundle, pictures
        self.encoder, self.step = (onnx.load(bundle.file(f"{role}.onnx")) for role in ("encoder", "step"))
        self.feeds = list(encoder_feeds([p.pixels for p in pictures], bundle.padding()))
        self.snr_feeds = self.feeds[:: max(1, len(self.feeds) // snr_inks)]
        self.rows: list[dict[str, Any]] = []
        self.reference_outputs = self.outputs(cpu_session(self.encoder))
        self.right: list[bool] = []
        self.tokens: list[tuple[str, ...]] = []

    def outputs(self, encoder: Any) -> list[dict[str, np.ndarray]]:
        names = [o.name for o in encoder.get_outputs()]
        return [dict(zip(names, encoder.run(None, feed), strict=True)) for feed in self.snr_feeds]

    def row(self, name: str, encoder: Any, step: Any, **more: Any) -> None:
        """Decode everything with these two graphs and note what comes out."""
        started, decoder = time.monotonic(), self.bundle.manifest.decoder
        names = [o.name for o in encoder.get_outputs()]
        tokens = []
        for feed in self.feeds:
            memory = dict(zip(names, encoder.run(None, feed), strict=True))
            best = search(
                OnnxSession(step, decoder.state, memory, 1, decoder.max_steps), DecodeOptions(max_steps=100)
            )
            tokens.append(tuple(self.bundle.vocabulary.decode(best[0].ids)))
        right = [t == p.tokens for t, p in zip(tokens, self.pictures, strict=True)]
        self.right, self.tokens = self.right or right, self.tokens or tokens
        paired = compare(self.right, right)
        self.rows.append(
            {
                "name": name,
                "snr": round(lowest_snr(self.reference_outputs, self.outputs(encoder)), 2),
                "same_tokens": round(float(np.mean([a == b for a, b in zip(tokens, self.tokens, strict=True)])), 4),
                "exprate": round(100 * float(np.mean(right)), 2),
                "lost": paired.only_first,
                "won": paired.only_second,
                "p": round(paired.p_mcnemar, 4),
                "seconds": round(time.monotonic() - started, 1),
                **more,
            }
        )
        print(json.dumps(self.rows[-1]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--calibration", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--counts", type=int, nargs="+", default=[8, 32, 128])
    parser.add_argument("--expressions", type=int, default=200)
    parser.add_argument("--target-snr", type=float, default=30.0)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    bundle = open_bundle(arguments.bundle)
    spec = bundle.manifest.preprocessing
    pictures = pictures_of_dataset(arguments.data, spec, arguments.expressions)
    study = Study(bundle, pictures, snr_inks=16)
    step = cpu_session(study.step)
    study.row("fp32", cpu_session(study.encoder), step)

    decoder = bundle.manifest.decoder
    policy = HalfPolicy(half_interface(decoder.memory, decoder.state))
    half = [EvaluatorSession(to_half(graph, policy)) for graph in (study.encoder, study.step)]
    study.row("fp16", *half, overflows=0)
    study.rows[-1]["overflows"] = sum(len(s.overflows) for s in half)
    study.rows[-1]["peak"] = max(max(s.evaluator.peaks.values()) for s in half)

    most = max(arguments.counts)
    inks = [p.pixels for p in pictures_of_dataset(arguments.calibration, spec, most)]

    def feeds(count: int) -> Any:
        return encoder_feeds(inks[:: max(1, len(inks) // count)][:count], bundle.padding())

    def quantised(options: QuantizeOptions, count: int) -> tuple[Any, Callable[[QuantizeOptions], onnx.ModelProto]]:
        ranges = calibrate(study.encoder, feeds(count), options)
        return ranges, lambda chosen: quantize(study.encoder, ranges, chosen)

    for options in METHODS:
        label = options.method + (f" {options.percentile}" if options.method == "percentile" else "")
        for count in arguments.counts if options == QuantizeOptions() else [most]:
            _, make = quantised(options, count)
            study.row(f"int8 encoder, {label}, {count} inks", cpu_session(make(options)), step)
    chain = replace(QuantizeOptions(), layout="chain")
    _, make = quantised(chain, most)
    study.row(f"int8 encoder in a chain, {most} inks", cpu_session(make(chain)), step)

    options = QuantizeOptions()
    ranges, make = quantised(options, most)
    judged = study.snr_feeds[:8]
    losses = layer_losses(study.encoder, ranges, judged, options)
    chosen, tries = leave_worst(study.encoder, ranges, judged, options, arguments.target_snr, at_most=6)
    study.row(f"int8 encoder, {len(chosen.exclude)} worst layers left", cpu_session(make(chosen)), step)
    mixed = to_half(make(chosen), policy)
    study.row("the same with float16 around it", EvaluatorSession(mixed), half[1])
    report = {
        "bundle": bundle.manifest.bundle_id,
        "data": str(arguments.data.name),
        "expressions": len(pictures),
        "rows": study.rows,
        "layers": [vars(loss) for loss in losses],
        "tries": tries,
    }
    write_text(arguments.out, json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
