"""Checkpoint to step graphs to bundle, and the parity ladder (torch, onnx)."""
