#!/usr/bin/env bash
# The main job on what the repository ships; `make demo` calls it with the environment's BIN and a folder OUT.
set -euo pipefail
bundle=$OUT/edge-onnx-fp32.hmer
mkdir -p "$OUT"

echo "== Recognise the sample inks with the shipped bundle"
"$BIN/hmerctl" recognize runtime/samples/*.json

echo "== Export the shipped checkpoint to ONNX"
"$BIN/hmerctl" export --target onnx --out "$OUT"

echo "== Prove that the export says what PyTorch says"
"$BIN/hmerctl" verify "$bundle"

echo "== Measure its latency (10 seconds)"
"$BIN/hmerctl" bench "$bundle" --quick

echo "== Draw what was read, and where the decoder looked"
"$BIN/hmerctl" recognize runtime/samples/fraction.json --bundle "$bundle" --picture "$OUT/reading.png"
echo "picture: $OUT/reading.png"
