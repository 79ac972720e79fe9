"""Which operations the Neural Engine can take: an estimate from published measurements, not a promise.

Apple documents neither the operations nor the rules; what an operation runs on is decided on the device when a model
is loaded. The table says what others read from ``MLComputePlan`` or from the engine's compiler; every row names its
source. On a Mac, ``hmerctl.targets.coreml.placement`` asks Core ML itself.
"""

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from hmerctl.targets.coreml.mil import MilFunction, OperationInfo

CATALOG = "https://github.com/sbryngelson/ANEForge/blob/main/docs/op-catalog.md"
"""Every MIL operation against the compiler of M1 to M5."""
PLAN = "https://github.com/moorbrook/parakeet-rs (Core ML compute plan for the Parakeet Unified models)"
"""MLComputePlan of a Conformer encoder and an LSTM decoder, M5 Pro, macOS 26.5, operation by operation."""
WHISPER = "https://huggingface.co/SingularityUS/atc-whisperkit/blob/main/small/TextDecoder.mlcomputeplan.json"
"""MLComputePlan of a Transformer step decoder with a key-value cache."""
DETR = "https://github.com/roboflow/rf-detr/pull/1495"
"""MLComputePlan of a detection Transformer, M3 Pro: what left the engine, and that it was all."""
FP16_ONLY = "https://github.com/apple/coremltools/issues/1761"
"""Why a float32 operand keeps an operation off the engine."""
DIMENSIONS = "https://github.com/FluidInference/FluidAudio (MelEncoder ANE behavior): N, C <= 65536, H, W <= 16384"
"""Why a long axis does."""

LONGEST_AXIS = 16384
"""Of the last two axes, see DIMENSIONS."""


@dataclass(frozen=True)
class Rule:
    """What the sources say of an operation.

    Attributes:
        eligible: seen on the engine, given float16 operands of fixed shape.
        source: where.
        note: what to know.
    """

    eligible: bool
    source: str
    note: str = ""


def _rules(source: str, names: str, eligible: bool = True, note: str = "") -> dict[str, Rule]:
    return dict.fromkeys(names.split(), Rule(eligible, source, note))


RULES: dict[str, Rule] = {
    **_rules(
        PLAN,
        "linear add transpose reshape layer_norm mul conv silu matmul select slice_by_index pad sigmoid softmax "
        "split relu sub floor_div logical_not",
    ),
    **_rules(WHISPER, "expand_dims batch_norm"),
    **_rules(
        CATALOG,
        "abs avg_pool ceil clip concat einsum erf exp fill floor gelu identity inverse leaky_relu log max_pool "
        "maximum minimum pow real_div reduce_argmax reduce_max reduce_mean reduce_min reduce_sum reduce_sum_square "
        "reverse round rsqrt scaled_dot_product_attention sign slice_by_size softplus sqrt square squeeze stack "
        "tanh tile",
    ),
    **_rules(CATALOG, "equal not_equal greater greater_equal less less_equal", note="of float16 operands only"),
    **_rules(CATALOG, "cast", note="between float16 and bool; on the edges of a graph Core ML keeps it on the CPU"),
    **_rules(CATALOG, "logical_and logical_or logical_xor mod", eligible=False, note="no engine takes it"),
    **_rules(CATALOG, "gru", eligible=False, note="no engine takes a recurrent layer"),
    **_rules(WHISPER, "gather", eligible=False, note="seen on the CPU alone; the catalogue has it from A14 on"),
    **_rules(DETR, "gather_along_axis gather_nd", eligible=False, note="seen on the CPU alone"),
    **_rules(
        "https://github.com/apple/coremltools/issues/2690",
        "reduce_log_sum_exp",
        eligible=False,
        note="taken, but overflows from x = 7.6 on: log_softmax is converted without it",
    ),
}
"""The allow-list of the target, too: an operation without a row is a fault of the graph (level L0)."""


@dataclass(frozen=True)
class Estimate:
    """How much of a function the Neural Engine could take.

    Attributes:
        operations, eligible: counts.
        work, eligible_work: multiply-adds of convolutions and matrix products.
        off: what would run elsewhere, ``{"gather: seen on the CPU alone": 2}``.
    """

    operations: int
    eligible: int
    work: int
    eligible_work: int
    off: dict[str, int]

    def __str__(self) -> str:
        share = 100 * self.eligible_work / max(self.work, 1)
        off = "; ".join(f"{count} x {what}" for what, count in sorted(self.off.items()))
        return (
            f"{self.eligible} of {self.operations} operations and {share:.1f} % of {self.work / 1e6:.1f} M "
            f"multiply-adds eligible for the Neural Engine; elsewhere: {off or 'nothing'}"
        )


def estimate(function: MilFunction) -> Estimate:
    """Apply the table to a function."""
    off: Counter[str] = Counter()
    eligible = work = eligible_work = 0
    for operation in function.operations:
        reason, cost = _why_off(operation), multiply_adds(operation)
        work += cost
        if reason:
            off[f"{operation.op_type}: {reason}"] += 1
        else:
            eligible += 1
            eligible_work += cost
    return Estimate(len(function.operations), eligible, work, eligible_work, dict(off))


def _why_off(operation: OperationInfo) -> str:
    """Why an operation would not run on the Neural Engine, or ``""``."""
    rule = RULES.get(operation.op_type)
    if rule is None:
        return "not in the table"
    if not rule.eligible:
        return rule.note
    tensors = [type_ for key, type_ in operation.reads if key not in operation.constants] + list(operation.gives)
    if any(type_.dtype.kind in "iu" for type_ in tensors):
        return "integers"
    if any(type_.dtype == np.float32 for type_ in tensors):
        return "float32"
    if any(size > LONGEST_AXIS for type_ in tensors for size in type_.shape[-2:]):
        return f"an axis longer than {LONGEST_AXIS}"
    return ""


def multiply_adds(operation: OperationInfo) -> int:
    """Multiply-adds of a convolution or matrix product, 0 of anything else."""
    reads = dict(operation.reads)
    size = math.prod(operation.gives[0].shape)
    if operation.op_type == "conv":
        return size * math.prod(reads["weight"].shape[1:])
    if operation.op_type == "linear":
        return size * reads["x"].shape[-1]
    if operation.op_type == "matmul":
        x = reads["x"].shape
        # The summed axis is the last of x unless x is transposed; sizes tell which.
        return size * (x[-1] if x[-2] == operation.gives[0].shape[-2] else x[-2])
    if operation.op_type == "gru":
        length, batch = reads["x"].shape[:2]
        return length * batch * sum(math.prod(reads[name].shape) for name in ("weight_ih", "weight_hh"))
    return 0
