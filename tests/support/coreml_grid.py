"""What is converted for Core ML in the tests: what a small model has in place of its defaults, and which graph."""

from typing import Any

from hmerctl.train.models import parts

EDGE = {"name": "edge", "stem": 4, "middle": 4, "middle_blocks": 1, "top": 8, "top_blocks": 1, "channels": 8}
DENSE = {"name": "densenet", "blocks": (1, 1, 1), "growth": 8, "stem": 8}
TRANSFORMER = {"name": "transformer", "layers": 2, "heads": 2, "width": 8, "inner": 8}
GRU = {"name": "attention-gru", "width": 8, "embedding": 8, "attention": 8, "coverage": 4, "coverage_kernel": 3}
SMALL: dict[str, dict[str, Any]] = {
    "self-attention": {"layers": 1, "heads": 2, "inner": 8},
    "md-gru": {"hidden": 4},
    "md-lstm": {"hidden": 4},
    "md-rnn": {"hidden": 4},
}

GRID: list[tuple[dict[str, dict[str, Any]], str]] = [
    *[({"position": {"name": name}}, "encoder") for name in parts.names("position")],
    *[({"context": {"name": name, **SMALL.get(name, {})}}, "encoder") for name in parts.names("context")],
    ({"context": {"name": "self-attention", **SMALL["self-attention"], "windows": ((3, 5),)}}, "encoder"),
    ({"context": {"name": "self-attention", **SMALL["self-attention"], "windows": ((0, 5),)}}, "encoder"),
    ({"context": {"name": "self-attention", **SMALL["self-attention"]}, "position": {"name": "relative"}}, "encoder"),
    (
        {"encoder": DENSE, "context": {"name": "bigru"}, "position": {"name": "multi-scale"}, "decoder": GRU},
        "encoder",
    ),
    ({"encoder": DENSE, "context": {"name": "bigru"}}, "encoder"),
    ({"position": {"name": "relative"}}, "step"),
    ({"decoder": GRU}, "encoder"),
    ({"decoder": GRU}, "step"),
    ({"decoder": GRU, "position": {"name": "relative"}}, "step"),
    ({"decoder": {**TRANSFORMER, "refinement": 4}}, "step"),
]
