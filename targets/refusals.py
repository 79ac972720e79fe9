"""What the targets cannot take, and where that is known from: the table behind the refusals of their plans.

docs/targets/README.md shows the table; ``scripts/proofs.py`` writes it there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hmerctl.export.source import Source
from hmerctl.runtime.buckets import Bucket


@dataclass(frozen=True)
class Limit:
    """A kind of model that some targets refuse.

    Attributes:
        targets: their names.
        what: the kind of model.
        because: the reason for a model and the target's buckets, None for a model that is not of this kind.
        source: where the limit is known from.
    """

    targets: tuple[str, ...]
    what: str
    because: Callable[[Source, Sequence[Bucket]], str | None]
    source: str


def one_bucket_only(source: Source, buckets: Sequence[Bucket] = ()) -> str | None:
    """Of a target whose one encoder graph serves every bucket: why the model's cannot, None if it can."""
    reason = source.model.context.fixed_size
    name = source.model.config.context["name"]
    return f"one encoder graph must serve every bucket, but in the context {name!r} {reason}" if reason else None


def uneven_stride(source: Source, buckets: Sequence[Bucket]) -> str | None:
    """Of a target of fixed shapes: which bucket is not made of whole cells, None if all are."""
    stride = source.model.encoder.stride
    uneven = next((b for b in buckets if b.height % stride or b.width % stride), None)
    return f"the encoder's stride {stride} does not divide the bucket {uneven}" if uneven else None


LIMITS = (
    Limit(
        ("onnx", "jetson-trt"),
        "contexts that scan the map in two dimensions: `md-rnn`, `md-gru`, `md-lstm`",
        one_bucket_only,
        "a scan over a map of any size is Loop or Scan in ONNX; TensorRT wants the shapes of a Loop constant "
        "(onnx-tensorrt, docs/operators.md), and level L0 forbids both. Unrolled, a graph serves one size: the "
        "`coreml` targets, whose graphs are of one size each, take these contexts",
    ),
    Limit(
        ("coreml", "coreml-ios16"),
        "encoders whose stride does not divide both sides of every bucket",
        uneven_stride,
        "the shapes of a function are constants; flexible ones lose the Neural Engine "
        "(https://github.com/apple/coremltools/issues/1909)",
    ),
)


def refusal(target: str, source: Source, buckets: Sequence[Bucket]) -> str | None:
    """Why a target cannot take a model, with the source of the limit; None if it can.

    Args:
        target: its name.
        buckets: raster sizes that it would be built for.
    """
    for limit in LIMITS:
        if target in limit.targets and (reason := limit.because(source, buckets)):
            return f"{reason} ({limit.source})"
    return None
